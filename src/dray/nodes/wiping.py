"""Slices of drivers that are not there: a kubelet deletes what a driver published for its node and no longer stands for.

Always true: at the start all slices of the node go, because drivers publish again when they register; afterwards those of a
driver that has no connection for half a minute. Slices of simulated hardware are nobody's on a socket, and stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from dray.api.kinds import RESOURCE_SLICES, Kind
from dray.api.resource import ResourceSlice
from dray.cluster.port import Change, Write
from dray.cluster.world import World
from dray.controllers.keyed import Keyed
from dray.nodes.faults import SIMULATED

WIPE_SECONDS: Final = 30.0


class SliceWiping(Keyed):
    """The decider. Keys are nodes with sockets; ``connected`` says whether a driver of a node is."""

    name = "slice-wiping"
    kinds: Sequence[Kind] = (RESOURCE_SLICES,)

    def __init__(self, world: World, nodes: Iterable[str], connected: Callable[[str, str], bool]) -> None:
        super().__init__(world)
        self._nodes, self._connected = frozenset(nodes), connected
        self._slices = world.index(RESOURCE_SLICES, lambda slice_: (slice_.spec.node_name,) if _wipeable(slice_) else ())
        self._begun: set[str] = set()
        self._missed: dict[tuple[str, str], float] = {}  # node and driver -> since when it is gone
        self._work.add(self._nodes)

    def concerned(self, change: Change) -> Iterable[str]:
        found = {each.spec.node_name for each in (change.old, change.new) if isinstance(each, ResourceSlice)}
        return [name for name in found if name in self._nodes]

    def stir(self, node: str) -> None:
        """A driver of the node came or went."""
        if node in self._nodes:
            self._work.add([node])

    def decide(self, key: str, now: float) -> list[Write]:
        slices: list[ResourceSlice] = [self.world.get(RESOURCE_SLICES, name) for name in self._slices[key]]
        first = key not in self._begun
        self._begun.add(key)
        due = {driver for driver in {each.spec.driver for each in slices} if self._overdue(key, driver, now)}
        return [_delete(each) for each in slices if first or each.spec.driver in due]

    def _overdue(self, node: str, driver: str, now: float) -> bool:
        if self._connected(node, driver):
            self._missed.pop((node, driver), None)
            return False
        due = self._missed.setdefault((node, driver), now) + WIPE_SECONDS
        if now < due:
            self.look_at(node, due)
        return now >= due


def _wipeable(slice_: ResourceSlice) -> bool:
    return bool(slice_.spec.node_name) and slice_.metadata.labels.get(SIMULATED) != "true"


def _delete(slice_: ResourceSlice) -> Write:
    return Write("delete", RESOURCE_SLICES, name=slice_.metadata.name, uid=slice_.uid)
