"""How much of a device's capacity one request may take: the request policy of devices that can be shared."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

from dray.api.gates import Gates
from dray.api.quantity import MAX, NANO, Quantity
from dray.api.validation.errors import Errors, duplicate, forbidden, invalid, required, too_many

Object = dict[str, Any]

MAX_VALUES: Final = 10
_MILLI: Final = NANO // 1000


def capacity(value: Object, path: str, *, shared: bool, gates: Gates) -> Errors:
    policy = value.get("requestPolicy")
    if policy is None:
        return
    place = f"{path}.requestPolicy"
    if not shared:
        yield forbidden(place, "allowMultipleAllocations must be true")
    elif policy.get("validValues") and policy.get("validRange") is not None:
        words = 'exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time'
        yield forbidden(place, words)
    else:
        yield from _policy(policy, Quantity.parse(value.get("value", 0)), place, gates)


def _policy(policy: Object, available: Quantity, path: str, gates: Gates) -> Errors:
    values, span = policy.get("validValues"), policy.get("validRange")
    if not values and span is None:
        return
    if policy.get("default") is None:
        yield required(f"{path}.default", f"required when {'validValues' if values else 'validRange'} is defined")
        return
    default = Quantity.parse(policy["default"])
    if span is None:
        assert values
        yield from _values([Quantity.parse(value) for value in values], default, available, f"{path}.validValues", gates)
    else:
        parsed = {name: Quantity.parse(amount) for name, amount in span.items() if amount is not None}
        yield from _range(parsed, default, available, f"{path}.validRange", gates)


def _values(values: list[Quantity], default: Quantity, available: Quantity, path: str, gates: Gates) -> Errors:
    for index, (one, following) in enumerate(pairwise(values), 1):
        if one > following:
            yield invalid(f"{path}[{index}]", str(following), "values must be sorted in ascending order")
    if len(values) > MAX_VALUES:
        yield too_many(path, len(values), MAX_VALUES)
        return
    exact = gates("DRAFractionalCapacityRange")
    seen: set[int] = set()
    for index, value in enumerate(values):
        if value > available:
            yield invalid(f"{path}[{index}]", str(value), f"option is larger than capacity value: {available}")
        key = value.nanos if exact else value.value
        if key in seen:
            yield duplicate(f"{path}[{index}]", str(value))
        seen.add(key)
    if default not in values:
        yield invalid(path, str(default), "default value is not valid according to the requestPolicy")


def _range(span: dict[str, Quantity], default: Quantity, available: Quantity, path: str, gates: Gates) -> Errors:
    low, high, step = span.get("min"), span.get("max"), span.get("step")
    if low is None:
        yield required(f"{path}.min", "required when validRange is defined")
        return
    if low > available:
        yield invalid(f"{path}.min", str(low), f"min is larger than capacity value: {available}")
    if default < low:
        yield invalid(f"{path}.default", str(default), f"default is less than min: {low}")
    if high is not None:
        yield from _maximum(low, high, default, available, path)
    named: dict[str, Quantity] = {"default": default} | {name: span[name] for name in ("min", "max", "step") if name in span}
    fractional = gates("DRAFractionalCapacityRange") and any(amount.nanos % NANO for amount in named.values())
    if fractional:
        finer = [name for name, amount in named.items() if amount.nanos % _MILLI]
        for name in finer:
            yield invalid(f"{path}.{name}", str(named[name]), "value cannot be represented as a milli value")
        if finer:
            return
    if step is not None:
        yield from _step(named, low, step, available, path, whole=not fractional)


def _maximum(low: Quantity, high: Quantity, default: Quantity, available: Quantity, path: str) -> Errors:
    if low > high:
        yield invalid(f"{path}.max", str(low), f"min is larger than max: {high}")
    if high > available:
        yield invalid(f"{path}.max", str(high), f"max is larger than capacity value: {available}")
    if default > high:
        yield invalid(f"{path}.default", str(default), f"default is more than max: {high}")


def _step(named: dict[str, Quantity], low: Quantity, step: Quantity, available: Quantity, path: str, *, whole: bool) -> Errors:
    if step.nanos <= 0:
        yield invalid(f"{path}.step", str(step), "must be greater than zero")
        return
    if low + step > available:
        yield invalid(f"{path}.step", str(step), f"one step {low + step} is larger than capacity value: {available}")
    if whole:
        outside = list(_outside(named, path))
        if outside:
            yield from outside
            return
    for name in ("default", "max"):
        if name in named and _off_step(named[name], low, step, whole=whole):
            words = f"value is not a multiple of a given step ({step}) from ({low})"
            yield invalid(f"{path}.step", str(named[name]), words)


def _outside(named: dict[str, Quantity], path: str) -> Errors:
    for name, amount in named.items():
        if amount.nanos < 0:
            yield invalid(f"{path}.{name}", str(amount), "must be greater than or equal to 0")
        elif amount.nanos > MAX * NANO:
            yield invalid(f"{path}.{name}", str(amount), f"must not be larger than {MAX}")


def _off_step(value: Quantity, low: Quantity, step: Quantity, *, whole: bool) -> bool:
    if whole:
        return bool((value.value - low.value) % step.value)
    return bool((value.milli - low.milli) % step.milli)
