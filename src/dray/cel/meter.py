"""Cost while running, in upstream's units, and a bound on the work that those units do not see."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from dray.cel.errors import Overrun
from dray.cel.library.kubernetes import FORMATS
from dray.cel.values import URL, NamedFormat, Semver, size

LIST: Final = 10
MAP: Final = 30
STRUCT: Final = 40
STRING_FACTOR: Final = 0.1
REGEX_FACTOR: Final = 0.25
AUTHORIZATION: Final = 350_000
"""So dear that one expression can ask the authorizer twice."""
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
    if isinstance(value, tuple):
        return sum(traversal(element) for element in value)
    if isinstance(value, dict):
        return sum(traversal(key) + traversal(element) for key, element in value.items())
    return 1


_TRAVERSING: Final = frozenset({"isSorted", "sum", "max", "min", "indexOf", "lastIndexOf", "includes"})
_SCANNING: Final = frozenset(
    "url lowerAscii upperAscii substring trim cidr isIP isCIDR quantity isQuantity semver isSemver".split()  # noqa: SIM905
)
_ORDERED_TEXT: Final = frozenset(
    f"{name}_{kind}" for name in ("less", "greater", "less_equals", "greater_equals") for kind in ("string", "bytes")
)
_OBJECTS: Final = (URL, NamedFormat, Semver)

Price = Callable[[tuple[Any, ...], Any], int]
"""What a call cost, by its arguments and its result."""


def price(function: str, overload: str) -> Price | None:
    """How a call is charged; None for the many that cost 1.

    ``overload`` is empty when it is only known at run time, as upstream has it.
    """
    return _list_price(overload) or _extension_price(function, overload) or _STANDARD.get(overload)


def _extension_price(function: str, overload: str) -> Price | None:
    if function in _TRAVERSING:
        return lambda args, result: traversal(args[0])
    if function in _SCANNING or (function == "ip" and overload != "cidr_ip"):
        return lambda args, result: _scan(size(args[0]))
    if function in ("replace", "split", "ip.isCanonical"):
        return lambda args, result: _scan(size(args[0]), 2 * STRING_FACTOR)
    if function == "join":
        return lambda args, result: _scan(size(result), 2 * STRING_FACTOR)
    if function in ("find", "findAll"):
        return lambda args, result: _regex(args[0], args[1])
    if function == "check":
        return lambda args, result: AUTHORIZATION
    if function in ("fieldSelector", "labelSelector"):
        return lambda args, result: _selector_cost(size(args[1]))
    if function in ("containsIP", "containsCIDR"):
        return lambda args, result: _network_cost(function, overload, args)
    if function == "validate":
        return lambda args, result: _regex_length(args[1], FORMATS[args[0].name][1])
    if function == "_==_":
        return lambda args, result: 1 if isinstance(args[0], _OBJECTS) else _smaller(args, result)
    return None


def _selector_cost(length: int) -> int:
    """A list, and in it a struct and a list for each requirement, of which the shortest has two characters."""
    return LIST + _scan(length) + math.ceil(math.ceil(length * 0.5) * (LIST + STRUCT))


def _regex_length(text: Any, length: int) -> int:
    return math.ceil((1 + size(text)) * STRING_FACTOR) * _scan(length, REGEX_FACTOR)


def _network_cost(function: str, overload: str, args: tuple[Any, ...]) -> int:
    length = args[0].address.max_prefixlen // 8
    cost = _scan(2 * length)
    if function == "containsCIDR":
        cost += _scan(length) + 1
    return cost + (_scan(size(args[1])) if overload.endswith("_string") else 0)


def _list_price(overload: str) -> Price | None:
    if overload in ("list_slice", "lists_range", "list_reverse"):
        return lambda args, result: 1 + LIST + size(result)
    if overload in ("list_flatten", "list_flatten_int"):
        return lambda args, result: 1 + LIST + size(args[0]) * (args[1] if len(args) == 2 else 1)
    if overload == "list_distinct" or overload.endswith("_sort"):
        return lambda args, result: 1 + LIST + _self_compare(args[0])
    if overload.endswith("_sortByAssociatedKeys"):
        return lambda args, result: 1 + LIST + _self_compare(args[1])
    if overload.startswith("list_sets_"):
        factor = 2 if overload == "list_sets_equivalent_list" else 1
        return lambda args, result: 1 + size(args[0]) * size(args[1]) * factor
    return None


def _self_compare(elements: tuple[Any, ...]) -> int:
    factor = 2 + (STRING_FACTOR if elements and type(elements[0]) in (str, bytes) else 0)
    return int(len(elements) * len(elements) * factor)


def _smaller(args: tuple[Any, ...], result: Any) -> int:
    return _scan(min(size(args[0]), size(args[1])))


def _first(args: tuple[Any, ...], result: Any) -> int:
    return _scan(size(args[0]))


def _second(args: tuple[Any, ...], result: Any) -> int:
    return _scan(size(args[1]))


_STANDARD: Final[dict[str, Price]] = {
    **dict.fromkeys(_ORDERED_TEXT | {"not_equals"}, _smaller),
    **dict.fromkeys(("starts_with_string", "ends_with_string"), _second),
    **dict.fromkeys(("string_to_bytes", "bytes_to_string", "strings_quote", "string_format"), _first),
    "in_list": lambda args, result: size(args[1]),
    **dict.fromkeys(("add_string", "add_bytes"), lambda args, result: _scan(size(args[0]) + size(args[1]))),
    **dict.fromkeys(("matches", "matches_string"), lambda args, result: _regex(args[0], args[1])),
    "contains_string": lambda args, result: _scan(size(args[0])) * _scan(size(args[1])),
}
