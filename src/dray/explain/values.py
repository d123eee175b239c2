"""Quantities and times in files that no API server has judged: what is none is told with its place, before anybody computes.

What has another type than the API says is not judged here: decoding does that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from dray.api.quantity import Quantity, QuantityError
from dray.api.times import parse_time

Found = Iterator[tuple[str, Any]]

_OF_METADATA: Final = ("creationTimestamp", "deletionTimestamp")
_OF_EVENTS: Final = ("eventTime", "firstTimestamp", "lastTimestamp", "deprecatedFirstTimestamp", "deprecatedLastTimestamp")


def wrong(body: Mapping[str, Any]) -> str:
    """The first value that is no quantity or no time, with its place and why; empty where there is none."""
    judged: tuple[tuple[Found, Callable[[Any], object]], ...] = ((_quantities(body), _quantity), (_times(body), _time))
    for found, judge in judged:
        for place, value in found:
            try:
                judge(value)
            except (QuantityError, ValueError) as error:
                return f"{place}: {error}"
    return ""


def _quantity(value: Any) -> object:
    return Quantity.parse(value) if isinstance(value, str) else None


def _time(value: Any) -> object:
    return parse_time(value) if isinstance(value, str) and value else None


def _times(body: Mapping[str, Any]) -> Found:
    metadata, status = _mapping(body.get("metadata")), _mapping(body.get("status"))
    yield from ((f"metadata.{name}", metadata.get(name)) for name in _OF_METADATA)
    yield from ((name, body.get(name)) for name in _OF_EVENTS)
    yield "series.lastObservedTime", _mapping(body.get("series")).get("lastObservedTime")
    yield "status.startTime", status.get("startTime")
    for index, condition in enumerate(_listed(status.get("conditions"))):
        yield f"status.conditions[{index}].lastTransitionTime", condition.get("lastTransitionTime")


def _quantities(body: Mapping[str, Any]) -> Found:
    spec, status = _mapping(body.get("spec")), _mapping(body.get("status"))
    for name in ("allocatable", "capacity"):
        yield from _amounts(f"status.{name}", status.get(name))
    yield from _amounts("spec.overhead", spec.get("overhead"))
    yield from _requested("spec", spec)
    for group in ("initContainers", "containers"):
        for index, container in enumerate(_listed(spec.get(group))):
            yield from _requested(f"spec.{group}[{index}]", container)
    for index, device in enumerate(_listed(spec.get("devices"))):
        yield from _valued(f"spec.devices[{index}].capacity", device.get("capacity"))
        yield from _counted(f"spec.devices[{index}].consumesCounters", device.get("consumesCounters"))
    yield from _counted("spec.sharedCounters", spec.get("sharedCounters"))


def _requested(place: str, holder: Mapping[str, Any]) -> Found:
    resources = _mapping(holder.get("resources"))
    for name in ("requests", "limits"):
        yield from _amounts(f"{place}.resources.{name}", resources.get(name))


def _counted(place: str, sets: Any) -> Found:
    for index, each in enumerate(_listed(sets)):
        yield from _valued(f"{place}[{index}].counters", each.get("counters"))


def _amounts(place: str, amounts: Any) -> Found:
    return ((f"{place}.{name}", value) for name, value in _mapping(amounts).items())


def _valued(place: str, entries: Any) -> Found:
    return ((f"{place}.{name}.value", _mapping(entry).get("value")) for name, entry in _mapping(entries).items())


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _listed(value: Any) -> list[Mapping[str, Any]]:
    return [_mapping(each) for each in value] if isinstance(value, list) else []
