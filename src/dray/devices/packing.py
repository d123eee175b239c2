"""Which devices of a node to prefer when several would do: least waste first, then close to each other.

The search and its checks are the same as for the first fit; only the order in which devices are tried differs, by integers
that are compared in this order: devices that need not be made ready; what of the counters is opened for it (nothing for a
further share of a device, a whole device is the most); what of its capacity is taken; counter sets that are partly used; what
stays behind, the least first; the PCI root and then the NUMA node that the pod's other devices have, or that has room for
them. Amounts are thousandths of the largest on the node. Where this order finds nothing soon, the first fit stays: packing
never decides whether something fits.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import msgspec

from dray.api.quantity import Quantity
from dray.api.resource import PCIE_ROOT
from dray.devices.attempt import Attempt, Pick
from dray.devices.problem import Option, Problem, RequestProblem, positions
from dray.devices.search import PATIENCE, BudgetSpent, Frame, OutOfPatience, Search
from dray.devices.views import NodeLayout, NodeView

NUMA_NODE: Final = "numaNode"
WHOLE: Final = 1000
# How many devices are compared, over all slots, before the first fit is good enough: a fraction of a second.
LOOKS: Final = 30_000

Key = tuple[int, ...]


class DeviceScore(msgspec.Struct, frozen=True, rename="camel"):
    """What spoke for a device when it was taken. Amounts are thousandths of the largest on the node."""

    device: str
    # "request", or "request/subrequest" for an alternative of a prioritized list.
    request: str
    # It has binding conditions.
    waits: bool
    # Of the counters: 0 for a further share, 1000 for a whole device.
    opened: int
    # Of its capacities, on average.
    taken: int
    # Nothing of its counter sets, or of the shared device, was in use before.
    fresh: bool
    # Of the counter sets or the shared device that stays for others.
    left: int
    # How many of the pod's devices before it have the same PCI root, and NUMA node.
    same_root: int
    same_numa: int

    def text(self) -> str:
        """The score in words, for people."""
        parts = [f"{self.device} for {self.request}: {self._size()}"]
        if self.same_root or self.same_numa:
            where, others = ("PCI root", self.same_root) if self.same_root else ("NUMA node", self.same_numa)
            parts.append(f"same {where} as {others} other{'s' if others > 1 else ''} of the pod")
        if self.waits:
            parts.append("must be made ready first")
        return "; ".join(parts)

    def _size(self) -> str:
        if not self.opened and not self.fresh:
            return f"a further share, {percent(self.left)} of the device stays free"
        if self.opened < WHOLE:
            before = "untouched" if self.fresh else "partly in use"
            return f"a partition, {percent(self.opened)} of a card that was {before}, of which {percent(self.left)} stays free"
        return f"the first share, {percent(self.left)} of the device stays free" if self.left else "a whole device"


def percent(thousandths: int) -> str:
    return f"{thousandths / 10:.3g}%"


class Sizes:
    """What of the order depends only on the layout: sizes and places by position."""

    def __init__(self, layout: NodeLayout) -> None:
        self.counters: list[list[int]] = []
        largest: dict[str, int] = {}
        for part in layout.parts:
            for (_, name), index in part.pool.counters.items():
                largest[name] = max(largest.get(name, 1), part.pool.totals[index])
        for part in layout.parts:
            self.counters.append([largest[name] for _, name in part.pool.counters])
        self.capacity: dict[str, int] = {}
        amounts = [self._capacities(layout, position) for position in range(layout.width)]
        for capacities in amounts:
            for name, value in capacities.items():
                self.capacity[name] = max(self.capacity.get(name, 1), value)
        self.whole = [self.share(capacities) for capacities in amounts]
        self.drawn = [self._drawn(layout, position) for position in range(layout.width)]
        self.root: dict[int, object] = {}
        self.numa: dict[int, object] = {}
        self.groups: list[dict[object, int]] = [{}, {}]
        for position, kind in enumerate(layout.kinds):
            for name, attribute in kind.shape.attributes.items():
                place = attribute.string if attribute.string is not None else attribute.int_
                if place is None:
                    continue
                if name == PCIE_ROOT:
                    self._stands(position, self.root, 0, place)
                elif name.rpartition("/")[2] == NUMA_NODE:
                    self._stands(position, self.numa, 1, place)

    @classmethod
    def of(cls, layout: NodeLayout) -> Sizes:
        found = layout.cache.get(cls)
        if not isinstance(found, Sizes):
            found = layout.cache[cls] = cls(layout)
        return found

    def _capacities(self, layout: NodeLayout, position: int) -> dict[str, int]:
        return {name: Quantity.parse(entry.value).nanos for name, entry in layout.kinds[position].shape.capacity.items()}

    def share(self, amounts: dict[str, int]) -> int:
        """How large something with these capacities is, on average over them."""
        return sum(WHOLE * amount // self.capacity.get(name, 1) for name, amount in amounts.items()) // max(1, len(amounts))

    def _drawn(self, layout: NodeLayout, position: int) -> int:
        part, counters = layout.consumption[position]
        return max((WHOLE * amount // self.counters[part][counter] for counter, amount in counters), default=WHOLE)

    def _stands(self, position: int, places: dict[int, object], level: int, value: object) -> None:
        """The first attribute that says so counts, where several do."""
        if position not in places:
            places[position] = value
            self.groups[level][value] = self.groups[level].get(value, 0) | 1 << position


class Preference:
    """The order of devices as an attempt stands."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._layout = attempt.problem.layout
        self._sizes = Sizes.of(self._layout)
        self._near = bool(self._sizes.root or self._sizes.numa)

    def ranked(self, mask: int, option: Option, needs: list[tuple[int, int]]) -> list[int]:
        """The positions of the mask, the preferred one last. ``needs``: how many of which positions are still to be taken."""
        sets: dict[tuple[int, int], tuple[int, int]] = {}
        last = self._layout.last
        rooms = [self._rooms(level, needs) for level in (0, 1)] if self._near else []
        used = self._places() if self._near else []
        keys = {
            position: (last >> position & 1, *self.waste(position, option, sets), *self._place(position, used, rooms), position)
            for position in positions(mask)
        }
        return sorted(keys, key=keys.__getitem__, reverse=True)

    # --------------------------------------------------------------------------------------------------------- waste

    def waste(self, position: int, option: Option, sets: dict[tuple[int, int], tuple[int, int]]) -> tuple[int, int, int, int]:
        """Opened, taken, fresh, left. Admin access uses nothing up. ``sets`` remembers the counter sets looked at."""
        if option.alternative.admin:
            return 0, 0, 0, 0
        if self._layout.kinds[position].multiple:
            return self._share(position, option)
        fresh, left = self._sets(position, sets)
        return self._sizes.drawn[position], self._sizes.whole[position], fresh, left

    def _share(self, position: int, option: Option) -> tuple[int, int, int, int]:
        attempt, sizes = self._attempt, self._sizes
        further = bool(attempt.base_shared >> position & 1 or position in attempt.shares)
        takes = option.consumes.get(position)
        if takes is None:
            return 0 if further else sizes.drawn[position], 0, not further, 0
        taken = sizes.share(takes.amounts)
        used = sizes.share(attempt.view.consumed(position)) + sizes.share(attempt.attempted(position) or {})
        left = sizes.share(takes.limits) - used - taken
        return 0 if further else sizes.drawn[position], taken, not further, left

    def _sets(self, position: int, known: dict[tuple[int, int], tuple[int, int]]) -> tuple[int, int]:
        """Whether a counter set (or the whole device) is opened, and what stays free in its sets, on average by counter."""
        part, counters = self._layout.consumption[position]
        groups = self._layout.groups[position]
        if not groups:
            return 1, 0
        largest = self._sizes.counters[part]
        left = -sum(WHOLE * amount // largest[counter] for counter, amount in counters)
        fresh = 0
        for number, _ in groups:
            found = known.get((part, number))
            if found is None:
                found = known[part, number] = self._set(part, number)
            fresh = max(fresh, found[0])
            left += found[1]
        ranges = self._layout.parts[part].pool.set_range
        return fresh, left // max(1, sum(len(ranges[number]) for number, _ in groups))

    def _set(self, part: int, number: int) -> tuple[int, int]:
        """Whether nothing of the counter set is in use, and what of it is free, summed up."""
        pool = self._layout.parts[part].pool
        available = self._attempt.view.contents[part].available
        counters = pool.set_range[number]
        free = {counter: available[counter] - self._attempt.used.get((part, counter), 0) for counter in counters}
        untouched = all(free[counter] == pool.totals[counter] for counter in counters)
        return int(untouched), sum(WHOLE * free[counter] // self._sizes.counters[part][counter] for counter in counters)

    # ----------------------------------------------------------------------------------------------------- closeness

    def same(self, position: int) -> tuple[int, int]:
        """How many picks so far have the PCI root, and the NUMA node, of this device."""
        roots, numas = self._places()
        return roots[self._sizes.root.get(position)], numas[self._sizes.numa.get(position)]

    def _places(self) -> list[Counter[object]]:
        """The PCI roots and the NUMA nodes of the picks so far; being nowhere is not a place."""
        picks = self._attempt.picks
        return [
            Counter(places[pick.position] for pick in picks if pick.position in places)
            for places in (self._sizes.root, self._sizes.numa)
        ]

    def _rooms(self, level: int, needs: list[tuple[int, int]]) -> dict[object, tuple[int, int]]:
        """By root or NUMA node: how many of the devices still needed it has, negated, and how many are free there."""
        every = 0
        for _, mask in needs:
            every |= mask
        rooms: dict[object, tuple[int, int]] = {}
        for place, group in self._sizes.groups[level].items():
            free = (group & every).bit_count()
            covered = sum(min(count, (group & mask).bit_count()) for count, mask in needs)
            rooms[place] = (-min(covered, free), free)
        return rooms

    def _place(self, position: int, used: list[Counter[object]], rooms: list[dict[object, tuple[int, int]]]) -> Key:
        if not rooms:
            return ()
        root, numa = self._sizes.root.get(position), self._sizes.numa.get(position)
        in_root, in_numa = rooms[0].get(root, (0, 0)), rooms[1].get(numa, (0, 0))
        return -used[0][root], -used[1][numa], in_root[0], in_numa[0], in_root[1], in_numa[1]


class PackedSearch(Search):
    """Depth first like its parent, but each slot tries the preferred device first, and never one that it tried before."""

    def __init__(self, attempt: Attempt, budget: int) -> None:
        super().__init__(attempt, attempt.problem.requests, budget, patience=PATIENCE)
        self._preference = Preference(attempt)
        self._ranked: dict[Frame, list[int]] = {}
        self._looks = LOOKS
        self._later = -1

    def _after(self, last: int) -> int:
        return -1 if last < 0 else self._later

    def _next_device(self, frame: Frame) -> bool:
        request, option = self.requests[frame.number], frame.option
        assert option is not None
        ranked = self._ranked.get(frame)
        if ranked is None:
            ranked = self._ranked[frame] = self._preference.ranked(frame.remaining, option, self._needs(frame))
        while ranked:
            position = ranked.pop()
            frame.remaining &= ~(1 << position)
            self._step()
            if not self.attempt.pick(request, option, position):
                continue
            if frame.need == 1:
                return self._enter(frame.number + 1, len(self.attempt.picks))
            self._later = frame.remaining
            if self._open(frame.number, request, option, frame.need - 1, position):
                return False
            self.attempt.undo_to(frame.mark)
        return self._fail(frame)

    def _needs(self, frame: Frame) -> list[tuple[int, int]]:
        """What this and the later requests still have to find, and where they may look."""
        needs = [(frame.need, self._drawable(frame.remaining))]
        for request in self.requests[frame.number + 1 :]:
            mask = 0
            for option in request.options:
                mask |= self.attempt.candidates(request, option)
            needs.append((request.least, self._drawable(mask)))
        return needs

    def _drawable(self, mask: int) -> int:
        """Without the devices that the counters would refuse by now. Every device that is compared comes by here."""
        self._looks -= mask.bit_count()
        if self._looks < 0:
            raise BudgetSpent
        layout = self.attempt.problem.layout
        for position in positions(mask):
            if layout.groups[position] and not self.attempt.could_draw(position):
                mask &= ~(1 << position)
        return mask


def pack(problem: Problem, view: NodeView, first: list[Pick], budget: int) -> list[Pick]:
    """The first solution in the order of preference, or ``first`` where there is none soon or it is not as good.

    Not as good: worse alternatives of prioritized lists, or more devices that have to be made ready. Where looking at a
    device can end in an error, only the first fit is sure not to look at it.
    """
    if problem.faithful or not first:
        return first
    attempt = Attempt(problem, view)
    try:
        found = PackedSearch(attempt, budget).run()
    except (BudgetSpent, OutOfPatience):
        return first
    if not found or _cost(attempt.picks, problem) > _cost(first, problem):
        return first
    return attempt.picks


def _cost(picks: list[Pick], problem: Problem) -> tuple[int, int]:
    chosen: dict[int, tuple[RequestProblem, Option]] = {id(pick.request): (pick.request, pick.option) for pick in picks}
    rank = sum(request.options.index(option) for request, option in chosen.values())
    return rank, sum(problem.layout.last >> pick.position & 1 for pick in picks)


def scores(problem: Problem, view: NodeView, picks: list[Pick]) -> tuple[DeviceScore, ...]:
    """What spoke for each pick at the time when it was made."""
    attempt = Attempt(problem, view)
    preference = Preference(attempt)
    found: list[DeviceScore] = []
    for pick in picks:
        opened, taken, fresh, left = preference.waste(pick.position, pick.option, {})
        root, numa = preference.same(pick.position)
        waits = bool(problem.layout.binding >> pick.position & 1)
        device, request = str(view.key(pick.position)), pick.option.alternative.name
        found.append(DeviceScore(device, request, waits, opened, taken, bool(fresh), left, root, numa))
        attempt.pick(pick.request, pick.option, pick.position)
    return tuple(found)
