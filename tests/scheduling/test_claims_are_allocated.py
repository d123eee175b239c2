"""Pods with claims: allocated, reserved, bound; and what happens when someone else is faster."""

from __future__ import annotations

import pytest
from scheduling_cluster import Sim

from dray.api import kinds
from dray.cluster.port import Conflict, Refused, Unreachable, Write
from dray.scheduling.ask import Ask
from dray.scheduling.placing.state import NotPlaced

FINALIZER = "resource.kubernetes.io/delete-protection"


@pytest.fixture
def gpus(sim: Sim) -> Sim:
    sim.add_class()
    for name in ("n1", "n2"):
        sim.add_node(name)
        sim.add_slice(name, 2)
    return sim


def test_a_claim_is_written_in_three_writes_and_one_event(gpus: Sim) -> None:
    gpus.add_claim("c")
    pod = gpus.add_pod("p", claims=["c"])
    gpus.settle()
    assert gpus.node_of("p") == "n1"
    claim = gpus.claim("c")
    assert claim["metadata"]["finalizers"] == [FINALIZER]
    assert claim["status"]["reservedFor"] == [{"resource": "pods", "name": "p", "uid": pod["metadata"]["uid"]}]
    assert gpus.devices_of("c") == ["n1/gpu-0"]
    term = claim["status"]["allocation"]["nodeSelector"]["nodeSelectorTerms"][0]
    assert term["matchFields"] == [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]
    assert claim["status"]["allocation"]["allocationTimestamp"] == "2027-01-15T08:00:00Z"
    assert [(w.verb, w.kind.plural, w.subresource) for w in gpus.log] == [
        ("patch", "resourceclaims", ""),
        ("patch", "resourceclaims", "status"),
        ("create", "pods", "binding"),
        ("create", "events", ""),
    ]


def test_a_finalizer_that_is_there_is_not_written_again(gpus: Sim) -> None:
    gpus.add_claim("c", metadata={"finalizers": [FINALIZER]})
    gpus.add_pod("p", claims=["c"])
    gpus.settle()
    assert [w.subresource for w in gpus.log if w.kind is kinds.RESOURCE_CLAIMS] == ["status"]


def test_devices_run_out(gpus: Sim) -> None:
    for index in range(5):
        gpus.add_claim(f"c{index}")
        gpus.add_pod(f"p{index}", claims=[f"c{index}"])
    gpus.settle()
    placed = [gpus.node_of(f"p{index}") for index in range(5)]
    assert sorted(placed) == ["", "n1", "n1", "n2", "n2"]
    assert placed[4] == ""
    held = [device for index in range(5) for device in gpus.devices_of(f"c{index}")]
    assert len(set(held)) == 4
    gpus.remove(kinds.PODS, "default/p0")
    gpus.api.put(kinds.RESOURCE_CLAIMS, {**gpus.claim("c0"), "status": {}})
    gpus.settle()
    assert gpus.node_of("p4") != ""


def test_pods_that_share_a_claim_are_reserved_by_one_write(gpus: Sim) -> None:
    gpus.add_claim("c")
    for index in range(5):
        gpus.add_pod(f"p{index}", claims=["c"])
    gpus.settle()
    assert {gpus.node_of(f"p{index}") for index in range(5)} == {"n1"}
    assert len(gpus.claim("c")["status"]["reservedFor"]) == 5
    assert len([w for w in gpus.log if w.kind is kinds.RESOURCE_CLAIMS and w.subresource == "status"]) == 1


def test_a_claim_that_is_allocated_pins_its_node(gpus: Sim) -> None:
    gpus.add_claim("c")
    gpus.add_pod("first", claims=["c"])
    gpus.settle()
    gpus.add_pod("second", claims=["c"], requests={"cpu": "3"})
    gpus.settle()
    assert gpus.node_of("second") == gpus.node_of("first")


def test_the_257th_consumer_waits_for_room(gpus: Sim) -> None:
    gpus.add_claim("c")
    gpus.add_pod("first", claims=["c"])
    gpus.settle()
    claim = gpus.claim("c")
    claim["status"]["reservedFor"] = [{"resource": "pods", "name": f"x{i}", "uid": f"x{i}"} for i in range(256)]
    gpus.api.put(kinds.RESOURCE_CLAIMS, claim)
    gpus.add_pod("p", claims=["c"])
    gpus.settle()
    assert gpus.node_of("p") == ""
    assert "256" in gpus.condition("p")["message"]
    claim = gpus.claim("c")
    claim["status"]["reservedFor"].pop()
    gpus.api.put(kinds.RESOURCE_CLAIMS, claim)
    gpus.settle()
    assert gpus.node_of("p") == "n1"


