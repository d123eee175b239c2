"""The time by which live deciders decide.

Always true: it never goes back, and never stands still. What rests until a time would else rest for as long as the clock was put
back: a retry that is due in a second, an hour and a second later. It is the wall clock, which is what the API's times are held
against; where that was put back, time goes on at half its pace until the clock has caught up.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

_PACE: Final = 0.5


class Steady:
    def __init__(self, wall: Callable[[], float] | None = None, monotonic: Callable[[], float] | None = None) -> None:
        self._wall, self._monotonic = wall or time.time, monotonic or time.monotonic
        self._told, self._at = self._wall(), self._monotonic()

    def __call__(self) -> float:
        at = self._monotonic()
        self._told = max(self._wall(), self._told + (at - self._at) * _PACE)
        self._at = at
        return self._told
