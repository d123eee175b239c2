"""Objects and patches that expressions of policies make: their types, their costs, and what they are as JSON."""

from __future__ import annotations

from typing import Any

import pytest

from dray.cel import types
from dray.cel.errors import CompileError, Failure
from dray.cel.made import OBJECT, PATCH, configuration, misplaced, operation
from dray.cel.meter import Meter
from dray.cel.objects import Expression, Shape

KNOWN = {"yes": Shape(types.BOOL), "object": Shape(types.DYN)}


def evaluated(text: str, patches: bool = True) -> tuple[types.Type, Any, int]:
    expression, meter = Expression(text, KNOWN, patches=patches), Meter(1_000_000)
    return expression.type, expression.evaluate((True, {"a": (1, 2)}), meter), meter.cost


def test_objects_are_made_of_values_of_any_type() -> None:
    kind, made, cost = evaluated("Object{spec: Object.spec{n: object.a, ?no: optional.none(), ?x: optional.of({'k': 1.0})}}")
    assert (kind, configuration(made)) == (OBJECT, {"spec": {"n": [1, 2], "x": {"k": 1}}})
    assert cost >= 80


def test_patches_are_lists_of_operations() -> None:
    text = (
        "[JSONPatch{op: 'add', path: '/a/' + jsonpatch.escapeKey('b/c~d'), value: Object.a{t: duration('1m'), b: b'abc', n: 2u}}]"
    )
    kind, made, _ = evaluated(f"yes ? {text} : []")
    value = {"t": "60s", "b": "YWJj", "n": 2}
    assert (kind, [operation(each) for each in made]) == (PATCH, [{"op": "add", "path": "/a/b~1c~0d", "value": value}])


def test_values_are_equal_if_their_types_are() -> None:
    assert evaluated("Object.a{x: 1} == Object.a{x: 1} && dyn(Object.a{x: 1}) != Object.b{x: 1}")[1] is True
    assert evaluated("type(Object.a{}) == Object.a")[1] is True


WRONG = {
    "Obj{}": "1:4: undeclared reference to 'Obj' (in container '')",
    "a.b.Obj{x: 1}": "1:8: undeclared reference to 'a.b.Obj' (in container '')",
    "int{}": "1:4: 'int' is not a message type",
    "JSONPatch{path: 1}": "1:15: expected type of field 'path' is 'string' but provided type is 'int'",
    "JSONPatch{path: '', foo: 'x'}": "1:24: expected type of field 'foo' is '' but provided type is 'string'",
    "Object{?a: 1}": "1:12: expected type 'optional_type(int)' but found 'int'",
    "(Object){}": "1:9: Syntax error: unexpected '{}', extraneous input",
    "Object{'a': 1}": "1:8: Syntax error: unexpected \"'a': 1}\", expecting 'identifier'",
}


@pytest.mark.parametrize("text", WRONG)
def test_what_cannot_be_made_is_refused_when_it_is_compiled(text: str) -> None:
    with pytest.raises(CompileError) as refused:
        evaluated(text)
    assert str(refused.value) == WRONG[text]


@pytest.mark.parametrize("text", ["Object{}", "[JSONPatch{}]", "jsonpatch.escapeKey('a')", "Object == Object"])
def test_only_expressions_that_change_something_make_anything(text: str) -> None:
    with pytest.raises(CompileError, match="undeclared reference"):
        evaluated(text, patches=False)


def test_objects_stand_where_their_names_say() -> None:
    made = evaluated("Object{a: [Object.a{b: {'k': Object.a.c{}}}], d: Object.x{}}")[1]
    assert [words.split(",")[0] for words in misplaced(made)] == [
        'unexpected type name "Object.a.c"',
        'unexpected type name "Object.x"',
    ]


@pytest.mark.parametrize("text", ["JSONPatch{value: {1: 'x'}}", "JSONPatch{value: type(1)}"])
def test_what_json_does_not_have_is_no_value_of_a_patch(text: str) -> None:
    with pytest.raises(Failure, match="could not marshal to JSON"):
        operation(evaluated(text)[1])
