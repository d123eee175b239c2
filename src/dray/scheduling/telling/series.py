"""Events that may be said again and again: the same of the same pod is one event, with how often and when last.

Always true: what is said again within a while makes no new event; one that could not be written is made anew the next time;
what was not said for that while is forgotten, and memory is bounded. Unlike a controller's ``Recorder`` it writes each time:
from when devices last failed a pod it is known which of them rest.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from dray.api.times import parse_time
from dray.cluster.port import Write

Key = tuple[str, str, str]

_REPEATED: Final = frozenset({"FailedScheduling", "BindingConditionsPending"})
# Said again after so long, it is an event of its own.
_GAP: Final = 360.0
_MOST: Final = 10_000


class _Said:
    __slots__ = ("count", "last", "name")

    def __init__(self, name: str, now: float) -> None:
        self.name, self.count, self.last = name, 1, now


class Series:
    def __init__(self) -> None:
        self._said: OrderedDict[Key, _Said] = OrderedDict()
        self._named: dict[str, Key] = {}

    def of(self, write: Write) -> Write:
        """The write that tells this: the create of an event as it is, or one more of its series."""
        body = write.body
        if write.verb != "create" or body["reason"] not in _REPEATED:
            return write
        key, at = (body["regarding"]["uid"], body["reason"], body["note"]), parse_time(body["eventTime"])
        known = self._said.get(key)
        if known is None or at - known.last > _GAP:
            self._keep(key, _Said(write.name, at))
            return write
        known.count, known.last = known.count + 1, at
        self._said.move_to_end(key)
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
        while len(self._said) > _MOST or next(iter(self._said.values())).last < said.last - _GAP:
            _, oldest = self._said.popitem(last=False)
            del self._named[oldest.name]
