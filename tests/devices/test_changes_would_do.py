"""Every change that a refusal tells of, made to the question, turns the refusal into an allocation."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given, settings

from tests.devices.test_upstream_vectors import ask, fuzz, needs_vectors
from tests.solver.strategies import lines

Json = dict[str, Any]


def key(claim: Json) -> str:
    return f"{claim['metadata']['namespace']}/{claim['metadata']['name']}"


def changed(line: Json, change: Json) -> Json:
    """The question with the change made to it."""
    line = copy.deepcopy(line)
    if change["kind"] == "release":
        line["allocatedClaims"] = [claim for claim in line["allocatedClaims"] if key(claim) != change["claim"]]
        return line
    name, _, sub = change["request"].partition("/")
    (claim,) = (claim for claim in line["claims"] if key(claim) == change["claim"])
    if change["kind"] == "unbind":
        del claim["spec"]["devices"]["constraints"][change["data"]["index"]]
        return line
    (request,) = (request for request in claim["spec"]["devices"]["requests"] if request["name"] == name)
    wanted = next(each for each in request["firstAvailable"] if each["name"] == sub) if sub else request["exactly"]
    if change["kind"] == "fewer":
        wanted["count"] = change["data"]["count"]
    elif change["kind"] == "less":
        wanted["capacity"]["requests"][change["data"]["capacity"]] = change["data"]["amount"]
    elif change["kind"] == "unselect":
        del wanted["selectors"][change["data"]["index"]]
    else:
        toleration = {**change["data"], "operator": "Equal" if change["data"]["value"] else "Exists"}
        wanted["tolerations"] = [*wanted.get("tolerations", []), toleration]
    return line


def check(line: Json) -> None:
    answer = ask(line)
    if answer["ok"] or "error" in answer:
        assert not answer.get("changes")
        return
    for change in answer["changes"]:
        assert ask(changed(line, change))["ok"], change
    released = {change["claim"] for change in answer["changes"] if change["kind"] == "release"}
    for claim in line["allocatedClaims"]:
        admits = ask(changed(line, {"kind": "release", "claim": key(claim)}))["ok"]
        assert admits == (key(claim) in released), key(claim)


@settings(max_examples=60, deadline=None)
@given(line=lines())
def test_a_told_change_admits_the_claims_and_no_single_claim_to_let_go_of_is_left_out(line: Json) -> None:
    check({name: value for name, value in line.items() if name != "nodes"})


@needs_vectors
def test_told_changes_admit_the_claims_of_recorded_refusals() -> None:
    for case in list(fuzz().values())[::5]:
        if not case["answer"]["ok"]:
            check({name: value for name, value in case["input"].items() if name != "nodes"})
