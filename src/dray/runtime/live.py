"""The live shell: one World, many deciders, a real clock and a real cluster.

Always true: a decider sees a change only after the World shows it; the writes of one object are sent in the order in which
they were decided, each after the answer to the one before; writes of different objects overlap, up to ``in_flight``, and
those that go on with something are sent before those that begin something; each write is attempted once and its outcome goes
to the decider that asked for it. A decider that raises ends the shell: what it would do next cannot be trusted, and a restart
resumes from what the API shows.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from dray.api.kinds import CUSTOM_RESOURCE_DEFINITIONS, Kind
from dray.cluster.custom import CustomKinds, Followed, Follower
from dray.cluster.port import (
    Change,
    Cluster,
    ClusterError,
    Conflict,
    Decider,
    Event,
    NotFound,
    Outcome,
    WatchEvent,
    Write,
)
from dray.cluster.reflector import ADVISORY, Listed, Reflector
from dray.cluster.world import World
from dray.runtime.metrics import Metrics
from dray.runtime.picture import apply_answer
from dray.runtime.steady import Steady
from dray.runtime.stories import Stories

IN_FLIGHT: Final = 32

log = logging.getLogger(__name__)


class DeciderFailed(Exception):
    """A decider raised: a bug in Dray. The process should end with this and be started again."""


class _Job:
    """One decided write on its way."""

    __slots__ = ("by", "decided", "write")

    def __init__(self, by: Decider, write: Write, decided: float) -> None:
        self.by, self.write, self.decided = by, write, decided


class Live:
    """Runs deciders until it is stopped. ``leading`` says whether they may act; standbys keep their picture warm."""

    def __init__(
        self,
        cluster: Cluster,
        world: World,
        deciders: Sequence[Decider],
        *,
        in_flight: int = IN_FLIGHT,
        leading: Callable[[], bool] = lambda: True,
        stories: Stories | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self._cluster, self._world, self._deciders = cluster, world, list(deciders)
        self._clock, self._leading = Steady(), leading
        self._stories, self._metrics = stories, metrics or Metrics()
        self._by_kind: dict[Kind, list[Decider]] = {kind: [] for kind in world.kinds}
        for decider in deciders:
            for kind in decider.kinds:
                self._by_kind[kind].append(decider)
        self._counted = {kind: self._metrics.events.labels(kind.resource) for kind in world.kinds}
        self._pending: deque[tuple[Kind, Listed | WatchEvent]] = deque()
        self._ended: deque[tuple[_Job, Outcome]] = deque()
        self._unlisted = set(world.kinds)
        self._stirred = set(self._deciders_by_id())
        self._queues = _Writes(self._send, in_flight, leading)
        self._followers = [decider for decider in deciders if isinstance(decider, Follower)]
        self._custom = CustomKinds(world)
        self._reflecting: dict[Kind, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None
        self._woken = asyncio.Event()
        self._stopping = False
        self.listed = asyncio.Event()

    @property
    def synced(self) -> bool:
        """Every kind has been listed completely."""
        return not self._unlisted

    @property
    def missing(self) -> list[str]:
        """The kinds that are not listed yet."""
        return sorted(kind.resource for kind in self._unlisted)

    def stop(self) -> None:
        """End ``run`` once the writes that are under way have been answered; what is only decided is not sent."""
        self._stopping = True
        self._queues.open = False
        self._woken.set()

    def stir(self) -> None:
        """Look again whether there is something to do: leadership changed."""
        self._stirred = set(self._deciders_by_id())
        self._woken.set()

    async def run(self) -> None:
        """Mirror, decide and write until ``stop``. Raises DeciderFailed when a decider raises."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                for kind in self._world.kinds:
                    self._reflect(kind)
                await self._loop(group)
                for task in self._reflecting.values():
                    task.cancel()
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None

    def _reflect(self, kind: Kind) -> None:
        assert self._group is not None
        run = Reflector(self._cluster, kind, self._receive).run()
        self._reflecting[kind] = self._group.create_task(run, name=f"reflect {kind.resource}")

    # ------------------------------------------------------------------------------------------ kinds that come and go

    def _define(self, change: Change, now: float) -> None:
        """A definition changed: those who look after every kind get to know the one that it brings or brought."""
        gone, come = self._custom.changed(change)
        if gone is not None:
            self._unfollow(gone, now)
        if come is not None:
            self._follow(come, now)

    def _follow(self, followed: Followed, now: float) -> None:
        kind = followed.kind
        self._world.follow(kind)
        told = self._by_kind.setdefault(kind, [])
        self._counted.setdefault(kind, self._metrics.events.labels(kind.resource))
        for decider in self._followers:
            decider.follow(kind, followed.api_versions)
            if decider not in told:
                told.append(decider)
        if followed.own:
            self._reflect(kind)
        else:
            for known in list(self._world.all(kind).values()):
                self._tell([Change(kind, None, known)], now)

    def _unfollow(self, followed: Followed, now: float) -> None:
        kind = followed.kind
        if not followed.own:
            return
        self._reflecting.pop(kind).cancel()
        self._tell(self._world.replace(kind, ()), now)
        for decider in self._followers:
            decider.unfollow(kind)
        del self._by_kind[kind]
        self._world.drop(kind)

    # ---------------------------------------------------------------------------------------------------- the loop

    async def _loop(self, group: asyncio.TaskGroup) -> None:
        while True:
            self._woken.clear()
            self._drain()
            if self._stopping:
                if not self._queues.in_flight:
                    return
            elif self.synced and self._leading():
                self._act()
                self._queues.start(group)
            await self._sleep()

    async def _sleep(self) -> None:
        due = self._next_wake()
        if self._woken.is_set() or (due is not None and due <= self._clock()):
            # There is more to do, but answers and events get their turn first.
            await asyncio.sleep(0)
            return
        timer = None
        if due is not None:
            timer = asyncio.get_running_loop().call_later(due - self._clock(), self._woken.set)
        await self._woken.wait()
        if timer is not None:
            timer.cancel()

    def _next_wake(self) -> float | None:
        if self._stopping or not self.synced or not self._leading():
            return None
        return min((wake for decider in self._deciders if (wake := decider.wake()) is not None), default=None)

    def _act(self) -> None:
        now = self._clock()
        for decider in self._deciders:
            wake = decider.wake()
            if id(decider) not in self._stirred and (wake is None or wake > now):
                continue
            self._stirred.discard(id(decider))
            started = time.perf_counter()
            try:
                writes = decider.act(now)
            except Exception as error:
                raise DeciderFailed(f"{decider.name} raised while deciding: {error!r}") from error
            self._metrics.act_seconds.labels(decider.name).observe(time.perf_counter() - started)
            for write in writes:
                self._queues.add(_Job(decider, write, now))
                if self._stories is not None:
                    self._stories.written(write, decider.name, now)
        self._metrics.waiting.set(self._queues.waiting)

    # ------------------------------------------------------------------------------------------------ what comes in

    def _receive(self, kind: Kind, item: Listed | WatchEvent) -> None:
        self._pending.append((kind, item))
        self._woken.set()

    def _drain(self) -> None:
        now = self._clock()
        while self._pending or self._ended:
            while self._pending:
                self._apply(*self._pending.popleft(), now)
            if self._ended:
                self._finish(*self._ended.popleft(), now)

    def _apply(self, kind: Kind, item: Listed | WatchEvent, now: float) -> None:
        if kind not in self._by_kind:
            return
        if isinstance(item, Listed):
            changes = self._world.replace(kind, item.raws, item.resource_version)
            self._unlisted.discard(kind)
            if self.synced:
                self.listed.set()
            self._metrics.relists.labels(kind.resource).inc()
            if kind in ADVISORY:
                self._metrics.forbidden.labels(kind.resource).set(item.forbidden)
        elif item.type == "DELETED":
            changes = self._world.remove(kind, item.raw)
        else:
            changes = self._world.put(kind, item.raw)
        if changes:
            self._counted[kind].inc(len(changes))
        self._tell(changes, now)

    def _finish(self, job: _Job, outcome: Outcome, now: float) -> None:
        if outcome.object is not None:
            self._tell(apply_answer(self._world, job.write, outcome.object), now)
        if outcome.error is not None:
            _log_failure(job, outcome.error)
        self._metrics.wrote(job.by.name, outcome, now - job.decided)
        if self._stories is not None:
            self._stories.ended(outcome, job.by.name, now)
        self._observe(job.by, outcome, now)

    def _tell(self, changes: Sequence[Change], now: float) -> None:
        for change in changes:
            if self._stories is not None:
                self._stories.seen(change, now)
            for decider in self._by_kind[change.kind]:
                self._observe(decider, change, now)
            if change.kind == CUSTOM_RESOURCE_DEFINITIONS and self._followers:
                self._define(change, now)

    def _observe(self, decider: Decider, event: Event, now: float) -> None:
        self._stirred.add(id(decider))
        try:
            decider.observe(event, now)
        except Exception as error:
            raise DeciderFailed(f"{decider.name} raised while observing {_what(event)}: {error!r}") from error

    def _deciders_by_id(self) -> list[int]:
        return [id(decider) for decider in self._deciders]

    # ----------------------------------------------------------------------------------------------- what goes out

    async def _send(self, job: _Job) -> None:
        try:
            outcome = Outcome(job.write, object=await self._cluster.write(job.write))
        except ClusterError as error:
            outcome = Outcome(job.write, error=error)
        self._metrics.in_flight.set(self._queues.in_flight - 1)
        self._ended.append((job, outcome))
        self._woken.set()


