"""What devices look like, interned: devices of the same shape are one object.

A ``Shape`` is what expressions can see of a device. A ``Kind`` is everything about a device except who it is: its shape,
effective taints, binding conditions, counters and groups. Two devices with the same kind are interchangeable for every
request, apart from the pool and counter set that they draw from. Nothing here changes after it was made.
"""

from __future__ import annotations

from collections.abc import Hashable
from itertools import count
from typing import Final

import msgspec

from dray.api.core import QuantityValue
from dray.api.gates import Gates
from dray.api.quantity import Quantity, QuantityError
from dray.api.resource import Device, DeviceAttribute, DeviceCapacity, DeviceCounterConsumption, DeviceTaint
from dray.api.tolerations import blocks, evicts
from dray.cel import DeviceView

_encode: Final = msgspec.json.Encoder().encode


class Shape:
    """The driver, attributes, capacity and sharing of a device: all that an expression or a constraint can read."""

    __slots__ = ("attributes", "capacity", "driver", "multiple", "projections", "serial", "view")

    def __init__(self, serial: int, driver: str, device: Device) -> None:
        self.serial = serial
        self.driver = driver
        self.attributes = device.attributes
        self.capacity = device.capacity
        self.multiple = bool(device.allow_multiple_allocations)
        self.view = DeviceView(driver, device)
        self.projections: dict[frozenset[tuple[str, ...]] | None, Hashable] = {}

    def projection(self, reads: frozenset[tuple[str, ...]] | None) -> Hashable:
        """What the device looks like to an expression with these reads: equal projections, equal answers."""
        found = self.projections.get(reads)
        if found is None:
            found = self.projections[reads] = self.view.projection(reads)
        return found

    def attribute(self, name: str) -> DeviceAttribute | None:
        """The attribute with this fully qualified name; the driver's own may be published without its domain."""
        found = self.attributes.get(name)
        if found is None:
            domain, slash, identifier = name.partition("/")
            if slash and domain == self.driver:
                found = self.attributes.get(identifier)
        return found


class Consumption(msgspec.Struct, frozen=True):
    """What one device takes from one counter set, in nano units, and the groups that it can share the set with."""

    counter_set: str
    counters: tuple[tuple[str, int], ...]
    groups: frozenset[str]


class Kind:
    """Everything about a device but its identity."""

    __slots__ = (
        "binding",
        "binding_failure",
        "binds_to_node",
        "broken",
        "consumes",
        "declares_groups",
        "multiple",
        "serial",
        "shape",
        "skip_operations",
        "taints",
    )

    def __init__(self, serial: int, shape: Shape, device: Device, taints: tuple[DeviceTaint, ...], skip: tuple[str, ...]) -> None:
        self.serial = serial
        self.shape = shape
        self.taints = tuple(taint for taint in taints if blocks(taint))
        self.binding = device.binding_conditions
        self.binding_failure = device.binding_failure_conditions
        self.binds_to_node = bool(device.binds_to_node)
        self.skip_operations = skip
        self.multiple = shape.multiple
        self.broken = ""
        self.consumes: tuple[Consumption, ...] = ()
        try:
            self.consumes = tuple(_consumption(entry) for entry in device.consumes_counters)
            for capacity in device.capacity.values():
                _check(capacity)
        except QuantityError as error:
            self.broken = str(error)
        self.declares_groups = any(entry.groups for entry in self.consumes)


def _check(capacity: DeviceCapacity) -> None:
    """Raises QuantityError where an amount cannot be read."""
    amounts: list[QuantityValue | None] = [capacity.value]
    policy = capacity.request_policy
    if policy is not None:
        amounts += [policy.default, *(policy.valid_values or ())]
        if policy.valid_range is not None:
            amounts += [policy.valid_range.min, policy.valid_range.max, policy.valid_range.step]
    for amount in amounts:
        if amount is not None:
            Quantity.parse(amount)


def _taint_key(taint: DeviceTaint) -> tuple[object, ...]:
    """What of a taint can decide: when it was added does for how long it is tolerated, which is said of evicting ones only."""
    return taint.key, taint.value, taint.effect, taint.time_added if evicts(taint) else None


def _consumption(entry: DeviceCounterConsumption) -> Consumption:
    counters = tuple((name, Quantity.parse(counter.value).nanos) for name, counter in sorted(entry.counters.items()))
    return Consumption(entry.counter_set, counters, frozenset(entry.compatibility_groups))


class Interner:
    """Gives out shapes and kinds. With consumable capacity off no device can be shared, whatever it says."""

    def __init__(self, gates: Gates) -> None:
        self._shareable = gates("DRAConsumableCapacity")
        self._shapes: dict[tuple[object, ...], Shape] = {}
        self._kinds: dict[tuple[object, ...], Kind] = {}
        # Never given out twice, also after forgetting: caches elsewhere go by them.
        self._serials = count()

    def __len__(self) -> int:
        return len(self._kinds)

    def forget(self) -> None:
        """Start over; what was given out before stays valid."""
        self._shapes.clear()
        self._kinds.clear()

    def shape(self, driver: str, device: Device) -> Shape:
        multiple = bool(device.allow_multiple_allocations)
        key = (driver, _encode(device.attributes), _encode(device.capacity) if device.capacity else b"", multiple)
        found = self._shapes.get(key)
        if found is None:
            found = self._shapes[key] = Shape(next(self._serials), driver, device)
        return found

    def kind(self, driver: str, device: Device, taints: tuple[DeviceTaint, ...], skip: tuple[str, ...]) -> Kind:
        shape = self.shape(driver, device)
        key = (
            shape.serial,
            tuple(_taint_key(taint) for taint in taints) if taints else (),
            device.binding_conditions,
            device.binding_failure_conditions,
            bool(device.binds_to_node),
            _encode(device.consumes_counters) if device.consumes_counters else b"",
            skip,
        )
        found = self._kinds.get(key)
        if found is None:
            found = self._kinds[key] = Kind(next(self._serials), shape, device, taints, skip)
            if not self._shareable:
                found.multiple = False
        return found
