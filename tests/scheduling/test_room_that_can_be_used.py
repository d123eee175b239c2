"""Reclaim, preemption and consolidation of queues by zones, and by devices: whoever leaves frees a slot that can be used.

Zones are NUMA zones with four cores each; with devices, four devices share a PCIe root and a claim wants all of its from one;
with counters, a device has four units and is handed out in parts.
"""

from __future__ import annotations

from typing import Any, Final

import pytest
from zoned import add_zoned, aligned, observe, record, started

from dray.api import kinds
from tests.scheduling.gangs import add_queue, running
from tests.scheduling.scheduling_cluster import Sim, pod

DRIVER: Final = "gpu.example.com"
ROOT: Final = "resource.kubernetes.io/pcieRoot"
CPU4: Final = {"cpu": 4}


class Zones:
    """Pods take cores, which a kubelet aligns."""

    def __init__(self, nodes: int = 1) -> None:
        self.sim = Sim()
        for index in range(nodes):
            add_zoned(self.sim, f"n{index}", CPU4, CPU4)

    def quota(self, queue: str, amount: int) -> None:
        own = {"quota": amount * 1000, "limit": -1, "overQuotaWeight": 1}
        free = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
        self.sim.api.put(
            kinds.QUEUES, {"metadata": {"name": queue}, "spec": {"resources": {"cpu": own, "memory": free, "gpu": free}}}
        )

    def add(self, name: str, queue: str, amount: int, **more: Any) -> None:
        self.sim.add_pod(name, **aligned(amount), labels={"kai.scheduler/queue": queue}, **more)

    def put(self, name: str, queue: str, amount: int, zone: int, node: str = "n0", **more: Any) -> None:
        """It runs there."""
        self.add(name, queue, amount, node_name=node, phase="Running", **more)
        observe(self.sim, name, **{f"zone{zone}": {"cpu": str(amount)}})
        started(self.sim, name)

    def zone_of(self, name: str) -> str:
        return " ".join(record(self.sim, name))


class Roots:
    """Pods take devices, whose claims want them from one root."""

    def __init__(self, nodes: int = 1) -> None:
        self.sim = Sim()
        self.sim.add_class()
        for index in range(nodes):
            self.sim.add_node(f"n{index}", cpu="64")
            for made in self._slices(f"n{index}"):
                self.sim.api.put(kinds.RESOURCE_SLICES, made)

    def _slices(self, node: str) -> list[dict[str, Any]]:
        devices = [
            {"name": f"dev-{root}-{number}", "attributes": {ROOT: {"string": f"node-{root}"}}}
            for root in range(2)
            for number in range(4)
        ]
        return [self._slice(node, 1, devices=devices)]

    def _slice(self, node: str, number: int, count: int = 1, **part: Any) -> dict[str, Any]:
        pool = {"name": node, "generation": 1, "resourceSliceCount": count}
        spec = {"driver": DRIVER, "nodeName": node, "pool": pool, **part}
        return {"metadata": {"name": f"{node}-{number}"}, "spec": spec}

    def quota(self, queue: str, amount: int) -> None:
        text = f'{{"deviceclass/gpu": {{"quota": {amount}, "limit": -1, "overQuotaWeight": 1}}}}'
        add_queue(self.sim, queue, 0, **{"dray.dev/resources": text})

    def _claim(self, name: str, amount: int) -> dict[str, Any]:
        request = {"name": "req", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": amount}}
        spec = {"devices": {"requests": [request], "constraints": [{"requests": ["req"], "matchAttribute": ROOT}]}}
        return self.sim.add_claim(name, spec=spec)

    def add(self, name: str, queue: str, amount: int, **more: Any) -> None:
        self._claim(name, amount)
        self.sim.api.put(kinds.PODS, pod(name, labels={"kai.scheduler/queue": queue}, claims=[name], **more))

    def put(self, name: str, queue: str, amount: int, zone: int, node: str = "n0", **more: Any) -> None:
        claim = self._claim(name, amount)
        taken = {
            result["device"]
            for other in self.sim.api.objects[kinds.RESOURCE_CLAIMS].values()
            for result in other.get("status", {}).get("allocation", {}).get("devices", {}).get("results", [])
            if result["pool"] == node
        }
        free = [device for device in self._devices(zone, amount) if device not in taken]
        self.sim.api.put(
            kinds.PODS, pod(name, labels={"kai.scheduler/queue": queue}, claims=[name], node_name=node, phase="Running", **more)
        )
        uid = self.sim.pod(name)["metadata"]["uid"]
        results = [{"request": "req", "driver": DRIVER, "pool": node, "device": device} for device in free[: self._count(amount)]]
        here = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]}
        claim["status"] = {
            "allocation": {"devices": {"results": results}, "nodeSelector": here},
            "reservedFor": [{"resource": "pods", "name": name, "uid": uid}],
        }
        self.sim.api.put(kinds.RESOURCE_CLAIMS, claim)

    def _devices(self, zone: int, amount: int) -> list[str]:
        return [f"dev-{zone}-{number}" for number in range(4)]

    def _count(self, amount: int) -> int:
        return amount

    def zone_of(self, name: str) -> str:
        return " ".join(sorted({f"node-{device.rpartition('/')[2].split('-')[1]}" for device in self.sim.devices_of(name)}))


