"""Cost while running, in upstream's units, and a bound on the work that those units do not see."""

from __future__ import annotations

import math
from typing import Any, Final

from dray.cel.errors import Overrun
from dray.cel.library.kubernetes import FORMATS
from dray.cel.values import URL, NamedFormat, Semver, size

SELECT: Final = 1
LIST: Final = 10
MAP: Final = 30
STRING_FACTOR: Final = 0.1
REGEX_FACTOR: Final = 0.25
WORK_MAX: Final = 1 << 25
"""Characters and elements made in one evaluation; upstream charges the same for a list of one and of a million."""


class Meter:
    """Counts up to a limit."""

    __slots__ = ("cost", "limit", "work")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.cost = 0
        self.work = 0

    def spend(self, cost: int) -> None:
        self.cost += cost
        if self.cost > self.limit:
            raise Overrun

    def made(self, result: Any) -> None:
        if type(result) in (str, bytes, tuple) or isinstance(result, dict):
            self.work += len(result)
            if self.work > WORK_MAX:
                raise Overrun


def _scan(length: int, factor: float = STRING_FACTOR) -> int:
    return math.ceil(length * factor)


def _regex(text: Any, expression: Any) -> int:
    return math.ceil((1 + size(text)) * STRING_FACTOR) * _scan(size(expression), REGEX_FACTOR)


def traversal(value: Any) -> int:
    """What it costs to look at all of a value."""
    if type(value) in (str, bytes):
        raw = len(value.encode("utf-8", "replace")) if type(value) is str else len(value)
        return int(raw * STRING_FACTOR)
    if type(value) is tuple:
        return sum(traversal(element) for element in value)
    if isinstance(value, dict):
        return sum(traversal(key) + traversal(element) for key, element in value.items())
    return 1


_TRAVERSING: Final = frozenset({"isSorted", "sum", "max", "min", "indexOf", "lastIndexOf", "includes"})
_SCANNING: Final = frozenset({"url", "lowerAscii", "upperAscii", "substring", "trim", "cidr", "isIP", "isCIDR"}) | {
    "quantity", "isQuantity", "semver", "isSemver",
}  # fmt: skip
_ORDERED_TEXT: Final = frozenset(
    f"{name}_{kind}" for name in ("less", "greater", "less_equals", "greater_equals") for kind in ("string", "bytes")
) | {"equals", "not_equals"}
_OBJECTS: Final = (URL, NamedFormat, Semver)


def call_cost(function: str, overload: str, args: tuple[Any, ...], result: Any) -> int:
    """The cost of one call. ``overload`` is empty when it was only known at run time, as upstream has it."""
    charged = _extension_cost(function, overload, args, result)
    return _standard_cost(overload, args) if charged is None else charged


def _extension_cost(function: str, overload: str, args: tuple[Any, ...], result: Any) -> int | None:
    listed = _list_cost(overload, args, result)
    if listed is not None:
        return listed
    if function in _TRAVERSING:
        return traversal(args[0])
    if function in _SCANNING:
        return _scan(size(args[0]))
    if function in ("replace", "split", "ip.isCanonical"):
        return _scan(size(args[0]), 2 * STRING_FACTOR)
    if function == "join":
        return _scan(size(result), 2 * STRING_FACTOR)
    if function in ("find", "findAll"):
        return _regex(args[0], args[1])
    if function == "ip":
        return 1 if overload == "cidr_ip" else _scan(size(args[0]))
    if function in ("containsIP", "containsCIDR"):
        return _network_cost(function, overload, args)
    if function == "validate" and isinstance(args[0], NamedFormat):
        return math.ceil((1 + size(args[1])) * STRING_FACTOR) * _scan(FORMATS[args[0].name][1], REGEX_FACTOR)
    if function == "_==_" and isinstance(args[0], _OBJECTS):
        return 1
    return None


def _network_cost(function: str, overload: str, args: tuple[Any, ...]) -> int:
    length = args[0].address.max_prefixlen // 8
    cost = _scan(2 * length)
    if function == "containsCIDR":
        cost += _scan(length) + 1
    return cost + (_scan(size(args[1])) if overload.endswith("_string") else 0)


def _list_cost(overload: str, args: tuple[Any, ...], result: Any) -> int | None:
    if overload in ("list_slice", "lists_range", "list_reverse"):
        return 1 + LIST + size(result)
    if overload in ("list_flatten", "list_flatten_int"):
        depth = args[1] if len(args) == 2 else 1
        return 1 + LIST + int(size(args[0]) * depth)
    if overload == "list_distinct" or overload.endswith("_sort"):
        return 1 + LIST + _self_compare(args[0])
    if overload.endswith("_sortByAssociatedKeys"):
        return 1 + LIST + _self_compare(args[1])
    if overload.startswith("list_sets_"):
        factor = 2 if overload == "list_sets_equivalent_list" else 1
        return 1 + size(args[0]) * size(args[1]) * factor
    return None


def _self_compare(elements: tuple[Any, ...]) -> int:
    factor = 2 + (STRING_FACTOR if elements and type(elements[0]) in (str, bytes) else 0)
    return int(len(elements) * len(elements) * factor)


def _standard_cost(overload: str, args: tuple[Any, ...]) -> int:
    if overload in _ORDERED_TEXT:
        return _scan(min(size(args[0]), size(args[1])))
    if overload in ("starts_with_string", "ends_with_string"):
        return _scan(size(args[1]))
    if overload in ("string_to_bytes", "bytes_to_string", "strings_quote", "string_format"):
        return _scan(size(args[0]))
    if overload == "in_list":
        return size(args[1])
    if overload in ("add_string", "add_bytes"):
        return _scan(size(args[0]) + size(args[1]))
    if overload in ("matches", "matches_string"):
        return _regex(args[0], args[1])
    if overload == "contains_string":
        return _scan(size(args[0])) * _scan(size(args[1]))
    return 1
