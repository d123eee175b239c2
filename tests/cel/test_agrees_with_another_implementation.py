"""On what the two have in common, expressions mean the same here and in the C++ implementation of CEL."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dray.api.resource import Device, DeviceAttribute
from dray.cel import CelError, DeviceView, compile

cel = pytest.importorskip("cel_expr_python.cel", reason="cel-expr-python is a development dependency")
strings = pytest.importorskip("cel_expr_python.ext.ext_strings")

VALUES: dict[str, Any] = {"i": 7, "n": -3, "b": True, "s": "fish & chips", "t": "", "l": [3, 1, 2], "w": ["b", "a"]}
ATTRIBUTES = {
    "i": DeviceAttribute(int_=7),
    "n": DeviceAttribute(int_=-3),
    "b": DeviceAttribute(bool_=True),
    "s": DeviceAttribute(string="fish & chips"),
    "t": DeviceAttribute(string=""),
    "l": DeviceAttribute(ints=(3, 1, 2)),
    "w": DeviceAttribute(strings=("b", "a")),
}
VIEW = DeviceView.of("drv", Device(attributes=ATTRIBUTES))
OWN = 'device.attributes["drv"]'


def _environment() -> Any:
    # Without cel.bind: the C++ implementation confuses its variable with those of comprehensions around it.
    return cel.NewEnv(variables={"device": cel.Type.DYN}, extensions=[strings.ExtStrings()])


ENVIRONMENT = _environment()
DATA = {"device": {"driver": "drv", "attributes": {"drv": VALUES}}}

Text = st.SearchStrategy[str]


def joined(template: str, *parts: Text) -> Text:
    return st.tuples(*parts).map(lambda chosen: template.format(*chosen))


def integers(depth: int) -> Text:
    leaf = st.sampled_from(
        ["0", "1", "-1", "2", "9223372036854775807", "-9223372036854775808", f"{OWN}.i", f"{OWN}.n", f"{OWN}.missing"]
    )
    if depth == 0:
        return leaf
    inner, lists, text = integers(depth - 1), int_lists(depth - 1), texts(depth - 1)
    return st.one_of(
        leaf,
        joined("({} {} {})", inner, st.sampled_from("+-*/%"), inner),
        joined("({} ? {} : {})", booleans(depth - 1), inner, inner),
        joined("size({})", text),
        joined("{}.size()", lists),
        joined("{}[{}]", lists, inner),
        joined("{}.indexOf({})", text, text),
    )


def texts(depth: int) -> Text:
    leaf = st.sampled_from(['""', '"a"', '"fish"', r'"\u00e9\t"', "device.driver", f"{OWN}.s", f"{OWN}.t"])
    if depth == 0:
        return leaf
    inner = texts(depth - 1)
    return st.one_of(
        leaf,
        joined("({} + {})", inner, inner),
        joined("{}.substring({})", inner, integers(depth - 1)),
        joined("{}.lowerAscii()", inner),
        joined("{}.replace({}, {})", inner, st.sampled_from(['"a"', '"fish"']), inner),
        joined("string({})", integers(depth - 1)),
        joined('{}.join("-")', text_lists(depth - 1)),
    )


def int_lists(depth: int) -> Text:
    leaf = st.sampled_from(["[4]", "[1, 2, 3]", f"{OWN}.l"])
    if depth == 0:
        return leaf
    inner, number = int_lists(depth - 1), integers(depth - 1)
    return st.one_of(
        leaf,
        joined("[dyn({}), dyn({})]", number, number),
        joined("{}.map(x, x * {})", inner, number),
        joined("{}.filter(x, x > {})", inner, number),
    )


def text_lists(depth: int) -> Text:
    leaf = st.sampled_from(['["x"]', '["b", "a"]', f"{OWN}.w"])
    if depth == 0:
        return leaf
    return st.one_of(leaf, joined("{}.split({})", texts(depth - 1), texts(depth - 1)), joined("[dyn({})]", texts(depth - 1)))


def booleans(depth: int) -> Text:
    leaf = st.sampled_from(["true", "false", f"{OWN}.b", f"{OWN}.missing", f"has({OWN}.s)", f"has({OWN}.missing)"])
    if depth == 0:
        return leaf
    inner, number, text = booleans(depth - 1), integers(depth - 1), texts(depth - 1)
    return st.one_of(
        joined("({} {} {})", inner, st.sampled_from(["&&", "||"]), inner),
        joined("(({} {} {}) && {})", inner, st.sampled_from(["&&", "||"]), inner, inner),
        joined("!{}", inner),
        joined("({} {} {})", number, st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), number),
        joined("({} {} {})", text, st.sampled_from(["==", "!=", "<", ">="]), text),
        joined("({} == {})", int_lists(depth - 1), int_lists(depth - 1)),
        joined(
            "{}.{}(x, x {} {})",
            int_lists(depth - 1),
            st.sampled_from(["all", "exists", "exists_one"]),
            st.sampled_from("<>"),
            number,
        ),
        joined("{}.all(x, {} / x > 0)", int_lists(depth - 1), number),
        # Not an empty literal: Kubernetes answers that without looking at the value, which may be an error.
        joined("({} in {})", number, st.sampled_from(["[1, 2, 3]", f"{OWN}.l"])),
        joined("{}.{}({})", text, st.sampled_from(["contains", "startsWith", "endsWith"]), text),
        joined('{}.matches("^[a-f]*i?")', text),
    )


def theirs(expression: str) -> Any:
    result = ENVIRONMENT.compile(expression).eval(data=DATA)
    return "error" if result.type() == cel.Type.ERROR else result.value()


def ours(expression: str) -> Any:
    try:
        return compile(expression).matches(VIEW)
    except CelError:
        return "error"


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(booleans(3))
def test_same_verdict_or_both_an_error(expression: str) -> None:
    expected = theirs(expression)
    assert ours(expression) == (expected if isinstance(expected, bool) else "error")
