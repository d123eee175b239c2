"""The embedded API server in this process, with a clock of its own and a way to begin in any state.

Always true: ``write`` is what a client over HTTP would get, admission, validation, preconditions and patches included. ``plant``
is not: it puts an object there as if it had always been so, with its status, uid and times, which no client could do.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Sequence
from typing import Any

from dray.api.defaults import apply_defaults
from dray.api.gates import Gates
from dray.api.kinds import Kind
from dray.api.times import format_time
from dray.apiserver.metadata import generated_name, new_uid
from dray.apiserver.operations import WriteOptions, key_of
from dray.cluster.port import WatchEvent, Write
from dray.runtime.inprocess import InProcess
from dray.runtime.local import served_kind
from dray.runtime.virtual import Clock

Plain = dict[str, Any]
Watcher = Callable[[Kind, WatchEvent], None]


class Server(InProcess):
    """``watchers``, where there are any, are called with every change of the ``watched`` kinds, at once, in order."""

    def __init__(
        self, clock: Clock | None = None, *, watched: Sequence[Kind] = (), seed: int = 0, gates: Gates | None = None
    ) -> None:
        self.clock = clock or Clock()
        super().__init__(self.clock, seed=seed, gates=gates)
        self.watchers: list[Watcher] = []
        self._random = random.Random(f"planted {seed}")
        self._heard = {kind: self.list(kind)[1] for kind in watched}

    def write(self, write: Write) -> Plain:
        try:
            return super().write(write)
        finally:
            self._tell()

    def plant(self, body: Plain, kind: Kind | None = None) -> Plain:
        """The object is this from now on, whatever it was; defaults are filled in, and nobody is asked. What is stored."""
        kind = kind or served_kind(body)
        resource = self.core.operations.registry.of(kind)
        given = {"apiVersion": kind.api_version, "kind": kind.kind, **copy.deepcopy(body)}
        made = self.core.operations.normalised(resource, given, WriteOptions())
        metadata = made["metadata"]
        if kind.namespaced:
            metadata.setdefault("namespace", "default")
        if not metadata.get("name"):
            metadata["name"] = generated_name(metadata["generateName"], self._random)
        key = key_of(resource, metadata.get("namespace", ""), metadata["name"])
        before = (self.get(kind, key) or {}).get("metadata", {})
        metadata.setdefault("uid", before.get("uid") or new_uid(self._random))
        metadata.setdefault("creationTimestamp", before.get("creationTimestamp") or format_time(self.clock()))
        apply_defaults(kind.plural, made, self.clock(), self.core.operations.gates)
        stored = self.core.store.put(self.core.store.table(resource.storage), key, made)
        self._tell()
        return stored.copy()

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
        """The object is gone from now on, whatever its finalizers say."""
        self.core.store.delete(self.core.store.table(self.core.operations.registry.of(kind).storage), key)
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
