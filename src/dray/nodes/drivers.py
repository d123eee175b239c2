"""The drivers of a node, as a kubelet sees them: prepare a claim's devices, unprepare them, say how healthy a device is.

``Drivers`` is the seam. A driver is asked the same question again until it answers, so an answer may take its time without
anybody waiting for it: ``Simulated`` answers on its own clock, ``dray.nodes.sockets`` when a program on a socket does.

Always true: asking the same again before the answer came starts nothing new, and an answer is given out once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, Protocol

import msgspec

from dray.api.durations import seconds
from dray.api.kinds import RESOURCE_CLAIMS, RESOURCE_SLICES
from dray.api.resource import ResourceClaim, ResourceSlice
from dray.cluster.world import World
from dray.nodes.exclusion import Exclusion
from dray.nodes.faults import SIMULATED, fault_of

PREPARE: Final = "dray.dev/prepare"
_WAYS: Final = ("succeed", "fail", "silence")
UNPREPARE: Final = "dray.dev/unprepare"
PREPARE_SECONDS: Final = "dray.dev/prepare-seconds"

# How long a kubelet waits for a driver's answer.
CALL_SECONDS: Final = 45.0

Operation = Literal["prepare", "unprepare"]
HealthStatus = Literal["Healthy", "Unhealthy", "Unknown"]


class ClaimName(msgspec.Struct, frozen=True, order=True):
    """What a driver is told of a claim; the rest it reads from the API."""

    namespace: str
    name: str
    uid: str

    @classmethod
    def of(cls, claim: ResourceClaim) -> ClaimName:
        return cls(claim.metadata.namespace, claim.metadata.name, claim.uid)

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class PreparedDevice(msgspec.Struct, frozen=True):
    """A device that a driver made ready; ``requests`` are those of the claim that it was allocated for, none for all."""

    pool: str
    device: str
    requests: tuple[str, ...] = ()
    cdi_ids: tuple[str, ...] = ()
    share: str | None = None


class Done(msgspec.Struct, frozen=True):
    """What a driver answered for one claim: its devices, or what went wrong."""

    devices: tuple[PreparedDevice, ...] = ()
    error: str = ""


class Health(msgspec.Struct, frozen=True):
    status: HealthStatus = "Unknown"
    message: str = ""


class NotYet(msgspec.Struct, frozen=True):
    """No answer yet. ``until``: when to ask again; None where the answer announces itself."""

    until: float | None = None


class Failed(msgspec.Struct, frozen=True):
    """The call as a whole failed; ``code`` is gRPC's name for how."""

    error: str
    code: str = "Unknown"


Answer = Mapping[str, Done] | Failed | NotYet  # by uid of the claim


class Drivers(Protocol):
    def serves(self, node: str, driver: str) -> bool:
        """Whether the driver is registered on the node."""

    def call(self, operation: Operation, node: str, driver: str, claims: Sequence[ClaimName], now: float) -> Answer:
        """Prepare or unprepare the driver's devices of some claims."""

    def health(self, node: str, driver: str, pool: str, device: str) -> Health | None:
        """How a device is, where the driver says so."""


