"""KEP-5007 meets KEP-5055: nobody waits for a device that must be left, or is bound to one to be evicted at once."""

from __future__ import annotations

from typing import Any

import pytest
from scheduling_cluster import Sim, slice_of

from dray.api import kinds
from dray.api.gates import Gates
from dray.api.times import format_time

READY, FAILED, DRIVER = "dra.example.com/is-prepared", "dra.example.com/preparing-failed", "gpu.example.com"
FABRIC = {"bindsToNode": True, "bindingConditions": [READY], "bindingFailureConditions": [FAILED]}
EVICTING = {"key": "example.com/maintenance", "value": "", "effect": "NoExecute"}


def two_devices(sim: Sim) -> Sim:
    sim.add_class()
    sim.add_node("n1")
    sim.add_slice("", 2, pool="fabric", **FABRIC)
    return sim


@pytest.fixture
def fabric(sim: Sim) -> Sim:
    return two_devices(sim)


def wait(sim: Sim, name: str = "p", *, claim: str = "", tolerations: list[dict[str, Any]] | None = None) -> None:
    if not claim:
        exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1, "tolerations": tolerations or []}
        sim.add_claim(name, spec={"devices": {"requests": [{"name": "req", "exactly": exactly}]}})
    sim.add_pod(name, claims=[claim or name])
    sim.settle()


def by_rule(sim: Sim, taint: dict[str, str], device: str = "gpu-0") -> None:
    spec = {"deviceSelector": {"driver": DRIVER, "pool": "fabric", "device": device}, "taint": taint}
    sim.api.put(kinds.DEVICE_TAINT_RULES, {"metadata": {"name": "rule"}, "spec": spec})


def by_driver(sim: Sim, taint: dict[str, str]) -> None:
    changed = slice_of("", 2, pool="fabric", **FABRIC)
    changed["spec"]["devices"][0]["taints"] = [taint]
    (known,) = sim.api.objects[kinds.RESOURCE_SLICES].values()
    sim.api.put(kinds.RESOURCE_SLICES, {**known, **changed})


def ready(sim: Sim, claim: str = "p") -> None:
    """What the controller of the device does."""
    found = sim.claim(claim)
    (result,) = found["status"]["allocation"]["devices"]["results"]
    said = {"type": READY, "status": "True", "reason": "Said", "message": "", "lastTransitionTime": format_time(sim.now)}
    found["status"]["devices"] = [{key: result[key] for key in ("driver", "pool", "device")} | {"conditions": [said]}]
    sim.api.put(kinds.RESOURCE_CLAIMS, found)


@pytest.mark.parametrize("taint", [by_rule, by_driver])
def test_the_wait_for_a_device_that_must_be_left_ends_at_once(fabric: Sim, taint: Any) -> None:
    wait(fabric)
    assert fabric.devices_of("p") == ["fabric/gpu-0"]
    taint(fabric, EVICTING)
    fabric.settle(2)
    assert fabric.devices_of("p") == ["fabric/gpu-1"]
    assert "example.com/maintenance" in fabric.events("FailedScheduling")[-1]["note"]
    assert (
        fabric.meter.counters["scheduler_dra_bindingconditions_allocations_total", ("default-scheduler", DRIVER, "failure")] == 1
    )
    ready(fabric)
    fabric.settle()
    assert fabric.node_of("p") == "n1"


@pytest.mark.parametrize("effect", ["NoSchedule", "None"])
@pytest.mark.parametrize("taint", [by_rule, by_driver])
def test_a_taint_that_evicts_nobody_does_not_end_it(fabric: Sim, taint: Any, effect: str) -> None:
    wait(fabric)
    taint(fabric, {**EVICTING, "effect": effect})
    fabric.settle(5)
    assert fabric.devices_of("p") == ["fabric/gpu-0"]
    ready(fabric)
    fabric.settle()
    assert fabric.node_of("p") == "n1"


def test_nor_does_one_of_another_device_or_one_that_is_tolerated(fabric: Sim) -> None:
    wait(fabric, tolerations=[{"key": "example.com/maintenance", "operator": "Exists", "effect": "NoExecute"}])
    by_driver(fabric, EVICTING)
    by_rule(fabric, {**EVICTING, "key": "example.com/other"}, device="gpu-1")
    fabric.settle(5)
    assert fabric.devices_of("p") == ["fabric/gpu-0"]
    ready(fabric)
    fabric.settle()
    assert fabric.node_of("p") == "n1"


def test_a_device_that_is_ready_after_its_toleration_ended_is_not_bound_to(fabric: Sim) -> None:
    for_a_while = {"key": "example.com/maintenance", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}
    wait(fabric, tolerations=[for_a_while])
    by_rule(fabric, {**EVICTING, "timeAdded": format_time(fabric.now)})
    fabric.settle(30)
    assert fabric.devices_of("p") == ["fabric/gpu-0"]
    fabric.settle(60)
    ready(fabric)
    fabric.settle(2)
    assert fabric.node_of("p") == ""
    assert fabric.devices_of("p") == ["fabric/gpu-1"]


def test_a_taint_that_came_while_no_scheduler_ran_ends_it_too(fabric: Sim) -> None:
    wait(fabric)
    by_rule(fabric, EVICTING)
    fabric.restart()
    fabric.settle(5)
    assert fabric.devices_of("p") == ["fabric/gpu-1"]


def test_all_pods_of_a_shared_claim_are_decided_on_again(fabric: Sim) -> None:
    wait(fabric)
    wait(fabric, "q", claim="p")
    by_rule(fabric, EVICTING)
    fabric.settle(5)
    assert fabric.devices_of("p") == ["fabric/gpu-1"]
    ready(fabric)
    fabric.settle(5)
    assert (fabric.node_of("p"), fabric.node_of("q")) == ("n1", "n1")


def test_without_the_gates_taints_do_not_count() -> None:
    fabric = two_devices(Sim(gates=Gates.dray().updated({"DRADeviceTaints": False})))
    wait(fabric)
    by_driver(fabric, EVICTING)
    by_rule(fabric, EVICTING)
    fabric.settle(5)
    assert fabric.devices_of("p") == ["fabric/gpu-0"]
