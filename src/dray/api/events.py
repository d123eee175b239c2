"""Events that tell people what happened to an object, as ``events.k8s.io/v1`` bodies.

Always true: the name of an event follows from what it says and when, so a repeated write of the same event is one event; the
note fits the API's limit.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, Final

from dray.api.kinds import EVENTS, Kind
from dray.api.meta import Object
from dray.api.times import format_micro_time

NOTE_MAX: Final = 1024
_API_VERSION: Final = EVENTS.api_version


def event_body(
    kind: Kind,
    about: Object,
    *,
    now: float,
    type: str,
    reason: str,
    note: str,
    action: str,
    controller: str,
    instance: str = "",
) -> dict[str, Any]:
    """The body of a create on ``EVENTS``. ``type`` is Normal or Warning; ``controller`` says which part of Dray speaks."""
    name, namespace, uid = about.metadata.name, about.metadata.namespace, about.metadata.uid
    stamp = blake2b(f"{uid}|{reason}|{note}|{now:.6f}".encode(), digest_size=8).hexdigest()
    regarding = {"apiVersion": kind.api_version, "kind": kind.kind, "name": name, "uid": uid}
    if namespace:
        regarding["namespace"] = namespace
    return {
        "apiVersion": _API_VERSION,
        "kind": EVENTS.kind,
        "metadata": {"name": f"{name[:230]}.{stamp}", "namespace": namespace or "default"},
        "eventTime": format_micro_time(now),
        "reportingController": controller,
        "reportingInstance": (instance or controller)[:128],
        "action": action,
        "reason": reason,
        "regarding": regarding,
        "note": shortened(note),
        "type": type,
    }


def shortened(note: str) -> str:
    """The note within the API's limit; what is cut is shown by an ellipsis."""
    encoded = note.encode()
    if len(encoded) <= NOTE_MAX:
        return note
    return encoded[: NOTE_MAX - 3].decode(errors="ignore") + "…"
