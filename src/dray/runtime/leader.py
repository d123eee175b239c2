"""Leader election with a Lease: of several instances one acts, and another takes over within seconds.

``Election`` is the rules without I/O: a candidate measures expiry from when it last saw the record change, on its own clock;
an empty holder can be taken at once; each write carries the resourceVersion that it is based on, so two cannot both win. That
clock goes on while the machine sleeps: whoever wakes knows that others may have taken over.
``Elector`` is the shell: it reads and writes the Lease until leadership is lost, and gives it back on shutdown.
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
import time
import uuid
from collections.abc import Callable
from typing import Any, Final

import msgspec

from dray.api.core import Lease
from dray.api.events import event_body
from dray.api.kinds import EVENTS, LEASES
from dray.api.meta import Object, ObjectMeta, decode
from dray.api.times import format_micro_time
from dray.cluster.port import Cluster, ClusterError, Forbidden, NotFound, Write

JITTER: Final = 1.2
HEALTH_SLACK_SECONDS: Final = 20.0

log = logging.getLogger(__name__)


class Settings(msgspec.Struct, frozen=True):
    """Names and times of an election. The times must satisfy duration > deadline > 1.2 x retry."""

    name: str
    namespace: str = "kube-system"
    lease_duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0

    def __post_init__(self) -> None:
        if not self.lease_duration > self.renew_deadline > self.retry_period * JITTER > 0:
            raise ValueError(
                f"leader election {self.name}: leaseDuration ({self.lease_duration}) must be larger than renewDeadline "
                f"({self.renew_deadline}), and that larger than {JITTER} x retryPeriod ({self.retry_period})"
            )


def awake_or_not() -> float:
    """Seconds that passed, those included in which the machine slept."""
    # Linux has a clock of its own for this. On macOS CLOCK_MONOTONIC goes on in sleep, and time.monotonic(), which is another
    # there, does not. On Windows, which has neither, it does.
    clock = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))
    return time.clock_gettime(clock) if clock is not None else time.monotonic()


class LeadershipLost(Exception):
    """Another instance may act now: this process must end."""


def new_identity() -> str:
    return f"{socket.gethostname()}_{uuid.uuid4()}"


class Election:
    """The state of one candidate. ``leading`` is what it may rely on until ``renewed`` plus the deadline."""

    def __init__(self, settings: Settings, identity: str) -> None:
        self.settings, self.identity = settings, identity
        self.leading = False
        self.renewed = float("-inf")
        self.current = False
        self._lease: Lease | None = None
        self._changed = float("-inf")

    @property
    def holder(self) -> str:
        return (self._lease.spec.holder_identity or "") if self._lease is not None else ""

    def saw(self, raw: dict[str, Any] | None, now: float) -> None:
        """The Lease as it is read; None where there is none."""
        lease = decode(Lease, raw) if raw is not None else None
        if lease is None or self._lease is None or lease.spec != self._lease.spec:
            self._changed = now
        self._lease = lease
        self.current = True

    def doubt(self) -> None:
        """A write failed: what is known may be old."""
        self.current = False

    def attempt(self, now: float, wall: float) -> Write | None:
        """The write that takes or keeps the lease; None while somebody else holds it."""
        lease = self._lease
        if lease is None:
            body = self._body(self._spec(wall, format_micro_time(wall), 0))
            return Write("create", LEASES, self.settings.namespace, self.settings.name, body)
        mine = self.holder == self.identity
        if self.holder and not mine and now < self._changed + (lease.spec.lease_duration_seconds or 0):
            return None
        transitions = lease.spec.lease_transitions or 0
        acquired = lease.spec.acquire_time if mine and lease.spec.acquire_time else format_micro_time(wall)
        return self._update(self._spec(wall, acquired, transitions if mine else transitions + 1))

    def won(self, raw: dict[str, Any], now: float) -> None:
        self.saw(raw, now)
        self.leading, self.renewed = True, now

    def overdue(self, now: float) -> bool:
        return self.leading and now >= self.renewed + self.settings.renew_deadline

    def unhealthy(self, now: float) -> bool:
        """A leader that has not renewed for so long must have stopped acting long ago; standbys are healthy."""
        return self.leading and now > self.renewed + self.settings.lease_duration + HEALTH_SLACK_SECONDS

    def release(self, wall: float) -> Write | None:
        """Gives the lease back, so that nobody has to wait for it to expire."""
        if self._lease is None or self.holder != self.identity:
            return None
        spec = self._spec(wall, format_micro_time(wall), self._lease.spec.lease_transitions or 0)
        return self._update({**spec, "holderIdentity": "", "leaseDurationSeconds": 1})

    def _spec(self, wall: float, acquired: str, transitions: int) -> dict[str, Any]:
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": max(1, round(self.settings.lease_duration)),
            "acquireTime": acquired,
            "renewTime": format_micro_time(wall),
            "leaseTransitions": transitions,
        }

    def _body(self, spec: dict[str, Any]) -> dict[str, Any]:
        metadata = {"name": self.settings.name, "namespace": self.settings.namespace}
        return {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": metadata, "spec": spec}

    def _update(self, spec: dict[str, Any]) -> Write:
        assert self._lease is not None
        version = self._lease.metadata.resource_version
        return Write("patch", LEASES, self.settings.namespace, self.settings.name, {"spec": spec}, resource_version=version)


class Elector:
    """Takes part in an election until cancelled. ``on_change`` is called when leadership is won."""

    def __init__(
        self,
        cluster: Cluster,
        settings: Settings,
        *,
        identity: str = "",
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self.election = Election(settings, identity or new_identity())
        self._cluster, self._on_change = cluster, on_change
        # Why the lease cannot be taken or renewed, while it cannot.
        self._trouble = ""

    @property
    def leading(self) -> bool:
        return self.election.leading and not self.election.overdue(awake_or_not())

    def health(self) -> str | None:
        """None, or why this instance is not healthy."""
        return "leader has not renewed its lease" if self.election.unhealthy(awake_or_not()) else None

    async def run(self) -> None:
        """Acquire, then renew. Raises LeadershipLost; gives the lease back when cancelled."""
        try:
            await self._acquire()
            await self._renew()
        finally:
            if self.election.leading:
                self.election.leading = False
                await asyncio.shield(self._release())

    async def _acquire(self) -> None:
        settings = self.election.settings
        period, known = settings.retry_period, ""
        while not await self._try(settings.renew_deadline):
            if self.election.holder not in ("", known, self.election.identity):
                known = self.election.holder
                log.info("another instance is the leader, waiting", extra={"lease": settings.name, "holder": known})
            await asyncio.sleep(period * random.uniform(1.0, JITTER))
        log.info("became leader", extra={"lease": settings.name, "identity": self.election.identity})
        self._on_change()
        await self._tell("became leader")

    async def _renew(self) -> None:
        settings = self.election.settings
        while True:
            await asyncio.sleep(settings.retry_period)
            left = self.election.renewed + settings.renew_deadline - awake_or_not()
            await self._try(max(left, 0.01))
            now = awake_or_not()
            if self.election.overdue(now) or self.election.holder not in ("", self.election.identity):
                self.election.leading = False
                await self._tell("stopped leading")
                raise LeadershipLost(self._lost())

    async def _try(self, seconds: float) -> bool:
        election = self.election
        try:
            async with asyncio.timeout(seconds):
                if not (election.leading and election.current):
                    election.saw(await self._read(), awake_or_not())
                started = awake_or_not()
                write = election.attempt(started, time.time())
                if write is None:
                    self._trouble = ""
                    return False
                election.won(await self._cluster.write(write), started)
                self._trouble = ""
                return True
        except (ClusterError, TimeoutError) as error:
            election.doubt()
            said, self._trouble = self._trouble, str(error) or self._trouble or f"no answer in {seconds:.3g} seconds"
            log.log(
                self._urgency(error, said), "failed to acquire or renew the lease",
                extra={"lease": election.settings.name, "error": self._trouble},
            )  # fmt: skip
            return False

    def _urgency(self, error: Exception, said: str) -> int:
        """A leader ends when this goes on. Who waits for the lease has time, and says the same once; a right that it lacks it
        will lack until somebody grants it."""
        if self.election.leading:
            return logging.WARNING
        if said == self._trouble:
            return logging.DEBUG
        return logging.WARNING if isinstance(error, Forbidden) else logging.INFO

    def _lost(self) -> str:
        settings, holder = self.election.settings, self.election.holder
        taken = holder not in ("", self.election.identity)
        why = (
            f"it is held by {holder}"
            if taken
            else f"it was not renewed for {settings.renew_deadline:g} seconds ({self._trouble})"
        )
        return (
            f"{self.election.identity} lost the lease {settings.namespace}/{settings.name}: {why}; another instance may lead now"
        )

    async def _read(self) -> dict[str, Any] | None:
        try:
            return await self._cluster.get(LEASES, self.election.settings.namespace, self.election.settings.name)
        except NotFound:
            return None

    async def _release(self) -> None:
        await self._tell("stopped leading")
        write = self.election.release(time.time())
        if write is None:
            return
        try:
            async with asyncio.timeout(self.election.settings.retry_period):
                await self._cluster.write(write)
        except (ClusterError, TimeoutError) as error:
            log.warning("failed to release the lease", extra={"lease": write.name, "error": str(error) or "no answer in time"})

    async def _tell(self, what: str) -> None:
        settings = self.election.settings
        lease = Object(metadata=ObjectMeta(name=settings.name, namespace=settings.namespace))
        body = event_body(
            LEASES, lease, now=time.time(), type="Normal", reason="LeaderElection", action="LeaderElection",
            note=f"{self.election.identity} {what}", controller=settings.name, instance=self.election.identity,
        )  # fmt: skip
        try:
            async with asyncio.timeout(settings.retry_period):
                await self._cluster.write(Write("create", EVENTS, settings.namespace, body["metadata"]["name"], body))
        except (ClusterError, TimeoutError) as error:
            log.info("failed to write the leader election event", extra={"error": str(error) or "no answer in time"})
