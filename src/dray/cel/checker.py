"""Static types of a tree: every node gets its type, every call the overloads that it may turn out to be.

The first error found is raised. What has no type of its own (``dyn``) passes here and is judged at run time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, NoReturn

from dray.cel import types
from dray.cel.errors import CompileError, Failure
from dray.cel.library import ESCAPES, FUNCTIONS, INCLUDES
from dray.cel.library.formatting import refusal, verbs
from dray.cel.library.text import pattern
from dray.cel.library.times import parse_duration, parse_timestamp
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
from dray.cel.types import DEVICE, DYN, Type, list_of, map_of, optional_of, substitute
from dray.cel.values import Uint

CONSUMABLE_CAPACITY: Final = "DRAConsumableCapacity"
LIST_ATTRIBUTES: Final = "DRAListTypeAttributes"

_LITERALS: Final[dict[type, Type]] = {
    bool: types.BOOL,
    int: types.INT,
    Uint: types.UINT,
    float: types.DOUBLE,
    str: types.STRING,
    bytes: types.BYTES,
    type(None): types.NULL,
}
_TYPE_NAMES: Final[dict[str, Type]] = {
    **{kind.name: kind for kind in (types.BOOL, types.INT, types.UINT, types.DOUBLE, types.STRING, types.BYTES, types.NULL)},
    **{kind.name: kind for kind in (types.DURATION, types.TIMESTAMP, types.IP, types.CIDR, DEVICE)},
    "list": list_of(DYN),
    "map": map_of(DYN, DYN),
    "type": Type("type", "type"),
    "optional_type": optional_of(DYN),
}


_OF_PATCHES: Final = {"op": types.STRING, "path": types.STRING, "from": types.STRING, "value": DYN}


def attribute_type(features: frozenset[str]) -> Type:
    """Attributes may be lists only with the gate; without it they cannot be iterated over."""
    return DYN if LIST_ATTRIBUTES in features else types.ANY


class Names(NamedTuple):
    """What an expression may speak of: variables with their types, and the fields of types that have any. ``patches``: it may
    make objects and patches, and escape keys for them."""

    variables: Mapping[str, Type]
    fields: Mapping[str, Mapping[str, Type]]
    includes: bool = False
    patches: bool = False


def device_names(features: frozenset[str]) -> Names:
    attributes = map_of(types.STRING, map_of(types.STRING, attribute_type(features)))
    fields = {
        "driver": types.STRING,
        "attributes": attributes,
        "capacity": map_of(types.STRING, map_of(types.STRING, types.QUANTITY)),
    }
    if CONSUMABLE_CAPACITY in features:
        fields["allowMultipleAllocations"] = types.BOOL
    return Names({"device": DEVICE}, {DEVICE.name: fields}, LIST_ATTRIBUTES in features)


def check(node: Node, expression: str, names: Names) -> Type:
    """Types the tree and returns the type of the whole."""
    checker = _Checker(expression, names)
    checker.check(node)
    checker.settle(node, set())
    checker.homogeneous(node, set())
    return node.type


class _Checker:
    def __init__(self, expression: str, names: Names) -> None:
        self.expression = expression
        self.fields, self.includes, self.patches = names.fields, names.includes, names.patches
        self.scopes: list[Mapping[str, Type]] = [names.variables]
        self.bindings: types.Bindings = {}
        self.fresh = 0

    # -------------------------------------------------------------------------------------------------- plumbing

    def fail(self, message: str, node: Node) -> NoReturn:
        raise CompileError(message, node.position, self.expression)

    def resolved(self, node: Node, to_dyn: bool = False) -> Type:
        return substitute(self.bindings, node.type, to_dyn)

    def accepts(self, given: Type, wanted: Type) -> bool:
        bindings = types.assignable(self.bindings, [given], [wanted])
        if bindings is None:
            return False
        self.bindings = bindings
        return True

    def variable(self) -> Type:
        self.fresh += 1
        return types.parameter(f"_var{self.fresh}")

    def lookup(self, name: str) -> Type | None:
        if name.startswith("."):
            return self.scopes[0].get(name[1:])
        return next((scope[name] for scope in reversed(self.scopes) if name in scope), None)

    def functions(self, name: str) -> tuple[types.Overload, ...] | None:
        if name == "includes":
            return INCLUDES if self.includes else None
        if name == "jsonpatch.escapeKey":
            return ESCAPES if self.patches else None
        return FUNCTIONS.get(name)

    def named_type(self, name: str) -> Type | None:
        """Types of objects are named after their places; there is no end of them."""
        if self.patches and (name in ("JSONPatch", "Object") or name.startswith("Object.")):
            return Type("struct", name)
        return _TYPE_NAMES.get(name)

    # ----------------------------------------------------------------------------------------------------- nodes

    def check(self, node: Node) -> None:
        if hasattr(node, "type"):
            return
        if isinstance(node, Literal):
            node.type = _LITERALS[type(node.value)]
        elif isinstance(node, Ident):
            node.type = self.ident(node)
        elif isinstance(node, Select):
            node.type = self.select(node)
        elif isinstance(node, Call):
            node.type = self.call(node)
        elif isinstance(node, ListLiteral):
            node.type = self.list_literal(node)
        elif isinstance(node, MapLiteral):
            node.type = self.map_literal(node)
        elif isinstance(node, StructLiteral):
            node.type = self.struct_literal(node)
        elif isinstance(node, Comprehension):
            node.type = self.comprehension(node)

    def ident(self, node: Ident) -> Type:
        found = self.lookup(node.name)
        if found is None and (kind := self.named_type(node.name.lstrip("."))) is not None:
            return types.type_of(kind)
        if found is None:
            self.fail(f"undeclared reference to '{node.name.lstrip('.')}' (in container '')", node)
        return found

    def select(self, node: Select) -> Type:
        name = None if node.test else qualified_name(node)
        if name is not None and name in self.scopes[0] and not any(name.split(".")[0] in scope for scope in self.scopes[1:]):
            return self.scopes[0][name]
        kind = self.named_type(name) if name is not None and self.lookup(name.split(".")[0]) is None else None
        if kind is not None:
            return types.type_of(kind)
        self.check(node.operand)
        found = self.field(node, node.operand, node.field, optional=False)
        return types.BOOL if node.test else found

    def field(self, node: Node, operand: Node, field: str, optional: bool) -> Type:
        target, was_optional = types.unwrap_optional(self.resolved(operand))
        if target.kind == "map":
            found = target.parameters[1]
        elif target.kind == "struct":
            fields = self.fields.get(target.name, {})
            if field not in fields:
                self.fail(f"undefined field '{field}'", node)
            found = fields[field]
        elif target.kind == "parameter":
            self.accepts(DYN, target)
            found = DYN
        elif types.is_dyn(target):
            found = DYN
        else:
            self.fail(f"type '{target}' does not support field selection", node)
        found = substitute(self.bindings, found)
        return optional_of(found) if optional or was_optional else found

    def list_literal(self, node: ListLiteral) -> Type:
        element: Type | None = None
        for index, child in enumerate(node.elements):
            self.check(child)
            kind = self.optional_element(child) if index in node.optional else child.type
            element = self.joined(element, kind)
        return list_of(element or self.variable())

    def map_literal(self, node: MapLiteral) -> Type:
        key: Type | None = None
        value: Type | None = None
        for key_node, value_node, optional in node.entries:
            self.check(key_node)
            self.check(value_node)
            key = self.joined(key, key_node.type)
            value = self.joined(value, self.optional_element(value_node) if optional else value_node.type)
        return map_of(key or self.variable(), value or self.variable())

    def struct_literal(self, node: StructLiteral) -> Type:
        name = node.name.lstrip(".")
        made = self.named_type(name)
        if made is None:
            self.fail(f"undeclared reference to '{name}' (in container '')", node)
        if made.kind != "struct" or not self.patches:
            self.fail(f"'{name}' is not a message type", node)
        for field, value, optional, position in node.entries:
            self.check(value)
            kind = self.optional_element(value) if optional else value.type
            wanted = _OF_PATCHES.get(field) if name == "JSONPatch" else DYN
            if wanted is None or not self.accepts(kind, wanted):
                found = self.resolved(value, True)
                message = f"expected type of field '{field}' is '{wanted or ''}' but provided type is '{found}'"
                raise CompileError(message, position, self.expression)
        return made

    def optional_element(self, node: Node) -> Type:
        kind, optional = types.unwrap_optional(node.type)
        if not optional and not types.is_dyn(kind):
            self.fail(f"expected type 'optional_type({kind})' but found '{kind}'", node)
        return kind

    def joined(self, previous: Type | None, current: Type) -> Type:
        """The type of both; whether they may differ is decided when all types are known."""
        if previous is None:
            return current
        return types.most_general(previous, current) if self.accepts(previous, current) else DYN

    # ----------------------------------------------------------------------------------------------------- calls

    def call(self, node: Call) -> Type:
        if node.function == "_?._":
            self.check(node.args[0])
            field = node.args[1]
            assert isinstance(field, Literal)
            self.check(field)
            return self.field(node, node.args[0], str(field.value), optional=True)
        for argument in node.args:
            self.check(argument)
        if node.function in ("_&&_", "_||_"):
            return self.junction(node)
        if node.target is not None:
            self.namespaced(node)
        if node.target is not None:
            self.check(node.target)
        overloads = self.functions(node.function)
        if overloads is None:
            self.fail(f"undeclared reference to '{node.function}' (in container '')", node)
        result = self.resolve(node, overloads)
        self.validate_literals(node)
        return result

    def namespaced(self, node: Call) -> None:
        """``ip.isCanonical(x)`` is a function of that name, not a member of ``ip``."""
        prefix = None if node.target is None else qualified_name(node.target)
        name = f"{prefix}.{node.function}".lstrip(".") if prefix else ""
        if name and self.functions(name) and not name.startswith("@"):
            node.function, node.target = name, None

    def junction(self, node: Call) -> Type:
        for argument in node.args:
            if not self.accepts(argument.type, types.BOOL):
                self.fail(f"expected type 'bool' but found '{self.resolved(argument, True)}'", argument)
        node.overloads = FUNCTIONS[node.function]
        return types.BOOL

    def resolve(self, node: Call, overloads: tuple[types.Overload, ...]) -> Type:
        given = [operand.type for operand in node.operands]
        chosen: list[types.Overload] = []
        result: Type | None = None
        for overload in overloads:
            if overload.member != (node.target is not None) or len(overload.arguments) != len(given):
                continue
            fresh = {name: self.variable() for name in sorted(overload.parameters)}
            bindings = types.assignable(self.bindings, given, [substitute(fresh, kind) for kind in overload.arguments])
            if bindings is None:
                continue
            self.bindings = bindings
            chosen.append(overload)
            found = substitute(self.bindings, substitute(fresh, overload.result))
            if result is None:
                result = found
            elif not types.is_dyn(result) and found != result:
                result = DYN
        if result is None:
            self.no_overload(node)
        node.overloads = tuple(chosen)
        return result

    def no_overload(self, node: Call) -> NoReturn:
        shown = [str(self.resolved(operand, True)) for operand in node.operands]
        if node.target is not None:
            self.fail(f"found no matching overload for '{node.function}' applied to '{shown[0]}.({', '.join(shown[1:])})'", node)
        self.fail(f"found no matching overload for '{node.function}' applied to '({', '.join(shown)})'", node)

    def validate_literals(self, node: Call) -> None:
        """Literals that can be judged now: durations, timestamps, regular expressions, format templates."""
        operands = node.operands
        texts = [
            operand.value if isinstance(operand, Literal) and isinstance(operand.value, str) else None for operand in operands
        ]
        try:
            if node.function == "duration" and texts[0] is not None:
                parse_duration(texts[0])
            elif node.function == "timestamp" and texts[0] is not None:
                parse_timestamp(texts[0])
            elif node.function in ("matches", "find", "findAll") and len(texts) > 1 and texts[1] is not None:
                pattern(texts[1])
            elif node.function == "format" and texts[0] is not None and isinstance(operands[1], ListLiteral):
                self.validate_template(node, texts[0], operands[1].elements)
        except Failure as failure:
            self.fail(failure.message, node)

    def validate_template(self, node: Call, template: str, given: Sequence[Node]) -> None:
        wanted = verbs(template)
        if len(wanted) != len(given):
            self.fail(f"string.format: expected {len(wanted)} arguments, got {len(given)}", node)
        for verb, element in zip(wanted, given):
            self.validate_element(verb, element)

    def validate_element(self, verb: str, element: Node) -> None:
        """The verb ``s`` writes lists and maps, too, if it can write what is in them."""
        kind = self.resolved(element, True)
        refused = None if kind == DYN else refusal(verb, kind.name)
        if refused is not None:
            self.fail(refused.message, element)
        if isinstance(element, ListLiteral):
            for each in element.elements:
                self.validate_element(verb, each)
        elif isinstance(element, MapLiteral):
            for key, value, _ in element.entries:
                self.validate_element(verb, key)
                self.validate_element(verb, value)

    def comprehension(self, node: Comprehension) -> Type:
        self.check(node.range)
        self.check(node.init)
        first, second = self.iteration(node)
        self.scopes.append({node.accumulator: node.init.type})
        self.scopes.append({node.variable: first, **({node.variable2: second} if node.variable2 else {})})
        self.check(node.condition)
        self.check(node.step)
        if not self.accepts(node.step.type, node.init.type):
            wanted, found = self.resolved(node.init, True), self.resolved(node.step, True)
            self.fail(f"expected type '{wanted}' but found '{found}'", node.step)
        self.scopes.pop()
        self.check(node.result)
        self.scopes.pop()
        return self.resolved(node.result)

    def iteration(self, node: Comprehension) -> tuple[Type, Type]:
        """The types of the loop's variables: index or key first when there are two."""
        over = self.resolved(node.range)
        if over.kind == "list":
            element = over.parameters[0]
            return (types.INT, element) if node.variable2 else (element, element)
        if over.kind == "map":
            return over.parameters[0], over.parameters[1]
        if over.kind not in ("dyn", "parameter"):
            wanted = "must be list, map, or dynamic"
            self.fail(f"expression of type '{over}' cannot be range of a comprehension ({wanted})", node.range)
        self.accepts(DYN, over)
        return DYN, DYN

    def settle(self, node: Node, seen: set[int]) -> None:
        """Replaces type variables by what they were found to be, or by dyn."""
        if id(node) in seen:
            return
        seen.add(id(node))
        node.type = self.resolved(node, True)
        for child in children(node):
            self.settle(child, seen)

    def homogeneous(self, node: Node, seen: set[int]) -> None:
        """All elements of a literal have one type, except in the arguments of ``format``."""
        if id(node) in seen or (isinstance(node, Call) and node.function == "format"):
            return
        seen.add(id(node))
        if isinstance(node, ListLiteral):
            self.same_types(node.elements, [index in node.optional for index in range(len(node.elements))])
        elif isinstance(node, MapLiteral):
            self.same_types([key for key, _, _ in node.entries], [False] * len(node.entries))
            self.same_types([value for _, value, _ in node.entries], [optional for _, _, optional in node.entries])
        for child in children(node):
            self.homogeneous(child, seen)

    def same_types(self, nodes: list[Node], optional: list[bool]) -> None:
        kinds = [types.unwrap_optional(node.type)[0] if wrapped else node.type for node, wrapped in zip(nodes, optional)]
        for node, kind in zip(nodes, kinds):
            if kind != kinds[0]:
                self.fail(f"expected type '{kinds[0]}' but found '{kind}'", node)


def children(node: Node) -> list[Node]:
    """The direct parts of a node. A name that stands for a type has none that matter."""
    if isinstance(node, Select):
        return [node.operand] if hasattr(node.operand, "type") else []
    if isinstance(node, Call):
        return node.operands
    if isinstance(node, ListLiteral):
        return node.elements
    if isinstance(node, MapLiteral):
        return [child for entry in node.entries for child in entry[:2]]
    if isinstance(node, StructLiteral):
        return [value for _, value, _, _ in node.entries]
    if isinstance(node, Comprehension):
        return [node.range, node.init, node.condition, node.step, node.result]
    return []