def test_a_generated_claim_is_waited_for(gpus: Sim) -> None:
    pod = gpus.add_pod("p", resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "t"}])
    gpus.settle()
    assert gpus.log == []
    gpus.settle(6)
    assert gpus.condition("p")["reason"] == "Unschedulable"
    assert "template t" in gpus.condition("p")["message"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": pod["metadata"]["uid"], "controller": True}
    gpus.add_claim("p-gpu", metadata={"ownerReferences": [owner]})
    pod = gpus.pod("p")
    pod["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": "p-gpu"}]
    gpus.api.put(kinds.PODS, pod)
    gpus.settle()
    assert gpus.node_of("p") == "n1"


def test_a_template_that_needs_no_claim_is_skipped(gpus: Sim) -> None:
    entry = {"name": "gpu", "resourceClaimTemplateName": "t"}
    gpus.add_pod("p", resourceClaims=[entry], status={"resourceClaimStatuses": [{"name": "gpu"}]})
    gpus.settle()
    assert gpus.node_of("p") == "n1"


def test_a_claim_of_another_pod_is_not_taken(gpus: Sim) -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "someone-else", "controller": True}
    gpus.add_claim("p-gpu", metadata={"ownerReferences": [owner]})
    statuses = [{"name": "gpu", "resourceClaimName": "p-gpu"}]
    entry = {"name": "gpu", "resourceClaimTemplateName": "t"}
    gpus.add_pod("p", resourceClaims=[entry], status={"resourceClaimStatuses": statuses})
    gpus.settle()
    assert gpus.node_of("p") == ""
    assert "p-gpu" in gpus.condition("p")["message"]


def test_a_missing_claim_has_a_condition_and_an_event_with_its_name(gpus: Sim) -> None:
    gpus.add_pod("p", claims=["nope"])
    gpus.settle()
    assert "default/nope" in gpus.condition("p")["message"]
    assert "default/nope" in gpus.events("FailedScheduling")[0]["note"]
    gpus.add_claim("nope")
    gpus.settle()
    assert gpus.node_of("p") == "n1"


def test_a_claim_that_is_being_deleted_blocks(gpus: Sim) -> None:
    gpus.add_claim("c", metadata={"deletionTimestamp": "2027-01-01T00:00:00Z", "finalizers": ["x"]})
    gpus.add_pod("p", claims=["c"])
    gpus.settle()
    assert gpus.node_of("p") == ""


def test_a_missing_class_is_waited_for(sim: Sim) -> None:
    sim.add_node("n1")
    sim.add_slice("n1")
    sim.add_claim("c")
    sim.add_pod("p", claims=["c"])
    sim.settle()
    assert "gpu" in sim.condition("p")["message"]
    sim.add_class("gpu")
    sim.settle()
    assert sim.node_of("p") == "n1"


def test_devices_that_appear_later_wake_the_pod(sim: Sim) -> None:
    sim.add_class()
    sim.add_node("n1")
    sim.add_claim("c")
    sim.add_pod("p", claims=["c"])
    sim.settle()
    assert sim.node_of("p") == ""
    sim.add_slice("n1")
    sim.settle()
    assert sim.node_of("p") == "n1"


def allocation(node: str, device: str) -> dict[str, object]:
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]
    results = [{"request": "req", "driver": "gpu.example.com", "pool": node, "device": device}]
    return {"devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": terms}}


def test_an_unused_claim_on_the_wrong_node_is_deallocated(gpus: Sim) -> None:
    gpus.add_claim("c", status={"allocation": allocation("n1", "gpu-0"), "devices": []})
    gpus.add_pod("p", claims=["c"], nodeSelector={"kubernetes.io/hostname": "n2"})
    gpus.settle()
    assert gpus.node_of("p") == "n2"
    assert gpus.devices_of("c") == ["n2/gpu-0"]


def test_a_claim_that_another_pod_uses_is_not_deallocated(gpus: Sim) -> None:
    reserved = [{"resource": "pods", "name": "other", "uid": "other"}]
    gpus.add_claim("c", status={"allocation": allocation("n1", "gpu-0"), "reservedFor": reserved})
    gpus.add_pod("p", claims=["c"], nodeSelector={"kubernetes.io/hostname": "n2"})
    gpus.settle()
    assert gpus.node_of("p") == ""
    assert gpus.devices_of("c") == ["n1/gpu-0"]


