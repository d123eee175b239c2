"""Kubernetes events as data: a decider says what happened, and gets the write that tells it, if one is due.

Always true: the first time something is said it is one create; said again within six minutes it is one more of a series, with how
often and when last; what could not be written is made anew the next time; what was not said for that while is forgotten, and
memory is bounded.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, Literal

from dray.api.events import event_body
from dray.api.kinds import EVENTS, Kind
from dray.api.meta import Object
from dray.api.times import parse_time
from dray.cluster.port import Write

Key = tuple[str, ...]

# Said again after so long, it is an event of its own.
SERIES_SECONDS: Final = 360.0
# A series that is told rarely is told at least this often.
REFRESH_SECONDS: Final = 1800.0
SERIES_MAX: Final = 10_000


class _Said:
    __slots__ = ("count", "last", "name", "told")

    def __init__(self, name: str, now: float) -> None:
        self.name, self.count, self.last, self.told = name, 1, now, now


class Series:
    """Events that may be said again and again: the same of the same object is one event. ``rarely``: its repetitions are written
    the second time and then ever more seldom; else each of them."""

    def __init__(self, *, rarely: bool) -> None:
        self._rarely = rarely
        self._said: OrderedDict[Key, _Said] = OrderedDict()
        self._named: dict[str, Key] = {}

    def of(self, write: Write) -> Write | None:
        """The write that tells this: the create of an event as it is, or one more of its series; None while none is due."""
        body = write.body
        key = (*body["regarding"].values(), body["type"], body["reason"], body["action"], body["note"])
        at = parse_time(body["eventTime"])
        known = self._said.get(key)
        if known is None or at - known.last > SERIES_SECONDS:
            self._keep(key, _Said(write.name, at))
            return write
        known.count, known.last = known.count + 1, at
        self._said.move_to_end(key)
        if self._rarely and not _doubled(known.count) and at - known.told < REFRESH_SECONDS:
            return None
        known.told = at
        again = {"series": {"count": known.count, "lastObservedTime": body["eventTime"]}}
        return Write("patch", write.kind, write.namespace, known.name, again, about=write.about)

    def lost(self, name: str) -> None:
        """The event of this name could not be written."""
        key = self._named.pop(name, None)
        if key is not None:
            del self._said[key]

    def _keep(self, key: Key, said: _Said) -> None:
        before = self._said.pop(key, None)
        if before is not None:
            del self._named[before.name]
        self._said[key], self._named[said.name] = said, key
        while len(self._said) > SERIES_MAX or next(iter(self._said.values())).last < said.last - SERIES_SECONDS:
            _, oldest = self._said.popitem(last=False)
            del self._named[oldest.name]


def _doubled(count: int) -> bool:
    return count & (count - 1) == 0


class Recorder:
    """Events of one part of Dray. ``controller`` is what ``kubectl events`` shows as its source."""

    def __init__(self, controller: str) -> None:
        self._controller = controller
        self._series = Series(rarely=True)
        self.lost = self._series.lost

    def normal(self, kind: Kind, about: Object, reason: str, note: str, *, action: str, now: float) -> list[Write]:
        return self._event(kind, about, "Normal", reason, note, action, now)

    def warning(self, kind: Kind, about: Object, reason: str, note: str, *, action: str, now: float) -> list[Write]:
        return self._event(kind, about, "Warning", reason, note, action, now)

    def _event(
        self, kind: Kind, about: Object, type: Literal["Normal", "Warning"], reason: str, note: str, action: str, now: float
    ) -> list[Write]:
        body = event_body(
            kind, about, now=now, type=type, reason=reason, note=note, action=action, controller=self._controller
        )  # fmt: skip
        metadata = body["metadata"]
        told = self._series.of(Write("create", EVENTS, metadata["namespace"], metadata["name"], body, about=about.key))
        return [told] if told is not None else []
