"""All objects in memory, one revision counter, and what was changed lately, for watches and lists of the past.

Always true:
- an object in the store is never changed in place; a write replaces it, and its encoded form is made once;
- every write has its own revision, larger than all before it;
- watchers see a change only when it is durable (``publish``), in order, exactly once;
- a watcher that does not keep up is cut off: its buffer is bounded and nobody waits for it.

Nothing here knows what a pod is, reads a clock, or does I/O.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Literal, Protocol

import msgspec

Matcher = Callable[[dict[str, Any]], bool]
EventType = Literal["ADDED", "MODIFIED", "DELETED"]

HISTORY: Final = 4096  # events kept per table: the compaction window
BUFFER: Final = 8192  # events a watcher may lag behind before it is cut off
BYTES: Final = 64 * 1024 * 1024  # and neither holds more than this of objects

encode: Final = msgspec.json.Encoder().encode


class Entry:
    """One object as it was at one revision. ``object`` must not be changed.

    Its bytes are what is kept. The decoded form is there until the change is published, and again for those that are asked
    for one by one (``object``).
    """

    __slots__ = ("_object", "raw", "revision")

    def __init__(self, object: dict[str, Any] | None, raw: bytes, revision: int) -> None:
        self._object, self.raw, self.revision = object, raw, revision

    @property
    def object(self) -> dict[str, Any]:
        found = self._object
        if found is None:
            found = self._object = msgspec.json.decode(self.raw)
        return found

    def look(self, decode: Callable[[bytes], dict[str, Any]] = msgspec.json.decode) -> dict[str, Any]:
        """As ``object``, for one look at many: what is decoded for it is not kept, because it takes several times the memory
        of the bytes. ``decode`` may leave out what is not looked at. Must not be changed."""
        return self._object if self._object is not None else decode(self.raw)

    def copy(self) -> dict[str, Any]:
        """The object, to be changed by the caller."""
        found: dict[str, Any] = msgspec.json.decode(self.raw)
        return found

    def forget(self) -> None:
        """The decoded form is not needed for now: it takes several times the memory of the bytes."""
        self._object = None


class Event:
    """One change: ``entry`` is what is now there, or, when ``deleted``, the last state with the revision of the deletion."""

    __slots__ = ("deleted", "entry", "key", "previous", "table")

    def __init__(self, table: Table, key: str, entry: Entry, previous: Entry | None, deleted: bool) -> None:
        self.table, self.key, self.entry, self.previous, self.deleted = table, key, entry, previous, deleted

    @property
    def revision(self) -> int:
        return self.entry.revision


class Delivered(msgspec.Struct, frozen=True, gc=False):
    """A change as one watcher sees it."""

    type: EventType
    entry: Entry


class Watcher:
    """A bounded queue of changes of one table. ``overflowed`` means that changes were lost: the watch must end. ``closed``: it
    ends when the buffer is taken."""

    __slots__ = ("_notify", "_size", "after", "buffer", "closed", "key", "limit", "matches", "overflowed", "prefix", "table")

    def __init__(self, table: Table, prefix: str, matches: Matcher | None, after: int, limit: int, key: str = "") -> None:
        self.table, self.prefix, self.matches, self.after, self.limit = table, prefix, matches, after, limit
        self.key = key
        self.buffer: deque[Delivered] = deque()
        self._size = 0
        self.overflowed = self.closed = False
        self._notify: Callable[[], None] | None = None

    def on_change(self, notify: Callable[[], None]) -> None:
        """Called after each change that was added to the buffer; must not block."""
        self._notify = notify
        if self.buffer:
            notify()

    def close(self) -> None:
        self.closed = True
        if self._notify is not None:
            self._notify()

    def take(self) -> list[Delivered]:
        taken = list(self.buffer)
        self.buffer.clear()
        self._size = 0
        return taken

    def offer(self, event: Event) -> None:
        if self.overflowed or event.revision <= self.after or not event.key.startswith(self.prefix):
            return
        kind = self._seen_as(event)
        if kind is None:
            return
        if len(self.buffer) >= self.limit or self._size > BYTES:
            self.overflowed = True
            self.buffer.clear()
        else:
            self._size += len(event.entry.raw)
            self.buffer.append(Delivered(kind, _with_revision(event, kind)))
        if self._notify is not None:
            self._notify()

    def _seen_as(self, event: Event) -> EventType | None:
        matches = self.matches
        before = event.previous is not None and (matches is None or matches(event.previous.object))
        after = not event.deleted and (matches is None or matches(event.entry.object))
        if after:
            return "MODIFIED" if before else "ADDED"
        return "DELETED" if before else None


def _with_revision(event: Event, kind: EventType) -> Entry:
    """An object that leaves a selector is shown as it was, at the revision at which it left."""
    if kind != "DELETED" or event.deleted or event.previous is None:
        return event.entry
    return stamped(event.previous.copy(), event.revision)


class Table:
    """The objects of one kind by ``namespace/name`` (or name), in the order of their keys."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.entries: dict[str, Entry] = {}
        self.keys: list[str] = []
        self.history: deque[Event] = deque()
        self.compacted = 0
        self.watchers: dict[Watcher, None] = {}
        self.watchers_of: dict[str, dict[Watcher, None]] = {}  # those that watch one object, by its key
        self._size = 0

    def one(self, key: str) -> list[tuple[str, Entry]]:
        """As ``scan``, of the one object of this key, if there is one."""
        found = self.entries.get(key)
        return [(key, found)] if found is not None else []

    def scan(self, prefix: str = "") -> list[tuple[str, Entry]]:
        entries = self.entries
        return [(key, entries[key]) for key in self._keys(prefix)]

    def _keys(self, prefix: str) -> list[str]:
        if not prefix:
            return self.keys
        start = bisect_left(self.keys, prefix)
        return self.keys[start : bisect_left(self.keys, prefix[:-1] + chr(ord(prefix[-1]) + 1), start)]

    def at(self, revision: int, prefix: str = "") -> list[tuple[str, Entry]]:
        """The table as it was. The caller has made sure that ``revision`` is not compacted."""
        undone: dict[str, Entry | None] = {}
        for event in reversed(self.history):
            if event.revision <= revision:
                break
            if event.key.startswith(prefix):
                undone[event.key] = event.previous
        if not undone:
            return self.scan(prefix)
        then = {key: entry for key, entry in self.scan(prefix) if key not in undone}
        then.update({key: entry for key, entry in undone.items() if entry is not None})
        return sorted(then.items())

    def since(self, revision: int) -> Iterator[Event]:
        newer: list[Event] = []
        for event in reversed(self.history):
            if event.revision <= revision:
                break
            newer.append(event)
        return reversed(newer)

    def load(self, key: str, entry: Entry) -> None:
        self.entries[key] = entry

    def apply(self, event: Event) -> None:
        key = event.key
        if event.deleted:
            del self.entries[key]
            del self.keys[bisect_left(self.keys, key)]
        else:
            if key not in self.entries:
                insort(self.keys, key)
            self.entries[key] = event.entry
        self.history.append(event)
        self._size += len(event.entry.raw)
        while len(self.history) > HISTORY or self._size > BYTES:
            oldest = self.history.popleft()
            self._size -= len(oldest.entry.raw)
            self.compacted = oldest.revision

    def undo(self, event: Event) -> None:
        """Take back the last change that was applied."""
        key = event.key
        if event.previous is None:
            del self.entries[key]
            del self.keys[bisect_left(self.keys, key)]
        else:
            if event.deleted:
                insort(self.keys, key)
            self.entries[key] = event.previous
        if self.history and self.history[-1] is event:
            self.history.pop()
            self._size -= len(event.entry.raw)


