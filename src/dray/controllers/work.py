"""What a controller still has to look at: keys that changed, keys whose writes are under way, keys that rest after a failure.

Always true: a key is given out only when none of its writes is under way and its rest is over, and a key that changes while it
is being written is given out again afterwards. Failures of one key never delay another; writes of a key that were decided
together fail as one, whatever else of them went well.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

FIRST_REST: Final = 0.05
LONGEST_REST: Final = 300.0


class Work:
    """The keys to look at, in the order in which they changed."""

    def __init__(self) -> None:
        self._due: dict[str, None] = {}
        self._writing: dict[str, int] = {}
        self._failures: dict[str, int] = {}
        self._rests: dict[str, float] = {}
        self._unlucky: set[str] = set()  # something that is being written for them has failed

    def add(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._due[key] = None

    def take(self, now: float) -> list[str]:
        """The keys that can be looked at now; they are no longer due until they change again."""
        ready = [key for key in self._due if key not in self._writing and self._rests.get(key, now) <= now]
        for key in ready:
            del self._due[key]
            self._rests.pop(key, None)
        return ready

    def writing(self, key: str) -> bool:
        return key in self._writing

    def started(self, key: str, writes: int = 1) -> None:
        """``writes`` are on their way; with none, nothing of the key can fail any more."""
        if writes:
            self._writing[key] = self._writing.get(key, 0) + writes
        else:
            self._failures.pop(key, None)

    def succeeded(self, key: str) -> None:
        self._finished(key)

    def failed(self, key: str, now: float, least: float = 0.0) -> None:
        """The key rests, longer after each failure in a row, and at least ``least`` seconds."""
        if key not in self._unlucky:
            self._failures[key] = self._failures.get(key, 0) + 1
            self._unlucky.add(key)
        self._rests[key] = now + max(least, min(LONGEST_REST, FIRST_REST * 2 ** min(self._failures[key] - 1, 30)))
        self._finished(key)

    def _finished(self, key: str) -> None:
        left = self._writing.get(key, 0) - 1
        self._due[key] = None
        if left > 0:
            self._writing[key] = left
            return
        self._writing.pop(key, None)
        if key in self._unlucky:
            self._unlucky.remove(key)
        else:
            self._failures.pop(key, None)

    def forget(self, key: str) -> None:
        """The key's object is gone; what is under way still ends."""
        self._failures.pop(key, None)
        self._rests.pop(key, None)
        self._unlucky.discard(key)

    def wake(self) -> float | None:
        """When the next resting key can be looked at."""
        return min((at for key, at in self._rests.items() if key in self._due and key not in self._writing), default=None)
