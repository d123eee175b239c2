"""A demonstration of a fabric controller: it attaches devices that have binding conditions, and says so in the claim.

For each allocated device of its drivers that has binding conditions it reports, after a while, all of them as True, or one of the
failure conditions, in ``status.devices``. A device never gets a second verdict for the same allocation. Where to attach it is in
the allocation's node selector, which names the node when the device has ``bindsToNode``. An attach succeeds unless an annotation
on the claim, or else on a slice of the device's pool, says otherwise:

- ``fabric.dray.dev/attach``: ``succeed``, ``fail`` or ``silence`` (the fabric never answers)
- ``fabric.dray.dev/attach-seconds``: how long it takes
- ``fabric.dray.dev/failure-percent``: so many of a hundred attaches fail; which ones follows from claim and device
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final

from dray.api.digits import whole
from dray.api.durations import seconds
from dray.api.kinds import RESOURCE_CLAIMS, RESOURCE_SLICES, Kind
from dray.api.resource import AllocatedDeviceStatus, DeviceRequestAllocationResult, ResourceClaim
from dray.api.times import format_time
from dray.cluster.port import Change, Write
from dray.cluster.world import World
from dray.controllers.keyed import Keyed
from dray.nodes.drivers import simulated_driver
from dray.scheduling.plugins.node import names_in

HOW: Final = "fabric.dray.dev/attach"
SECONDS: Final = "fabric.dray.dev/attach-seconds"
PERCENT: Final = "fabric.dray.dev/failure-percent"
FABRIC: Final = "fabric.dray.dev"
_WAYS: Final = ("succeed", "fail", "silence")

Place = tuple[str, str, str, str | None]  # driver, pool, device, share


class Fabric(Keyed):
    """The decider. Keys are ``namespace/name`` of claims. ``driver`` is whose devices it attaches; without one, those of all
    drivers that simulated hardware publishes."""

    name = "fabric"
    kinds: Sequence[Kind] = (RESOURCE_CLAIMS, RESOURCE_SLICES)

    def __init__(self, world: World, *, driver: str = "", attach_seconds: float = 3.0) -> None:
        super().__init__(world)
        self._driver, self._attach_seconds = driver, attach_seconds
        self._began: dict[str, tuple[str, float]] = {}  # claim -> allocation seen, and when
        self._pools = world.index(RESOURCE_SLICES, lambda slice_: (f"{slice_.spec.driver} {slice_.spec.pool.name}",))
        self._simulated = world.index(RESOURCE_SLICES, simulated_driver)

    def concerned(self, change: Change) -> Iterable[str]:
        return [change.object.key] if change.kind == RESOURCE_CLAIMS else []

    def decide(self, key: str, now: float) -> list[Write]:
        claim: ResourceClaim | None = self.world.get(RESOURCE_CLAIMS, key)
        waiting = self._waiting(claim) if claim is not None else []
        if claim is None or not waiting:
            self._began.pop(key, None)
            return []
        since = self._since(claim, now)
        due: list[DeviceRequestAllocationResult] = []
        for result in waiting:
            said = self._said_of(claim, result)
            self._tell(claim, said, now)
            at = since + self._takes(said)
            if said.get(HOW) == "silence":
                continue
            if now < at:
                self.look_at(key, at)
            else:
                due.append(result)
        failing = {_place(result) for result in due if _fails(claim, result, self._said_of(claim, result))}
        return [self._verdict(claim, due, failing, now)] if due else []

    def _serves(self, driver: str) -> bool:
        return driver == self._driver if self._driver else driver == FABRIC or bool(self._simulated[driver])

    def _said_of(self, claim: ResourceClaim, result: DeviceRequestAllocationResult) -> Mapping[str, str]:
        """The annotations that say how an attach goes: the claim's before the pool's."""
        said: dict[str, str] = {}
        for name in self._pools[f"{result.driver} {result.pool}"]:
            said |= self.world.get(RESOURCE_SLICES, name).metadata.annotations
        return said | claim.metadata.annotations

    def _waiting(self, claim: ResourceClaim) -> list[DeviceRequestAllocationResult]:
        """The devices of these drivers that nobody has given a verdict on."""
        if claim.status.allocation is None:
            return []
        told = {
            (d.driver, d.pool, d.device, d.share_id): {c.type for c in d.conditions if c.status == "True"}
            for d in claim.status.devices
        }
        return [
            result
            for result in claim.status.allocation.devices.results
            if self._serves(result.driver) and _undecided(result, told.get(_place(result), set()))
        ]

    def _since(self, claim: ResourceClaim, now: float) -> float:
        allocation = claim.status.allocation
        assert allocation is not None
        mark = f"{claim.uid} {allocation.allocation_timestamp} {[r.device for r in allocation.devices.results]}"
        known = self._began.get(claim.key)
        if known is None or known[0] != mark:
            known = self._began[claim.key] = (mark, now)
        return known[1]

    def _tell(self, claim: ResourceClaim, said: Mapping[str, str], now: float) -> None:
        """What cannot be read of how an attach is to go counts as not said, and people are told."""
        for wrong in _unreadable(said):
            self.say(self._recorder.warning(RESOURCE_CLAIMS, claim, "InvalidAnnotation", wrong, action="Attach", now=now))

    def _takes(self, said: Mapping[str, str]) -> float:
        try:
            return seconds(said.get(SECONDS, str(self._attach_seconds)))
        except ValueError:
            return self._attach_seconds

    def _verdict(
        self, claim: ResourceClaim, due: list[DeviceRequestAllocationResult], failing: Collection[Place], now: float
    ) -> Write:
        """A JSON patch of exactly this version of the claim, so that what others report of their devices is not touched."""
        known = {(d.driver, d.pool, d.device, d.share_id): place for place, d in enumerate(claim.status.devices)}
        steps: list[dict[str, Any]] = []
        if not known:
            steps.append({"op": "add", "path": "/status/devices", "value": []})
        for result in due:
            conditions = _conditions(result, _place(result) in failing, _node(claim), now)
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


def _place(result: DeviceRequestAllocationResult) -> Place:
    return result.driver, result.pool, result.device, result.share_id


def _unreadable(said: Mapping[str, str]) -> Iterator[str]:
    if (way := said.get(HOW, "succeed")) not in _WAYS:
        yield f"annotation {HOW}: {way!r} is not one of {', '.join(_WAYS)}"
    if whole(said.get(PERCENT, "0")) is None:
        yield f"annotation {PERCENT}: {said[PERCENT]!r} is not an integer"
    try:
        seconds(said.get(SECONDS, "0s"))
    except ValueError as error:
        yield f"annotation {SECONDS}: {error}"


def _fails(claim: ResourceClaim, result: DeviceRequestAllocationResult, said: Mapping[str, str]) -> bool:
    if HOW in said:
        return said[HOW] == "fail"
    lot = int.from_bytes(blake2b(f"{claim.uid} {_place(result)}".encode(), digest_size=4).digest(), "big") % 100
    return lot < (whole(said.get(PERCENT, "")) or 0)


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
