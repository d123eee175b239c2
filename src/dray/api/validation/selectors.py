"""Label selectors, node selectors and conditions: the parts that many kinds share."""

from __future__ import annotations

import re
from typing import Any, Final

from dray.api import names
from dray.api.validation.errors import (
    Errors,
    each,
    forbidden,
    invalid,
    longest,
    named,
    one_of,
    required,
    required_name,
    unique,
)

Object = dict[str, Any]

_CONDITION_REASON: Final = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?", re.ASCII)
_REASON_WORDS: Final = (
    "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric "
    "characters or '_,:', and "
    "must end with an alphanumeric character or '_' (e.g. 'MyReason',  or 'my_reason',  or 'Ready:Now', regex used "
    "for validation is "
    "'[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')"
)
_STATUSES: Final = ("False", "True", "Unknown")


def labels(values: dict[str, str] | None, path: str) -> Errors:
    for key, value in (values or {}).items():
        yield from named(names.qualified_name, key, path)
        yield from named(names.label_value, value, path)


def annotation_keys(values: dict[str, str] | None, path: str) -> Errors:
    for key in values or {}:
        yield from named(names.qualified_name, key.lower(), path)


def label_selector(selector: Object | None, path: str) -> Errors:
    if selector is None:
        return
    yield from labels(selector.get("matchLabels"), f"{path}.matchLabels")
    for index, requirement in enumerate(selector.get("matchExpressions") or ()):
        yield from _label_requirement(requirement, f"{path}.matchExpressions[{index}]")


def _label_requirement(requirement: Object, path: str) -> Errors:
    operator, values = requirement.get("operator"), requirement.get("values") or []
    if operator in ("In", "NotIn"):
        if not values:
            yield required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'")
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            yield forbidden(f"{path}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
    else:
        yield invalid(f"{path}.operator", operator or "", "not a valid selector operator")
    yield from named(names.qualified_name, requirement.get("key") or "", f"{path}.key")
    for index, value in enumerate(values):
        yield from named(names.label_value, value, f"{path}.values[{index}]")


def node_selector(selector: Object, path: str) -> Errors:
    terms = selector.get("nodeSelectorTerms") or []
    if not terms:
        yield required(f"{path}.nodeSelectorTerms", "must have at least one node selector term")
    for index, term in enumerate(terms):
        yield from node_selector_term(term, f"{path}.nodeSelectorTerms[{index}]")


def node_selector_term(term: Object, path: str) -> Errors:
    for index, requirement in enumerate(term.get("matchExpressions") or ()):
        yield from _node_requirement(requirement, f"{path}.matchExpressions[{index}]")
    for index, requirement in enumerate(term.get("matchFields") or ()):
        yield from _node_field(requirement, f"{path}.matchFields[{index}]")


def _node_requirement(requirement: Object, path: str) -> Errors:
    operator, values = requirement.get("operator"), requirement.get("values") or []
    if operator in ("In", "NotIn") and not values:
        yield required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'")
    elif operator in ("Exists", "DoesNotExist") and values:
        yield forbidden(f"{path}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
    elif operator in ("Gt", "Lt") and len(values) != 1:
        yield required(f"{path}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'")
    elif operator not in ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"):
        yield invalid(f"{path}.operator", operator or "", "not a valid selector operator")
    yield from named(names.qualified_name, requirement.get("key") or "", f"{path}.key")
    for index, value in enumerate(values):
        yield from named(names.label_value, value, f"{path}.values[{index}]")


def _node_field(requirement: Object, path: str) -> Errors:
    operator, values = requirement.get("operator"), requirement.get("values") or []
    if operator not in ("In", "NotIn"):
        yield invalid(f"{path}.operator", operator or "", "not a valid selector operator")
    elif len(values) != 1:
        yield required(f"{path}.values", "must be only one value when `operator` is 'In' or 'NotIn' for node field selector")
    if requirement.get("key") != "metadata.name":
        yield invalid(f"{path}.key", requirement.get("key") or "", "not a valid field selector key")
    else:
        for index, value in enumerate(values):
            yield from named(names.subdomain, value, f"{path}.values[{index}]")


def conditions(items: list[Object] | None, path: str) -> Errors:
    """``metav1.Condition``s: one of each type, with a reason that programs can read."""
    yield from each(items, None, path, _condition)
    yield from unique(items, path, lambda item: item.get("type"))


def _condition(condition: Object, path: str) -> Errors:
    yield from required_name(names.qualified_name, condition.get("type"), f"{path}.type")
    yield from one_of(condition.get("status"), _STATUSES, f"{path}.status")
    if (condition.get("observedGeneration") or 0) < 0:
        yield invalid(f"{path}.observedGeneration", condition["observedGeneration"], "must be greater than or equal to zero")
    if not condition.get("lastTransitionTime"):
        yield required(f"{path}.lastTransitionTime", "must be set")
    reason = condition.get("reason")
    if not reason:
        yield required(f"{path}.reason")
    elif len(reason) > 1024:
        yield from longest(reason, 1024, f"{path}.reason")
    elif not _CONDITION_REASON.fullmatch(reason):
        yield invalid(f"{path}.reason", reason, _REASON_WORDS)
    yield from longest(condition.get("message"), 32768, f"{path}.message")


__all__ = [
    "annotation_keys",
    "conditions",
    "label_selector",
    "labels",
    "node_selector",
    "node_selector_term",
]
