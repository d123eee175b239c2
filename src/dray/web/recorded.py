"""A recorded run, at any of its times.

Always true: the moment at a time holds what the API server had then, and the same time gives the same moment. Going to a time
costs at most the steps from the nearest waypoint before it.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from dray.api.gates import Gates
from dray.api.kinds import EVENTS, PODS, QUEUES, RESOURCE_CLAIMS, Kind
from dray.api.meta import DecodeError, Object, decode
from dray.api.queues import Queue
from dray.cluster.port import Cluster
from dray.cluster.world import World
from dray.explain.snapshot import KINDS, Snapshot, kind_of
from dray.scheduling.config import Config
from dray.simulate.recording import RecordingError, Step, Tail, read
from dray.web.moments import Mode, Moment, Point, QueuePoint, Span
from dray.web.series import Histories

# Moments that are kept to start from, and marks on the slider.
WAYPOINTS: Final = 200
MARKS_MAX: Final = 2000
# Of a run that is followed nobody knows how long it will be.
EVERY_FOLLOWED: Final = 4096
FOLLOW_SECONDS: Final = 0.5

Objects = dict[Kind, dict[str, Any]]


class _Step(NamedTuple):
    """From here on the object of this key is this, typed and as it is written; None: there is none."""

    kind: Kind
    key: str
    found: Object | Mapping[str, Any] | None
    raw: bytes


class Recorded:
    mode: Mode = "run"
    config: Config | None = None
    cluster: Cluster | None = None

    def __init__(self, path: Path, *, follow: bool = False) -> None:
        """``follow``: a file that is still being written is shown as far as it goes, and followed; else it must be whole."""
        self.title = path.name
        self.notices: list[str] = []
        self._path = path
        self._times: list[float] = []
        self._steps: list[_Step] = []
        self._marks: list[float] = []
        self._tail: Tail | None = Tail(path) if follow else None
        self._following: asyncio.Task[None] | None = None
        steps: Iterable[Step] = ()
        if self._tail is None:
            self._head, steps = read(path)
        else:
            steps = self._tail.more()
            if self._tail.head is None:
                raise RecordingError(f"{path}: the recording is still empty")
            self._head = self._tail.head
        self.gates: Gates | None = self._head.gates
        made = [step for step in map(self._made, steps) if step is not None]
        self._every = EVERY_FOLLOWED if follow else max(64, len(made) // WAYPOINTS)
        self._waypoints: list[Objects] = [{kind: {} for kind in KINDS}]
        self._moments: dict[int, Moment] = {}
        self._add(made)

    def _made(self, step: Step) -> tuple[float, _Step] | None:
        body = step.object or step.gone or {}
        kind = kind_of(body, self._path)
        made = _made(kind, body, gone=step.object is None) if kind is not None else None
        return (step.at, made) if made is not None else None

    def _add(self, made: Iterable[tuple[float, _Step]]) -> None:
        for at, step in made:
            self._times.append(at)
            self._steps.append(step)
            if step.kind in (PODS, RESOURCE_CLAIMS) and (not self._marks or self._marks[-1] != at):
                self._marks.append(at)
            if len(self._steps) % self._every == 0:
                self._waypoints.append(self._objects(len(self._steps), len(self._waypoints) - 1))

    @property
    def _length(self) -> float:
        """How long it lasted, or how far it has come."""
        growing = self._tail is not None and not self._tail.ended
        return (self._times[-1] if self._times else 0.0) if growing else self._head.until

    @property
    def span(self) -> Span | None:
        marks = self._marks
        growing = self._tail is not None and not self._tail.ended
        return Span(self._head.start, self._length, marks[:: max(1, len(marks) // MARKS_MAX)], growing)

    async def begin(self) -> None:
        if self._tail is not None and self._following is None:
            self._following = asyncio.ensure_future(self._follow(self._tail))

    async def _follow(self, tail: Tail) -> None:
        try:
            while not tail.ended:
                made = [step for step in map(self._made, tail.more()) if step is not None]
                self._add(made)
                await asyncio.sleep(0 if made else FOLLOW_SECONDS)
        except RecordingError as error:
            self.notices.append(str(error))

    def moment(self, at: float | None = None) -> Moment:
        """What was there at a time, counted from the start of the run; in the end, where none is named."""
        passed = self._length if at is None else min(max(at, 0.0), self._length)
        number = bisect_right(self._times, passed)
        found = self._moments.get(number)
        if found is None:
            objects = self._objects(number, number // self._every)
            events = tuple(objects[EVENTS].values())
            found = Moment(number, 0.0, World.of({**objects, EVENTS: {}}), events, history=self._history(number))
            while len(self._moments) >= 8:
                del self._moments[next(iter(self._moments))]
            self._moments[number] = found
        return msgspec.structs.replace(found, at=self._head.start + passed)

    def _history(self, number: int) -> dict[str, list[QueuePoint]]:
        found = Histories()
        for at, step in zip(self._times[:number], self._steps[:number]):
            if step.kind == QUEUES and isinstance(step.found, Queue):
                found.seen(step.found, self._head.start + at)
        return found.told()

    async def snapshot(self, at: float | None = None) -> Snapshot:
        """As it was written down, not as Dray reads it."""
        last: dict[tuple[Kind, str], _Step] = {}
        moment = self.moment(at)
        for step in self._steps[: moment.number]:
            last[step.kind, step.key] = step
        objects = {place: msgspec.json.decode(step.raw) for place, step in last.items() if step.found is not None}
        return Snapshot(moment.world, objects, Counter(), live=True)

    def listen(self, changed: Callable[[], None]) -> None:
        pass

    async def close(self) -> None:
        if self._following is not None:
            self._following.cancel()

    def points(self, most: int) -> list[Point] | None:
        """How many pods waited, and how many devices were taken, along the run."""
        points: list[Point] = []
        pods: dict[str, bool] = {}
        taken: dict[str, int] = {}
        length = self._length
        next_at, step = 0.0, max(length, 1e-3) / max(1, most - 1)
        for at, each in [*zip(self._times, self._steps), (length + step, None)]:
            while next_at < at and next_at <= length:
                waits = sum(pods.values())
                points.append(Point(self._head.start + next_at, waits, len(pods) - waits, sum(taken.values())))
                next_at += step
            if each is not None:
                _count(each, pods, taken)
        return points

    def _objects(self, number: int, waypoint: int) -> Objects:
        """Everything after so many steps, from a waypoint before them."""
        objects = {kind: dict(found) for kind, found in self._waypoints[waypoint].items()}
        for kind, key, found, _ in self._steps[waypoint * self._every : number]:
            if found is None:
                objects[kind].pop(key, None)
            else:
                objects[kind][key] = found
        return objects


def _made(kind: Kind, body: dict[str, Any], *, gone: bool) -> _Step | None:
    raw = msgspec.json.encode(body)
    if kind == EVENTS:
        metadata = body.get("metadata") or {}
        key = f"{metadata.get('namespace')}/{metadata.get('name')}"
        return _Step(kind, key, None if gone else body, b"" if gone else raw)
    try:
        found = decode(kind.type, body)
    except DecodeError:
        return None
    return _Step(kind, found.key, None if gone else found, b"" if gone else raw)


def _count(step: _Step, pods: dict[str, bool], taken: dict[str, int]) -> None:
    """Pods by whether they wait, and claims by how many devices they hold."""
    found: Any = step.found
    if step.kind == PODS:
        if found is None or found.terminal:
            pods.pop(step.key, None)
        else:
            pods[step.key] = not found.spec.node_name
    elif step.kind == RESOURCE_CLAIMS:
        allocation = found.status.allocation if found is not None else None
        taken[step.key] = len(allocation.devices.results) if allocation is not None else 0
