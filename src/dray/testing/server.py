"""The embedded API server in this process, with a clock of its own and a way to begin in any state.

Always true: ``write`` is what a client over HTTP would get, admission, validation, preconditions and patches included. ``plant``
is not: it puts an object there as if it had always been so, with its status, uid and times, which no client could do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dray.api.gates import Gates
from dray.api.kinds import Kind
from dray.apiserver.expiry import EVERY_SECONDS, Expiry
from dray.cluster.port import WatchEvent, Write
from dray.runtime.inprocess import InProcess
from dray.runtime.local import served_kind
from dray.runtime.virtual import Clock

Plain = dict[str, Any]
Watcher = Callable[[Kind, WatchEvent], None]


class Server(InProcess):
    """``watchers``, where there are any, are called with every change of the ``watched`` kinds, at once, in order. Events go
    after an hour, so that a test may last as long as it likes."""

    def __init__(
        self, clock: Clock | None = None, *, watched: Sequence[Kind] = (), seed: int = 0, gates: Gates | None = None
    ) -> None:
        super().__init__(clock or Clock(), seed=seed, gates=gates)
        self._expiry, self._expires = Expiry(self.core.store), 0.0
        self.watchers: list[Watcher] = []
        self._heard = {kind: self.list(kind)[1] for kind in watched}

    def write(self, write: Write) -> Plain:
        if self.clock() >= self._expires:
            self._expires = self.clock() + EVERY_SECONDS
            self._expiry.expire(self.clock())
        try:
            return super().write(write)
        finally:
            self._tell()

    def plant(self, body: Plain, kind: Kind | None = None) -> Plain:
        stored = super().plant(body, kind or served_kind(body))
        self._tell()
        return stored

    def read(self, kind: Kind, key: str) -> Plain | None:
        """The object as it is served, to be changed by the caller; None where there is none."""
        resource = self.core.operations.registry.of(kind)
        entry = self.core.store.table(resource.storage).entries.get(key)
        if entry is None:
            return None
        return resource.from_stored(entry.copy()) if resource.from_stored is not None else entry.copy()

    def keys(self, kind: Kind) -> list[str]:
        """Of all objects of a kind: ``namespace/name``, or the name alone."""
        return sorted(self.core.store.table(self.core.operations.registry.of(kind).storage).entries)

    def uproot(self, kind: Kind, key: str) -> None:
        super().uproot(kind, key)
        self._tell()

    def _tell(self) -> None:
        for kind in self.changed() if self._heard else ():
            version = self._heard.get(kind)
            events = self.since(kind, version) if version is not None else ()
            if events:
                self._heard[kind] = events[-1].resource_version
            for event in events:
                for watcher in list(self.watchers):
                    watcher(kind, event)
