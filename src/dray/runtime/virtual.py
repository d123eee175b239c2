"""The virtual-time shell: the same deciders, no network, no clock, no threads; hours pass in milliseconds.

A ``Host`` stands for a process: it has its own World, its own watch of the API server and its own deciders, and it can crash.
The API server is a ``Core``: anything that lists, writes and tells what changed, synchronously.

Always true: the same core, hosts, seed and faults give the same run, write for write; time never goes back; the events of one
kind reach a host in order; the writes of one object by one host are sent in order, each after the answer to the one before.
Deciders that look after every kind are told of those that definitions bring, as the live shell does.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Collection, Sequence
from hashlib import blake2b
from typing import Any, Final, Protocol

import msgspec

from dray.api.kinds import CUSTOM_RESOURCE_DEFINITIONS, Kind
from dray.cluster.custom import CustomKinds, Followed, Follower
from dray.cluster.port import (
    Change,
    ClusterError,
    Conflict,
    Decider,
    Event,
    Expired,
    Outcome,
    Refused,
    Unreachable,
    WatchEvent,
    Write,
)
from dray.cluster.world import World
from dray.runtime.faults import NONE, Faults, Range
from dray.runtime.picture import apply_answer

START: Final = 1_800_000_000.0
THINK_SECONDS: Final = 0.0005
_FAILED: Final = Refused(500, "InternalError", "etcdserver: request timed out")


class Core(Protocol):
    """An API server without I/O. ``since`` gives what changed after a version, and raises Expired for one too old;
    ``changed`` names the kinds of which ``since`` can say more than when it was last called."""

    def changed(self) -> Collection[Kind]: ...

    def since(self, kind: Kind, resource_version: str) -> Sequence[WatchEvent]: ...

    def list(self, kind: Kind) -> tuple[list[bytes], str]: ...

    def write(self, write: Write) -> dict[str, Any]: ...


class Clock:
    """The time of a simulation. Give it to the core, so that both agree."""

    def __init__(self, now: float = START) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Written(msgspec.Struct, frozen=True):
    """A write that reached the API server, and how it ended there."""

    at: float
    host: str
    write: Write
    error: ClusterError | None


class Virtual:
    """Discrete events on a heap. ``start`` hosts, put user actions in with ``at``, then ``run``."""

    def __init__(self, core: Core, clock: Clock, *, seed: int = 0, faults: Faults = NONE) -> None:
        self.core, self.clock, self.faults = core, clock, faults
        self.rng = random.Random(seed)
        self.epoch = clock.now
        self.steps = 0
        self.hosts: dict[str, Host] = {}
        self.listeners: list[Callable[[Written], None]] = []
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = itertools.count()
        self._digest = blake2b(digest_size=16)
        self._written_at = clock.now
        for crash in faults.crashes:
            self.at(crash.at, lambda crash=crash: self.crash(crash.host, crash.down))  # type: ignore[misc]

    @property
    def elapsed(self) -> float:
        return self.clock.now - self.epoch

    @property
    def digest(self) -> str:
        """Of every write so far with its time and result: equal for equal runs."""
        return self._digest.copy().hexdigest()

    @property
    def harmful(self) -> bool:
        """Whether random faults still happen."""
        return self.elapsed < self.faults.until

    def start(self, name: str, kinds: Sequence[Kind], deciders: Callable[[World], Sequence[Decider]]) -> Host:
        """A process that runs the deciders which ``deciders`` makes from a fresh World."""
        host = self.hosts[name] = Host(self, name, tuple(kinds), deciders)
        host.boot()
        return host

    def at(self, elapsed: float, action: Callable[[], None]) -> None:
        """Something from outside at a time counted from the start: a user's write, a look at the state."""

        def happen() -> None:
            action()
            self.pump()

        self.schedule(max(self.epoch + elapsed, self.clock.now), happen)

    def user(self, write: Write) -> dict[str, Any]:
        """A write from outside, now; refusals are raised."""
        answer = self.core.write(write)
        self.pump()
        return answer

    def run(self, until: float) -> None:
        """Until this much time has passed since the start."""
        end = self.epoch + until
        while self._heap and self._heap[0][0] <= end:
            self._step()
        self.clock.now = max(self.clock.now, end)

    def run_until(self, done: Callable[[], bool], limit: float = 3600.0) -> bool:
        """Until ``done`` holds, looked at after each step; False when ``limit`` seconds have passed first."""
        end = self.clock.now + limit
        while not done():
            if not self._heap or self._heap[0][0] > end:
                return False
            self._step()
        return True

    def run_until_quiet(self, seconds: float, most: float = 3600.0) -> bool:
        """Until no write has arrived for so long; False when ``most`` seconds have passed before that."""
        end = self.clock.now + most
        while self._heap and self._heap[0][0] <= min(self._written_at + seconds, end):
            self._step()
        return self._written_at + seconds <= end

    def crash(self, name: str, down: float) -> None:
        host = self.hosts[name]
        host.crash()
        self.schedule(self.clock.now + down, host.boot)

    # ------------------------------------------------------------------------------------------------ for the hosts

    def schedule(self, time: float, action: Callable[[], object]) -> None:
        heapq.heappush(self._heap, (time, next(self._serial), action))  # type: ignore[misc]

    def chance(self, probability: float) -> bool:
        return probability > 0 and self.harmful and self.rng.random() < probability

    def delay(self, bounds: Range) -> float:
        return self.clock.now + self.rng.uniform(*bounds)

    def pump(self) -> None:
        """Send what changed on its way to every host."""
        changed = self.core.changed()
        if changed:
            for host in self.hosts.values():
                host.pump(changed)

    def arrive(self, host: Host, write: Write) -> tuple[dict[str, Any] | None, ClusterError | None]:
        """A write reaches the API server, or not."""
        if self.faults.gone(self.elapsed):
            return None, Unreachable("the API server is away")
        if self.chance(self.faults.conflict):
            return None, Conflict(409, "Conflict", "injected")
        if host.name not in self.faults.in_time and self.chance(self.faults.late_write):
            self.schedule(self.delay(self.faults.late_by), lambda: self._arrive_late(host, host.life, write))
            return None, Unreachable("the write is late")
        failed = self.chance(self.faults.failed_answer)
        if failed and self.rng.random() < 0.5:
            return None, _FAILED
        answer, error = self._do(host, write)
        if failed:
            return None, _FAILED
        if error is None and self.chance(self.faults.crossed_answer):
            return None, Conflict(409, "AlreadyExists" if write.verb == "create" else "Conflict", "it is so already")
        if self.chance(self.faults.lost_answer):
            return None, Unreachable("the answer was lost")
        return answer, error

    def _arrive_late(self, host: Host, life: int, write: Write) -> None:
        """A server stops working on what a process asked that is gone."""
        if host.life == life:
            self._do(host, write)

    def _do(self, host: Host, write: Write) -> tuple[dict[str, Any] | None, ClusterError | None]:
        answer: dict[str, Any] | None = None
        error: ClusterError | None = None
        try:
            answer = self.core.write(write)
        except ClusterError as refused:
            error = refused
        self._record(Written(self.clock.now, host.name, write, error))
        self.pump()
        return answer, error

    def _record(self, written: Written) -> None:
        write = written.write
        self._written_at = written.at
        line = (
            written.at,
            written.host,
            write.verb,
            write.kind.resource,
            write.key,
            write.subresource,
            write.body,
            str(written.error),
        )
        self._digest.update(msgspec.json.encode(line))
        for listener in self.listeners:
            listener(written)

    def _step(self) -> None:
        time, _, action = heapq.heappop(self._heap)
        self.clock.now = max(self.clock.now, time)
        self.steps += 1
        action()


