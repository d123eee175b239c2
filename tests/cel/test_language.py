"""The language: what is written means what CEL says it means, and what is wrong is refused where it is wrong."""

from __future__ import annotations

import pytest

from dray.api.resource import Device
from dray.cel import CompileError, DeviceView, EvaluationError, compile

VIEW = DeviceView.of("driver", Device())


def verdict(expression: str) -> bool:
    return compile(expression).matches(VIEW)


HOLDS = [
    # numbers
    "0x1F == 31",
    "1e3 == 1000.0",
    ".5 == 0.5",
    "-9223372036854775808 < 0",
    "18446744073709551615u > 1u",
    "7 / -2 == -3",
    "-7 % 3 == -1",
    "dyn(1) == 1.0",
    "1 < 1.5",
    "1u < 2",
    "dyn(1) != true",
    "--1 == 1",
    "-(1) == -1",
    "1.0 / 0.0 > 1e300",
    # strings and bytes
    r'"\u00e9".size() == 1',
    r'r"\d" == "\\d"',
    "'''two\nlines'''.size() == 9",
    r'b"\xff\101".size() == 2',
    '"a" + "b" == "ab"',
    '"abc" < "abd"',
    "'\\'' == \"'\"",
    '"""it\'s "fine\\""""  == "it\'s \\"fine\\""',
    # logic
    "!!true",
    "true || 1 / 0 == 1",
    "1 / 0 == 1 || true",
    "!(1 / 0 == 1 && false)",
    "false ? 1 / 0 == 1 : true",
    "true || false && false",
    "[false, true].exists(x, x)",
    "1 / 0 == 1 || 1 / 0 == 2 || true",
    # collections
    "[1, 2, 3,][1] == 2",
    '{"a": 1,}.a == 1',
    "{true: 1, false: 2}[true] == 1",
    "{1: 'x'}[dyn(1u)] == 'x'",
    "dyn([1, 2]) == dyn([1.0, 2.0])",
    "[?optional.none(), ?optional.of(2)] == [2]",
    '{?"a": optional.none()} == {}',
    "2 in [1, 2]",
    "!('b' in {'a': 1})",
    # optionals
    "{'a': {'b': 1}}.?a.?b.value() == 1",
    "{'a': {'b': 1}}.?x.?c.orValue(5) == 5",
    "[1][?3].or(optional.of(9)).value() == 9",
    "optional.of(3).optMap(x, x + 1).value() == 4",
    "!optional.none().optMap(x, x + 1).hasValue()",
    "optional.of([1]).optFlatMap(l, l[?0]).value() == 1",
    "has({'a': 1}.a) && !has({'a': 1}.b)",
    # macros
    "[1, 2].all(x, x > 0) && [].all(x, false)",
    "[0, 2].exists(x, 2 / x == 1)",
    "![0, 1].all(x, 2 / x == 1)",
    "[1, 2, 2].exists_one(x, x == 1)",
    "[1, 2, 3].map(x, x > 1, x * x) == [4, 9]",
    "[3, 4].filter(x, x > 3) == [4]",
    "{'a': 1}.map(k, k) == ['a']",
    "['p', 'q'].all(i, v, i < 2 && v != '')",
    "{'a': 1}.exists(k, v, k == 'a' && v == 1)",
    "[5, 6].existsOne(i, v, i == 1)",
    "[5, 6].transformList(i, v, i == 0, v) == [5]",
    "[5, 6].transformMap(i, v, v + 1) == {0: 6, 1: 7}",
    "{'a': 'b'}.transformMapEntry(k, v, {v: k}) == {'b': 'a'}",
    "cel.bind(x, 3, cel.bind(y, x + 1, x + y)) == 7",
    "cel.bind(x, 1 / 0, true)",
    "[[1, 2], [3]].map(l, l.map(x, x + l.size())) == [[3, 4], [4]]",
    # names of types
    "type(1) == int && type(1u) == uint && type('') == string && type([]) == list && type(type(1)) == type",
]


@pytest.mark.parametrize("expression", HOLDS)
def test_this_holds(expression: str) -> None:
    assert verdict(expression) is True


