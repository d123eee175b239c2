"""Where devices fail a pod whenever others have left for it, nobody has to leave for it again soon, and ever less so."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace
from scheduling_cluster import Sim, pod

from dray.api import kinds
from dray.api.core import Pod
from dray.api.meta import Condition
from dray.api.times import format_time, parse_time
from dray.api.words import words
from dray.explain.why import why
from dray.scheduling.waiting.pauses import Pause, told

READY = "dra.example.com/is-prepared"
FAILED = "dra.example.com/preparing-failed"
STEP = 10.0
HOUR = 3600.0
FAILS_AFTER = 65.0  # when a device that failed before is a choice like any other again


class Fabric:
    """Two devices that fail for ``high`` after a while, and work for everybody else; whoever leaves comes back under another
    name."""

    def __init__(self, sim: Sim, queue: str = "") -> None:
        self.sim = sim
        self._labels = {"kai.scheduler/queue": queue} if queue else {}
        self._lows: set[str] = set()
        self._serial = 0
        self.evicted: list[float] = []
        sim.add_class()
        sim.add_node("n1")
        sim.add_slice("n1", 2, bindsToNode=True, bindingConditions=[READY], bindingFailureConditions=[FAILED])
        self._come()
        self._come()
        self.go(2 * STEP)
        assert [sim.node_of(name) for name in self._lows] == ["n1", "n1"]

    def ask(self, name: str, priority: int) -> None:
        self.sim.add_claim(name)
        self.sim.api.put(kinds.PODS, pod(name, claims=[name], priority=priority, labels=self._labels))

    def _come(self) -> None:
        self._serial += 1
        self._lows.add(f"low-{self._serial}")
        self.ask(f"low-{self._serial}", 1)

    def go(self, seconds: float) -> None:
        until = self.sim.now + seconds
        while self.sim.now < until:
            self.sim.settle()
            self._conditions()
            for name in sorted(self._lows):
                if f"default/{name}" not in self.sim.api.objects[kinds.PODS]:
                    self._left(name)
            self.sim.settle(STEP)

    def _left(self, name: str) -> None:
        self.evicted.append(self.sim.now)
        self._lows.discard(name)
        del self.sim.api.objects[kinds.RESOURCE_CLAIMS][f"default/{name}"]
        self._come()

    def _conditions(self) -> None:
        for key, claim in list(self.sim.api.objects[kinds.RESOURCE_CLAIMS].items()):
            allocation = claim["status"].get("allocation")
            if allocation is None or claim["status"].get("devices"):
                continue
            high = key == "default/high"
            if high and self.sim.now < parse_time(allocation["allocationTimestamp"]) + FAILS_AFTER:
                continue
            (result,) = allocation["devices"]["results"]
            said = {"type": FAILED if high else READY, "status": "True", "reason": "Said", "message": ""}
            said["lastTransitionTime"] = format_time(self.sim.now)
            place: dict[str, Any] = {key: result[key] for key in ("driver", "pool", "device")}
            claim["status"]["devices"] = [{**place, "conditions": [said]}]
            self.sim.api.put(kinds.RESOURCE_CLAIMS, claim)


def without_queues(sim: Sim) -> Fabric:
    return Fabric(sim)


def in_a_queue(sim: Sim) -> Fabric:
    unlimited = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    resources = dict.fromkeys(("cpu", "memory", "gpu"), unlimited)
    sim.api.put(kinds.QUEUES, {"metadata": {"name": "team"}, "spec": {"resources": resources}})
    return Fabric(sim, "team")


@pytest.mark.parametrize("made", [without_queues, in_a_queue])
def test_others_leave_for_it_ever_more_seldom(sim: Sim, made: Callable[[Sim], Fabric]) -> None:
    fabric = made(sim)
    fabric.ask("high", 10)
    fabric.go(HOUR)
    began, gaps = fabric.evicted[0], [later - sooner for sooner, later in pairwise(fabric.evicted)]
    assert len([at for at in fabric.evicted if at < began + 600]) >= 4
    assert gaps == sorted(gaps)
    assert gaps[-1] > 600


@pytest.fixture
def paused(sim: Sim) -> Fabric:
    return until_it_pauses(Fabric(sim))


def until_it_pauses(fabric: Fabric) -> Fabric:
    """Others left for ``high`` in vain several times, and nobody does now."""
    fabric.ask("high", 10)
    while len(fabric.evicted) < 6:
        fabric.go(STEP)
    fabric.go(FAILS_AFTER + 3 * STEP)
    assert len(fabric.evicted) == 6
    return fabric


def test_people_are_told_until_when(paused: Fabric) -> None:
    told = paused.sim.condition("high")["message"]
    assert "pod default/high evicts nobody before 2027-01-15T08:" in told
    assert ": devices failed it after others had left for it, 6 times." in told
    assert "No preemption victims found" not in told
    assert paused.sim.pod("high")["status"].get("nominatedNodeName") is None


def told_of(fabric: Fabric) -> Pause:
    pod = fabric.sim.world.get(kinds.PODS, "default/high")
    assert pod is not None
    found = told(pod)
    assert found is not None
    return found


@pytest.mark.parametrize("made", [without_queues, in_a_queue])
def test_who_starts_anew_goes_on_with_the_pause(sim: Sim, made: Callable[[Sim], Fabric]) -> None:
    fabric = until_it_pauses(made(sim))
    pause = told_of(fabric)
    assert (pause.times, pause.until > sim.now + 60) == (6, True)
    sim.start()
    fabric.go(pause.until - sim.now - STEP)
    assert len(fabric.evicted) == 6
    fabric.go(9 * STEP)
    assert len(fabric.evicted) == 7
    fabric.go(FAILS_AFTER + 3 * STEP)
    assert told_of(fabric).times == 7


def test_why_tells_it_and_names_nobody_who_would_leave(paused: Fabric) -> None:
    sim, pause = paused.sim, told_of(paused)
    pod = sim.world.get(kinds.PODS, "default/high")
    assert pod is not None
    found = why(sim.world, pod, now=sim.now)
    assert (found.verdict, found.reasons[-1], found.evicts) == ("unschedulable", pause.reason(pod), None)
    assert found.summary.endswith("devices failed it after others had left for it, 6 times.")
    assert why(sim.world, pod, now=pause.until + 1).evicts is not None


def test_only_the_sentence_itself_is_taken_for_a_pause(sim: Sim) -> None:
    sim.add_pod("p")
    pod = sim.world.get(kinds.PODS, "default/p")
    for pause in (Pause(1_800_000_000.0), Pause(1_800_000_000.0, 12)):
        assert told(with_condition(pod, f"0/1 nodes are available: x, {words(pause.reason(pod))}.")) == pause
    for said in ("", "evicts nobody before noon: devices failed it", "evicts nobody before 9999-99-99T99:99:99Z: " + VAIN):
        assert told(with_condition(pod, said)) is None


VAIN = "devices failed it after others had left for it"


def with_condition(pod: Pod, said: str) -> Pod:
    condition = Condition(type="PodScheduled", status="False", message=said)
    return replace(pod, status=replace(pod.status, conditions=(condition,)))


def test_what_becomes_free_meanwhile_it_takes(paused: Fabric) -> None:
    sim = paused.sim
    sim.add_node("n2")
    sim.add_slice("n2", 1)
    sim.settle(1)
    assert sim.node_of("high") == "n2"


def test_an_equal_pod_is_not_held_up_by_it(paused: Fabric) -> None:
    paused.ask("equal", 10)
    paused.go(3 * STEP)
    assert len(paused.evicted) == 7
    assert paused.sim.node_of("equal") == "n1"


def test_a_pod_that_is_written_anew_begins_anew(paused: Fabric) -> None:
    body = paused.sim.pod("high")
    body["metadata"]["labels"] = {"new": "yes"}
    paused.sim.api.put(kinds.PODS, body)
    paused.go(2 * STEP)
    assert len(paused.evicted) == 7
