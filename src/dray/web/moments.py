"""What the page shows: a cluster as it is now, files taken from one, or a recorded run at any of its times.

A ``Moment`` is a cluster at one instant. Always true: its world is never changed after it was given out, so that questions about
it can be answered beside everything else; two moments of a scene with the same number are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol

import msgspec

from dray.api.gates import Gates
from dray.api.kinds import EVENTS, Kind
from dray.cluster.port import Cluster
from dray.cluster.world import World
from dray.explain.snapshot import Snapshot
from dray.scheduling.config import Config

Mode = Literal["live", "snapshot", "run"]


class QueuePoint(msgspec.Struct, array_like=True, frozen=True):
    """When, and by resource what a queue holds, asks for and deserves."""

    at: float
    allocated: dict[str, str]
    requested: dict[str, str]
    fair_share: dict[str, str]


class Moment(msgspec.Struct, frozen=True):
    """``number`` grows with every change; ``events`` are plain objects of either API; ``unknown``: kinds of which nothing is
    known, and why; ``history``: of each queue what its status said until then."""

    number: int
    at: float
    world: World
    events: tuple[Mapping[str, Any], ...]
    unknown: Mapping[Kind, str] = {}
    history: Mapping[str, list[QueuePoint]] = {}


class Span(msgspec.Struct, frozen=True):
    """When a recorded run began, how long it lasted, and when in it something changed: pods or claims. ``growing``: it still
    runs, and this is how far it has come."""

    start: float
    length: float
    marks: list[float]
    growing: bool = False


class Point(msgspec.Struct, array_like=True, frozen=True):
    """When, pods that wait, pods that have a node, devices in use."""

    at: float
    waiting: int
    placed: int
    used: int


class Scene(Protocol):
    """Where moments come from. ``config``: the scheduler's, where it is known; ``cluster``: where changes can be written."""

    title: str
    mode: Mode
    config: Config | None
    gates: Gates | None
    cluster: Cluster | None

    @property
    def span(self) -> Span | None: ...

    @property
    def notices(self) -> list[str]:
        """What the one who looks must know about what is shown."""
        ...

    async def begin(self) -> None:
        """Called when somebody looks for the first time; returns when there is something to show."""
        ...

    def moment(self, at: float | None = None) -> Moment:
        """``at``: the time in a recorded run, in seconds from its start."""
        ...

    async def snapshot(self, at: float | None) -> Snapshot:
        """Everything, with the plain objects, to rehearse a change on."""
        ...

    def points(self, most: int) -> list[Point] | None:
        """Numbers over the time of a recorded run."""
        ...

    def listen(self, changed: Callable[[], None]) -> None:
        """``changed`` is called after every change, from the loop's thread."""
        ...

    async def close(self) -> None: ...


class Still:
    """Files taken from a cluster, at the time when they were taken. Nothing changes."""

    mode: Mode = "snapshot"
    span: Span | None = None
    cluster: Cluster | None = None

    def __init__(
        self, snapshot: Snapshot, title: str, now: float, config: Config | None = None, gates: Gates | None = None
    ) -> None:
        self.title, self.config, self.gates = title, config, gates
        self.notices = [f"left out: {count} of kind {kind}" for kind, count in sorted(snapshot.left_out.items())]
        self._snapshot = snapshot
        self._moment = Moment(1, now, snapshot.world, tuple(snapshot.plain(EVENTS)), snapshot.unknown)

    async def begin(self) -> None:
        pass

    def moment(self, at: float | None = None) -> Moment:
        return self._moment

    async def snapshot(self, at: float | None = None) -> Snapshot:
        return self._snapshot

    def points(self, most: int) -> list[Point] | None:
        return None

    def listen(self, changed: Callable[[], None]) -> None:
        pass

    async def close(self) -> None:
        pass
