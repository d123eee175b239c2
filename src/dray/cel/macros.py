"""Macros: calls that the parser rewrites before anything is checked.

Each becomes the same fold that upstream makes of it, because upstream's cost counts the parts of that fold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dray.cel.tree import Call, Comprehension, Ident, ListLiteral, Literal, MapLiteral, Node, Select

ACCUMULATOR: Final = "@result"
UNUSED: Final = "#unused"
SORT_INPUT: Final = "@__sortBy_input__"
MAP_INSERT: Final = "cel.@mapInsert"
SORT_BY_KEYS: Final = "@sortByAssociatedKeys"


class MacroError(Exception):
    """The arguments do not fit the macro."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(message)
        self.message = message
        self.position = position


Expansion = Callable[[int, Node, list[Node]], Node]


def expand_call(position: int, function: str, args: list[Node]) -> Node | None:
    """``has(a.b)``, the only macro that is not a member."""
    if function != "has" or len(args) != 1:
        return None
    argument = args[0]
    if not isinstance(argument, Select) or argument.test:
        raise MacroError("invalid argument to has() macro", argument.position)
    return Select(position, argument.operand, argument.field, test=True)


def expand_member(position: int, target: Node, function: str, args: list[Node]) -> Node | None:
    if function == "bind" and len(args) == 3 and isinstance(target, Ident) and target.name == "cel":
        return _bind(position, args[1], _plain(args[0], "cel.bind() variable names must be simple identifiers"), args[2])
    expansion = _MEMBERS.get((function, len(args)))
    return None if expansion is None else expansion(position, target, args)


def _plain(node: Node, message: str) -> str:
    if not isinstance(node, Ident) or node.name.startswith("."):
        raise MacroError(message, node.position)
    return node.name


def _variable(node: Node) -> str:
    name = _plain(node, "argument must be a simple name")
    if name in (ACCUMULATOR, "__result__"):
        raise MacroError("iteration variable overwrites accumulator variable", node.position)
    return name


def _variables(args: list[Node], count: int) -> tuple[str, str | None]:
    first = _variable(args[0])
    if count == 1:
        return first, None
    second = _variable(args[1])
    if first == second:
        raise MacroError(f"duplicate variable name: {first}", args[1].position)
    return first, second


def _quantifier(name: str, count: int) -> Expansion:
    def expand(position: int, target: Node, args: list[Node]) -> Node:
        variables = _variables(args, count)
        predicate = args[count]
        accumulator = Ident(position, ACCUMULATOR)
        if name == "all":
            init: Node = Literal(position, True)
            condition: Node = Call(position, "@not_strictly_false", [accumulator])
            step: Node = Call(position, "_&&_", [accumulator, predicate])
        else:
            init = Literal(position, False)
            condition = Call(position, "@not_strictly_false", [Call(position, "!_", [accumulator])])
            step = Call(position, "_||_", [accumulator, predicate])
        return Comprehension(position, name, target, variables, ACCUMULATOR, init, condition, step, accumulator)

    return expand


def _exists_one(count: int) -> Expansion:
    def expand(position: int, target: Node, args: list[Node]) -> Node:
        variables = _variables(args, count)
        accumulator, one = Ident(position, ACCUMULATOR), Literal(position, 1)
        step = Call(position, "_?_:_", [args[count], Call(position, "_+_", [accumulator, one]), accumulator])
        result = Call(position, "_==_", [accumulator, one])
        init, condition = Literal(position, 0), Literal(position, True)
        return Comprehension(position, "exists_one", target, variables, ACCUMULATOR, init, condition, step, result)

    return expand


def _collect(position: int, name: str, target: Node, variables: tuple[str, str | None], test: Node | None, step: Node) -> Node:
    """A fold that gathers; with a test, only where it holds."""
    accumulator = Ident(position, ACCUMULATOR)
    if test is not None:
        step = Call(position, "_?_:_", [test, step, accumulator])
    init: Node = MapLiteral(position, []) if name == "transformMap" else ListLiteral(position, [])
    return Comprehension(position, name, target, variables, ACCUMULATOR, init, Literal(position, True), step, accumulator)


def _to_list(count: int) -> Expansion:
    """``map`` (one variable) and ``transformList`` (two)."""

    def expand(position: int, target: Node, args: list[Node]) -> Node:
        variables = _variables(args, count)
        test = args[count] if len(args) == count + 2 else None
        step = Call(position, "_+_", [Ident(position, ACCUMULATOR), ListLiteral(position, [args[-1]])])
        return _collect(position, "map", target, variables, test, step)

    return expand


def _filter(position: int, target: Node, args: list[Node]) -> Node:
    variables = _variables(args, 1)
    step = Call(position, "_+_", [Ident(position, ACCUMULATOR), ListLiteral(position, [args[0]])])
    return _collect(position, "map", target, variables, args[1], step)


def _to_map(entry: bool) -> Expansion:
    """``transformMap`` keeps the keys; ``transformMapEntry`` makes them too."""

    def expand(position: int, target: Node, args: list[Node]) -> Node:
        variables = _variables(args, 2)
        test = args[2] if len(args) == 4 else None
        accumulator = Ident(position, ACCUMULATOR)
        inserted = [accumulator, args[-1]] if entry else [accumulator, Ident(position, variables[0]), args[-1]]
        return _collect(position, "transformMap", target, variables, test, Call(position, MAP_INSERT, inserted))

    return expand


def _bind(position: int, value: Node, name: str, result: Node) -> Node:
    """A fold over nothing, whose accumulator is the variable."""
    never = Literal(position, False)
    return Comprehension(
        position, "bind", ListLiteral(position, []), (UNUSED, None), name, value, never, Ident(position, name), result
    )


def _optional_map(flat: bool) -> Expansion:
    def expand(position: int, target: Node, args: list[Node]) -> Node:
        macro = "optFlatMap" if flat else "optMap"
        name = _plain(args[0], f"{macro}() variable name must be a simple identifier")
        mapped = _bind(position, Call(position, "value", [], target), name, args[1])
        present = mapped if flat else Call(position, "optional.of", [mapped])
        return Call(position, "_?_:_", [Call(position, "hasValue", [], target), present, Call(position, "optional.none", [])])

    return expand


def _sort_by(position: int, target: Node, args: list[Node]) -> Node:
    keys = _to_list(1)(position, Ident(position, SORT_INPUT), args)
    return _bind(position, target, SORT_INPUT, Call(position, SORT_BY_KEYS, [keys], Ident(position, SORT_INPUT)))


_MEMBERS: Final[dict[tuple[str, int], Expansion]] = {
    ("all", 2): _quantifier("all", 1),
    ("all", 3): _quantifier("all", 2),
    ("exists", 2): _quantifier("exists", 1),
    ("exists", 3): _quantifier("exists", 2),
    ("exists_one", 2): _exists_one(1),
    ("exists_one", 3): _exists_one(2),
    ("existsOne", 2): _exists_one(1),
    ("existsOne", 3): _exists_one(2),
    ("map", 2): _to_list(1),
    ("map", 3): _to_list(1),
    ("filter", 2): _filter,
    ("transformList", 3): _to_list(2),
    ("transformList", 4): _to_list(2),
    ("transformMap", 3): _to_map(entry=False),
    ("transformMap", 4): _to_map(entry=False),
    ("transformMapEntry", 3): _to_map(entry=True),
    ("transformMapEntry", 4): _to_map(entry=True),
    ("optMap", 2): _optional_map(flat=False),
    ("optFlatMap", 2): _optional_map(flat=True),
    ("sortBy", 2): _sort_by,
}
