"""No fewer pods have to leave a node than is said of it before anybody is taken out: the search goes by that, and stops by it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from benchmarks.queues import group, measure, running, with_devices, world
from dray.api.resource import AllocationResult, DeviceAllocationResult, DeviceKey, DeviceRequestAllocationResult
from dray.books.nodes import Placed
from dray.scheduling.placing.state import NotPlaced, Placement
from dray.scheduling.waiting.queue import QueuedPod
from dray.scheduling.workloads.freeing import Leaving, ToFree, _coming
from dray.scheduling.workloads.room import Room
from dray.scheduling.workloads.taking import Taking
from dray.simulate.settle import ROUNDS, Settling, WorldLine
from tests.queues.random_clusters import cluster

# Nodes of an answer that are looked at, those first that are tried first.
MOST_NODES = 4


class Tried:
    """Whenever it is asked how many have to leave, one fewer is tried, whoever they are."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tried, self.enough = 0, list[str]()
        original = Taking._to_free

        def watched(taking: Taking, allowed: frozenset[str], members: Sequence[QueuedPod]) -> list[ToFree]:
            found = original(taking, allowed, members)
            for node in found[:MOST_NODES]:
                self._try(taking, allowed, members, node)
            return found

        monkeypatch.setattr(Taking, "_to_free", watched)

    def _try(self, taking: Taking, allowed: frozenset[str], members: Sequence[QueuedPod], node: ToFree) -> None:
        info = taking._parts.nodes.get(node.name)
        assert info is not None
        leaving = {placed.pod.uid for placed in taking._room.leaving}
        jobs = ((placed, taking.job_of(uid)) for uid, placed in info.pods.items() if uid not in leaving)
        here = [placed for placed, job in jobs if job is not None and job.key in allowed]
        hardest = max(members, key=taking._together.weights.waiting)
        for some in combinations(here, node.least - 1) if node.least > 1 else ():
            self.tried += 1
            if self._fits(taking, hardest, node.name, some):
                self.enough.append(f"{hardest.pod.key} on {node}: {[placed.pod.key for placed in some]}")

    def _fits(self, taking: Taking, pending: QueuedPod, node: str, some: Sequence[Placed]) -> bool:
        room: Room = taking._room
        with taking._parts.books.trial():
            table = taking._together.table()
            room._taken_out(table, [pending]).take(some)
            info = taking._parts.nodes.get(node)
            assert info is not None
            try:
                return isinstance(room._cycle.try_on(table.state(pending), info), Placement)
            except NotPlaced:
                return False


@pytest.mark.parametrize("devices", [False, True], ids=["GPUs of nodes", "claims"])
def test_one_fewer_is_never_enough(monkeypatch: pytest.MonkeyPatch, devices: bool) -> None:
    tried = Tried(monkeypatch)
    for seed in range(60):
        made: dict[str, Any] = with_devices(cluster(seed)) if devices else cluster(seed)
        settling = Settling(msgspec.convert(made, WorldLine))
        for _ in range(ROUNDS):
            if not settling.round():
                break
            settling.between()
    assert tried.tried > 30
    assert not tried.enough


def test_who_comes_only_to_look_at_a_device_takes_none() -> None:
    looks, has = (DeviceRequestAllocationResult("r", "d", "p", name, admin_access=name == "g0") for name in ("g0", "g1"))
    given = AllocationResult(devices=DeviceAllocationResult(results=(looks, has)))
    place: Any = SimpleNamespace(given=[(None, given)])
    pod: Any = None
    assert _coming(Leaving([], [(pod, place)]), {DeviceKey("d", "p", name) for name in ("g0", "g1", "g2")}) == 1


@pytest.mark.parametrize("devices", [False, True], ids=["GPUs of nodes", "claims"])
def test_where_many_move_for_many_the_fewest_do_and_each_node_is_tried_once(
    monkeypatch: pytest.MonkeyPatch, devices: bool
) -> None:
    """Of eight GPUs seven are in use on each node: for each job of four three move, also from nodes beside those on which room
    was made, and to which others move."""
    nodes: list[str] = []
    original = Room._free

    def watched(room: Room, pending: QueuedPod, node: str, *more: Any) -> Any:
        nodes.append(node)
        return original(room, pending, node, *more)

    monkeypatch.setattr(Room, "_free", watched)
    made = world(40, {"q": (320, 1)}, [*running(40, 7, 1, "q"), *(group(f"w{number}", "q", 1, 4) for number in range(8))])
    _, binds, evictions, promised = measure(with_devices(made) if devices else made)
    assert (binds, evictions, promised) == (0, 24, 8)
    assert len(nodes) == len(set(nodes)) == 8


def test_where_nobody_may_be_evicted_nobody_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both queues may have everything: for each job that waits all nodes were tried in vain, in each session."""
    searched: list[str] = []
    monkeypatch.setattr(Taking, "_search", lambda taking, job, *more: searched.append(job.key))
    jobs = [group(f"r{number}", "ab"[number % 2], 1, 5, f"node{number:04}") for number in range(40)]
    made = world(40, {"a": (-1, 1), "b": (-1, 1)}, [*jobs, *(group(f"w{number}", "a", 1, 8) for number in range(4))])
    _, binds, evictions, promised = measure(made)
    assert (binds, evictions, promised) == (0, 0, 0)
    assert not searched
