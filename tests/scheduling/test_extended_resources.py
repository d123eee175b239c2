"""KEP-5004: extended resources that devices provide, and the one claim that is made for a pod."""

from __future__ import annotations

from typing import Any

import pytest
from scheduling_cluster import Sim

from dray.api import kinds
from dray.api.class_names import ClassNames
from dray.api.core import PodSpec
from dray.api.gates import Gates
from dray.api.meta import decode
from dray.api.resource import FINALIZER, DeviceClass
from dray.cluster.port import Forbidden, Write
from dray.scheduling.configuration import parse
from dray.scheduling.shape.extended import requests_for

GPU = "example.com/gpu"
ANNOTATION = "resource.kubernetes.io/extended-resource-claim"


def container(name: str, count: int, resource: str = GPU, **extra: Any) -> dict[str, Any]:
    return {"name": name, "resources": {"requests": {resource: str(count)}, "limits": {resource: str(count)}}, **extra}


def special(sim: Sim) -> list[dict[str, Any]]:
    found = sim.api.objects[kinds.RESOURCE_CLAIMS].values()
    return [claim for claim in found if ANNOTATION in claim["metadata"].get("annotations", {})]


def test_the_special_claim_is_made_allocated_and_told_to_the_kubelet(dra: Sim) -> None:
    pod = dra.add_pod("demo", containers=[container("demo", 1)])
    dra.settle()
    assert dra.node_of("demo") == "dra"
    (claim,) = special(dra)
    assert claim["metadata"]["annotations"] == {ANNOTATION: "true"}
    owner = claim["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Pod", pod["metadata"]["uid"], True)
    assert claim["metadata"]["name"].startswith("demo-extended-resources-")
    request = claim["spec"]["devices"]["requests"][0]
    assert request["name"] == "container-0-request-0"
    assert request["exactly"] == {"deviceClassName": "gpu.example.com", "allocationMode": "ExactCount", "count": 1}
    assert claim["status"]["reservedFor"][0]["uid"] == pod["metadata"]["uid"]
    assert dra.pod("demo")["status"]["extendedResourceClaimStatus"] == {
        "resourceClaimName": claim["metadata"]["name"],
        "requestMappings": [{"containerName": "demo", "resourceName": GPU, "requestName": "container-0-request-0"}],
    }
    counted = dra.meter.counters["dynamic_resource_allocation_resourceclaim_creates_total", ("success", "false", "", "Pod")]
    assert counted == 1
    writes = [(w.verb, w.kind.plural, w.subresource) for w in dra.log if w.kind is not kinds.EVENTS]
    assert len(writes) == 4


def test_a_device_plugin_node_makes_no_claim(sim: Sim) -> None:
    sim.add_class("gpu.example.com", extended=GPU)
    sim.add_node("plugin", resources={GPU: "2"})
    sim.add_pod("p", containers=[container("c", 2)])
    sim.add_pod("q", containers=[container("c", 1)])
    sim.settle()
    assert (sim.node_of("p"), sim.node_of("q")) == ("plugin", "")
    assert special(sim) == []


def test_plugin_nodes_and_device_nodes_serve_one_deployment(dra: Sim) -> None:
    dra.add_node("plugin", resources={GPU: "2"})
    for index in range(10):
        dra.add_pod(f"p{index}", containers=[container("c", 1)])
    dra.settle()
    placed = [dra.node_of(f"p{index}") for index in range(10)]
    assert placed.count("plugin") == 2
    assert placed.count("dra") == 8
    assert len(special(dra)) == 8


def test_a_plugin_that_reports_zero_leaves_it_to_devices(sim: Sim) -> None:
    sim.add_class("gpu.example.com", extended=GPU)
    sim.add_node("n1", resources={GPU: "0"})
    sim.add_slice("n1", 1)
    sim.add_pod("p", containers=[container("c", 1)])
    sim.settle()
    assert sim.node_of("p") == "n1"
    assert len(special(sim)) == 1


