"""Expressions of admission policies: variables that are made when asked for, the authorizer, and a budget for all together."""

from __future__ import annotations

from typing import Any

import pytest

from dray.cel import types
from dray.cel.admission import Activation, Compiler, OutOfBudget, PolicyError
from dray.cel.library.authorization import Authorizer, Decision, PathCheck, ResourceCheck
from dray.cel.objects import Shape


def evaluated(text: str, budget: int = 10_000_000, variables: dict[str, str] | None = None, **values: Any) -> Any:
    compiler = Compiler(params=Shape(types.DYN))
    for name, expression in (variables or {}).items():
        compiler.variable(name, expression)
    compiled = compiler.compile(text)
    assert not compiled.error, compiled.error
    return Activation(values, compiler.variables, budget).evaluate(compiled)


@pytest.mark.parametrize(("text", "value"), [("has(oldObject.a)", False), ("oldObject.?a.?b.orValue(7)", 7)])
def test_nothing_has_no_fields(text: str, value: Any) -> None:
    assert evaluated(text, oldObject=None) == value


@pytest.mark.parametrize("given", [None, 1, "text", True])
def test_a_step_into_what_has_no_fields_misses_the_key(given: Any) -> None:
    with pytest.raises(PolicyError, match="resulted in error: no such key: a"):
        evaluated("object.a", object=given)


def test_a_variable_is_made_once_and_only_if_asked_for() -> None:
    variables = {"bad": "object.missing", "one": "object.a + 1", "two": "variables.one + variables.one"}
    assert evaluated("variables.two", variables=variables, object={"a": 1}) == 4
    with pytest.raises(PolicyError, match='composited variable "bad" fails to evaluate: no such key: missing'):
        evaluated("variables.bad", variables=variables, object={"a": 1})


def test_a_variable_has_the_type_of_its_expression() -> None:
    compiler = Compiler(params=None)
    compiler.variable("count", "1")
    assert "no matching overload for '_+_' applied to '(int, string)'" in compiler.compile("variables.count + 'a'").error
    assert "undefined field 'other'" in compiler.compile("variables.other").error


def asking(asked: list[Any]) -> Authorizer:
    def decide(who: Any, verb: str, question: PathCheck | ResourceCheck) -> Decision:
        asked.append((who, verb, question))
        return Decision(verb == "get", f"because of {who}")

    return Authorizer("alice", decide, lambda namespace, name: f"{namespace}:{name}")


def test_the_authorizer_is_asked_about_whom_and_what_the_expression_names() -> None:
    asked: list[Any] = []
    authorizer = asking(asked)
    given = {"authorizer": authorizer, "authorizer.requestResource": ResourceCheck(authorizer, "", "pods", name="p")}
    text = "authorizer.group('apps').resource('deployments').subresource('scale').namespace('n').name('d').check('get').allowed()"
    assert evaluated(text, **given) is True
    assert evaluated("authorizer.path('/healthz').check('list').allowed()", **given) is False
    assert evaluated("authorizer.serviceAccount('a', 'b').path('/').check('get').reason()", **given) == "because of a:b"
    assert evaluated("authorizer.requestResource.check('get').errored()", **given) is False
    assert [(who, verb) for who, verb, _ in asked] == [("alice", "get"), ("alice", "list"), ("a:b", "get"), ("alice", "get")]
    assert asked[0][2] == ResourceCheck(authorizer, "apps", "deployments", "scale", "n", "d")
    assert asked[3][2].name == "p"


def test_one_expression_can_ask_the_authorizer_twice() -> None:
    given = {"authorizer": asking([])}
    once = "authorizer.path('/').check('get').allowed()"
    assert evaluated(f"{once} && {once}", **given) is True
    with pytest.raises(PolicyError, match="actual cost limit exceeded"):
        evaluated(f"{once} && {once} && {once}", **given)


def test_variables_share_the_budget_of_those_who_ask_for_them() -> None:
    dear = "[1, 2, 3].all(a, [1, 2, 3].all(b, [1, 2, 3].all(c, a + b + c > 0)))"
    assert evaluated("variables.x", variables={"x": dear}) is True
    with pytest.raises(OutOfBudget):
        evaluated("variables.x", 100, variables={"x": dear})
    with pytest.raises(OutOfBudget):
        evaluated(dear, 100)
