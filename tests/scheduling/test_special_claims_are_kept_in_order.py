"""KEP-5004: one special claim for a pod at most, whatever fails or changes on the way, and none that is of no use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from scheduling_cluster import Sim

from dray.api import kinds
from dray.api.resource import FINALIZER
from dray.cluster.port import ClusterError, Conflict, Forbidden, Outcome, Unreachable, Write

GPU = "example.com/gpu"
FPGA = "example.com/fpga"
IMPLICIT = "deviceclass.resource.kubernetes.io/gpu.example.com"
ANNOTATION = "resource.kubernetes.io/extended-resource-claim"
READY, FAILED = "dra.example.com/is-prepared", "dra.example.com/preparing-failed"
FABRIC = {"bindsToNode": True, "bindingConditions": [READY], "bindingFailureConditions": [FAILED]}


def container(name: str, **resources: int) -> dict[str, Any]:
    """One that asks for resources by limits alone, as people write it."""
    names = {"gpu": GPU, "fpga": FPGA, "implicit": IMPLICIT}
    return {"name": name, "resources": {"limits": {names[key]: str(count) for key, count in resources.items()}}}


def special(sim: Sim) -> list[dict[str, Any]]:
    found = sim.api.objects[kinds.RESOURCE_CLAIMS].values()
    return [claim for claim in found if ANNOTATION in claim["metadata"].get("annotations", {})]


def requests(claim: dict[str, Any]) -> dict[str, tuple[str, int]]:
    found = claim["spec"]["devices"]["requests"]
    return {request["name"]: (request["exactly"]["deviceClassName"], request["exactly"]["count"]) for request in found}


def taken(claim: dict[str, Any]) -> list[str]:
    return sorted(f"{r['pool']}/{r['device']}" for r in claim["status"]["allocation"]["devices"]["results"])


def is_bind(write: Write) -> bool:
    return write.subresource == "binding"


def removes_finalizer(write: Write) -> bool:
    return write.kind is kinds.RESOURCE_CLAIMS and write.verb == "patch" and "finalizers" in write.body.get("metadata", {})


def deletes(write: Write) -> bool:
    return write.kind is kinds.RESOURCE_CLAIMS and write.verb == "delete"


def failing(*which: Callable[[Write], bool], error: ClusterError, times: int = 1) -> Callable[[Write], ClusterError | None]:
    left = dict.fromkeys(which, times)

    def fault(write: Write) -> ClusterError | None:
        for found in which:
            if left[found] and found(write):
                left[found] -= 1
                return error
        return None

    return fault


# ------------------------------------------------------------------------------------------------------ failed attempts


def test_a_failed_bind_takes_the_claim_away_and_the_next_one_is_named(dra: Sim) -> None:
    dra.fault = failing(is_bind, error=Forbidden(403, "Forbidden", "no"), times=99)
    dra.add_pod("p", containers=[container("c", gpu=1)])
    dra.settle()
    assert special(dra) == []
    order = [write.verb for write in dra.log if removes_finalizer(write) or deletes(write)]
    assert order == ["delete", "patch"]
    dra.fault = None
    dra.settle(15)
    (claim,) = special(dra)
    assert dra.pod("p")["status"]["extendedResourceClaimStatus"]["resourceClaimName"] == claim["metadata"]["name"]


@pytest.mark.parametrize("error", [Conflict(409, "Conflict", ""), Unreachable("gone")])
@pytest.mark.parametrize("broken", [removes_finalizer, deletes])
def test_what_fails_in_taking_it_away_is_tried_again(dra: Sim, broken: Callable[[Write], bool], error: ClusterError) -> None:
    first, second = failing(is_bind, error=Forbidden(403, "Forbidden", "no")), failing(broken, error=error, times=2)
    dra.fault = lambda write: first(write) or second(write)
    dra.add_pod("p", containers=[container("c", gpu=1)])
    dra.settle(30)
    assert dra.node_of("p") == "dra"
    (claim,) = special(dra)
    assert dra.pod("p")["status"]["extendedResourceClaimStatus"]["resourceClaimName"] == claim["metadata"]["name"]


def test_a_claim_that_may_not_be_deleted_is_used_again(dra: Sim) -> None:
    no = Forbidden(403, "Forbidden", "no")
    first, second = failing(is_bind, error=no), failing(deletes, error=no, times=99)
    dra.fault = lambda write: first(write) or second(write)
    dra.add_pod("p", containers=[container("c", gpu=1)])
    dra.settle(30)
    assert dra.node_of("p") == "dra"
    (claim,) = special(dra)
    assert claim["metadata"]["finalizers"] == [FINALIZER]


def test_a_claim_that_somebody_deletes_while_its_pod_is_bound_stays_until_that_is_known(dra: Sim) -> None:
    """The bind may have come true: without its finalizer the claim would go, and its device to another pod."""
    bind = failing(is_bind, error=Unreachable("no answer"))
    dra.fault = bind
    dra.add_pod("p", containers=[container("c", gpu=1)])
    dra.settle(0.5)
    (claim,) = special(dra)
    dra.api.delete(kinds.RESOURCE_CLAIMS, f"default/{claim['metadata']['name']}")
    dra.settle(0.4)
    assert [each["metadata"]["finalizers"] for each in special(dra)] == [[FINALIZER]]
    dra.settle(15)
    assert dra.node_of("p") == "dra"
    (left,) = special(dra)
    assert left["metadata"]["uid"] == claim["metadata"]["uid"]
    assert left["status"]["allocation"] == claim["status"]["allocation"]


def test_so_does_one_whose_pod_is_bound_and_the_watch_has_yet_to_tell(dra: Sim) -> None:
    dra.add_pod("p", containers=[container("c", gpu=1)])
    (watch,), late = dra.api.watchers, []
    dra.api.watchers[:] = [lambda kind, *seen: late.append((kind, *seen)) if kind is kinds.PODS else watch(kind, *seen)]
    dra.settle(0.5)
    assert dra.node_of("p") == "dra"
    (claim,) = special(dra)
    dra.api.delete(kinds.RESOURCE_CLAIMS, f"default/{claim['metadata']['name']}")
    dra.settle(0.5)
    for seen in late:
        watch(*seen)
    dra.settle(5)
    assert [(each["metadata"]["uid"], each["metadata"]["finalizers"]) for each in special(dra)] == [
        (claim["metadata"]["uid"], [FINALIZER])
    ]


def test_it_goes_where_the_bind_failed_after_all(dra: Sim) -> None:
    first, second = failing(is_bind, error=Unreachable("")), failing(is_bind, error=Forbidden(403, "Forbidden", "no"))
    dra.fault = lambda write: first(write) or second(write)
    dra.add_pod("p", containers=[container("c", gpu=1)])
    dra.settle(0.5)
    (claim,) = special(dra)
    dra.api.delete(kinds.RESOURCE_CLAIMS, f"default/{claim['metadata']['name']}")
    dra.settle(20)
    assert dra.node_of("p") == "dra"
    (other,) = special(dra)
    assert other["metadata"]["uid"] != claim["metadata"]["uid"]
    assert "deletionTimestamp" not in other["metadata"]


def test_a_finalizer_of_others_stays(dra: Sim) -> None:
    dra.fault = failing(is_bind, error=Forbidden(403, "Forbidden", "no"), times=99)
    dra.add_pod("p", containers=[container("c", gpu=1)])
    while not special(dra):
        dra.step()
    claim = special(dra)[0]
    claim["metadata"]["finalizers"].append("example.com/audit")
    dra.api.put(kinds.RESOURCE_CLAIMS, claim)
    dra.settle()
    assert special(dra)[0]["metadata"]["finalizers"] == ["example.com/audit"]


def test_a_pod_whose_status_names_a_claim_does_not_go_to_a_device_plugin(dra: Sim) -> None:
    """The server keeps the name, and the kubelet would look for a claim that is gone."""
    dra.fault = failing(is_bind, error=Forbidden(403, "Forbidden", "no"))
    dra.add_pod("p", containers=[container("c", gpu=1)])
    dra.settle()
    dra.remove(kinds.NODES, "dra")
    dra.add_node("plugin", resources={GPU: "2"})
    dra.add_pod("fresh", containers=[container("c", gpu=1)])
    dra.settle(15)
    assert (dra.node_of("p"), dra.node_of("fresh")) == ("", "plugin")
    name = dra.pod("p")["status"]["extendedResourceClaimStatus"]["resourceClaimName"]
    assert f"1 node has a device plugin, and the pod's status names a claim ({name})" in dra.condition("p")["message"]
    assert special(dra) == []
    dra.add_node("dra")
    dra.settle(15)
    assert dra.node_of("p") == "dra"


def test_a_create_without_an_answer_that_shows_late_leaves_one_claim(dra: Sim) -> None:
    """The pod is bound with another claim before the first one is seen."""
    late: list[dict[str, Any]] = []

    def fault(write: Write) -> ClusterError | None:
        if write.verb == "create" and write.kind is kinds.RESOURCE_CLAIMS and not late:
            late.append(write.body)
            return Unreachable("no answer")
        return None

    dra.fault = fault
    dra.add_pod("p", containers=[container("c", gpu=1)])
    dra.settle(15)
    assert dra.node_of("p") == "dra"
    dra.api.put(kinds.RESOURCE_CLAIMS, late[0])
    dra.settle(5)
    (claim,) = special(dra)
    assert dra.pod("p")["status"]["extendedResourceClaimStatus"]["resourceClaimName"] == claim["metadata"]["name"]


def test_an_answer_for_an_earlier_attempt_is_not_taken_for_this_one(dra: Sim) -> None:
    dra.add_pod("p", containers=[container("c", gpu=1)])
    (create,) = [write for write in dra.scheduler.act(dra.now) if write.verb == "create"]
    dra.add_node("other")
    dra.add_slice("other", 1)
    dra.remove(kinds.NODES, "dra")
    second = [write for write in dra.scheduler.act(dra.now) if write.kind is kinds.RESOURCE_CLAIMS]
    for write in (create, *second):
        dra.scheduler.observe(Outcome(write, dra.api.write(write), None), dra.now)
    dra.settle(15)
    assert dra.node_of("p") == "other"
    (claim,) = special(dra)
    assert taken(claim) == ["other/gpu-0"]


def test_a_claim_that_shows_before_its_answer_is_the_one_of_the_next_attempt(dra: Sim) -> None:
    dra.add_pod("p", containers=[container("c", gpu=1)])
    (create,) = [write for write in dra.scheduler.act(dra.now) if write.verb == "create"]
    made = dra.api.write(create)
    dra.add_node("other")
    dra.add_slice("other", 1)
    dra.remove(kinds.NODES, "dra")
    second = dra.scheduler.act(dra.now)
    dra.scheduler.observe(Outcome(create, made, None), dra.now)
    dra.carry_out(second)
    dra.settle(15)
    assert dra.node_of("p") == "other"
    (claim,) = special(dra)
    assert claim["metadata"]["name"] == made["metadata"]["name"]


# ----------------------------------------------------------------------------------------------------------- restarts


def test_a_claim_that_lost_its_finalizer_before_a_restart_has_it_again_when_it_is_used(dra: Sim) -> None:
    dra.add_pod("p", containers=[container("c", gpu=1)])
    while not special(dra) or not special(dra)[0]["status"].get("allocation"):
        writes = dra.scheduler.act(dra.now)
        dra.api.write(writes[0])
        dra.start()
    claim = special(dra)[0]
    claim["metadata"]["finalizers"] = []
    dra.api.put(kinds.RESOURCE_CLAIMS, claim)
    dra.start()
    dra.settle(5)
    assert dra.node_of("p") == "dra"
    (claim,) = special(dra)
    assert claim["metadata"]["finalizers"] == [FINALIZER]


def unfinished(sim: Sim) -> None:
    """A scheduler that made and allocated the special claim, and died."""
    sim.add_pod("p", containers=[container("c", gpu=1)])
    while not special(sim) or not special(sim)[0]["status"].get("allocation"):
        sim.api.write(sim.scheduler.act(sim.now)[0])
        sim.start()


def test_a_leftover_of_a_class_that_serves_no_more_is_replaced(dra: Sim) -> None:
    unfinished(dra)
    before = special(dra)[0]["metadata"]["name"]
    dra.remove(kinds.DEVICE_CLASSES, "gpu.example.com")
    dra.add_class("newer", extended=GPU, created="2026-02-01T00:00:00Z")
    dra.start()
    dra.settle(15)
    assert dra.node_of("p") == "dra"
    (claim,) = special(dra)
    assert claim["metadata"]["name"] != before
    assert requests(claim) == {"container-0-request-0": ("newer", 1)}


def test_a_leftover_for_a_resource_that_no_class_serves_is_deleted(dra: Sim) -> None:
    unfinished(dra)
    dra.remove(kinds.DEVICE_CLASSES, "gpu.example.com")
    dra.start()
    dra.settle(15)
    assert special(dra) == []
    assert dra.node_of("p") == ""


def test_a_leftover_on_a_node_that_is_gone_is_replaced(dra: Sim) -> None:
    unfinished(dra)
    dra.remove(kinds.NODES, "dra")
    dra.add_node("other")
    dra.add_slice("other", 1)
    dra.start()
    dra.settle(15)
    assert dra.node_of("p") == "other"
    (claim,) = special(dra)
    assert taken(claim) == ["other/gpu-0"]


def test_a_leftover_that_somebody_deletes_goes_and_the_pod_gets_another(sim: Sim) -> None:
    """It holds the only device, and waits for its finalizer to go."""
    sim.add_class("gpu.example.com", extended=GPU)
    sim.add_node("n1")
    sim.add_slice("n1", 1)
    unfinished(sim)
    before = special(sim)[0]["metadata"]["name"]
    sim.remove(kinds.RESOURCE_CLAIMS, f"default/{before}")
    sim.start()
    sim.settle(15)
    assert sim.node_of("p") == "n1"
    (claim,) = special(sim)
    assert claim["metadata"]["name"] != before


def test_special_claims_of_other_schedulers_are_left_alone(dra: Sim) -> None:
    pod = dra.add_pod("theirs", containers=[container("c", gpu=1)], schedulerName="another", nodeName="dra")
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "theirs", "uid": pod["metadata"]["uid"], "controller": True}
    dra.add_claim("theirs", metadata={"annotations": {ANNOTATION: "true"}, "ownerReferences": [owner], "finalizers": [FINALIZER]})
    dra.settle(5)
    assert [claim["metadata"]["name"] for claim in special(dra)] == ["theirs"]


# ---------------------------------------------------------------------------------------------------- binding conditions


@pytest.fixture
def fabric(sim: Sim) -> Sim:
    sim.add_class("gpu.example.com", extended=GPU)
    sim.add_node("n1")
    sim.add_slice("n1", 2, **FABRIC)
    sim.add_pod("p", containers=[container("c", gpu=1)])
    sim.settle()
    return sim


def say(sim: Sim, condition: str) -> None:
    (claim,) = special(sim)
    result = claim["status"]["allocation"]["devices"]["results"][0]
    said = {"type": condition, "status": "True", "reason": "Said", "message": "", "lastTransitionTime": "2027-01-15T08:00:00Z"}
    claim["status"]["devices"] = [{**{key: result[key] for key in ("driver", "pool", "device")}, "conditions": [said]}]
    sim.api.put(kinds.RESOURCE_CLAIMS, claim)


def test_a_special_claim_is_waited_for_like_any_other(fabric: Sim) -> None:
    assert fabric.node_of("p") == ""
    assert fabric.pod("p")["status"]["nominatedNodeName"] == "n1"
    fabric.start()
    fabric.settle(30)
    say(fabric, READY)
    fabric.settle()
    assert fabric.node_of("p") == "n1"


def test_a_special_claim_that_fails_is_replaced_by_one_with_another_device(fabric: Sim) -> None:
    assert taken(special(fabric)[0]) == ["n1/gpu-0"]
    say(fabric, FAILED)
    fabric.settle(5)
    (claim,) = special(fabric)
    assert taken(claim) == ["n1/gpu-1"]
    say(fabric, READY)
    fabric.settle()
    assert fabric.node_of("p") == "n1"
    assert fabric.pod("p")["status"]["extendedResourceClaimStatus"]["resourceClaimName"] == claim["metadata"]["name"]


def test_a_pod_whose_device_failed_may_go_to_a_device_plugin(fabric: Sim) -> None:
    """The claim is named in the pod's status last: no server lets go of the name, and a kubelet looks for what it names."""
    assert "extendedResourceClaimStatus" not in fabric.pod("p")["status"]
    fabric.add_node("plugin", resources={GPU: "2"})
    fabric.remove(kinds.RESOURCE_SLICES, "n1-gpu.example.com")
    say(fabric, FAILED)
    fabric.settle(5)
    assert (fabric.node_of("p"), special(fabric)) == ("plugin", [])
    assert "extendedResourceClaimStatus" not in fabric.pod("p")["status"]


