"""What is wrong with one field, and the small checks that all validation is made of.

Checks are generators of ``FieldError``. A list that is too long is refused as a whole and its elements are not looked at, so
that a hostile object costs little.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

Errors = Iterator["FieldError"]

# The value of an error that is about so much that it is not shown.
OMITTED: Final = object()


class FieldError(NamedTuple):
    """One problem. ``type`` is Required, Invalid, Duplicate, NotSupported, Forbidden, TooLong, TooMany or NotFound."""

    path: str
    type: str
    value: Any
    detail: str = ""

    @property
    def message(self) -> str:
        return self.detail

    @property
    def words(self) -> str:
        """What is wrong, behind the path. An API server says most of it with the type alone."""
        return self.detail or {"Required": "must be set", "NotFound": f"not found: {self.value}"}.get(
            self.type, f"{self.type.lower()} value: {self.value}"
        )


def required(path: str, detail: str = "") -> FieldError:
    return FieldError(path, "Required", "", detail)


def invalid(path: str, value: Any, detail: str) -> FieldError:
    return FieldError(path, "Invalid", value, detail)


def forbidden(path: str, detail: str) -> FieldError:
    return FieldError(path, "Forbidden", "", detail)


def duplicate(path: str, value: Any) -> FieldError:
    return FieldError(path, "Duplicate", value)


def not_found(path: str, value: Any) -> FieldError:
    return FieldError(path, "NotFound", value)


def too_long(path: str, limit: int) -> FieldError:
    return FieldError(path, "TooLong", "", f"may not be more than {limit} bytes")


def too_many(path: str, count: int, limit: int) -> FieldError:
    return FieldError(path, "TooMany", count, f"{count}: must have at most {limit} items")


def not_supported(path: str, value: Any, supported: Iterable[str]) -> FieldError:
    listed = ", ".join(f'"{known}"' for known in supported)
    return FieldError(path, "NotSupported", value, f"supported values: {listed}")


def immutable(new: Any, old: Any, path: str) -> Errors:
    if new != old:
        yield invalid(path, new, "field is immutable")


def named(rule: Callable[[str], list[str]], value: str, path: str) -> Errors:
    """The value follows the rule of names."""
    for problem in rule(value):
        yield invalid(path, value, problem)


def required_name(rule: Callable[[str], list[str]], value: str | None, path: str) -> Errors:
    if not value:
        yield required(path)
    else:
        yield from named(rule, value, path)


def one_of(value: str | None, supported: Sequence[str], path: str, *, optional: bool = False) -> Errors:
    if not value:
        if not optional:
            yield required(path)
    elif value not in supported:
        yield not_supported(path, value, supported)


def not_negative(value: int | None, path: str) -> Errors:
    if value is not None and value < 0:
        yield invalid(path, value, "must be greater than or equal to 0")


def longest(text: str | None, limit: int, path: str) -> Errors:
    if text is not None and len(text.encode()) > limit:
        yield too_long(path, limit)


def each(items: Sequence[Any] | None, limit: int | None, path: str, check: Callable[[Any, str], Iterable[FieldError]]) -> Errors:
    """Every item passes, and there are not too many."""
    if not items:
        return
    if limit is not None and len(items) > limit:
        yield too_many(path, len(items), limit)
        return
    for index, item in enumerate(items):
        yield from check(item, f"{path}[{index}]")


def unique(items: Sequence[Any] | None, path: str, key: Callable[[Any], Hashable], limit: int | None = None) -> Errors:
    """No two items with one key. Lists over ``limit`` are refused elsewhere and not looked at."""
    if not items or (limit is not None and len(items) > limit):
        return
    seen: set[Hashable] = set()
    for index, item in enumerate(items):
        found = key(item)
        if found in seen:
            yield duplicate(f"{path}[{index}]", found)
        seen.add(found)


def each_of_map(
    items: dict[str, Any] | None,
    limit: int | None,
    path: str,
    check_key: Callable[[str, str], Iterable[FieldError]],
    check: Callable[[Any, str], Iterable[FieldError]],
) -> Errors:
    """Keys and values pass, and there are not too many."""
    if not items:
        return
    if limit is not None and len(items) > limit:
        yield too_many(path, len(items), limit)
        return
    for key, value in items.items():
        yield from check_key(key, path)
        yield from check(value, f"{path}[{shortened(key)}]")


def shortened(key: str) -> str:
    return key if len(key) <= 96 else f"{key[:47]}...{key[-46:]}"
