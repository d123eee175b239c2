"""A checked tree to closures.

A closure takes the frame: the device view, the meter, then one slot per local variable. Failures are exceptions, so strict
functions need no code for them; ``&&``, ``||``, ``all`` and ``exists`` catch them. Functions are chosen by the run-time types
of their arguments and remembered by them. Without a meter, steps into the device are fused into one closure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from dray.cel import folds, literals
from dray.cel.device import DeviceView, DomainMap
from dray.cel.errors import Failure
from dray.cel.library import FUNCTIONS
from dray.cel.literals import expect_optional, located
from dray.cel.meter import LIST, MAP, STRUCT, Meter, price
from dray.cel.tree import (
    Call,
    Comprehension,
    Ident,
    ListLiteral,
    Literal,
    MapLiteral,
    Node,
    Select,
    StructLiteral,
    qualified_name,
)
from dray.cel.types import Overload, Type
from dray.cel.values import NONE, Lazy, Optional, TypeValue, Unordered, equal, equals, to_key, type_name

Frame = list[Any]
Closure = Callable[[Frame], Any]
VIEW: Final = 0
METER: Final = 1
FIRST_SLOT: Final = 2
MISSING: Final = object()


def compile_tree(node: Node, metered: bool, variables: tuple[str, ...] | None = None) -> tuple[Closure, int]:
    """The closure of the tree and the length of the frame that it needs. A Failure if a constant in it cannot be made.

    What is viewed is a device, or a tuple with the values of the ``variables``.
    """
    compiler = _Compiler(metered, variables)
    closure = compiler.compile(node)
    return closure, compiler.slots


class _Compiler:
    def __init__(self, metered: bool, variables: tuple[str, ...] | None) -> None:
        self.metered, self.variables = metered, variables
        self.slots = FIRST_SLOT
        self.scopes: list[dict[str, Closure]] = []
        self.shared: dict[int, Closure] = {}

    def compile(self, node: Node) -> Closure:
        """One closure for a node, also when it appears twice in the tree."""
        known = self.shared.get(id(node))
        if known is None:
            known = self.shared[id(node)] = self.make(node)
        return known

    def make(self, node: Node) -> Closure:
        if isinstance(node, Literal):
            value = node.value
            return lambda frame: value
        if isinstance(node, Ident):
            return self.charged(self.ident(node), 0 if node.type.kind == "type" else 1)
        if isinstance(node, Select):
            return self.select(node)
        if isinstance(node, Call):
            return self.call(node)
        if isinstance(node, ListLiteral):
            return self.charged(self.list_literal(node), 0 if is_constant(node) else LIST)
        if isinstance(node, MapLiteral):
            return self.charged(self.map_literal(node), 0 if is_constant(node) else MAP)
        if isinstance(node, StructLiteral):
            return self.charged(self.struct_literal(node), STRUCT)
        assert isinstance(node, Comprehension)
        return self.comprehension(node)

    def charged(self, closure: Closure, cost: int) -> Closure:
        if not self.metered or cost == 0:
            return closure

        def spend(frame: Frame) -> Any:
            frame[METER].spend(cost)
            return closure(frame)

        return spend

    # ----------------------------------------------------------------------------------------- names and fields

    def slot(self) -> int:
        self.slots += 1
        return self.slots - 1

    def ident(self, node: Ident) -> Closure:
        for scope in reversed(self.scopes):
            if node.name in scope:
                return scope[node.name]
        if self.variables is None and node.name.lstrip(".") == "device" and node.type.kind != "type":
            return lambda frame: frame[VIEW]
        if self.variables is not None and node.name.lstrip(".") in self.variables:
            place = self.variables.index(node.name.lstrip("."))
            return lambda frame: frame[VIEW][place]
        value = TypeValue(node.type.parameters[0].name)
        return lambda frame: value

    def select(self, node: Select) -> Closure:
        if self.variables is not None and not hasattr(node.operand, "type"):
            name = qualified_name(node)
            if name is not None and name in self.variables:
                place = self.variables.index(name)
                return self.charged(lambda frame: frame[VIEW][place], 1)
        if node.type.kind == "type" and qualified_name(node) is not None and not hasattr(node.operand, "type"):
            value = TypeValue(node.type.parameters[0].name)
            return lambda frame: value
        if not self.metered and not node.test:
            fused = device_path(node)
            if fused is not None:
                return fused
        operand, field, position = self.compile(node.operand), node.field, node.position
        rooted = 0 if is_attribute(node.operand) else 1
        if node.test:
            return self.charged(lambda frame: present(operand(frame), field, position), rooted)
        return self.charged(lambda frame: step(operand(frame), field, position), 1 + rooted)

    def list_literal(self, node: ListLiteral) -> Closure:
        elements = [self.compile(element) for element in node.elements]
        if is_constant(node):
            value = tuple([element([None, None]) for element in elements])
            return lambda frame: value
        return literals.list_of(elements, node.optional, node.position)

    def map_literal(self, node: MapLiteral) -> Closure:
        entries = [(self.compile(key), self.compile(value), optional) for key, value, optional in node.entries]
        return literals.map_of(entries, node.position)

    def struct_literal(self, node: StructLiteral) -> Closure:
        entries = [(field, self.compile(value), optional) for field, value, optional, _ in node.entries]
        return literals.struct_of(node.name.lstrip("."), entries, node.position)

    # ------------------------------------------------------------------------------------------------------ calls

    def call(self, node: Call) -> Closure:
        special = self.special(node)
        if special is not None:
            return special
        operands = [self.compile(operand) for operand in node.operands]
        if is_constant(node):
            return fold_constant(node, operands)
        if self.metered:
            return metered_call(node, operands)
        if len(operands) == 1:
            return unary_call(node, operands[0])
        if len(operands) == 2:
            return binary_call(node, operands[0], operands[1])
        return any_call(node, operands)

    def special(self, node: Call) -> Closure | None:
        """What is not an ordinary function: logic, steps, equality and what may not evaluate all its arguments."""
        function = node.function
        if function in ("_&&_", "_||_"):
            return folds.junction([self.compile(argument) for argument in node.args], function == "_||_", node.position)
        if function == "_?_:_":
            test, yes, no = (self.compile(argument) for argument in node.args)
            return folds.conditional(test, self.rebated(yes, node.args[1]), self.rebated(no, node.args[2]), node.position)
        if function in ("_[_]", "_[?_]", "_?._"):
            return self.step_call(node)
        if function in ("or", "orValue"):
            return self.alternative(node)
        if function == "@in" and isinstance(node.args[1], ListLiteral) and not node.args[1].elements:
            # Nothing is in an empty list, and upstream does not look at what is asked for.
            return lambda frame: False
        if function in ("_==_", "_!=_") and not self.metered:
            return self.equality(node)
        return None

    def step_call(self, node: Call) -> Closure:
        if not self.metered and node.function == "_[_]":
            fused = device_path(node)
            if fused is not None:
                return fused
        operand, key, position = self.compile(node.args[0]), self.rebated(self.compile(node.args[1]), node.args[1]), node.position
        rooted = 0 if is_attribute(node.args[0]) else 1
        if node.function == "_[_]":
            return self.charged(lambda frame: step(operand(frame), key(frame), position), 1 + rooted)
        metered = self.metered

        def optional(frame: Frame) -> Optional:
            found = optional_step(operand(frame), key(frame), position)
            if metered and found.present:
                frame[METER].spend(1)
            return found

        return self.charged(optional, rooted)

    def rebated(self, closure: Closure, node: Node) -> Closure:
        """Upstream does not count the name itself where an attribute is the key of a step or the branch of a condition."""
        return self.charged(closure, -1) if is_attribute(node) and node.type.kind != "type" else closure

    def alternative(self, node: Call) -> Closure:
        assert node.target is not None
        first, second, position = self.compile(node.target), self.compile(node.args[0]), node.position
        keep = node.function == "or"

        def choose(frame: Frame) -> Any:
            value = expect_optional(first(frame), position)
            if value.present:
                return value if keep else value.value
            return second(frame)

        return choose

    def equality(self, node: Call) -> Closure:
        a, b = node.args
        negate = node.function == "_!=_"
        if isinstance(a, Literal):
            return equal_to_literal(self.compile(b), a.value, negate)
        left = self.compile(a)
        if isinstance(b, Literal):
            return equal_to_literal(left, b.value, negate) if negate else equals_literal(left, b.value, node.position)
        right = self.compile(b)
        if negate:
            return lambda frame: not equal(left(frame), right(frame))
        position = node.position
        return lambda frame: located(position, equals, left(frame), right(frame))

    # ------------------------------------------------------------------------------------------------------- folds

    def comprehension(self, node: Comprehension) -> Closure:
        if node.macro == "bind":
            return self.bind(node)
        over = self.compile(node.range)
        first, second = self.slot(), self.slot()
        scope: dict[str, Closure] = {node.variable: slot_reader(first)}
        if node.variable2:
            scope[node.variable2] = slot_reader(second)
        loop = folds.Loop(over, first, second if node.variable2 else None, node.position, self.metered)
        self.scopes.append(scope)
        try:
            return self.fold(node, loop)
        finally:
            self.scopes.pop()

    def fold(self, node: Comprehension, loop: folds.Loop) -> Closure:
        assert isinstance(node.step, Call)
        if node.macro in ("all", "exists"):
            return folds.quantifier(loop, self.compile(node.step.args[1]), node.macro == "exists")
        test: Closure | None = None
        gathered: Node = node.step
        if node.step.function == "_?_:_":
            test, gathered = self.compile(node.step.args[0]), node.step.args[1]
        assert isinstance(gathered, Call)
        if node.macro == "exists_one":
            assert test is not None
            return folds.exactly_one(loop, test)
        if node.macro == "map":
            made = gathered.args[1]
            assert isinstance(made, ListLiteral)
            return folds.gather_list(loop, test, self.compile(made.elements[0]))
        return folds.gather_map(loop, test, [self.compile(argument) for argument in gathered.args[1:]])

    def bind(self, node: Comprehension) -> Closure:
        """The variable is evaluated when it is first asked for, and not at all if it is not."""
        init, slot = self.compile(node.init), self.slot()

        def read(frame: Frame) -> Any:
            value = frame[slot]
            if value is MISSING:
                try:
                    value = frame[slot] = init(frame)
                except Failure as failure:
                    frame[slot] = failure
                    raise
            elif type(value) is Failure:
                raise value
            return value

        self.scopes.append({node.accumulator: read})
        result = self.compile(node.result)
        self.scopes.pop()

        def bound(frame: Frame) -> Any:
            frame[slot] = MISSING
            return result(frame)

        return bound


# ---------------------------------------------------------------------------------------------------------- steps


def slot_reader(slot: int) -> Closure:
    return lambda frame: frame[slot]


def is_attribute(node: Node) -> bool:
    """A name, or steps from something: what upstream counts as one attribute."""
    return isinstance(node, Ident | Select) or (isinstance(node, Call) and node.function in ("_[_]", "_[?_]", "_?._"))


_CONVERSIONS: Final = frozenset({"bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"})


def fold_constant(node: Call, operands: list[Closure]) -> Closure:
    """A conversion of a constant, made once. One that fails makes the expression invalid, wherever it stands."""
    value = any_call(node, operands)([None, None])
    return lambda frame: value


def is_constant(node: Node) -> bool:
    """Literals, and lists, maps and conversions of nothing else: upstream makes them once."""
    if isinstance(node, Call):
        return node.function in _CONVERSIONS and node.target is None and all(is_constant(argument) for argument in node.args)
    if isinstance(node, ListLiteral):
        return not node.optional and all(is_constant(element) for element in node.elements)
    if isinstance(node, MapLiteral):
        return all(not optional and is_constant(key) and is_constant(value) for key, value, optional in node.entries)
    return isinstance(node, Literal)


def find(value: Any, key: Any, position: int) -> Any:
    """One step into a value, or MISSING."""
    if type(value) is dict:
        return value.get(located(position, to_key, key), MISSING)
    if type(value) is DomainMap:
        return value.domain(key)
    if isinstance(value, tuple):
        index = int(key) if type(key) is float and key.is_integer() else key
        if not isinstance(index, int) or isinstance(index, bool):
            raise Failure(f"unsupported index type '{type_name(key)}' in list", position)
        return value[index] if 0 <= index < len(value) else MISSING
    if type(value) is DeviceView:
        return device_field(value, key)
    if type(value) is Lazy:
        return value.field(key, MISSING)
    return MISSING


def device_field(view: DeviceView, field: str) -> Any:
    return getattr(view, "allow_multiple_allocations" if field == "allowMultipleAllocations" else field)


def step(value: Any, key: Any, position: int) -> Any:
    if type(value) is Optional:
        return optional_step(value, key, position)
    found = find(value, key, position)
    if found is MISSING:
        what = f"index out of bounds: {key}" if isinstance(value, tuple) else f"no such key: {key}"
        raise Failure(what, position)
    return found


def optional_step(value: Any, key: Any, position: int) -> Optional:
    if type(value) is Optional:
        if not value.present:
            return NONE
        value = value.value
    found = find(value, key, position)
    return NONE if found is MISSING else Optional(True, found)


def present(value: Any, field: str, position: int) -> bool:
    if type(value) is Optional:
        return value.present and present(value.value, field, position)
    return find(value, field, position) is not MISSING


def device_path(node: Node) -> Closure | None:
    """``device.driver``, ``device.attributes["d"].id`` and the like, in one closure."""
    steps: list[str] = []
    at = node
    while not isinstance(at, Ident):
        if isinstance(at, Select) and not at.test:
            steps.append(at.field)
            at = at.operand
        elif isinstance(at, Call) and at.function == "_[_]" and isinstance(at.args[1], Literal):
            steps.append(at.args[1].value)
            at = at.args[0]
        else:
            return None
    if at.name != "device" or getattr(at, "type", None) is None or at.type.name != "kubernetes.DRADevice":
        return None
    return _fused(list(reversed(steps)), node.position)


def _fused(steps: list[str], position: int) -> Closure | None:
    if steps == ["driver"]:
        return lambda frame: frame[VIEW].driver
    if len(steps) != 3 or steps[0] not in ("attributes", "capacity") or not all(type(part) is str for part in steps):
        return None
    kind, domain, id = steps

    def read_attribute(frame: Frame) -> Any:
        found = frame[VIEW].attributes.get(domain)
        value = MISSING if found is None else found.get(id, MISSING)
        if value is MISSING:
            raise Failure(f"no such key: {id}", position)
        return value

    def read_capacity(frame: Frame) -> Any:
        found = frame[VIEW].capacity.get(domain)
        value = MISSING if found is None else found.get(id, MISSING)
        if value is MISSING:
            raise Failure(f"no such key: {id}", position)
        return value

    return read_attribute if kind == "attributes" else read_capacity


def equal_to_literal(operand: Closure, literal: Any, negate: bool) -> Closure:
    if literal is None or isinstance(literal, bool):
        if negate:
            return lambda frame: operand(frame) is not literal
        return lambda frame: operand(frame) is literal
    if isinstance(literal, (str, bytes)):
        if negate:
            return lambda frame: operand(frame) != literal
        return lambda frame: operand(frame) == literal
    if negate:
        return lambda frame: not equal(operand(frame), literal)
    return lambda frame: equal(operand(frame), literal)


def equals_literal(operand: Closure, literal: Any, position: int) -> Closure:
    """``operand == literal``, which can fail; the other way around nothing can."""
    kind = type(literal)

    def decide(frame: Frame) -> bool:
        value = operand(frame)
        return bool(value == literal) if type(value) is kind else located(position, equals, value, literal)

    return decide


# ------------------------------------------------------------------------------------------------------- dispatch


class Dispatch:
    """The implementation for the run-time types of the arguments, found once per combination of types."""

    __slots__ = ("known", "node")

    def __init__(self, node: Call) -> None:
        self.node = node
        self.known: dict[tuple[type, ...], Callable[..., Any]] = {}

    def find(self, *args: Any) -> Callable[..., Any]:
        for overload in (*self.node.overloads, *self._others()):
            if overload.implementation is not None and _takes(overload, args):
                self.known[tuple(map(type, args))] = overload.implementation
                return overload.implementation
        given = ", ".join(type_name(argument) for argument in args)
        raise Failure(f"no such overload: {self.node.function}({given})", self.node.position)

    def _others(self) -> tuple[Overload, ...]:
        """Operators and ``size`` go by the values alone. An element of an undeclared list may have been checked as
        what the first overload takes: -x as a double, x.size() as that of bytes."""
        name = self.node.function
        return FUNCTIONS[name] if name == "size" or not name[0].isalpha() else ()


def _takes(overload: Overload, args: tuple[Any, ...]) -> bool:
    return len(overload.arguments) == len(args) and all(
        _is_a(wanted, argument) for wanted, argument in zip(overload.arguments, args)
    )


def _is_a(wanted: Type, value: Any) -> bool:
    return wanted.kind in ("parameter", "dyn") or wanted.name == type_name(value)


def unary_call(node: Call, operand: Closure) -> Closure:
    dispatch, position = Dispatch(node), node.position
    known = dispatch.known

    def call(frame: Frame) -> Any:
        value = operand(frame)
        function = known.get((type(value),)) or dispatch.find(value)
        try:
            return function(value)
        except Failure as failure:
            if failure.position < 0:
                failure.position = position
            raise

    return call


def binary_call(node: Call, left: Closure, right: Closure) -> Closure:
    dispatch, position = Dispatch(node), node.position
    known = dispatch.known

    def call(frame: Frame) -> Any:
        a, b = left(frame), right(frame)
        function = known.get((type(a), type(b))) or dispatch.find(a, b)
        try:
            return function(a, b)
        except Failure as failure:
            if failure.position < 0:
                failure.position = position
            raise

    return call


def any_call(node: Call, operands: list[Closure]) -> Closure:
    dispatch, position = Dispatch(node), node.position

    def call(frame: Frame) -> Any:
        args = tuple([operand(frame) for operand in operands])
        function = dispatch.known.get(tuple(map(type, args))) or dispatch.find(*args)
        return located(position, function, *args)

    return call


_SIZED: Final = frozenset({str, bytes, tuple, Unordered, dict})


def metered_call(node: Call, operands: list[Closure]) -> Closure:
    dispatch, position, name = Dispatch(node), node.position, node.function
    charge = price(name, node.overloads[0].id if len(node.overloads) == 1 else "")
    # A list of constants becomes a set upstream, and asking it is free.
    free = name == "@in" and isinstance(node.args[1], ListLiteral) and is_constant(node.args[1])

    def call(frame: Frame) -> Any:
        meter: Meter = frame[METER]
        try:
            args = tuple([operand(frame) for operand in operands])
            function = dispatch.known.get(tuple(map(type, args))) or dispatch.find(*args)
            result = located(position, function, *args)
        except Failure:
            meter.spend(1)
            raise
        if not free:
            meter.spend(1 if charge is None else charge(args, result))
        if type(result) in _SIZED:
            meter.made(result)
        return result

    return call
