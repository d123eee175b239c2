"""Binding conditions (KEP-5007): whether the devices of a claim are ready, have failed, or ran out of time.

Only the status of conditions counts, in the status of the very device (and share) that was allocated; a device without
status is not ready yet.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from dray.api.meta import Condition
from dray.api.reason import Reason
from dray.api.resource import AllocationResult, DeviceKey, DeviceRequestAllocationResult, ResourceClaim
from dray.api.times import parse_time

Readiness = Literal["ready", "pending", "failed", "timeout"]


class Verdict(msgspec.Struct, frozen=True):
    """``device`` with its ``condition`` is the first that stands in the way, ``devices`` are all that do."""

    readiness: Readiness
    device: DeviceKey | None = None
    condition: str = ""
    message: str = ""
    devices: tuple[DeviceKey, ...] = ()


READY = Verdict("ready")


def waits(claim: ResourceClaim) -> bool:
    """Whether the claim's allocation has binding conditions at all."""
    return claim.status.allocation is not None and has_any(claim.status.allocation)


def has_any(allocation: AllocationResult) -> bool:
    for result in allocation.devices.results:
        if result.binding_conditions:
            return True
    return False


def drivers(claim: ResourceClaim) -> set[str]:
    """Whose devices have to be ready before the claim can be used."""
    allocation = claim.status.allocation
    return (
        {result.driver for result in allocation.devices.results if result.binding_conditions} if allocation is not None else set()
    )


def deadline(claim: ResourceClaim, timeout: float, first_seen: float) -> float:
    """When the claim's devices must be ready; without a timestamp in the allocation, or with one that a clock ahead of ours
    wrote, counted from when it was first seen."""
    allocation = claim.status.allocation
    stamp = allocation.allocation_timestamp if allocation is not None else None
    return (min(parse_time(stamp), first_seen) if stamp else first_seen) + timeout


def judge(claim: ResourceClaim, now: float, due: float) -> Verdict:
    """The worst over all devices of the claim: failed, then timed out, then pending."""
    allocation = claim.status.allocation
    results = allocation.devices.results if allocation is not None else ()
    verdicts = [_judge_one(claim, result) for result in results if result.binding_conditions]
    for readiness in ("failed", "pending"):
        found = [verdict for verdict in verdicts if verdict.readiness == readiness]
        if found:
            late = readiness == "pending" and now >= due
            devices = tuple(verdict.device for verdict in found if verdict.device is not None)
            return msgspec.structs.replace(found[0], readiness="timeout" if late else readiness, devices=devices)
    return READY


def reason_for(claim: ResourceClaim, verdict: Verdict, timeout: float, node: str = "") -> Reason:
    """What is told of a device that failed or ran out of time."""
    assert verdict.device is not None
    data: dict[str, Any] = {"claim": claim.key, "driver": verdict.device.driver, "condition": verdict.condition}
    data |= {"message": verdict.message, "node": node}
    late = verdict.readiness == "timeout"
    if late:
        data["timeout"] = int(timeout) if timeout == int(timeout) else timeout
    told = {key: value for key, value in data.items() if value != ""}
    return Reason("BindingTimeout" if late else "BindingFailed", f"device/{verdict.device}", told)


def _judge_one(claim: ResourceClaim, result: DeviceRequestAllocationResult) -> Verdict:
    device = DeviceKey.of(result)
    conditions = reported(claim, result)
    for type in result.binding_failure_conditions:
        found = conditions.get(type)
        if found is not None and found.status == "True":
            return Verdict("failed", device, type, f"{found.reason}: {found.message}" if found.reason else found.message)
    for type in result.binding_conditions:
        found = conditions.get(type)
        if found is None or found.status != "True":
            return Verdict("pending", device, type)
    return READY


def reported(claim: ResourceClaim, result: DeviceRequestAllocationResult) -> dict[str, Condition]:
    """What is said of this very device or share, by type."""
    for status in claim.status.devices:
        if (status.driver, status.pool, status.device) != (result.driver, result.pool, result.device):
            continue
        if result.share_id is None or status.share_id is None or status.share_id == result.share_id:
            return {condition.type: condition for condition in status.conditions}
    return {}
