"""Taints of devices that a claim holds (KEP-5055): whether it tolerates all of them, as they are just now."""

from __future__ import annotations

from collections.abc import Callable

from dray.api.reason import Reason
from dray.api.resource import AllocationResult, DeviceKey, DeviceTaint, ResourceClaim
from dray.api.tolerations import blocks, evicts, refused_taint
from dray.devices.inventory import Inventory


def tainted(
    inventory: Inventory, claim: str, allocation: AllocationResult, now: float, concerns: Callable[[DeviceTaint], bool] = blocks
) -> Reason | None:
    """The first taint of those ``concerns`` that the allocation of a claim does not tolerate."""
    for result in allocation.devices.results:
        device = DeviceKey.of(result)
        found = (taint for taint in inventory.taints_now(device) if concerns(taint))
        refused = refused_taint(found, result.tolerations, now)
        if refused is not None:
            return Reason("ClaimTainted", f"claim/{claim}", {"device": str(device), **refused[1]})
    return None


def must_be_left(inventory: Inventory, claim: ResourceClaim, now: float) -> Reason | None:
    """A taint that would evict a pod as soon as it is bound with the claim."""
    allocation = claim.status.allocation
    return tainted(inventory, claim.key, allocation, now, evicts) if allocation is not None else None
