"""Members of a gang placed with backtracking: over nodes, and on a node over the devices that other nodes reach as well.

Always true: a way to place all members is found if there is one and the budget lasts. Which of its own devices a node gives to
whom matters only to members on that node, and those get theirs jointly; so beside nodes only those devices have to be gone
through that members on other nodes may need. Where a member has some of these, every other way in which it may have its place
does without one of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from dray.api.resource import DeviceKey
from dray.books.nodes import NodeInfo
from dray.devices.ledger import PoolKey
from dray.scheduling.parts import Parts
from dray.scheduling.placing.cycle import Cycle
from dray.scheduling.placing.state import CycleState, NotPlaced
from dray.scheduling.waiting.queue import QueuedPod

if TYPE_CHECKING:
    from dray.scheduling.workloads.together import Seat, Table

# Places tried, all members together.
BUDGET: Final = 512


class Backtracking:
    """``left``: how many places may still be tried."""

    def __init__(self, parts: Parts, cycle: Cycle, table: Table, left: int) -> None:
        self._parts, self._cycle, self._table, self.left = parts, cycle, table, left
        self._pools: dict[str, set[PoolKey]] = {}
        self.most: tuple[Seat, ...] = ()
        """The most members that had places together."""

    def seats(self, members: Sequence[QueuedPod]) -> bool:
        """Whether all members have places now; else nobody has."""
        ways = [self._ways(members[0])]
        while ways:
            if not next(ways[-1], False):
                ways.pop()
                continue
            if len(ways) > len(self.most):
                self.most = tuple(self._table.seats.values())
            if len(ways) == len(members):
                return True
            ways.append(self._ways(members[len(ways)]))
        return False

    def _ways(self, pending: QueuedPod) -> Iterator[bool]:
        """The member sits, in one way after the other; between them everybody sits as before."""
        seats = dict(self._table.seats)
        for info in self._nodes_for(pending):
            apart = False
            for _ in self._devices(pending, info, jointly=False):
                apart = True
                yield True
                self._restore(seats)
            for _ in self._devices(pending, info, jointly=True) if not apart and pending.pod.spec.resource_claims else ():
                yield True
                self._restore(seats)

    def _devices(self, pending: QueuedPod, info: NodeInfo, *, jointly: bool) -> Iterator[None]:
        """The member sits on the node, each time without another set of the devices that other nodes reach."""
        sit, beyond = self._table.jointly if jointly else self._table.apart, self._beyond(info.name)
        left_out: list[frozenset[DeviceKey]] = [frozenset()]
        for without in left_out:
            if self.left <= 0:
                return
            self.left -= 1
            if not sit(pending, info, without):
                continue
            used = self._used(info.name if jointly else pending.uid, beyond) if beyond else ()
            yield
            left_out += [more for device in used if (more := without | {device}) not in left_out]

    def _beyond(self, node: str) -> set[PoolKey]:
        """The pools of the node that others reach, too."""
        found = self._pools.get(node)
        if found is None:
            found = self._pools[node] = self._parts.engine.inventory.shared_pools(node)
        return found

    def _used(self, whose: str, pools: Collection[PoolKey]) -> list[DeviceKey]:
        """What a member has of these pools, or those on a node have."""
        seats = (seat for uid, seat in self._table.seats.items() if whose in (uid, seat.placement.node))
        given = (each for seat in seats for result in seat.placement.results for each in result.devices.results)
        return [DeviceKey.of(each) for each in given if (each.driver, each.pool) in pools]

    def _restore(self, seats: Mapping[str, Seat]) -> None:
        table = self._table
        for uid in [uid for uid, seat in table.seats.items() if seats.get(uid) is not seat]:
            table.leave(uid)
        for uid, seat in seats.items():
            if uid not in table.seats:
                table.take(seat.pending, seat.placement)

    def _nodes_for(self, pending: QueuedPod) -> Iterator[NodeInfo]:
        """The nodes that may do, those that are alike once."""
        try:
            state = self._table.state(pending)
            names = self._feasible(state)
        except NotPlaced:
            return
        others, tried = self._table.nodes_with_devices(), set[tuple[object, ...]]()
        for name in dict.fromkeys((*names, *(others if state.needs_devices else ()))):
            info = self._parts.nodes.get(name)
            if info is None:
                continue
            # Without devices and zones, nodes in the same state and without other members are one.
            own = any(seat.placement.node == name for seat in self._table.seats.values())
            special = own or state.needs_devices or state.view or name in self._parts.zones.tallies
            likeness = (self._parts.nodes.state_of(info), name if special else "")
            if likeness not in tried:
                tried.add(likeness)
                yield info

    def _feasible(self, state: CycleState) -> list[str]:
        if state.view is not None:
            return [info.name for info in self._parts.nodes.order]
        candidates = self._cycle.candidates(state)
        candidates.best()
        return candidates.feasible()
