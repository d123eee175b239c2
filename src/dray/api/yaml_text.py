"""Reads YAML that others wrote, with libyaml where it is there; whatever is wrong with it is a ``yaml.YAMLError``.

Always true: it is refused where it is nested deeply, because the C loader recurses without a bound and a few thousand brackets
would end the process. Times stay text, as JSON has them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import yaml

DEPTH_MAX: Final = 200
# Only a text that has one of these can be nested deeper: many brackets, marks of items in a row, or that much white space.
_MARKS: Final = re.compile(rb"(?:[-?:] +){%d}|\n {%d}" % (DEPTH_MAX // 4, DEPTH_MAX))
_BASE: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG: Final = "tag:yaml.org,2002:"


class Loader(_BASE):  # type: ignore[misc]
    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag != f"{_TAG}timestamp"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def _checked(construct: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A text that its tag, or its own form, makes a number that it is not: ``!!int x``, ``0x_``."""

    def made(loader: Any, node: Any) -> Any:
        try:
            return construct(loader, node)
        except (ValueError, KeyError):
            kind = node.tag.removeprefix(_TAG)
            raise yaml.constructor.ConstructorError(None, None, f"{node.value!r} is no {kind}", node.start_mark) from None

    return made


for _kind in ("bool", "int", "float"):
    Loader.add_constructor(_TAG + _kind, _checked(_BASE.yaml_constructors[_TAG + _kind]))
Loader.add_constructor(f"{_TAG}timestamp", _BASE.construct_yaml_str)


def document(text: str) -> Any:
    refuse_deep_nesting(text)
    return yaml.load(text, Loader)


def documents(text: str) -> list[Any]:
    refuse_deep_nesting(text)
    return list(yaml.load_all(text, Loader))


def unreadable(error: Exception) -> str:
    """Why a file could not be read, in one line that follows its name: with line and column where they are known."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    if mark is not None and problem:
        return f"cannot be read at line {mark.line + 1}, column {mark.column + 1}: {problem}"
    if isinstance(error, UnicodeDecodeError):
        before = error.object[: error.start]
        line, column = before.count(b"\n") + 1, error.start - before.rfind(b"\n")
        return f"cannot be read at line {line}, column {column}: byte 0x{error.object[error.start]:02x} is not UTF-8 text"
    if isinstance(error, yaml.reader.ReaderError):
        return f"cannot be read at character {error.position + 1}: 0x{error.character:02x} is not allowed in YAML"
    return f"cannot be read: {getattr(error, 'strerror', None) or error}"


def refuse_deep_nesting(text: str | bytes) -> None:
    """Reads events, which need no recursion."""
    raw = text.encode() if isinstance(text, str) else text
    if raw.count(b"[") + raw.count(b"{") <= DEPTH_MAX and _MARKS.search(raw) is None:
        return
    depth = 0
    for event in yaml.parse(raw, _BASE):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > DEPTH_MAX:
            raise yaml.YAMLError("it is nested too deeply")
