"""Validation rules in CEL (``x-kubernetes-validations``): judged when a definition is written, evaluated when an object is.

Both are bounded: a rule whose estimated cost is too high is refused with the definition, and all rules together may spend so
much on one object. A rule about a value that has not changed is not asked again, unless it compares with what was there before.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from dray.api.validation.errors import OMITTED, FieldError, forbidden
from dray.apiserver.custom import paths
from dray.apiserver.custom.structure import ABSENT, Node, same
from dray.apiserver.custom.validation import json_type
from dray.cel import types
from dray.cel.errors import CelError, CompileError, CostLimitExceeded, EvaluationError, Failure
from dray.cel.meter import Meter
from dray.cel.objects import Expression, Shape
from dray.cel.types import is_dyn
from dray.cel.values import NONE, Optional

Object = dict[str, Any]
Errors = Iterator[FieldError]

MAX_REQUEST: Final = 3 * 1024 * 1024
RULE_ESTIMATE: Final = 10_000_000
SCHEMA_ESTIMATE: Final = 100_000_000
RULE_COST: Final = 1_000_000
OBJECT_COST: Final = 10_000_000
# How many rules are named when all together cost too much.
_TOLD: Final = 4
_MAX_MESSAGE: Final = 5 * 1024
_UNLIMITED: Final = 2**64 - 1
_REASONS: Final = {
    "FieldValueInvalid": "Invalid",
    "FieldValueForbidden": "Forbidden",
    "FieldValueRequired": "Required",
    "FieldValueDuplicate": "Duplicate",
}
_FORMATS: Final = {
    "byte": (types.BYTES, 0),
    "duration": (types.DURATION, 32),
    "date": (types.TIMESTAMP, 10),
    "date-time": (types.TIMESTAMP, 35),
    "datetime": (types.TIMESTAMP, 35),
}
_SCALARS: Final = {"boolean": (types.BOOL, 4), "integer": (types.INT, 1), "number": (types.DOUBLE, 1)}


# ------------------------------------------------------------------------------------------------------------------ shapes


def shape_of(node: Node, name: str, *, root: bool = False) -> Shape | None:
    """What expressions see of a value; None for what they cannot look into."""
    if node.int_or_string:
        return Shape(types.DYN, _longest(node.schema, MAX_REQUEST - 2))
    if node.type == "array":
        item = shape_of(node.items, f"{name}.@idx") if node.items is not None else None
        keys = node.list_keys if node.list_type == "map" else () if node.list_type == "set" else None
        return None if item is None else Shape.of_list(item, _most(node, "maxItems", item.least + 1), keys)
    if node.type == "object":
        return _object_shape(node, name, root)
    if node.type == "string":
        return _string_shape(node)
    known = _SCALARS.get(node.type)
    return None if known is None else Shape(known[0], 0, known[1])


def _object_shape(node: Node, name: str, root: bool) -> Shape | None:
    if node.additional is not None and not node.properties:
        item = shape_of(node.additional, f"{name}.@elem")
        return None if item is None else Shape.of_map(item, _most(node, "maxProperties", item.least + 6))
    fields = {each: shape for each, below in node.properties.items() if (shape := shape_of(below, f"{name}.{each}")) is not None}
    if root or node.embedded:
        text = Shape(types.STRING, MAX_REQUEST - 2, 2)
        metadata = Shape.of_object(f"{name}.metadata", {"name": text, "generateName": text})
        fields |= {"apiVersion": text, "kind": text, "metadata": metadata}
    least = 2 + sum(len(each) + 4 + fields[each].least for each in node.required if each in fields)
    return Shape.of_object(name, fields, least)


def _string_shape(node: Node) -> Shape:
    format = node.schema.get("format") or ""
    if format in _FORMATS:
        kind, most = _FORMATS[format]
        return Shape(kind, most or node.schema.get("maxLength", MAX_REQUEST - 2), 2)
    values = [len(value.encode()) for value in node.schema.get("enum") or () if isinstance(value, str)]
    return Shape(types.STRING, _longest(node.schema, max(values) if values else MAX_REQUEST - 2), 2)


def _longest(schema: Object, otherwise: int) -> int:
    """In bytes, of which a character may take four."""
    return max(schema["maxLength"], 0) * 4 if "maxLength" in schema else otherwise


def _most(node: Node, keyword: str, least: int) -> int:
    """How many elements there can be: as the schema says, or as fit into a request."""
    given = node.schema.get(keyword)
    return max(given, 0) if given is not None else (MAX_REQUEST - 2) // max(least, 1)


# ------------------------------------------------------------------------------------------------------------------- rules


class Rule:
    """One rule, compiled for the place where it stands. Raises CompileError."""

    def __init__(self, given: Object, shape: Shape) -> None:
        self.given = given
        optional = frozenset({"oldSelf"}) if given.get("optionalOldSelf") else frozenset[str]()
        self.optional_old = bool(optional)
        self.expression = Expression(given["rule"], {"self": shape, "oldSelf": shape}, optional)
        if self.expression.type != types.BOOL and not is_dyn(self.expression.type):
            raise CompileError("must evaluate to a bool", 0, given["rule"])
        self.transition = "oldSelf" in self.expression.uses
        self.message: Expression | None = None
        if given.get("messageExpression"):
            self.message = Expression(given["messageExpression"], {"self": shape, "oldSelf": shape}, optional)
            if self.message.type != types.STRING:
                raise MessageError("must evaluate to a string", 0, given["messageExpression"])

    def problem(self, value: Any, old: Any, path: str, plain: Any, meter: Meter) -> FieldError | None:
        """What is wrong when the rule does not hold; ``value`` and ``old`` as expressions see them, ``plain`` as it was given."""
        before = old
        if self.optional_old:
            before = NONE if old is ABSENT else Optional(True, old)
        elif old is ABSENT:
            before = None
        try:
            if self.expression.evaluate((value, before), meter) is True:
                return None
        except CostLimitExceeded:
            raise
        except EvaluationError as error:
            words = (self.given.get("message") or self.given["rule"]).strip()
            return FieldError(path, "Invalid", json_type(plain), f"{error.message} evaluating rule: {words}")
        reason = _REASONS.get(self.given.get("reason") or "", "Invalid")
        shown = OMITTED if isinstance(plain, dict | list) else plain
        return FieldError(_below(path, self.given.get("fieldPath") or ""), reason, shown, self._said(value, before, meter))

    def _words(self) -> str:
        return self.given.get("message") or f"failed rule: {self.given['rule'].strip()}"

    def _said(self, value: Any, before: Any, meter: Meter) -> str:
        """The message that an expression makes, if it makes a fit one."""
        if self.message is None:
            return self._words()
        try:
            made = self.message.evaluate((value, before), meter)
        except EvaluationError:
            return self._words()
        fit = isinstance(made, str) and made.strip() and "\n" not in made and len(made.encode()) <= _MAX_MESSAGE
        return made.strip() if fit else self._words()


class MessageError(CompileError):
    """The expression for the message is at fault, not the rule."""


def _below(path: str, field: str) -> str:
    if not field or not path:
        return path + field if path else field.removeprefix(".")
    return f"{path}{field}" if field[0] in ".[" else f"{path}.{field}"


class _Place:
    """A place with rules, or with places below it that have some."""

    __slots__ = ("additional", "fields", "items", "node", "rules", "shape")

    def __init__(self, node: Node, shape: Shape, rules: tuple[Rule, ...]) -> None:
        self.node, self.shape, self.rules = node, shape, rules
        self.fields: dict[str, _Place] = {}
        self.items: _Place | None = None
        self.additional: _Place | None = None


class Rules:
    """All rules of a schema, ready to be asked."""

    def __init__(self, root: Node) -> None:
        shape = shape_of(root, "self", root=True)
        assert shape is not None
        self._root = _place(root, shape)

    def problems(self, obj: Object, old: Object | None) -> Errors:
        """The rules that do not hold."""
        asking = _Asking()
        shape = self._root.shape
        try:
            before = ABSENT if old is None else shape.read(old)
            asking.place(self._root, _Seen(obj, shape.read(obj)), _Seen(ABSENT if old is None else old, before), "")
        except CostLimitExceeded:
            asking.found.append(
                FieldError(
                    "",
                    "Invalid",
                    "",
                    "validation failed due to running out of cost budget, no further validation rules will be run",
                )
            )
        except (CelError, Failure) as error:
            asking.found.append(FieldError("", "Invalid", "", f"rules cannot be evaluated: {error.message}"))
        yield from asking.found


def _place(node: Node, shape: Shape) -> _Place:
    made = _Place(node, shape, tuple(Rule(given, shape) for given in node.rules))
    for name, below in node.properties.items():
        known = shape.names.get(name)
        if below.has_rules and known is not None:
            made.fields[name] = _place(below, shape.fields[known])
    if shape.item is not None:
        if node.items is not None and node.items.has_rules:
            made.items = _place(node.items, shape.item)
        if node.additional is not None and node.additional.has_rules:
            made.additional = _place(node.additional, shape.item)
    return made


class _Seen(NamedTuple):
    """A value as JSON has it, and as expressions see it."""

    plain: Any
    read: Any


_NOTHING: Final = _Seen(ABSENT, ABSENT)


class _Asking:
    """One evaluation of all rules on one object."""

    def __init__(self) -> None:
        self.found: list[FieldError] = []
        self.left = OBJECT_COST

    def place(self, place: _Place, now: _Seen, old: _Seen, path: str) -> None:
        if now.plain is None:
            return
        unchanged = old.plain is not ABSENT and same(now.plain, old.plain)
        for rule in place.rules:
            if rule.transition and old.plain is ABSENT and not rule.optional_old:
                continue
            if not (unchanged and not rule.transition):
                self.ask(rule, now, old, path)
        for name, below in place.fields.items():
            if isinstance(now.plain, dict) and name in now.plain:
                known = place.shape.names[name]
                self.place(
                    below, _Seen(now.plain[name], now.read[known]), _member(old, name, known), f"{path}.{name}" if path else name
                )
        if place.additional is not None and isinstance(now.plain, dict):
            for key, value in now.plain.items():
                self.place(place.additional, _Seen(value, now.read[key]), _member(old, key, key), f"{path}[{key}]")
        if place.items is not None and isinstance(now.plain, list):
            before = _elements(place.node, old)
            for index, value in enumerate(now.plain):
                known_before = before.get(_key(place.node, value), _NOTHING) if before else _NOTHING
                self.place(place.items, _Seen(value, now.read[index]), known_before, f"{path}[{index}]")

    def ask(self, rule: Rule, now: _Seen, old: _Seen, path: str) -> None:
        meter = Meter(min(RULE_COST, self.left))
        try:
            problem = rule.problem(now.read, old.read, path, now.plain, meter)
        except CostLimitExceeded:
            if self.left <= RULE_COST:
                raise
            words = f"call cost exceeds limit for rule: {rule.given['rule'].strip()}"
            problem = FieldError(path, "Invalid", json_type(now.plain), f"no further validation rules will be run due to {words}")
        self.left -= min(meter.cost, self.left)
        if problem is not None:
            self.found.append(problem)


def _member(old: _Seen, name: str, known: str) -> _Seen:
    if isinstance(old.plain, dict) and name in old.plain and isinstance(old.read, dict):
        return _Seen(old.plain[name], old.read[known])
    return _NOTHING


def _elements(node: Node, old: _Seen) -> Mapping[str, _Seen]:
    """The elements that were there, by their keys: only lists with keys are compared element by element."""
    if node.list_type != "map" or not isinstance(old.plain, list):
        return {}
    return {_key(node, value): _Seen(value, old.read[index]) for index, value in enumerate(old.plain)}


def _key(node: Node, value: Any) -> str:
    return repr([value.get(name) for name in node.list_keys]) if isinstance(value, dict) else repr(value)


# ------------------------------------------------------------------------------------------------------------- definitions


class Compiled:
    """The rules of a schema as a definition has them: what is wrong with each, and whether all together cost too much."""

    def __init__(self, root: Node, path: str) -> None:
        self._root, self._path = root, path
        self._total = 0
        self._dearest: list[tuple[int, str]] = []

    def problems(self) -> Errors:
        if not self._root.has_rules:
            return
        shape = shape_of(self._root, "self", root=True)
        yield from self._at(self._root, shape, self._path, 1, correlated=True)
        if self._total > SCHEMA_ESTIMATE:
            factor = self._total / SCHEMA_ESTIMATE
            words = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds budget by factor of"
            dear = sorted((each for each in self._dearest if each[0] > RULE_COST), reverse=True)
            for _, place in dear[:_TOLD]:
                yield forbidden(place, _CONTRIBUTED)
            yield forbidden(self._path, f"{words} {_times(factor)} ({_ADVICE})")

    def _at(self, node: Node, shape: Shape | None, path: str, count: int, *, correlated: bool) -> Errors:
        for index, given in enumerate(node.rules):
            yield from self._rule(given, shape, f"{path}.x-kubernetes-validations[{index}]", count, correlated)
        for name, below in node.properties.items():
            if below.has_rules:
                known = shape.names.get(name) if shape is not None else None
                inner = shape.fields[known] if shape is not None and known is not None else None
                yield from self._at(below, inner, f"{path}.properties[{name}]", count, correlated=correlated)
        item = shape.item if shape is not None else None
        many = min(count * shape.most, _UNLIMITED) if shape is not None else _UNLIMITED
        if node.additional is not None and node.additional.has_rules:
            yield from self._at(node.additional, item, f"{path}.additionalProperties", many, correlated=correlated)
        if node.items is not None and node.items.has_rules:
            keyed = correlated and node.list_type == "map"
            yield from self._at(node.items, item, f"{path}.items", many, correlated=keyed)

    def _rule(self, given: Object, shape: Shape | None, path: str, count: int, correlated: bool) -> Errors:
        text = (given.get("rule") or "").strip()
        if not text:
            yield FieldError(f"{path}.rule", "Required", "", "rule is not specified")
            return
        if shape is None:
            yield FieldError(f"{path}.rule", "Invalid", given, "rules cannot be used on a value of unknown type")
            return
        yield from _said(given, path)
        try:
            rule = Rule(given, shape)
        except MessageError as error:
            yield FieldError(f"{path}.messageExpression", "Invalid", given, f"messageExpression {error.message}")
            return
        except CompileError as error:
            place = "messageExpression" if error.expression == given.get("messageExpression") else "rule"
            yield FieldError(f"{path}.{place}", "Invalid", given, _compilation(error))
            return
        if rule.transition and not correlated:
            words = "oldSelf cannot be used on the uncorrelatable portion of the schema"
            yield FieldError(f"{path}.rule", "Invalid", given, words)
        if rule.optional_old and not rule.transition:
            yield FieldError(f"{path}.optionalOldSelf", "Invalid", True, "option may only be set when oldSelf is used")
        yield from self._costs(rule, path, count)

    def _costs(self, rule: Rule, path: str, count: int) -> Errors:
        for expression, place in ((rule.expression, "rule"), (rule.message, "messageExpression")):
            if expression is None:
                continue
            cost = min(expression.estimated_cost * count, _UNLIMITED)
            self._total = min(self._total + cost, _UNLIMITED)
            self._dearest.append((cost, f"{path}.{place}"))
            if cost > RULE_ESTIMATE:
                yield forbidden(
                    f"{path}.{place}",
                    f"estimated rule cost exceeds budget by factor of {_times(cost / RULE_ESTIMATE)} ({_ADVICE})",
                )


_CONTRIBUTED: Final = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
_ADVICE: Final = (
    "try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared"
)


def _times(factor: float) -> str:
    return "more than 100x" if factor > 100 else f"{math.ceil(factor * 10) / 10:g}x"


def _compilation(error: CompileError) -> str:
    return f"compilation failed: {error.report()}"


def _said(given: Object, path: str) -> Errors:
    message = given.get("message") or ""
    if given.get("message") is not None and "message" in given and not message.strip():
        yield FieldError(f"{path}.message", "Invalid", message, "message must be non-empty if specified")
    if "\n" in message.strip():
        yield FieldError(f"{path}.message", "Invalid", message, "message must not contain line breaks")
    if "\n" in given["rule"].strip() and not message:
        yield FieldError(f"{path}.message", "Required", "", "message must be specified if rule contains line breaks")
    if len(message) > 2048:
        yield FieldError(
            f"{path}.message", "Invalid", f"{message[:10]}...", "message must have a maximum length of 2048 characters"
        )
    reason = given.get("reason")
    if reason and reason not in _REASONS:
        listed = ", ".join(f'"{known}"' for known in sorted(_REASONS))
        yield FieldError(f"{path}.reason", "NotSupported", reason, f"supported values: {listed}")
    field = given.get("fieldPath")
    if field:
        try:
            paths.fields(field)
        except paths.PathError as error:
            yield FieldError(f"{path}.fieldPath", "Invalid", field, f"fieldPath must be a valid path: {error}")
