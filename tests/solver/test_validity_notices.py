"""The validity check can fail: each kind of wrong answer is noticed."""

from __future__ import annotations

import copy
from fractions import Fraction
from typing import Any

import pytest

from tests.solver.assembly import allocations
from tests.solver.model import Json, Problem
from tests.solver.search import solve
from tests.solver.strategies import CLASSES, GPU, evaluate
from tests.solver.validity import violations


def line(devices: list[Json], *requests: Json, counters: list[Json] | None = None, **spec: Any) -> Json:
    """One node with one pool and one claim."""
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 2 if counters else 1}
    parts: list[Json] = [{"devices": devices}, *([{"sharedCounters": counters}] if counters else [])]
    slices = [
        {"metadata": {"name": f"s{i}"}, "spec": {"driver": GPU, "pool": pool, "nodeName": "n", **part}}
        for i, part in enumerate(parts)
    ]
    claim = {"metadata": {"name": "c", "uid": "c"}, "spec": {"devices": {"requests": list(requests), **spec}}}
    node = {"metadata": {"name": "n"}}
    return {"node": node, "classes": CLASSES, "slices": slices, "claims": [claim], "allocatedClaims": []}


def asks(name: str = "r", **more: Any) -> Json:
    return {"name": name, "exactly": {"deviceClassName": "gpu", **more}}


def solved(question: Json) -> tuple[Problem, list[Json], list[Json]]:
    """The problem, a valid answer, and the device results in it, to be spoilt."""
    problem = Problem(question)
    answer = solve(problem, evaluate)
    assert answer.outcome == "ok", answer.why
    results = copy.deepcopy(allocations(problem, answer.picks))
    assert violations(problem, results, evaluate) == []
    return problem, results, results[0]["devices"]["results"]


def test_one_device_given_twice() -> None:
    problem, results, devices = solved(line([{"name": "a"}, {"name": "b"}], asks("r"), asks("s")))
    devices[1]["device"] = devices[0]["device"]
    assert any("two owners" in v for v in violations(problem, results, evaluate))


def test_a_device_that_another_claim_holds() -> None:
    question = line([{"name": "a"}, {"name": "b"}], asks())
    held = {"request": "r", "driver": GPU, "pool": "p", "device": "a"}
    question["allocatedClaims"] = [{"status": {"allocation": {"devices": {"results": [held]}}}}]
    problem, results, devices = solved(question)
    devices[0]["device"] = "a"
    assert any("two owners" in v for v in violations(problem, results, evaluate))


def test_a_device_too_few() -> None:
    problem, results, devices = solved(line([{"name": "a"}, {"name": "b"}], asks(count=2)))
    devices.pop()
    assert violations(problem, results, evaluate) == ["r: 1 devices"]


def test_a_taint_that_is_not_tolerated() -> None:
    taint = {"key": "k", "effect": "NoSchedule"}
    problem, results, devices = solved(line([{"name": "a", "taints": [taint]}, {"name": "b"}], asks()))
    devices[0]["device"] = "a"
    assert any("taint" in v for v in violations(problem, results, evaluate))


def test_a_counter_over_its_value() -> None:
    devices = [
        {"name": n, "consumesCounters": [{"counterSet": "cs", "counters": {"units": {"value": v}}}]}
        for n, v in (("a", "1"), ("b", "2"), ("c", "3"))
    ]
    counters = [{"name": "cs", "counters": {"units": {"value": "3"}}}]
    problem, results, picked = solved(line(devices, asks(count=2), counters=counters))
    picked[1]["device"] = "c"
    assert any("over its value" in v for v in violations(problem, results, evaluate))


def test_groups_that_do_not_go_together() -> None:
    devices = [
        {
            "name": n,
            "consumesCounters": [{"counterSet": "cs", "counters": {"u": {"value": "1"}}, "compatibilityGroups": [g]}],
        }
        for n, g in (("a", "mig"), ("b", "vgpu"), ("c", "mig"))
    ]
    counters = [{"name": "cs", "counters": {"u": {"value": "9"}}}]
    problem, results, picked = solved(line(devices, asks(count=2), counters=counters))
    picked[1]["device"] = "b"
    assert any("incompatible groups" in v for v in violations(problem, results, evaluate))


def test_shares_over_the_capacity() -> None:
    shared = {"name": "a", "allowMultipleAllocations": True, "capacity": {"memory": {"value": "4"}}}
    ask = asks(capacity={"requests": {"memory": "2"}})
    problem, results, picked = solved(line([shared], ask))
    picked[0]["consumedCapacity"]["memory"] = "1"
    assert any("consumes" in v for v in violations(problem, results, evaluate))
    problem.taken.capacity[GPU, "p", "a"] = {"memory": Fraction(3)}
    picked[0]["consumedCapacity"]["memory"] = "2"
    assert any("over its capacity" in v for v in violations(problem, results, evaluate))


@pytest.mark.parametrize(("kind", "wrong"), [("matchAttribute", "b"), ("distinctAttribute", "c")])
def test_a_constraint_that_does_not_hold(kind: str, wrong: str) -> None:
    devices = [{"name": n, "attributes": {"numa": {"int": v}}} for n, v in (("a", 0), ("b", 1), ("c", 0))]
    problem, results, picked = solved(line(devices, asks(count=2), constraints=[{kind: f"{GPU}/numa"}]))
    picked[1]["device"] = wrong
    assert any("does not hold" in v for v in violations(problem, results, evaluate))