def test_a_conflict_is_tried_again_with_what_is_there_now(gpus: Sim) -> None:
    gpus.add_claim("c")
    gpus.add_pod("p", claims=["c"])
    refused: list[Write] = []

    def fault(write: Write) -> Conflict | None:
        if write.kind is kinds.RESOURCE_CLAIMS and write.subresource == "status" and not refused:
            refused.append(write)
            claim = gpus.claim("c")
            claim["metadata"]["labels"] = {"touched": "yes"}
            gpus.api.put(kinds.RESOURCE_CLAIMS, claim)
            return Conflict(409, "Conflict", "")
        return None

    gpus.fault = fault
    gpus.settle()
    assert refused
    assert gpus.node_of("p") == "n1"
    assert gpus.devices_of("c") == ["n1/gpu-0"]


def test_pods_that_share_a_claim_follow_it_where_it_goes_at_last(gpus: Sim) -> None:
    gpus.add_claim("c")
    first = gpus.add_pod("a", claims=["c"])
    gpus.add_pod("b", claims=["c"])
    refused: list[str] = []

    def fault(write: Write) -> Refused | None:
        """The first time it was to be n1, where others took everything meanwhile."""
        if write.kind is kinds.RESOURCE_CLAIMS and not refused:
            refused.append(gpus.scheduler.nodes.node_of(first["metadata"]["uid"]))
            for number in range(2):
                gpus.add_claim(f"other-{number}", status={"allocation": allocation("n1", f"gpu-{number}")})
            return Refused(403, "Forbidden", "not now")
        return None

    gpus.fault = fault
    gpus.settle(30)
    assert refused == ["n1"]
    assert [gpus.node_of("a"), gpus.node_of("b")] == ["n2", "n2"]
    assert not any(write.subresource == "binding" and write.body["target"]["name"] != "n2" for write in gpus.log)


def test_an_allocation_by_another_scheduler_leads_to_a_new_decision(gpus: Sim) -> None:
    gpus.add_claim("c")
    gpus.add_pod("p", claims=["c"])
    done: list[Write] = []

    def fault(write: Write) -> Conflict | None:
        if write.kind is kinds.RESOURCE_CLAIMS and write.subresource == "status" and not done:
            done.append(write)
            claim = gpus.claim("c")
            claim["status"] = {"allocation": allocation("n2", "gpu-1")}
            gpus.api.put(kinds.RESOURCE_CLAIMS, claim)
            return Conflict(409, "Conflict", "")
        return None

    gpus.fault = fault
    gpus.settle()
    assert gpus.node_of("p") == "n2"
    assert gpus.devices_of("c") == ["n2/gpu-1"]
    # What was decided first is free again.
    for index in range(3):
        gpus.add_claim(f"d{index}")
        gpus.add_pod(f"q{index}", claims=[f"d{index}"])
    gpus.settle()
    assert all(gpus.node_of(f"q{index}") for index in range(3))


def test_a_claim_deleted_before_its_write_frees_everything(gpus: Sim) -> None:
    gpus.add_claim("c")
    gpus.add_pod("p", claims=["c"])
    writes = gpus.scheduler.act(gpus.now)
    assert len(writes) == 1
    gpus.remove(kinds.RESOURCE_CLAIMS, "default/c")
    gpus.settle()
    from dray.cluster.port import NotFound, Outcome

    gpus.scheduler.observe(Outcome(writes[0], None, NotFound(404, "NotFound", "c")), gpus.now)
    gpus.settle()
    assert "default/c" in gpus.condition("p")["message"]
    for index in range(4):
        gpus.add_claim(f"d{index}")
        gpus.add_pod(f"q{index}", claims=[f"d{index}"])
    gpus.settle()
    assert all(gpus.node_of(f"q{index}") for index in range(4))


def test_a_failed_bind_gives_the_reservation_back_and_keeps_the_allocation(gpus: Sim) -> None:
    from dray.cluster.port import Forbidden

    gpus.add_claim("c")
    gpus.add_pod("p", claims=["c"])
    gpus.fault = lambda write: Forbidden(403, "Forbidden", "no") if write.subresource == "binding" else None
    gpus.settle()
    assert gpus.claim("c")["status"].get("reservedFor", []) == []
    assert gpus.devices_of("c") == ["n1/gpu-0"]
    gpus.fault = None
    gpus.settle(5)
    assert gpus.node_of("p") == "n1"


def test_an_answer_that_never_came_is_asked_for_again(gpus: Sim) -> None:
    gpus.add_claim("c")
    gpus.add_pod("p", claims=["c"])
    lost = {"count": 0}

    def fault(write: Write) -> Unreachable | None:
        if write.kind is kinds.EVENTS or lost["count"] >= 6:
            return None
        lost["count"] += 1
        if lost["count"] % 2:
            gpus.api.write(write)
        return Unreachable("gone")

    gpus.fault = fault
    gpus.settle(30)
    assert gpus.node_of("p") == "n1"
    assert gpus.devices_of("c") == ["n1/gpu-0"]


