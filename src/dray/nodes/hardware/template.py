"""Descriptions with holes: ``{expression}`` in a text, and ``repeat`` for what there is many times.

In texts (keys too) ``{gpu}``, ``{gpu // 2}`` and ``{gpu // 2:02x}`` are filled in; ``{{`` and ``}}`` are braces. A text that is
nothing but one hole of a number is that number. An item of a list, or an object, with ``repeat: {gpu: 8, start: [0, 4]}`` stands
for one item, or one set of keys, for each combination; later names may use earlier ones. An item with ``repeat`` and nothing
but ``items`` stands for these items each time.

Always true: expressions are numbers, names, ``+ - * // %`` and parentheses, nothing else; the same description and names give
the same result; what comes out is bounded by ``ITEMS_MAX``, and shares no object with anything else.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

REPEAT: Final = "repeat"
ITEMS: Final = "items"
ITEMS_MAX: Final = 5_000_000
_HOLE: Final = re.compile(r"\{\{|\}\}|\{([^{}:]+)(?::(0?[0-9]{0,2}[dxX]?))?\}|[{}]")

Scope = Mapping[str, int | str]
Made = Callable[[Scope], Any]


class TemplateError(ValueError):
    """A description that cannot be filled in: where and why."""


def compiled(description: Any, where: str = "") -> Made:
    """A function that fills the description in. Raises TemplateError."""
    if isinstance(description, str):
        return _text(description, where)
    if isinstance(description, list):
        return _list(description, where)
    if isinstance(description, dict):
        return _object(description, where)
    return lambda scope: description


def names(description: Any) -> set[str]:
    """Every name that holes of a description use, its own and those that it is filled in with."""
    if isinstance(description, str):
        holes = [found[1] for found in _HOLE.finditer(description) if found[1] is not None]
        return {
            node.id for hole in holes for node in ast.walk(ast.parse(hole.strip(), mode="eval")) if isinstance(node, ast.Name)
        }
    if isinstance(description, list):
        return set().union(*map(names, description))
    if isinstance(description, dict):
        return set().union(*map(names, (*map(str, description), *description.values())))
    return set()


# -------------------------------------------------------------------------------------------------------------- texts


def _text(text: str, where: str) -> Made:
    if "{" not in text and "}" not in text:
        return lambda scope: text
    parts: list[str | Callable[[Scope], str]] = []
    at = 0
    for found in _HOLE.finditer(text):
        parts.append(text[at : found.start()])
        parts.append(_hole(found, text, where))
        at = found.end()
    parts.append(text[at:])
    kept = [part for part in parts if part != ""]
    if len(kept) == 1 and callable(kept[0]) and _HOLE.fullmatch(text) and not text.startswith("{{") and ":" not in text:
        return _expression(text[1:-1], where)
    return lambda scope: "".join([part if isinstance(part, str) else part(scope) for part in kept])


def _hole(found: re.Match[str], text: str, where: str) -> str | Callable[[Scope], str]:
    if found[0] in ("{{", "}}"):
        return found[0][0]
    if found[1] is None:
        raise TemplateError(f"{where}: {text!r} has an unmatched brace; double it, or write a placeholder such as {{gpu}}")
    value, spec = _expression(found[1], where), found[2] or ""
    if not spec:
        return lambda scope: str(value(scope))
    return lambda scope: format(_number(value(scope), where), spec)


def _expression(text: str, where: str) -> Made:
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise TemplateError(f"{where}: {text!r} is not an expression") from error
    return _compiled(tree, text, where)


_OPERATIONS: Final[dict[type[ast.operator], Callable[[int, int], int]]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
}


def _compiled(tree: ast.expr, text: str, where: str) -> Made:
    if isinstance(tree, ast.Constant) and type(tree.value) is int:
        number = tree.value
        return lambda scope: number
    if isinstance(tree, ast.Name):
        return _name(tree.id, where)
    if isinstance(tree, ast.BinOp) and type(tree.op) in _OPERATIONS:
        left, right = _compiled(tree.left, text, where), _compiled(tree.right, text, where)
        return _binary(_OPERATIONS[type(tree.op)], left, right, text, where)
    raise TemplateError(f"{where}: {text!r}: only numbers, names, + - * // % and parentheses can be used")


def _name(name: str, where: str) -> Made:
    def look_up(scope: Scope) -> int | str:
        if name not in scope:
            raise TemplateError(f"{where}: unknown name {name!r}; known: {', '.join(sorted(scope))}")
        return scope[name]

    return look_up


def _binary(operation: Callable[[int, int], int], left: Made, right: Made, text: str, where: str) -> Made:
    def calculate(scope: Scope) -> int:
        try:
            result = operation(_number(left(scope), where), _number(right(scope), where))
        except ZeroDivisionError:
            raise TemplateError(f"{where}: {text!r} divides by zero") from None
        if abs(result) >= 1 << 63:
            raise TemplateError(f"{where}: {text!r} is too large")
        return result

    return calculate


def _number(value: Any, where: str) -> int:
    if not isinstance(value, int):
        raise TemplateError(f"{where}: {value!r} is not a number")
    return value


# --------------------------------------------------------------------------------------------------- lists and objects


def _list(description: list[Any], where: str) -> Made:
    parts = [_part(item, f"{where}[{place}]") for place, item in enumerate(description)]

    def make(scope: Scope) -> list[Any]:
        return [item for part in parts for item in part(scope)]

    return make


def _part(description: Any, where: str) -> Callable[[Scope], Iterator[Any]]:
    """What one entry of a list stands for."""
    if not isinstance(description, dict) or REPEAT not in description:
        one = compiled(description, where)
        return lambda scope: iter((one(scope),))
    rest = {key: value for key, value in description.items() if key != REPEAT}
    scopes = _repeated(description[REPEAT], where)
    if rest.keys() == {ITEMS} and isinstance(rest[ITEMS], list):
        several = _list(rest[ITEMS], f"{where}.items")
        return lambda scope: (item for each in scopes(scope) for item in several(each))
    single = compiled(rest, where)
    return lambda scope: map(single, scopes(scope))


def _object(description: dict[Any, Any], where: str) -> Made:
    parts = [
        (_text(str(key), where), compiled(value, f"{where}.{key}" if where else str(key)))
        for key, value in description.items()
        if key != REPEAT
    ]

    def make(scope: Scope) -> dict[str, Any]:
        return {str(key(scope)): value(scope) for key, value in parts}

    if REPEAT not in description:
        return make
    scopes = _repeated(description[REPEAT], where)

    def merged(scope: Scope) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for each in scopes(scope):
            made.update(make(each))
        return made

    return merged


def _repeated(description: Any, where: str) -> Callable[[Scope], Iterator[Scope]]:
    if not isinstance(description, dict) or not description:
        raise TemplateError(f"{where}.repeat: must be names with a count or a list each, for example {{gpu: 8}}")
    dimensions = [(str(name), _values(values, f"{where}.repeat.{name}")) for name, values in description.items()]

    def scopes(scope: Scope, depth: int = 0) -> Iterator[Scope]:
        if depth == len(dimensions):
            yield scope
            return
        name, values = dimensions[depth]
        for value in values(scope):
            yield from scopes({**scope, name: value}, depth + 1)

    return scopes


def _values(description: Any, where: str) -> Callable[[Scope], Iterator[int | str]]:
    if isinstance(description, list):
        made = [compiled(value, where) for value in description]
        return lambda scope: (value(scope) for value in made)
    count = compiled(description, where)

    def numbers(scope: Scope) -> Iterator[int | str]:
        number = _number(count(scope), where)
        if not 0 <= number <= ITEMS_MAX:
            raise TemplateError(f"{where}: {number} is not a count from 0 to {ITEMS_MAX}")
        return iter(range(number))

    return numbers
