"""Cron schedules: five fields (minute, hour, day of month, month, day of week) or a name such as ``@hourly``.

A time matches when all fields do; where both days are restricted, one of them is enough. Times are of the given zone: those
that a change to summer time leaves out do not happen. Searches end after five years, so that ``30 2 30 2 *`` is simply never.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Final
from zoneinfo import ZoneInfo

_NAMED: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTHS: Final = dict(zip("jan feb mar apr may jun jul aug sep oct nov dec".split(), range(1, 13)))  # noqa: SIM905
_DAYS: Final = dict(zip("sun mon tue wed thu fri sat".split(), range(7)))  # noqa: SIM905
_BOUNDS: Final[tuple[tuple[int, int, dict[str, int]], ...]] = (
    (0, 59, {}),
    (0, 23, {}),
    (1, 31, {}),
    (1, 12, _MONTHS),
    (0, 6, _DAYS),
)
_LONGEST_DAYS: Final = 366 * 5


class BadSchedule(ValueError):
    """The text is not a schedule; the message says which part is wrong."""


class Schedule:
    """A schedule that was read."""

    def __init__(self, text: str) -> None:
        if "TZ=" in text:
            raise BadSchedule("the time zone belongs into spec.timeZone")
        fields = _NAMED.get(text.strip(), text).split()
        if text.startswith("@") and text.strip() not in _NAMED:
            raise BadSchedule(f"unrecognized descriptor: {text}")
        if len(fields) != 5:
            raise BadSchedule(f"expected exactly 5 fields, found {len(fields)}: [{' '.join(fields)}]")
        sets = [_field(part, *bounds) for part, bounds in zip(fields, _BOUNDS)]
        self._minutes, self._hours, self._days, self._months, self._weekdays = sets
        self._any_day, self._any_weekday = fields[2][0] in "*?", fields[4][0] in "*?"

    def after(self, moment: float, zone: str = "") -> float | None:
        """The first time later than ``moment``."""
        where = ZoneInfo(zone) if zone else datetime.UTC
        start = datetime.datetime.fromtimestamp(moment, where)
        return next((at for day in self._matching(start.date(), 1) for at in self._times(day, where, 1) if at > moment), None)

    def latest(self, moment: float, after: float, zone: str = "") -> float | None:
        """The last time up to ``moment`` that is later than ``after``."""
        where = ZoneInfo(zone) if zone else datetime.UTC
        start = datetime.datetime.fromtimestamp(moment, where)
        found = next((at for day in self._matching(start.date(), -1) for at in self._times(day, where, -1) if at <= moment), None)
        return found if found is not None and found > after else None

    def _matching(self, day: datetime.date, step: int) -> Iterator[datetime.date]:
        for _ in range(_LONGEST_DAYS):
            if day.month in self._months and self._is_day(day):
                yield day
            day += datetime.timedelta(days=step)

    def _is_day(self, day: datetime.date) -> bool:
        in_month, in_week = day.day in self._days, day.isoweekday() % 7 in self._weekdays
        return (in_month and in_week) if self._any_day or self._any_weekday else (in_month or in_week)

    def _times(self, day: datetime.date, where: datetime.tzinfo, step: int) -> Iterator[float]:
        for hour in self._hours[::step]:
            for minute in self._minutes[::step]:
                at = datetime.datetime(day.year, day.month, day.day, hour, minute, tzinfo=where)
                stamp = at.timestamp()
                if datetime.datetime.fromtimestamp(stamp, where).hour == hour:
                    yield stamp


def _field(text: str, low: int, high: int, names: dict[str, int]) -> list[int]:
    found: set[int] = set()
    for part in text.split(","):
        span, slash, step_text = part.partition("/")
        step = _number(step_text, {}) if slash else 1
        if step < 1:
            raise BadSchedule(f"step of range should be a positive number: {part}")
        first, last = (low, high) if span in ("*", "?") else _span(span, names, high if slash else None)
        if not low <= first <= last <= high:
            problem = "beginning of range beyond end of range" if first > last else f"out of range ({low}-{high})"
            raise BadSchedule(f"{problem}: {part}")
        found.update(range(first, last + 1, step))
    return sorted(found)


def _span(text: str, names: dict[str, int], open_end: int | None) -> tuple[int, int]:
    first, dash, last = text.partition("-")
    start = _number(first, names)
    return start, _number(last, names) if dash else open_end if open_end is not None else start


def _number(text: str, names: dict[str, int]) -> int:
    found = names.get(text.lower())
    if found is not None:
        return found
    if not text.isascii() or not text.isdigit() or len(text) > 4:
        raise BadSchedule(f"failed to parse int from {text}")
    return int(text)
