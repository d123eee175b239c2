"""Quotas and limit ranges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dray.api import names
from dray.api.quantity import NANO, Quantity, quantities
from dray.api.quota_names import EXCLUSIVE, SCOPES, WHOLE, is_standard, scope_fits
from dray.api.validation.errors import Errors, duplicate, forbidden, immutable, invalid, named, one_of, required

Object = dict[str, Any]

_OPERATORS: Final = ("DoesNotExist", "Exists", "In", "NotIn")
_VALUED: Final = ("In", "NotIn")
# Scopes whose objects carry a name to select by; all others are only asked whether they hold.
_SELECTING: Final = ("PriorityClass", "VolumeAttributesClass")


def resource_quota(obj: Object) -> Errors:
    spec = obj.get("spec") or {}
    hard = spec.get("hard") or {}
    for name, amount in hard.items():
        yield from _limited(name, Quantity.parse(amount), f"spec.hard.{name}")
    scopes = spec.get("scopes") or []
    yield from _scopes(scopes, scopes, hard, "spec.scopes")
    selector = spec.get("scopeSelector")
    if selector is not None:
        yield from _selector(selector.get("matchExpressions") or [], hard)


def resource_quota_update(new: Object, old: Object) -> Errors:
    before, after = ((found.get("spec") or {}).get("scopes") or [] for found in (old, new))
    yield from immutable(sorted(after), sorted(before), "spec.scopes")
    yield from resource_quota(new)


def _limited(name: str, amount: Quantity, path: str) -> Errors:
    yield from named(names.qualified_name, name, path)
    if "/" not in name and not is_standard(name):
        yield invalid(path, name, "must be a standard resource for quota")
    if amount.nanos < 0:
        yield invalid(path, str(amount), "must be greater than or equal to 0")
    elif name in WHOLE and amount.nanos % NANO:
        yield invalid(path, str(amount), "must be an integer")


def _scopes(scopes: list[str], shown: Any, hard: Mapping[str, Any], path: str) -> Errors:
    for scope in scopes:
        if scope not in SCOPES:
            yield invalid(path, shown, "unsupported scope")
        elif any(is_standard(name) and not scope_fits(scope, name) for name in hard):
            yield invalid(path, shown, "unsupported scope applied to resource")
    if any(pair <= set(scopes) for pair in EXCLUSIVE):
        yield invalid(path, shown, "conflicting scopes")


def _selector(expressions: list[Object], hard: Mapping[str, Any]) -> Errors:
    path = "spec.scopeSelector.matchExpressions"
    yield from _scopes([each.get("scopeName") or "" for each in expressions], expressions, hard, path)
    for index, each in enumerate(expressions):
        operator, values = each.get("operator") or "", each.get("values") or []
        at = f"{path}[{index}]"
        yield from one_of(operator, _OPERATORS, f"{at}.operator")
        if operator in _VALUED and not values:
            yield required(f"{at}.values", "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector")
        if operator not in _VALUED and values:
            detail = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
            yield invalid(f"{at}.values", values, detail)
        if each.get("scopeName") not in _SELECTING and operator != "Exists":
            detail = "must be 'Exist' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, "
            detail += (
                "ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
            )
            yield invalid(f"{at}.operator", operator, detail)


# ---------------------------------------------------------------------------------------------------------- limit ranges


def limit_range(obj: Object) -> Errors:
    seen: set[str] = set()
    for index, item in enumerate((obj.get("spec") or {}).get("limits") or ()):
        path, kind = f"spec.limits[{index}]", item.get("type") or ""
        if not kind:
            yield required(f"{path}.type")
        elif kind in seen:
            yield duplicate(f"{path}.type", kind)
        seen.add(kind)
        if kind == "Pod":
            for field in ("default", "defaultRequest"):
                if item.get(field):
                    yield forbidden(f"{path}.{field}", "may not be specified when `type` is 'Pod'")
        bounds = {field: quantities(item.get(field) or {}) for field in _FIELDS}
        if kind == "PersistentVolumeClaim" and not {"storage"} & (bounds["min"].keys() | bounds["max"].keys()):
            yield required(f"{path}.limits", "either minimum or maximum storage value is required, but neither was provided")
        yield from _ordered(bounds, path)
        yield from _ratios(bounds, path)


_FIELDS: Final = ("min", "defaultRequest", "default", "max", "maxLimitRequestRatio")
_WORDS: Final = {"min": "min", "defaultRequest": "default request", "default": "default", "max": "max"}
# No lesser field may be above the greater one; the message is about the field given last.
_ORDER: Final = (
    ("min", "max", "min"),
    ("min", "defaultRequest", "defaultRequest"),
    ("defaultRequest", "max", "defaultRequest"),
    ("defaultRequest", "default", "defaultRequest"),
    ("min", "default", "default"),
    ("default", "max", "default"),
)


def _ordered(bounds: Mapping[str, Mapping[str, Quantity]], path: str) -> Errors:
    for lesser, greater, about in _ORDER:
        for name in sorted(bounds[lesser].keys() & bounds[greater].keys()):
            low, high = bounds[lesser][name], bounds[greater][name]
            if low > high:
                word = "default limit" if (lesser, greater) == ("defaultRequest", "default") else _WORDS[greater]
                detail = f"{_WORDS[lesser]} value {low} is greater than {word} value {high}"
                yield invalid(f"{path}.{about}[{name}]", str(bounds[about][name]), detail)


def _ratios(bounds: Mapping[str, Mapping[str, Quantity]], path: str) -> Errors:
    least, most = bounds["min"], bounds["max"]
    for name, ratio in sorted(bounds["maxLimitRequestRatio"].items()):
        at = f"{path}.maxLimitRequestRatio[{name}]"
        if ratio < Quantity.of(1):
            yield invalid(at, str(ratio), f"ratio {ratio} is less than 1")
        elif least.get(name) and name in most and ratio.nanos * least[name].nanos > most[name].nanos * NANO:
            yield invalid(at, str(ratio), f"ratio {ratio} is greater than max/min = {most[name].nanos / least[name].nanos:f}")
