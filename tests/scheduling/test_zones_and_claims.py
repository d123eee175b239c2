"""Devices of claims beside CPUs: a pod gets devices of the zones that its kubelet takes its CPUs from, where that can be."""

from __future__ import annotations

from typing import Any

import pytest
from scheduling_cluster import Sim, pod
from zoned import add_zoned, aligned, record, started

from dray.api import kinds
from dray.devices import Devices
from dray.numa.devices import ZoneLimit

CPU8 = {"cpu": 8}


def add_devices(sim: Sim, node: str, *zones: Any, driver: str = "gpu.example.com", root: bool = False) -> None:
    """One device for each entry: the number of its zone, a list of them, or None."""
    devices = []
    for number, zone in enumerate(zones):
        attributes: dict[str, Any] = {}
        if zone is not None and root:
            attributes["resource.kubernetes.io/pcieRoot"] = {"string": f"pci{zone}"}
        elif isinstance(zone, list):
            attributes["numaNode"] = {"ints": zone}
        elif zone is not None:
            attributes |= {"numaNode": {"int": zone}, "resource.kubernetes.io/pcieRoot": {"string": f"pci{zone}"}}
        devices.append({"name": f"dev-{number}", "attributes": attributes})
    spec = {
        "driver": driver,
        "nodeName": node,
        "pool": {"name": f"{node}-{driver}", "generation": 1, "resourceSliceCount": 1},
        "devices": devices,
    }
    sim.api.put(kinds.RESOURCE_SLICES, {"metadata": {"name": f"{node}-{driver}"}, "spec": spec})


def given(sim: Sim, claim: str) -> list[str]:
    return [device.rpartition("/")[2] for device in sim.devices_of(claim)]


def test_a_gpu_comes_from_the_zone_of_the_cores(sim: Sim) -> None:
    """Upstream's first device would be in zone 0, which has no cores left."""
    add_zoned(sim, "n1", CPU8, CPU8)
    add_devices(sim, "n1", 0, 0, 1, 1)
    sim.add_class()
    sim.add_pod("other", **aligned(6))
    sim.settle()
    started(sim, "other")
    sim.add_claim("c")
    sim.add_pod("p", **aligned(4), claims=["c"])
    sim.settle()
    assert (record(sim, "p"), given(sim, "c")) == ({"node-1": {"cpu": "4"}}, ["dev-2"])


def test_gpus_and_nics_of_a_pod_without_cores_come_from_one_zone(sim: Sim) -> None:
    add_zoned(sim, "n1", CPU8, CPU8)
    add_devices(sim, "n1", 0, 1, 1)
    add_devices(sim, "n1", 1, driver="nic.example.com", root=True)
    sim.add_class()
    sim.add_class("nic", driver="nic.example.com")
    sim.add_claim("gpu")
    sim.add_claim("nic", cls="nic")
    sim.add_pod("p", requests={"cpu": "100m"}, claims=["gpu", "nic"])
    sim.settle()
    assert (given(sim, "gpu"), given(sim, "nic")) == (["dev-1"], ["dev-0"])


def test_devices_that_no_single_zone_has_come_from_the_fewest(sim: Sim) -> None:
    add_zoned(sim, "n1", {"cpu": 2}, {"cpu": 2}, {"cpu": 2})
    add_devices(sim, "n1", 0, 1, 1, 2, 2)
    sim.add_class()
    sim.add_claim("c", count=3)
    sim.add_pod("p", **aligned(1), claims=["c"])
    sim.settle()
    assert record(sim, "p") == {"node-0": {"cpu": "1"}}
    assert sorted(given(sim, "c")) == ["dev-0", "dev-1", "dev-2"]


@pytest.mark.parametrize("near", [None, [0, 1]])
def test_devices_that_are_near_to_the_zone_too_or_of_which_nothing_is_known_are_as_good(sim: Sim, near: Any) -> None:
    add_zoned(sim, "n1", CPU8, CPU8)
    add_devices(sim, "n1", 1, near)
    sim.add_class()
    sim.add_claim("c")
    sim.add_pod("p", **aligned(4), claims=["c"])
    sim.settle()
    assert given(sim, "c") == ["dev-1"]


def test_a_pod_is_placed_although_its_device_is_elsewhere(sim: Sim) -> None:
    add_zoned(sim, "n1", CPU8, CPU8)
    add_devices(sim, "n1", 1)
    sim.add_class()
    sim.add_claim("c")
    sim.add_pod("p", **aligned(4), claims=["c"])
    sim.settle()
    assert (sim.node_of("p"), given(sim, "c")) == ("n1", ["dev-0"])


def test_unless_it_says_that_it_may_not_be_spread(sim: Sim) -> None:
    add_zoned(sim, "apart", CPU8, CPU8)
    add_devices(sim, "apart", 1)
    sim.add_class()
    sim.add_claim("c")
    limited = pod("p", **aligned(4), claims=["c"])
    limited["metadata"]["annotations"] = {"dray.dev/numa-span": "1"}
    sim.api.put(kinds.PODS, limited)
    sim.settle()
    assert sim.node_of("p") == ""
    assert "too few devices in the zones that have the pod's other resources (0)" in sim.condition("p")["message"]
    add_zoned(sim, "together", CPU8, CPU8)
    add_devices(sim, "together", 0)
    sim.settle(60)
    assert (sim.node_of("p"), given(sim, "c")) == ("together", ["dev-0"])


def test_the_allocator_remembers_its_answer_for_each_limit(sim: Sim) -> None:
    add_zoned(sim, "n1", CPU8, CPU8)
    add_devices(sim, "n1", 0, 0, 1, 1)
    sim.add_class()
    sim.add_claim("c")
    sim.settle()
    engine: Devices = sim.scheduler.engine
    claim = sim.scheduler.world.all(kinds.RESOURCE_CLAIMS)["default/c"]

    def taken(*numbers: int) -> str:
        verdict = engine.allocate("n1", [claim], within=ZoneLimit(frozenset(numbers)))
        return verdict.results[0].devices.results[0].device if verdict.ok else ""

    assert [taken(0), taken(1), taken(0, 1), taken(2), taken(1)] == ["dev-0", "dev-2", "dev-0", "", "dev-2"]
    demand = engine.compiler.demand((claim,))
    assert sorted(len(each.answers) for each in demand.limited.values()) == [1, 1, 1, 1]
