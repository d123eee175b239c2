"""Device taints, tolerations of them, and DeviceTaintRules."""

from __future__ import annotations

from typing import Any, Final

from dray.api import names
from dray.api.validation.device_names import device_name, driver_name, pool_name
from dray.api.validation.errors import Errors, invalid, named, not_supported, one_of, required, too_many
from dray.api.validation.selectors import conditions

Object = dict[str, Any]

EFFECTS: Final = ("NoExecute", "NoSchedule", "None")
OPERATORS: Final = ("Equal", "Exists")
MAX_TAINTS: Final = 16
MAX_TOLERATIONS: Final = 16
MAX_CONDITIONS: Final = 8


def taint(value: Object, old: Object | None, path: str) -> Errors:
    """An effect that is already stored stays accepted, so that it can be removed or kept after a downgrade."""
    yield from named(names.qualified_name, value.get("key") or "", f"{path}.key")
    if value.get("value"):
        yield from named(names.label_value, value["value"], f"{path}.value")
    if old is None or old.get("effect") != value.get("effect"):
        yield from one_of(value.get("effect"), EFFECTS, f"{path}.effect")


def toleration(value: Object, path: str) -> Errors:
    if value.get("key"):
        yield from named(names.qualified_name, value["key"], f"{path}.key")
    operator = value.get("operator")
    if operator == "Exists":
        if value.get("value"):
            yield invalid(f"{path}.value", value["value"], "must be empty for operator `Exists`")
    elif operator == "Equal":
        yield from named(names.label_value, value.get("value") or "", f"{path}.value")
    elif not operator:
        yield required(f"{path}.operator")
    else:
        yield not_supported(f"{path}.operator", operator, OPERATORS)
    yield from one_of(value.get("effect"), EFFECTS, f"{path}.effect", optional=True)


def requested_tolerations(owner: Object, path: str) -> Errors:
    """Those of a request: so many at most, and a key unless every key is meant. Copies of them in an allocation are only
    checked one by one, so that a claim from before can be allocated."""
    found = owner.get("tolerations") or ()
    if len(found) > MAX_TOLERATIONS:
        yield too_many(f"{path}.tolerations", len(found), MAX_TOLERATIONS)
    for index, value in enumerate(found):
        if not value.get("key") and value.get("operator") == "Equal":
            words = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            yield invalid(f"{path}.tolerations[{index}].operator", value["operator"], words)
    yield from tolerations(owner, path)


def tolerations(owner: Object, path: str) -> Errors:
    for index, value in enumerate(owner.get("tolerations") or ()):
        yield from toleration(value, f"{path}.tolerations[{index}]")


def rule(obj: Object, old: Object | None) -> Errors:
    spec = obj.get("spec") or {}
    yield from _selector(spec.get("deviceSelector") or {}, "spec.deviceSelector")
    before = (old.get("spec") or {}).get("taint") or {} if old is not None else None
    yield from taint(spec.get("taint") or {}, before, "spec.taint")


def _selector(selector: Object, path: str) -> Errors:
    if "driver" in selector:
        yield from driver_name(selector["driver"], f"{path}.driver")
    if "pool" in selector:
        yield from pool_name(selector["pool"], f"{path}.pool")
    if "device" in selector:
        yield from device_name(selector["device"], f"{path}.device")


def rule_status(obj: Object) -> Errors:
    found = (obj.get("status") or {}).get("conditions") or []
    yield from conditions(found, "status.conditions")
    if len(found) > MAX_CONDITIONS:
        yield too_many("status.conditions", len(found), MAX_CONDITIONS)