def test_nor_is_one_told_that_waits_for_a_claim_of_others_first(sim: Sim) -> None:
    sim.add_class("fabric")
    sim.add_class("plain", driver="plain.example.com", extended="example.com/plain")
    sim.add_node("n1")
    sim.add_slice("n1", 2, **FABRIC)
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "plain.example.com", "nodeName": "n1", "pool": pool, "devices": [{"name": "a"}]}
    sim.api.put(kinds.RESOURCE_SLICES, {"metadata": {"name": "plain"}, "spec": spec})
    exactly = {"deviceClassName": "fabric", "allocationMode": "ExactCount", "count": 1}
    sim.add_claim("shared", spec={"devices": {"requests": [{"name": "req", "exactly": exactly}]}})
    sim.add_pod("first", claims=["shared"])
    sim.settle()
    asks = {"requests": {"example.com/plain": "1"}, "limits": {"example.com/plain": "1"}}
    sim.add_pod("p", claims=["shared"], containers=[{"name": "c", "resources": asks}])
    sim.settle()
    assert sorted(sim.preparing()) == ["default/first", "default/p"]
    assert "extendedResourceClaimStatus" not in sim.pod("p")["status"]


@pytest.mark.parametrize("refused", [Conflict(409, "Conflict", "changed"), Unreachable("no answer")])
def test_a_pod_whose_devices_are_ready_is_told_its_claim_however_often_that_fails(fabric: Sim, refused: ClusterError) -> None:
    def names(write: Write) -> bool:
        status = (write.body or {}).get("status", {}) if isinstance(write.body, dict) else {}
        return write.kind is kinds.PODS and "extendedResourceClaimStatus" in status

    fabric.fault = failing(names, error=refused, times=3)
    (claim,) = special(fabric)
    say(fabric, READY)
    fabric.settle(60)
    assert fabric.node_of("p") == "n1"
    assert fabric.pod("p")["status"]["extendedResourceClaimStatus"]["resourceClaimName"] == claim["metadata"]["name"]


