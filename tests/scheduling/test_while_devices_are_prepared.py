"""KEP-5007: what may happen to a pod, its claims, its node and the scheduler while devices are being prepared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from scheduling_cluster import EPOCH, Sim

from dray.api import kinds
from dray.api.times import format_time
from dray.scheduling.config import Config, Profile

READY = "dra.example.com/is-prepared"
FAILED = "dra.example.com/preparing-failed"
FABRIC = {"bindsToNode": True, "bindingConditions": [READY], "bindingFailureConditions": [FAILED]}
DRIVER = "gpu.example.com"
ALLOCATIONS = "scheduler_dra_bindingconditions_allocations_total"
PREBIND = "scheduler_dra_bindingconditions_prebind_duration_seconds"


@pytest.fixture
def fabric(sim: Sim) -> Sim:
    return two_nodes(sim)


def two_nodes(sim: Sim, devices: int = 4) -> Sim:
    sim.add_class()
    sim.add_node("n1")
    sim.add_node("n2")
    sim.add_slice("", devices, pool="fabric", **FABRIC)
    return sim


def say(sim: Sim, claim: str, condition: str, status: str = "True", device: int = 0) -> None:
    """What the controller of the device does: one more word about one device of the claim."""
    found = sim.claim(claim)
    result = found["status"]["allocation"]["devices"]["results"][device]
    said = {"type": condition, "status": status, "reason": "Said", "message": "", "lastTransitionTime": format_time(sim.now)}
    place = {key: result[key] for key in ("driver", "pool", "device")}
    others = [entry for entry in found["status"].get("devices", []) if entry["device"] != result["device"]]
    found["status"]["devices"] = [*others, {**place, "conditions": [said]}]
    sim.api.put(kinds.RESOURCE_CLAIMS, found)


def wait(sim: Sim, name: str = "p", claims: tuple[str, ...] = (), **extra: Any) -> None:
    for claim in claims or (name,):
        if f"default/{claim}" not in sim.api.objects[kinds.RESOURCE_CLAIMS]:
            sim.add_claim(claim)
    sim.add_pod(name, claims=list(claims or (name,)), **extra)
    sim.settle()


# ---------------------------------------------------------------------------------------------------------- several claims


def test_a_ready_claim_keeps_its_device_when_another_of_the_pod_fails(fabric: Sim) -> None:
    wait(fabric, claims=("good", "bad"))
    kept, failed = fabric.devices_of("good"), fabric.devices_of("bad")
    say(fabric, "good", READY)
    say(fabric, "bad", FAILED)
    fabric.settle(2)
    assert fabric.devices_of("good") == kept
    assert fabric.claim("good")["status"]["devices"][0]["conditions"][0]["type"] == READY
    assert fabric.devices_of("bad") not in (failed, [])
    say(fabric, "bad", READY)
    fabric.settle()
    assert fabric.node_of("p") == "n1"


def test_a_kept_claim_is_given_back_when_its_node_has_nothing_else_to_offer(sim: Sim) -> None:
    sim.add_class()
    sim.add_class("nic", driver="nic.example.com")
    for name in ("n1", "n2"):
        sim.add_node(name)
        sim.add_slice(name, 1, **FABRIC)
        sim.add_slice(name, 1, driver="nic.example.com", **FABRIC)
    sim.add_claim("gpu")
    sim.add_claim("nic", cls="nic")
    wait(sim, claims=("gpu", "nic"))
    assert sim.devices_of("gpu") == ["n1/gpu-0"]
    say(sim, "gpu", READY)
    say(sim, "nic", FAILED)
    sim.settle(20)
    assert (sim.devices_of("gpu"), sim.devices_of("nic")) == (["n2/gpu-0"], ["n2/gpu-0"])


def test_each_claim_has_its_own_time(fabric: Sim) -> None:
    wait(fabric, "first", claims=("early",))
    fabric.settle(400)
    wait(fabric, "both", claims=("early", "late"))
    late = fabric.devices_of("late")
    fabric.settle(201)
    assert fabric.claim("early")["status"]["allocation"]["allocationTimestamp"] != format_time(EPOCH)
    assert fabric.devices_of("late") == late
    assert fabric.claim("late")["status"]["allocation"]["allocationTimestamp"] == format_time(EPOCH + 400)


def test_every_device_of_a_claim_that_ran_out_of_time_rests(fabric: Sim) -> None:
    fabric.add_claim("three", count=3)
    wait(fabric, claims=("three",))
    say(fabric, "three", READY, device=0)
    fabric.settle(605)
    assert fabric.devices_of("three") == []
    assert "needs 3, at most 2 free of 4" in fabric.condition("p")["message"]


# ---------------------------------------------------------------------------------------------------------- shared claims


def test_a_pod_that_goes_leaves_the_claim_to_the_others_that_wait(fabric: Sim) -> None:
    wait(fabric, "a", claims=("c",))
    wait(fabric, "b", claims=("c",))
    before = fabric.claim("c")["status"]["allocation"]
    fabric.settle(5)
    fabric.remove(kinds.PODS, "default/a")
    fabric.settle(2)
    status = fabric.claim("c")["status"]
    assert status["allocation"] == before
    assert [consumer["name"] for consumer in status["reservedFor"]] == ["b"]
    say(fabric, "c", READY)
    fabric.settle()
    assert fabric.node_of("b") == "n1"


def test_the_failure_of_a_shared_claim_is_the_failure_of_all_its_pods(fabric: Sim) -> None:
    wait(fabric, "a", claims=("c",))
    wait(fabric, "b", claims=("c",))
    say(fabric, "c", FAILED)
    fabric.settle(3)
    assert fabric.devices_of("c") == ["fabric/gpu-1"]
    assert len(fabric.claim("c")["status"]["reservedFor"]) == 2
    say(fabric, "c", READY)
    fabric.settle()
    assert fabric.node_of("a") == fabric.node_of("b") != ""


@pytest.mark.parametrize("end", ["failure", "timeout"])
def test_a_shared_claim_that_ended_while_no_scheduler_ran_is_allocated_anew(fabric: Sim, end: str) -> None:
    wait(fabric, "a", claims=("c",))
    wait(fabric, "b", claims=("c",))
    fabric.api.watchers.clear()
    if end == "failure":
        say(fabric, "c", FAILED)
    fabric.now += 5 if end == "failure" else 700
    fabric.api.watchers.append(fabric._watch)
    fabric.start()
    fabric.settle(15)
    assert fabric.devices_of("c") == ["fabric/gpu-1"]
    assert len(fabric.claim("c")["status"]["reservedFor"]) == 2


def test_a_claim_that_something_else_than_a_pod_uses_is_not_cleared(fabric: Sim) -> None:
    wait(fabric)
    claim = fabric.claim("p")
    claim["status"]["reservedFor"].append({"apiGroup": "example.com", "resource": "jobs", "name": "j", "uid": "j"})
    fabric.api.put(kinds.RESOURCE_CLAIMS, claim)
    say(fabric, "p", FAILED)
    fabric.settle(5)
    assert fabric.devices_of("p") == ["fabric/gpu-0"]
    assert "could not be bound" in fabric.condition("p")["message"]


# ----------------------------------------------------------------------------------------------- what others do meanwhile


def deallocated(claim: dict[str, Any]) -> None:
    claim["status"] = {}


def moved(claim: dict[str, Any]) -> None:
    """Another scheduler gave it to another node."""
    allocation = claim["status"]["allocation"]
    allocation["devices"]["results"][0]["device"] = "gpu-3"
    allocation["nodeSelector"]["nodeSelectorTerms"][0]["matchFields"][0]["values"] = ["n2"]
    claim["status"]["reservedFor"] = []


def unreserved(claim: dict[str, Any]) -> None:
    claim["status"]["reservedFor"] = []


@pytest.mark.parametrize("change", [deallocated, moved, unreserved])
def test_a_claim_that_others_change_is_decided_on_again(fabric: Sim, change: Callable[[dict[str, Any]], None]) -> None:
    wait(fabric, claims=("other", "c"))
    claim = fabric.claim("c")
    change(claim)
    fabric.api.put(kinds.RESOURCE_CLAIMS, claim)
    fabric.settle(15)
    say(fabric, "other", READY)
    say(fabric, "c", READY)
    fabric.settle(15)
    for name in ("other", "c"):
        if fabric.claim(name)["status"].get("devices") in (None, []):
            say(fabric, name, READY)
    fabric.settle(15)
    pod = fabric.pod("p")
    assert pod["spec"].get("nodeName")
    for name in ("other", "c"):
        status = fabric.claim(name)["status"]
        terms = status["allocation"]["nodeSelector"]["nodeSelectorTerms"]
        assert terms[0]["matchFields"][0]["values"] == [pod["spec"]["nodeName"]]
        assert [consumer["uid"] for consumer in status["reservedFor"]] == [pod["metadata"]["uid"]]


def test_the_claim_that_was_lost_is_named(fabric: Sim) -> None:
    wait(fabric, claims=("other", "c"))
    claim = fabric.claim("c")
    claim["status"] = {}
    fabric.api.put(kinds.RESOURCE_CLAIMS, claim)
    assert any("default/c" in event["note"] for event in told(fabric))


def told(sim: Sim) -> list[dict[str, Any]]:
    sim.settle()
    return sim.events("FailedScheduling")


def test_a_claim_that_was_made_again_under_its_name_is_another_claim(fabric: Sim) -> None:
    wait(fabric, claims=("c",))
    del fabric.claim("c")["metadata"]["finalizers"]
    status = fabric.claim("c")["status"]
    fabric.remove(kinds.RESOURCE_CLAIMS, "default/c")
    fabric.add_claim("c")
    fabric.settle(2)
    claim = fabric.claim("c")
    assert claim["status"]["allocation"] is not status["allocation"]
    assert claim["status"]["reservedFor"][0]["uid"] == fabric.pod("p")["metadata"]["uid"]
    say(fabric, "c", READY)
    fabric.settle()
    assert fabric.node_of("p") != ""


def test_a_claim_that_is_being_deleted_is_let_go(fabric: Sim) -> None:
    wait(fabric, claims=("c",))
    fabric.remove(kinds.RESOURCE_CLAIMS, "default/c")
    fabric.settle(2)
    assert fabric.claim("c")["status"].get("reservedFor") in (None, [])
    assert "being deleted" in fabric.condition("p")["message"]


def test_a_node_that_goes_ends_the_wait_for_it(fabric: Sim) -> None:
    wait(fabric)
    assert fabric.pod("p")["status"]["nominatedNodeName"] == "n1"
    fabric.remove(kinds.NODES, "n1")
    fabric.settle(5)
    assert fabric.pod("p")["status"]["nominatedNodeName"] == "n2"
    say(fabric, "p", READY)
    fabric.settle()
    assert fabric.node_of("p") == "n2"


def test_a_device_that_is_withdrawn_after_it_failed_is_not_picked_again(fabric: Sim) -> None:
    wait(fabric)
    say(fabric, "p", FAILED)
    fabric.add_slice("", 0, pool="fabric")
    fabric.settle(100)
    assert fabric.devices_of("p") == []
    slice = fabric.api.objects[kinds.RESOURCE_SLICES]["fabric-gpu.example.com"]
    slice["spec"]["devices"] = [{"name": "gpu-9", **FABRIC}]
    fabric.api.put(kinds.RESOURCE_SLICES, slice)
    fabric.settle(100)
    assert fabric.devices_of("p") == ["fabric/gpu-9"]


# ------------------------------------------------------------------------------------------------- the node meanwhile


def test_a_pod_that_tries_again_keeps_its_room_on_the_node(sim: Sim) -> None:
    sim.add_class()
    sim.add_node("n1", cpu="2")
    sim.add_slice("n1", 2, **FABRIC)
    wait(sim, requests={"cpu": "2"})
    say(sim, "p", FAILED)
    sim.settle()
    assert sim.pod("p")["status"]["nominatedNodeName"] == "n1"
    sim.add_pod("thief", requests={"cpu": "2"})
    sim.settle(5)
    assert sim.node_of("thief") == ""
    say(sim, "p", READY)
    sim.settle()
    assert sim.node_of("p") == "n1"


def test_room_that_a_pod_cannot_use_after_all_is_free_for_others(sim: Sim) -> None:
    sim.add_class()
    sim.add_node("n1", cpu="2")
    sim.add_slice("n1", 1, **FABRIC)
    wait(sim, requests={"cpu": "2"})
    say(sim, "p", FAILED)
    sim.add_pod("other", requests={"cpu": "2"})
    sim.settle(5)
    assert "nominatedNodeName" not in sim.pod("p")["status"]
    assert sim.node_of("other") == "n1"


def test_a_restart_keeps_the_room_of_a_pod_that_waits(sim: Sim) -> None:
    sim.add_class()
    sim.add_node("n1", cpu="2")
    sim.add_slice("n1", 2, **FABRIC)
    wait(sim, requests={"cpu": "2"})
    sim.add_pod("thief", requests={"cpu": "2"})
    thief = sim.api.objects[kinds.PODS].pop("default/thief")
    sim.api.objects[kinds.PODS] = {"default/thief": thief, **sim.api.objects[kinds.PODS]}
    sim.start()
    sim.settle()
    say(sim, "p", READY)
    sim.settle(5)
    assert (sim.node_of("p"), sim.node_of("thief")) == ("n1", "")


def test_a_device_that_failed_while_no_scheduler_ran_is_not_picked_again_at_once(fabric: Sim) -> None:
    wait(fabric)
    fabric.api.watchers.clear()
    say(fabric, "p", FAILED)
    fabric.now += 7
    fabric.api.watchers.append(fabric._watch)
    fabric.start()
    fabric.settle(5)
    assert fabric.devices_of("p") == ["fabric/gpu-1"]


# ------------------------------------------------------------------------------------------------------------- numbers


def test_an_attempt_counts_once_for_each_driver_whatever_it_waits_for(fabric: Sim) -> None:
    fabric.add_claim("two", count=2)
    wait(fabric, claims=("two", "one"))
    fabric.settle(3)
    for claim, device in (("two", 0), ("two", 1), ("one", 0)):
        say(fabric, claim, READY, device=device)
    fabric.settle()
    assert fabric.node_of("p") == "n1"
    assert fabric.meter.counters[ALLOCATIONS, ("default-scheduler", DRIVER, "success")] == 1


@pytest.mark.parametrize(("said", "status"), [(READY, "success"), (FAILED, "failure"), ("", "timeout")])
def test_the_time_before_binding_is_told_with_how_it_ended(said: str, status: str) -> None:
    sim = two_nodes(Sim(Config(profiles=(Profile(binding_timeout=20.0),))))
    wait(sim)
    sim.settle(7)
    if said:
        say(sim, "p", said)
    sim.settle(0 if said else 13)
    assert sim.meter.samples[PREBIND, (status, "true")] == [7.0 if said else 20.0]


def test_the_time_before_binding_is_told_without_binding_conditions_too(sim: Sim) -> None:
    sim.add_class()
    sim.add_node("n1")
    sim.add_slice("n1", 1)
    wait(sim)
    sim.add_pod("plain")
    sim.settle()
    assert {labels: len(found) for (name, labels), found in sim.meter.samples.items() if name == PREBIND} == {
        ("success", "false"): 1
    }
