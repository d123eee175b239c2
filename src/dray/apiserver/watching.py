"""One client's watch: what it starts with, what it is sent, when it ends.

A stream does no I/O. Whoever carries it calls ``pending`` for the bytes to send, is told through ``on_change`` when there
are more, and closes it. A stream that lost changes says so with an Expired error and ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec

from dray.api.validation.errors import FieldError
from dray.apiserver.errors import expired, too_large_resource_version
from dray.apiserver.options import options_invalid, unsupported
from dray.apiserver.presentation import Presentation
from dray.apiserver.queries import flag, number
from dray.apiserver.reading import ListOptions, list_options, parse_revision
from dray.apiserver.registry import Resource
from dray.apiserver.selection import Selection
from dray.apiserver.store import Delivered, Store, encode

BOOKMARK_SECONDS: Final = 60.0
LONGEST_SECONDS: Final = 3600
DEFAULT_SECONDS: Final = 1800


class WatchOptions(msgspec.Struct, frozen=True):
    labels: str = ""
    fields: str = ""
    resource_version: str = ""
    timeout: float = DEFAULT_SECONDS
    bookmarks: bool = False
    initial: bool | None = None

    @property
    def from_the_start(self) -> bool:
        """Whether what is there already is sent first: if asked for, and where neither that nor a version is said."""
        return self.initial or (self.initial is None and self.resource_version in ("", "0"))

    @property
    def tells_the_start(self) -> bool:
        """Whether a bookmark says where what is there already ends."""
        return self.bookmarks and bool(self.initial or (self.initial is None and not self.resource_version))


def watch_options(query: Mapping[str, str]) -> WatchOptions:
    common = list_options(query)
    seconds = max(number(query, "timeoutSeconds") or 0, 0)
    if problems := list(_problems(common)):
        raise options_invalid("ListOptions", problems)
    return WatchOptions(
        labels=common.labels,
        fields=common.fields,
        resource_version=common.resource_version,
        timeout=float(min(seconds or DEFAULT_SECONDS, LONGEST_SECONDS)),
        bookmarks=flag(query, "allowWatchBookmarks") or False,
        initial=common.initial,
    )


def _problems(options: ListOptions) -> Iterator[FieldError]:
    path, match, initial = "resourceVersionMatch", options.match, options.initial
    if initial is not None and match != "NotOlderThan":
        yield FieldError(path, "Forbidden", "", "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
    if match and initial is None:
        message = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        yield FieldError(path, "Forbidden", "", message)
    if match not in ("", "NotOlderThan"):
        yield unsupported(path, match, "NotOlderThan")
    if options.token:
        yield FieldError(path, "Forbidden", "", "resourceVersionMatch is forbidden when continue is provided")


class Stream:
    """A running watch. ``revision`` must be durable before anything of it is sent."""

    def __init__(self, store: Store, resource: Resource, namespace: str, options: WatchOptions, present: Presentation) -> None:
        selection = Selection(resource, namespace, options.labels, options.fields)
        table = store.table(resource.storage)
        self._store, self._present, self.options = store, present, options
        self.revision = store.revision
        self.ended = False
        self._first: list[bytes] = []
        after = store.revision
        if options.from_the_start:
            matches = selection.matches
            rows = table.one(selection.key) if selection.key else table.scan(selection.prefix)
            found = [e for _, e in rows if matches is None or selection.chooses(e)]
            self._first = [present.event(Delivered("ADDED", entry)) for entry in found]
            if options.tells_the_start:
                self._first.append(present.bookmark(store.revision, initial=True))
        elif options.resource_version not in ("", "0"):
            after = parse_revision(options.resource_version)
            if after > store.revision:
                raise too_large_resource_version(after, store.revision)
            if after < table.compacted:
                raise expired(f"too old resource version: {after} ({table.compacted})")
        self._watcher = store.watch(table, selection.prefix, selection.matches, after, selection.key)

    def on_change(self, notify: Callable[[], None]) -> None:
        self._watcher.on_change(notify)

    def pending(self) -> bytes:
        """Everything to send now."""
        if self._watcher.overflowed:
            self.ended = True
            error = expired("too old resource version: the watcher did not keep up; list again")
            return b'{"type":"ERROR","object":%s}\n' % encode(error.status())
        parts, self._first = self._first, []
        event = self._present.event
        parts += [event(delivered) for delivered in self._watcher.take()]
        self.ended = self._watcher.closed
        return b"".join(parts)

    def bookmark(self) -> bytes:
        """Where the client may resume; empty when it did not ask, or is behind."""
        if not self.options.bookmarks or self._watcher.buffer or self._watcher.overflowed:
            return b""
        return self._present.bookmark(max(self._store.published, self._watcher.after))

    def close(self) -> None:
        self._store.unwatch(self._watcher)
