"""The embedded API server as the core of a simulation: the same operations as over HTTP, called directly, on virtual time.

Always true: ``write`` is what a client over HTTP would get, admission, validation, preconditions and patches included. ``plant``,
``transplant`` and ``uproot`` are not: with them a cluster begins in any state, which no client could do.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import msgspec

from dray.api.defaults import apply_defaults
from dray.api.gates import Gates
from dray.api.kinds import PODS, Kind
from dray.api.pod_defaults import default_pod_level
from dray.api.times import format_time
from dray.apiserver.api import Answer
from dray.apiserver.embedded import request_of
from dray.apiserver.metadata import generated_name, new_uid
from dray.apiserver.operations import WriteOptions, key_of
from dray.apiserver.registry import Resource
from dray.apiserver.server import Core, collect_seldom
from dray.apiserver.store import Event, Table
from dray.cluster.port import Expired, WatchEvent, Write
from dray.cluster.requests import write_refusal
from dray.runtime.virtual import Clock


class InProcess:
    """An API server without I/O. The same clock and seed give the same uids, names and versions."""

    def __init__(self, clock: Clock, *, seed: int = 0, gates: Gates | None = None) -> None:
        collect_seldom()
        self.clock, self._written = clock, _Written()
        self._random = random.Random(f"planted {seed}")
        self.core = Core(gates=gates, clock=clock, randomness=random.Random(f"api server {seed}"), log=self._written)
        self._written.publish = self.core.store.publish
        self.core.furnish()
        self._tables: dict[Kind, Table] = {}
        self._kinds: dict[str, set[Kind]] = {}

    def tell(self, listener: Callable[[str, str, bytes | None], None]) -> None:
        """``listener`` is called with table, key and what is there: for everything that is there already, and after every write;
        None: it is gone."""
        for table in self.core.store.tables:
            for key, entry in table.scan():
                listener(table.name, key, entry.raw)
        self._written.listeners.append(listener)

    def list(self, kind: Kind) -> tuple[list[bytes], str]:
        return [entry.raw for _, entry in self._table(kind).scan()], str(self.core.store.revision)

    def changed(self) -> set[Kind]:
        """The kinds, of those that were ever listed, in which something was written since the last call."""
        tables, self._written.tables = self._written.tables, set()
        return set().union(*(self._kinds.get(table, ()) for table in tables))

    def since(self, kind: Kind, resource_version: str) -> tuple[WatchEvent, ...]:
        table, version = self._table(kind), int(resource_version)
        if version < table.compacted:
            raise Expired(410, "Expired", f"too old resource version: {version} ({table.compacted})")
        if not table.history or table.history[-1].revision <= version:
            return ()
        return tuple(map(_seen, table.since(version)))

    def write(self, write: Write) -> dict[str, Any]:
        answer = self.core.api.handle(request_of(write))
        assert isinstance(answer, Answer)
        if answer.code >= 400:
            raise write_refusal(write, answer.body, answer.code)
        plain: dict[str, Any] = msgspec.json.decode(answer.body)
        return plain

    # ----------------------------------------------------------------------------------------------- beginning anywhere

    def plant(self, body: dict[str, Any], kind: Kind) -> dict[str, Any]:
        """The object is this from now on, whatever it was, with its status, uid and times; defaults are filled in, and nobody
        is asked. What is stored."""
        resource = self._resource(kind)
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
        apply_defaults(kind.plural, made, self.clock())
        if kind == PODS:
            default_pod_level(made["spec"])
        return self.core.store.put(self._table(kind), key, made).copy()

    def transplant(self, body: dict[str, Any], kind: Kind) -> None:
        """An object as another server has it; of one that was never on a server, defaults are filled in."""
        metadata = body["metadata"]
        if not of_a_server(body):
            self.plant(body, kind)
            return
        key = key_of(self._resource(kind), metadata.get("namespace", ""), metadata["name"])
        kept = {name: value for name, value in metadata.items() if name != "managedFields"}
        # It may come from a server that had the kind in an older version, of the same shape.
        made = {**body, "apiVersion": kind.api_version, "kind": kind.kind, "metadata": kept}
        self.core.store.put(self._table(kind), key, made)

    def serves(self, kind: Kind) -> bool:
        return self.core.operations.registry.find(kind.group, kind.version, kind.plural) is not None

    def _resource(self, kind: Kind) -> Resource:
        found = self.core.operations.registry.find(kind.group, kind.version, kind.plural)
        assert found is not None, kind.resource
        return found

    def uproot(self, kind: Kind, key: str) -> None:
        """The object is gone from now on, whatever its finalizers say."""
        self.core.store.delete(self._table(kind), key)

    # ---------------------------------------------------------------------------------------------------------- looking

    def get(self, kind: Kind, key: str) -> dict[str, Any] | None:
        entry = self._table(kind).entries.get(key)
        return entry.object if entry is not None else None

    def all(self, kind: Kind) -> dict[str, dict[str, Any]]:
        return {key: entry.object for key, entry in self._table(kind).scan()}

    def _table(self, kind: Kind) -> Table:
        found = self._tables.get(kind)
        if found is None:
            resource = self.core.operations.registry.find(kind.group, kind.version, kind.plural)
            # A kind that is not served has nothing, as yet.
            found = self._tables[kind] = self.core.store.table(resource.storage if resource is not None else kind.resource)
            self._kinds.setdefault(found.name, set()).add(kind)
        return found


def of_a_server(body: dict[str, Any]) -> bool:
    """Whether an API server has kept the object: it has its uid and version."""
    metadata = body["metadata"]
    return bool(metadata.get("uid") and metadata.get("resourceVersion"))


class _Written:
    """A log that keeps nothing but which tables were written."""

    def __init__(self) -> None:
        self.tables: set[str] = set()
        self.listeners: list[Callable[[str, str, bytes | None], None]] = []
        self.publish: Callable[[int], None]

    def append(self, revision: int, table: str, key: str, value: bytes | None) -> None:
        self.tables.add(table)
        for listener in self.listeners:
            listener(table, key, value)
        self.publish(revision)


def _seen(event: Event) -> WatchEvent:
    version = str(event.revision)
    if event.deleted:
        return WatchEvent("DELETED", event.entry.raw, version)
    return WatchEvent("ADDED" if event.previous is None else "MODIFIED", event.entry.raw, version)
