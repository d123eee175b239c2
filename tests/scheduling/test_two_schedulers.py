"""Other schedulers allocate too: what they took between our decision and our write leads to a new decision."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import pytest
from scheduling_cluster import Sim

from dray.api import kinds
from dray.api.kinds import Kind
from dray.cluster.port import ClusterError, Outcome, Unreachable, Write
from dray.cluster.world import World
from dray.runtime.picture import apply_answer
from dray.scheduling.config import Config, Profile
from dray.scheduling.kinds import KINDS
from dray.scheduling.scheduler import Scheduler


def take(sim: Sim, claim: str, device: str, node: str = "n1") -> None:
    """What another scheduler does: its claim has the device, and a pod has the claim."""
    result = {"request": "req", "driver": "gpu.example.com", "pool": node, "device": device}
    status = {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"resource": "pods", "name": claim, "uid": f"uid-of-{claim}"}],
    }
    sim.api.put(kinds.RESOURCE_CLAIMS, {**copy.deepcopy(sim.claim(claim)), "status": status})


def at_write(sim: Sim, number: int, happens: Callable[[], None]) -> None:
    """Let something happen right before the claim write of this number is answered."""
    seen: list[Write] = []

    def fault(write: Write) -> ClusterError | None:
        if write.kind is kinds.RESOURCE_CLAIMS:
            seen.append(write)
            if len(seen) == number:
                happens()
        return None

    sim.fault = fault


@pytest.mark.parametrize("number", [1, 2])
def test_a_device_that_another_scheduler_took_meanwhile_is_given_up_for_another(sim: Sim, number: int) -> None:
    """1: while the finalizer is written, 2: while the allocation is; then it is taken back before the pod is bound."""
    sim.add_class()
    sim.add_node("n1")
    sim.add_slice("n1", 2)
    sim.add_claim("foreign")
    sim.add_claim("own")
    at_write(sim, number, lambda: take(sim, "foreign", "gpu-0"))
    sim.add_pod("p", claims=["own"])
    sim.settle(5)
    assert sim.holders() == {"n1/gpu-0": ["foreign"], "n1/gpu-1": ["own"]}
    assert sim.node_of("p") == "n1"
    assert not any(intent.contested for intent in sim.scheduler.claims.intents)


def test_with_nothing_left_the_pod_waits_and_holds_nothing(sim: Sim) -> None:
    sim.add_class()
    sim.add_node("n1")
    sim.add_slice("n1", 1)
    sim.add_claim("foreign")
    sim.add_claim("own")
    at_write(sim, 2, lambda: take(sim, "foreign", "gpu-0"))
    sim.add_pod("p", claims=["own"])
    sim.settle(5)
    assert sim.holders() == {"n1/gpu-0": ["foreign"]}
    assert sim.node_of("p") == ""
    sim.api.put(kinds.RESOURCE_CLAIMS, {**sim.claim("foreign"), "status": {}})
    sim.settle(20)
    assert sim.node_of("p") == "n1"


def test_counters_that_another_scheduler_used_up_are_noticed(sim: Sim) -> None:
    sim.add_class()
    for node in ("n1", "n2"):
        sim.add_node(node)
        head = {"driver": "gpu.example.com", "nodeName": node, "pool": {"name": node, "generation": 1, "resourceSliceCount": 2}}
        counters = [{"name": "card", "counters": {"memory": {"value": "10Gi"}}}]
        uses = [{"counterSet": "card", "counters": {"memory": {"value": "10Gi"}}}]
        devices = [{"name": f"part-{index}", "consumesCounters": uses} for index in range(2)]
        sim.api.put(kinds.RESOURCE_SLICES, {"metadata": {"name": f"{node}-c"}, "spec": {**head, "sharedCounters": counters}})
        sim.api.put(kinds.RESOURCE_SLICES, {"metadata": {"name": f"{node}-d"}, "spec": {**head, "devices": devices}})
    sim.add_claim("foreign")
    sim.add_claim("own")
    at_write(sim, 1, lambda: take(sim, "foreign", "part-1"))
    sim.add_pod("p", claims=["own"])
    sim.settle(5)
    assert sim.devices_of("own") == ["n2/part-0"]
    assert sim.node_of("p") == "n2"


def test_a_special_claim_gives_way_too(sim: Sim) -> None:
    sim.add_class(extended="example.com/gpu")
    sim.add_node("n1")
    sim.add_slice("n1", 2)
    sim.add_claim("foreign")
    at_write(sim, 1, lambda: take(sim, "foreign", "gpu-0"))
    resources = {"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}}
    sim.add_pod("p", containers=[{"name": "m", "resources": resources}])
    sim.settle(20)
    assert sim.node_of("p") == "n1"
    assert all(len(claims) == 1 for claims in sim.holders().values())
    assert sorted(sim.holders()) == ["n1/gpu-0", "n1/gpu-1"]


def test_an_allocation_that_was_replaced_in_a_gap_of_the_watch_counts(sim: Sim) -> None:
    sim.add_class()
    sim.add_node("n1")
    sim.add_slice("n1", 2)
    sim.add_claim("foreign")
    take(sim, "foreign", "gpu-0")
    sim.settle()
    # Given back and allocated anew between two lists: only the last state is seen.
    take(sim, "foreign", "gpu-1")
    sim.add_claim("own")
    sim.add_pod("p", claims=["own"])
    sim.settle(5)
    assert sim.devices_of("own") == ["n1/gpu-0"]


def test_who_starts_anew_does_not_bind_to_a_device_that_another_has_too(sim: Sim) -> None:
    """It ended after its write had crossed another's, and before it saw that."""
    sim.add_class()
    sim.add_node("n1")
    sim.add_slice("n1", 2)
    for name in ("foreign", "own"):
        sim.add_claim(name)
        take(sim, name, "gpu-0")
    sim.add_pod("p", claims=["own"])
    reserved = [{"resource": "pods", "name": "p", "uid": sim.pod("p")["metadata"]["uid"]}]
    crossed = sim.claim("own")
    sim.api.put(kinds.RESOURCE_CLAIMS, {**crossed, "status": {**crossed["status"], "reservedFor": reserved}})
    sim.start()
    sim.settle(5)
    assert sim.holders() == {"n1/gpu-0": ["foreign"], "n1/gpu-1": ["own"]}
    assert sim.node_of("p") == "n1"


