"""Pools of devices: what a driver publishes under one name, and how much of it is in use.

A ``Pool`` collects the slices of one driver and pool name, of all generations. A ``PoolContent`` is one consistent set of
those slices: devices in upstream's order (slices by name, then list order) as bit positions, counters, and the part of the
ledger that concerns them as bit masks and sums. Contents are made when a node first looks at them and thrown away when a
slice of the pool, or a taint rule for it, changes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from copy import copy
from typing import NamedTuple

from dray.api.quantity import Quantity, QuantityError
from dray.api.resource import Device, DeviceKey, ResourceSlice
from dray.devices.ledger import Holding, PoolKey
from dray.devices.shapes import Kind

Groups = frozenset[str]


class PublishedSlice:
    """A slice as published, with its place in the order of arrival (upstream's 'first' slice of a pool)."""

    __slots__ = ("generation", "key", "name", "order", "spec")

    def __init__(self, raw: ResourceSlice, key: str, order: int) -> None:
        self.key = key
        self.name = raw.metadata.name
        self.spec = raw.spec
        self.generation = raw.spec.pool.generation
        self.order = order


class PoolDevice(NamedTuple):
    """One device of a content, as published."""

    published: Device
    kind: Kind
    slice: PublishedSlice

    @property
    def name(self) -> str:
        return self.published.name


class PoolLayout:
    """What a content looks like, without names: kinds by position and counters. Interned; contents share it."""

    __slots__ = ("consumption", "counters", "groups", "invalid", "kinds", "serial", "set_of", "set_range", "sets", "totals")

    def __init__(
        self, serial: int, kinds: tuple[Kind, ...], sets: tuple[tuple[str, tuple[tuple[str, int], ...]], ...], *, partitions: bool
    ) -> None:
        self.serial = serial
        self.kinds = kinds
        self.sets = tuple(name for name, _ in sets)
        self.counters: dict[tuple[str, str], int] = {}
        self.set_of: list[int] = []
        self.set_range: list[range] = []
        self.totals: list[int] = []
        for number, (name, counters) in enumerate(sets):
            start = len(self.totals)
            for counter, total in counters:
                self.counters[name, counter] = len(self.totals)
                self.totals.append(total)
                self.set_of.append(number)
            self.set_range.append(range(start, len(self.totals)))
        self.invalid = self._check(partitions)
        self.consumption: list[tuple[tuple[int, int], ...]] = []
        self.groups: list[tuple[tuple[int, Groups], ...]] = []
        if not partitions:
            self.consumption = [()] * len(kinds)
            self.groups = [()] * len(kinds)
        elif not self.invalid:
            number_of = {name: number for number, name in enumerate(self.sets)}
            for kind in kinds:
                self.consumption.append(
                    tuple(
                        (self.counters[entry.counter_set, name], amount)
                        for entry in kind.consumes
                        for name, amount in entry.counters
                    )
                )
                self.groups.append(tuple((number_of[entry.counter_set], entry.groups) for entry in kind.consumes))

    def _check(self, partitions: bool) -> str:
        known = set(self.sets)
        for kind in self.kinds:
            if kind.broken:
                return kind.broken
            if not partitions:
                continue
            for entry in kind.consumes:
                if entry.counter_set not in known:
                    return f"counter set {entry.counter_set} not found"
                for name, _ in entry.counters:
                    if (entry.counter_set, name) not in self.counters:
                        return f"counter {name} not found in counter set {entry.counter_set}"
        return ""


class GroupState:
    """The rolling intersection of compatibility groups over the devices in use on one counter set."""

    __slots__ = ("groups", "members", "without")

    def __init__(self, members: int = 0, without: bool = False, groups: Groups = frozenset()) -> None:
        self.members = members
        self.without = without
        self.groups = groups

    def admits(self, groups: Groups) -> bool:
        if not self.members:
            return True
        if self.without:
            return not groups
        return bool(groups & self.groups)

    def joined(self, groups: Groups) -> GroupState:
        if not self.members:
            return GroupState(1, not groups, groups)
        if self.without and not groups:
            return GroupState(self.members + 1, True, groups)
        return GroupState(self.members + 1, False, self.groups & groups)

    @property
    def words(self) -> str:
        """What is in use where there is no group that all of it has."""
        return "devices without groups" if self.without else "devices that share no group"

    @property
    def torn(self) -> bool:
        """Whether what is in use does not go together, so that nothing more may come."""
        return bool(self.members) and not self.without and not self.groups

    def key(self) -> tuple[bool, bool, Groups]:
        return bool(self.members), self.without, self.groups


class PoolContent:
    """Devices of one consistent set of slices and what of them is in use."""

    __slots__ = (
        "_bits",
        "_groups",
        "_key",
        "_slices",
        "_strays",
        "allocated",
        "available",
        "holdings",
        "key",
        "layout",
        "live_groups",
        "local",
        "segments",
        "serial",
        "shared",
        "taken",
        "views",
    )

    def __init__(
        self, serial: int, key: PoolKey, slices: list[PublishedSlice], layout: PoolLayout, *, partitions: bool, live_groups: bool
    ) -> None:
        self.serial = serial
        self.key = key
        self.layout = layout
        self.live_groups = live_groups
        self.segments: dict[str, tuple[int, int]] = {}
        self._slices: list[tuple[int, PublishedSlice]] = []
        start = 0
        for slice in slices:
            if slice.spec.devices or not (partitions and slice.spec.shared_counters):
                length = len(slice.spec.devices)
                self.segments[slice.key] = (start, length)
                self._slices.append((start, slice))
                start += length
        first = slices[0].spec.node_name
        self.local = first is not None and all(slice.spec.node_name == first for slice in slices)
        self.taken = 0
        self.shared = 0
        self.allocated = 0
        self.available = list(layout.totals)
        self.holdings: dict[int, Holding] = {}
        self.views: set[str] = set()
        self._bits: dict[str, tuple[int, ...]] | None = None
        self._strays: dict[str, Holding] = {}
        self._groups: dict[int, GroupState] | None = None
        self._key: object = None

    def device(self, bit: int) -> PoolDevice:
        number = bisect_right(self._slices, bit, key=_start) - 1
        start, slice = self._slices[number]
        return PoolDevice(slice.spec.devices[bit - start], self.layout.kinds[bit], slice)

    def names(self) -> list[str]:
        """Names of devices, by position."""
        return [device.name for _, slice in self._slices for device in slice.spec.devices]

    @property
    def bits(self) -> dict[str, tuple[int, ...]]:
        """Positions by device name. A name may occur twice, on different nodes, and is then one device in use."""
        if self._bits is None:
            bits: dict[str, tuple[int, ...]] = {}
            for start, slice in self._slices:
                for bit, device in enumerate(slice.spec.devices, start):
                    bits[device.name] = (*bits[device.name], bit) if device.name in bits else (bit,)
            self._bits = bits
        return self._bits

    def update(self, key: DeviceKey, holding: Holding) -> None:
        """The ledger's holding of one device changed."""
        self._key = None
        bits = self.bits.get(key.device)
        if bits is None:
            if holding.snapshots:
                self._strays[key.device] = holding
            else:
                self._strays.pop(key.device, None)
            self._groups = None
            return
        for bit in bits:
            self._update_bit(bit, holding)

    def _update_bit(self, bit: int, holding: Holding) -> None:
        mask = 1 << bit
        if holding.empty:
            self.holdings.pop(bit, None)
        else:
            self.holdings[bit] = holding
        # A device that is dedicated now but has shares from before is as taken as one that is held whole.
        exclusive = holding.exclusive or holding.resting or (holding.shares and not self.layout.kinds[bit].multiple)
        self.taken = self.taken | mask if exclusive else self.taken & ~mask
        self.shared = self.shared | mask if holding.shares else self.shared & ~mask
        if holding.allocated != bool(self.allocated & mask):
            self.allocated ^= mask
            sign = -1 if holding.allocated else 1
            for counter, amount in self.layout.consumption[bit]:
                self.available[counter] += sign * amount
        # Whatever the device draws from now: what is recorded of it may be about counter sets that it drew from before.
        self._groups = None

    @property
    def groups(self) -> dict[int, GroupState]:
        """By counter set number: who is in use there. Sets without users are absent."""
        if self._groups is None:
            self._groups = self._fold_groups()
        return self._groups

    def _fold_groups(self) -> dict[int, GroupState]:
        states: dict[int, GroupState] = {}
        if not self.layout.sets:
            return states
        number_of = {name: number for number, name in enumerate(self.layout.sets)}
        for bit, holding in sorted(self.holdings.items()):
            if not holding.allocated:
                continue
            if holding.snapshots:
                _fold_snapshots(states, number_of, holding)
            elif self.live_groups:
                for number, groups in self.layout.groups[bit]:
                    states[number] = states.get(number, _NO_MEMBERS).joined(groups)
        for _, holding in sorted(self._strays.items(), key=lambda item: item[0]):
            _fold_snapshots(states, number_of, holding)
        return states

    def _has_snapshots(self) -> bool:
        for holding in self.holdings.values():
            if holding.snapshots:
                return True
        return False

    @property
    def whole(self) -> bool:
        """Whether what is in use is in use as a whole, and nothing else is known about it."""
        return not (self.shared or self._strays or self._has_snapshots())

    def state_key(self) -> object:
        """Two contents with the same layout and the same key admit the same devices."""
        if self._key is None:
            if self.whole:
                self._key = (self.taken, self.allocated)
            else:
                groups = tuple(sorted((number, state.key()) for number, state in self.groups.items()))
                shares = tuple(
                    (bit, tuple(sorted(holding.consumed.items())))
                    for bit, holding in sorted(self.holdings.items())
                    if holding.shares
                )
                self._key = (self.taken, self.allocated, shares, groups)
        return self._key

    def unused(self) -> PoolContent:
        """The same devices, of which none is in use."""
        found = copy(self)
        found.taken = found.shared = found.allocated = 0
        found.available, found.holdings, found.views = list(self.layout.totals), {}, set()
        found._strays, found._groups, found._key = {}, None, None
        return found

    def overcommitted(self) -> frozenset[int]:
        """Counter sets that have more in use than they have."""
        return frozenset(self.layout.set_of[index] for index, left in enumerate(self.available) if left < 0)


_NO_MEMBERS = GroupState()


def _start(segment: tuple[int, PublishedSlice]) -> int:
    return segment[0]


def _fold_snapshots(states: dict[int, GroupState], number_of: dict[str, int], holding: Holding) -> None:
    for snapshot in holding.snapshots:
        for name, groups in snapshot:
            number = number_of.get(name)
            if number is not None:
                states[number] = states.get(number, _NO_MEMBERS).joined(frozenset(groups))


class Pool:
    """All slices of one driver and pool name."""

    __slots__ = ("contents", "key", "now", "slices")

    def __init__(self, key: PoolKey) -> None:
        self.key = key
        self.slices: dict[str, PublishedSlice] = {}
        self.contents: dict[tuple[str, ...], PoolContent] = {}
        # That of the newest generation, and why there is none; nothing until somebody asks.
        self.now: tuple[PoolContent | None, str] | None = None

    def forget(self) -> None:
        """Slices are not what the contents were made of."""
        self.contents.clear()
        self.now = None

    def newest(self) -> int:
        return max((slice.generation for slice in self.slices.values()), default=0)

    def of_generation(self, generation: int) -> list[PublishedSlice]:
        return [slice for slice in self.slices.values() if slice.generation == generation]


def counter_sets(slices: Iterable[PublishedSlice]) -> tuple[tuple[tuple[str, tuple[tuple[str, int], ...]], ...], str]:
    """The counter sets of a pool with their totals, and why they are invalid ('' where they are not)."""
    found: dict[str, tuple[tuple[str, int], ...]] = {}
    for slice in slices:
        for counter_set in slice.spec.shared_counters:
            if counter_set.name in found:
                return (), f"duplicate counter set name {counter_set.name}"
            try:
                found[counter_set.name] = tuple(
                    (name, Quantity.parse(counter.value).nanos) for name, counter in sorted(counter_set.counters.items())
                )
            except QuantityError as error:
                return (), f"counter set {counter_set.name}: {error}"
    return tuple(sorted(found.items())), ""
