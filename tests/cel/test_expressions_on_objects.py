"""Expressions about values with a schema: names, types, sizes, costs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dray.cel import types
from dray.cel.errors import CompileError, CostLimitExceeded, EvaluationError
from dray.cel.meter import Meter
from dray.cel.objects import Expression, Shape, escaped

TEXT = Shape(types.STRING, 20, 2)
NUMBER = Shape(types.INT, 0)
OBJECT = Shape.of_object(
    "self",
    {
        "n": NUMBER,
        "text": TEXT,
        "list": Shape.of_list(TEXT, 10),
        "map": Shape.of_map(NUMBER, 10),
        "in-ner": Shape.of_object("self.inner", {"when": Shape(types.TIMESTAMP, 35), "ratio": Shape(types.DOUBLE, 0)}),
    },
)
VALUE: dict[str, Any] = {
    "n": 3,
    "text": "abc",
    "list": ["a", "b"],
    "map": {"x": 1},
    "in-ner": {"when": "2026-01-02T03:04:05Z", "ratio": 2},
    "unknown": {"is": "left out"},
}


def evaluate(text: str, value: Any = None, limit: int = 10_000) -> Any:
    expression = Expression(text, {"self": OBJECT, "oldSelf": OBJECT})
    seen = OBJECT.read(VALUE if value is None else value)
    return expression.evaluate((seen, seen), Meter(limit))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("self.n + 1", 4),
        ("self.list.map(x, x + self.text)", ("aabc", "babc")),
        ("self.map['x'] == 1 && !('y' in self.map)", True),
        ("self.in__dash__ner.ratio", 2.0),
        ("self.in__dash__ner.when.getFullYear()", 2026),
        ("has(self.text) && size(self.list) == 2", True),
        ("self == oldSelf", True),
    ],
)
def test_values_are_read_as_their_shapes_say(text: str, wanted: Any) -> None:
    assert evaluate(text) == wanted


@pytest.mark.parametrize("text", ["self.unknown", "self.n == 'a'", "other", "self.list.n", "device.driver"])
def test_what_has_no_type_is_refused(text: str) -> None:
    with pytest.raises(CompileError):
        Expression(text, {"self": OBJECT})


def test_an_absent_field_is_an_error_of_evaluation() -> None:
    with pytest.raises(EvaluationError, match="no such key"):
        evaluate("self.text == 'a'", {"n": 1})


def test_what_an_expression_costs_is_spent() -> None:
    with pytest.raises(CostLimitExceeded):
        evaluate("self.list.all(x, self.list.all(y, x + y != ''))", limit=10)


def test_an_expression_says_which_variables_it_uses() -> None:
    assert "oldSelf" in Expression("self.n >= oldSelf.n", {"self": OBJECT, "oldSelf": OBJECT}).uses
    assert "oldSelf" not in Expression("[1].all(oldSelf, oldSelf > self.n)", {"self": OBJECT, "oldSelf": OBJECT}).uses


def test_the_estimate_grows_with_what_the_shape_allows() -> None:
    small, large = (Shape.of_object("self", {"l": Shape.of_list(TEXT, most)}) for most in (10, 1000))
    costs = [Expression("self.l.all(x, x != '')", {"self": shape}).estimated_cost for shape in (small, large)]
    assert costs[1] > 50 * costs[0]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(one=st.text("ab_-./", min_size=1, max_size=6), other=st.text("ab_-./", min_size=1, max_size=6))
def test_two_fields_are_never_called_the_same(one: str, other: str) -> None:
    if one != other:
        assert escaped(one) != escaped(other)
    assert escaped(one) is not None


@pytest.mark.parametrize("name", ["", "1a", "a b", "ü"])
def test_some_names_cannot_be_written(name: str) -> None:
    assert escaped(name) is None
