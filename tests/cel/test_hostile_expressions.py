"""Hostile expressions cost a bounded amount and get a clear error; nothing but this package's errors comes out."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dray.api.resource import Device, DeviceAttribute
from dray.cel import CelError, CompileError, CostLimitExceeded, DeviceView, EvaluationError, compile
from dray.cel.parser import MAX_LENGTH

VIEW = DeviceView.of("driver", Device(attributes={"s": DeviceAttribute(string="a" * 64)}))
ATTRIBUTE = 'device.attributes["driver"].s'

DEEP = [
    "(" * 5000 + "true" + ")" * 5000,
    "[" * 5000 + "]" * 5000 + " == []",
    "{1:" * 2000 + "1" + "}" * 2000 + " == {}",
    "-(" * 3000 + "1" + ")" * 3000 + " == 1",
    "1" + " + 1" * 2000 + " > 0",
    "true" + " ? true : true" * 700,
    "device" + ".a" * 5000,
    "device" + "[0]" * 3000,
    "optional.of(1)" + ".optMap(x, x)" * 700 + ".hasValue()",
    "[1]" + ".map(x, x)" * 900 + " == [1]",
]


@pytest.mark.parametrize("expression", DEEP, ids=[text[:12] for text in DEEP])
def test_deep_nesting_is_refused(expression: str) -> None:
    with pytest.raises(CompileError, match="nested too deeply"):
        compile(expression)


def test_depth_below_the_limit_works() -> None:
    assert compile("(" * 90 + "true" + ")" * 90).matches(VIEW)
    assert compile("1" + " + 1" * 90 + " == 91").matches(VIEW)


def test_long_chains_of_and_and_or_are_not_deep() -> None:
    assert compile(" && ".join(["true"] * 1200)).matches(VIEW)
    assert not compile(" || ".join(["false"] * 1000)).matches(VIEW)


def test_many_signs_are_one() -> None:
    assert compile("!" * 10_000 + "true").matches(VIEW)


def test_an_expression_has_at_most_10_kib() -> None:
    padding = " " * (MAX_LENGTH - 4)
    assert compile(padding + "true").matches(VIEW)
    with pytest.raises(CompileError, match="too long"):
        compile(padding + " true")
    with pytest.raises(CompileError, match="too long"):
        compile('"' + "é" * 5200 + '" == ""')


def test_chained_optional_maps_do_not_double_the_work() -> None:
    program = compile("optional.of(1)" + ".optMap(x, x)" * 24 + ".hasValue()")
    assert program.estimated_cost > 10**7
    with pytest.raises(CostLimitExceeded):
        program.matches(VIEW)


def test_a_number_with_many_digits_is_refused_without_reading_it() -> None:
    with pytest.raises(CompileError, match="invalid int literal"):
        compile("9" * 9000 + " > 0")
    assert compile("0" * 9000 + "1 == 1").matches(VIEW)


EXPENSIVE = [
    # loops in loops
    "lists.range(100).all(a, lists.range(100).all(b, lists.range(100).all(c, a + b + c >= 0)))",
    "lists.range(1000).map(a, lists.range(1000).map(b, a * b)).size() > 0",
    # loops that hide their failures
    "lists.range(1000).exists(a, lists.range(1000).exists(b, b / 0 == 1))",
    # results that double; the cost of a list does not depend on its length
    "cel.bind(a0, [1, 2, 3, 4], " + "".join(f"cel.bind(a{n + 1}, a{n} + a{n}, " for n in range(60)) + "a60.size() > 0" + ")" * 61,
    "cel.bind(a0, 'abcd', " + "".join(f"cel.bind(a{n + 1}, a{n} + a{n}, " for n in range(60)) + "a60.size() > 0" + ")" * 61,
    "cel.bind(a0, 'abcd', "
    + "".join(f"cel.bind(a{n + 1}, '%s%s'.format([a{n}, a{n}]), " for n in range(60))
    + "a60.size() > 0"
    + ")" * 61,
    "cel.bind(a0, 'abcd', "
    + "".join(f"cel.bind(a{n + 1}, a{n}.replace('', 'xxxxxxxxxxxxxxxx'), " for n in range(60))
    + "a60.size() > 0"
    + ")" * 61,
    (
        "cel.bind(s, '%s%s'.format([lists.range(30000), lists.range(30000)]), "
        "lists.range(60000).all(i, (s + '%s'.format([s])).size() > i))"
    ),
    "lists.range(9223372036854775807).size() > 0",
    "lists.range(200000).map(x, [x]).flatten().sort().size() > 0",
    "lists.range(5000).distinct().size() > 0",
]


@pytest.mark.parametrize("expression", EXPENSIVE, ids=range(len(EXPENSIVE)))
def test_expensive_expressions_stop(expression: str) -> None:
    program = compile(expression)
    started = time.process_time()
    with pytest.raises(EvaluationError, match=r"cost limit exceeded|too large"):
        program.matches(VIEW)
    assert time.process_time() - started < 5


CATASTROPHIC = [
    f'({ATTRIBUTE} + "!").matches("(a+)+$")',
    f'({ATTRIBUTE} + "!").matches("(a|aa)+$")',
    f'{ATTRIBUTE}.matches("(.*)(.*)(.*)(.*)(.*)[^a]")',
]


@pytest.mark.parametrize("expression", CATASTROPHIC)
def test_regular_expressions_take_linear_time(expression: str) -> None:
    started = time.process_time()
    assert compile(expression).matches(VIEW) is False
    assert time.process_time() - started < 0.5


def test_a_regular_expression_that_would_need_too_much_memory_is_refused() -> None:
    with pytest.raises(CompileError, match="error parsing regexp"):
        compile('"a".matches("((a{100}){100}){100}")')


def error_of(text: str) -> CelError | None:
    try:
        compile(text, derived=True).value(VIEW)
    except CelError as error:
        return error
    return None


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=60) | st.text(alphabet="()[]{}.,?:!&|=<>+-*/%\"'x1 \\", max_size=60))
def test_any_text_is_compiled_or_refused(text: str) -> None:
    error = error_of(text)
    if error is not None:
        assert error.expression == text
        assert 0 <= error.position <= len(text)
        assert error.pointer()


WORDS = [
    "device",
    ".attributes",
    '["driver"]',
    ".s",
    ".driver",
    "1",
    "2u",
    "1.5",
    '"a"',
    "b'a'",
    "[1, 2]",
    '{"a": 1}',
    "null",
    "true",
    " + ",
    " == ",
    " < ",
    " && ",
    " || ",
    " in ",
    " ? ",
    " : ",
    "!",
    "-",
    "(",
    ")",
    ".map(x, ",
    ".all(x, ",
    ".exists(k, v, ",
    "x",
    ")",
    ".size()",
    ".?a",
    "[?0]",
    ".orValue(1)",
    ".sort()",
    ".join()",
    "dyn(",
    "int(",
    "string(",
    "type(",
    "quantity('1')",
    "semver('1.0.0')",
    ".isGreaterThan(",
    "duration('1s')",
    "timestamp(0)",
    "has(",
    "cel.bind(x, ",
    ", ",
    "optional.of(",
    "lists.range(3)",
]


@settings(max_examples=500, deadline=None)
@given(st.lists(st.sampled_from(WORDS), max_size=14).map("".join))
def test_any_sequence_of_words_is_compiled_or_refused(text: str) -> None:
    error = error_of(text)
    assert error is None or error.expression == text
