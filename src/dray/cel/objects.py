"""Expressions about objects: variables with types that a schema gives, such as ``self`` and ``oldSelf`` of validation rules.

The language, the library and the costs are those of device selectors. A ``Shape`` says what a value looks like, how large it can
be and how it is read from JSON; an ``Expression`` is checked against the shapes of its variables once, then evaluated.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from typing import Any, Final

from dray.cel import types
from dray.cel.checker import Names, check, children
from dray.cel.compiler import FIRST_SLOT, compile_tree
from dray.cel.errors import CompileError, CostLimitExceeded, EvaluationError, Failure, Overrun
from dray.cel.estimate import Path, estimate
from dray.cel.library.times import parse_duration, parse_timestamp
from dray.cel.meter import Meter
from dray.cel.parser import RESERVED, parse
from dray.cel.ranges import Range
from dray.cel.tree import Comprehension, Ident, Node
from dray.cel.types import Type, list_of, map_of, optional_of
from dray.cel.values import Unordered

_KEYWORDS: Final = RESERVED | {"true", "false", "null", "in"}
_ESCAPES: Final = (("__", "__underscores__"), (".", "__dot__"), ("-", "__dash__"), ("/", "__slash__"))
_NAME: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-/")


def escaped(name: str) -> str | None:
    """How a field is called in expressions; None for one that cannot be called at all."""
    if not name or name[0].isdigit() or not _NAME.issuperset(name):
        return None
    if name in _KEYWORDS:
        return f"__{name}__"
    for plain, written in _ESCAPES:
        if plain == "__":
            name = name.replace("__", "\0")
        else:
            name = name.replace(plain, written)
    return name.replace("\0", "__underscores__")


class Shape:
    """A type with the sizes of its values.

    most: the longest text, or the most elements or entries. least: the fewest bytes of JSON that a value takes.
    fields: of an object, by their escaped names. item: of a list or map. keys: of a list whose order says nothing, what tells its
    elements apart, which for a set is everything; None where order counts.
    """

    __slots__ = ("fields", "item", "keys", "least", "most", "names", "type")

    def __init__(
        self, type_: Type, most: int = 1, least: int = 1, *, item: Shape | None = None, fields: Mapping[str, Shape] | None = None
    ) -> None:
        self.type, self.most, self.least, self.item = type_, most, least, item
        self.keys: tuple[str, ...] | None = None
        self.names: dict[str, str] = {}
        self.fields: dict[str, Shape] = {}
        for name, shape in (fields or {}).items():
            known = escaped(name)
            if known is not None:
                self.fields[known], self.names[name] = shape, known
            if name in _KEYWORDS:
                # What the grammar lets be written as it is may be, besides.
                self.fields[name] = shape

    @staticmethod
    def of_list(item: Shape, most: int, keys: Iterable[str] | None = None) -> Shape:
        made = Shape(list_of(item.type), most, 2, item=item)
        made.keys = None if keys is None else tuple([escaped(key) or key for key in keys])
        return made

    @staticmethod
    def of_map(item: Shape, most: int) -> Shape:
        return Shape(map_of(types.STRING, item.type), most, 2, item=item)

    @staticmethod
    def of_object(name: str, fields: Mapping[str, Shape], least: int = 2) -> Shape:
        return Shape(Type("struct", name), 0, least, fields=fields)

    def structs(self, found: dict[str, Mapping[str, Type]]) -> None:
        """Puts the fields of this type, if it has any, and of all types in it into ``found``."""
        if self.type.kind == "struct":
            found[self.type.name] = {name: shape.type for name, shape in self.fields.items()}
        for shape in (*self.fields.values(), *filter(None, (self.item,))):
            shape.structs(found)

    def at(self, path: Path) -> Shape | None:
        shape: Shape | None = self
        for step in path:
            if shape is None:
                return None
            if step in ("@items", "@values"):
                shape = shape.item
            elif step == "@keys":
                shape = Shape(types.STRING, _KEY_MOST) if shape.type.kind == "map" else None
            elif step == "@indices":
                return None
            else:
                shape = shape.fields.get(step) or (shape.item if shape.type.kind == "map" else None)
        return shape

    def read(self, value: Any) -> Any:
        """A JSON value as expressions see it. What the shape does not name is left out."""
        if value is None:
            return None
        if type(value) is dict:
            return self._read_members(value)
        if type(value) is list:
            item = self.item
            read = [plain(each) if item is None else item.read(each) for each in value]
            return tuple(read) if self.keys is None else Unordered.of(read, self.keys)
        return self._read_scalar(value)

    def _read_members(self, value: dict[str, Any]) -> Any:
        if self.item is not None:
            item = self.item
            return {key: item.read(each) for key, each in value.items()}
        if self.type.kind != "struct":
            return plain(value)
        made = {known: self.fields[known].read(value[name]) for name, known in self.names.items() if name in value}
        return made | {name: made[f"__{name}__"] for name in _KEYWORDS & value.keys() if name in self.fields}

    def _read_scalar(self, value: Any) -> Any:
        kind = self.type
        if kind == types.DOUBLE and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        if kind == types.INT and isinstance(value, float) and value.is_integer():
            return int(value)
        if not isinstance(value, str) or kind in (types.STRING, types.DYN):
            return value
        try:
            if kind == types.TIMESTAMP:
                return parse_timestamp(value if "T" in value.upper() else f"{value}T00:00:00Z")
            if kind == types.DURATION:
                return parse_duration(value)
            return base64.b64decode(value, validate=True) if kind == types.BYTES else value
        except (Failure, binascii.Error, ValueError):
            raise Failure(f"the value is not a {kind}") from None


_KEY_MOST: Final = 253


def plain(value: Any) -> Any:
    """A JSON value of which no schema is known."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    return tuple([plain(each) for each in value]) if isinstance(value, list) else value


