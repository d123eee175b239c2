"""The allocator on random clusters: whether it fits, what is given, and that asking leaves no trace.

``dray allocate`` answers; the exhaustive solver, which shares no code with it, judges.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings

from benchmarks.allocators import Allocator, dray_allocator
from tests.solver.assembly import allocations, comparable
from tests.solver.model import Json, Problem
from tests.solver.search import Answer, TooLarge, solve
from tests.solver.strategies import evaluate, lines
from tests.solver.validity import violations

RANDOM = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
MANY = settings(RANDOM, max_examples=400)

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def dray() -> Iterator[Allocator]:
    with dray_allocator() as running:
        yield running


def judged(line: Json) -> tuple[Problem, Answer] | None:
    problem = Problem(line)
    try:
        return problem, solve(problem, evaluate, order="upstream" if line.get("upstreamOrder") else "dray", steps=30_000)
    except TooLarge:
        return None


def outcome(answer: Json) -> str:
    if answer["ok"]:
        return "ok"
    return "fatal" if answer.get("error") and not answer.get("nodeError") else "refused"


def agree(dray: Allocator, line: Json) -> None:
    verdict = judged(line)
    if verdict is None:
        return
    answer = dray.answer(line)
    assert outcome(answer) == verdict[1].outcome, (answer.get("error"), verdict[1].why)


@RANDOM
@given(line=lines())
def test_it_fits_exactly_where_something_fits(dray: Allocator, line: Json) -> None:
    agree(dray, line)


@pytest.mark.slow
@MANY
@given(line=lines())
def test_it_fits_exactly_where_something_fits_in_many_more_clusters(dray: Allocator, line: Json) -> None:
    agree(dray, line)


@RANDOM
@given(line=lines())
def test_every_result_keeps_every_rule(dray: Allocator, line: Json) -> None:
    answer = dray.answer(line)
    if answer["ok"]:
        assert violations(Problem(line), answer["results"], evaluate) == []


@RANDOM
@given(line=lines())
def test_the_first_solution_in_order_is_given(dray: Allocator, line: Json) -> None:
    for question in (line, {**line, "upstreamOrder": True}):
        verdict = judged(question)
        if verdict is None or verdict[1].outcome != "ok":
            return
        problem, solution = verdict
        wanted = [comparable(a) for a in allocations(problem, solution.picks)]
        assert [comparable(a) for a in dray.answer(question)["results"]] == wanted


@RANDOM
@given(line=lines())
def test_asking_leaves_no_trace(dray: Allocator, line: Json) -> None:
    """The same claims tried on every node, before and after each other, get the same answer as alone."""
    nodes = line["nodes"]
    together = dray.answer({k: v for k, v in line.items() if k != "node"} | {"nodes": [*nodes, *reversed(nodes)]})
    alone = [dray.answer({**line, "node": n, "nodes": []}) for n in [*nodes, *reversed(nodes)]]
    for one, other in zip(together["perNode"], alone, strict=True):
        assert one["ok"] == other["ok"]
        assert [comparable(a) for a in one.get("results") or []] == [comparable(a) for a in other.get("results") or []]