class Counters(Roots):
    """Pods take a part of a device: parts of all sizes share the four units of their parent's counter."""

    def _slices(self, node: str) -> list[dict[str, Any]]:
        def part(parent: int, size: int, number: int) -> dict[str, Any]:
            consumed = [{"counterSet": f"parent-{parent}", "counters": {"units": {"value": str(size)}}}]
            return {
                "name": f"dev-{parent}-{size}-{number}",
                "attributes": {"size": {"int": size}},
                "consumesCounters": consumed,
            }

        devices = [part(parent, size, number) for parent in range(2) for size in (2, 3, 4) for number in range(4 // size)]
        counters = [{"name": f"parent-{parent}", "counters": {"units": {"value": "4"}}} for parent in range(2)]
        return [self._slice(node, 1, 2, sharedCounters=counters), self._slice(node, 2, 2, devices=devices)]

    def _claim(self, name: str, amount: int) -> dict[str, Any]:
        selector = {"cel": {"expression": f"device.attributes['{DRIVER}'].size == {amount}"}}
        exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1, "selectors": [selector]}
        return self.sim.add_claim(name, spec={"devices": {"requests": [{"name": "req", "exactly": exactly}]}})

    def _devices(self, zone: int, amount: int) -> list[str]:
        return [f"dev-{zone}-{amount}-{number}" for number in range(4 // amount)]

    def _count(self, amount: int) -> int:
        return 1


Either = Zones | Roots
each = pytest.mark.parametrize("world", [Zones, Roots, Counters])


def settle(found: Either, seconds: float = 20) -> None:
    """Claims of pods that are gone are given back by their controller, here by hand."""
    for _ in range(int(seconds)):
        found.sim.settle(1)
        there = set(found.sim.api.objects[kinds.PODS])
        for key, claim in list(found.sim.api.objects[kinds.RESOURCE_CLAIMS].items()):
            if claim.get("status") and key not in there:
                claim["status"] = {}
                found.sim.api.put(kinds.RESOURCE_CLAIMS, claim)


def deleted(found: Either) -> list[str]:
    return sorted(write.name for write in found.sim.log if write.verb == "delete" and write.kind is kinds.PODS)


def crowded(world: type[Either]) -> Either:
    """Queue a, which has no quota, has two pods of two in each zone; the youngest two are in different zones."""
    found = world()
    found.quota("a", 0)
    found.quota("b", 8)
    for index, zone in enumerate((0, 1, 0, 1)):
        found.put(f"a{index}", "a", 2, zone)
    found.sim.settle(2)
    return found


@each
def test_of_pods_that_would_all_fit_by_sums_only_those_that_fit_by_zones_start(world: type[Either]) -> None:
    """Two zones of four, pods of three, three and two: after the first two, each zone has one left."""
    found = world()
    found.quota("a", 8)
    for name, amount in (("p0", 3), ("p1", 3), ("p2", 2)):
        found.add(name, "a", amount)
    settle(found, 5)
    assert len(running(found.sim)) == 2
    assert deleted(found) == []


@each
def test_reclaim_frees_one_whole_zone_and_not_half_of_two(world: type[Either]) -> None:
    found = crowded(world)
    found.add("b0", "b", 4)
    settle(found)
    assert "b0" in running(found.sim)
    assert deleted(found) in (["a0", "a2"], ["a1", "a3"])
    assert found.zone_of("b0") == ("node-0" if deleted(found) == ["a0", "a2"] else "node-1")


@each
def test_preemption_in_a_queue_frees_one_whole_zone(world: type[Either]) -> None:
    found = crowded(world)
    found.add("urgent", "a", 4, priority=50)
    settle(found)
    assert "urgent" in running(found.sim)
    assert deleted(found) in (["a0", "a2"], ["a1", "a3"])


@each
def test_nobody_is_evicted_where_no_zone_would_ever_do(world: type[Either]) -> None:
    found = crowded(world)
    found.add("b0", "b", 5)
    settle(found)
    assert deleted(found) == []
    assert "b0" not in running(found.sim)


@each
def test_a_plan_that_takes_many_cycles_stays_on_its_node(world: type[Either]) -> None:
    """Victims that take long to stop: nobody else is evicted meanwhile, elsewhere or here, and the slot is the one planned."""
    found = world(2)
    found.quota("a", 0)
    found.quota("b", 16)
    for index in range(8):
        found.put(f"a{index}", "a", 2, index // 2 % 2, f"n{index // 4}")
    found.sim.settle(2)
    found.sim.api._stop = lambda write: None  # type: ignore[method-assign]
    found.add("b0", "b", 4)
    settle(found, 3)
    planned, leaving = found.sim.pod("b0")["status"]["nominatedNodeName"], deleted(found)
    assert len(leaving) == 2
    for _ in range(5):
        settle(found, 5)
        assert found.sim.pod("b0")["status"]["nominatedNodeName"] == planned
        assert deleted(found) == leaving
    for name in leaving:
        del found.sim.api.objects[kinds.PODS][f"default/{name}"]
    settle(found, 5)
    assert found.sim.node_of("b0") == planned
    assert deleted(found) == leaving


@each
def test_consolidation_moves_who_finds_an_aligned_place_and_nobody_else(world: type[Either]) -> None:
    """Each zone of the first node lacks one core for the large pod; only the pod of two fits beside the others' on the second."""
    found = world(2)
    found.quota("a", 16)
    found.put("three", "a", 3, 0, again=True)
    found.put("two", "a", 2, 1, again=True)
    found.put("x", "a", 3, 0, "n1", again=True)
    found.put("y", "a", 2, 1, "n1", again=True)
    found.sim.settle(2)
    found.add("four", "a", 4)
    settle(found)
    assert "four" in running(found.sim)
    assert deleted(found) in (["two"], ["y"])
    assert {"three", "x"} <= running(found.sim)


@each
def test_who_was_moved_runs_again_when_it_comes_back(world: type[Either]) -> None:
    found = world(2)
    found.quota("a", 16)
    for name, amount, zone, node in (("three", 3, 0, "n0"), ("two", 2, 1, "n0"), ("x", 3, 0, "n1"), ("y", 2, 1, "n1")):
        found.put(name, "a", amount, zone, node, again=True)
    found.sim.settle(2)
    found.add("four", "a", 4)
    settle(found)
    [moved] = deleted(found)
    found.add(moved, "a", 2)
    settle(found)
    assert running(found.sim) == {"three", "two", "x", "y", "four"}
    assert deleted(found) == [moved]


def test_who_shares_its_claim_is_not_moved_away_from_it() -> None:
    """Two pods use the claim that is in the way: its devices stay with the one that would be left."""
    found = Roots(2)
    found.quota("a", 16)
    found.quota("system", 16)
    found.put("three", "a", 3, 0)
    found.put("two", "a", 2, 1)
    found.put("x", "a", 3, 0, "n1")
    found.put("y", "a", 3, 1, "n1")
    beside = pod("beside", claims=["two"], node_name="n0", phase="Running", priority=1000)
    beside["metadata"]["labels"] = {"kai.scheduler/queue": "system"}
    found.sim.api.put(kinds.PODS, beside)
    claim = found.sim.claim("two")
    uid = found.sim.pod("beside")["metadata"]["uid"]
    claim["status"]["reservedFor"].append({"resource": "pods", "name": "beside", "uid": uid})
    found.sim.api.put(kinds.RESOURCE_CLAIMS, claim)
    found.sim.settle(2)
    found.add("four", "a", 4)
    settle(found)
    assert deleted(found) == []
    assert "four" not in running(found.sim)


@pytest.mark.parametrize("queue", ["", "team"])
def test_who_shares_a_claim_with_its_victim_does_not_count_on_the_devices_of_that_claim(queue: str) -> None:
    """It needs them itself: whoever left for it would leave in vain, again and again."""
    sim = Sim()
    sim.add_class()
    sim.add_node("n0")
    sim.add_slice("n0", 2)
    labels = {"kai.scheduler/queue": queue} if queue else {}
    if queue:
        add_queue(sim, queue, -1)
    sim.add_claim("shared")
    sim.add_claim("both", count=2)
    sim.add_pod("low", claims=["shared"], labels=labels)
    sim.settle(3)
    sim.add_pod("high", claims=["shared", "both"], labels=labels, priority=100)
    sim.settle(20)
    assert running(sim) == {"low"}
    assert sim.events("Preempted") == []
    assert sim.pod("high").get("status", {}).get("nominatedNodeName", "") == ""


@pytest.mark.parametrize("queue", ["", "team"])
def test_who_shares_a_claim_with_its_victim_may_still_have_what_else_that_leaves(queue: str) -> None:
    sim = Sim()
    sim.add_class()
    sim.add_node("n0", cpu="4")
    sim.add_slice("n0", 2)
    labels = {"kai.scheduler/queue": queue} if queue else {}
    if queue:
        add_queue(sim, queue, -1)
    sim.add_claim("shared")
    sim.add_claim("own")
    sim.add_pod("low", claims=["shared"], labels=labels, requests={"cpu": "3"})
    sim.settle(3)
    sim.add_pod("high", claims=["shared", "own"], labels=labels, priority=100, requests={"cpu": "3"})
    sim.settle(20)
    assert running(sim) == {"high"}


@pytest.mark.parametrize("queue", ["", "team"])
def test_nobody_else_counts_on_the_devices_of_a_claim_that_victims_leave_to_whom_they_leave_for(queue: str) -> None:
    """They are not free when the victim is gone: two pods would wait for them, and one in vain."""
    sim = Sim()
    sim.add_class()
    sim.add_node("n0", cpu="4")
    sim.add_slice("n0", 1)
    labels = {"kai.scheduler/queue": queue} if queue else {}
    if queue:
        add_queue(sim, queue, -1)
    sim.add_claim("shared")
    sim.add_claim("own")
    sim.add_pod("low", claims=["shared"], labels=labels, requests={"cpu": "4"})
    sim.settle(3)
    low = sim.pod("low")
    sim.api.put(kinds.PODS, {**low, "metadata": {**low["metadata"], "finalizers": ["graceful"]}})
    sim.add_pod("high", claims=["shared"], labels=labels, priority=60, requests={"cpu": "4"})
    sim.settle(5)
    sim.add_pod("late", claims=["own"], labels=labels, priority=60)
    sim.settle(5)
    assert [sim.pod(name)["status"].get("nominatedNodeName", "") for name in ("high", "late")] == ["n0", ""]
    del sim.api.objects[kinds.PODS]["default/low"]
    sim.settle(5)
    assert running(sim) == {"high"}
