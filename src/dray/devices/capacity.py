"""Consumable capacity: how much of a device a request takes, and whether the device's policy allows it.

All arithmetic is on exact integers (nano units) except where upstream rounds to whole or milli units, and that rounding is
upstream's: a range with a step is counted in milli units when the fractional gate is on and all its bounds are whole milli
units, else in whole units.
"""

from __future__ import annotations

from dray.api.quantity import MAX, NANO, Quantity
from dray.api.resource import CapacityRange, CapacityRequestPolicy, DeviceCapacity

MILLI = NANO // 1000
_UNREPRESENTABLE = "capacity request cannot be represented in the device's range arithmetic"


class CapacityError(ValueError):
    """The request cannot be computed with, on any device. Whoever wrote the claim must correct it."""


class Consumes:
    """What a request takes of each capacity of a device; ``fits`` is False when the device can never satisfy it."""

    __slots__ = ("amounts", "fits", "limits", "values", "why")

    def __init__(self, values: dict[str, Quantity], limits: dict[str, int], why: tuple[str, str] | None) -> None:
        self.values = values
        self.amounts = {name: value.nanos for name, value in values.items()}
        self.limits = limits
        self.why = why
        self.fits = why is None

    def room(self, used: dict[str, int], more: dict[str, int] | None) -> str | None:
        """The first capacity that would be exceeded on top of what is used; None when all fit."""
        for name, amount in self.amounts.items():
            total = amount + used.get(name, 0)
            if more is not None:
                total += more.get(name, 0)
            if total > self.limits[name]:
                return name
        return None


def consumes(requests: dict[str, Quantity], capacity: dict[str, DeviceCapacity], *, fractional: bool) -> Consumes:
    """Upstream's rule. Raises CapacityError where upstream gives up on the claim."""
    for name in requests:
        if name not in capacity:
            return Consumes({}, {}, ("CapacityMissing", name))
    values: dict[str, Quantity] = {}
    for name, entry in sorted(capacity.items()):
        try:
            value = _consumed(requests.get(name), entry, fractional)
        except CapacityError as error:
            raise CapacityError(f'capacity "{name}": {error}') from None
        if value.nanos < 0:
            raise CapacityError(f'capacity "{name}": capacity value is negative')
        values[name] = value
    limits = {name: Quantity.parse(entry.value).nanos for name, entry in capacity.items()}
    why = None
    for name, entry in sorted(capacity.items()):
        if _violates(values[name], entry.request_policy, fractional):
            why = ("CapacityPolicy", name)
            break
        if values[name].nanos > limits[name]:
            why = ("CapacityExhausted", name)
            break
    return Consumes(values, limits, why)


def room(entry: DeviceCapacity, used: int) -> Quantity | None:
    """The most that can be asked for of a capacity of which so much is used, in nano units; None where nothing can."""
    whole, policy = Quantity.parse(entry.value), entry.request_policy
    left = whole.nanos - used
    if policy is not None and policy.valid_values:
        return max((value for each in policy.valid_values if (value := Quantity.parse(each)).nanos <= left), default=None)
    bounds = policy.valid_range if policy is not None else None
    if bounds is None or bounds.min is None:
        return Quantity(left, whole.format) if left > 0 else None
    least, step = Quantity.parse(bounds.min), Quantity.parse(bounds.step or 0).nanos
    most = min(left, Quantity.parse(bounds.max).nanos) if bounds.max is not None else left
    if most < least.nanos:
        return None
    return Quantity(least.nanos + (most - least.nanos) // step * step if step > 0 else most, least.format)


def allowed(policy: CapacityRequestPolicy | None) -> str:
    """What can be asked for, in words; nothing where everything can."""
    if policy is None:
        return ""
    if policy.valid_values:
        return f"allowed: {', '.join(str(each) for each in policy.valid_values)}"
    bounds = policy.valid_range
    if bounds is None:
        return ""
    upto = f" to {bounds.max}" if bounds.max is not None else " or more"
    return f"allowed: {bounds.min}{upto}" + (f" in steps of {bounds.step}" if bounds.step is not None else "")


def _consumed(requested: Quantity | None, capacity: DeviceCapacity, fractional: bool) -> Quantity:
    policy = capacity.request_policy
    if requested is None:
        if policy is not None and policy.default is not None:
            return Quantity.parse(policy.default)
        return Quantity.parse(capacity.value)
    if policy is None:
        return requested
    if policy.valid_range is not None and policy.valid_range.min is not None:
        return _round_up(requested, policy.valid_range, fractional)
    if policy.valid_values is not None:
        for value in policy.valid_values:
            allowed = Quantity.parse(value)
            if requested <= allowed:
                return allowed
    return requested


def _round_up(requested: Quantity, bounds: CapacityRange, fractional: bool) -> Quantity:
    assert bounds.min is not None
    least = Quantity.parse(bounds.min)
    if requested < least:
        return least
    if bounds.step is None:
        return requested
    step = Quantity.parse(bounds.step)
    if _in_milli(bounds, fractional):
        if not _whole_milli(requested):
            raise CapacityError(f"{_UNREPRESENTABLE}: request {requested} is not a representable milli value")
        rounded = _next_step(requested.milli, least.milli, step.milli)
        if rounded > MAX:
            raise CapacityError(
                f"{_UNREPRESENTABLE}: rounding request {requested} up to the next step passes the milli-value range"
            )
        return Quantity(rounded * MILLI, step.format)
    if requested.nanos > MAX * NANO:
        raise CapacityError(f"{_UNREPRESENTABLE}: request {requested} exceeds MaxInt64")
    rounded = _next_step(requested.value, least.value, step.value)
    if rounded > MAX and least.value >= 0:
        raise CapacityError(f"{_UNREPRESENTABLE}: rounding request {requested} up to the next step passes MaxInt64")
    return Quantity(rounded * NANO, step.format)


def _next_step(requested: int, least: int, step: int) -> int:
    if step <= 0:
        raise CapacityError(f"{_UNREPRESENTABLE}: the step of the range is not positive")
    return least + step * -(-(requested - least) // step)


def _violates(value: Quantity, policy: CapacityRequestPolicy | None, fractional: bool) -> bool:
    if policy is None:
        return False
    if policy.default is not None:
        default = Quantity.parse(policy.default)
        if default == value and default.format == value.format:
            return False
    if policy.valid_range is not None:
        return _outside(value, policy.valid_range, fractional)
    if policy.valid_values:
        return all(Quantity.parse(allowed) != value for allowed in policy.valid_values)
    return False


def _outside(value: Quantity, bounds: CapacityRange, fractional: bool) -> bool:
    if bounds.max is not None and value > Quantity.parse(bounds.max):
        return True
    if bounds.step is None:
        return False
    least, step = Quantity.parse(bounds.min or 0), Quantity.parse(bounds.step)
    if _in_milli(bounds, fractional):
        return not _whole_milli(value) or (value.milli - least.milli) % step.milli != 0
    return step.value <= 0 or (value.value - least.value) % step.value != 0


def _in_milli(bounds: CapacityRange, fractional: bool) -> bool:
    if not fractional:
        return False
    given = [Quantity.parse(bound) for bound in (bounds.min, bounds.max, bounds.step) if bound is not None]
    return all(_whole_milli(bound) for bound in given) and (bounds.step is None or Quantity.parse(bounds.step).milli >= 1)


def _whole_milli(value: Quantity) -> bool:
    return value.nanos % MILLI == 0 and abs(value.nanos // MILLI) <= MAX
