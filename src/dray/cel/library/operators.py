"""Operators: arithmetic with overflow as an error, order, equality, membership, size.

``&&``, ``||``, ``?:``, indexing and field selection are only declared here; the compiler evaluates them itself.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final

from dray.cel.errors import Failure
from dray.cel.library.times import checked_duration, checked_timestamp
from dray.cel.values import Uint, Unordered, bounded, checked_int, checked_uint, compare, equal, equals, to_key

Declaration = tuple[str, str, str, Callable[..., Any] | None]


def add_int(a: int, b: int) -> int:
    return checked_int(a + b)


def add_text(a: Any, b: Any) -> Any:
    bounded(len(a) + len(b))
    return a + b


def add_lists(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
    bounded(len(a) + len(b))
    return a.plus(b) if isinstance(a, Unordered) else a + b


def divide_int(a: int, b: int) -> int:
    if b == 0:
        raise Failure("division by zero")
    quotient = abs(a) // abs(b)
    return checked_int(quotient if (a < 0) == (b < 0) else -quotient)


def modulo_int(a: int, b: int) -> int:
    if b == 0:
        raise Failure("modulus by zero")
    if b == -1:
        checked_int(-a)
    remainder = abs(a) % abs(b)
    return -remainder if a < 0 else remainder


def divide_uint(a: int, b: int) -> Uint:
    if b == 0:
        raise Failure("division by zero")
    return Uint(int(a) // int(b))


def modulo_uint(a: int, b: int) -> Uint:
    if b == 0:
        raise Failure("modulus by zero")
    return Uint(int(a) % int(b))


def divide_double(a: float, b: float) -> float:
    if b == 0:
        if a == 0 or a != a:
            return float("nan")
        negative = (a < 0) != (str(b).startswith("-"))
        return float("-inf") if negative else float("inf")
    return a / b


def in_list(value: Any, elements: tuple[Any, ...]) -> bool:
    return any(equal(value, element) for element in elements)


def in_map(value: Any, entries: dict[Any, Any]) -> bool:
    return to_key(value) in entries


def negate_int(a: int) -> int:
    return checked_int(-a)


_ARITHMETIC: Final[list[Declaration]] = [
    ("_+_", "add_bytes", "(bytes, bytes) -> bytes", add_text),
    ("_+_", "add_double", "(double, double) -> double", operator.add),
    ("_+_", "add_duration_duration", "(duration, duration) -> duration", lambda a, b: checked_duration(a.nanos + b.nanos)),
    ("_+_", "add_duration_timestamp", "(duration, timestamp) -> timestamp", lambda a, b: checked_timestamp(a.nanos + b.nanos)),
    ("_+_", "add_timestamp_duration", "(timestamp, duration) -> timestamp", lambda a, b: checked_timestamp(a.nanos + b.nanos)),
    ("_+_", "add_int64", "(int, int) -> int", add_int),
    ("_+_", "add_list", "(list(A), list(A)) -> list(A)", add_lists),
    ("_+_", "add_string", "(string, string) -> string", add_text),
    ("_+_", "add_uint64", "(uint, uint) -> uint", lambda a, b: checked_uint(int(a) + int(b))),
    ("_-_", "subtract_double", "(double, double) -> double", operator.sub),
    ("_-_", "subtract_duration_duration", "(duration, duration) -> duration", lambda a, b: checked_duration(a.nanos - b.nanos)),
    ("_-_", "subtract_int64", "(int, int) -> int", lambda a, b: checked_int(a - b)),
    (
        "_-_",
        "subtract_timestamp_duration",
        "(timestamp, duration) -> timestamp",
        lambda a, b: checked_timestamp(a.nanos - b.nanos),
    ),
    (
        "_-_",
        "subtract_timestamp_timestamp",
        "(timestamp, timestamp) -> duration",
        lambda a, b: checked_duration(a.nanos - b.nanos),
    ),
    ("_-_", "subtract_uint64", "(uint, uint) -> uint", lambda a, b: checked_uint(int(a) - int(b))),
    ("_*_", "multiply_double", "(double, double) -> double", operator.mul),
    ("_*_", "multiply_int64", "(int, int) -> int", lambda a, b: checked_int(a * b)),
    ("_*_", "multiply_uint64", "(uint, uint) -> uint", lambda a, b: checked_uint(int(a) * int(b))),
    ("_/_", "divide_double", "(double, double) -> double", divide_double),
    ("_/_", "divide_int64", "(int, int) -> int", divide_int),
    ("_/_", "divide_uint64", "(uint, uint) -> uint", divide_uint),
    ("_%_", "modulo_int64", "(int, int) -> int", modulo_int),
    ("_%_", "modulo_uint64", "(uint, uint) -> uint", modulo_uint),
    ("-_", "negate_double", "(double) -> double", operator.neg),
    ("-_", "negate_int64", "(int) -> int", negate_int),
]

_NUMERIC: Final = ("int", "uint", "double")
_UNITS: Final = {"int": "int64", "uint": "uint64"}


def _order(symbol: str, name: str, holds: Callable[[int], bool]) -> list[Declaration]:
    """One order over all comparable types, and over mixed numbers."""

    def decide(a: Any, b: Any) -> bool:
        return holds(compare(a, b))

    same = [(kind, kind) for kind in ("bool", "int", "uint", "double", "string", "bytes", "timestamp", "duration")]
    mixed = [(a, b) for a in _NUMERIC for b in _NUMERIC if a != b]
    declared: list[Declaration] = []
    for a, b in same + mixed:
        id = "_".join([name, _UNITS.get(a, a)] + ([_UNITS.get(b, b)] if a != b else []))
        fast = None if "double" in (a, b) or a in ("timestamp", "duration") else getattr(operator, _FAST[symbol])
        declared.append((symbol, id, f"({a}, {b}) -> bool", fast or decide))
    return declared


_FAST: Final = {"_<_": "lt", "_<=_": "le", "_>_": "gt", "_>=_": "ge"}

DECLARATIONS: Final[list[Declaration]] = [
    ("_?_:_", "conditional", "(bool, A, A) -> A", None),
    ("_&&_", "logical_and", "(bool, bool) -> bool", None),
    ("_||_", "logical_or", "(bool, bool) -> bool", None),
    ("!_", "logical_not", "(bool) -> bool", operator.not_),
    ("@not_strictly_false", "not_strictly_false", "(bool) -> bool", None),
    ("_==_", "equals", "(A, A) -> bool", equals),
    ("_!=_", "not_equals", "(A, A) -> bool", lambda a, b: not equal(a, b)),
    *_ARITHMETIC,
    *_order("_<_", "less", lambda sign: sign < 0),
    *_order("_<=_", "less_equals", lambda sign: sign <= 0),
    *_order("_>_", "greater", lambda sign: sign > 0),
    *_order("_>=_", "greater_equals", lambda sign: sign >= 0),
    ("_[_]", "index_list", "(list(A), int) -> A", None),
    ("_[_]", "index_map", "(map(A, B), A) -> B", None),
    ("_[_]", "optional_list_index_int", "(optional(list(V)), int) -> optional(V)", None),
    ("_[_]", "optional_map_index_value", "(optional(map(K, V)), K) -> optional(V)", None),
    ("_[?_]", "list_optindex_optional_int", "(list(V), int) -> optional(V)", None),
    ("_[?_]", "optional_list_optindex_optional_int", "(optional(list(V)), int) -> optional(V)", None),
    ("_[?_]", "map_optindex_optional_value", "(map(K, V), K) -> optional(V)", None),
    ("_[?_]", "optional_map_optindex_optional_value", "(optional(map(K, V)), K) -> optional(V)", None),
    ("@in", "in_list", "(A, list(A)) -> bool", in_list),
    ("@in", "in_map", "(A, map(A, B)) -> bool", in_map),
    ("size", "size_bytes", "(bytes) -> int", len),
    ("size", "bytes_size", "bytes.() -> int", len),
    ("size", "size_list", "(list(A)) -> int", len),
    ("size", "list_size", "list(A).() -> int", len),
    ("size", "size_map", "(map(A, B)) -> int", len),
    ("size", "map_size", "map(A, B).() -> int", len),
    ("size", "size_string", "(string) -> int", len),
    ("size", "string_size", "string.() -> int", len),
]
