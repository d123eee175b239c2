"""Fields of features that are switched off.

Such a field is silently cleared on every write, unless the stored object uses the feature already: then the feature stays
usable for this whole object, so that nothing is lost when a gate is switched off later.

Each rule names the gates, the fields to clear, and the fields whose presence in the stored object means that it is in use.
In a path, ``[]`` stands for every element of a list and ``{}`` for every value of a map.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from dray.api.gates import Gates

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Rule:
    """``used`` is empty when the fields themselves show the use."""

    gates: tuple[str, ...]
    fields: tuple[str, ...]
    used: tuple[str, ...] = ()


def strip_disabled(plural: str, new: Object, old: Object | None, gates: Gates) -> Object:
    """The new object without fields of features that are off (the same one, changed)."""
    for rule in _RULES.get(plural, ()):
        if all(gates(gate) for gate in rule.gates):
            continue
        if old is not None and any(_is_used(old, path) for path in rule.used or rule.fields):
            continue
        for path in rule.fields:
            _clear(new, path)
    return new


def _is_used(obj: Object, path: str) -> bool:
    *way, last = path.split(".")
    return any(owner.get(last) not in (None, [], {}) for owner in _owners(obj, way))


def _clear(obj: Object, path: str) -> None:
    *way, last = path.split(".")
    for owner in _owners(obj, way):
        owner.pop(last, None)


def _owners(value: Any, way: list[str]) -> Iterator[Object]:
    """The objects that have the last field of a path."""
    if not isinstance(value, dict):
        return
    if not way:
        yield value
        return
    name, rest = way[0], way[1:]
    child = value.get(name.rstrip("[]{}"))
    if name.endswith("[]"):
        for item in child or ():
            yield from _owners(item, rest)
    elif name.endswith("{}"):
        for item in (child or {}).values():
            yield from _owners(item, rest)
    else:
        yield from _owners(child, rest)


def _under(prefix: str, *fields: str) -> tuple[str, ...]:
    return tuple(f"{prefix}.{field}" for field in fields)


def _of_requests(devices: str, field: str) -> tuple[str, ...]:
    """A field of both variants of a request."""
    return (f"{devices}.requests[].exactly.{field}", f"{devices}.requests[].firstAvailable[].{field}")


_DEVICE: Final = "spec.devices[]"
_RESULT: Final = "status.allocation.devices.results[]"


def _claim_spec_rules(devices: str) -> tuple[Rule, ...]:
    consumable = (f"{devices}.constraints[].distinctAttribute", *_of_requests(devices, "capacity"))
    return (
        Rule(("DRAPrioritizedList",), (f"{devices}.requests[].firstAvailable",)),
        Rule(("DRADeviceTaints",), _of_requests(devices, "tolerations")),
        Rule(("DRAAdminAccess",), (f"{devices}.requests[].exactly.adminAccess",)),
        Rule(("DRAConsumableCapacity",), consumable),
        Rule(("DRADerivedAttributes",), _of_requests(devices, "derivedAttributes")),
    )


_CLAIM_CAPACITY: Final = (*_under(_RESULT, "shareID", "consumedCapacity"), "status.devices[].shareID")

_RULES: Final[dict[str, tuple[Rule, ...]]] = {
    "resourceslices": (
        Rule(("DRADeviceTaints",), _under(_DEVICE, "taints")),
        Rule(
            ("DRAPartitionableDevices",),
            (
                "spec.sharedCounters",
                "spec.perDeviceNodeSelection",
                *_under(_DEVICE, "consumesCounters", "nodeName", "nodeSelector", "allNodes"),
            ),
        ),
        Rule(
            ("DRADeviceBindingConditions", "DRAResourceClaimDeviceStatus"),
            _under(_DEVICE, "bindingConditions", "bindingFailureConditions", "bindsToNode"),
        ),
        Rule(("DRAConsumableCapacity",), _under(_DEVICE, "allowMultipleAllocations", "capacity{}.requestPolicy")),
        Rule(("DRADeviceCompatibilityGroups",), _under(_DEVICE, "consumesCounters[].compatibilityGroups")),
        Rule(("DRANodeAllocatableResources",), _under(_DEVICE, "nodeAllocatableResources")),
        Rule(("DRAListTypeAttributes",), _under(f"{_DEVICE}.attributes{{}}", "bools", "ints", "strings", "versions")),
        Rule(("DRAPartitionableDevicesType",), ("spec.partitionTypeAttribute",)),
        Rule(("DRAOptionalNodeOperations",), ("spec.skipNodeOperations",)),
    ),
    "resourceclaims": (
        *_claim_spec_rules("spec.devices"),
        Rule(("DRAResourceClaimDeviceStatus",), ("status.devices",)),
        Rule(
            ("DRAAdminAccess",),
            _under(_RESULT, "adminAccess"),
            (*_under(_RESULT, "adminAccess"), "spec.devices.requests[].exactly.adminAccess"),
        ),
        Rule(
            ("DRAConsumableCapacity",),
            _CLAIM_CAPACITY,
            (*_CLAIM_CAPACITY, "spec.devices.constraints[].distinctAttribute", *_of_requests("spec.devices", "capacity")),
        ),
        Rule(("DRADeviceBindingConditions",), _under(_RESULT, "bindingConditions", "bindingFailureConditions")),
        Rule(("DRAOptionalNodeOperations",), _under(_RESULT, "skipNodeOperations")),
        Rule(("DRADeviceCompatibilityGroups",), _under(_RESULT, "compatibilityGroups")),
    ),
    "resourceclaimtemplates": _claim_spec_rules("spec.spec.devices"),
    "deviceclasses": (Rule(("DRAExtendedResource",), ("spec.extendedResourceName",)),),
    "pods": (Rule(("DRAExtendedResource",), ("status.extendedResourceClaimStatus",)),),
}
