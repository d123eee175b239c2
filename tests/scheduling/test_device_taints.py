"""KEP-5055 in scheduling: taints of drivers and administrators keep devices from new pods that do not tolerate them."""

from __future__ import annotations

from typing import Any

import pytest
from scheduling_cluster import Sim, slice_of

from dray.api import kinds
from dray.api.gates import Gates
from dray.api.times import format_time
from dray.cluster.port import Unreachable

NO_SCHEDULE = {"key": "gpu.example.com/overheating", "value": "yes", "effect": "NoSchedule"}
NO_EXECUTE = {**NO_SCHEDULE, "effect": "NoExecute"}


@pytest.fixture
def gpu(sim: Sim) -> Sim:
    """One node with one device."""
    return one_device(sim)


def one_device(sim: Sim) -> Sim:
    sim.add_class()
    sim.add_node("n1")
    sim.add_slice("n1", 1)
    return sim


def ask(sim: Sim, name: str, claim: str = "", tolerations: list[dict[str, Any]] | None = None) -> str:
    """A pod that wants one device, or the claim named, and where it went."""
    if not claim:
        exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1, "tolerations": tolerations or []}
        sim.add_claim(name, spec={"devices": {"requests": [{"name": "req", "exactly": exactly}]}})
    sim.add_pod(name, claims=[claim or name])
    sim.settle(20)
    return sim.node_of(name)


def taint(sim: Sim, *taints: dict[str, str]) -> None:
    """What a driver does: the slice changes, its generation does not have to."""
    sim.api.put(kinds.RESOURCE_SLICES, {**_known_slice(sim), **slice_of("n1", 1, taints=list(taints))})


def _known_slice(sim: Sim) -> dict[str, Any]:
    return sim.api.objects[kinds.RESOURCE_SLICES]["n1-gpu.example.com"]


def rule(sim: Sim, name: str, selector: dict[str, str] | None, taint: dict[str, str] = NO_SCHEDULE) -> None:
    spec: dict[str, Any] = {"taint": taint}
    if selector is not None:
        spec["deviceSelector"] = selector
    sim.api.put(kinds.DEVICE_TAINT_RULES, {"metadata": {"name": name}, "spec": spec})


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
def test_a_tainted_device_is_not_given_to_a_pod_that_does_not_tolerate_it(gpu: Sim, effect: str) -> None:
    taint(gpu, {**NO_SCHEDULE, "effect": effect})
    assert ask(gpu, "plain") == ""
    assert "taint" in gpu.condition("plain")["message"]
    assert ask(gpu, "test-pod", tolerations=[{"key": NO_SCHEDULE["key"], "operator": "Exists", "effect": effect}]) == "n1"


@pytest.mark.parametrize("effect", ["None", "FromTheFuture"])
def test_a_taint_that_only_informs_changes_nothing(gpu: Sim, effect: str) -> None:
    taint(gpu, {**NO_SCHEDULE, "effect": effect})
    assert ask(gpu, "p") == "n1"
    assert ask(gpu, "q", claim="p") == "n1"


def test_tolerating_eviction_is_not_tolerating_scheduling(gpu: Sim) -> None:
    """One key with both effects needs tolerations for both."""
    taint(gpu, NO_SCHEDULE, NO_EXECUTE)
    evict = {"key": NO_SCHEDULE["key"], "operator": "Exists", "effect": "NoExecute"}
    assert ask(gpu, "half", tolerations=[evict]) == ""
    assert ask(gpu, "whole", tolerations=[evict, {**evict, "effect": "NoSchedule"}]) == "n1"


def test_taints_of_driver_and_administrator_add_up(gpu: Sim) -> None:
    taint(gpu, NO_SCHEDULE)
    rule(gpu, "maintenance", {"driver": "gpu.example.com"}, {"key": "admin", "effect": "NoExecute"})
    driver, admin = {"key": NO_SCHEDULE["key"], "operator": "Exists"}, {"key": "admin", "operator": "Exists"}
    assert ask(gpu, "one", tolerations=[driver]) == ""
    assert ask(gpu, "other", tolerations=[admin]) == ""
    assert ask(gpu, "both", tolerations=[driver, admin]) == "n1"


@pytest.mark.parametrize(
    ("selector", "tainted"),
    [
        (None, False),
        ({}, True),
        ({"driver": "gpu.example.com"}, True),
        ({"pool": "n1"}, True),
        ({"device": "gpu-0"}, True),
        ({"driver": "gpu.example.com", "pool": "n1", "device": "gpu-0"}, True),
        ({"driver": "other.example.com", "device": "gpu-0"}, False),
        ({"pool": "n2"}, False),
    ],
)
def test_a_rule_taints_what_meets_all_its_criteria(gpu: Sim, selector: dict[str, str] | None, tainted: bool) -> None:
    rule(gpu, "r", selector)
    assert ask(gpu, "p") == ("" if tainted else "n1")


def test_that_devices_are_tainted_is_said_of_many_nodes_that_are_alike_too(gpu: Sim) -> None:
    for name in ("n2", "n3"):
        gpu.add_node(name)
        gpu.add_slice(name, 1)
    rule(gpu, "r", {})
    assert ask(gpu, "p") == ""
    assert (
        "3 nodes have not enough devices of class gpu for request req (needs 1, at most 0 free of 1; up to 1 tainted)"
        in (gpu.condition("p")["message"])
    )


def test_that_devices_are_tainted_is_said_where_others_are_in_use_on_one_of_the_nodes(gpu: Sim) -> None:
    gpu.add_node("n2")
    gpu.add_slice("n2", 2)
    assert ask(gpu, "first") != ""
    rule(gpu, "r", {})
    assert ask(gpu, "p") == ""
    assert "; up to 2 tainted)" in gpu.condition("p")["message"]