def test_a_pod_deleted_while_it_waits_leaves_no_special_claim(fabric: Sim) -> None:
    fabric.remove(kinds.PODS, "default/p")
    fabric.settle(2)
    assert special(fabric) == []


# ------------------------------------------------------------------------------------------------ what a pod asks for


def test_several_resources_are_requests_of_one_claim_and_one_device_is_given_once(sim: Sim) -> None:
    sim.add_class("gpu.example.com", extended=GPU)
    sim.add_class("fpga.example.com", extended=FPGA, driver="fpga.example.com")
    sim.add_node("n1")
    sim.add_slice("n1", 3)
    sim.add_slice("n1", 1, driver="fpga.example.com")
    sim.add_pod("p", containers=[container("c", gpu=2, fpga=1, implicit=1)])
    sim.settle()
    assert sim.node_of("p") == "n1"
    (claim,) = special(sim)
    assert requests(claim) == {
        "container-0-request-0": ("gpu.example.com", 1),
        "container-0-request-1": ("fpga.example.com", 1),
        "container-0-request-2": ("gpu.example.com", 2),
    }
    results = claim["status"]["allocation"]["devices"]["results"]
    assert len({(r["driver"], r["pool"], r["device"]) for r in results}) == 4
    mappings = sim.pod("p")["status"]["extendedResourceClaimStatus"]["requestMappings"]
    assert {(m["containerName"], m["resourceName"], m["requestName"]) for m in mappings} == {
        ("c", IMPLICIT, "container-0-request-0"),
        ("c", FPGA, "container-0-request-1"),
        ("c", GPU, "container-0-request-2"),
    }


