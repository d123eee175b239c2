"""Containers that end and are started again, as a kubelet does it: later after each end, up to five minutes.

Where a container is follows from when the pod started and the time alone, so a restarted kubelet knows it too.
"""

from __future__ import annotations

from typing import Final

import msgspec

FIRST_SECONDS: Final = 10.0
LONGEST_SECONDS: Final = 300.0
# A container that ran this long starts over with the shortest wait.
CALM_SECONDS: Final = 600.0


class Restarts(msgspec.Struct, frozen=True):
    """``count`` restarts so far; ``since`` the container runs, or None while it waits. ``next`` is when that changes."""

    count: int
    since: float | None
    next: float | None
    last_start: float = 0.0
    last_end: float = 0.0
    exit_code: int = 0
    message: str = ""


def restarts(started: float, runs: float, exit_code: int, times: int | None, now: float) -> Restarts:
    """Where a container is at ``now`` that ends ``runs`` seconds after each start, at most ``times`` times."""
    runs = max(runs, 0.01)
    begin, wait, count = started, FIRST_SECONDS, 0
    last_start = last_end = 0.0
    while times is None or count < times:
        if (passed := _steady(runs, wait, now - begin, None if times is None else times - count)) > 0:
            cycle = runs + wait
            begin, count = begin + passed * cycle, count + passed
            last_start, last_end = begin - cycle, begin - wait
            continue
        end = begin + runs
        if now < end:
            return Restarts(count, begin, end, last_start, last_end, exit_code)
        last_start, last_end = begin, end
        wait = FIRST_SECONDS if runs >= CALM_SECONDS else wait
        if now < end + wait:
            message = f"back-off {wait:g}s restarting failed container"
            return Restarts(count, None, end + wait, last_start, last_end, exit_code, message)
        begin, wait, count = end + wait, min(2 * wait, LONGEST_SECONDS), count + 1
    return Restarts(count, begin, None, last_start, last_end, exit_code)


def _steady(runs: float, wait: float, elapsed: float, left: int | None) -> int:
    """How many times it went round since the waits no longer grow: years cost no more than minutes."""
    if runs < CALM_SECONDS and wait < LONGEST_SECONDS:
        return 0
    rounds = int(elapsed // (runs + wait))
    return rounds if left is None else min(rounds, left)
