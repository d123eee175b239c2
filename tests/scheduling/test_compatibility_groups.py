"""KEP-5963 in scheduling: groups keep devices apart, and what was true at allocation is written with it."""

from __future__ import annotations

from typing import Any

import pytest
from scheduling_cluster import Sim

from dray.api import kinds
from dray.api.gates import Gates

DRIVER = "gpu.example.com"


def publish(sim: Sim, groups: dict[str, list[str]]) -> None:
    """One card whose partitions draw from one counter set; ``groups`` by partition."""
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": 2}
    head = {"driver": DRIVER, "nodeName": "n1", "pool": pool}
    counters = [{"name": "card", "counters": {"memory": {"value": "80Gi"}}}]
    devices: list[dict[str, Any]] = []
    for name, named in groups.items():
        consumes: dict[str, Any] = {"counterSet": "card", "counters": {"memory": {"value": "10Gi"}}}
        if named:
            consumes["compatibilityGroups"] = named
        devices.append({"name": name, "consumesCounters": [consumes]})
    sim.api.put(kinds.RESOURCE_SLICES, {"metadata": {"name": "counters"}, "spec": {**head, "sharedCounters": counters}})
    sim.api.put(kinds.RESOURCE_SLICES, {"metadata": {"name": "devices"}, "spec": {**head, "devices": devices}})


def ask(sim: Sim, name: str) -> None:
    """A pod that wants one partition, whichever comes first."""
    sim.add_claim(name)
    sim.add_pod(name, claims=[name])
    sim.settle()


@pytest.fixture
def card() -> Sim:
    sim = Sim(gates=Gates.dray())
    sim.add_class()
    sim.add_node("n1")
    return sim


def test_a_partition_of_another_scheme_is_not_given_out_beside_the_first(card: Sim) -> None:
    publish(card, {"mig-0": ["mig"], "vgpu-0": ["vgpu"], "mig-1": ["mig"]})
    for name in ("a", "b", "c"):
        ask(card, name)
    assert card.devices_of("a") == ["n1/mig-0"]
    assert card.devices_of("b") == ["n1/mig-1"]
    assert card.node_of("c") == ""


def test_the_groups_are_written_with_the_allocation(card: Sim) -> None:
    publish(card, {"mig-0": ["mig"]})
    ask(card, "a")
    result = card.claim("a")["status"]["allocation"]["devices"]["results"][0]
    assert result["compatibilityGroups"] == {"card": ["mig"]}


def test_what_was_written_counts_even_when_the_slice_says_otherwise_later(card: Sim) -> None:
    publish(card, {"mig-0": ["mig"], "vgpu-0": ["vgpu"]})
    ask(card, "a")
    publish(card, {"mig-0": ["vgpu"], "vgpu-0": ["vgpu"]})
    ask(card, "b")
    assert card.node_of("b") == ""


def test_without_the_gate_devices_with_groups_are_left_alone() -> None:
    sim = Sim(gates=Gates.dray().updated({"DRADeviceCompatibilityGroups": False}))
    sim.add_class()
    sim.add_node("n1")
    publish(sim, {"mig-0": ["mig"], "plain-0": []})
    ask(sim, "a")
    ask(sim, "b")
    assert sim.devices_of("a") == ["n1/plain-0"]
    assert sim.node_of("b") == ""


def test_a_pod_that_goes_lets_the_other_scheme_in(card: Sim) -> None:
    publish(card, {"mig-0": ["mig"], "vgpu-0": ["vgpu"]})
    ask(card, "a")
    ask(card, "b")
    assert card.node_of("b") == ""
    card.remove(kinds.PODS, "default/a")
    card.api.put(kinds.RESOURCE_CLAIMS, {**card.claim("a"), "status": {}})
    card.settle(2)
    assert card.node_of("b") == "n1"
