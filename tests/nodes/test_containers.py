"""Each container is given the devices of the claims and requests that it names, and its status says how they are."""

from __future__ import annotations

from typing import Any

from dray.api.kinds import PODS, RESOURCE_SLICES
from dray.nodes.hardware import hardware
from dray.runtime.faults import Crash, Faults
from tests.nodes.laboratory import NODE, Laboratory


def container(name: str, *claims: dict[str, str], **requests: str) -> dict[str, Any]:
    return {"name": name, "image": "i", "resources": {"claims": list(claims), "requests": requests, "limits": requests}}


def given(lab: Laboratory, pod: str) -> dict[str, list[str]]:
    """The devices of each container, by the CDI ids that the runtime would be given."""
    found = lab.place.get(PODS, pod)
    assert found is not None
    text: str = found["metadata"]["annotations"].get("dray.dev/cdi-devices", "")
    parts = [part.partition("=") for part in text.split(";") if part]
    return {name: [each.rpartition(f"{NODE}-")[2] for each in ids.split(",")] for name, _, ids in parts}


def test_a_container_that_names_a_request_gets_its_devices_only_and_one_that_names_none_gets_all() -> None:
    lab = Laboratory()
    lab.claim("pair", "gpu-0", "gpu-1")
    containers = [
        container("one", {"name": "pair", "request": "gpu"}),
        container("other", {"name": "pair", "request": "r1"}),
        container("both", {"name": "pair"}),
        container("none"),
    ]
    first = [container("prepares", {"name": "pair", "request": "r1"})]
    lab.pod("p", "pair", containers=containers, initContainers=first)
    lab.run(5)
    assert given(lab, "p") == {"one": ["gpu-0"], "other": ["gpu-1"], "both": ["gpu-0", "gpu-1"], "prepares": ["gpu-1"]}
    told = {each["name"]: each.get("allocatedResourcesStatus") for each in lab.shown("p")["containerStatuses"]}
    unit = {"resourceID": f"gpu.dray.dev/device={NODE}-gpu-0", "health": "Healthy"}
    assert told["one"] == [{"name": "claim:pair/gpu", "resources": [unit]}]
    assert [each["name"] for each in told["both"]] == ["claim:pair"]
    assert told["none"] is None
    assert "allocatedResourcesStatus" not in lab.shown("p")["initContainerStatuses"][0]


def test_extended_resources_give_each_container_the_devices_of_its_mappings() -> None:
    lab = Laboratory()
    lab.claim("special", "gpu-0", "gpu-1", "gpu-2")
    resource = "dray.dev/gpu"
    containers = [container("one", **{resource: "2"}), container("zero", **{resource: "0"}), container("other")]
    uid = lab.pod("p", containers=containers, initContainers=[container("init", **{resource: "1"})])
    lab.reserve("special", "p", uid)
    pairs = [("one", "gpu"), ("one", "r1"), ("zero", "r2"), ("init", "gpu")]
    mappings = [{"containerName": c, "resourceName": resource, "requestName": r} for c, r in pairs]
    extended = {"resourceClaimName": "special", "requestMappings": mappings}
    lab.place.patch(PODS, "p", {"status": {"extendedResourceClaimStatus": extended}}, subresource="status")
    lab.run(5)
    assert given(lab, "p") == {"one": ["gpu-0", "gpu-1"], "init": ["gpu-0"]}
    assert all("allocatedResourcesStatus" not in each for each in lab.shown("p")["containerStatuses"])


def health(lab: Laboratory, pod: str) -> list[tuple[str, str]]:
    (told,) = lab.shown(pod)["containerStatuses"][0]["allocatedResourcesStatus"]
    return [(unit["health"], unit.get("message", "")) for unit in told["resources"]]


def test_a_device_that_gets_ill_and_well_again_is_shown_in_the_pod() -> None:
    lab = Laboratory(faults=Faults(crashes=(Crash(20.0, "nodes"),)))
    (slice_,) = [each for each in hardware(["gpu8"]).objects if each["kind"] == "ResourceSlice"]
    lab.place.create(RESOURCE_SLICES, slice_)
    lab.claim("mine", "gpu-3")
    lab.pod("p", "mine")
    lab.run(5)
    assert health(lab, "p") == [("Healthy", "")]
    name = slice_["metadata"]["name"]
    lab.place.patch(RESOURCE_SLICES, name, {"metadata": {"annotations": {"fault.dray.dev/gpu-3": "None XID 63"}}})
    lab.run(10)
    assert health(lab, "p") == [("Unhealthy", "XID 63")]
    assert lab.shown("p")["containerStatuses"][0]["state"]["running"]
    lab.run(30)
    lab.place.patch(RESOURCE_SLICES, name, {"metadata": {"annotations": {"fault.dray.dev/gpu-3": None}}})
    lab.run(40)
    assert health(lab, "p") == [("Healthy", "")]


def test_a_long_message_is_cut() -> None:
    lab = Laboratory()
    (slice_,) = [each for each in hardware(["gpu8"]).objects if each["kind"] == "ResourceSlice"]
    slice_["metadata"]["annotations"] = {"fault.dray.dev/gpu-3": "None " + "x" * 2000}
    lab.place.create(RESOURCE_SLICES, slice_)
    lab.claim("mine", "gpu-3")
    lab.pod("p", "mine")
    lab.run(5)
    assert health(lab, "p") == [("Unhealthy", "x" * 1021 + "...")]
