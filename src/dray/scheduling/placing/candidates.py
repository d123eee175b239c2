"""The nodes that will do for one demand, best first, kept as nodes change.

Always true after ``catch_up``: every examined node's verdict is that of its present state. Only nodes that changed
since the last time are looked at again, so the thousandth pod of a shape costs as much as its own effect on one node.
Not more nodes are examined than give enough choice, as upstream samples; the start moves on so that all nodes get their turn.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final

from dray.api.reason import Reason
from dray.books.changes import EVERYTHING
from dray.books.nodes import NodeInfo, Nodes
from dray.scheduling.placing.plan import Plan
from dray.scheduling.placing.refusal import Tally, told
from dray.scheduling.plugins.base import Judged, Reasons
from dray.scheduling.waiting.wakeups import Wakeups

ZONE: Final = "topology.kubernetes.io/zone"
_MIN_NODES: Final = 100
_MIN_PERCENT: Final = 5


def enough(total: int, percentage: int) -> int:
    """How many feasible nodes give enough choice; ``percentage`` 0 adapts to the size of the cluster."""
    if total < _MIN_NODES or percentage >= 100:
        return total
    percent = percentage or max(50 - total // 125, _MIN_PERCENT)
    return max(total * percent // 100, _MIN_NODES)


def turn(info: NodeInfo) -> int:
    """Among equal nodes the one with the fewest pods comes first, then the one that is known longest."""
    return (len(info.pods) << 32) + info.place


Told = tuple[object, ...]
"""What a refusal says, but for numbers."""


def _told(reasons: Reasons) -> Told:
    return tuple(told(reason) for reason in reasons)


class Entry:
    """A node as examined for the demand. ``reasons`` None: it will do, as far as the node itself is concerned."""

    __slots__ = ("devices", "fixed", "points", "rank", "raw", "reasons", "told", "version")

    def __init__(self) -> None:
        self.reasons: Reasons | None = None
        self.devices: Reasons | None = None
        self.fixed = 0
        self.raw: tuple[int, ...] = ()
        # Of its devices, in hundredths.
        self.points = 0
        self.rank = 0
        self.version = 0
        self.told: Told | None = None


class Candidates:
    def __init__(self, plan: Plan, nodes: Nodes, wakeups: Wakeups, start: int, zone: str | None = None) -> None:
        self.plan = plan
        self._zone = zone
        self._nodes = nodes
        self._changed = wakeups.nodes_changed
        # Nodes whose devices may do now although they did not before.
        self._freed = wakeups.devices_freed
        self._position = self._changed.position
        self._freed_position = self._freed.position
        self._entries: dict[str, Entry] = {}
        self._heap: list[tuple[int, int, int, str]] = []
        self._highest = [0] * len(plan.raw_scores)
        self._feasible = 0
        # How many nodes are refused for the same.
        self._refused: dict[Told, int] = {}
        self._said: tuple[Reasons, Told] = ((), ())
        self._all = nodes.order
        self._look_at(start)

    def _look_at(self, start: int) -> None:
        """The nodes in their order, from this one on; enough of them that will do are wanted."""
        self._order = self._in_scope()
        self._wanted = enough(len(self._order), self.plan.profile.percentage_of_nodes_to_score)
        self._cursor = self._first = start % max(len(self._order), 1)
        self._unexamined = len(self._order)

    def _in_scope(self) -> list[NodeInfo]:
        """Nodes that can do at all: those that the pod names, where it does, or those of the one zone asked about."""
        names = self.plan.names
        if self._zone is not None:
            return [info for info in self._all if info.node.metadata.labels.get(ZONE) == self._zone]
        if names is None:
            return self._all
        return [info for name in sorted(names) if (info := self._nodes.get(name)) is not None]

    # ------------------------------------------------------------------------------------------------- what is best

    def catch_up(self) -> None:
        """Look again at what changed, and at more nodes while there is too little choice."""
        changed = self._changed.since(self._position)
        self._position = self._changed.position
        if self.plan.refresh() or changed is None or self._all is not self._nodes.order:
            self._restart()
        else:
            for name in sorted(changed) if len(changed) > 1 else changed:
                if name in self._entries:
                    self._examine(name)
        if self._freed_position != self._freed.position:
            self._catch_up_with_devices()
        if self._feasible < self._wanted:
            self._widen()

    def _catch_up_with_devices(self) -> None:
        freed = self._freed.since(self._freed_position)
        self._freed_position = self._freed.position
        if freed is None or EVERYTHING in freed:
            self._rearm(list(self._entries))
        else:
            self._rearm([name for name in sorted(freed) if name in self._entries])

    def best(self) -> str | None:
        """The best node that is left, not removed from here: placing a pod on it changes it, which does that."""
        while True:
            while self._heap:
                _, _, version, name = self._heap[0]
                entry = self._entries.get(name)
                if entry is not None and entry.version == version:
                    return name
                heappop(self._heap)
            if not self._widen():
                return None

    def top(self, most: int) -> list[str]:
        """The best nodes that are left, best first."""
        taken: list[tuple[int, int, int, str]] = []
        names: dict[str, None] = {}
        while self._heap and len(names) < most:
            item = heappop(self._heap)
            entry = self._entries.get(item[3])
            if entry is not None and entry.version == item[2] and item[3] not in names:
                taken.append(item)
                names[item[3]] = None
        for item in taken:
            heappush(self._heap, item)
        return list(names)

    def refuse(self, name: str, reasons: Reasons) -> None:
        """The node's devices will not do, until the log of freed devices names it."""
        entry = self._entries.get(name)
        if entry is not None and entry.reasons is None and entry.devices is None:
            entry.devices = reasons
            entry.version += 1
            self._feasible -= 1
            self._count(entry)

    def _rearm(self, names: list[str]) -> None:
        """Devices may do now on these nodes."""
        for name in names:
            entry = self._entries[name]
            if self.plan.devices is not None:
                if entry.reasons is None and self._judges_otherwise(name):
                    self._examine(name)
            elif entry.devices is not None:
                entry.devices = None
                self._count(entry)
                if entry.reasons is None:
                    self._feasible += 1
                    self._push(name, entry)

    def _judges_otherwise(self, name: str) -> bool:
        info = self._nodes.get(name)
        return info is None or self.plan.devices is None or self.plan.devices(info) != self.judged(name)

    def judged(self, name: str) -> Judged:
        """What is known about an examined node's devices."""
        entry = self._entries[name]
        return entry.devices, entry.rank, entry.points

    def feasible(self) -> list[str]:
        """Every examined node that will do, in the order of nodes."""
        found = [name for name, entry in self._entries.items() if entry.reasons is None and entry.devices is None]
        return sorted(found, key=self._turn)

    def unasked(self) -> list[str]:
        """The examined nodes of which it is not known yet whether their devices do, or why not."""
        if self.plan.devices is None:
            return self.feasible()
        return [name for name, entry in self._entries.items() if entry.reasons is None and entry.devices is not None]

    def refusals(self) -> list[tuple[Reason, int]]:
        """How many nodes are refused for each reason."""
        tally = Tally()
        for entry in self._entries.values():
            tally.add(entry.reasons if entry.reasons is not None else entry.devices)
        for reasons, count in self.plan.left_out(lambda name: self._nodes.get(name) is not None, len(self._all)):
            tally.add(reasons, count)
        return tally.counts()

    def verdicts(self) -> dict[str, Reasons]:
        """The refused nodes and why."""
        found = {name: entry.reasons if entry.reasons is not None else entry.devices for name, entry in self._entries.items()}
        return {name: reasons for name, reasons in found.items() if reasons}

    @property
    def told(self) -> frozenset[Told]:
        """What is said of nodes that will not do: when that changes, the pods that wait are told something else."""
        return frozenset(self._refused)

    def _count(self, entry: Entry) -> None:
        reasons = entry.reasons if entry.reasons is not None else entry.devices
        said = self._says(reasons) if reasons is not None else None
        if said == entry.told:
            return
        if entry.told is not None:
            self._refused[entry.told] -= 1
            if not self._refused[entry.told]:
                del self._refused[entry.told]
        if said is not None:
            self._refused[said] = self._refused.get(said, 0) + 1
        entry.told = said

    def _says(self, reasons: Reasons) -> Told:
        # Nodes that are refused one after another mostly share the refusal.
        if reasons is not self._said[0]:
            self._said = (reasons, _told(reasons))
        return self._said[1]

    # ----------------------------------------------------------------------------------------------------- examining

    def _restart(self) -> None:
        """Nodes came or went: forget those that are gone, look again at those that are known."""
        known = [name for name in self._entries if self._nodes.get(name) is not None]
        refused = {name: entry.devices for name, entry in self._entries.items() if entry.devices is not None}
        self._entries, self._heap, self._feasible, self._refused = {}, [], 0, {}
        self._all = self._nodes.order
        self._look_at(self._first)
        for name in known:
            self._examine(name)
            if name in refused and self._entries[name].reasons is None:
                self.refuse(name, refused[name])

    def _widen(self) -> bool:
        """Examine more nodes while the choice is too small; whether any was found that will do."""
        before = self._feasible
        order, total = self._order, len(self._order)
        while self._feasible < self._wanted and self._unexamined:
            info = order[self._cursor]
            self._cursor = self._cursor + 1 if self._cursor + 1 < total else 0
            self._unexamined -= 1
            if info.name not in self._entries:
                self._examine(info.name)
        return self._feasible > before

    @property
    def next_start(self) -> int:
        """Where another demand should start looking, so that nodes take turns."""
        return self._cursor

    def _examine(self, name: str) -> None:
        info = self._nodes.get(name)
        entry = self._entries.get(name)
        if entry is None:
            entry = self._entries[name] = Entry()
        elif entry.reasons is None and entry.devices is None:
            self._feasible -= 1
        entry.version += 1
        if info is None:
            entry.reasons = entry.devices = None
            self._count(entry)
            del self._entries[name]
            return
        entry.reasons, entry.fixed, entry.raw = self.plan.examine(info)
        entry.devices = None
        if entry.reasons is None:
            self._rate(info, entry)
            if entry.devices is None:
                self._feasible += 1
                heappush(self._heap, (-self._total(entry), turn(info), entry.version, name))
        if entry.told is not None or entry.reasons is not None or entry.devices is not None:
            self._count(entry)

    def _rate(self, info: NodeInfo, entry: Entry) -> None:
        if self.plan.devices is not None:
            entry.devices, entry.rank, entry.points = self.plan.devices(info)
            entry.raw = (*entry.raw, entry.rank)
            if entry.devices is not None:
                return
        for raw, highest in zip(entry.raw, self._highest):
            if raw > highest:
                self._highest = [max(pair) for pair in zip(entry.raw, self._highest)]
                self._reorder()
                return

    def _push(self, name: str, entry: Entry) -> None:
        heappush(self._heap, (-self._total(entry), self._turn(name), entry.version, name))

    def _reorder(self) -> None:
        """The highest raw score rose, so all totals did change."""
        live = [(n, e) for n, e in self._entries.items() if e.reasons is None and e.devices is None and e.version]
        self._heap = [(-self._total(entry), self._turn(name), entry.version, name) for name, entry in live]
        heapify(self._heap)

    def _total(self, entry: Entry) -> int:
        return self.plan.total(entry.fixed, entry.raw, entry.points, self._highest)

    def _turn(self, name: str) -> int:
        info = self._nodes.get(name)
        return turn(info) if info is not None else -1