def test_a_special_claim_that_crossed_is_not_used_after_a_restart(sim: Sim) -> None:
    sim.add_class(extended="example.com/gpu")
    sim.add_node("n1")
    sim.add_slice("n1", 2)
    resources = {"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}}
    sim.add_claim("foreign")
    # It ends before the pod is bound.
    sim.fault = lambda write: Unreachable("gone") if write.subresource == "binding" else None
    sim.add_pod("p", containers=[{"name": "m", "resources": resources}])
    sim.settle(1)
    [special] = [name for names in sim.holders().values() for name in names]
    take(sim, "foreign", sim.devices_of(special)[0].partition("/")[2])
    sim.fault = None
    sim.start()
    sim.settle(20)
    assert sorted(map(len, sim.holders().values())) == [1, 1]
    assert sim.node_of("p") == "n1"


class Second:
    """Another scheduler, with another name, on the same cluster."""

    def __init__(self, sim: Sim, name: str) -> None:
        self._sim = sim
        self.world = World(KINDS)
        self.scheduler = Scheduler(self.world, Config((Profile(name),)))
        self.late: list[tuple[Kind, dict[str, Any], bool]] = []
        sim.api.watchers.append(lambda *event: self.late.append(event))

    def step(self) -> None:
        writes = self.scheduler.act(self._sim.now)
        for write in writes:
            answer, error = None, None
            try:
                answer = self._sim.api.write(write)
            except ClusterError as refused:
                error = refused
            self.catch_up()
            self.scheduler.observe(Outcome(write, answer, error), self._sim.now)

    def catch_up(self) -> None:
        late, self.late = self.late, []
        for kind, obj, gone in late:
            if kind in self.world.kinds:
                changes = self.world.remove(kind, obj) if gone else self.world.put(kind, obj)
                for change in changes:
                    self.scheduler.observe(change, self._sim.now)


@pytest.mark.parametrize("seed", range(8))
def test_two_at_once_never_give_a_device_twice(seed: int) -> None:
    sim, rng = Sim(), random.Random(seed)
    second = Second(sim, "second")
    sim.add_class()
    for index in range(3):
        sim.add_node(f"n{index}")
        sim.add_slice(f"n{index}", 2)
    for index in range(8):
        sim.add_claim(f"c{index}")
        sim.add_pod(f"p{index}", claims=[f"c{index}"], schedulerName=rng.choice(("default-scheduler", "second")))
    for _ in range(200):
        sim.step() if rng.random() < 0.5 else second.step()
        if rng.random() < 0.5:
            second.catch_up()
        sim.now += rng.choice((0.0, 0.1, 2.0))
    assert all(len(claims) == 1 for claims in sim.holders().values())
    assert len(sim.holders()) == 6
    assert sum(bool(sim.node_of(f"p{index}")) for index in range(8)) == 6


def behind(sim: Sim) -> Callable[[], None]:
    """From now on the watch tells nothing, only the answers to writes do, until what this gives is called."""
    held: list[tuple[Kind, dict[str, Any], bool]] = []
    watcher = sim.api.watchers[0]
    sim.api.watchers[0] = lambda *event: held.append(event)

    def send(write: Write) -> dict[str, Any]:
        answer = sim.api.write(write)
        sim.observe(apply_answer(sim.world, write, answer))
        return answer

    sim.send = send  # type: ignore[method-assign]

    def catch_up() -> None:
        sim.api.watchers[0] = watcher
        for event in held:
            watcher(*event)
            sim.settle(0.1)

    return catch_up


def asked(sim: Sim) -> None:
    """A pod that this scheduler is to place, of which it hears at once."""
    sim.add_pod("p", claims=["own"])
    sim.observe(sim.world.put(kinds.PODS, sim.pod("p")))


@pytest.fixture
def one_device(sim: Sim) -> Sim:
    """For two claims, of which one is of a pod that another scheduler places."""
    sim.add_class()
    sim.add_node("n1")
    sim.add_slice("n1", 1)
    sim.add_claim("foreign")
    sim.add_claim("own")
    sim.add_pod("q", claims=["foreign"], schedulerName="another")
    return sim


def test_no_pod_is_bound_before_the_watch_has_come_to_its_allocation(one_device: Sim) -> None:
    """The other one was first, and the answer to our write is here before the watch tells of that."""
    sim = one_device
    catch_up = behind(sim)
    take(sim, "foreign", "gpu-0")
    asked(sim)
    sim.settle(1)
    assert sim.holders() == {"n1/gpu-0": ["foreign", "own"]}
    assert sim.node_of("p") == ""
    catch_up()
    sim.settle(5)
    assert sim.holders() == {"n1/gpu-0": ["foreign"]}
    assert sim.node_of("p") == ""


def test_who_was_first_keeps_what_it_has(one_device: Sim) -> None:
    """Its own allocation is what the watch tells of first."""
    sim = one_device
    catch_up = behind(sim)
    asked(sim)
    sim.settle(1)
    take(sim, "foreign", "gpu-0")
    assert sim.node_of("p") == ""
    catch_up()
    sim.settle(5)
    assert sim.node_of("p") == "n1"


def test_where_nobody_else_gives_out_devices_nobody_waits_for_the_watch(one_device: Sim) -> None:
    sim = one_device
    sim.remove(kinds.PODS, "default/q")
    catch_up = behind(sim)
    asked(sim)
    sim.settle(1)
    assert sim.node_of("p") == "n1"
    catch_up()
