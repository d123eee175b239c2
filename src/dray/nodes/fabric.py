"""A demonstration of a fabric controller: it attaches devices that have binding conditions, and says so in the claim.

For each allocated device whose result carries one of its conditions it reports, after a while, the condition that means success
or the one that means failure, in ``status.devices``. A device never gets a second verdict for the same allocation. An attach
succeeds unless an annotation on the claim says otherwise:

- ``fabric.dray.dev/attach``: ``succeed``, ``fail`` or ``silence`` (the fabric never answers)
- ``fabric.dray.dev/attach-seconds``: how long it takes
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from dray.api.durations import seconds
from dray.api.kinds import RESOURCE_CLAIMS, Kind
from dray.api.resource import DeviceRequestAllocationResult, ResourceClaim
from dray.api.times import format_time
from dray.cluster.port import Change, Write
from dray.cluster.world import World
from dray.controllers.keyed import Keyed
from dray.nodes.hardware import ATTACH_FAILED, ATTACHED

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
        condition = ATTACH_FAILED if how == "fail" else ATTACHED
        return [self._verdict(claim, waiting, condition, now)]

    def _waiting(self, claim: ResourceClaim) -> list[DeviceRequestAllocationResult]:
        """The devices of this driver that nobody has given a verdict on."""
        if claim.status.allocation is None:
            return []
        told = {
            (d.driver, d.pool, d.device, d.share_id)
            for d in claim.status.devices
            if any(c.type in (ATTACHED, ATTACH_FAILED) and c.status == "True" for c in d.conditions)
        }
        return [
            result
            for result in claim.status.allocation.devices.results
            if result.driver == self._driver
            and ATTACHED in result.binding_conditions
            and (result.driver, result.pool, result.device, result.share_id) not in told
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

    def _verdict(self, claim: ResourceClaim, waiting: list[DeviceRequestAllocationResult], type: str, now: float) -> Write:
        """A JSON patch of exactly this version of the claim, so that what others report of their devices is not touched."""
        known = {(d.driver, d.pool, d.device, d.share_id): place for place, d in enumerate(claim.status.devices)}
        steps: list[dict[str, Any]] = []
        if not known:
            steps.append({"op": "add", "path": "/status/devices", "value": []})
        for result in waiting:
            entry = _entry(result, type, now)
            place = known.get((result.driver, result.pool, result.device, result.share_id))
            if place is None:
                steps.append({"op": "add", "path": "/status/devices/-", "value": entry})
            elif claim.status.devices[place].conditions:
                path = f"/status/devices/{place}/conditions/-"
                steps.append({"op": "add", "path": path, "value": entry["conditions"][0]})
            else:
                steps.append({"op": "add", "path": f"/status/devices/{place}/conditions", "value": entry["conditions"]})
        metadata = claim.metadata
        return Write(
            "patch", RESOURCE_CLAIMS, metadata.namespace, metadata.name, steps, subresource="status", patch="json",
            uid=claim.uid, resource_version=metadata.resource_version,
        )  # fmt: skip


def _entry(result: DeviceRequestAllocationResult, type: str, now: float) -> dict[str, Any]:
    attached = type == ATTACHED
    condition = {
        "type": type,
        "status": "True",
        "reason": "Attached" if attached else "AttachFailed",
        "message": "the fabric attached the device" if attached else "the fabric could not attach the device",
        "lastTransitionTime": format_time(now),
    }
    entry = {"driver": result.driver, "pool": result.pool, "device": result.device, "conditions": [condition]}
    return {**entry, "shareID": result.share_id} if result.share_id else entry
