"""Devices of a world that is settled: classes, slices and claims, as lines and as objects.

Always true: a claim that a pod on a node uses has devices there, those that the line names or else the first that are left; of
other claims only what pods outside the world have reserved counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from dray.api.kinds import DEVICE_CLASSES, RESOURCE_CLAIMS, RESOURCE_SLICES, Kind
from dray.api.queues import GPU_CLASS, GPU_RESOURCE
from dray.api.resource import FINALIZER

Json = dict[str, Any]
REQUEST: Final = "request"


class SliceLine(msgspec.Struct):
    node: str = msgspec.field(name="nodeName")
    device_class: str = msgspec.field(name="DeviceClassName")
    count: int = msgspec.field(name="Count")


class ClaimLine(msgspec.Struct):
    name: str
    device_class: str = msgspec.field(name="deviceClassName")
    count: int = 1
    status: Json = msgspec.field(name="claimStatus", default_factory=dict)


class DevicesLine(msgspec.Struct):
    device_classes: list[str] = []
    resource_slices: list[SliceLine] = []
    resource_claims: list[ClaimLine] = []

    def serves(self, node: str) -> bool:
        """Whether the GPUs of the node are devices."""
        return any(each.node == node and each.device_class == GPU_RESOURCE for each in self.resource_slices)


def class_name(name: str) -> str:
    """GPUs are the class of their driver: a resource's name is no name of a class."""
    return GPU_CLASS if name == GPU_RESOURCE else name


def published(devices: DevicesLine) -> Iterator[tuple[Kind, Json]]:
    for name in map(class_name, devices.device_classes):
        selectors = [{"cel": {"expression": f'device.driver == "{name}"'}}]
        yield DEVICE_CLASSES, {"metadata": {"name": name}, "spec": {"selectors": selectors}}
    for each in devices.resource_slices:
        name = class_name(each.device_class)
        spec = {
            "driver": name,
            "pool": {"name": each.node, "generation": 1, "resourceSliceCount": 1},
            "nodeName": each.node,
            "devices": [{"name": str(index)} for index in range(each.count)],
        }
        yield RESOURCE_SLICES, {"metadata": {"name": f"{each.node}-{name}"}, "spec": spec}


def claims(devices: DevicesLine, users: Mapping[str, list[tuple[str, str, str]]], namespace: str) -> Iterator[tuple[Kind, Json]]:
    """``users``: by claim the name, uid and node of each pod that uses it; no node: of one that waits."""
    known = {name for each in users.values() for name, _, _ in each}
    taken: dict[str, set[str]] = {}
    # What the lines name first, so that it is not what others are given.
    for claim in sorted(devices.resource_claims, key=lambda each: not each.status.get("allocation")):
        placed = [user for user in users.get(claim.name, ()) if user[2]]
        foreign = [each for each in claim.status.get("reservedFor", ()) if each["name"] not in known]
        status: Json = {"reservedFor": [*foreign, *({"resource": "pods", "name": n, "uid": u} for n, u, _ in placed)]}
        named = [each["device"] for each in (claim.status.get("allocation") or {}).get("devices", {}).get("results", ())]
        if placed:
            node = placed[0][2]
            found = named or _free(claim, node, devices.resource_slices, taken.setdefault(node, set()))
            status["allocation"] = _allocation(claim, node, found)
            taken.setdefault(node, set()).update(found)
        elif foreign and named:
            status["allocation"] = _allocation(claim, claim.status["allocation"]["devices"]["results"][0]["pool"], named)
        metadata = {"name": claim.name, "namespace": namespace, "finalizers": [FINALIZER]}
        exactly = {"deviceClassName": class_name(claim.device_class), "allocationMode": "ExactCount", "count": claim.count}
        spec = {"devices": {"requests": [{"name": REQUEST, "exactly": exactly}]}}
        yield RESOURCE_CLAIMS, {"metadata": metadata, "spec": spec, "status": status}


def _free(claim: ClaimLine, node: str, slices: Iterable[SliceLine], taken: set[str]) -> list[str]:
    count = sum(each.count for each in slices if each.node == node and each.device_class == claim.device_class)
    return [name for name in map(str, range(count)) if name not in taken][: claim.count]


def _allocation(claim: ClaimLine, node: str, names: list[str]) -> Json:
    driver = class_name(claim.device_class)
    results = [{"request": REQUEST, "driver": driver, "pool": node, "device": name} for name in names]
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    return {"devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": [term]}}


def without(claim: Json, uid: str) -> Json | None:
    """The claim without this pod, as the claim controller leaves it; None if the pod has nothing to do with it."""
    reserved = claim.get("status", {}).get("reservedFor", [])
    left = [each for each in reserved if each["uid"] != uid]
    if len(left) == len(reserved):
        return None
    return {**claim, "status": {**claim["status"], "reservedFor": left} if left else {}}
