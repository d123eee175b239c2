"""The shape that most controllers share: something changed, so look at these keys again, one key at a time.

A controller says which keys a change concerns and what to write for a key; this class remembers what is due, what is being
written, what rests after a failure and what has a timer. A key is looked at again when all writes for it have been answered.
Writes that were accepted and changed nothing are not repeated at once: whatever ignores them will not stop a loop.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, Final

import msgspec

from dray.api.kinds import EVENTS, RESOURCE_QUOTAS, Kind
from dray.cluster.port import Change, Event, Outcome, Write
from dray.cluster.recorder import Recorder
from dray.cluster.world import World
from dray.controllers.room import over_quota, room_in
from dray.controllers.work import Work

REPEAT_SECONDS: Final = 5.0


class Keyed:
    """Subclasses give ``concerned``, ``decide`` and, where they care, ``ended``."""

    name: str = ""
    kinds: Sequence[Kind] = ()
    # Whether what it creates is counted by quotas: then it hears of them in ``kinds``, and ``concerned`` does not.
    counted: ClassVar[bool] = False
    # What its events name as the one who tells.
    source: ClassVar[str] = ""

    def __init__(self, world: World) -> None:
        self.world = world
        self._work = Work()
        self._timers: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []  # the timers in order, and outdated ones that no longer count
        self._recorder = Recorder(self.source or self.name)
        self._said: list[Write] = []
        self._last: dict[str, tuple[list[Write], float]] = {}
        # Where it is given, only keys for which it holds are looked at: others are somebody else's.
        self.chosen: Callable[[str], bool] | None = None

    def concerned(self, change: Change) -> Iterable[str]:
        """The keys to look at because of this change."""
        raise NotImplementedError

    def decide(self, key: str, now: float) -> list[Write]:
        """What to write for a key, from what is true now."""
        raise NotImplementedError

    def ended(self, key: str, outcome: Outcome, now: float) -> None:
        """A write for the key was answered."""

    # ------------------------------------------------------------------------------------------- for the subclasses

    def look_at(self, key: str, at: float) -> None:
        """Look at the key again at this time, if nothing brings it up before."""
        if at < self._timers.get(key, float("inf")):
            self._timers[key] = at
            heapq.heappush(self._heap, (at, key))

    def say(self, events: Iterable[Write]) -> None:
        """Write events beside the decisions, without waiting for how they end."""
        self._said.extend(events)

    def forget(self, key: str) -> None:
        self._work.forget(key)
        self._timers.pop(key, None)
        self._last.pop(key, None)

    # -------------------------------------------------------------------------------------------------- the decider

    def observe(self, event: Event, now: float) -> None:
        if isinstance(event, Change) and self.counted and event.kind == RESOURCE_QUOTAS:
            self._work.room(room_in(event))
        elif isinstance(event, Change):
            self._work.add(self.concerned(event))
        elif event.write.kind == EVENTS:
            if not event.ok:
                self._recorder.lost(event.write.name)
        else:
            key = event.write.about
            self.ended(key, event, now)
            if event.ok:
                self._work.succeeded(key)
            else:
                self._last.pop(key, None)
                self._work.failed(key, now, over_quota=over_quota(event))

    def act(self, now: float) -> list[Write]:
        while (due := self._next_timer()) is not None and due[0] <= now:
            heapq.heappop(self._heap)
            del self._timers[due[1]]
            self._work.add([due[1]])
        writes: list[Write] = []
        for key in self._work.take(now):
            self._timers.pop(key, None)
            if self.chosen is not None and not self.chosen(key):
                continue
            decided = self._fresh(key, [msgspec.structs.replace(write, about=key) for write in self.decide(key, now)], now)
            self._work.started(key, len(decided))
            writes += decided
        writes += self._said
        self._said = []
        return writes

    def _fresh(self, key: str, decided: list[Write], now: float) -> list[Write]:
        """What was decided, unless it is exactly what was written and accepted a moment ago."""
        if not decided:
            self._last.pop(key, None)
            return decided
        last, at = self._last.get(key, ([], 0.0))
        if decided == last and now < at + REPEAT_SECONDS:
            self.look_at(key, at + REPEAT_SECONDS)
            return []
        self._last[key] = (decided, now)
        return decided

    def wake(self) -> float | None:
        timer, rest = self._next_timer(), self._work.wake()
        if timer is None or rest is None:
            return rest if timer is None else timer[0]
        return min(timer[0], rest)

    def _next_timer(self) -> tuple[float, str] | None:
        while self._heap and self._timers.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0] if self._heap else None
