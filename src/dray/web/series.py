"""Numbers over time, for small plots: a bounded number of points, whatever happens."""

from __future__ import annotations

from collections import deque
from typing import Final

from dray.explain.inventory import STATES
from dray.web.moments import Point
from dray.web.picture import Picture

POINTS_MAX: Final = 900
_USED: Final = (STATES.index("partial"), STATES.index("allocated"))


class Series:
    """The newest points, at most one for each ``every`` seconds."""

    def __init__(self, every: float = 2.0) -> None:
        self._every = every
        self._points: deque[Point] = deque(maxlen=POINTS_MAX)

    def add(self, picture: Picture) -> None:
        if self._points and picture.at - self._points[-1].at < self._every:
            self._points.pop()
        used = sum(cell.state in _USED for pool in picture.pools.values() for cell in pool.devices)
        self._points.append(Point(picture.at, picture.waiting, picture.pods - picture.waiting, used))

    def points(self) -> list[Point]:
        return list(self._points)