def test_a_resource_of_a_plugin_and_one_of_devices_are_served_side_by_side(sim: Sim) -> None:
    sim.add_class("gpu.example.com", extended=GPU)
    sim.add_class("fpga.example.com", extended=FPGA, driver="fpga.example.com")
    sim.add_node("n1", resources={GPU: "2"})
    sim.add_slice("n1", 1, driver="fpga.example.com")
    sim.add_pod("p", containers=[container("c", gpu=2, fpga=1)])
    sim.settle()
    assert sim.node_of("p") == "n1"
    (claim,) = special(sim)
    assert requests(claim) == {"container-0-request-0": ("fpga.example.com", 1)}
    mappings = sim.pod("p")["status"]["extendedResourceClaimStatus"]["requestMappings"]
    assert [mapping["resourceName"] for mapping in mappings] == [FPGA]


def test_init_containers_and_sidecars_take_as_many_devices_as_run_at_once(dra: Sim) -> None:
    sidecar = {**container("sidecar", gpu=1), "restartPolicy": "Always"}
    init = [container("before", gpu=2), sidecar, container("after", gpu=4)]
    dra.add_pod("p", initContainers=init, containers=[container("main", gpu=3)])
    dra.settle()
    assert dra.node_of("p") == "dra"
    (claim,) = special(dra)
    assert len(taken(claim)) == 5
    mapped = dra.pod("p")["status"]["extendedResourceClaimStatus"]["requestMappings"]
    of = {
        name: {m["requestName"] for m in mapped if m["containerName"] == name} for name in ("before", "sidecar", "after", "main")
    }
    assert of["sidecar"] == {"container-1-request-0"}
    assert of["main"] == {"container-3-request-0"}
    assert of["before"] <= of["sidecar"] | of["main"]
    assert of["after"] == {"container-3-request-0", "container-2-request-0"}