REFUSED = [
    ("?!", 0, "Syntax error"),
    ("1 +", 3, "Syntax error"),
    ("(true", 5, "Syntax error"),
    ("true false", 5, "Syntax error"),
    ('"open', 0, "Syntax error"),
    (r'"\q" == ""', 0, "invalid escape"),
    ("1", 0, "must evaluate to bool or the unknown type, not int"),
    ("nothing == 1", 0, "undeclared reference to 'nothing'"),
    ("true && nope(1)", 12, "undeclared reference to 'nope'"),
    ("true && device.node == 1", 14, "undefined field 'node'"),
    ('1 + "a" == 2', 2, "no matching overload"),
    ("true && 1", 8, "expected type 'bool' but found 'int'"),
    ('[1, "a"].size() == 2', 4, "expected type 'int' but found 'string'"),
    ("[1, dyn(1)].size() == 2", 7, "expected type 'int' but found 'dyn'"),
    ("[1].exists(x.y, true)", 12, "argument must be a simple name"),
    ("has(device)", 4, "invalid argument to has"),
    ("for == 1", 0, "reserved identifier: for"),
    ("9223372036854775808 > 0", 0, "invalid int literal"),
    ("99999999999999999999u > 0u", 0, "invalid uint literal"),
    ('"a".matches("(")', 11, "error parsing regexp"),
    ('duration("soon") > duration("1s")', 8, "invalid duration"),
    ('timestamp("2024-13-01T00:00:00Z") > timestamp("2024-01-01T00:00:00Z")', 9, "invalid timestamp"),
    ('int("fish") == 1 || true', 3, "type conversion error"),
    ('"%d".format([]) == ""', 11, "expected 1 arguments, got 0"),
    ('"%y".format([1]) == ""', 11, "unrecognized formatting clause"),
    ('true || "%d".format([1.5]) == ""', 21, "decimal clause can only be used on integers, was given double"),
    ('"%s %x".format(["a", true]) == ""', 21, "can be formatted as hex, was given bool"),
    ('"%s".format([[1, 2], {"a": ip("::1")}]) == ""', 11, "expected 1 arguments, got 2"),
    ('"%s".format([{"a": [ip("::1")]}]) == ""', 22, "string clause can only be used on"),
    ('"%b".format(["1"]) == ""', 13, "only integers and bools can be formatted as binary, was given string"),
    ("Message{a: 1} == 1", 7, "undeclared reference to 'Message' (in container '')"),
    ("[1, 2, 2].existsOne(i, i, true)", 23, "duplicate variable name"),
    ("device.capacity.all(d, n, n > 1)", 28, "no matching overload"),
]


@pytest.mark.parametrize(("expression", "position", "message"), REFUSED)
def test_this_is_refused_where_it_is_wrong(expression: str, position: int, message: str) -> None:
    with pytest.raises(CompileError) as caught:
        compile(expression)
    assert message in caught.value.message
    assert caught.value.position == position
    assert caught.value.expression == expression


def test_an_error_points_at_its_line() -> None:
    with pytest.raises(CompileError) as caught:
        compile("true &&\n  nothing")
    assert str(caught.value).startswith("2:3: undeclared reference")
    assert caught.value.pointer() == " |   nothing\n | ..^"


FAILS = [
    ("1 / 0 == 1 || false", "division by zero"),
    ("1 / 0 == 1 && true", "division by zero"),
    ("[0].exists(x, 1 / x == 1)", "division by zero"),
    ("[0, 1].exists_one(x, 1 / x == 1)", "division by zero"),
    ("9223372036854775807 + 1 == 0", "integer overflow"),
    ("-(-9223372036854775808) == 0", "integer overflow"),
    ("-9223372036854775808 % -1 == 0", "integer overflow"),
    ("1u - 2u == 0u", "unsigned integer overflow"),
    ("{'a': 1}['b'] == 1", "no such key: b"),
    ("optional.none().value() == 1", "optional.none() dereference"),
    ("dyn(1) + dyn('a') == 2", "no such overload"),
    ("dyn(1) && true", "no such overload"),
    ("{'a': 1, 'a': 2}.size() == 1", "repeated key"),
    ("[1, 1].transformMapEntry(i, v, {v: i}).size() == 1", "already exists"),
]


@pytest.mark.parametrize(("expression", "message"), FAILS)
def test_this_fails_when_it_is_evaluated(expression: str, message: str) -> None:
    with pytest.raises(EvaluationError) as caught:
        verdict(expression)
    assert message in caught.value.message


def test_programs_and_errors_are_remembered() -> None:
    assert compile("1 == 1") is compile("1 == 1")
    errors = []
    for _ in range(2):
        with pytest.raises(CompileError) as caught:
            compile("1 ==")
        errors.append(caught.value)
    assert errors[0] is not errors[1]
    assert str(errors[0]) == str(errors[1])
