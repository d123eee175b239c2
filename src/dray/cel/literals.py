"""Closures that make lists, maps and structs of what other closures give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dray.cel.errors import Failure
from dray.cel.values import Made, Optional, to_key

Closure = Callable[[list[Any]], Any]


def list_of(elements: list[Closure], optional: frozenset[int], position: int) -> Closure:
    if not optional:
        return lambda frame: tuple([element(frame) for element in elements])

    def build(frame: list[Any]) -> Any:
        built: list[Any] = []
        for index, element in enumerate(elements):
            value = element(frame)
            if index in optional:
                value = expect_optional(value, position)
                if value.present:
                    built.append(value.value)
            else:
                built.append(value)
        return tuple(built)

    return build


def map_of(entries: list[tuple[Closure, Closure, bool]], position: int) -> Closure:
    def build(frame: list[Any]) -> Any:
        built: dict[Any, Any] = {}
        for key_of, value_of, optional in entries:
            key = located(position, to_key, key_of(frame))
            if key in built:
                raise Failure(f"Failed with repeated key: {key}", position)
            _put(built, key, value_of(frame), optional, position)
        return built

    return build


def struct_of(name: str, entries: list[tuple[str, Closure, bool]], position: int) -> Closure:
    def build(frame: list[Any]) -> Made:
        built: dict[str, Any] = {}
        for field, value_of, optional in entries:
            _put(built, field, value_of(frame), optional, position)
        return Made(name, built)

    return build


def _put(built: dict[Any, Any], key: Any, value: Any, optional: bool, position: int) -> None:
    if optional:
        value = expect_optional(value, position)
        if not value.present:
            return
        value = value.value
    built[key] = value


def expect_optional(value: Any, position: int) -> Optional:
    if type(value) is not Optional:
        raise Failure("no such overload", position)
    return value


def located(position: int, function: Callable[..., Any], *args: Any) -> Any:
    """What the function gives; a failure that has no place happened here."""
    try:
        return function(*args)
    except Failure as failure:
        if failure.position < 0:
            failure.position = position
        raise