def test_a_restart_at_every_write_boundary_converges(gpus: Sim) -> None:
    for name in ("a", "b"):
        gpus.add_claim(name)
        gpus.add_pod(name, claims=[name])
    gpus.add_pod("plain")
    for _ in range(40):
        writes = gpus.scheduler.act(gpus.now)
        if not writes:
            break
        gpus.api.write(writes[0])
        gpus.start()
    gpus.settle()
    assert gpus.node_of("a")
    assert gpus.node_of("b")
    assert gpus.node_of("plain")
    assert gpus.devices_of("a") != gpus.devices_of("b")
    for name in ("a", "b"):
        assert len(gpus.claim(name)["status"]["reservedFor"]) == 1


def test_a_selector_that_fails_on_one_node_keeps_the_pod_from_all(sim: Sim) -> None:
    sim.add_class()
    for name in ("n1", "n2"):
        sim.add_node(name)
    sim.add_slice("n1", 1, attributes={"model": {"string": "a"}})
    sim.add_slice("n2", 1)
    selector = {"cel": {"expression": "device.attributes['gpu.example.com'].model == 'a'"}}
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1, "selectors": [selector]}
    sim.add_claim("c", spec={"devices": {"requests": [{"name": "req", "exactly": exactly}]}})
    sim.add_pod("p", claims=["c"])
    sim.settle()
    assert sim.node_of("p") == ""
    assert "selector" in sim.condition("p")["message"]
    # Whoever publishes the device mends it, and the pod is woken.
    sim.add_slice("n2", 1, attributes={"model": {"string": "b"}})
    sim.settle()
    assert sim.node_of("p") == "n1"


def test_the_first_alternative_of_a_list_is_preferred_across_nodes(sim: Sim) -> None:
    sim.add_class("big", driver="big.example.com")
    sim.add_class("small", driver="small.example.com")
    sim.add_node("n1", cpu="64", memory="256Gi")
    sim.add_node("n2", cpu="2", memory="4Gi")
    sim.add_slice("n1", 1, driver="small.example.com")
    sim.add_slice("n2", 1, driver="big.example.com")
    alternatives = [
        {"name": name, "deviceClassName": name, "allocationMode": "ExactCount", "count": 1} for name in ("big", "small")
    ]
    sim.add_claim("c", spec={"devices": {"requests": [{"name": "req", "firstAvailable": alternatives}]}})
    sim.add_pod("p", claims=["c"])
    sim.settle()
    assert sim.node_of("p") == "n2"
    assert sim.claim("c")["status"]["allocation"]["devices"]["results"][0]["request"] == "req/big"


@pytest.mark.parametrize(("also", "told"), [((), " (needs 3 of class small, none matches)"), (("n2",), "")])
def test_a_refused_list_tells_every_alternative(sim: Sim, also: tuple[str, ...], told: str) -> None:
    sim.add_class("big", driver="big.example.com")
    sim.add_class("small", driver="small.example.com")
    for name in ("n1", "n2"):
        sim.add_node(name)
        sim.add_slice(name, 1, driver="big.example.com")
    for name in also:
        sim.add_slice(name, 1, driver="small.example.com")
    alternatives = [
        {"name": name, "deviceClassName": name, "allocationMode": "ExactCount", "count": count}
        for name, count in (("big", 2), ("small", 3))
    ]
    sim.add_claim("c", spec={"devices": {"requests": [{"name": "req", "firstAvailable": alternatives}]}})
    sim.add_pod("p", claims=["c"])
    sim.settle()
    few = "2 nodes have not enough devices of class big for request req/big (needs 2, at most 1 free of 1)"
    assert f"0/2 nodes are available: {few}, nor for req/small{told}." in sim.condition("p")["message"]


def test_an_allocated_device_that_skips_node_operations_needs_a_node_that_knows_that(gpus: Sim) -> None:
    made = allocation("n1", "gpu-0")
    made["devices"]["results"][0]["skipNodeOperations"] = ["*"]  # type: ignore[index]
    reserved = [{"resource": "pods", "name": "other", "uid": "other"}]
    gpus.add_claim("c", status={"allocation": made, "reservedFor": reserved})
    gpus.add_pod("p", claims=["c"])
    gpus.settle()
    assert gpus.node_of("p") == ""
    node = gpus.api.objects[kinds.NODES]["n1"]
    node["status"]["declaredFeatures"] = ["DRAOptionalNodeOperations"]
    gpus.api.put(kinds.NODES, node)
    gpus.settle()
    assert gpus.node_of("p") == "n1"


