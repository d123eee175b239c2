"""Events have two views of one storage: core/v1 (as stored) and events.k8s.io/v1."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from dray.api.validation.errors import FieldError
from dray.apiserver.registry import Context

# events.k8s.io name -> core name
_NAMES: Final = {
    "note": "message",
    "regarding": "involvedObject",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
    "reportingController": "reportingComponent",
}
_CORE_NAMES: Final = {core: new for new, core in _NAMES.items()}


def to_core(event: dict[str, Any]) -> dict[str, Any]:
    return {_NAMES.get(field, field): value for field, value in event.items()} | {"apiVersion": "v1"}


def from_core(event: dict[str, Any]) -> dict[str, Any]:
    return {_CORE_NAMES.get(field, field): value for field, value in event.items()} | {"apiVersion": "events.k8s.io/v1"}


def check_new_event(event: dict[str, Any], old: dict[str, Any] | None, context: Context) -> Iterable[FieldError]:
    """What events.k8s.io/v1 asks for besides."""
    if old is not None:
        return
    if not event.get("eventTime"):
        yield FieldError("eventTime", "Required", "")
    for field, shown, limit in (
        ("reportingComponent", "reportingController", 0),
        ("reportingInstance", "reportingInstance", 128),
        ("action", "action", 128),
        ("reason", "reason", 128),
    ):
        value = event.get(field) or ""
        if not value:
            yield FieldError(shown, "Required", "")
        elif limit and len(value) > limit:
            yield FieldError(shown, "Invalid", value, f"can have at most {limit} characters")
    if event.get("type") not in ("Normal", "Warning"):
        yield FieldError("type", "Invalid", event.get("type") or "", 'has invalid value: must be "Normal" or "Warning"')
    if len(event.get("message") or "") > 1024:
        yield FieldError("note", "Invalid", event["message"], "can have at most 1024 characters")
    for core, shown in (
        ("count", "deprecatedCount"),
        ("firstTimestamp", "deprecatedFirstTimestamp"),
        ("lastTimestamp", "deprecatedLastTimestamp"),
    ):
        if event.get(core):
            yield FieldError(shown, "Invalid", event[core], "needs to be unset")