class _Writes:
    """Writes waiting and under way: in order for one object, beside each other for different ones. What was begun has few more
    writes to come, so those that begin something get their turn."""

    def __init__(self, send: Callable[[_Job], Awaitable[None]], limit: int, leading: Callable[[], bool]) -> None:
        self._send, self._limit, self._leading = send, limit, leading
        self._beginning: deque[_Job] = deque()
        self._going_on: deque[_Job] = deque()
        self._behind: dict[tuple[Kind, str], deque[_Job]] = {}
        self.open = True
        self.in_flight = 0
        self.waiting = 0

    def add(self, job: _Job) -> None:
        self.waiting += 1
        write = job.write
        if not write.name:  # the server makes the name, so no other write can be about the same object
            self._ready(job)
        elif (queue := self._behind.get((write.kind, write.key))) is not None:
            queue.append(job)
        else:
            self._behind[(write.kind, write.key)] = deque()
            self._ready(job)

    def _ready(self, job: _Job) -> None:
        (self._going_on if job.write.goes_on else self._beginning).append(job)

    def start(self, group: asyncio.TaskGroup) -> None:
        # Whoever no longer leads sends nothing more, also of what was decided while it did.
        while self.open and (ready := self._going_on or self._beginning) and self.in_flight < self._limit and self._leading():
            job = ready.popleft()
            self.in_flight += 1
            self.waiting -= 1
            group.create_task(self._carry(job), name=f"{job.write.verb} {job.write.kind.resource} {job.write.key}")

    async def _carry(self, job: _Job) -> None:
        await self._send(job)
        self.in_flight -= 1
        if job.write.name:
            key = (job.write.kind, job.write.key)
            if queue := self._behind[key]:
                self._ready(queue.popleft())
            else:
                del self._behind[key]


def _log_failure(job: _Job, error: ClusterError) -> None:
    """Losing a race is the everyday; anything else an operator may want to know."""
    write = job.write
    level = logging.DEBUG if isinstance(error, Conflict | NotFound) else logging.WARNING
    resource = f"{write.kind.resource}/{write.subresource}" if write.subresource else write.kind.resource
    details = {"decider": job.by.name, "verb": write.verb, "resource": resource, "object": write.key, "about": write.about}
    log.log(level, "write failed", extra={**details, "error": str(error)})


def _what(event: Event) -> str:
    if isinstance(event, Outcome):
        return f"the outcome of {event.write.verb} {event.write.kind.resource} {event.write.key}"
    return f"{event.kind.resource} {event.object.key}"
