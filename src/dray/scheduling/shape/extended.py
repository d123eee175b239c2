"""Extended resources that devices provide (KEP-5004): the one claim that the scheduler makes for a pod.

Always true: the requests of the special claim depend on the node only through which of the pod's resources that node leaves to
devices, so nodes that leave the same ones share the same requests.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from dray.api.class_names import ClassNames
from dray.api.core import Pod, PodExtendedResourceClaimStatus, PodSpec
from dray.api.meta import ObjectMeta, OwnerReference
from dray.api.reason import Reason
from dray.api.requests import Amounts, container_requests, is_sidecar
from dray.api.resource import (
    EXTENDED_RESOURCE_CLAIM,
    FINALIZER,
    UNMADE,
    AllocationResult,
    DeviceClaim,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)
from dray.books.nodes import NodeInfo
from dray.devices import Devices
from dray.scheduling.plugins.resources import is_extended


class DeviceBacked:
    """What devices offer of extended resources, while the feature is on."""

    def __init__(self, on: bool, classes: ClassNames, engine: Devices) -> None:
        self._on, self._classes, self._engine = on, classes, engine

    def offers(self, resource: str) -> bool:
        return self._on and self._classes.offers(resource)

    def on_node(self, resource: str, node: str) -> tuple[int, int]:
        """How many devices the node has for the resource, and how many of them are in use."""
        serving = self._classes.serving(resource)
        return self._engine.in_class(node, serving.metadata.name) if serving is not None else (0, 0)


# -------------------------------------------------------------------------------------------------- requests and mappings


class Mapping(msgspec.Struct, frozen=True):
    container: str
    resource: str
    request: str


class Requests(msgspec.Struct, frozen=True):
    """The requests of a special claim and which container uses which of them."""

    requests: tuple[DeviceRequest, ...]
    mappings: tuple[Mapping, ...]


class _Slot:
    """One request in the making."""

    __slots__ = ("container", "count", "index", "name")

    def __init__(self, index: int, container: str, count: int, name: str) -> None:
        self.index = index
        self.container = container
        self.count = count
        self.name = name


def by_devices(wanted: frozenset[str], info: NodeInfo) -> frozenset[str]:
    """Which of the pod's class-backed resources this node leaves to devices."""
    return not_offered(wanted, info.allocatable)


def not_offered(wanted: frozenset[str], allocatable: Amounts) -> frozenset[str]:
    """Those that a node does not offer itself: one whose device plugin went goes on to say that it has 0."""
    return frozenset([name for name in wanted if not allocatable.get(name)])


def asks_for_devices(spec: PodSpec) -> bool:
    """Whether a pod may be given devices: for claims, or for extended resources, whoever offers them."""
    containers = (*spec.init_containers, *spec.containers)
    return bool(spec.resource_claims) or any(is_extended(name) for each in containers for name in container_requests(each))


def wanted_names(spec: PodSpec, classes: ClassNames) -> frozenset[str]:
    """The extended resources that the pod asks for and a class serves."""
    found: set[str] = set()
    for container in (*spec.init_containers, *spec.containers):
        for name, count in container_requests(container).items():
            if count > 0 and is_extended(name) and classes.offers(name):
                found.add(name)
    return frozenset(found)


def requests_for(spec: PodSpec, names: frozenset[str], classes: ClassNames) -> Requests:
    requests: list[DeviceRequest] = []
    mappings: list[Mapping] = []
    for resource in sorted(names):
        cls = classes.serving(resource)
        if cls is None:
            continue
        slots, mapped = _slots(spec, resource, names)
        mappings.extend(mapped)
        requests.extend(_request(slot, cls.metadata.name) for slot in slots)
    return Requests(tuple(sorted(requests, key=lambda request: request.name)), tuple(mappings))


def _request(slot: _Slot, cls: str) -> DeviceRequest:
    exactly = ExactDeviceRequest(device_class_name=cls, allocation_mode="ExactCount", count=slot.count)
    return DeviceRequest(name=slot.name, exactly=exactly)


def _slots(spec: PodSpec, resource: str, names: frozenset[str]) -> tuple[list[_Slot], list[Mapping]]:
    """Containers that stay get devices of their own; init containers that end use those of later ones first, and
    what they need beyond that is shared among them."""
    staying: list[_Slot] = []
    ending: list[_Slot] = []
    for index, container in enumerate((*spec.init_containers, *spec.containers)):
        asked = container_requests(container)
        if not (count := asked.get(resource, 0)):
            continue
        position = sorted(name for name in asked if name in names and asked[name]).index(resource)
        slot = _Slot(index, container.name, count, f"container-{index}-request-{position}")
        ends = index < len(spec.init_containers) and not is_sidecar(container)
        (ending if ends else staying).append(slot)
    mappings = [Mapping(slot.container, resource, slot.name) for slot in staying]
    extra, shared = _share(ending, staying)
    mappings.extend(Mapping(slot.container, resource, name) for slot, names_ in shared for name in names_)
    return ([*staying, extra] if extra is not None else staying), mappings


