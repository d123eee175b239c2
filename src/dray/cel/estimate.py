"""The static worst case of an expression's cost, in upstream's units.

Kubernetes refuses expressions by this number when they are written, so it has to be the same number. It follows sizes: every
value is given a range of sizes, from the limits of the API for what comes from the device and from the expression itself for
the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from dray.cel.macros import MAP_INSERT
from dray.cel.meter import LIST, MAP, STRUCT
from dray.cel.prices import Operands, extension_price, standard_price
from dray.cel.ranges import MAX, ONE, UNKNOWN, ZERO, Charge, Entries, Range, fixed
from dray.cel.tree import Call, Comprehension, Ident, ListLiteral, Literal, MapLiteral, Node, Select, StructLiteral
from dray.cel.types import Overload, Type, parameter, unwrap_optional

_DOMAIN: Final = 63
_ID: Final = 32
_DRIVER: Final = 63
_ENTRIES: Final = 32
_VALUE: Final = 64
_UNLIMITED: Final = 2**63 - 1
_SCALARS: Final = frozenset({"bool", "double", "duration", "int", "timestamp", "uint"})
# What can make results much larger than upstream's costs say.
_AMPLIFYING: Final = frozenset({"format", "replace", "join", "flatten", "lists.range", MAP_INSERT})

Path = tuple[str, ...]


class Estimate(NamedTuple):
    maximum: int
    amplifies: bool


class _Local(NamedTuple):
    path: Path
    size: Range | None
    entries: Entries | None


# How large the value at a path is at most; None where nothing is known.
Limit = Callable[[Path], Range | None]


def estimate(node: Node, limit: Limit) -> Estimate:
    """The cost of a checked tree, given how large the values are that it reads."""
    estimator = _Estimator(limit)
    cost = estimator.cost(node)
    return Estimate(cost.most, estimator.amplifies)


class _Estimator:
    def __init__(self, limit: Limit) -> None:
        self.limit = limit
        self.amplifies = False
        self.locals: dict[str, list[_Local]] = {}
        self.paths: dict[int, Path] = {}
        self.sizes: dict[int, Range] = {}
        self.entries: dict[int, Entries] = {}
        self.costs: dict[int, Range] = {}

    # ----------------------------------------------------------------------------------------------------- sizes

    def local(self, node: Node) -> _Local | None:
        stack = self.locals.get(node.name) if isinstance(node, Ident) else None
        return stack[-1] if stack else None

    def path(self, node: Node) -> Path:
        local = self.local(node)
        return self.paths.get(id(node), ()) if local is None else local.path

    def size(self, node: Node) -> Range | None:
        if id(node) in self.sizes:
            return self.sizes[id(node)]
        written = _written_size(node)
        if written is not None:
            return written
        limited = self.limit(self.path(node))
        if limited is not None:
            self.sizes[id(node)] = limited
            return limited
        if _is_scalar(node.type):
            return ONE
        local = self.local(node)
        return None if local is None else local.size

    def size_or_unknown(self, node: Node) -> Range:
        return self.size(node) or UNKNOWN

    def entries_of(self, node: Node) -> Entries | None:
        if id(node) in self.entries:
            return self.entries[id(node)]
        local = self.local(node)
        return None if local is None else local.entries

    def set_size(self, node: Node, size: Range | None) -> None:
        if size is not None:
            self.sizes[id(node)] = size

    def set_entries(self, node: Node, entries: Entries | None) -> None:
        if entries is not None:
            self.entries[id(node)] = entries

    # ----------------------------------------------------------------------------------------------------- costs

    def cost(self, node: Node) -> Range:
        """Nodes that appear twice cost twice, but are looked at once."""
        known = self.costs.get(id(node))
        if known is None or isinstance(node, Ident):
            known = self.costs[id(node)] = self.fresh_cost(node)
        return known

    def fresh_cost(self, node: Node) -> Range:
        if isinstance(node, Ident):
            local = self.local(node)
            self.paths[id(node)] = (node.name,) if local is None else local.path
            return ONE
        if isinstance(node, Select):
            return self.select(node)
        if isinstance(node, Call):
            return self.call(node)
        if isinstance(node, ListLiteral):
            return self.list_literal(node)
        if isinstance(node, MapLiteral):
            return self.map_literal(node)
        if isinstance(node, StructLiteral):
            cost = fixed(STRUCT)
            for _, value, _, _ in node.entries:
                cost = cost.plus(self.cost(value))
            return cost
        if isinstance(node, Comprehension):
            return self.bind(node) if node.macro == "bind" else self.comprehension(node)
        return ZERO

    def select(self, node: Select) -> Range:
        if not hasattr(node.operand, "type"):
            # The name of a type, written with dots.
            self.paths[id(node)] = (node.field,)
            return ONE
        cost = self.cost(node.operand)
        if node.test:
            return cost
        if node.operand.type.kind in ("map", "struct", "parameter"):
            cost = cost.plus(ONE)
        self.paths[id(node)] = (*self.path(node.operand), node.field)
        return cost

    def list_literal(self, node: ListLiteral) -> Range:
        cost, values = fixed(LIST), Range(MAX if node.elements else 0, 0)
        for element in node.elements:
            cost = cost.plus(self.cost(element))
            values = values.union(self.size_or_unknown(element))
        self.entries[id(node)] = Entries("list", ONE, values)
        return cost

    def map_literal(self, node: MapLiteral) -> Range:
        cost, keys = fixed(MAP), Range(MAX if node.entries else 0, 0)
        values = keys
        for key, value, _ in node.entries:
            cost = cost.plus(self.cost(key)).plus(self.cost(value))
            keys = keys.union(self.size_or_unknown(key))
            values = values.union(self.size_or_unknown(value))
        self.entries[id(node)] = Entries("map", keys, values)
        return cost

    # ----------------------------------------------------------------------------------------------------- calls

    def call(self, node: Call) -> Range:
        if node.function == "dyn":
            cost = self.cost(node.args[0]).plus(ONE)
            self.copy_sizes(node, node.args[0])
            return cost
        costs = [self.cost(argument) for argument in node.args]
        total = ZERO if node.target is None else self.cost(node.target)
        self.note_amplifying(node)
        operands = self.operands(node)
        most: Range | None = None
        size: Range | None = None
        for overload in node.overloads or _OPTIONAL_SELECT:
            charge = self.charge(node, overload, operands, costs)
            most = charge.cost if most is None else most.union(charge.cost)
            if charge.size is not None:
                size = charge.size if size is None else size.union(charge.size)
            size = self.step_path(node, overload, size)
            if size is None:
                size = self.size(node)
        self.set_size(node, size)
        return total.plus(most or ZERO)

    def note_amplifying(self, node: Call) -> None:
        lists = node.function == "_+_" and any(overload.id == "add_list" for overload in node.overloads)
        # The accumulator of map and filter is built in place.
        gathers = lists and isinstance(node.args[0], Ident) and node.args[0].name.startswith("@")
        if node.function in _AMPLIFYING or (lists and not gathers):
            self.amplifies = True

    def step_path(self, node: Call, overload: Overload, size: Range | None) -> Range | None:
        if overload.id not in ("index_list", "index_map"):
            return size
        entries = self.entries_of(node.args[0])
        step = "@items" if overload.id == "index_list" else "@values"
        self.paths[id(node)] = (*self.path(node.args[0]), step)
        return None if entries is None else entries.value

    def operands(self, node: Call) -> Operands:
        nodes = node.operands
        sizes = [self.size_or_unknown(operand) for operand in nodes]
        return Operands(nodes, sizes, [self.elements(operand) for operand in nodes])

    def elements(self, node: Node) -> tuple[Type, Range] | None:
        """The type and size of what is in a list, as far as types and paths tell."""
        if not node.type.parameters:
            return None
        path = self.path(node)
        return node.type.parameters[0], (self.limit((*path, "@items")) if path else None) or UNKNOWN

    def charge(self, node: Call, overload: Overload, operands: Operands, costs: list[Range]) -> Charge:
        arguments = ZERO
        for cost in costs:
            arguments = arguments.plus(cost)
        charge = extension_price(node.function, overload.id, operands)
        if charge is not None:
            return Charge(charge.cost.plus(arguments), charge.size)
        if overload.id in ("logical_and", "logical_or"):
            return Charge(Range(costs[0].least, arguments.most))
        if overload.id == "conditional":
            return self.conditional(node, operands, costs)
        charge = standard_price(overload.id, operands)
        if charge.size is not None and overload.id.startswith("add_"):
            self.join_entries(node, operands.nodes[0], operands.nodes[1])
        return Charge(charge.cost.plus(arguments), charge.size)

    def conditional(self, node: Call, operands: Operands, costs: list[Range]) -> Charge:
        self.join_entries(node, operands.nodes[1], operands.nodes[2])
        size = operands.sizes[1].union(operands.sizes[2])
        return Charge(costs[0].plus(costs[1].union(costs[2])), size)

    def join_entries(self, node: Node, first: Node, second: Node) -> None:
        a, b = self.entries_of(first), self.entries_of(second)
        if a is not None and b is not None:
            self.entries[id(node)] = Entries(a.container, a.key.union(b.key), a.value.union(b.value))

    def copy_sizes(self, node: Node, source: Node) -> None:
        self.set_size(node, self.size(source))
        self.set_entries(node, self.entries_of(source))

    # ----------------------------------------------------------------------------------------------------- folds

    def push(self, name: str, local: _Local) -> None:
        self.locals.setdefault(name, []).append(local)

    def push_value(self, name: str, node: Node) -> None:
        self.push(name, _Local(self.path(node), self.size(node), self.entries_of(node)))

    def push_iteration(self, node: Comprehension) -> None:
        entries = self.entries_of(node.range)
        listed = (entries.container if entries else node.range.type.kind) == "list"
        path = self.path(node.range)
        key_step, value_step = ("@indices", "@items") if listed else ("@keys", "@values")
        key = _Local((*path, key_step), entries.key if entries else None, None)
        value = _Local((*path, value_step), entries.value if entries else None, None)
        if node.variable2:
            self.push(node.variable, key)
            self.push(node.variable2, value)
        else:
            self.push(node.variable, value if listed else key)

    def comprehension(self, node: Comprehension) -> Range:
        cost = self.cost(node.range).plus(self.cost(node.init))
        self.push_value(node.accumulator, node.init)
        self.push_iteration(node)
        turn = self.cost(node.condition).plus(self.cost(node.step))
        self.locals[node.variable].pop()
        if node.variable2:
            self.locals[node.variable2].pop()
        cost = cost.plus(self.cost(node.result))
        self.locals[node.accumulator].pop()
        count = self.size_or_unknown(node.range)
        if isinstance(node.init, Literal):
            self.set_size(node, self.size(node.init))
        else:
            self.set_size(node, count)
            self.set_entries(node, self.entries_of(node.step))
        return cost.plus(count.times(turn))

    def bind(self, node: Comprehension) -> Range:
        cost = self.cost(node.range).plus(self.cost(node.init))
        self.push_value(node.accumulator, node.init)
        cost = cost.plus(self.cost(node.result))
        self.copy_sizes(node, node.result)
        self.locals[node.accumulator].pop()
        return cost


_OPTIONAL_SELECT: Final = (Overload("select_optional_field", False, (), parameter("V"), None),)


def _written_size(node: Node) -> Range | None:
    if isinstance(node, Literal):
        return fixed(len(node.value) if isinstance(node.value, (str, bytes)) else 1)
    if isinstance(node, ListLiteral):
        return fixed(len(node.elements))
    return fixed(len(node.entries)) if isinstance(node, MapLiteral) else None


def _is_scalar(kind: Type) -> bool:
    inner, optional = unwrap_optional(kind)
    return _is_scalar(inner) if optional else kind.kind in _SCALARS


def device_limit(path: Path) -> Range | None:
    """How large a value at a path in a device can be, whatever features are on."""
    if not path or path[0] != "device":
        return None
    most = _limit_of(path[1:])
    return None if most is None else Range(0, most)


def _limit_of(steps: Path) -> int | None:
    if not steps:
        return _UNLIMITED
    field, rest = steps[0], steps[1:]
    if field in ("driver", "allowMultipleAllocations"):
        return None if rest else {"driver": _DRIVER, "allowMultipleAllocations": 1}[field]
    if field not in ("attributes", "capacity"):
        return None
    if not rest:
        return _ENTRIES
    if rest[0] == "@keys":
        return _DOMAIN if len(rest) == 1 else None
    if rest[0] not in ("@values", "@items"):
        return None
    if len(rest) == 1:
        return _ENTRIES
    return _entry_limit(field, rest[1:])


def _entry_limit(field: str, steps: Path) -> int | None:
    if len(steps) > 1:
        return None
    if steps[0] == "@keys":
        return _ID
    if field == "attributes":
        return _VALUE
    return _UNLIMITED if steps[0] in ("@values", "@items") else None