class Simulated:
    """Drivers for everything: a claim's devices are prepared as they were allocated.

    How long it takes and how it ends is set with annotations on the claim: ``dray.dev/prepare`` and ``dray.dev/unprepare`` are
    ``succeed``, ``fail`` or ``silence`` (never answered), ``dray.dev/prepare-seconds`` is how long preparing takes. What the
    hardware cannot do beside what is in use is refused.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._began: dict[tuple[Operation, str, str, tuple[ClaimName, ...]], float] = {}
        self._slices = world.index(RESOURCE_SLICES, _pool_key)
        self._published = world.index(RESOURCE_SLICES, simulated_driver)
        self._exclusion = Exclusion(world)

    def publishes(self, driver: str) -> bool:
        """Whether simulated hardware has devices of the driver."""
        return bool(self._published[driver])

    def serves(self, node: str, driver: str) -> bool:
        return True

    def call(self, operation: Operation, node: str, driver: str, claims: Sequence[ClaimName], now: float) -> Answer:
        found = [self._claim(name) for name in claims]
        mark = (operation, node, driver, tuple(claims))
        ways = {_annotation(claim, PREPARE if operation == "prepare" else UNPREPARE) for claim in found}
        takes = max(map(_takes, found), default=0.0) if operation == "prepare" else 0.0
        silent = "silence" in ways or takes >= CALL_SECONDS
        due = self._began.setdefault(mark, now) + (CALL_SECONDS if silent else takes)
        if now < due:
            return NotYet(due)
        del self._began[mark]
        if silent:
            return Failed("rpc error: code = DeadlineExceeded desc = context deadline exceeded")
        return {name.uid: self._outcome(operation, driver, name, claim) for name, claim in zip(claims, found)}

    def _outcome(self, operation: Operation, driver: str, name: ClaimName, claim: ResourceClaim | None) -> Done:
        done = _outcome(operation, driver, claim)
        if done.error:
            return done
        if operation == "unprepare":
            self._exclusion.release(driver, name.uid)
        elif claim is not None:
            if why := self._exclusion.refusal(driver, claim):
                return Done(error=why)
            self._exclusion.hold(driver, name.uid)
        return done

    def health(self, node: str, driver: str, pool: str, device: str) -> Health | None:
        for key in self._slices[f"{driver} {pool}"]:
            slice_: ResourceSlice | None = self._world.get(RESOURCE_SLICES, key)
            fault = fault_of(slice_, device) if slice_ is not None else None
            if fault is not None:
                return Health("Unhealthy", fault.message)
        return Health("Healthy")

    def _claim(self, name: ClaimName) -> ResourceClaim | None:
        claim: ResourceClaim | None = self._world.get(RESOURCE_CLAIMS, name.key)
        return claim if claim is not None and claim.uid == name.uid else None


def _pool_key(slice_: ResourceSlice) -> tuple[str, ...]:
    return (f"{slice_.spec.driver} {slice_.spec.pool.name}",)


def simulated_driver(slice_: ResourceSlice) -> tuple[str, ...]:
    return (slice_.spec.driver,) if slice_.metadata.labels.get(SIMULATED) == "true" else ()


def _annotation(claim: ResourceClaim | None, name: str) -> str:
    return claim.metadata.annotations.get(name, "") if claim is not None else ""


def _takes(claim: ResourceClaim | None) -> float:
    try:
        return seconds(_annotation(claim, PREPARE_SECONDS) or "0s")
    except ValueError:
        return 0.0


def _unreadable(claim: ResourceClaim) -> str:
    """What people wrote of how preparing goes and nobody can read: better told than done otherwise."""
    if (way := _annotation(claim, PREPARE)) not in ("", *_WAYS):
        return f"annotation {PREPARE}: {way!r} is not one of {', '.join(_WAYS)}"
    try:
        seconds(_annotation(claim, PREPARE_SECONDS) or "0s")
    except ValueError as error:
        return f"annotation {PREPARE_SECONDS}: {error}"
    return ""


def _outcome(operation: Operation, driver: str, claim: ResourceClaim | None) -> Done:
    if operation == "unprepare":
        return Done(error="the device does not respond") if _annotation(claim, UNPREPARE) == "fail" else Done()
    if claim is None or claim.status.allocation is None:
        return Done(error="the claim is gone or not allocated")
    if wrong := _unreadable(claim):
        return Done(error=wrong)
    if _annotation(claim, PREPARE) == "fail":
        return Done(error="the device cannot be prepared")
    return Done(
        tuple(
            PreparedDevice(r.pool, r.device, (r.request.split("/")[0],), (_cdi_id(r.driver, r.pool, r.device),), r.share_id)
            for r in claim.status.allocation.devices.results
            if r.driver == driver
        )
    )


def _cdi_id(driver: str, pool: str, device: str) -> str:
    """``vendor/class=name``; a name in CDI has no slash."""
    return f"{driver}/device={pool.replace('/', '_')}-{device}"
