"""What an expression sees of a device, and the part of it that a given expression can tell apart.

A view is made from a typed device and reads it only when asked. Two devices with the same projection onto what an expression
reads get the same answer from it, so an answer may be remembered by (expression, projection).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final

from dray.api.quantity import Quantity, QuantityError
from dray.api.resource import Device, DeviceAttribute, DeviceCapacity
from dray.cel.values import Semver, SemverError

_EMPTY: Final[dict[str, Any]] = {}


class DomainMap(dict[str, dict[str, Any]]):
    """Values by domain and id. A domain that does not exist reads as an empty map, but is not in it."""

    def domain(self, name: Any) -> dict[str, Any]:
        return self.get(name, _EMPTY) if type(name) is str else _EMPTY


class DeviceView:
    """A device as expressions see it. ``error`` is set when no expression can be evaluated on it."""

    __slots__ = ("allow_multiple_allocations", "attributes", "capacity", "device", "driver", "error", "loaded")

    attributes: DomainMap
    capacity: DomainMap
    error: str | None

    def __init__(self, driver: str, device: Device) -> None:
        self.driver = driver
        self.device = device
        self.allow_multiple_allocations = bool(device.allow_multiple_allocations)
        self.loaded = False

    @staticmethod
    def of(driver: str, device: Device) -> DeviceView:
        return DeviceView(driver, device)

    def load(self) -> None:
        """Makes the maps; afterwards ``attributes``, ``capacity`` and ``error`` are set."""
        self.attributes, self.capacity, self.error = DomainMap(), DomainMap(), None
        self.loaded = True
        try:
            for name, attribute in self.device.attributes.items():
                self._put(self.attributes, name, _value(name, attribute))
            for name, amount in self.device.capacity.items():
                self._put(self.capacity, name, _amount(name, amount))
        except ValueError as error:
            self.error = str(error)

    def _put(self, domains: DomainMap, name: str, value: Any) -> None:
        domain, slash, id = name.partition("/")
        if not slash:
            domain, id = self.driver, name
        domains.setdefault(domain, {})[id] = value

    def projection(self, reads: frozenset[tuple[str, ...]] | None) -> Hashable:
        """What the device looks like to an expression with these reads: equal projections, equal answers."""
        if not self.loaded:
            self.load()
        if self.error is not None:
            return ("error", self.error)
        if reads is None:
            return (self.driver, self.allow_multiple_allocations, _frozen(self.attributes), _frozen(self.capacity))
        return tuple([self._part(path) for path in reads])

    def _part(self, path: tuple[str, ...]) -> Hashable:
        head = path[0]
        if head == "attributes" or head == "capacity":
            domains = self.attributes if head == "attributes" else self.capacity
            if len(path) == 3:
                value = domains.domain(path[1]).get(path[2], _MISSING)
                return value if type(value) is str else _key(value)
            return _frozen(domains if len(path) == 1 else domains.get(path[1]))
        return self.driver if head == "driver" else self.allow_multiple_allocations


_MISSING: Final = object()


def _key(value: Any) -> Hashable:
    """A key in which 1, true and a version never are the same."""
    kind = type(value)
    if kind is tuple:
        return (kind, *(_key(element) for element in value))
    if kind is Semver:
        return (kind, str(value))
    if kind is Quantity:
        return (kind, value.nanos)
    return (kind, value)


def _frozen(entries: Any) -> Hashable:
    if isinstance(entries, dict):
        return frozenset((key, _frozen(value)) for key, value in entries.items())
    return _key(entries)


def _value(name: str, attribute: DeviceAttribute) -> Any:
    """The one value that is set; lists before scalars, as upstream looks."""
    for values in (attribute.ints, attribute.bools, attribute.strings):
        if values is not None:
            return tuple(values)
    if attribute.versions is not None:
        return tuple(_version(name, text) for text in attribute.versions)
    for value in (attribute.int_, attribute.bool_, attribute.string):
        if value is not None:
            return value
    if attribute.version is not None:
        return _version(name, attribute.version)
    raise ValueError(f"attribute {name}: unsupported attribute value")


def _version(name: str, text: str) -> Semver:
    try:
        return Semver.parse(text)
    except SemverError as error:
        raise ValueError(f"attribute {name}: parse semantic version: {error}") from None


def _amount(name: str, capacity: DeviceCapacity) -> Quantity:
    try:
        return Quantity.parse(capacity.value)
    except QuantityError as error:
        raise ValueError(f"capacity {name}: {error}") from None
