"""The exhaustive solver gives the recorded answers of the upstream allocator, apart from the differences that Dray documents."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.solver.assembly import allocations, comparable
from tests.solver.expressions import evaluate
from tests.solver.model import Json, Problem
from tests.solver.search import Answer, TooLarge, solve
from tests.solver.validity import violations

VECTORS = Path(__file__).parents[3] / "shared/vectors"
FUZZ = VECTORS / "allocator-fuzz-sample.jsonl"
TABLE = VECTORS / "allocator"

pytestmark = pytest.mark.skipif(not VECTORS.is_dir(), reason=f"no recorded answers in {VECTORS}")


def expected(upstream_ok: bool, error: str | None) -> str:
    """What Dray makes of upstream's outcome: trouble with one node's pools is no reason to give up on the pod."""
    if upstream_ok:
        return "ok"
    if not error or "invalid resource pools" in error or "asks for all devices, but resource pool" in error:
        return "refused"
    return "fatal"


def check(problem: Problem, answer: Answer, outcome: str, results: list[Json]) -> str | None:
    """What is wrong with an answer, or None."""
    if answer.outcome != outcome:
        return f"{answer.outcome} instead of {outcome}: {answer.why}"
    if outcome != "ok":
        return None
    mine = [comparable(a, upstream=True) for a in allocations(problem, answer.picks)]
    if mine != [comparable(a, upstream=True) for a in results]:
        return "other devices"
    return "; ".join(violations(problem, results, evaluate)) or None


def test_the_fuzz_sample() -> None:
    wrong, large = {}, []
    for raw in FUZZ.read_text().splitlines():
        case = json.loads(raw)
        problem, answer = Problem(case["input"]), case["answer"]
        if not problem.on["CompatibilityGroups"]:
            continue  # upstream hides whole pools, Dray the devices that declare groups
        try:
            mine = solve(problem, evaluate, order="upstream", steps=5_000)
        except TooLarge:
            large.append(case["id"])
            continue
        found = check(problem, mine, expected(answer["ok"], answer.get("error")), answer.get("results") or [])
        if found:
            wrong[case["id"]] = found
    assert wrong == {}
    assert len(large) < 10


def table() -> list[Path]:
    return sorted(TABLE.glob("*.json"))


@pytest.mark.parametrize("path", table(), ids=lambda p: p.stem)
def test_the_upstream_table(path: Path) -> None:
    case = json.loads(path.read_text())
    if not case["features"]["CompatibilityGroups"] and "compatibility-groups" in path.stem:
        pytest.skip("upstream hides whole pools, Dray the devices that declare groups")
    problem = Problem({**case, "raw": True})
    try:
        mine = solve(problem, evaluate, order="upstream", steps=20_000)
    except TooLarge:
        pytest.skip("too large for an exhaustive search")
    wanted = bool(case["expectResults"]) or not case["claims"]
    outcome = expected(wanted and not case["expectErrorSubstring"], case["expectErrorSubstring"])
    recorded = case["actual"]["experimental"].get("results") or []
    for number, result in enumerate(r for a in recorded for r in a["devices"].get("results") or []):
        if "shareID" in result:
            result["shareID"] = str(number)  # the table has one and the same for all
    assert check(problem, mine, outcome, recorded) is None
