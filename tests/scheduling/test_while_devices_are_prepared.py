"""KEP-5007: what may happen to a pod, its claims, its node and the scheduler while devices are being prepared."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
from scheduling_cluster import EPOCH, Sim

from dray.api import kinds
from dray.api.times import format_time
from dray.cluster.port import ClusterError, Conflict, Invalid, Refused, Unreachable, Write
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


def test_of_devices_that_ran_out_of_time_no_more_are_taken_again_than_must_be(fabric: Sim) -> None:
    fabric.add_claim("three", count=3)
    wait(fabric, claims=("three",))
    say(fabric, "three", READY, device=0)
    fabric.settle(605)
    assert fabric.devices_of("three") == ["fabric/gpu-0", "fabric/gpu-1", "fabric/gpu-3"]


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


def test_a_claim_that_is_taken_away_before_the_bind_is_tried_again_is_noticed(fabric: Sim) -> None:
    wait(fabric)
    fabric.fault = lambda write: Unreachable("gone") if write.subresource == "binding" else None
    say(fabric, "p", READY)
    fabric.settle()
    claim = fabric.claim("p")
    claim["status"] = {}
    fabric.api.put(kinds.RESOURCE_CLAIMS, claim)
    fabric.fault = None
    fabric.settle(5)
    assert fabric.node_of("p") == ""
    say(fabric, "p", READY)
    fabric.settle(5)
    assert fabric.node_of("p") != ""
    assert fabric.claim("p")["status"]["reservedFor"]


def test_a_claim_that_is_taken_away_just_before_the_bind_is_noticed(fabric: Sim) -> None:
    wait(fabric)
    say(fabric, "p", READY)
    claim = fabric.claim("p")
    claim["status"] = {}
    fabric.api.put(kinds.RESOURCE_CLAIMS, claim)
    fabric.settle(2)
    assert fabric.node_of("p") == ""
    assert fabric.devices_of("p") != []


def test_an_allocation_that_is_taken_away_before_its_answer_comes_is_not_written_again(sim: Sim) -> None:
    """Others may have its device by then."""
    sim.add_class()
    sim.add_node("n1")
    sim.add_slice("n1", 1)
    sim.add_claim("a")
    sim.add_pod("a", claims=["a"])

    def unanswered(write: Write) -> ClusterError | None:
        if write.key == "default/a" and write.subresource == "status" and "allocation" in write.body["status"]:
            sim.api.write(write)
            return Unreachable("no answer")
        return None

    sim.fault = unanswered
    while not sim.devices_of("a"):
        sim.step()
    sim.fault = None
    claim = sim.claim("a")
    claim["status"] = {}
    sim.api.put(kinds.RESOURCE_CLAIMS, claim)
    wait(sim, "b", priority=10)
    sim.settle(5)
    assert sim.devices_of("b") == ["n1/gpu-0"]
    assert sim.devices_of("a") == []


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
    sim.add_pod("a-thief", requests={"cpu": "2"})  # which is listed first
    sim.start()
    sim.settle()
    say(sim, "p", READY)
    sim.settle(5)
    assert (sim.node_of("p"), sim.node_of("a-thief")) == ("n1", "")


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


# ------------------------------------------------------------------------------------------------- while it is given back


def test_a_claim_that_may_not_be_given_back_is_not_tried_without_pause(fabric: Sim) -> None:
    wait(fabric, claims=("good", "bad"))
    tries: list[Write] = []

    def forbidden(write: Write) -> ClusterError | None:
        if write.key == "default/good" and write.kind is kinds.RESOURCE_CLAIMS:
            tries.append(write)
            return Refused(403, "Forbidden", "not allowed")
        return None

    fabric.fault = forbidden
    fabric.remove(kinds.PODS, "default/p")
    fabric.settle(10)
    assert 1 <= len(tries) <= 11


def holders(sim: Sim) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for claim in sim.api.objects[kinds.RESOURCE_CLAIMS].values():
        for device in sim.devices_of(claim["metadata"]["name"]):
            found.setdefault(device, []).append(claim["metadata"]["name"])
    return found


def test_a_device_has_no_second_owner_before_the_first_has_given_it_back(sim: Sim) -> None:
    sim.add_class()
    sim.add_node("n1")
    sim.add_slice("n1", 6, **FABRIC)
    sim.add_claim("two", count=2)
    wait(sim, claims=("two",))
    sim.fault = lambda write: Unreachable("gone") if is_clear(write) else None
    say(sim, "two", READY, device=0)
    say(sim, "two", FAILED, device=1)
    for index in range(3):
        sim.settle(3)
        wait(sim, f"q{index}")
        assert all(len(claims) == 1 for claims in holders(sim).values())
    assert sim.devices_of("two") == ["n1/gpu-0", "n1/gpu-1"]
    sim.fault = None
    sim.settle(15)
    assert "n1/gpu-1" not in sim.devices_of("two")
    assert len(sim.devices_of("two")) == 2


def test_what_the_api_will_not_have_is_sent_again_ever_more_rarely(fabric: Sim) -> None:
    wait(fabric)
    fabric.settle(3)
    refused: list[float] = []

    def fault(write: Write) -> ClusterError | None:
        if write.kind is not kinds.RESOURCE_CLAIMS:
            return None
        refused.append(fabric.now)
        return Invalid(422, "Invalid", "no")

    fabric.fault = fault
    fabric.api.delete(kinds.PODS, "default/p")
    fabric.settle(100)
    assert [round(later - earlier) for earlier, later in pairwise(refused)] == [1, 2, 4, 8, 16, 32]


def is_clear(write: Write) -> bool:
    return write.kind is kinds.RESOURCE_CLAIMS and write.body.get("status", {}).get("allocation", ...) is None


@pytest.mark.parametrize("seed", [*range(16), 48, 80, 98])
def test_random_waits_with_faults_and_restarts(seed: int) -> None:
    """Devices fail, stay silent or come; claims are shared; pods, nodes and schedulers come and go; writes fail."""
    rng = random.Random(seed)
    sim = Sim(Config(profiles=(Profile(binding_timeout=20.0),), device_rest=5.0))
    sim.add_class("gpu", extended="example.com/gpu")
    for node in ("n0", "n1", "n2"):
        sim.add_node(node)
        sim.add_slice(node, 3, **FABRIC)

    def fault(write: Write) -> ClusterError | None:
        if write.kind is kinds.EVENTS or rng.random() > 0.15:
            return None
        if rng.random() < 0.4:
            return Conflict(409, "Conflict", "someone was faster")
        if rng.random() < 0.5:
            with suppress(ClusterError):
                sim.api.write(write)
        return Unreachable("no answer")

    sim.fault = fault
    for serial in range(60):
        disturb(sim, rng, serial)
        for _ in range(rng.randrange(5)):
            sim.step()
        check(sim)
        sim.now += rng.choice((0.0, 0.5, 3.0, 25.0))
        if rng.random() < 0.1:
            sim.start()
    sim.fault = None
    for claim in list(sim.api.objects[kinds.RESOURCE_CLAIMS].values()):
        sim.api.put(kinds.RESOURCE_CLAIMS, claim)
    for _ in range(12):
        sim.settle(4, most=20000)
        for claim in list(sim.api.objects[kinds.RESOURCE_CLAIMS].values()):
            if claim["status"].get("allocation") and not claim["metadata"].get("deletionTimestamp"):
                tell_all(sim, claim, READY)
        check(sim)
    sim.settle(10, most=20000)
    assert sim.preparing() == []
    for pod in sim.api.objects[kinds.PODS].values():
        # What waits may need two devices of one node.
        assert pod["spec"].get("nodeName") or len(holders(sim)) >= 6
        specials = [claim["metadata"]["name"] for claim in sim.api.objects[kinds.RESOURCE_CLAIMS].values() if owns(pod, claim)]
        named = pod["status"].get("extendedResourceClaimStatus", {}).get("resourceClaimName")
        assert not pod["spec"].get("nodeName") or specials == ([named] if named else [])


def owns(pod: dict[str, Any], claim: dict[str, Any]) -> bool:
    return any(owner["uid"] == pod["metadata"]["uid"] for owner in claim["metadata"].get("ownerReferences", []))


def disturb(sim: Sim, rng: random.Random, serial: int) -> None:
    claims = list(sim.api.objects[kinds.RESOURCE_CLAIMS].values())
    allocated = [claim for claim in claims if claim["status"].get("allocation")]
    match rng.randrange(8):
        case 0:
            sim.add_claim(f"c{serial}", count=rng.choice((1, 2)))
            for part in range(rng.choice((1, 1, 2))):
                sim.add_pod(f"p{serial}-{part}", claims=[f"c{serial}"])
        case 1:
            sim.add_claim(f"a{serial}")
            sim.add_claim(f"b{serial}")
            sim.add_pod(f"p{serial}", claims=[f"a{serial}", f"b{serial}"])
        case 2:
            resources = {"limits": {"example.com/gpu": "1"}}
            sim.add_pod(f"p{serial}", containers=[{"name": "m", "resources": resources}])
        case 3 | 4 if allocated:
            tell_all(sim, rng.choice(allocated), rng.choice((READY, READY, FAILED)))
        case 5:
            unbound = [key for key, pod in sim.api.objects[kinds.PODS].items() if not pod["spec"].get("nodeName")]
            if unbound:
                sim.remove(kinds.PODS, rng.choice(unbound))
        case 6 if allocated:
            claim = rng.choice(allocated)
            running = {pod["metadata"]["uid"] for pod in sim.api.objects[kinds.PODS].values() if pod["spec"].get("nodeName")}
            if not running & {consumer["uid"] for consumer in claim["status"].get("reservedFor") or []}:
                claim["status"] = {}
                sim.api.put(kinds.RESOURCE_CLAIMS, claim)
        case _:
            pass


def tell_all(sim: Sim, claim: dict[str, Any], condition: str) -> None:
    said = {"type": condition, "status": "True", "reason": "Told", "message": "", "lastTransitionTime": format_time(sim.now)}
    known = {(d["pool"], d["device"]): d for d in claim["status"].get("devices") or []}
    for result in claim["status"]["allocation"]["devices"]["results"]:
        entry = {key: result[key] for key in ("driver", "pool", "device")}
        known.setdefault((result["pool"], result["device"]), {**entry, "conditions": [said]})
    claim["status"]["devices"] = list(known.values())
    sim.api.put(kinds.RESOURCE_CLAIMS, claim)


def check(sim: Sim) -> None:
    assert all(len(claims) == 1 for claims in holders(sim).values()), holders(sim)
    for pod in sim.api.objects[kinds.PODS].values():
        if not (node := pod["spec"].get("nodeName")):
            continue
        names = [entry["resourceClaimName"] for entry in pod["spec"].get("resourceClaims", [])]
        if named := pod["status"].get("extendedResourceClaimStatus"):
            names.append(named["resourceClaimName"])
        for name in names:
            status = sim.claim(name)["status"]
            assert pod["metadata"]["uid"] in [consumer["uid"] for consumer in status["reservedFor"]]
            assert {result["pool"] for result in status["allocation"]["devices"]["results"]} == {node}
            ready = {(d["pool"], d["device"]) for d in status["devices"] for c in d["conditions"] if c["type"] == READY}
            assert all((r["pool"], r["device"]) in ready for r in status["allocation"]["devices"]["results"])