def test_ephemeral_containers_ask_for_nothing(dra: Sim) -> None:
    dra.add_pod("p", containers=[container("c")], ephemeralContainers=[container("debug", gpu=1)])
    dra.settle()
    assert dra.node_of("p") == "dra"
    assert special(dra) == []


def test_more_containers_than_a_claim_can_have_requests_is_a_reason(sim: Sim) -> None:
    sim.add_class("gpu.example.com", extended=GPU)
    sim.add_node("n1")
    sim.add_slice("n1", 40)
    sim.add_pod("p", containers=[container(f"c{index}", gpu=1) for index in range(33)])
    sim.settle(30)
    assert sim.node_of("p") == ""
    assert special(sim) == []
    assert "32" in sim.condition("p")["message"]


def test_a_plugin_that_starts_to_offer_the_resource_wakes_the_pod(sim: Sim) -> None:
    sim.add_class("gpu.example.com", extended=GPU)
    sim.add_node("n1")
    sim.add_pod("p", containers=[container("c", gpu=1)])
    sim.settle()
    assert sim.node_of("p") == ""
    sim.add_node("n1", resources={GPU: "1"})
    sim.settle(15)
    assert sim.node_of("p") == "n1"
    assert special(sim) == []


def test_the_newest_class_serves_a_pod_that_was_waiting(sim: Sim) -> None:
    sim.add_class("old", extended=GPU, driver="none.example.com")
    sim.add_node("n1")
    sim.add_slice("n1", 1)
    sim.add_pod("p", containers=[container("c", gpu=1)])
    sim.settle()
    assert sim.node_of("p") == ""
    sim.add_class("new", extended=GPU, created="2026-02-01T00:00:00Z")
    sim.settle(15)
    assert sim.node_of("p") == "n1"
    assert requests(special(sim)[0]) == {"container-0-request-0": ("new", 1)}


def test_a_device_that_a_claim_has_is_not_given_as_an_extended_resource_and_the_other_way_round(dra: Sim) -> None:
    for index in range(4):
        dra.add_claim(f"c{index}", cls="gpu.example.com")
        dra.add_pod(f"claims{index}", claims=[f"c{index}"])
        dra.add_pod(f"asks{index}", containers=[container("c", gpu=1)])
    dra.settle()
    dra.add_pod("one-too-many", containers=[container("c", gpu=1)])
    dra.settle()
    held = [device for claim in dra.api.objects[kinds.RESOURCE_CLAIMS].values() for device in taken(claim)]
    assert sorted(held) == [f"dra/gpu-{index}" for index in range(8)]
    assert dra.node_of("one-too-many") == ""
