"""Lists, sets and optionals: the lists extension (version 3), the lists of Kubernetes, sets, and optional values."""

from __future__ import annotations

from collections.abc import Callable
from functools import cmp_to_key
from typing import Any, Final

from dray.cel.errors import Failure
from dray.cel.library.times import checked_duration
from dray.cel.macros import MAP_INSERT, SORT_BY_KEYS
from dray.cel.values import NONE, Duration, Optional, Uint, bounded, checked_int, checked_uint, compare, equal, to_key, type_name

_COMPARABLE: Final = ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")
_FLATTEN_MAX: Final = 64
Elements = tuple[Any, ...]


def slice_list(elements: Elements, start: int, end: int) -> Elements:
    if start < 0 or end < 0:
        raise Failure(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        raise Failure(f"cannot slice({start}, {end}), start index must be less than or equal to end index")
    if len(elements) < end:
        raise Failure(f"cannot slice({start}, {end}), list is length {len(elements)}")
    return elements[start:end]


def flatten(elements: Elements, depth: int = 1) -> Elements:
    if depth < 0:
        raise Failure("level must be non-negative")
    for _ in range(min(depth, _FLATTEN_MAX)):
        if not any(isinstance(element, tuple) for element in elements):
            break
        bounded(sum(len(element) if isinstance(element, tuple) else 1 for element in elements))
        elements = tuple(inner for element in elements for inner in (element if isinstance(element, tuple) else (element,)))
    return elements


def sort_by_keys(elements: Elements, keys: Elements) -> Elements:
    if len(elements) != len(keys):
        raise Failure(f"sortBy: {len(elements)} elements but {len(keys)} keys")
    for key in keys:
        if type(key) is not type(keys[0]):
            raise Failure("list elements must have the same type")
        compare(key, key)
    by_key = cmp_to_key(compare)
    order = sorted(range(len(keys)), key=lambda index: by_key(keys[index]))
    return tuple(elements[index] for index in order)


def sort(elements: Elements) -> Elements:
    return sort_by_keys(elements, elements)


def make_range(count: int) -> Elements:
    if count < 0:
        raise Failure(f"lists.range: size must be non-negative, got {count}")
    bounded(count)
    return tuple(range(count))


def distinct(elements: Elements) -> Elements:
    """First occurrences, in order. Hashable values are looked up, the others compared one by one."""
    seen: set[Any] = set()
    others: list[Any] = []
    kept: list[Any] = []
    for element in elements:
        if type(element) in (str, int):
            if element not in seen:
                seen.add(element)
                kept.append(element)
        elif not any(equal(element, other) for other in (others if type(element) not in (Uint, float) else kept)):
            others.append(element)
            kept.append(element)
    return tuple(kept)


def is_sorted(elements: Elements) -> bool:
    return all(compare(elements[index - 1], elements[index]) <= 0 for index in range(1, len(elements)))


def extreme(name: str, sign: int) -> Callable[[Elements], Any]:
    def find(elements: Elements) -> Any:
        if not elements:
            raise Failure(f"{name} called on empty list")
        best = elements[0]
        for element in elements[1:]:
            if compare(element, best) == sign:
                best = element
        return best

    return find


def total(elements: Elements, zero: Any) -> Any:
    result = zero
    for element in elements:
        if type(element) is not type(zero):
            raise Failure("no such overload")
        if type(zero) is int:
            result = checked_int(result + element)
        elif type(zero) is Uint:
            result = checked_uint(int(result) + int(element))
        elif type(zero) is Duration:
            result = checked_duration(result.nanos + element.nanos)
        else:
            result = result + element
    return result


def index_of(elements: Elements, value: Any) -> int:
    return next((index for index, element in enumerate(elements) if equal(element, value)), -1)


def last_index_of(elements: Elements, value: Any) -> int:
    return next((index for index in reversed(range(len(elements))) if equal(elements[index], value)), -1)


def includes(target: Any, value: Any) -> bool:
    """Whether a list has the value, or a scalar is it: attributes may be either."""
    if isinstance(target, tuple):
        return any(equal(element, value) for element in target)
    return equal(target, value)


def contains_all(elements: Elements, wanted: Elements) -> bool:
    return all(includes(elements, value) for value in wanted)


def intersects(a: Elements, b: Elements) -> bool:
    return any(includes(b, value) for value in a)


def insert(entries: dict[Any, Any], *added: Any) -> dict[Any, Any]:
    """What ``transformMap`` (key, value) and ``transformMapEntry`` (a map) do to their accumulator."""
    new = {to_key(added[0]): added[1]} if len(added) == 2 else added[0]
    for key in new:
        if key in entries:
            raise Failure(f"insert failed: key {key} already exists")
    bounded(len(entries) + len(new))
    return {**entries, **new}


def of_non_zero(value: Any) -> Optional:
    empty = (None, False, 0, 0.0, "", b"", (), Duration(0))
    zero = any(type(value) is type(other) and value == other for other in empty)
    return NONE if zero or (type(value) is Uint and value == 0) or value == {} else Optional(True, value)


def value_of(optional: Optional) -> Any:
    if not optional.present:
        raise Failure("optional.none() dereference")
    return optional.value


def unwrap(elements: Elements) -> Elements:
    for element in elements:
        if type(element) is not Optional:
            raise Failure(f"value of type {type_name(element)} is not optional")
    return tuple(element.value for element in elements if element.present)


def _first(elements: Elements) -> Optional:
    return Optional(True, elements[0]) if elements else NONE


def _last(elements: Elements) -> Optional:
    return Optional(True, elements[-1]) if elements else NONE


def _each(function: str, id: str, text: str, implementation: Callable[..., Any]) -> list[Any]:
    return [(function, id.format(kind), text.format(kind), implementation) for kind in _COMPARABLE]


def _total(zero: Any) -> Callable[[Elements], Any]:
    return lambda elements: total(elements, zero)


_SUMMABLE: Final = {"int": 0, "uint": Uint(0), "double": 0.0, "duration": Duration(0)}

INCLUDES: Final = ("includes", "list_includes_dyn_dyn", "dyn.(dyn) -> bool", includes)
DECLARATIONS: Final[list[tuple[str, str, str, Callable[..., Any] | None]]] = [
    ("slice", "list_slice", "list(T).(int, int) -> list(T)", slice_list),
    ("flatten", "list_flatten", "list(list(T)).() -> list(T)", flatten),
    ("flatten", "list_flatten_int", "list(dyn).(int) -> list(dyn)", flatten),
    *_each("sort", "list_{}_sort", "list({0}).() -> list({0})", sort),
    *_each(SORT_BY_KEYS, "list_{}_sortByAssociatedKeys", "list(T).(list({})) -> list(T)", sort_by_keys),
    ("lists.range", "lists_range", "(int) -> list(int)", make_range),
    ("reverse", "list_reverse", "list(T).() -> list(T)", lambda elements: elements[::-1]),
    ("distinct", "list_distinct", "list(T).() -> list(T)", distinct),
    *_each("isSorted", "list_{}_is_sorted_bool", "list({}).() -> bool", is_sorted),
    *_each("max", "list_{0}_max_{0}", "list({0}).() -> {0}", extreme("max", 1)),
    *_each("min", "list_{0}_min_{0}", "list({0}).() -> {0}", extreme("min", -1)),
    *(("sum", f"list_{kind}_sum_{kind}", f"list({kind}).() -> {kind}", _total(zero)) for kind, zero in _SUMMABLE.items()),
    ("indexOf", "list_a_index_of_int", "list(A).(A) -> int", index_of),
    ("lastIndexOf", "list_a_last_index_of_int", "list(A).(A) -> int", last_index_of),
    ("sets.contains", "list_sets_contains_list", "(list(T), list(T)) -> bool", contains_all),
    (
        "sets.equivalent",
        "list_sets_equivalent_list",
        "(list(T), list(T)) -> bool",
        lambda a, b: contains_all(a, b) and contains_all(b, a),
    ),
    ("sets.intersects", "list_sets_intersects_list", "(list(T), list(T)) -> bool", intersects),
    (MAP_INSERT, "@mapInsert_map_map", "(map(K, V), map(K, V)) -> map(K, V)", insert),
    (MAP_INSERT, "@mapInsert_map_key_value", "(map(K, V), K, V) -> map(K, V)", insert),
    ("optional.of", "optional_of", "(V) -> optional(V)", lambda value: Optional(True, value)),
    ("optional.ofNonZeroValue", "optional_ofNonZeroValue", "(V) -> optional(V)", of_non_zero),
    ("optional.none", "optional_none", "() -> optional(V)", lambda: NONE),
    ("optional.unwrap", "optional_unwrap", "(list(optional(V))) -> list(V)", unwrap),
    ("unwrapOpt", "optional_unwrapOpt", "list(optional(V)).() -> list(V)", unwrap),
    ("value", "optional_value", "optional(V).() -> V", value_of),
    ("hasValue", "optional_hasValue", "optional(V).() -> bool", lambda optional: optional.present),
    ("or", "optional_or_optional", "optional(V).(optional(V)) -> optional(V)", None),
    ("orValue", "optional_orValue_value", "optional(V).(V) -> V", None),
    ("first", "list_first", "list(V).() -> optional(V)", _first),
    ("last", "list_last", "list(V).() -> optional(V)", _last),
]
