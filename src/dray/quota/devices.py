"""Devices as quotas count them: by class, whichever way they were asked for (KEP-5004).

Always true: all names of a class are charged the same; which class a name means is for ``ClassNames`` to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from dray.api.class_names import ClassNames
from dray.api.quantity import Quantity
from dray.api.quota_names import REQUESTS
from dray.api.requests import add
from dray.api.resource import (
    EXTENDED_RESOURCE_CLAIM,
    IMPLICIT_RESOURCE_PREFIX,
    DeviceClass,
    DeviceRequest,
    DeviceSubRequest,
    ResourceClaim,
)
from dray.quota.names import DEVICES, IMPLICIT, Amounts

# All devices that match: as many as an allocation can have.
ALL: Final = 32


class Served(msgspec.Struct, frozen=True):
    """Which class serves which extended resource name, and the other way round."""

    classes: Mapping[str, str] = {}
    resources: Mapping[str, str] = {}

    @staticmethod
    def by(classes: Iterable[DeviceClass]) -> Served:
        names = ClassNames()
        for each in classes:
            names.put(each)
        serving = names.explicit()
        return Served(serving, {name: resource for resource, name in serving.items()})

    def class_of(self, resource: str) -> str | None:
        if resource.startswith(IMPLICIT_RESOURCE_PREFIX):
            return resource[len(IMPLICIT_RESOURCE_PREFIX) :]
        return self.classes.get(resource)

    def names(self, device_class: str) -> list[str]:
        """Every name that a device of the class is charged to."""
        names = [device_class + DEVICES, IMPLICIT + device_class]
        if (resource := self.resources.get(device_class)) is not None:
            names.append(REQUESTS + resource)
        return names

    def charged(self, devices: Mapping[str, Quantity]) -> Amounts:
        """Amounts by class under all their names."""
        total: Amounts = {}
        for device_class, amount in devices.items():
            add(total, dict.fromkeys(self.names(device_class), amount))
        return total

    def split(self, requests: Mapping[str, Quantity]) -> tuple[Amounts, Amounts]:
        """Extended resources that a pod asks for: what classes serve, by class, and the rest by its quota name."""
        by_class: Amounts = {}
        rest: Amounts = {}
        for resource, amount in requests.items():
            serving = self.class_of(resource)
            add(by_class if serving is not None else rest, {serving or REQUESTS + resource: amount})
        return by_class, rest


def of_claim(claim: ResourceClaim) -> Amounts:
    """The devices that a claim asks for, by class, whether it is allocated or not; administrators' access counts as well."""
    total: Amounts = {}
    for request in claim.spec.devices.requests:
        add(total, {name: Quantity.of(count) for name, count in _of_request(request).items() if count})
    return total


def _of_request(request: DeviceRequest) -> dict[str, int]:
    if request.exactly is not None:
        return {request.exactly.device_class_name: _count(request.exactly)}
    most: dict[str, int] = {}
    for alternative in request.first_available:
        name = alternative.device_class_name
        most[name] = max(most.get(name, 0), _count(alternative))
    return most


def _count(request: DeviceSubRequest) -> int:
    match request.allocation_mode:
        case "All":
            return ALL
        case "ExactCount" | "":
            return max(request.count, 0) or 1
    return 0


def special_owner(claim: ResourceClaim) -> str:
    """The uid of the pod whose extended resources this claim provides; empty for every other claim."""
    owner = claim.metadata.controller
    if claim.metadata.annotations.get(EXTENDED_RESOURCE_CLAIM) != "true" or owner is None:
        return ""
    return owner.uid if (owner.api_version, owner.kind) == ("v1", "Pod") else ""