class Log(Protocol):
    """Where changes are made durable. ``append`` returns at once; ``Store.publish`` is called when they are."""

    def append(self, revision: int, table: str, key: str, value: bytes | None) -> None: ...


class Store:
    """Tables, the revision, and the way from a write to its watchers.

    Without a log every change is published by the write itself; with one, when the log says that it is durable.
    """

    def __init__(self, log: Log | None = None, *, buffer: int = BUFFER) -> None:
        self.revision = 1
        self.published = 1
        self.reverted = 0
        self._loaded = 0
        self._log, self._buffer = log, buffer
        self._tables: dict[str, Table] = {}
        self._unpublished: deque[Event] = deque()
        self._ending: list[tuple[int, Watcher]] = []

    @property
    def tables(self) -> list[Table]:
        return list(self._tables.values())

    def table(self, name: str) -> Table:
        found = self._tables.get(name)
        if found is None:
            found = self._tables[name] = Table(name)
            found.compacted = self._loaded
        return found

    def load(self, revision: int, rows: Iterable[tuple[str, str, int, bytes]]) -> None:
        """What an earlier run left. Watches from before it are compacted."""
        for table, key, at, raw in rows:
            self.table(table).load(key, Entry(None, raw, at))
        self.revision = self.published = max(revision, 1)
        self._loaded = revision
        for loaded in self._tables.values():
            loaded.keys = sorted(loaded.entries)
            loaded.compacted = revision

    def put(self, table: Table, key: str, obj: dict[str, Any]) -> Entry:
        """Create or replace. ``obj`` belongs to the store from now on."""
        entry = stamped(obj, self.revision + 1)
        self._commit(Event(table, key, entry, table.entries.get(key), deleted=False))
        return entry

    def delete(self, table: Table, key: str, last: dict[str, Any] | None = None) -> Entry:
        """Remove. ``last`` is the state that watchers shall see, where it differs from what is stored."""
        previous = table.entries[key]
        entry = stamped(last if last is not None else previous.copy(), self.revision + 1)
        self._commit(Event(table, key, entry, previous, deleted=True))
        return entry

    def _commit(self, event: Event) -> None:
        self.revision = event.revision
        event.table.apply(event)
        self._unpublished.append(event)
        if self._log is None:
            self.publish(event.revision)
        else:
            self._log.append(event.revision, event.table.name, event.key, None if event.deleted else event.entry.raw)

    def publish(self, revision: int) -> None:
        """Every change up to ``revision`` is durable: tell the watchers."""
        waiting = self._unpublished
        while waiting and waiting[0].revision <= revision:
            event = waiting.popleft()
            self.published = event.revision
            table = event.table
            for watcher in list(table.watchers):
                watcher.offer(event)
            if table.watchers_of:
                for watcher in list(table.watchers_of.get(event.key, ())):
                    watcher.offer(event)
            event.entry.forget()
            if event.previous is not None:
                event.previous.forget()
        self.published = max(self.published, revision)
        if self._ending:
            self._end()

    def end_watches(self, table: Table) -> None:
        """Everybody who watches the table sees what has been written so far, and then the end."""
        self._ending += [(self.revision, watcher) for watcher in table.watchers]
        self._end()

    def _end(self) -> None:
        waiting, self._ending = self._ending, []
        for revision, watcher in waiting:
            if revision <= self.published:
                watcher.close()
            else:
                self._ending.append((revision, watcher))

    def revert(self) -> set[str]:
        """Changes that are not durable will not become so: they never happened. Nobody has seen them but who keeps accounts of
        the tables; ``reverted`` tells those to begin anew. The names of the tables that lost something."""
        lost = set()
        while self._unpublished:
            event = self._unpublished.pop()
            event.table.undo(event)
            lost.add(event.table.name)
        self.revision = self.published
        self.reverted += 1
        return lost

    def watch(self, table: Table, prefix: str, matches: Matcher | None, after: int, key: str = "") -> Watcher:
        """Changes after ``after``, which is not compacted. Those that are published already are in the buffer at once.
        With ``key`` only those of one object, and the others cost nothing."""
        watcher = Watcher(table, key or prefix, matches, after, self._buffer, key)
        for event in table.since(after):
            if event.revision <= self.published:
                watcher.offer(event)
        watcher.after = max(after, 0)
        place = table.watchers_of.setdefault(key, {}) if key else table.watchers
        place[watcher] = None
        return watcher

    def unwatch(self, watcher: Watcher) -> None:
        table, key = watcher.table, watcher.key
        place = table.watchers_of.get(key, {}) if key else table.watchers
        place.pop(watcher, None)
        if key and not place:
            table.watchers_of.pop(key, None)
        watcher.buffer.clear()


def stamped(obj: dict[str, Any], revision: int) -> Entry:
    obj["metadata"]["resourceVersion"] = str(revision)
    return Entry(obj, encode(obj), revision)


def not_stored(obj: dict[str, Any]) -> Entry:
    """An entry without a revision of its own: of a dry run, or before it is written."""
    return Entry(obj, encode(obj), 0)
