"""A cluster as its watches show it. Nothing is read before somebody looks, and nothing that this process has read already.

Always true: a moment is what the watches have told so far; what a cluster does not show us is told as a notice, never taken for
an empty list without saying so.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

import msgspec

from dray.api.gates import Gates
from dray.api.kinds import EVENTS, Kind
from dray.api.queues import Queue
from dray.cluster.port import Change, Cluster, Forbidden, WatchEvent
from dray.cluster.reflector import Listed, Reflector
from dray.cluster.world import World
from dray.explain.snapshot import KINDS, Snapshot, from_cluster
from dray.runtime.onlooker import Onlooker
from dray.scheduling.config import Config
from dray.web.moments import Mode, Moment, Point, Span
from dray.web.series import Histories

# Of events the newest are kept: a busy cluster makes them without end.
EVENTS_KEPT: Final = 20_000
# How long a first look waits for kinds that do not come.
PATIENCE_SECONDS: Final = 10.0


class Live:
    """Mirrors ``cluster`` from the first look on."""

    mode: Mode = "live"
    span: Span | None = None

    def __init__(
        self,
        cluster: Cluster,
        title: str,
        config: Config | None = None,
        gates: Gates | None = None,
        onlooker: Onlooker | None = None,
    ) -> None:
        """``onlooker``: sees what is mirrored in this process already."""
        self.title, self.config, self.gates = title, config, gates
        self.cluster: Cluster | None = cluster
        self._onlooker = onlooker
        self._shared = frozenset(onlooker.kinds if onlooker is not None else ()) & frozenset(KINDS)
        self._own = tuple(kind for kind in KINDS if kind not in self._shared)
        self._world = World([kind for kind in self._own if kind != EVENTS])
        self._events: OrderedDict[str, Any] = OrderedDict()
        self._histories = Histories()
        self._number = 0
        self._kept: Moment | None = None
        self._listeners: list[Callable[[], None]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._missing = set(self._own)
        self._hidden: set[Kind] = set()
        self._listed = asyncio.Event()

    @property
    def notices(self) -> list[str]:
        hidden = ", ".join(sorted(kind.resource for kind in self._hidden))
        late = ", ".join(sorted(kind.resource for kind in self._missing)) if self._listed.is_set() else ""
        told = ((f"you may not list {hidden}", hidden), (f"still waiting for {late} from the cluster", late))
        return [f"{text}; shown as if there were none" for text, names in told if names]

    async def begin(self) -> None:
        if not self._tasks:
            assert self.cluster is not None
            noting = _Noting(self.cluster, self._forbidden)
            self._tasks = [asyncio.create_task(Reflector(noting, kind, self._seen).run()) for kind in self._own]
            if self._onlooker is not None:
                self._onlooker.told.append(self._seen_by_others)
        try:
            await asyncio.wait_for(self._listed.wait(), PATIENCE_SECONDS)
        except TimeoutError:
            self._listed.set()  # what is missing is told

    def moment(self, at: float | None = None) -> Moment:
        if self._kept is None or self._kept.number != self._number:
            unknown = {kind: f"you may not list {kind.resource}" for kind in self._hidden}
            told = (tuple(self._events.values()), unknown, self._histories.told())
            self._kept = Moment(self._number, time.time(), self._copied(), *told)
        return msgspec.structs.replace(self._kept, at=time.time())

    def _copied(self) -> World:
        if self._onlooker is None:
            return self._world.copy()
        shared = {kind: self._onlooker.world.all(kind) for kind in self._shared}
        return World.of({**shared, **{kind: self._world.all(kind) for kind in self._world.kinds}})

    async def snapshot(self, at: float | None = None) -> Snapshot:
        assert self.cluster is not None
        return await from_cluster(self.cluster)

    def points(self, most: int) -> list[Point] | None:
        return None

    def listen(self, changed: Callable[[], None]) -> None:
        self._listeners.append(changed)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -------------------------------------------------------------------------------------------------- from the watches

    def _forbidden(self, kind: Kind) -> None:
        self._hidden.add(kind)
        self._there(kind)

    def _there(self, kind: Kind) -> None:
        self._missing.discard(kind)
        if not self._missing:
            self._listed.set()

    def _seen(self, kind: Kind, what: Listed | WatchEvent) -> None:
        if kind == EVENTS:
            if self._event(what):
                self._stir()
        else:
            for change in self._changes(kind, what):
                self._told(change)
        if isinstance(what, Listed):
            self._hidden.discard(kind)
            self._there(kind)

    def _seen_by_others(self, change: Change) -> None:
        if change.kind in self._shared:
            self._told(change)

    def _told(self, change: Change) -> None:
        if isinstance(change.new, Queue):
            self._histories.seen(change.new, time.time())
        self._stir()

    def _stir(self) -> None:
        self._number += 1
        for listener in self._listeners:
            listener()

    def _changes(self, kind: Kind, what: Listed | WatchEvent) -> list[Change]:
        if isinstance(what, Listed):
            return self._world.replace(kind, what.raws, what.resource_version)
        return self._world.remove(kind, what.raw) if what.type == "DELETED" else self._world.put(kind, what.raw)

    def _event(self, what: Listed | WatchEvent) -> bool:
        raws = what.raws[-EVENTS_KEPT:] if isinstance(what, Listed) else [what.raw]
        for raw in raws:
            plain = msgspec.json.decode(raw)
            key = f"{plain['metadata'].get('namespace')}/{plain['metadata'].get('name')}"
            self._events.pop(key, None)
            if isinstance(what, Listed) or what.type != "DELETED":
                self._events[key] = plain
        while len(self._events) > EVENTS_KEPT:
            self._events.popitem(last=False)
        return bool(raws)


class _Noting:
    """A cluster that says of each kind when it may not be listed; everything else goes through."""

    def __init__(self, cluster: Cluster, forbidden: Callable[[Kind], None]) -> None:
        self._cluster, self._forbidden = cluster, forbidden
        self.watch, self.get, self.write, self.close = cluster.watch, cluster.get, cluster.write, cluster.close

    async def list(
        self, kind: Kind, *, namespace: str = "", label_selector: str = "", field_selector: str = ""
    ) -> tuple[list[bytes], str]:
        try:
            return await self._cluster.list(
                kind, namespace=namespace, label_selector=label_selector, field_selector=field_selector
            )
        except Forbidden:
            self._forbidden(kind)
            raise