def test_a_rule_that_goes_or_loses_its_effect_wakes_who_waits(gpu: Sim) -> None:
    rule(gpu, "r", {})
    assert ask(gpu, "p") == ""
    rule(gpu, "r", {}, {**NO_SCHEDULE, "effect": "None"})
    gpu.settle(20)
    assert gpu.node_of("p") == "n1"


@pytest.mark.parametrize("taint_it", [lambda sim: taint(sim, NO_SCHEDULE), lambda sim: rule(sim, "r", {}, NO_EXECUTE)])
def test_a_claim_with_a_taint_takes_no_new_pod_until_the_taint_is_gone(gpu: Sim, taint_it: Any) -> None:
    assert ask(gpu, "first") == "n1"
    taint_it(gpu)
    assert ask(gpu, "second", claim="first") == ""
    assert "taint" in gpu.condition("second")["message"]
    taint(gpu)
    if gpu.api.objects[kinds.DEVICE_TAINT_RULES]:
        gpu.remove(kinds.DEVICE_TAINT_RULES, "r")
    gpu.settle(20)
    assert gpu.node_of("second") == "n1"


def test_a_claim_whose_device_is_not_published_any_more_can_still_be_tainted(gpu: Sim) -> None:
    assert ask(gpu, "first") == "n1"
    gpu.remove(kinds.RESOURCE_SLICES, "n1-gpu.example.com")
    rule(gpu, "r", {"pool": "n1"})
    assert ask(gpu, "second", claim="first") == ""


def test_a_claim_that_tolerated_the_taint_when_it_was_allocated_takes_new_pods(gpu: Sim) -> None:
    taint(gpu, NO_SCHEDULE)
    assert ask(gpu, "first", tolerations=[{"operator": "Exists"}]) == "n1"
    assert ask(gpu, "second", claim="first") == "n1"


def test_a_claim_on_its_way_takes_no_second_pod_once_it_is_tainted(gpu: Sim) -> None:
    gpu.fault = lambda write: Unreachable("no answer")
    gpu.add_claim("shared")
    gpu.add_pod("first", claims=["shared"])
    gpu.step()
    rule(gpu, "r", {})
    gpu.add_pod("second", claims=["shared"])
    gpu.step()
    gpu.fault = None
    gpu.settle(30)
    assert (gpu.node_of("first"), gpu.node_of("second")) == ("n1", "")


def test_a_taint_of_an_older_generation_does_not_count(gpu: Sim) -> None:
    taint(gpu, NO_SCHEDULE)
    newer = slice_of("n1", 1)
    newer["metadata"]["name"] = "newer"
    newer["spec"]["pool"]["generation"] = 2
    gpu.api.put(kinds.RESOURCE_SLICES, newer)
    assert ask(gpu, "first") == "n1"
    assert ask(gpu, "second", claim="first") == "n1"


def test_without_the_gate_for_rules_only_taints_of_drivers_count() -> None:
    sim = one_device(Sim(gates=Gates.dray().updated({"DRADeviceTaintRules": False})))
    rule(sim, "r", {})
    assert ask(sim, "first") == "n1"
    assert ask(sim, "second", claim="first") == "n1"
    taint(sim, NO_SCHEDULE)
    assert ask(sim, "third", claim="first") == ""


def test_without_the_gate_for_taints_it_is_as_if_there_were_none() -> None:
    sim = one_device(Sim(gates=Gates.dray().updated({"DRADeviceTaints": False})))
    taint(sim, NO_SCHEDULE)
    rule(sim, "r", {})
    assert ask(sim, "first") == "n1"
    assert ask(sim, "second", claim="first") == "n1"


def timed(sim: Sim, seconds: float, effect: str = "NoExecute") -> None:
    """The device gets a taint that was added so many seconds ago."""
    taint(sim, {**NO_SCHEDULE, "effect": effect, "timeAdded": format_time(sim.now - seconds)})


def for_seconds(seconds: int) -> list[dict[str, Any]]:
    return [{"key": NO_SCHEDULE["key"], "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}]


def test_a_toleration_whose_seconds_are_over_lets_nobody_in(gpu: Sim) -> None:
    """Whatever it let in would be evicted at once, and without end where a controller makes the pod again."""
    timed(gpu, 100)
    assert ask(gpu, "late", tolerations=for_seconds(60)) == ""
    assert "1 tainted" in gpu.condition("late")["message"]
    assert ask(gpu, "early", tolerations=for_seconds(600)) == "n1"


def test_an_answer_that_counted_on_a_toleration_ends_with_it(gpu: Sim) -> None:
    timed(gpu, 0)
    assert ask(gpu, "early", tolerations=for_seconds(60)) == "n1"
    gpu.api.delete(kinds.PODS, "default/early")
    gpu.api.delete(kinds.RESOURCE_CLAIMS, "default/early")
    gpu.settle(60)
    assert ask(gpu, "late", tolerations=for_seconds(60)) == ""


def test_a_claim_whose_toleration_is_over_takes_no_new_pods(gpu: Sim) -> None:
    timed(gpu, 0)
    assert ask(gpu, "early", tolerations=for_seconds(60)) == "n1"
    gpu.settle(60)
    assert ask(gpu, "late", claim="early") == ""
    assert "no longer since" in gpu.condition("late")["message"]


def test_the_taint_that_comes_back_is_tolerated_anew(gpu: Sim) -> None:
    timed(gpu, 100)
    assert ask(gpu, "late", tolerations=for_seconds(60)) == ""
    timed(gpu, 0)
    gpu.settle(20)
    assert gpu.node_of("late") == "n1"
