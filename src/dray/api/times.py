"""Kubernetes timestamps as seconds since the epoch and back."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

# The first and the last second that can be written. A number of seconds in an object may lead far beyond them.
_FIRST: Final = -62_135_596_800
_LAST: Final = 253_402_300_799


@lru_cache(maxsize=65536)
def parse_time(text: str) -> float:
    """Seconds since the epoch of an RFC 3339 time. Raises ValueError for anything else."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"time {text!r} has no zone")
    return moment.timestamp()


def format_time(seconds: float) -> str:
    """``metav1.Time``: whole seconds, UTC; the last time there is, if it is later."""
    return _format_second(int(_writable(seconds)))


@lru_cache(maxsize=1024)
def _format_second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()[:19] + "Z"  # strftime writes years before 1000 short


def format_micro_time(seconds: float) -> str:
    """``metav1.MicroTime``: microseconds, UTC."""
    return datetime.fromtimestamp(_writable(seconds), UTC).isoformat(timespec="microseconds")[:26] + "Z"


def _writable(seconds: float) -> float:
    return min(max(seconds, _FIRST), _LAST)
