"""What happened to one object, in order: what was seen, what was written for it and how that ended.

Bounded: the newest keys are kept, and the newest lines of each. A story is data; ``dray story`` and the health server show it.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Any, Final

import msgspec

from dray.api.kinds import EVENTS
from dray.cluster.port import Change, Outcome, Write

KEYS: Final = 5_000
LINES: Final = 60


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line: ``seen`` from the API, ``write`` sent, ``done`` or ``failed`` as its answer."""

    at: float
    what: str
    object: str
    by: str = ""
    detail: str = ""


class Stories:
    """Stories by key (``namespace/name`` of the pod, or whatever a write is ``about``)."""

    def __init__(self, keys: int = KEYS, lines: int = LINES) -> None:
        self._keys, self._lines = keys, lines
        self._stories: OrderedDict[str, deque[Line]] = OrderedDict()

    def seen(self, change: Change, now: float) -> None:
        verb = "appeared" if change.old is None else "gone" if change.new is None else "changed"
        found = change.object.metadata
        self.tell(found.key, Line(now, verb, change.kind.plural, detail=f"resourceVersion {found.resource_version}"))

    def written(self, write: Write, by: str, now: float) -> None:
        self.tell(_key(write), Line(now, "write", _target(write), by, _brief(write)))

    def ended(self, outcome: Outcome, by: str, now: float) -> None:
        write = outcome.write
        what, detail = ("done", "") if outcome.error is None else ("failed", f"{type(outcome.error).__name__}: {outcome.error}")
        self.tell(_key(write), Line(now, what, _target(write), by, detail[:300]))

    def tell(self, key: str, line: Line) -> None:
        story = self._stories.get(key)
        if story is None:
            story = self._stories[key] = deque(maxlen=self._lines)
            if len(self._stories) > self._keys:
                self._stories.popitem(last=False)
        else:
            self._stories.move_to_end(key)
        story.append(line)

    def story(self, key: str) -> list[Line]:
        return list(self._stories.get(key, ()))


def _key(write: Write) -> str:
    """What a write is about may be told with its kind before it (``pod ns/name``); the story is the object's."""
    return write.about.rpartition(" ")[2] or write.key


def _target(write: Write) -> str:
    resource = f"{write.kind.plural}/{write.subresource}" if write.subresource else write.kind.plural
    return f"{write.verb} {resource} {write.key}"


def _brief(write: Write) -> str:
    """What people are told is told in full; of everything else, the beginning."""
    body: Any = write.body
    if body is None:
        return ""
    if write.kind is EVENTS:
        return f"{body.get('reason', '')}: {body.get('note', '')}"
    text = msgspec.json.encode(body)
    return text[:200].decode(errors="ignore") + ("…" if len(text) > 200 else "")