class Expression:
    """One expression over named values. Immutable, and without state between evaluations."""

    __slots__ = ("_closure", "_frame", "_node", "_shapes", "text", "type", "uses", "variables")

    def __init__(
        self, text: str, variables: Mapping[str, Shape], optional: frozenset[str] = frozenset(), *, patches: bool = False
    ) -> None:
        """``optional`` are the variables whose values are optionals; with ``patches`` it may make some. Raises CompileError."""
        self.text = text
        self._shapes, self.variables = variables, tuple(variables)
        try:
            node = self._node = parse(text)
            self.type = check(node, text, _names(variables, optional)._replace(patches=patches))
            self.uses = frozenset(_free(node, frozenset()))
            self._closure, slots = compile_tree(node, True, self.variables)
        except Failure as failure:
            raise CompileError(failure.message, max(failure.position, 0), text) from None
        except RecursionError:
            raise CompileError("expression is nested too deeply", 0, text) from None
        self._frame = [None] * (slots - FIRST_SLOT)

    @property
    def estimated_cost(self) -> int:
        """What it costs at most, as far as the sizes of its variables are known."""
        return estimate(self._node, lambda path: _limit(self._shapes, path)).maximum

    def evaluate(self, values: tuple[Any, ...], meter: Meter) -> Any:
        """The value, with what it costs spent on the meter. Raises EvaluationError."""
        try:
            return self._closure([values, meter, *self._frame])
        except Failure as failure:
            raise EvaluationError(failure.message, max(failure.position, 0), self.text) from None
        except Overrun:
            raise CostLimitExceeded("operation cancelled: actual cost limit exceeded", 0, self.text) from None
        except RecursionError:
            raise EvaluationError("expression is nested too deeply to be evaluated here", 0, self.text) from None


def _names(variables: Mapping[str, Shape], optional: frozenset[str]) -> Names:
    fields: dict[str, Mapping[str, Type]] = {}
    for shape in variables.values():
        shape.structs(fields)
    given = {name: optional_of(shape.type) if name in optional else shape.type for name, shape in variables.items()}
    return Names(given, fields)


def _limit(variables: Mapping[str, Shape], path: Path) -> Range | None:
    """As upstream does it, where a name that is no variable, such as that of a type, is as large as the first of them."""
    root = variables.get(path[0].lstrip("."), next(iter(variables.values()))) if path else None
    found = root.at(path[1:]) if root is not None else None
    return None if found is None else Range(0, found.most)


def _free(node: Node, bound: frozenset[str]) -> set[str]:
    """The names in an expression that are not its own."""
    if isinstance(node, Ident):
        return set() if node.name in bound else {node.name.lstrip(".")}
    if isinstance(node, Comprehension):
        inner = bound | {node.variable, node.accumulator} | ({node.variable2} if node.variable2 else set())
        found = _free(node.range, bound) | _free(node.init, bound)
        return found.union(*(_free(part, inner) for part in (node.condition, node.step, node.result)))
    return set[str]().union(*(_free(child, bound) for child in children(node)))
