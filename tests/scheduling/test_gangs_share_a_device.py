"""kubernetes #140097: a gang whose members each prefer the whole of a device that only has two halves for both of them.

The device is partitionable by a shared counter: one whole, or two halves. Upstream gives the first pod the whole and never looks
back, so the gang waits for ever.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from dray.api import kinds
from tests.scheduling.gangs import running
from tests.scheduling.scheduling_cluster import Sim, pod

DRIVER = "gpu.example.com"


def add_partitionable(sim: Sim, node: str) -> None:
    def device(name: str, size: str, widgets: str) -> dict[str, Any]:
        consumed = [{"counterSet": "parent", "counters": {"widgets": {"value": widgets}}}]
        return {"name": name, "attributes": {"size": {"string": size}}, "consumesCounters": consumed}

    pool = {"name": node, "generation": 1, "resourceSliceCount": 2}
    devices = [device("whole", "whole", "2"), device("half-0", "half", "1"), device("half-1", "half", "1")]
    counters = [{"name": "parent", "counters": {"widgets": {"value": "2"}}}]
    sim.add_node(node)
    for name, part in ((f"{node}-counters", {"sharedCounters": counters}), (node, {"devices": devices})):
        spec = {"driver": DRIVER, "nodeName": node, "pool": pool, **part}
        sim.api.put(kinds.RESOURCE_SLICES, {"metadata": {"name": name}, "spec": spec})


def add_pod(sim: Sim, name: str, group: str = "") -> None:
    """With a claim of its own that prefers the whole and takes half."""

    def part(size: str) -> dict[str, Any]:
        selector = {"cel": {"expression": f"device.attributes['{DRIVER}'].size == '{size}'"}}
        return {"name": size, "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1, "selectors": [selector]}

    sim.add_claim(name, spec={"devices": {"requests": [{"name": "req", "firstAvailable": [part("whole"), part("half")]}]}})
    made = pod(name, claims=[name])
    if group:
        made["spec"]["schedulingGroup"] = {"podGroupName": group}
    sim.api.put(kinds.PODS, made)


def add_gang(sim: Sim, name: str, count: int) -> None:
    policy = {"schedulingPolicy": {"gang": {"minCount": count}}}
    sim.api.put(kinds.CORE_POD_GROUPS, {"metadata": {"name": name, "namespace": "default"}, "spec": policy})
    for index in range(count):
        add_pod(sim, f"w{index}", name)


def cluster(*nodes: str) -> Sim:
    sim = Sim()
    sim.add_class()
    for node in nodes:
        add_partitionable(sim, node)
    return sim


def test_alone_a_pod_gets_the_whole_device() -> None:
    sim = cluster("n0")
    add_pod(sim, "p")
    sim.settle(5)
    assert sim.devices_of("p") == ["n0/whole"]


def test_a_gang_of_two_gets_a_half_each() -> None:
    sim = cluster("n0")
    add_gang(sim, "train", 2)
    sim.settle(5)
    assert running(sim) == {"w0", "w1"}
    assert sorted(sim.devices_of("w0") + sim.devices_of("w1")) == ["n0/half-0", "n0/half-1"]


def test_a_gang_of_three_on_two_nodes_finds_its_only_way() -> None:
    sim = cluster("n0", "n1")
    add_gang(sim, "train", 3)
    sim.settle(5)
    assert running(sim) == {"w0", "w1", "w2"}


def test_a_gang_of_three_on_one_node_is_told_who_has_no_place() -> None:
    sim = cluster("n0")
    add_gang(sim, "train", 3)
    sim.settle(5)
    assert running(sim) == set()
    assert "2 of 3 pods fit together" in sim.condition("w0")["message"]


def widgets(sim: Sim, node: str) -> int:
    """What of the counter is in use, as the claims say."""
    given = [device for key in sim.api.objects[kinds.RESOURCE_CLAIMS] for device in sim.devices_of(key.partition("/")[2])]
    return sum(2 if device == f"{node}/whole" else 1 for device in given if device.startswith(f"{node}/"))


@pytest.mark.parametrize("seed", range(12))
def test_gangs_that_can_all_have_halves_start_and_no_counter_is_exceeded(seed: int) -> None:
    pick = random.Random(seed)
    nodes = [f"n{index}" for index in range(pick.randint(1, 3))]
    sim = cluster(*nodes)
    left = 2 * len(nodes)
    if pick.random() < 0.5:
        add_pod(sim, "alone")
        sim.settle(3)
        left -= 2
    count = pick.randint(2, 6)
    add_gang(sim, "train", count)
    sim.settle(5)
    assert {name for name in running(sim) if name != "alone"} == ({f"w{i}" for i in range(count)} if count <= left else set())
    assert all(widgets(sim, node) <= 2 for node in nodes)
