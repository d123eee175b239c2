"""The exhaustive solver gives upstream's answers, so that what it says about the allocator counts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings

from benchmarks.allocators import Allocator, upstream_allocator
from tests.real.upstream.binaries import Unavailable
from tests.solver.assembly import allocations, comparable
from tests.solver.model import Json, Problem
from tests.solver.search import TooLarge, solve
from tests.solver.strategies import evaluate, lines
from tests.solver.validity import violations


@pytest.fixture(scope="module")
def upstream() -> Iterator[Allocator]:
    try:
        with upstream_allocator(pod_seconds=5) as running:
            yield running
    except Unavailable as missing:
        pytest.skip(str(missing))


@pytest.mark.real
@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(line=lines())
def test_random_clusters_get_the_go_allocators_answer(upstream: Allocator, line: Json) -> None:
    problem = Problem(line)
    if not problem.on["CompatibilityGroups"]:
        return  # upstream hides the whole pool, Dray only the devices that declare groups
    try:
        mine = solve(problem, evaluate, order="upstream", steps=50_000)
    except TooLarge:
        return
    theirs = upstream.answer(line)
    assert (mine.outcome == "ok") == theirs["ok"], (mine.why, theirs.get("error"))
    if theirs["ok"]:
        made = allocations(problem, mine.picks)
        assert [comparable(a, upstream=True) for a in made] == [comparable(a, upstream=True) for a in theirs["results"]]
        assert violations(problem, theirs["results"], evaluate) == []
