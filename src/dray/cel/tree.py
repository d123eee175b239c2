"""The syntax tree, after macros are expanded.

Nodes are plain and mutable in one respect: the checker writes ``type`` (and the overloads that a call may use) into them.
A node may appear twice in a tree (``optMap`` asks and then reads its target), so walks that can meet a node twice remember it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dray.cel.types import Overload, Type


class Node:
    __slots__ = ("depth", "position", "type")

    position: int
    depth: int
    type: Type

    def __init__(self, position: int, *children: Node | None) -> None:
        self.position = position
        self.depth = 1 + max((child.depth for child in children if child is not None), default=0)


class Literal(Node):
    __slots__ = ("value",)

    def __init__(self, position: int, value: Any) -> None:
        super().__init__(position)
        self.value = value


class Ident(Node):
    __slots__ = ("name",)

    def __init__(self, position: int, name: str) -> None:
        super().__init__(position)
        self.name = name


class Select(Node):
    """``operand.field``, or ``has(operand.field)`` when it only tests."""

    __slots__ = ("field", "operand", "test")

    def __init__(self, position: int, operand: Node, field: str, test: bool = False) -> None:
        super().__init__(position, operand)
        self.operand = operand
        self.field = field
        self.test = test


class Call(Node):
    """A function or an operator; ``&&`` and ``||`` take any number of arguments."""

    __slots__ = ("args", "function", "overloads", "target")

    overloads: tuple[Overload, ...]

    def __init__(self, position: int, function: str, args: list[Node], target: Node | None = None) -> None:
        super().__init__(position, target, *args)
        self.function = function
        self.args = args
        self.target = target
        self.overloads = ()

    @property
    def operands(self) -> list[Node]:
        """Receiver first, then the arguments: what the implementation is called with."""
        return self.args if self.target is None else [self.target, *self.args]


class ListLiteral(Node):
    __slots__ = ("elements", "optional")

    def __init__(self, position: int, elements: list[Node], optional: frozenset[int] = frozenset()) -> None:
        super().__init__(position, *elements)
        self.elements = elements
        self.optional = optional


class MapLiteral(Node):
    """Entries are (key, value, optional)."""

    __slots__ = ("entries",)

    def __init__(self, position: int, entries: list[tuple[Node, Node, bool]]) -> None:
        super().__init__(position, *(node for entry in entries for node in entry[:2]))
        self.entries = entries


class StructLiteral(Node):
    """``Name{field: value}``. Entries are (field, value, optional, where the field is)."""

    __slots__ = ("entries", "name")

    def __init__(self, position: int, name: str, entries: list[tuple[str, Node, bool, int]]) -> None:
        super().__init__(position, *(value for _, value, _, _ in entries))
        self.name = name
        self.entries = entries


class Comprehension(Node):
    """What macros become: a fold over ``range``. ``macro`` names the source form: the compiler does better than a fold."""

    __slots__ = ("accumulator", "condition", "init", "macro", "range", "result", "step", "variable", "variable2")

    def __init__(
        self,
        position: int,
        macro: str,
        range: Node,
        variables: tuple[str, str | None],
        accumulator: str,
        init: Node,
        condition: Node,
        step: Node,
        result: Node,
    ) -> None:
        super().__init__(position, range, init, condition, step, result)
        self.macro = macro
        self.range = range
        self.variable, self.variable2 = variables
        self.accumulator = accumulator
        self.init = init
        self.condition = condition
        self.step = step
        self.result = result


def qualified_name(node: Node) -> str | None:
    """``a.b.c`` as one name, if the node is nothing but names."""
    parts: list[str] = []
    while isinstance(node, Select) and not node.test:
        parts.append(node.field)
        node = node.operand
    if not isinstance(node, Ident):
        return None
    return ".".join([node.name, *reversed(parts)])
