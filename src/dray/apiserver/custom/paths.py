"""JSONPath as definitions use it: for columns, the scale subresource and selectable fields.

``.spec.replicas``, ``.spec.items[0].name``, ``.metadata.labels['a.b/c']``, ``.status.conditions[?(@.type=="Ready")].status``.
A path is parsed once; finding never fails, it only finds nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

Find = Callable[[Any], Iterator[Any]]

_TOKEN: Final = re.compile(
    r"""\.(?P<name>(?:\\.|[^.\[\]\\\s'"{}()?*@])+)
      | \[\s*(?P<index>-?\d{1,9})\s*\]
      | \[\s*'(?P<single>(?:\\.|[^'\\])*)'\s*\] | \[\s*"(?P<double>(?:\\.|[^"\\])*)"\s*\]
      | (?P<all>\[\s*\*\s*\]|\.\*)
      | \[\?\(\s*@(?P<field>(?:\.(?:\\.|[^.\[\]\\\s'"{}()?*@=!<>])+)*)\s*(?:(?P<operator>==|!=|<=|>=|<|>)\s*
            (?P<literal>'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|-?\d+(?:\.\d+)?|true|false))?\s*\)\]""",
    re.VERBOSE,
)
_COMPARED: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


class PathError(ValueError):
    """A path cannot be read."""


def parse(text: str) -> Find:
    """What the path finds in an object, in order."""
    steps: list[Find] = []
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise PathError(f"cannot read {text[at : at + 40]!r}; a path looks like .spec.items[0].name")
        steps.append(_step(found))
        at = found.end()
    if not steps:
        raise PathError("is empty; a path looks like .spec.name")
    return lambda value: _follow(value, steps)


def fields(text: str) -> tuple[str, ...]:
    """The names of a path that has nothing but names: what scale and selectable fields take."""
    names = []
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None or (name := _named(found)) is None:
            raise PathError("must be a simple json path of names, such as .spec.name")
        names.append(name)
        at = found.end()
    if not names:
        raise PathError("must be a simple json path of names, such as .spec.name")
    return tuple(names)


def _named(found: re.Match[str]) -> str | None:
    name = found["name"] or found["single"] or found["double"]
    return re.sub(r"\\(.)", r"\1", name) if name else None


def _step(found: re.Match[str]) -> Find:
    name = _named(found)
    if name is not None:
        return lambda value: iter((value[name],) if isinstance(value, dict) and name in value else ())
    if found["index"] is not None:
        index = int(found["index"])
        return lambda value: iter(value[index:][:1] if isinstance(value, list) and -len(value) <= index else ())
    if found["all"] is not None:
        return lambda value: iter(value.values() if isinstance(value, dict) else value if isinstance(value, list) else ())
    return _filter(found["field"] or "", found["operator"], found["literal"])


def _filter(path: str, operator: str | None, literal: str | None) -> Find:
    field = parse(path) if path else lambda value: iter((value,))
    if operator is None or literal is None:
        return lambda value: (each for each in _list(value) if next(field(each), None) is not None)
    wanted = re.sub(r"\\(.)", r"\1", literal[1:-1]) if literal[0] in "'\"" else json.loads(literal)
    compare = _COMPARED[operator]

    def holds(each: Any) -> bool:
        try:
            return any(compare(found, wanted) for found in field(each))
        except TypeError:
            return False

    return lambda value: (each for each in _list(value) if holds(each))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _follow(value: Any, steps: list[Find]) -> Iterator[Any]:
    values: Iterator[Any] = iter((value,))
    for step in steps:
        values = _each(values, step)
    return values


def _each(values: Iterator[Any], step: Find) -> Iterator[Any]:
    for value in values:
        yield from step(value)