def test_a_resource_that_nobody_offers_is_refused_until_a_class_does(sim: Sim) -> None:
    sim.add_node("n1")
    sim.add_slice("n1", 1)
    sim.add_pod("p", containers=[container("c", 1)])
    sim.settle()
    assert sim.node_of("p") == ""
    sim.add_class("gpu.example.com", extended=GPU)
    sim.settle()
    assert sim.node_of("p") == "n1"


def test_where_the_device_plugin_is_gone_and_the_node_says_0_it_is_refused_until_a_class_offers_it(sim: Sim) -> None:
    sim.add_node("n1", resources={GPU: "0"})
    sim.add_slice("n1", 1)
    sim.add_pod("p", containers=[container("c", 1)])
    sim.settle()
    assert sim.condition("p")["message"].startswith(f"0/1 nodes are available: 1 node does not offer {GPU}.")
    sim.add_class("gpu.example.com", extended=GPU)
    sim.settle()
    assert sim.node_of("p") == "n1"


def test_the_implicit_name_needs_no_field(sim: Sim) -> None:
    sim.add_class("gpu.example.com")
    sim.add_node("n1")
    sim.add_slice("n1", 1)
    sim.add_pod("p", containers=[container("c", 1, "deviceclass.resource.kubernetes.io/gpu.example.com")])
    sim.settle()
    assert sim.node_of("p") == "n1"


def test_a_pod_with_a_claim_of_its_own_and_a_plugin_resource_is_bound(sim: Sim) -> None:
    sim.add_class("gpu", extended=GPU)
    sim.add_node("n1", resources={GPU: "1"})
    sim.add_slice("n1", 1)
    sim.add_claim("c")
    sim.add_pod("p", claims=["c"], containers=[container("m", 1)])
    sim.settle()
    assert sim.node_of("p") == "n1"
    assert special(sim) == []


def test_a_pod_with_a_claim_of_its_own_and_a_device_resource_gets_both(dra: Sim) -> None:
    dra.add_claim("c", cls="gpu.example.com")
    dra.add_pod("p", claims=["c"], containers=[container("m", 2)])
    dra.settle()
    assert dra.node_of("p") == "dra"
    (claim,) = special(dra)
    assert len(claim["status"]["allocation"]["devices"]["results"]) == 2
    assert dra.devices_of("c") == ["dra/gpu-0"]


def test_a_failed_creation_leaves_nothing_behind(dra: Sim) -> None:
    dra.fault = lambda write: Forbidden(403, "Forbidden", "quota") if _creates_claim(write) else None
    dra.add_pod("p", containers=[container("c", 8)])
    dra.settle()
    assert special(dra) == []
    labels = ("failure", "false", "", "Pod")
    assert dra.meter.counters["dynamic_resource_allocation_resourceclaim_creates_total", labels] == 1
    dra.fault = None
    dra.settle(5)
    assert dra.node_of("p") == "dra"


def test_a_creation_that_is_refused_again_and_again_is_told_in_the_same_words(dra: Sim) -> None:
    made = iter(range(10_000, 99_999))

    def refused(write: Write) -> Forbidden | None:
        name = f"p-extended-resources-{next(made)}"
        return Forbidden(403, "Forbidden", f'resourceclaims "{name}" is forbidden: no') if _creates_claim(write) else None

    dra.fault = refused
    dra.add_pod("p", containers=[container("c", 1)])
    told = set()
    for _ in range(5):
        dra.settle(30)
        told.add(dra.condition("p")["message"])
    error = '403 Forbidden: resourceclaims "p-extended-resources-" is forbidden: no.'
    assert told == {f"pod default/p is held up because the API server refused a write: {error}"}


def _creates_claim(write: Write) -> bool:
    return write.verb == "create" and write.kind is kinds.RESOURCE_CLAIMS


