"""Kubernetes events as data: a decider says what happened, and gets the write that tells it, if one is due.

Always true: the first time something is said it is one create; repeated within six minutes it is a series, written the second
time and then ever more rarely; memory is bounded.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final, Literal

from dray.api.events import event_body
from dray.api.kinds import EVENTS, Kind
from dray.api.meta import Object
from dray.api.times import format_micro_time
from dray.cluster.port import Write

SERIES_SECONDS: Final = 360.0
REFRESH_SECONDS: Final = 1800.0
SERIES_MAX: Final = 10_000


class _Series:
    __slots__ = ("count", "last", "name", "namespace", "told")

    def __init__(self, body: dict[str, Any], now: float) -> None:
        self.namespace, self.name = body["metadata"]["namespace"], body["metadata"]["name"]
        self.count, self.last, self.told = 1, now, now


class Recorder:
    """Events of one part of Dray. ``controller`` is what ``kubectl events`` shows as its source."""

    def __init__(self, controller: str, instance: str = "") -> None:
        self._controller, self._instance = controller, instance or controller
        self._series: OrderedDict[tuple[str, ...], _Series] = OrderedDict()

    def normal(self, kind: Kind, about: Object, reason: str, note: str, *, action: str, now: float) -> list[Write]:
        return self._event(kind, about, "Normal", reason, note, action, now)

    def warning(self, kind: Kind, about: Object, reason: str, note: str, *, action: str, now: float) -> list[Write]:
        return self._event(kind, about, "Warning", reason, note, action, now)

    def _event(
        self, kind: Kind, about: Object, type: Literal["Normal", "Warning"], reason: str, note: str, action: str, now: float
    ) -> list[Write]:
        key = (kind.resource, about.uid, about.key, type, reason, action, note)
        series = self._series.get(key)
        if series is None or now - series.last > SERIES_SECONDS:
            body = event_body(
                kind, about, now=now, type=type, reason=reason, note=note, action=action, controller=self._controller,
                instance=self._instance,
            )  # fmt: skip
            self._series[key] = series = _Series(body, now)
            if len(self._series) > SERIES_MAX:
                self._series.popitem(last=False)
            return [Write("create", EVENTS, series.namespace, series.name, body, about=about.key)]
        self._series.move_to_end(key)
        return self._again(series, about.key, now)

    def _again(self, series: _Series, about: str, now: float) -> list[Write]:
        series.count += 1
        series.last = now
        doubled = series.count & (series.count - 1) == 0
        if not doubled and now - series.told < REFRESH_SECONDS:
            return []
        series.told = now
        body = {"series": {"count": series.count, "lastObservedTime": format_micro_time(now)}}
        return [Write("patch", EVENTS, series.namespace, series.name, body, about=about)]
