"""What changed that a waiting pod may have waited for: the one place that deltas of the books and news of the cluster reach.

Always true: whatever can change a refusal passes through here, and nothing else wakes a pod or makes a cache look again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from math import inf
from typing import Any

from dray.books.changes import EVERYTHING, ChangeLog
from dray.books.journal import Account, Delta
from dray.books.nodes import Nodes, Placed
from dray.books.volumes import VolumeAccount
from dray.devices import Devices
from dray.devices.ledger import Charge, Entry, PoolKey
from dray.numa.account import KNOWN, Held, ZoneAccount
from dray.scheduling.waiting import events


class Openings:
    """Where evicting others may be enough now although it was not before."""

    __slots__ = ("lowest", "nodes")

    def __init__(self) -> None:
        # Nodes on which something became free, and up to which priority that was out of reach before.
        self.nodes: dict[str, float] = {}
        # The lowest priority of pods that may be worth evicting now, beside those on these nodes.
        self.lowest = inf

    def add(self, node: str, priority: float = inf) -> None:
        self.nodes[node] = max(priority, self.nodes.get(node, priority))
        if node == EVERYTHING:
            self.lowest = -inf


class Wakeups:
    """Two logs for caches that catch up, the events since the waiting pods were last looked at, and the openings."""

    def __init__(self, nodes: Nodes, engine: Devices, volumes: VolumeAccount, zones: ZoneAccount) -> None:
        self._nodes, self._engine, self._volumes, self._zones = nodes, engine, volumes, zones
        self.nodes_changed = ChangeLog()
        self.devices_freed = ChangeLog()
        # Nodes on which something by zone was given back since somebody took this, and whether it was observed to be there.
        self.zones_vacated: dict[str, bool] = {}
        self._events: dict[str, None] = {}
        self._openings = Openings()
        # The lowest priority among the pods that share claims with one that left: set by whoever knows.
        self.sharing: Callable[[Placed], float] = lambda placed: inf

    def take(self) -> tuple[dict[str, None], Openings]:
        """What happened since the last time."""
        found, openings = self._events, self._openings
        self._events, self._openings = {}, Openings()
        return found, openings

    def happened(self, topics: Collection[str]) -> bool:
        """Whether anything of this happened since the last time."""
        return not self._events.keys().isdisjoint(topics)

    # --------------------------------------------------------------------------------------------------- from the books

    def observe(self, delta: Delta) -> None:
        if len(delta) == 1:
            account, _, before, after = delta[0]
            if account is self._nodes:
                self._moved(before, after)
                return
            if account is self._zones:
                self._zoned(before, after)
                return
        devices: list[tuple[Entry | None, Entry | None]] = []
        for account, _, before, after in delta:
            if account is self._nodes:
                self._moved(before, after)
            elif account is self._engine.ledger:
                devices.append((before, after))
            elif account is self._volumes and before is not None:
                self._events[events.VOLUMES] = None
            elif account is self._zones:
                self._zoned(before, after)
        if devices and (len(devices) != 1 or devices[0][0] is not None):
            for pool in _freed(devices):
                self.pool(pool)

    def follow(self, account: Account, before: Any, after: Any) -> None:
        """In a trial, and when it is undone: the logs are true all the time, so that candidates are; nobody is woken."""
        if account is self._nodes:
            for placed in (before, after):
                if placed is not None:
                    self.nodes_changed.note(placed.node)
        elif account is self._engine.ledger and before is not None:
            for pool in _freed([(before, after)]):
                nodes = self._engine.inventory.reach(pool)
                for name in sorted(nodes) if nodes is not None else (EVERYTHING,):
                    self.devices_freed.note(name)

    def _moved(self, before: Placed | None, after: Placed | None) -> None:
        self._events[events.PODS] = None
        if before is not None and after is not None and before.node == after.node and before.demand is after.demand:
            return
        if before is not None:
            self._left(before)
        if after is not None:
            self.nodes_changed.note(after.node)

    def _zoned(self, before: Held | None, after: Held | None) -> None:
        """What a pod has by zone is something else, or as sure as it was not before."""
        if after is not None:
            self.nodes_changed.note(after.node)
        if before is None:
            return
        self.nodes_changed.note(before.node)
        self.event(events.FREE, events.PODS)
        self._openings.add(before.node)
        if after is None or after.node != before.node or after.usage != before.usage:
            known = before.sure in KNOWN
            self.zones_vacated[before.node] = known and self.zones_vacated.get(before.node, True)

    def _left(self, placed: Placed) -> None:
        self.nodes_changed.note(placed.node)
        self._events[events.FREE] = None
        promised = placed.standing == "promised"
        self._openings.add(placed.node, inf if promised else placed.demand.priority)
        if promised:
            self._openings.lowest = -inf
        if placed.pod.spec.resource_claims:
            self._events[events.DEVICES] = None
            self._openings.lowest = min(self._openings.lowest, self.sharing(placed))

    # ------------------------------------------------------------------------------------------------- from the cluster

    def event(self, *found: str) -> None:
        for each in found:
            self._events[each] = None

    def node(self, name: str) -> None:
        """A node came or changed."""
        self.nodes_changed.note(name)
        self._devices_on(name)
        self.event(events.NODE, events.FREE, events.PODS)

    def node_gone(self, name: str) -> None:
        self.nodes_changed.note(name)
        self.event(events.PODS)

    def devices(self, node: str = EVERYTHING) -> None:
        """Devices may do now that did not before, on this node or on any."""
        self._devices_on(node)
        self.event(events.DEVICES)

    def pool(self, pool: PoolKey) -> None:
        """Devices of the pool may do now that did not before, on every node that has some."""
        nodes = self._engine.inventory.reach(pool)
        for name in sorted(nodes) if nodes is not None else (EVERYTHING,):
            self.devices(name)

    def _devices_on(self, node: str) -> None:
        self.devices_freed.note(node)
        self._openings.add(node)


def _freed(devices: list[tuple[Entry | None, Entry | None]]) -> list[PoolKey]:
    """The pools of which less is held than before, all holders together."""
    held: dict[Charge, int] = {}
    for before, after in devices:
        for charge in before.charges if before is not None else ():
            held[charge] = held.get(charge, 0) + 1
        for charge in after.charges if after is not None else ():
            held[charge] = held.get(charge, 0) - 1
    return list(dict.fromkeys((c.device.driver, c.device.pool) for c, count in held.items() if count > 0))
