"""Feature gates: upstream's names, defaults and dependencies.

Dray implements the features below but for ``WITHOUT_EFFECT``, so its own defaults (``Gates.dray()``) have the alpha ones on too;
``Gates.upstream()`` are those of Kubernetes 1.37. A gate whose dependency is off is off.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final


class GateError(ValueError):
    """A gate is unknown, or set against its dependencies. Whoever configured it must act."""


# name -> (on by default in Kubernetes 1.37, what it depends on)
GATES: Final[dict[str, tuple[bool, tuple[str, ...]]]] = {
    "DynamicResourceAllocation": (True, ()),
    "DRAAdminAccess": (True, ("DynamicResourceAllocation",)),
    "DRAPrioritizedList": (True, ("DynamicResourceAllocation",)),
    "DRAResourceClaimDeviceStatus": (True, ("DynamicResourceAllocation",)),
    "DRAExtendedResource": (True, ("DynamicResourceAllocation",)),
    "DRADeviceTaints": (True, ("DynamicResourceAllocation",)),
    "DRADeviceTaintRules": (True, ("DRADeviceTaints",)),
    "DRADeviceBindingConditions": (True, ("DynamicResourceAllocation", "DRAResourceClaimDeviceStatus")),
    "DRAConsumableCapacity": (True, ("DynamicResourceAllocation",)),
    "DRAFractionalCapacityRange": (False, ("DRAConsumableCapacity",)),
    "DRAPartitionableDevices": (True, ("DynamicResourceAllocation",)),
    "DRASchedulerFilterTimeout": (True, ("DynamicResourceAllocation",)),
    "DRAResourceClaimGranularStatusAuthorization": (True, ("DynamicResourceAllocation", "DRAResourceClaimDeviceStatus")),
    "DRAListTypeAttributes": (False, ("DynamicResourceAllocation",)),
    "DRADerivedAttributes": (False, ("DynamicResourceAllocation",)),
    "DRADeviceCompatibilityGroups": (False, ("DynamicResourceAllocation", "DRAPartitionableDevices")),
    "DRAOptionalNodeOperations": (False, ("DynamicResourceAllocation",)),
    "DRANodeAllocatableResources": (False, ("DynamicResourceAllocation",)),
    "DRAResourcePoolStatus": (False, ("DynamicResourceAllocation",)),
    "DRAPartitionableDevicesType": (False, ("DRAPartitionableDevices", "DRAResourcePoolStatus")),
    "GenericWorkload": (False, ()),
    "DRAWorkloadResourceClaims": (False, ("DynamicResourceAllocation", "GenericWorkload")),
}

# Those that are no longer, or not yet, beta in Kubernetes 1.37.
_STABLE: Final = frozenset(
    {
        *("DynamicResourceAllocation", "DRAAdminAccess", "DRAPrioritizedList", "DRAResourceClaimDeviceStatus"),
        *("DRAExtendedResource", "DRADeviceTaints", "DRADeviceTaintRules"),
    }
)
_ALPHA: Final = frozenset(
    {
        *("DRAListTypeAttributes", "DRADerivedAttributes", "DRADeviceCompatibilityGroups", "DRAOptionalNodeOperations"),
        *("DRANodeAllocatableResources", "DRAResourcePoolStatus", "DRAPartitionableDevicesType"),
    }
)


def stage(gate: str) -> str:
    """As metrics of Kubernetes say it."""
    return "" if gate in _STABLE else "ALPHA" if gate in _ALPHA else "BETA"


# What Dray does nothing for; switching one on is told.
WITHOUT_EFFECT: Final = frozenset(
    {
        "DRANodeAllocatableResources",
        "DRAResourcePoolStatus",
        "DRAPartitionableDevicesType",
        "GenericWorkload",
        "DRAWorkloadResourceClaims",
    }
)

# The allocator's own names for them, accepted as aliases (`dray allocate`).
ALIASES: Final = {
    "AdminAccess": ("DRAAdminAccess",),
    "CompatibilityGroups": ("DRADeviceCompatibilityGroups",),
    "ConsumableCapacity": ("DRAConsumableCapacity",),
    "DerivedAttributes": ("DRADerivedAttributes",),
    "DeviceBindingAndStatus": ("DRADeviceBindingConditions", "DRAResourceClaimDeviceStatus"),
    "DeviceTaints": ("DRADeviceTaints",),
    "FractionalCapacityRange": ("DRAFractionalCapacityRange",),
    "ListTypeAttributes": ("DRAListTypeAttributes",),
    "OptionalNodeOperations": ("DRAOptionalNodeOperations",),
    "PartitionableDevices": ("DRAPartitionableDevices",),
    "PrioritizedList": ("DRAPrioritizedList",),
}


class Gates:
    """An immutable set of the gates that are on. ``gates("DRADeviceTaints")`` asks for one."""

    __slots__ = ("on",)

    on: frozenset[str]

    def __init__(self, on: Iterable[str]) -> None:
        self.on = _without_broken_dependencies(frozenset(on))

    def __call__(self, gate: str) -> bool:
        if gate not in GATES:
            raise GateError(f"unknown feature gate {gate!r}")
        return gate in self.on

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Gates) and self.on == other.on

    def __hash__(self) -> int:
        return hash(self.on)

    def __repr__(self) -> str:
        off = sorted(GATES.keys() - self.on)
        return f"Gates(off={off})"

    def updated(self, settings: Mapping[str, bool]) -> Gates:
        """These gates with some switched; takes gate names and the allocator's feature names."""
        on = set(self.on)
        for name, enabled in settings.items():
            for gate in ALIASES.get(name, (name,)):
                if gate not in GATES:
                    raise GateError(f"unknown feature gate {name!r}; known: {', '.join(sorted(GATES))}")
                (on.add if enabled else on.discard)(gate)
        return Gates(on)

    @staticmethod
    def parse(text: str, base: Gates) -> Gates:
        """``A=true,B=false`` on top of ``base``."""
        settings: dict[str, bool] = {}
        for part in filter(None, (piece.strip() for piece in text.split(","))):
            name, equals, value = part.partition("=")
            if not equals or value.lower() not in ("true", "false"):
                raise GateError(f"feature gate {part!r} must be written Name=true or Name=false")
            settings[name] = value.lower() == "true"
        return base.updated(settings)

    @staticmethod
    def upstream() -> Gates:
        return Gates(name for name, (default, _) in GATES.items() if default)

    @staticmethod
    def dray() -> Gates:
        return Gates(GATES.keys() - WITHOUT_EFFECT)


def _without_broken_dependencies(on: frozenset[str]) -> frozenset[str]:
    while True:
        kept = frozenset(name for name in on if all(needed in on for needed in GATES[name][1]))
        if kept == on:
            return kept
        on = kept
