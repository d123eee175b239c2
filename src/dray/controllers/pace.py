"""How fast pods are evicted: so many a second, a few at once, those that are due longest first.

Always true: nothing starts before its time; what was taken out again costs neither time nor a place; memory is in proportion to
what waits.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator


class Pace:
    """Keys that wait for their time, and then for their turn. ``rate`` a second, ``burst`` at once after a rest."""

    def __init__(self, rate: float, burst: int) -> None:
        self._interval, self._slack = 1.0 / rate, (burst - 1) / rate
        self._heap: list[tuple[float, str]] = []
        self._when: dict[str, float] = {}
        self._full = 0.0  # from when on the whole burst is there again

    def __len__(self) -> int:
        return len(self._when)

    def put(self, key: str, when: float) -> None:
        """The key is due at this time, whatever was said of it before."""
        if self._when.get(key) != when:
            self._when[key] = when
            heapq.heappush(self._heap, (when, key))
            self._trim()

    def drop(self, key: str) -> None:
        self._when.pop(key, None)
        self._trim()

    def _trim(self) -> None:
        """Entries that no longer count are dropped when they are the most."""
        if len(self._heap) > 2 * len(self._when) + 1000:
            self._heap = [(when, key) for key, when in self._when.items()]
            heapq.heapify(self._heap)

    def due(self, now: float, places: int) -> Iterator[tuple[str, float]]:
        """Up to so many keys whose time and turn has come, and since when they were due. They wait no longer."""
        while places > 0 and (first := self._first()) is not None and first[0] <= now and self._turn <= now:
            heapq.heappop(self._heap)
            del self._when[first[1]]
            self._full = max(self._full, now) + self._interval
            places -= 1
            yield first[1], first[0]

    def wake(self) -> float | None:
        """When the next key's time and turn has come."""
        first = self._first()
        return max(first[0], self._turn) if first is not None else None

    @property
    def _turn(self) -> float:
        return self._full - self._slack

    def _first(self) -> tuple[float, str] | None:
        while self._heap and self._when.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0] if self._heap else None
