"""Whatever came and went, nothing of it is remembered but what has a bound, and one step takes a bounded amount of work."""

from __future__ import annotations

import sys
from collections import Counter
from types import FrameType
from typing import Any, Final

import pytest

from dray.api.kinds import PODS
from dray.cluster.port import Write
from dray.cluster.world import World
from dray.runtime.faults import NONE, Faults
from dray.scheduling.kinds import KINDS
from dray.testing import (
    FAULTS,
    Lockstep,
    VirtualCluster,
    assert_sound,
    claim_template,
    device_class,
    node,
    node_with_devices,
    pod,
)
from dray.testing.cluster import scheduler
from tests.simulate.held import held

NODES: Final = 4
WAVE: Final = 20
# What may grow, and how far. Caches count with everything that can be reached only through them.
BOUNDS: Final = {
    "World._gone": 5 * 20_000,  # each process has its own
    "Garbage._gone": 20_000,
    "ClaimsController._gone": 10_000,
    "ChangeLog._names": 65_536,
    "Nodes._states": 65_536,
    "Plan._seen": 128 * 65_536,
    "Inventory._states": 1_000_000,
    "ClaimsController._counted": 1_000,  # one for each combination of a few labels
    "Recorder._series": 4096 * 16,
    "Demand.answers": 100_000,
    "Demand.packed": 100_000,
    "Cycle._kept": 128 * NODES * 200,
}
SHAPES: Final[tuple[dict[str, Any], ...]] = (
    {"template": "one"},
    {"template": "two"},
    {"limits": {"example.com/gpu": "1"}},
    {},
    {"template": "two", "priorityClassName": "high"},
    {"limits": {"example.com/gpu": "2"}, "priorityClassName": "high"},
)


class Churn:
    """Pods of a few shapes come in waves, run, end, are preempted or wait, and go. Every name is new."""

    def __init__(self, faults: Faults = NONE) -> None:
        self.cluster = cluster = VirtualCluster(faults=faults)
        cluster.start_all()
        cluster.create(device_class("gpu", extendedResourceName="example.com/gpu"))
        cluster.create(claim_template("one"), claim_template("two", count=2))
        for number in range(NODES):
            cluster.create(*node_with_devices(f"n{number}", 4, cpu="16"))
        high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 100}
        cluster.create(high)
        self._waves = 0

    def pods(self, count: int) -> None:
        for _ in range(count // WAVE):
            self._waves += 1
            for number in range(WAVE):
                self._create(f"p{self._waves}-{number}", number)
            self.cluster.run(6)
            for found in self.cluster.all(PODS):
                self.cluster.delete(PODS, found["metadata"]["name"])
            self.cluster.run(6)

    def _create(self, name: str, number: int) -> None:
        annotations = {"dray.dev/finishes-after": "3s"} if number % 3 else None
        self.cluster.create(pod(name, requests={"cpu": "1"}, annotations=annotations, **SHAPES[number % len(SHAPES)]))

    def at_rest(self) -> Counter[str]:
        """What all deciders and their worlds hold when everything has gone."""
        self.cluster.run(120)
        assert self.cluster.all(PODS) == []
        assert_sound(self.cluster, strict=True)
        hosts = self.cluster.shell.hosts.values()
        return held(*(part for host in hosts for part in (*host.deciders, host.world)), caches=BOUNDS)


def grown(before: Counter[str], after: Counter[str]) -> dict[str, int]:
    """What holds more than before by more than the jitter of a few timers, bounds aside."""
    return {name: after[name] - before[name] for name in after if name not in BOUNDS and after[name] - before[name] > 8}


def check(churn: Churn, first: int, more: int) -> None:
    churn.pods(first)
    before = churn.at_rest()
    churn.pods(more)
    after = churn.at_rest()
    assert grown(before, after) == {}, f"grew while {more} pods came and went"
    assert {name: after[name] for name, most in BOUNDS.items() if after[name] > most} == {}


def test_nothing_grows_while_pods_come_and_go() -> None:
    check(Churn(), 200, 400)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_nothing_grows_while_five_thousand_pods_come_and_go() -> None:
    check(Churn(), 1_000, 5_000)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["conflicts", "lost answers", "lost watches"])
def test_nothing_grows_while_writes_fail(kind: str) -> None:
    check(Churn(FAULTS[kind]), 400, 1_000)


def test_what_is_not_let_go_would_be_found() -> None:
    class Forgetful:
        def __init__(self) -> None:
            self.names: list[str] = []

    leaking = Forgetful()
    before = held(leaking)
    leaking.names += [str(number) for number in range(20)]
    assert grown(before, held(leaking)) == {"Forgetful.names": 20}


# ------------------------------------------------------------------------------------------------------- the work of a step


class Counted:
    """A scheduler whose calls of functions are counted in each ``act``: the same on every machine."""

    def __init__(self, world: World) -> None:
        self._scheduler = scheduler(world)
        self.name, self.kinds = self._scheduler.name, self._scheduler.kinds
        self.observe, self.wake = self._scheduler.observe, self._scheduler.wake
        self.most = 0
        self._calls = 0

    def act(self, now: float) -> list[Write]:
        self._calls = 0
        sys.setprofile(self._count)
        try:
            return self._scheduler.act(now)
        finally:
            sys.setprofile(None)
            self.most = max(self.most, self._calls)

    def _count(self, frame: FrameType, event: str, argument: object) -> None:
        self._calls += event == "call"


def most_in_one_act(pods: int, shapes: int) -> tuple[int, int]:
    """When so many pods wait at once for more than there is, and when a node comes that might do for all of them."""
    counted: list[Counted] = []

    def made(world: World) -> Counted:
        counted.append(Counted(world))
        return counted[-1]

    alone = Lockstep(KINDS, made)
    for number in range(5):
        alone.server.plant(node(f"n{number}", cpu="1"))
    for number in range(pods):
        alone.server.plant(pod(f"p{number}", requests={"cpu": f"{2000 + number % shapes}m"}))
    alone.settle(30, most=20_000)
    waiting, counted[0].most = counted[0].most, 0
    alone.server.plant(node("late", cpu="2"))
    alone.settle(30, most=20_000)
    return waiting, counted[0].most


@pytest.mark.parametrize("shapes", [1, 300])
def test_one_step_takes_no_more_work_for_more_waiting_pods(shapes: int) -> None:
    few, many = most_in_one_act(300, shapes), most_in_one_act(900, shapes)
    assert many[0] <= 1.05 * few[0]
    assert many[1] <= 1.05 * few[1]
