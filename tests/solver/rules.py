"""The rules about one device and one request: selectors, taints, attributes, and what a request consumes of a capacity."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from tests.solver.model import Device, Fatal, Json, Problem, Request, quantity

Evaluate = Callable[[str, Device], Any]
"""Evaluates a device expression; raises ``Fatal`` where the expression fails on the device."""
Values = tuple[str, frozenset[Any]]
"""The type of an attribute and its values; a scalar is a set of one."""

_SCALARS = ("int", "bool", "string", "version")
_LISTS = {"ints": "int", "bools": "bool", "strings": "string", "versions": "version"}
_INT64 = 2**63 - 1


def selectable(problem: Problem, device: Device, request: Request, evaluate: Evaluate) -> bool:
    """Class selectors, then request selectors, then the device's own node selection."""
    if device.conditioned and not problem.on["DeviceBindingAndStatus"]:
        return False
    chosen = problem.classes[request.raw["deviceClassName"]]
    for selector in (chosen["spec"].get("selectors") or []) + (request.raw.get("selectors") or []):
        if not selector.get("cel"):
            raise Fatal("a selector of an unknown kind")
        answer = evaluate(selector["cel"]["expression"], device)
        if not isinstance(answer, bool):
            raise Fatal(f"{selector['cel']['expression']} is not a condition")
        if not answer:
            return False
    return device.here


def tolerated(problem: Problem, device: Device, request: Request) -> bool:
    if not problem.on["DeviceTaints"]:
        return True
    tolerations = request.raw.get("tolerations") or []
    taints = [t for t in device.raw.get("taints") or [] if t.get("effect") in ("NoSchedule", "NoExecute")]
    return all(any(_tolerates(toleration, taint) for toleration in tolerations) for taint in taints)


def _tolerates(toleration: Json, taint: Json) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    operator = toleration.get("operator") or "Equal"
    if operator == "Equal":
        return bool((toleration.get("value") or "") == (taint.get("value") or ""))
    return bool(operator == "Exists")


def usable(problem: Problem, device: Device) -> bool:
    """What a device needs from the node and from Dray's features before anything is counted."""
    if device.slice["spec"].get("skipNodeOperations"):
        declared = (problem.node.get("status") or {}).get("declaredFeatures") or []
        if not (problem.on["OptionalNodeOperations"] and "DRAOptionalNodeOperations" in declared):
            return False
    if device.consumes and not problem.on["PartitionableDevices"]:
        return False
    return not (device.grouped and not problem.on["CompatibilityGroups"])


def passed_over(problem: Problem, device: Device) -> bool:
    """With the gate off a device that declares groups is as if it were not there, also for a request for all devices."""
    return device.grouped and problem.on["PartitionableDevices"] and not problem.on["CompatibilityGroups"]


def shareable(problem: Problem, device: Device) -> bool:
    return bool(problem.on["ConsumableCapacity"] and device.raw.get("allowMultipleAllocations"))


# ------------------------------------------------------------------------------------------------------- attributes


def attribute(problem: Problem, device: Device, request: Request, name: str, evaluate: Evaluate) -> Values | None:
    """The values that a constraint compares, or None where the device has none that can be compared."""
    for derived in request.raw.get("derivedAttributes") or []:
        if derived["name"] == name:
            return _derived(problem, evaluate(derived["expression"], device))
    published = device.raw.get("attributes") or {}
    domain, _, short = name.partition("/")
    value = published.get(name)
    if value is None and domain == device.driver:
        value = published.get(short)
    return None if value is None else _values(problem, value)


def _values(problem: Problem, value: Json) -> Values | None:
    for kind in _SCALARS:
        if value.get(kind) is not None:
            return kind, frozenset([value[kind]])
    for kind, single in _LISTS.items():
        if value.get(kind):
            return single if problem.on["ListTypeAttributes"] else f"unknown {kind}", frozenset(value[kind])
    return None


def _derived(problem: Problem, value: Any) -> Values | None:
    if isinstance(value, list | tuple):
        if not value or not problem.on["ListTypeAttributes"]:
            return None
        return _kind(value[0]), frozenset(str(v) if _kind(v) == "version" else v for v in value)
    return _kind(value), frozenset([str(value) if _kind(value) == "version" else value])


def _kind(value: Any) -> str:
    for kind, python in (("bool", bool), ("int", int), ("string", str)):
        if isinstance(value, python):
            return kind
    return "version"