@pytest.mark.parametrize("broken", ["claim status", "pod status", "binding"])
def test_a_failed_write_after_creation_deletes_the_claim(dra: Sim, broken: str) -> None:
    def fault(write: Write) -> Forbidden | None:
        what = {
            "claim status": write.kind is kinds.RESOURCE_CLAIMS and write.subresource == "status",
            "pod status": write.kind is kinds.PODS and "extendedResourceClaimStatus" in write.body.get("status", {}),
            "binding": write.subresource == "binding",
        }
        return Forbidden(403, "Forbidden", "no") if write.body and what[broken] else None

    dra.fault = fault
    dra.add_pod("p", containers=[container("c", 8)])
    dra.settle()
    assert special(dra) == []
    assert dra.node_of("p") == ""
    dra.fault = None
    dra.settle(15)
    assert dra.node_of("p") == "dra"
    assert len(special(dra)) == 1


def test_a_restart_at_every_write_boundary_uses_the_claim_again(dra: Sim) -> None:
    dra.add_pod("p", containers=[container("c", 2)])
    for _ in range(10):
        writes = dra.scheduler.act(dra.now)
        if not writes:
            break
        dra.api.write(writes[0])
        dra.start()
    dra.settle()
    assert dra.node_of("p") == "dra"
    (claim,) = special(dra)
    assert dra.pod("p")["status"]["extendedResourceClaimStatus"]["resourceClaimName"] == claim["metadata"]["name"]


def test_a_leftover_that_asks_for_something_else_is_deleted_and_the_pod_goes_on(dra: Sim) -> None:
    pod = dra.add_pod("p", containers=[container("c", 2)], schedulingGates=[{"name": "wait"}])
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": pod["metadata"]["uid"], "controller": True}
    metadata = {"annotations": {ANNOTATION: "true"}, "ownerReferences": [owner], "finalizers": [FINALIZER]}
    dra.add_claim("old", count=5, metadata=metadata)
    pod = dra.pod("p")
    del pod["spec"]["schedulingGates"]
    dra.api.put(kinds.PODS, pod)
    dra.settle(15)
    assert dra.node_of("p") == "dra"
    (claim,) = special(dra)
    assert claim["metadata"]["name"] != "old"


def test_more_devices_than_a_claim_can_hold_is_a_reason(dra: Sim) -> None:
    dra.add_pod("p", containers=[container("c", 128)])
    dra.settle()
    assert dra.node_of("p") == ""
    told = dra.condition("p")["message"]
    assert "the claim for its extended resources asks for more devices than one claim can hold" in told
    assert "for example.com/gpu of container c (needs 128, at most 32)" in told


def test_what_is_missing_is_told_of_the_resource_and_the_container_that_ask_for_it(dra: Sim) -> None:
    dra.add_pod("p", containers=[container("one", 1), container("many", 20)], initContainers=[container("before", 30)])
    dra.settle()
    told = dra.condition("p")["message"]
    assert "for example.com/gpu of container many (needs 20" in told
    assert "container-2-request-0" not in told
    assert "<extended-resources>" not in told