def _share(ending: list[_Slot], staying: list[_Slot]) -> tuple[_Slot | None, list[tuple[_Slot, list[str]]]]:
    uses: list[tuple[_Slot, list[str], int]] = []
    for slot in ending:
        missing, used = slot.count, []
        for other in staying:
            if missing > 0 and other.index >= slot.index:
                used.append(other.name)
                missing -= other.count
        uses.append((slot, used, max(missing, 0)))
    most = max((missing for _, _, missing in uses), default=0)
    largest = next((slot for slot, _, missing in uses if missing == most), None) if most else None
    extra = _Slot(largest.index, largest.container, most, largest.name) if largest is not None else None
    shared = [(slot, [*used, extra.name] if missing and extra is not None else used) for slot, used, missing in uses]
    return extra, shared


def as_asked(reason: Reason, made: Iterable[Requests]) -> Reason:
    """What is said of a request of the special claim, with the resource and the container that ask for it: whoever asks for an
    extended resource knows of no claim. ``made``: what was asked for, which may differ from node to node."""
    claim = str(reason.data.get("claim") or reason.object)
    if not claim.endswith(f"/{UNMADE}"):
        return reason
    uses = {m.resource: m.container for each in made for m in reversed(each.mappings) if m.request == reason.data.get("request")}
    if len(uses) != 1:
        return reason
    ((resource, container),) = uses.items()
    return Reason(reason.code, reason.object, {**reason.data, "resource": resource, "container": container})


# --------------------------------------------------------------------------------------------------------- the claim


class Special:
    """The special claim of one pod on one node: decided, then made in the API under ``name``."""

    __slots__ = ("allocation", "claim", "name", "requests")

    def __init__(self, claim: ResourceClaim, requests: Requests, allocation: AllocationResult) -> None:
        self.claim = claim
        self.requests = requests
        self.allocation = allocation
        self.name = ""

    def body(self, pod: Pod) -> dict[str, Any]:
        """As it is created: with the finalizer already, which saves a write."""
        return {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {
                "generateName": f"{pod.metadata.name}-extended-resources-",
                "namespace": pod.metadata.namespace,
                "annotations": {EXTENDED_RESOURCE_CLAIM: "true"},
                "finalizers": [FINALIZER],
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Pod", "name": pod.metadata.name, "uid": pod.uid, "controller": True}
                ],
            },
            "spec": msgspec.json.decode(msgspec.json.encode(self.claim.spec)),
        }

    def is_named_in(self, pod: Pod) -> bool:
        """Whether the pod's status says what ``status`` does."""
        known = pod.status.extended_resource_claim_status
        return known is not None and known.resource_claim_name == self.name and _mapped(known) == _wanted(self.requests)

    def status(self) -> dict[str, Any]:
        """``pod.status.extendedResourceClaimStatus``."""
        mappings = [
            {"containerName": m.container, "resourceName": m.resource, "requestName": m.request} for m in self.requests.mappings
        ]
        return {"resourceClaimName": self.name, "requestMappings": mappings}


def _mapped(status: PodExtendedResourceClaimStatus) -> set[tuple[str, str, str]]:
    return {(m.container_name, m.resource_name, m.request_name) for m in status.request_mappings}


def _wanted(requests: Requests) -> set[tuple[str, str, str]]:
    return {(m.container, m.resource, m.request) for m in requests.mappings}


def special_claim(pod: Pod, requests: Requests) -> ResourceClaim:
    """The claim as long as it is only in memory."""
    uid = pod.metadata.uid
    owner = OwnerReference("v1", "Pod", pod.metadata.name, uid, True)
    metadata = ObjectMeta(
        name=UNMADE,
        namespace=pod.metadata.namespace,
        uid=f"extended-resources-of-{uid}",
        annotations={EXTENDED_RESOURCE_CLAIM: "true"},
        owner_references=(owner,),
    )
    return ResourceClaim(metadata, ResourceClaimSpec(DeviceClaim(requests.requests)))


def is_special(claim: ResourceClaim) -> bool:
    return claim.metadata.annotations.get(EXTENDED_RESOURCE_CLAIM) == "true" and claim.metadata.controller is not None


def owner_uid(claim: ResourceClaim) -> tuple[str, ...]:
    """For an index of special claims by the pod that owns them."""
    owner = claim.metadata.controller
    return (owner.uid,) if owner is not None and owner.kind == "Pod" and is_special(claim) else ()


def still_valid(claim: ResourceClaim, requests: Requests) -> bool:
    """Whether a claim that was made earlier asks for exactly what is needed now."""

    def essence(found: tuple[DeviceRequest, ...]) -> list[tuple[str, str, int]]:
        return [(r.name, r.exactly.device_class_name, r.exactly.count) for r in found if r.exactly is not None]

    return essence(claim.spec.devices.requests) == essence(requests.requests)
