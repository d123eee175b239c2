"""What a simulated driver looks at before it prepares a device: whether it can be used beside what is in use (KEP-5963).

A scheduler that knows compatibility groups never asks for what cannot be. One that does not, or may not, can: then the driver
refuses, as long as the other devices are in use.

A driver knows the groups of its devices whether or not the server keeps them: simulated hardware carries them in an annotation
of its slices too. Always true: what runs is not refused, also when a kubelet or the driver starts again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from dray.api.kinds import PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from dray.api.resource import Device, DeviceRequestAllocationResult, ResourceClaim, ResourceSlice
from dray.cluster.world import World

# On a slice: the groups of its devices by counter set, as {"device": {"set": ["group"]}}.
GROUPS: Final = "dray.dev/compatibility-groups"

Groups = Mapping[str, tuple[str, ...]]  # by counter set
_Known = dict[str, dict[str, tuple[str, ...]]]  # by device and counter set


def remembered(devices: list[dict[str, Any]]) -> str:
    """The annotation for these devices; empty where none has groups."""
    groups = {
        device["name"]: {entry["counterSet"]: entry["compatibilityGroups"] for entry in entries}
        for device in devices
        if (entries := [each for each in device.get("consumesCounters") or () if each.get("compatibilityGroups")])
    }
    return msgspec.json.encode(groups).decode() if groups else ""


class Exclusion:
    def __init__(self, world: World) -> None:
        self._world = world
        self._slices = world.index(RESOURCE_SLICES, lambda slice_: (_pool(slice_.spec.driver, slice_.spec.pool.name),))
        self._claims = world.index(RESOURCE_CLAIMS, _pools)
        self._held: set[tuple[str, str]] = set()  # driver and uid of the claim

    def hold(self, driver: str, uid: str) -> None:
        """The driver has prepared the claim."""
        self._held.add((driver, uid))

    def release(self, driver: str, uid: str) -> None:
        self._held.discard((driver, uid))

    def refusal(self, driver: str, claim: ResourceClaim) -> str:
        """Why the driver cannot prepare its devices of the claim now; empty if it can."""
        if self._in_use(driver, claim):
            return ""
        mine = list(_results(claim, driver))
        for place, result in enumerate(mine):
            offered = self._groups(result)
            if offered and (why := self._clash(claim, result, offered, mine[:place])):
                return why
        return ""

    def _clash(
        self,
        claim: ResourceClaim,
        result: DeviceRequestAllocationResult,
        offered: Groups,
        before: list[DeviceRequestAllocationResult],
    ) -> str:
        beside = [
            (each.device, self._groups(each)) for each in (*self._others(claim, result), *before) if each.pool == result.pool
        ]
        for name, groups in offered.items():
            there = {device: found[name] for device, found in beside if name in found}
            if not there or not any((groups, *there.values())):
                continue
            if not set(groups).intersection(*there.values()):
                used = "; ".join(f"{device}: {_listed(found)}" for device, found in sorted(there.items())[:3])
                return f"device {result.device} ({_listed(groups)}) is incompatible with others of counter set {name} ({used})"
        return ""

    def _others(self, claim: ResourceClaim, result: DeviceRequestAllocationResult) -> Iterator[DeviceRequestAllocationResult]:
        """What other claims have in use of the pool."""
        for key in sorted(self._claims[_pool(result.driver, result.pool)]):
            other: ResourceClaim | None = self._world.get(RESOURCE_CLAIMS, key)
            if other is not None and other.uid != claim.uid and self._in_use(result.driver, other):
                yield from _results(other, result.driver)

    def _in_use(self, driver: str, claim: ResourceClaim) -> bool:
        """Prepared by this driver, or by the one that ran before it: a pod with the claim runs."""
        if (driver, claim.uid) in self._held:
            return True
        for user in claim.status.reserved_for:
            pod = self._world.get(PODS, f"{claim.metadata.namespace}/{user.name}") if user.resource == "pods" else None
            if pod is not None and pod.uid == user.uid and pod.status.phase == "Running":
                return True
        return False

    def _groups(self, result: DeviceRequestAllocationResult) -> Groups:
        """The groups of a device: as published, else as its hardware has them, else as they were when it was allocated."""
        for key in sorted(self._slices[_pool(result.driver, result.pool)]):
            slice_: ResourceSlice | None = self._world.get(RESOURCE_SLICES, key)
            for device in slice_.spec.devices if slice_ is not None else ():
                if device.name == result.device and slice_ is not None:
                    return _published(device) or {**_consumed(device), **_annotated(slice_).get(device.name, {})}
        return result.recorded_groups


def _pool(driver: str, pool: str) -> str:
    return f"{driver} {pool}"


def _pools(claim: ResourceClaim) -> set[str]:
    allocation = claim.status.allocation
    return {_pool(each.driver, each.pool) for each in allocation.devices.results} if allocation is not None else set()


def _results(claim: ResourceClaim, driver: str) -> Iterator[DeviceRequestAllocationResult]:
    """What the claim has for itself of a driver; who only looks on takes nothing from others."""
    allocation = claim.status.allocation
    for result in allocation.devices.results if allocation is not None else ():
        if result.driver == driver and not result.admin_access:
            yield result


def _consumed(device: Device) -> dict[str, tuple[str, ...]]:
    return {entry.counter_set: entry.compatibility_groups for entry in device.consumes_counters}


def _published(device: Device) -> Groups:
    """Nothing where no set of the device has groups: the server may have dropped them."""
    groups = _consumed(device)
    return groups if any(groups.values()) else {}


def _annotated(slice_: ResourceSlice) -> _Known:
    """An annotation that somebody wrote by hand may be anything."""
    try:
        return msgspec.json.decode(slice_.metadata.annotations.get(GROUPS) or "{}", type=_Known)
    except msgspec.DecodeError:
        return {}


def _listed(groups: tuple[str, ...]) -> str:
    return ", ".join(groups) or "no group"
