"""A log of names that changed. A cache that remembers its place in it catches up with what is new, and only that."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Final

# Above this many noted changes the older half is dropped; caches that are further behind start afresh.
_LIMIT: Final = 65536

EVERYTHING: Final = ""
"""Noted instead of a name when the change may concern all of them."""


_NOTHING: Final[frozenset[str]] = frozenset()


class ChangeLog:
    def __init__(self) -> None:
        self._names: list[str] = []
        self._dropped = 0
        # How many names have ever been noted.
        self.position = 0

    def note(self, name: str) -> None:
        self._names.append(name)
        self.position += 1
        if self.position - self._dropped > _LIMIT:
            del self._names[: _LIMIT // 2]
            self._dropped += _LIMIT // 2

    def since(self, position: int) -> AbstractSet[str] | None:
        """The names noted since; None when the log no longer reaches back that far."""
        if position == self.position:
            return _NOTHING
        if position < self._dropped:
            return None
        return set(self._names[position - self._dropped :])
