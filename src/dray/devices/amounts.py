"""How much there is of what devices have, and how much claims take: devices of classes, shared counters, consumable capacity.

Always true: a device and a counter set count once, however many nodes see them, and what a fabric could attach counts where it is
attached. A device takes its counters as a whole, also where claims share it: then each of them counts as taking all. Amounts are
in the units in which drivers publish them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from dray.api.quantity import NANO, Quantity, QuantityError
from dray.api.resource import AllocationResult, Device, DeviceKey, ResourceClaim
from dray.devices.engine import Devices
from dray.devices.ledger import charged
from dray.devices.problem import Option, positions
from dray.devices.shapes import Kind
from dray.devices.views import NodeLayout, NodeView

COUNTER: Final = "counter"
CAPACITY: Final = "capacity"
# The taint of devices that a fabric has and that are on no node, or that are published on theirs once more.
DETACHED: Final = "fabric.dray.dev/detached"


class Stock(NamedTuple):
    """One thing that devices of a driver have some of: a shared counter, or a consumable capacity."""

    sort: str
    driver: str
    name: str


Taken = dict[Stock, float]


class Span(NamedTuple):
    """What one way to satisfy a request takes on one layout: how many devices, and of each stock the least and the most."""

    devices: int
    least: Taken
    most: Taken


class Stocks:
    """What the devices of a cluster have and what claims take of it. ``forget`` when devices may have changed."""

    def __init__(self, engine: Devices) -> None:
        self._engine, self._inventory = engine, engine.inventory
        self._partitions = engine.gates("DRAPartitionableDevices")
        self._shareable = engine.gates("DRAConsumableCapacity")
        self._of_device: dict[DeviceKey, Taken] = {}

    def forget(self) -> None:
        self._of_device.clear()

    # --------------------------------------------------------------------------------------------------------- in all

    def in_classes(self, nodes: Iterable[str], classes: Sequence[str]) -> int:
        """How many devices at least one of the classes selects."""
        selections = [found for name in classes if (found := self._engine.compiler.of_class(name)) is not None]
        if not selections:
            return 0

        def selected(layout: NodeLayout) -> int:
            mask = 0
            for selection in selections:
                mask |= selection.on(layout)[0]
            return mask & layout.here

        return int(self._sum(nodes, selected, lambda kind: 1.0))

    def in_all(self, nodes: Iterable[str], stock: Stock) -> float:
        if stock.sort == COUNTER:
            return self._of_counter(nodes, stock)
        return self._sum(nodes, lambda layout: layout.here, lambda kind: _capacity(kind, stock))

    def _sum(self, nodes: Iterable[str], mask: Callable[[NodeLayout], int], worth: Callable[[Kind], float]) -> float:
        def found(layout: NodeLayout, position: int) -> float:
            kind = layout.kinds[position]
            return 0.0 if any(taint.key == DETACHED for taint in kind.taints) else worth(kind)

        total = 0.0
        seen: set[DeviceKey] = set()
        alike: dict[int, float] = {}
        for view in self._views(nodes):
            layout = view.layout
            if view.fabric:
                keys = {view.key(position): position for position in positions(mask(layout))}
                total += sum(found(layout, position) for key, position in keys.items() if key not in seen)
                seen.update(keys)
                continue
            if layout.serial not in alike:
                alike[layout.serial] = sum(found(layout, position) for position in positions(mask(layout)))
            total += alike[layout.serial]
        return total

    def _of_counter(self, nodes: Iterable[str], stock: Stock) -> float:
        found: dict[tuple[str, str], int] = {}
        contents = {each.serial: each for view in self._views(nodes) for each in view.contents if each.key[0] == stock.driver}
        for content in contents.values():
            for (counter_set, name), number in content.layout.counters.items():
                if name == stock.name:
                    found[content.key[1], counter_set] = content.layout.totals[number]
        return sum(found.values()) / NANO

    def _views(self, nodes: Iterable[str]) -> Iterable[NodeView]:
        return (view for name in nodes if (view := self._inventory.view(name)) is not None)

    # --------------------------------------------------------------------------------------------------- what claims take

    def taken(self, allocation: AllocationResult) -> Taken:
        """What an allocation takes: of counters as its devices are published now, of capacity as it says."""
        found: Taken = {}
        for charge, _ in charged(allocation, shareable=self._shareable):
            add(found, self._counters(charge.device))
            for name, amount in charge.consumed:
                add(found, {Stock(CAPACITY, charge.device.driver, _short(name, charge.device.driver)): amount / NANO})
        return found

    def _counters(self, key: DeviceKey) -> Taken:
        found = self._of_device.get(key)
        if found is None:
            devices = self._inventory.published(key) if self._partitions else []
            found = self._of_device[key] = _published(key.driver, devices[0]) if devices else {}
        return found

    def _of_kind(self, kind: Kind) -> Taken:
        found: Taken = {}
        for entry in kind.consumes if self._partitions else ():
            for name, amount in entry.counters:
                add(found, {Stock(COUNTER, kind.shape.driver, name): amount / NANO})
        return found

    def layouts(self, nodes: Iterable[str]) -> list[NodeLayout]:
        """What the devices of these nodes look like: nodes that look alike are one."""
        return list({view.layout.serial: view.layout for view in self._views(nodes)}.values())

    def spans(self, claim: ResourceClaim, layout: NodeLayout) -> list[list[Span | None]]:
        """By request and alternative what the claim would take on a node that looks like this if nobody used any device; None
        where its devices cannot do it. Nothing at all for a claim that no node can satisfy as it stands."""
        demand = self._engine.compiler.demand((claim,))
        if demand.error is not None:
            return []
        problem = self._engine.analysis.problem(demand, layout)
        return [[self._span(option, layout) for option in request.options] for request in problem.requests]

    def _span(self, option: Option, layout: NodeLayout) -> Span | None:
        everything = option.alternative.everything
        usable = option.listed if everything else positions(option.usable)
        count = len(usable) if everything else option.count
        if not count or len(usable) < count:
            return None
        if option.alternative.admin:
            return Span(0, {}, {})
        taken = [self._at(option, layout, position) for position in usable]
        least, most = Taken(), Taken()
        for stock in dict.fromkeys(stock for each in taken for stock in each):
            amounts = sorted(each.get(stock, 0.0) for each in taken)
            least[stock], most[stock] = sum(amounts[:count]), sum(amounts[-count:])
        return Span(count, least, most)

    def _at(self, option: Option, layout: NodeLayout, position: int) -> Taken:
        kind = layout.kinds[position]
        found, consumes = self._of_kind(kind), option.consumes.get(position)
        if kind.multiple and consumes is not None:
            driver = kind.shape.driver
            add(found, {Stock(CAPACITY, driver, _short(name, driver)): nanos / NANO for name, nanos in consumes.amounts.items()})
        return found


def add(into: Taken, amounts: Taken) -> None:
    for stock, value in amounts.items():
        into[stock] = into.get(stock, 0.0) + value


def _published(driver: str, device: Device) -> Taken:
    found: Taken = {}
    for entry in device.consumes_counters:
        for name, counter in entry.counters.items():
            try:
                add(found, {Stock(COUNTER, driver, name): Quantity.parse(counter.value).nanos / NANO})
            except QuantityError:
                continue  # then nobody gets devices of this pool, whatever they would take
    return found


def _capacity(kind: Kind, stock: Stock) -> float:
    """What a device has for those who share it."""
    if not kind.multiple or kind.shape.driver != stock.driver:
        return 0.0
    found = (each for name, each in kind.shape.capacity.items() if _short(name, stock.driver) == stock.name)
    return sum(Quantity.parse(each.value).nanos for each in found) / NANO


def _short(name: str, driver: str) -> str:
    """A driver's own names may be published with its domain or without."""
    return name.removeprefix(f"{driver}/")
