"""The typed picture of a cluster, made of raw watch events, with indexes that are kept as it changes.

Always true: an object is replaced only by a newer one, so an answer to our own write and the watch event that follows it
count once; an object that went never comes back, however late an answer about it is; a list never removes what is newer than
the list. An object that does not have the shape of its kind is reported in the log and left out. Nothing here talks to a
network or decides anything.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar, cast

import msgspec

from dray.api.kinds import Kind
from dray.api.meta import DecodeError, Object, decode
from dray.cluster.port import Change

T = TypeVar("T", bound=Object)
# How many objects that went are remembered by uid. An answer can be late by seconds, not by this many deletions.
GONE: Final = 20_000

log = logging.getLogger(__name__)


class Index:
    """Keys of objects by what a function says of each object (``pods by node``)."""

    def __init__(self, of: Callable[[Any], Iterable[str]]) -> None:
        self._of = of
        self._keys: dict[str, dict[str, None]] = {}

    def __getitem__(self, value: str) -> Mapping[str, None]:
        return self._keys.get(value, {})

    def values(self) -> Iterable[str]:
        return self._keys.keys()

    def update(self, change: Change) -> None:
        before = tuple(self._of(change.old)) if change.old is not None else ()
        after = tuple(self._of(change.new)) if change.new is not None else ()
        key = change.object.key
        for value in before:
            if value not in after and (keys := self._keys.get(value)) is not None:
                keys.pop(key, None)
                if not keys:
                    del self._keys[value]
        for value in after:
            self._keys.setdefault(value, {})[key] = None


class World:
    """Every object of the kinds that are watched, by kind and ``namespace/name``."""

    def __init__(self, kinds: Sequence[Kind]) -> None:
        self._objects: dict[Kind, dict[str, Object]] = {kind: {} for kind in kinds}
        self._indexes: dict[Kind, list[Index]] = {kind: [] for kind in kinds}
        self._gone: dict[str, None] = {}
        self._listed: dict[Kind, int] = {}
        # By kind how far what the server tells of by itself has come: lists and watch events, not answers to writes.
        self._told: dict[Kind, int] = {}

    @staticmethod
    def of(objects: Mapping[Kind, Mapping[str, Any]]) -> World:
        """A world that holds exactly these typed objects, by kind and key."""
        made = World(tuple(objects))
        made._objects = {kind: dict(found) for kind, found in objects.items()}
        return made

    def copy(self) -> World:
        """The same objects, for somebody who looks at them while this one goes on. Cheap: objects are never changed in place.
        Indexes are not copied."""
        made = World.of(self._objects)
        made._gone, made._listed, made._told = dict(self._gone), dict(self._listed), dict(self._told)
        return made

    @property
    def kinds(self) -> tuple[Kind, ...]:
        return tuple(self._objects)

    def copied(self) -> World:
        """Another world with the same objects, and no indexes: to be asked about, and thrown away."""
        made = World(self.kinds)
        for kind, objects in self._objects.items():
            made._objects[kind] = dict(objects)
        return made

    def follow(self, kind: Kind) -> None:
        """Hold objects of one more kind."""
        self._objects.setdefault(kind, {})
        self._indexes.setdefault(kind, [])

    def drop(self, kind: Kind) -> None:
        """Hold objects of this kind no more; its indexes are of no use after that."""
        del self._objects[kind], self._indexes[kind]
        self._listed.pop(kind, None)
        self._told.pop(kind, None)

    def is_listed(self, kind: Kind) -> bool:
        """Whether all there is of the kind is here, or was once."""
        return kind in self._listed

    def has_come_to(self, kind: Kind, resource_version: str) -> bool:
        """Whether everything of the kind that was written up to this version is here, whoever wrote it."""
        return not resource_version.isdigit() or int(resource_version) <= self._told.get(kind, 0)

    def _hear(self, kind: Kind, resource_version: str) -> None:
        if resource_version.isdigit():
            self._told[kind] = max(self._told.get(kind, 0), int(resource_version))

    def get(self, kind: Kind, key: str) -> Any:
        return self._objects[kind].get(key)

    def all(self, kind: Kind) -> Mapping[str, Any]:
        return cast("Mapping[str, Any]", self._objects[kind])

    def index(self, kind: Kind, of: Callable[[Any], Iterable[str]]) -> Index:
        """An index over the objects of a kind, present and future."""
        index = Index(of)
        for found in self._objects[kind].values():
            index.update(Change(kind, None, found))
        self._indexes[kind].append(index)
        return index

    def put(self, kind: Kind, raw: bytes | msgspec.Raw | dict[str, Any], *, answer: bool = False) -> list[Change]:
        """The object is now this. Empty when what is known is as new; a replaced uid is a removal and an addition. ``answer``:
        to a write, which may be ahead of the watch."""
        new = _readable(kind, raw)
        if new is not None and not answer:
            self._hear(kind, new.metadata.resource_version)
        if new is None or new.uid in self._gone:
            return []
        old = self._objects[kind].get(new.key)
        if old is not None and old.uid != new.uid:
            return [self._change(kind, old, None), self._change(kind, None, new)] if _newer(new, old) else []
        if (old is not None and not _newer(new, old)) or (old is None and self._passed(kind, new)):
            return []
        return [self._change(kind, old, new)]

    def remove(self, kind: Kind, raw: bytes | msgspec.Raw | dict[str, Any], *, answer: bool = False) -> list[Change]:
        """The object is gone; ``raw`` is its last state."""
        last = decode(Object, raw)
        if not answer:
            self._hear(kind, last.metadata.resource_version)
        return self.forget(kind, last.key, last.uid)

    def forget(self, kind: Kind, key: str, uid: str) -> list[Change]:
        """The object of this name is gone, unless it is another one by now."""
        old = self._objects[kind].get(key)
        if old is None or old.uid != uid:
            self._bury(uid)
            return []
        return [self._change(kind, old, None)]

    def replace(
        self, kind: Kind, raws: Iterable[bytes | msgspec.Raw | dict[str, Any]], resource_version: str = ""
    ) -> list[Change]:
        """The kind holds exactly these objects: what a fresh list says after a gap in the watch. With the list's version,
        what was written after the list was made stays."""
        # A server whose versions went back was restored or replaced: only what it says now counts.
        restored = resource_version.isdigit() and int(resource_version) < self._listed.get(kind, 0)
        if resource_version.isdigit():
            self._listed[kind] = self._told[kind] = int(resource_version)
        listed = {found.key: found for raw in raws if (found := _readable(kind, raw)) is not None}
        objects = self._objects[kind]
        missing = [k for k in objects if k not in listed and (restored or not _after(objects[k], resource_version))]
        changes = [self._change(kind, objects[key], None) for key in missing]
        for key, new in listed.items():
            if not restored and (new.uid in self._gone or self._succeeded(objects.get(key), new, resource_version)):
                continue
            self._gone.pop(new.uid, None)
            old = objects.get(key)
            if old is not None and old.uid != new.uid:
                changes.append(self._change(kind, old, None))
                old = None
            if old is None or restored or _newer(new, old):
                changes.append(self._change(kind, old, new))
        return changes

    def _change(self, kind: Kind, old: Object | None, new: Object | None) -> Change:
        change = Change(kind, old, new)
        if new is not None:
            self._objects[kind][new.key] = new
        else:
            del self._objects[kind][change.object.key]
            self._bury(change.object.uid)
        for index in self._indexes[kind]:
            index.update(change)
        return change

    def _succeeded(self, known: Object | None, listed: Object, resource_version: str) -> bool:
        """Whether what is known under the name was made after the list, in the place of what was listed."""
        return known is not None and known.uid != listed.uid and _after(known, resource_version)

    def _passed(self, kind: Kind, new: Object) -> bool:
        """Whether a list that is newer than this object did not have it: the answer was late, and the object went."""
        version = new.metadata.resource_version
        return version.isdigit() and int(version) <= self._listed.get(kind, 0)

    def _bury(self, uid: str) -> None:
        if uid:
            self._gone[uid] = None
            if len(self._gone) > GONE:
                del self._gone[next(iter(self._gone))]


def _readable(kind: Kind, raw: bytes | msgspec.Raw | dict[str, Any]) -> Object | None:
    try:
        return decode(kind.type, raw)
    except DecodeError as error:
        log.error("ignoring an object that cannot be read", extra={"kind": kind.resource, "error": str(error)})
        return None


def _after(known: Object, resource_version: str) -> bool:
    version = known.metadata.resource_version
    return version.isdigit() and resource_version.isdigit() and int(version) > int(resource_version)


def _newer(new: Object, old: Object) -> bool:
    """By resourceVersion: numbers in every API server there is; where not, different counts as newer."""
    a, b = new.metadata.resource_version, old.metadata.resource_version
    if a.isdigit() and b.isdigit():
        return int(a) > int(b)
    return a != b
