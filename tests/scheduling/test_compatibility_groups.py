"""KEP-5963 in scheduling: groups keep devices apart, and what was true at allocation is written with it."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import pytest
from scheduling_cluster import Sim

from dray.api import kinds
from dray.api.gates import Gates

DRIVER = "gpu.example.com"


def publish(sim: Sim, groups: Mapping[str, list[str] | None]) -> None:
    """One card whose partitions draw from one counter set; ``groups`` by partition."""
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": 2}
    head = {"driver": DRIVER, "nodeName": "n1", "pool": pool}
    counters = [{"name": "card", "counters": {"memory": {"value": "80Gi"}}}]
    devices: list[dict[str, Any]] = []
    for name, named in groups.items():
        consumes: dict[str, Any] = {"counterSet": "card", "counters": {"memory": {"value": "10Gi"}}}
        if named is not None:
            consumes["compatibilityGroups"] = named
        devices.append({"name": name, "attributes": {"name": {"string": name}}, "consumesCounters": [consumes]})
    sim.api.put(kinds.RESOURCE_SLICES, {"metadata": {"name": "counters"}, "spec": {**head, "sharedCounters": counters}})
    sim.api.put(kinds.RESOURCE_SLICES, {"metadata": {"name": "devices"}, "spec": {**head, "devices": devices}})


def ask(sim: Sim, name: str, *devices: str) -> None:
    """A pod that wants one partition, whichever comes first, or these, each with a request of its own."""
    sim.add_claim(name, spec={"devices": {"requests": [_request(device) for device in devices]}} if devices else None)
    sim.add_pod(name, claims=[name])
    sim.settle()


def _request(device: str) -> dict[str, Any]:
    selector = {"cel": {"expression": f"device.attributes['{DRIVER}'].name == '{device}'"}}
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1, "selectors": [selector]}
    return {"name": f"r-{device}", "exactly": exactly}


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


@pytest.mark.parametrize(
    ("first", "second", "together"),
    [
        (None, None, True),
        (None, [], True),
        ([], [], True),
        (None, ["mig"], False),
        (["mig"], None, False),
        (["mig"], [], False),
        (["mig"], ["mig"], True),
        (["mig"], ["vgpu"], False),
        (["foo", "foobar"], ["bar", "foobar"], True),
        (["foo", "foobar"], ["baz"], False),
    ],
)
@pytest.mark.parametrize("where", ["another pod", "another claim", "another request"])
def test_two_devices_share_a_counter_set_only_with_a_group_in_common(
    card: Sim, first: list[str] | None, second: list[str] | None, together: bool, where: str
) -> None:
    publish(card, {"one": first, "two": second})
    if where == "another pod":
        ask(card, "a", "one")
        ask(card, "b", "two")
        assert (card.node_of("a"), card.node_of("b")) == ("n1", "n1" if together else "")
    elif where == "another request":
        ask(card, "a", "one", "two")
        assert card.node_of("a") == ("n1" if together else "")
    else:
        for name, device in (("x", "one"), ("y", "two")):
            card.add_claim(name, spec={"devices": {"requests": [_request(device)]}})
        card.add_pod("a", claims=["x", "y"])
        card.settle()
        assert card.node_of("a") == ("n1" if together else "")


def test_each_device_that_joins_narrows_what_may_follow(card: Sim) -> None:
    """The intersection rolls: c goes with a, and with b, but not with both."""
    publish(card, {"a": ["x", "y"], "b": ["y", "z"], "c": ["x", "z"]})
    for name in ("a", "b", "c"):
        ask(card, name, name)
    assert [card.node_of(name) for name in ("a", "b", "c")] == ["n1", "n1", ""]


def test_another_combination_is_tried_when_the_first_does_not_go_together(card: Sim) -> None:
    publish(card, {"vgpu-0": ["vgpu"], "mig-0": ["mig"], "mig-1": ["mig"]})
    card.add_claim("pair", count=2)
    card.add_pod("p", claims=["pair"])
    card.settle()
    assert card.devices_of("pair") == ["n1/mig-0", "n1/mig-1"]


def test_the_refusal_says_what_is_in_the_way(card: Sim) -> None:
    publish(card, {"mig-0": ["mig"], "vgpu-0": ["vgpu"]})
    ask(card, "a", "mig-0")
    ask(card, "b", "vgpu-0")
    assert "1 incompatible with devices in use" in card.condition("b")["message"]


def keep(sim: Sim, kept: bool) -> None:
    """An API server that serves the fields, or one that is old or has the gate off and drops them on writes."""
    if kept:
        return
    put = sim.api.put

    def dropping(kind: kinds.Kind, obj: dict[str, Any]) -> dict[str, Any]:
        obj = copy.deepcopy(obj)
        for device in obj.get("spec", {}).get("devices", []) if kind is kinds.RESOURCE_SLICES else []:
            for consumed in device.get("consumesCounters", []):
                consumed.pop("compatibilityGroups", None)
        if kind is kinds.RESOURCE_CLAIMS:
            for result in (obj.get("status", {}).get("allocation") or {}).get("devices", {}).get("results", []):
                result.pop("compatibilityGroups", None)
        return put(kind, obj)

    sim.api.put = dropping  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("server", "scheduler", "placed"),
    [
        ("off", "off", {"mig", "vgpu", "plain"}),
        ("off", "on", {"mig", "vgpu", "plain"}),
        ("on", "off", {"plain"}),
        ("on", "on", {"mig"}),
    ],
)
def test_version_skew(server: str, scheduler: str, placed: set[str]) -> None:
    """The table of KEP-5963: before the KEP; devices skipped; the full feature."""
    sim = Sim(gates=Gates.dray().updated({"DRADeviceCompatibilityGroups": scheduler == "on"}))
    keep(sim, server == "on")
    sim.add_class()
    sim.add_node("n1")
    publish(sim, {"mig": ["mig"], "vgpu": ["vgpu"], "plain": None})
    for name in ("mig", "vgpu", "plain"):
        ask(sim, name, name)
    assert {name for name in ("mig", "vgpu", "plain") if sim.node_of(name)} == placed


def test_upgrade_downgrade_and_upgrade_again() -> None:
    """What runs keeps running; while the gate is off nothing new comes to the counter set; then groups count again."""
    sim = Sim(gates=Gates.dray())
    sim.add_class()
    sim.add_node("n1")
    publish(sim, {"mig-0": ["mig"], "mig-1": ["mig"], "vgpu": ["vgpu"], "plain": None})
    ask(sim, "before", "mig-0")
    sim.gates = Gates.dray().updated({"DRADeviceCompatibilityGroups": False})
    sim.start()
    for name, device in (("same", "mig-1"), ("other", "vgpu"), ("none", "plain")):
        ask(sim, name, device)
    assert [sim.node_of(name) for name in ("before", "same", "other", "none")] == ["n1", "", "", ""]
    sim.gates = Gates.dray()
    sim.start()
    sim.settle(20)
    assert [sim.node_of(name) for name in ("before", "same", "other", "none")] == ["n1", "n1", "", ""]
    assert sim.claim("before")["status"]["allocation"]["devices"]["results"][0]["compatibilityGroups"] == {"card": ["mig"]}