def match(values: list[Values | None]) -> bool:
    """All of one type with a value in common."""
    if any(v is None for v in values):
        return False
    present = [v for v in values if v is not None]
    if len(present) > 1 and any(kind.startswith("unknown") for kind, _ in present):
        return False
    return len({kind for kind, _ in present}) == 1 and bool(frozenset.intersection(*(v for _, v in present)))


def distinct(values: list[Values | None]) -> bool:
    """No two of one type with a value in common."""
    if any(v is None for v in values):
        return False
    present = [v for v in values if v is not None]
    if any(kind.startswith("unknown") for kind, _ in present[1:]):
        return False
    return not any(a[0] == b[0] and a[1] & b[1] for i, a in enumerate(present) for b in present[:i])


# --------------------------------------------------------------------------------------------------------- capacity


def consumption(problem: Problem, device: Device, request: Request) -> dict[str, Fraction] | None:
    """What one share of the device takes of each of its capacities; None where the request does not suit the device."""
    capacities = device.raw.get("capacity") or {}
    if any(name not in capacities for name in request.asked):
        return None
    taken = {name: _consumed(problem, c, request.asked.get(name)) for name, c in capacities.items()}
    if any(value < 0 for value in taken.values()):
        raise Fatal("negative capacity")
    if all(_allowed(problem, capacities[name], value) for name, value in taken.items()):
        return taken
    return None


def _consumed(problem: Problem, capacity: Json, asked: str | None) -> Fraction:
    policy = capacity.get("requestPolicy") or {}
    if asked is None:
        return quantity(policy["default"] if policy.get("default") is not None else capacity["value"])
    wanted = quantity(asked)
    if policy.get("validRange"):
        return _in_range(problem, policy["validRange"], wanted)
    enough = sorted(v for v in map(quantity, policy.get("validValues") or []) if v >= wanted)
    return enough[0] if enough else wanted


def _in_range(problem: Problem, valid: Json, wanted: Fraction) -> Fraction:
    low = quantity(valid["min"])
    if wanted < low:
        return low
    if valid.get("step") is None:
        return wanted
    unit = _unit(problem, valid)
    if unit != 1 and (wanted / unit).denominator != 1:
        raise Fatal(f"{wanted} cannot be represented")
    low, step, wanted = (math.ceil(v / unit) * unit for v in (low, quantity(valid["step"]), wanted))
    rounded = low + math.ceil((wanted - low) / step) * step
    if rounded / unit > _INT64:
        raise Fatal(f"{rounded} cannot be represented")
    return rounded


def _unit(problem: Problem, valid: Json) -> Fraction:
    """Arithmetic with steps is in thousandths where the feature and the numbers allow it, else in whole units."""
    numbers = [quantity(valid[k]) for k in ("min", "max", "step") if valid.get(k) is not None]
    fine = all((n * 1000).denominator == 1 for n in numbers)
    return Fraction(1, 1000) if problem.on["FractionalCapacityRange"] and fine else Fraction(1)


def _allowed(problem: Problem, capacity: Json, value: Fraction) -> bool:
    policy = capacity.get("requestPolicy") or {}
    if policy.get("default") is not None and value == quantity(policy["default"]):
        return True
    if policy.get("validValues"):
        return value in [quantity(v) for v in policy["validValues"]]
    valid = policy.get("validRange")
    if not valid:
        return True
    if valid.get("max") is not None and value > quantity(valid["max"]):
        return False
    if valid.get("step") is None:
        return True
    unit = _unit(problem, valid)
    low, step, rounded = (math.ceil(v / unit) * unit for v in (quantity(valid["min"]), quantity(valid["step"]), value))
    return (rounded - low) % step == 0


def fits(device: Device, used: list[dict[str, Fraction]]) -> bool:
    """Whether shares fit into the published capacity together."""
    for name, capacity in (device.raw.get("capacity") or {}).items():
        if sum((u.get(name, Fraction(0)) for u in used), Fraction(0)) > quantity(capacity["value"]):
            return False
    return True


# ---------------------------------------------------------------------------------------------------------- groups


def compatible(members: list[list[str]]) -> bool:
    """Devices on one counter set: all without groups, or all with one in common."""
    sets = [frozenset(m) for m in members]
    if not any(sets):
        return True
    return bool(frozenset.intersection(*sets))
