"""How good a placement on a node is, in numbers that can be compared between nodes.

Sizes are thousandths of the largest device that the driver publishes anywhere in the cluster (``Scale``), by capacity; a
device without capacity is as large as its part of the counters, and whole without counters. A placement takes devices,
partitions and shares of some size; and it breaks, for each, the largest piece that could be had before and cannot be had
after: the device itself, the card that is no longer whole because a partition of it is taken, or what was free of a shared
device. Rating changes nothing and is done once per demand and state of a node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from dray.api.quantity import Quantity, QuantityError
from dray.api.resource import Device
from dray.devices.attempt import Attempt, Pick
from dray.devices.packing import WHOLE, Sizes
from dray.devices.problem import Problem, positions
from dray.devices.shapes import Kind
from dray.devices.views import NodeLayout, NodeView

# Devices of one card that are compared to find the largest that is lost; of a larger one, only what is taken counts.
PIECES: Final = 512
# Amounts that are remembered as looked at: equal devices publish equal ones.
NOTED_MAX: Final = 10_000


class Rating(msgspec.Struct, frozen=True, rename="camel"):
    """What speaks for a node. All but ``rank`` and ``ready`` are thousandths."""

    # Of the alternatives of prioritized lists, as upstream counts it.
    rank: int
    # No device has to be made ready first.
    ready: bool
    # What is taken, and the largest pieces that can no longer be had, on average over the devices.
    taken: int
    broken: int
    # 0: all devices have one PCI root and NUMA node, as far as they tell; 1000: no two share them.
    apart: int
    # Of the node's devices, those that could not be had before either.
    used: int

    @property
    def waste(self) -> int:
        """What is taken counts as much as what is broken for it."""
        return (self.taken + self.broken) // 2


class Scale:
    """The largest amount of each capacity that each driver published. ``serial`` changes when one grows."""

    def __init__(self) -> None:
        self.serial = 0
        self._largest: dict[tuple[str, str], int] = {}
        self._noted: set[tuple[str, str, str | int | float]] = set()

    def note(self, driver: str, devices: Iterable[Device]) -> None:
        for device in devices:
            for name, entry in device.capacity.items():
                if (seen := (driver, name, entry.value)) in self._noted:
                    continue
                if len(self._noted) >= NOTED_MAX:
                    self._noted.clear()
                self._noted.add(seen)
                try:
                    amount = Quantity.parse(entry.value).nanos
                except QuantityError:
                    continue  # the pool that has it is not usable, and says so
                if amount > self._largest.get((driver, name), 0):
                    self._largest[driver, name] = amount
                    self.serial += 1

    def share(self, driver: str, amounts: dict[str, int]) -> int:
        """How large something with these capacities is, on average over them."""
        shares = [WHOLE * amount // self._largest.get((driver, name), amount or 1) for name, amount in amounts.items()]
        return sum(shares) // len(shares)

    def size(self, kind: Kind) -> int | None:
        """None where the device has no capacity."""
        amounts = {name: Quantity.parse(entry.value).nanos for name, entry in kind.shape.capacity.items()}
        return self.share(kind.shape.driver, amounts) if amounts else None


class Pieces:
    """The sizes of a layout's devices on the scale, and which of them share a counter set."""

    def __init__(self, layout: NodeLayout, scale: Scale) -> None:
        self.serial = scale.serial
        drawn = Sizes.of(layout).drawn
        sizes = [scale.size(kind) for kind in layout.kinds]
        self.size = [drawn[position] if size is None else size for position, size in enumerate(sizes)]
        self.of_set: dict[tuple[int, int], int] = {}
        for position, (part, _) in enumerate(layout.consumption):
            for number, _ in layout.groups[position]:
                self.of_set[part, number] = self.of_set.get((part, number), 0) | 1 << position
        self.counted = sum(1 << position for position, groups in enumerate(layout.groups) if groups)

    @classmethod
    def of(cls, layout: NodeLayout, scale: Scale) -> Pieces:
        found = layout.cache.get(cls)
        if not isinstance(found, Pieces) or found.serial != scale.serial:
            found = layout.cache[cls] = cls(layout, scale)
        return found


