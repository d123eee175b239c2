"""Events go an hour after they were last written, as upstream's do: nobody deletes them otherwise.

Always true: an event is kept for an hour at least, counted from its last change or from the start of this server. No object is
looked into: the revision that it was written at says when that was.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from dray.apiserver.store import Store

EVENT_SECONDS: Final = 3600.0
EVERY_SECONDS: Final = 60.0


class Expiry:
    """``expire(now)`` about once in ``EVERY_SECONDS``."""

    def __init__(self, store: Store) -> None:
        self._store, self._table = store, store.table("events")
        self._marks: deque[tuple[float, int]] = deque()  # at this time, this was the newest revision

    def expire(self, now: float) -> int:
        """Remove what is too old; how many that were."""
        self._marks.append((now, self._store.revision))
        oldest = 0
        while self._marks[0][0] <= now - EVENT_SECONDS:
            oldest = self._marks.popleft()[1]
        if not oldest:
            return 0
        old = [key for key, entry in self._table.entries.items() if entry.revision <= oldest]
        for key in old:
            self._store.delete(self._table, key)
        return len(old)
