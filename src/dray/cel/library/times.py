"""Durations and timestamps: exact nanoseconds, Go's ways of writing them, UTC unless a zone is named."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any, Final
from zoneinfo import ZoneInfo

from dray.cel.errors import Failure
from dray.cel.values import INT_MAX, INT_MIN, Duration, Timestamp

SECOND: Final = 10**9
_UNITS: Final = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": SECOND, "m": 60 * SECOND, "h": 3600 * SECOND}
_PART: Final = re.compile(r"(\d{0,24})(?:\.(\d{0,24}))?(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_RFC3339: Final = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:[.,](\d{1,24}))?(Z|([+-])(\d\d):(\d\d))", re.ASCII)
_FIRST: Final = -62135596800 * SECOND
_LAST: Final = 253402300799 * SECOND + SECOND - 1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def checked_duration(nanos: int) -> Duration:
    if INT_MIN <= nanos <= INT_MAX:
        return Duration(nanos)
    raise Failure("integer overflow")


def checked_timestamp(nanos: int) -> Timestamp:
    if _FIRST <= nanos <= _LAST:
        return Timestamp(nanos)
    raise Failure("timestamp overflow")


def parse_duration(text: str) -> Duration:
    """``1h15m30.5s``, as Go writes it."""
    sign, rest = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
    if rest == "0":
        return Duration(0)
    nanos = at = 0
    while at < len(rest):
        part = _PART.match(rest, at)
        if part is None or not (part[1] or part[2]):
            break
        unit, fraction = _UNITS[part[3]], part[2] or ""
        nanos += int(part[1] or 0) * unit + int(fraction or 0) * unit // 10 ** len(fraction)
        at = part.end()
    if not rest or at < len(rest) or nanos > INT_MAX:
        raise Failure(f"invalid duration {text[:80]!r}")
    return Duration(sign * nanos)


def parse_timestamp(text: str) -> Timestamp:
    found = _RFC3339.fullmatch(text)
    if found is None:
        raise Failure(f"invalid timestamp {text[:80]!r}")
    try:
        moment = datetime(*(int(found[index]) for index in range(1, 7)), tzinfo=UTC)  # type: ignore[misc, arg-type]
    except ValueError:
        raise Failure(f"invalid timestamp {text[:80]!r}") from None
    nanos = int((found[7] or "0")[:9].ljust(9, "0"))
    if found[8] != "Z":
        if int(found[10]) > 23 or int(found[11]) > 59:
            raise Failure(f"invalid timestamp {text[:80]!r}")
        offset = (int(found[10]) * 60 + int(found[11])) * 60
        nanos -= (offset if found[9] == "+" else -offset) * SECOND
    return checked_timestamp((moment - _EPOCH) // timedelta(seconds=1) * SECOND + nanos)


def timestamp_of_seconds(seconds: int) -> Timestamp:
    return checked_timestamp(seconds * SECOND)


def timestamp_text(moment: Timestamp) -> str:
    fraction = moment.nanos % SECOND
    text = (_EPOCH + timedelta(seconds=moment.nanos // SECOND)).strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0")
    return text + (f".{fraction:09d}".rstrip("0") if fraction else "") + "Z"


def _zone(name: str) -> tzinfo:
    if name in ("", "UTC", "Z"):
        return UTC
    offset = re.fullmatch(r"([+-]?)(\d{1,2}):(\d\d)", name, re.ASCII)
    if offset is not None and int(offset[2]) < 24 and int(offset[3]) < 60:
        minutes = int(offset[2]) * 60 + int(offset[3])
        return timezone(timedelta(minutes=-minutes if offset[1] == "-" else minutes))
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise Failure(f"unknown time zone {name[:80]}") from None


def _local(moment: Timestamp, zone: str) -> datetime:
    try:
        return (_EPOCH + timedelta(seconds=moment.nanos // SECOND)).astimezone(_zone(zone))
    except OverflowError:
        raise Failure("timestamp overflow") from None


def _truncated(nanos: int, unit: int) -> int:
    return nanos // unit if nanos >= 0 else -(-nanos // unit)


def _field(read: Callable[[datetime], int]) -> Callable[..., int]:
    def accessor(moment: Timestamp, zone: str = "UTC") -> int:
        return read(_local(moment, zone))

    return accessor


def _milliseconds(moment: Timestamp, zone: str = "UTC") -> int:
    _zone(zone)
    return moment.nanos % SECOND // 10**6


_FIELDS: Final[dict[str, Callable[..., int]]] = {
    "getFullYear": _field(lambda at: at.year),
    "getMonth": _field(lambda at: at.month - 1),
    "getDayOfYear": _field(lambda at: at.timetuple().tm_yday - 1),
    "getDayOfMonth": _field(lambda at: at.day - 1),
    "getDate": _field(lambda at: at.day),
    "getDayOfWeek": _field(lambda at: at.isoweekday() % 7),
    "getHours": _field(lambda at: at.hour),
    "getMinutes": _field(lambda at: at.minute),
    "getSeconds": _field(lambda at: at.second),
    "getMilliseconds": _milliseconds,
}
_TOTALS: Final = {"getHours": 3600 * SECOND, "getMinutes": 60 * SECOND, "getSeconds": SECOND, "getMilliseconds": 10**6}


def _total(unit: int) -> Callable[[Duration], int]:
    return lambda duration: _truncated(duration.nanos, unit)


DECLARATIONS: Final[list[tuple[str, str, str, Callable[..., Any] | None]]] = [
    *((name, f"timestamp_{name}", "timestamp.() -> int", read) for name, read in _FIELDS.items()),
    *((name, f"timestamp_{name}_tz", "timestamp.(string) -> int", read) for name, read in _FIELDS.items()),
    *((name, f"duration_{name}", "duration.() -> int", _total(unit)) for name, unit in _TOTALS.items()),
]