def rate(problem: Problem, view: NodeView, picks: Sequence[Pick], rank: int, scale: Scale) -> Rating:
    """What speaks for these picks, as the view stands."""
    layout = problem.layout
    pieces = Pieces.of(layout, scale)
    attempt = Attempt(problem, view)
    used = _used(attempt, pieces)
    waste = [_take(attempt, pick, pieces, scale) for pick in picks]
    ready = not any(layout.binding >> pick.position & 1 for pick in picks)
    taken, broken = (sum(sizes) // max(1, len(waste)) for sizes in (zip(*waste) if waste else ((), ())))
    return Rating(rank, ready, taken, broken, _apart(layout, picks), used)


def _used(attempt: Attempt, pieces: Pieces) -> int:
    here = attempt.problem.layout.here
    if not here:
        return 0
    free = here & ~(attempt.base_taken | attempt.base_shared)
    counted = free & pieces.counted
    if counted.bit_count() <= PIECES:
        free = free & ~counted | _drawable(attempt, counted)
    return WHOLE - WHOLE * free.bit_count() // here.bit_count()


def _drawable(attempt: Attempt, mask: int) -> int:
    return sum(1 << position for position in positions(mask) if attempt.could_draw(position))


def _take(attempt: Attempt, pick: Pick, pieces: Pieces, scale: Scale) -> tuple[int, int]:
    """Takes the device, and says how much that is and what is broken for it."""
    position, option = pick.position, pick.option
    if option.alternative.admin:
        attempt.pick(pick.request, option, position)
        return 0, 0
    others = _others(attempt, position, pieces)
    before = _drawable(attempt, others)
    taken = free = pieces.size[position]
    if attempt.problem.layout.kinds[position].multiple:
        taken, free = _share(attempt, pick, pieces, scale)
    attempt.pick(pick.request, option, position)
    gone = before & ~_drawable(attempt, before)
    return taken, max([free, *(pieces.size[each] for each in positions(gone))])


def _others(attempt: Attempt, position: int, pieces: Pieces) -> int:
    """The free devices that share a counter set with this one."""
    part, _ = attempt.problem.layout.consumption[position]
    mask = 0
    for number, _ in attempt.problem.layout.groups[position]:
        mask |= pieces.of_set[part, number]
    mask &= ~(attempt.base_taken | attempt.taken | 1 << position)
    return mask if mask.bit_count() <= PIECES else 0


def _share(attempt: Attempt, pick: Pick, pieces: Pieces, scale: Scale) -> tuple[int, int]:
    """How large the share of a shared device is, and what is free of it: the largest share that could be had."""
    position = pick.position
    takes = pick.option.consumes.get(position)
    if takes is None or not takes.limits:
        further = attempt.base_shared >> position & 1 or position in attempt.shares
        return (0, 0) if further else (pieces.size[position], pieces.size[position])
    used, own = attempt.view.consumed(position), attempt.attempted(position) or {}
    free = {name: limit - used.get(name, 0) - own.get(name, 0) for name, limit in takes.limits.items()}
    driver = attempt.problem.layout.kinds[position].shape.driver
    return scale.share(driver, takes.amounts), scale.share(driver, free)


def _apart(layout: NodeLayout, picks: Sequence[Pick]) -> int:
    if len(picks) < 2:
        return 0
    sizes = Sizes.of(layout)
    levels = [[places.get(pick.position) for pick in picks] for places in (sizes.root, sizes.numa)]
    told = [_scattered(places) for places in levels if any(place is not None for place in places)]
    return sum(told) // max(1, len(told))


def _scattered(places: list[object | None]) -> int:
    """0 where all are in one place, 1000 where no two are. Being nowhere is not a place."""
    together = max(Counter(place for place in places if place is not None).values())
    return WHOLE * (len(places) - together) // (len(places) - 1)