def test_of_resources_that_do_not_go_together_no_claim_is_named(sim: Sim) -> None:
    sim.add_node("n1")
    sim.add_class("half", extended="example.com/half")
    sim.add_class("whole", extended="example.com/whole")
    counters = {"name": "card", "counters": {"slots": {"value": "2"}}}
    parts = {"half": 1, "whole": 2}
    head = {"driver": "gpu.example.com", "nodeName": "n1", "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 2}}
    drawn = {name: [{"counterSet": "card", "counters": {"slots": {"value": str(slots)}}}] for name, slots in parts.items()}
    devices = [{"name": name, "consumesCounters": consumes} for name, consumes in drawn.items()]
    sim.api.put(kinds.RESOURCE_SLICES, {"metadata": {"name": "counters"}, "spec": {**head, "sharedCounters": [counters]}})
    sim.api.put(kinds.RESOURCE_SLICES, {"metadata": {"name": "devices"}, "spec": {**head, "devices": devices}})
    amounts = {"example.com/half": "1", "example.com/whole": "1"}
    sim.add_pod("p", containers=[{"name": "c", "resources": {"requests": amounts, "limits": amounts}}])
    sim.settle()
    told = sim.condition("p")["message"]
    assert "no combination that satisfies all requests and constraints for the pod's extended resources" in told


def test_a_request_of_a_claim_of_the_pod_keeps_its_name(dra: Sim) -> None:
    exactly = {"deviceClassName": "gpu.example.com", "allocationMode": "ExactCount", "count": 20}
    dra.add_claim("own", spec={"devices": {"requests": [{"name": "req", "exactly": exactly}]}})
    dra.add_pod("p", claims=["own"], containers=[container("c", 1)])
    dra.settle()
    assert "for request req (needs 20" in dra.condition("p")["message"]


def test_more_devices_than_a_claim_can_hold_come_from_a_device_plugin(dra: Sim) -> None:
    dra.add_node("plugin", resources={GPU: "200"})
    dra.add_pod("p", containers=[container("c", 128)])
    dra.settle()
    assert dra.node_of("p") == "plugin"
    assert special(dra) == []


def test_who_asks_for_too_many_devices_waits_for_a_device_plugin(dra: Sim) -> None:
    dra.add_pod("p", containers=[container("c", 128)])
    dra.settle()
    assert dra.node_of("p") == ""
    dra.add_node("plugin", resources={GPU: "200"})
    dra.settle(15)
    assert dra.node_of("p") == "plugin"


def test_a_class_whose_selector_fails_keeps_nobody_from_a_device_plugin(dra: Sim) -> None:
    failing = {"cel": {"expression": 'device.attributes["gpu.example.com"].absent == "x"'}}
    spec = {"selectors": [failing], "extendedResourceName": GPU}
    dra.api.put(kinds.DEVICE_CLASSES, {"metadata": {"name": "gpu.example.com"}, "spec": spec})
    dra.add_pod("p", containers=[container("c", 1)])
    dra.settle()
    assert dra.node_of("p") == ""
    assert "no such key" in dra.condition("p")["message"]
    dra.add_node("plugin", resources={GPU: "1"})
    dra.settle(15)
    assert dra.node_of("p") == "plugin"


@pytest.mark.parametrize(("strategy", "nodes"), [("MostAllocated", ["used"]), ("LeastAllocated", ["free", "free"])])
def test_a_resource_of_devices_is_scored_by_how_many_of_them_are_in_use(strategy: str, nodes: list[str]) -> None:
    fit = {"scoringStrategy": {"type": strategy, "resources": [{"name": GPU, "weight": 1}]}}
    assert beside_a_used_node(len(nodes), "NodeResourcesFit", fit) == nodes


def test_a_resource_of_devices_is_balanced_against_the_others() -> None:
    args = {"resources": [{"name": GPU}, {"name": "cpu"}]}
    assert beside_a_used_node(2, "NodeResourcesBalancedAllocation", args) == ["free", "free"]


def beside_a_used_node(pods: int, plugin: str, args: dict[str, Any]) -> list[str]:
    """Where pods go one after the other when only this plugin has a say: one node has three of its four devices in use, the
    other none. Among equals they would take turns."""
    plugins = {"score": {"disabled": [{"name": "*"}], "enabled": [{"name": plugin}]}}
    config = [{"name": plugin, "args": args}, {"name": "DrayDeviceScoring", "args": {"strategy": "Upstream"}}]
    head = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    sim = Sim(parse({**head, "profiles": [{"plugins": plugins, "pluginConfig": config}]}))
    sim.add_class("gpu.example.com", extended=GPU)
    for name in ("used", "free"):
        sim.add_node(name)
        sim.add_slice(name, 4)
    sim.add_pod("before", containers=[container("c", 3)], nodeSelector={"kubernetes.io/hostname": "used"})
    names = [f"demo-{number}" for number in range(pods)]
    for name in names:
        sim.settle()
        sim.add_pod(name, containers=[container("c", 1)])
    sim.settle()
    return [sim.node_of(name) for name in names]


def test_without_the_gate_classes_offer_nothing() -> None:
    sim = Sim(gates=Gates.dray().updated({"DRAExtendedResource": False}))
    sim.add_class("gpu.example.com", extended=GPU)
    sim.add_node("n1")
    sim.add_slice("n1", 1)
    sim.add_pod("p", containers=[container("c", 1)])
    sim.settle()
    assert sim.node_of("p") == ""


# ------------------------------------------------------------------------------------------------------- which class serves


def cls(name: str, created: str, extended: str = GPU) -> DeviceClass:
    return decode(
        DeviceClass, {"metadata": {"name": name, "creationTimestamp": created}, "spec": {"extendedResourceName": extended}}
    )


def test_the_newest_class_serves_then_the_name_and_the_next_takes_over() -> None:
    names = ClassNames()
    names.put(cls("old", "2026-01-01T00:00:00Z"))
    names.put(cls("b", "2026-02-01T00:00:00Z"))
    names.put(cls("a", "2026-02-01T00:00:00Z"))
    served = []
    while (found := names.serving(GPU)) is not None:
        served.append(found.metadata.name)
        names.remove(found.metadata.name)
    assert served == ["a", "b", "old"]


def test_every_class_has_its_implicit_name_even_when_it_lost_the_other() -> None:
    names = ClassNames()
    names.put(cls("new", "2026-02-01T00:00:00Z"))
    names.put(cls("old", "2026-01-01T00:00:00Z"))
    found = names.serving("deviceclass.resource.kubernetes.io/old")
    assert found is not None
    assert found.metadata.name == "old"


# ------------------------------------------------------------------------------------------------------ requests and mappings


def made(
    containers: list[dict[str, Any]], init: list[dict[str, Any]] | None = None
) -> tuple[dict[str, int], list[tuple[str, str]]]:
    spec = decode(PodSpec, {"containers": containers, "initContainers": init or []})
    names = ClassNames()
    names.put(cls("gpu", "2026-01-01T00:00:00Z"))
    found = requests_for(spec, frozenset({GPU}), names)
    counts = {request.name: request.exactly.count for request in found.requests if request.exactly is not None}
    return counts, [(mapping.container, mapping.request) for mapping in found.mappings]


def test_each_container_has_its_own_request() -> None:
    counts, mappings = made([container("a", 1), container("b", 2)])
    assert counts == {"container-0-request-0": 1, "container-1-request-0": 2}
    assert mappings == [("a", "container-0-request-0"), ("b", "container-1-request-0")]


def test_an_init_container_uses_later_devices_and_asks_for_the_rest() -> None:
    counts, mappings = made([container("main", 1)], [container("init", 2)])
    assert counts == {"container-0-request-0": 1, "container-1-request-0": 1}
    assert mappings == [
        ("main", "container-1-request-0"),
        ("init", "container-1-request-0"),
        ("init", "container-0-request-0"),
    ]


def test_only_the_largest_init_container_asks() -> None:
    counts, mappings = made([{"name": "main"}], [container("one", 1), container("two", 2)])
    assert counts == {"container-1-request-0": 2}
    assert mappings == [("one", "container-1-request-0"), ("two", "container-1-request-0")]


def test_a_sidecar_keeps_its_devices_and_lends_them_only_to_earlier_ones() -> None:
    sidecar = container("sidecar", 1, restartPolicy="Always")
    counts, mappings = made([{"name": "main"}], [container("before", 1), sidecar, container("after", 1)])
    assert counts == {"container-1-request-0": 1, "container-2-request-0": 1}
    assert mappings == [
        ("sidecar", "container-1-request-0"),
        ("before", "container-1-request-0"),
        ("after", "container-2-request-0"),
    ]