class Host:
    """One process. ``life`` counts its lives; whatever was on its way to an earlier life does not arrive."""

    def __init__(
        self, shell: Virtual, name: str, kinds: tuple[Kind, ...], deciders: Callable[[World], Sequence[Decider]]
    ) -> None:
        self.name, self.kinds = name, kinds
        self._shell, self._factory = shell, deciders
        self.life = 0
        self.up = False
        self._reset()

    def _reset(self) -> None:
        self.world = World(self.kinds)
        self.deciders: list[Decider] = []
        self._followers: list[Any] = []
        self._custom = CustomKinds(self.world)
        self._defined: set[Kind] = set()
        self._position: dict[Kind, str] = {}
        self._last_delivery: dict[Kind, float] = {}
        self._watches: dict[Kind, int] = {}
        self._unlisted = set(self.kinds)
        self._stirred: set[str] = set()
        self._act_at: float | None = None
        self._behind: dict[tuple[Kind, str], deque[tuple[Decider, Write]]] = {}

    def boot(self) -> None:
        self.life += 1
        self._reset()
        self.up = True
        self.deciders = list(self._factory(self.world))
        self._followers = [decider for decider in self.deciders if isinstance(decider, Follower)]
        self._stirred = {decider.name for decider in self.deciders}
        for kind in self.kinds:
            self._later(self._shell.faults.event_delay, lambda kind=kind: self._list(kind))  # type: ignore[misc]

    def crash(self) -> None:
        self.life += 1
        self.up = False
        self._reset()

    def _later(self, bounds: Range, action: Callable[[], None]) -> None:
        self._at(self._shell.delay(bounds), action)

    def _at(self, time: float, action: Callable[[], object]) -> None:
        life = self.life
        self._shell.schedule(time, lambda: action() if self.life == life else None)

    # ------------------------------------------------------------------------------------------------- watching

    def _list(self, kind: Kind) -> None:
        shell = self._shell
        if kind not in self.world.kinds:  # its definition went meanwhile
            return
        if shell.faults.gone(shell.elapsed):
            self._at(shell.epoch + shell.faults.back_at(shell.elapsed) + shell.rng.uniform(0, 1), lambda: self._list(kind))
            return
        raws, version = shell.core.list(kind)
        self._position[kind] = version
        self._unlisted.discard(kind)
        self._tell(self.world.replace(kind, raws, version))
        self._think()

    def pump(self, changed: Collection[Kind]) -> None:
        if not self.up:
            return
        for kind in [kind for kind in self._position if kind in changed]:
            self._fetch(kind)

    def _fetch(self, kind: Kind) -> None:
        shell = self._shell
        try:
            events = shell.core.since(kind, self._position[kind])
        except Expired:
            self._lose(kind)
            return
        if not events:
            return
        if shell.faults.gone(shell.elapsed) or shell.chance(shell.faults.lost_watch):
            self._lose(kind)
            return
        self._position[kind] = events[-1].resource_version
        # In order: nothing overtakes what was sent before it.
        time = max(self._last_delivery.get(kind, 0.0), shell.delay(shell.faults.event_delay))
        self._last_delivery[kind] = time
        watch = self._watches.get(kind, 0)
        self._at(time, lambda: self._deliver(kind, events) if self._watches.get(kind, 0) == watch else None)

    def _lose(self, kind: Kind) -> None:
        """The watch ends; what it had not delivered is lost with it."""
        del self._position[kind]
        self._watches[kind] = self._watches.get(kind, 0) + 1
        self._later(self._shell.faults.gap, lambda: self._list(kind))

    def _deliver(self, kind: Kind, events: Sequence[WatchEvent]) -> None:
        for event in events:
            deleted = event.type == "DELETED"
            self._tell(self.world.remove(kind, event.raw) if deleted else self.world.put(kind, event.raw))
        self._think()

    def _tell(self, changes: Sequence[Change]) -> None:
        for change in changes:
            for decider in self.deciders:
                if change.kind in decider.kinds or (change.kind in self._defined and decider in self._followers):
                    self._observe(decider, change)
            if change.kind == CUSTOM_RESOURCE_DEFINITIONS and self._followers:
                gone, come = self._custom.changed(change)
                if gone is not None and gone.own:
                    self._unfollow(gone.kind)
                if come is not None:
                    self._follow(come)

    def _follow(self, followed: Followed) -> None:
        kind = followed.kind
        self.world.follow(kind)
        for decider in self._followers:
            decider.follow(kind, followed.api_versions)
        self._defined.add(kind)
        if followed.own:
            self._later(self._shell.faults.event_delay, lambda: self._list(kind))
        else:
            self._tell([Change(kind, None, known) for known in list(self.world.all(kind).values())])

    def _unfollow(self, kind: Kind) -> None:
        self._position.pop(kind, None)
        self._watches[kind] = self._watches.get(kind, 0) + 1
        self._tell(self.world.replace(kind, ()))
        for decider in self._followers:
            decider.unfollow(kind)
        self._defined.discard(kind)
        self.world.drop(kind)

    def _observe(self, decider: Decider, event: Event) -> None:
        self._stirred.add(decider.name)
        decider.observe(event, self._shell.clock.now)

    # -------------------------------------------------------------------------------------------------- deciding

    def _think(self, at: float | None = None) -> None:
        """Act soon, or at a time; several reasons to act at once are one."""
        time = max(self._shell.clock.now + THINK_SECONDS, at or 0.0)
        if self._unlisted or (self._act_at is not None and self._act_at <= time):
            return
        self._act_at = time
        self._at(time, self._act)

    def _act(self) -> None:
        now = self._shell.clock.now
        if self._act_at is None or self._act_at > now:
            return
        self._act_at = None
        for decider in self.deciders:
            wake = decider.wake()
            if decider.name in self._stirred or (wake is not None and wake <= now):
                self._stirred.discard(decider.name)
                for write in decider.act(now):
                    self._queue(decider, write)
        wakes = [wake for decider in self.deciders if (wake := decider.wake()) is not None]
        if wakes:
            self._think(min(wakes))

    def _queue(self, by: Decider, write: Write) -> None:
        if not write.name:
            self._send(by, write)
        elif (behind := self._behind.get((write.kind, write.key))) is not None:
            behind.append((by, write))
        else:
            self._behind[(write.kind, write.key)] = deque()
            self._send(by, write)

    def _send(self, by: Decider, write: Write) -> None:
        shell, life = self._shell, self.life
        # What was sent before a crash arrives all the same.
        shell.schedule(shell.delay(shell.faults.write_delay), lambda: self._arrived(life, by, write))
        if shell.chance(shell.faults.crash_per_write):
            self._at(shell.clock.now, lambda: shell.crash(self.name, shell.rng.uniform(0.1, 5.0)))

    def _arrived(self, life: int, by: Decider, write: Write) -> None:
        answer, error = self._shell.arrive(self, write)
        if self.life == life:
            self._later(self._shell.faults.write_delay, lambda: self._answered(by, Outcome(write, answer, error)))

    def _answered(self, by: Decider, outcome: Outcome) -> None:
        write = outcome.write
        if outcome.object is not None:
            self._tell(apply_answer(self.world, write, outcome.object))
        self._observe(by, outcome)
        if write.name:
            behind = self._behind[(write.kind, write.key)]
            if behind:
                self._send(*behind.popleft())
            else:
                del self._behind[(write.kind, write.key)]
        self._think()
