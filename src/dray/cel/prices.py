"""What calls cost at most, by function and overload: the price list of upstream.

A price is a function of the sizes of the operands. ``sizes`` has the receiver first, as implementations have it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, NamedTuple

from dray.cel.meter import LIST, REGEX_FACTOR, STRING_FACTOR
from dray.cel.ranges import MAX, ONE, UNKNOWN, ZERO, Charge, Range, fixed
from dray.cel.tree import Literal, Node
from dray.cel.types import CIDR, FORMAT, IP, QUANTITY, SEMVER, URL, Type

_FORMAT_REGEX: Final = 128
_FORMAT_NAME: Final = 64
_ADDRESS: Final = Range(4, 16)


class Operands(NamedTuple):
    """The receiver (if any) and the arguments of one call, with their sizes."""

    nodes: list[Node]
    sizes: list[Range]
    elements: list[tuple[Type, Range] | None]
    """For each operand that is a list: the type and size of its elements."""


def _scan(size: Range, times: int = 1) -> Range:
    return size.scaled(times * STRING_FACTOR)


def _regex(text: Range, expression: Range) -> Range:
    return _scan(text.plus(ONE)).times(expression.scaled(REGEX_FACTOR))


def _traversing(call: Operands) -> Charge:
    """isSorted, sum, min, max, indexOf, lastIndexOf over a list (or a string, for the last two)."""
    element = call.elements[0]
    if element is None:
        return Charge(_scan(call.sizes[0]))
    each = ONE
    if element[0].kind in ("string", "bytes"):
        each = each.plus(_scan(element[1]))
    return Charge(call.sizes[0].times(each))


def _includes(call: Operands) -> Charge:
    return Charge(call.sizes[0]) if call.elements[0] is None else _traversing(call)


def _keeps_size(call: Operands) -> Charge:
    return Charge(_scan(call.sizes[0]), call.sizes[0])


def _scanning(call: Operands) -> Charge:
    return Charge(_scan(call.sizes[0]))


def _replace(call: Operands) -> Charge:
    text, old, new = call.sizes[:3]
    if old.least == 0:
        most = min(_product(min(text.most + 1, MAX), new.most) + text.most, MAX)
    elif new.most <= old.least:
        most = text.most
    else:
        most = _product(_divided(text.most, old.least), new.most)
    if old.most == 0:
        least = min(_product(min(text.least + 1, MAX), new.least) + text.least, MAX)
    elif old.most <= new.least:
        least = text.least
    else:
        least = _product(_divided(text.least, old.most), new.least)
    return Charge(_scan(text, 2), Range(least, most))


def _product(a: int, b: int) -> int:
    return min(a * b, MAX)


def _divided(a: int, b: int) -> int:
    return min(math.ceil(float(a) / float(b)), MAX)


def _split(call: Operands) -> Charge:
    most = call.sizes[0].most
    if len(call.nodes) > 2:
        limit = call.nodes[2]
        if isinstance(limit, Literal) and type(limit.value) is int:
            most = limit.value % 2**64
    return Charge(_scan(call.sizes[0], 2), Range(0, most))


def _join(call: Operands) -> Charge:
    count, element = call.sizes[0], call.elements[0]
    size = ZERO if element is None else count.times(element[1])
    if len(call.sizes) > 1:
        size = size.plus(call.sizes[1].times(Range(max(count.least - 1, 0), max(count.most - 1, 0))))
    return Charge(_scan(size), size)


def _find(call: Operands) -> Charge:
    return Charge(_regex(call.sizes[0], call.sizes[1]), Range(0, call.sizes[0].most))


def _contains_network(call: Operands, overload: str) -> Charge:
    cost = _scan(_ADDRESS.plus(_ADDRESS))
    if overload.startswith("cidr_contains_cidr"):
        cost = cost.plus(_scan(_ADDRESS)).plus(ONE)
    return Charge(cost.plus(_scan(call.sizes[1])) if overload.endswith("_string") else cost)


def _validate(call: Operands) -> Charge:
    return Charge(_scan(call.sizes[1]).scaled(_FORMAT_REGEX * REGEX_FACTOR))


_BY_FUNCTION: Final[dict[str, Callable[[Operands], Charge]]] = {
    **dict.fromkeys(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"), _traversing),
    "includes": _includes,
    **dict.fromkeys(("url", "lowerAscii", "upperAscii", "substring", "trim"), _keeps_size),
    **dict.fromkeys(("cidr", "isIP", "isCIDR", "quantity", "isQuantity", "semver", "isSemver"), _scanning),
    "replace": _replace,
    "split": _split,
    "join": _join,
    **dict.fromkeys(("find", "findAll"), _find),
    "ip.isCanonical": lambda call: Charge(_scan(call.sizes[0], 2)),
    "validate": _validate,
}
_UNIT: Final = frozenset(
    [
        "masked",
        "prefixLength",
        "family",
        "isUnspecified",
        "isLoopback",
        "isLinkLocalMulticast",
        "isLinkLocalUnicast",
        "isGlobalUnicast",
        "format.named",
        "sign",
        "asInteger",
        "isInteger",
        "asApproximateFloat",
        "isGreaterThan",
        "isLessThan",
        "compareTo",
        "add",
        "sub",
        "major",
        "minor",
        "patch",
        "getScheme",
        "getHostname",
        "getHost",
        "getPort",
        "getEscapedPath",
        "getQuery",
    ]
)


def _literal(node: Node, otherwise: int) -> int:
    if isinstance(node, Literal) and type(node.value) is int:
        return max(node.value, 0)
    return otherwise


def _allocating(factor: float, size: Range) -> Charge:
    return Charge(size.scaled(factor).plus(fixed(1 + LIST)), size)


def _list_price(overload: str, call: Operands) -> Charge | None:
    if overload == "list_slice":
        start, end = _literal(call.nodes[1], 0), _literal(call.nodes[2], call.sizes[0].most)
        return _allocating(1, fixed((end - start) % 2**64))
    if overload == "lists_range":
        return _allocating(1, fixed(_literal(call.nodes[0], MAX)))
    if overload == "list_reverse":
        return _allocating(1, call.sizes[0])
    if overload in ("list_flatten", "list_flatten_int"):
        return _allocating(float(_literal(call.nodes[1], MAX)) if len(call.nodes) > 1 else 1.0, call.sizes[0])
    if overload == "list_distinct":
        return _allocating(2, call.sizes[0].times(call.sizes[0]))
    if overload.endswith(("_sort", "_sortByAssociatedKeys")):
        keys = call.sizes[1] if overload.endswith("Keys") else call.sizes[0]
        text = overload.startswith(("list_string_", "list_bytes_"))
        return _allocating(2 + (STRING_FACTOR if text else 0), keys.times(keys))
    if overload.startswith("list_sets_"):
        factor = 2 if overload == "list_sets_equivalent_list" else 1
        return Charge(call.sizes[0].times(call.sizes[1]).scaled(factor).plus(ONE))
    return None


def _equality_price(call: Operands) -> Charge | None:
    kind = call.nodes[0].type
    if kind != call.nodes[1].type:
        return None
    if kind in (IP, CIDR, QUANTITY, SEMVER):
        return Charge(ONE)
    if kind == FORMAT:
        return Charge(_scan(Range(1, _FORMAT_NAME)))
    if kind == URL:
        return Charge(_scan(Range(1, call.sizes[1].most if call.sizes[1] != UNKNOWN else 1)))
    return None


def extension_price(function: str, overload: str, call: Operands) -> Charge | None:
    """The price of what Kubernetes and the extensions add; None for the standard functions."""
    listed = _list_price(overload, call)
    if listed is not None:
        return listed
    if function in _UNIT or overload == "cidr_ip":
        return Charge(ONE)
    if function == "ip":
        return Charge(_scan(call.sizes[0]))
    if function in ("containsIP", "containsCIDR"):
        return _contains_network(call, overload)
    if function == "_==_":
        return _equality_price(call)
    price = _BY_FUNCTION.get(function)
    return None if price is None else price(call)


_ORDERED_TEXT: Final = frozenset(
    f"{name}_{kind}" for name in ("less", "greater", "less_equals", "greater_equals") for kind in ("string", "bytes")
) | {"equals", "not_equals"}


def standard_price(overload: str, call: Operands) -> Charge:
    sizes = call.sizes
    if overload in _ORDERED_TEXT:
        smallest = min(sizes[0].most, sizes[1].most)
        return Charge(_scan(Range(1 if smallest else 0, smallest)))
    if overload == "string_format":
        return Charge(_scan(sizes[0]))
    if overload == "string_to_bytes":
        return Charge(_scan(sizes[0]), Range(sizes[0].least, sizes[0].most * 4 % 2**64))
    if overload == "bytes_to_string":
        return Charge(_scan(sizes[0]), Range(sizes[0].least // 4, sizes[0].most))
    if overload == "strings_quote":
        return Charge(_scan(sizes[0]), Range((sizes[0].least + 2) % 2**64, (sizes[0].most * 2 + 2) % 2**64))
    if overload in ("starts_with_string", "ends_with_string"):
        return Charge(_scan(sizes[1]))
    if overload == "in_list":
        return Charge(sizes[1].scaled(1))
    if overload in ("matches", "matches_string"):
        return Charge(_regex(sizes[0], sizes[1]))
    if overload == "contains_string":
        return Charge(_scan(sizes[0]).times(_scan(sizes[1])))
    if overload in ("add_string", "add_bytes", "add_list"):
        total = sizes[0].plus(sizes[1])
        return Charge(ONE if overload == "add_list" else _scan(total), total)
    return Charge(ONE)
