"""A node's zones as values: what never changes while nobody reconfigures it (``Layout``), and what is free now (``State``).

Both are interned by ``Interned``: equal content is one object with one number, so that nodes of one make in the same state
share every answer. Zones have positions, in the order of their numbers; a mask's bit is a position. Amounts of cpu are in
thousandths, everything else in whole units.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Final, Generic, TypeVar

import msgspec

from dray.api.core import QuantityValue
from dray.api.quantity import Quantity
from dray.api.topology import (
    CPU_MANAGER_ATTRIBUTE,
    MEMORY_MANAGER_ATTRIBUTE,
    PREFER_CLOSEST_ATTRIBUTE,
    NodeResourceTopology,
    Policy,
    ResourceInfo,
    Scope,
    Zone,
)
from dray.numa.demand import CPU, MEMORY, is_memory
from dray.numa.masks import UNKNOWN_DISTANCE

ZONES_MAX: Final = 1024
_INTERNED_MAX: Final = 100_000
Row = tuple[int, ...]
# zone name -> resource -> amount


class Settings(msgspec.Struct, frozen=True, rename="camel"):
    """What a kubelet is configured with and no NodeResourceTopology says for sure. None: take the node's attribute, else the
    value that rather refuses than lets a kubelet refuse: everything that can be aligned is."""

    cpu_manager_policy: str | None = None
    memory_manager_policy: str | None = None
    prefer_closest: bool | None = msgspec.field(default=None, name="preferClosestNUMA")
    max_numa_nodes: int | None = msgspec.field(default=None, name="maxNUMANodes")


class Layout(msgspec.Struct, frozen=True, cache_hash=True):
    """The zones of a node. ``resources[i]`` has its amounts in ``capacity[i]`` and ``allocatable[i]``, by position."""

    policy: Policy
    scope: Scope
    zones: tuple[str, ...]
    labels: tuple[str, ...]
    resources: tuple[str, ...]
    capacity: tuple[Row, ...]
    allocatable: tuple[Row, ...]
    distances: tuple[Row, ...] | None = None
    prefer_closest: bool = False
    # Not aligned, reported by zone or not: by a manager that is off, or because an administrator says so.
    unaligned: frozenset[str] = frozenset()

    @property
    def places(self) -> range:
        return range(len(self.zones))

    @property
    def all_zones(self) -> int:
        return (1 << len(self.zones)) - 1

    def row(self, resource: str) -> int | None:
        """Where the amounts of a resource are, or None when this node does not align it."""
        if resource in self.unaligned or resource not in self.resources:
            return None
        return self.resources.index(resource)

    def total(self, row: int) -> Row:
        """What the kubelet counts when it asks how many zones a request needs at least: all CPUs and all devices, also those
        that nobody gets; of memory what can be allocated."""
        return self.allocatable[row] if is_memory(self.resources[row]) else self.capacity[row]

    def least_for(self, resource: str, number: int) -> int:
        """The least amount of a reported resource for which a kubelet counts so many zones; of cpu and memory in whole units."""
        fewer = sum(sorted(self.total(self.resources.index(resource)), reverse=True)[: number - 1])
        unit = 1000 if resource == CPU else 1 << 30 if is_memory(resource) else 1
        return (fewer // unit + 1) * unit

    def named(self, mask: int) -> tuple[str, ...]:
        return tuple(label for position, label in enumerate(self.labels) if mask >> position & 1)


class State(msgspec.Struct, frozen=True, cache_hash=True):
    """What is free in each zone, never negative, and how the Memory Manager has bound zones together: ``singles`` are zones with
    memory given out from that zone alone, ``groups`` the sets of zones that memory was given out from together."""

    layout: Layout
    free: tuple[Row, ...]
    singles: int = 0
    groups: tuple[int, ...] = ()


T = TypeVar("T")


class Interned(Generic[T]):
    """Equal values as one object; when there are too many, all are forgotten."""

    def __init__(self) -> None:
        self._known: dict[T, T] = {}

    def __call__(self, value: T) -> T:
        if len(self._known) >= _INTERNED_MAX:
            self._known.clear()
        return self._known.setdefault(value, value)


def layout_of(
    topology: NodeResourceTopology,
    settings: Settings | None = None,
    ignored: Iterable[str] = (),
    known: Iterable[str] | None = None,
) -> Layout | None:
    """The layout that a NodeResourceTopology describes; None when it names no NUMA node.

    ``ignored``: resources that an administrator knows not to be aligned. ``known``: the resources in the node's status, where
    that is at hand; what only the zones report is not looked at. Raises QuantityError.
    """
    zones = topology.numa_zones
    if not zones or len(zones) > ZONES_MAX:
        return None
    settings = settings or Settings()
    policy, scope = topology.management
    reported = {info.name for zone in zones for info in zone.resources}
    resources = tuple(sorted(reported if known is None else reported.intersection(known)))
    distances = _distances(zones)
    return Layout(
        policy=policy,
        scope=scope,
        zones=tuple(zone.name for zone in zones),
        labels=_labels(zones),
        resources=resources,
        capacity=_rows(zones, resources, ("capacity", "allocatable", "available")),
        allocatable=_rows(zones, resources, ("allocatable", "capacity", "available")),
        distances=distances,
        prefer_closest=distances is not None and policy != "single-numa-node" and _prefers_closest(topology, settings),
        unaligned=frozenset(ignored) | _unmanaged(topology, settings, resources),
    )


def published_state(layout: Layout, topology: NodeResourceTopology) -> State:
    """What the object says is available, which is never more than can be allocated; how memory is grouped it does not say."""
    rows = _rows(topology.numa_zones, layout.resources, ("available", "allocatable", "capacity"))
    return State(layout, tuple(_clamped(map(min, row, total)) for row, total in zip(rows, layout.allocatable)))


@lru_cache(maxsize=65536)
def amount(resource: str, value: QuantityValue) -> int:
    """An amount of a resource; a part of a unit does not count, because nobody can be given it."""
    nanos = Quantity.parse(value).nanos
    return nanos // 1_000_000 if resource == CPU else nanos // 1_000_000_000


def spelt(resource: str, value: int) -> str:
    """An amount as a quantity: cpu in cores."""
    return str(Quantity(value * 1_000_000)) if resource == CPU else str(value)


def _clamped(row: Iterable[int]) -> Row:
    return tuple(max(value, 0) for value in row)


def _rows(zones: Sequence[Zone], resources: Sequence[str], order: tuple[str, ...]) -> tuple[Row, ...]:
    """By resource and zone the first of these amounts that is published; a zone without the resource has none of it."""
    read = attrgetter(*order)
    tables = [{info.name: info for info in zone.resources} for zone in zones]
    return tuple(tuple(_published(table.get(name), name, read) for table in tables) for name in resources)


def _published(info: ResourceInfo | None, resource: str, read: Callable[[ResourceInfo], Iterable[QuantityValue | None]]) -> int:
    if info is not None:
        for value in read(info):
            if value is not None:
                return amount(resource, value)
    return 0


def _labels(zones: Sequence[Zone]) -> tuple[str, ...]:
    """How people name the zones: by number where that is enough to tell them apart, else by name."""
    numbers = [zone.number for zone in zones]
    return tuple(zone.name if n is None or numbers.count(n) > 1 else str(n) for zone, n in zip(zones, numbers))


def _distances(zones: Sequence[Zone]) -> tuple[Row, ...] | None:
    if not any(zone.costs for zone in zones):
        return None
    costs = [{cost.name: cost.value for cost in zone.costs} for zone in zones]
    return tuple(tuple(of_zone.get(other.name, UNKNOWN_DISTANCE) for other in zones) for of_zone in costs)


def _prefers_closest(topology: NodeResourceTopology, settings: Settings) -> bool:
    if settings.prefer_closest is not None:
        return settings.prefer_closest
    return topology.attribute(PREFER_CLOSEST_ATTRIBUTE).lower() == "true"


def _unmanaged(topology: NodeResourceTopology, settings: Settings, resources: Iterable[str]) -> frozenset[str]:
    cpu = settings.cpu_manager_policy or topology.attribute(CPU_MANAGER_ATTRIBUTE)
    memory = settings.memory_manager_policy or topology.attribute(MEMORY_MANAGER_ATTRIBUTE)
    off = {MEMORY, *filter(is_memory, resources)} if memory.lower() == "none" else set()
    return frozenset({*off, CPU} if cpu.lower() == "none" else off)
