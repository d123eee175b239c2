"""Numbers over time, for small plots: a bounded number of points, whatever happens."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

import msgspec

from dray.api.queues import GPU, GPU_RESOURCE, Queue
from dray.explain.inventory import STATES
from dray.web.moments import Point, QueuePoint
from dray.web.picture import Picture

EVERY_SECONDS: Final = 2.0
POINTS_MAX: Final = 900
QUEUE_POINTS_MAX: Final = 300
_USED: Final = (STATES.index("partial"), STATES.index("allocated"))


class Series:
    """The newest points, at most one for each ``EVERY_SECONDS``."""

    def __init__(self) -> None:
        self._points: deque[Point] = deque(maxlen=POINTS_MAX)

    def add(self, picture: Picture) -> None:
        if self._points and picture.at - self._points[-1].at < EVERY_SECONDS:
            self._points.pop()
        used = sum(cell.state in _USED for pool in picture.pools.values() for cell in pool.devices)
        self._points.append(Point(picture.at, picture.waiting, picture.pods - picture.waiting, used))

    def points(self) -> list[Point]:
        return list(self._points)


class Histories:
    """What the status of each queue said, whenever it said something new; of each the newest points."""

    def __init__(self) -> None:
        self._points: dict[str, deque[QueuePoint]] = {}

    def seen(self, queue: Queue, at: float) -> None:
        point = QueuePoint(at, *(_amounts(queue.status.get(name)) for name in ("allocated", "requested", "fairShare")))
        points = self._points.setdefault(queue.key, deque(maxlen=QUEUE_POINTS_MAX))
        if not points or msgspec.structs.replace(points[-1], at=at) != point:
            points.append(point)

    def told(self) -> dict[str, list[QueuePoint]]:
        return {name: list(points) for name, points in sorted(self._points.items())}


def _amounts(found: object) -> dict[str, str]:
    """By the names that `dray queues` uses."""
    if not isinstance(found, Mapping):
        return {}
    return {GPU if name == GPU_RESOURCE else str(name): str(value) for name, value in found.items()}
