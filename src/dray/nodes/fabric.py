"""A demonstration of a fabric controller: it attaches devices that have binding conditions, and says so in the claim.

For each allocated device of its driver that has binding conditions it reports, after a while, all of them as True, or one of the
failure conditions, in ``status.devices``. A device never gets a second verdict for the same allocation. Where to attach it is in
the allocation's node selector, which names the node when the device has ``bindsToNode``. An attach succeeds unless an annotation
on the claim says otherwise:

- ``fabric.dray.dev/attach``: ``succeed``, ``fail`` or ``silence`` (the fabric never answers)
- ``fabric.dray.dev/attach-seconds``: how long it takes
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from dray.api.durations import seconds
from dray.api.kinds import RESOURCE_CLAIMS, Kind
from dray.api.resource import AllocatedDeviceStatus, DeviceRequestAllocationResult, ResourceClaim
from dray.api.times import format_time
from dray.cluster.port import Change, Write
from dray.cluster.world import World
from dray.controllers.keyed import Keyed
from dray.scheduling.plugins.node import names_in

HOW: Final = "fabric.dray.dev/attach"
SECONDS: Final = "fabric.dray.dev/attach-seconds"


class Fabric(Keyed):
    """The decider. Keys are ``namespace/name`` of claims. ``driver`` is whose devices it attaches."""

    name = "fabric"
    kinds: Sequence[Kind] = (RESOURCE_CLAIMS,)

    def __init__(self, world: World, *, driver: str = "fabric.dray.dev", attach_seconds: float = 3.0) -> None:
        super().__init__(world)
        self._driver, self._attach_seconds = driver, attach_seconds
        self._began: dict[str, tuple[str, float]] = {}  # claim -> allocation seen, and when

    def concerned(self, change: Change) -> Iterable[str]:
        return [change.object.key]

    def decide(self, key: str, now: float) -> list[Write]:
        claim: ResourceClaim | None = self.world.get(RESOURCE_CLAIMS, key)
        waiting = self._waiting(claim) if claim is not None else []
        if claim is None or not waiting:
            self._began.pop(key, None)
            return []
        how = claim.metadata.annotations.get(HOW, "succeed")
        due = self._since(claim, now) + self._takes(claim)
        if how == "silence":
            return []
        if now < due:
            self.look_at(key, due)
            return []
        return [self._verdict(claim, waiting, how == "fail", now)]

    def _waiting(self, claim: ResourceClaim) -> list[DeviceRequestAllocationResult]:
        """The devices of this driver that nobody has given a verdict on."""
        if claim.status.allocation is None:
            return []
        told = {
            (d.driver, d.pool, d.device, d.share_id): {c.type for c in d.conditions if c.status == "True"}
            for d in claim.status.devices
        }
        return [
            result
            for result in claim.status.allocation.devices.results
            if result.driver == self._driver and _undecided(result, told.get(_place(result), set()))
        ]

    def _since(self, claim: ResourceClaim, now: float) -> float:
        allocation = claim.status.allocation
        assert allocation is not None
        mark = f"{claim.uid} {allocation.allocation_timestamp} {[r.device for r in allocation.devices.results]}"
        known = self._began.get(claim.key)
        if known is None or known[0] != mark:
            known = self._began[claim.key] = (mark, now)
        return known[1]

    def _takes(self, claim: ResourceClaim) -> float:
        try:
            return seconds(claim.metadata.annotations.get(SECONDS, str(self._attach_seconds)))
        except ValueError:
            return self._attach_seconds

    def _verdict(self, claim: ResourceClaim, waiting: list[DeviceRequestAllocationResult], failed: bool, now: float) -> Write:
        """A JSON patch of exactly this version of the claim, so that what others report of their devices is not touched."""
        known = {(d.driver, d.pool, d.device, d.share_id): place for place, d in enumerate(claim.status.devices)}
        steps: list[dict[str, Any]] = []
        if not known:
            steps.append({"op": "add", "path": "/status/devices", "value": []})
        for result in waiting:
            conditions = _conditions(result, failed, _node(claim), now)
            place = known.get(_place(result))
            if place is None:
                steps.append({"op": "add", "path": "/status/devices/-", "value": _entry(result, conditions)})
            elif not claim.status.devices[place].conditions:
                steps.append({"op": "add", "path": f"/status/devices/{place}/conditions", "value": conditions})
            else:
                steps += _merged(claim.status.devices[place], f"/status/devices/{place}/conditions", conditions)
        metadata = claim.metadata
        return Write(
            "patch", RESOURCE_CLAIMS, metadata.namespace, metadata.name, steps, subresource="status", patch="json",
            uid=claim.uid, resource_version=metadata.resource_version,
        )  # fmt: skip


def _place(result: DeviceRequestAllocationResult) -> tuple[str, str, str, str | None]:
    return result.driver, result.pool, result.device, result.share_id


def _undecided(result: DeviceRequestAllocationResult, true: set[str]) -> bool:
    if not result.binding_conditions or true & set(result.binding_failure_conditions):
        return False
    return not set(result.binding_conditions) <= true


def _node(claim: ResourceClaim) -> str:
    """The node that the allocation is for, or '' where several will do."""
    selector = claim.status.allocation.node_selector if claim.status.allocation is not None else None
    names = names_in(selector) if selector is not None else None
    return next(iter(names)) if names is not None and len(names) == 1 else ""


def _conditions(result: DeviceRequestAllocationResult, failed: bool, node: str, now: float) -> list[dict[str, Any]]:
    types = result.binding_failure_conditions[:1] if failed else result.binding_conditions
    reason, message = (
        ("AttachFailed", "the fabric could not attach the device") if failed else ("Attached", "the device is attached")
    )
    message += f" to node {node}" if node else ""
    common = {"status": "True", "reason": reason, "message": message, "lastTransitionTime": format_time(now)}
    return [{"type": type, **common} for type in types]


def _merged(device: AllocatedDeviceStatus, path: str, conditions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A condition replaces the one of its type."""
    places = {condition.type: place for place, condition in enumerate(device.conditions)}
    return [
        {"op": "replace", "path": f"{path}/{places[new['type']]}", "value": new}
        if new["type"] in places
        else {"op": "add", "path": f"{path}/-", "value": new}
        for new in conditions
    ]


def _entry(result: DeviceRequestAllocationResult, conditions: list[dict[str, Any]]) -> dict[str, Any]:
    entry = {"driver": result.driver, "pool": result.pool, "device": result.device, "conditions": conditions}
    return {**entry, "shareID": result.share_id} if result.share_id else entry