def test_a_claim_with_an_untolerated_taint_takes_no_new_pods(gpus: Sim) -> None:
    gpus.add_claim("c")
    gpus.add_pod("first", claims=["c"])
    gpus.settle()
    selector = {"driver": "gpu.example.com", "pool": "n1", "device": "gpu-0"}
    rule = {"metadata": {"name": "r"}, "spec": {"deviceSelector": selector, "taint": {"key": "k", "effect": "NoSchedule"}}}
    gpus.api.put(kinds.DEVICE_TAINT_RULES, rule)
    gpus.add_pod("second", claims=["c"])
    gpus.settle()
    assert gpus.node_of("second") == ""
    assert "taint" in gpus.condition("second")["message"]
    gpus.remove(kinds.DEVICE_TAINT_RULES, "r")
    gpus.settle()
    assert gpus.node_of("second") == "n1"


def test_a_tainted_claim_that_nobody_uses_is_allocated_anew(gpus: Sim) -> None:
    gpus.add_claim("c", status={"allocation": allocation("n1", "gpu-0")})
    selector = {"driver": "gpu.example.com", "pool": "n1", "device": "gpu-0"}
    rule = {"metadata": {"name": "r"}, "spec": {"deviceSelector": selector, "taint": {"key": "k", "effect": "NoExecute"}}}
    gpus.api.put(kinds.DEVICE_TAINT_RULES, rule)
    gpus.add_pod("p", claims=["c"])
    gpus.settle()
    assert gpus.node_of("p") != ""
    assert gpus.devices_of("c") != ["n1/gpu-0"]


def test_a_device_that_is_being_allocated_is_not_offered_to_the_next_pod(sim: Sim) -> None:
    sim.add_class()
    sim.add_node("n1")
    sim.add_slice("n1", 1)
    for name in ("a", "b"):
        sim.add_claim(name)
        sim.add_pod(name, claims=[name])
    writes = sim.scheduler.act(sim.now)
    assert [write.name for write in writes if write.kind is kinds.RESOURCE_CLAIMS] == ["a"]


def test_a_finalizer_that_someone_removed_meanwhile_is_added_again(gpus: Sim) -> None:
    gpus.add_claim("c")
    gpus.add_pod("p", claims=["c"])
    done: list[Write] = []

    def fault(write: Write) -> Conflict | None:
        if write.kind is kinds.RESOURCE_CLAIMS and write.subresource == "status" and not done:
            done.append(write)
            claim = gpus.claim("c")
            claim["metadata"]["finalizers"] = []
            gpus.api.put(kinds.RESOURCE_CLAIMS, claim)
            return Conflict(409, "Conflict", "")
        return None

    gpus.fault = fault
    gpus.settle()
    assert gpus.claim("c")["metadata"]["finalizers"] == [FINALIZER]
    assert gpus.node_of("p") == "n1"


def test_a_conflict_that_no_change_explains_is_tried_again_after_a_while(gpus: Sim) -> None:
    gpus.add_claim("c")
    gpus.add_pod("p", claims=["c"])
    tries: list[float] = []

    def fault(write: Write) -> Conflict | None:
        if write.kind is kinds.RESOURCE_CLAIMS and write.subresource == "status":
            tries.append(gpus.now)
            return Conflict(409, "Conflict", "a webhook says so") if len(tries) < 3 else None
        return None

    gpus.fault = fault
    gpus.settle(30)
    assert [round(at - tries[0]) for at in tries] == [0, 1, 2]
    assert gpus.node_of("p") == "n1"


def test_whoever_only_looks_for_a_place_finds_none_for_a_claim_that_is_broken(sim: Sim) -> None:
    """A pod that is asked to move for another one: that its selector fails on some device ends nothing but that."""
    sim.add_class()
    sim.add_node("n1")
    sim.add_slice("n1", 1)
    selectors = [{"cel": {"expression": 'device.attributes["gpu.example.com"].model == "a"'}}]
    request = {"name": "req", "exactly": {"deviceClassName": "gpu", "selectors": selectors}}
    sim.add_claim("picky", spec={"devices": {"requests": [request]}})
    sim.add_pod("p", claims=["picky"])
    ask = Ask(sim.scheduler, sim.now)
    state = ask.state(sim.world.get(kinds.PODS, "default/p"))
    assert sim.scheduler.cycle.found(state) is None
    with pytest.raises(NotPlaced) as refused:
        sim.scheduler.cycle.best(state)
    assert refused.value.refusal.codes == {"SelectorError"}
