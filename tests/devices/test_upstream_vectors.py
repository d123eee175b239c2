"""The recorded answers of the upstream allocator: same verdict, same devices, except for the differences that are documented."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dray.api.quantity import Quantity
from dray.cli.allocate import _answer
from tests.devices.differences import ALL_IS_A_NODE_ERROR, DIFFERENT, kind_of

Json = dict[str, Any]
ROOT = Path(__file__).parents[2]
VECTORS = ROOT / ".." / "shared" / "vectors"

needs_vectors = pytest.mark.skipif(not VECTORS.is_dir(), reason="the recorded upstream answers (../shared/vectors) are not here")


@cache
def table() -> dict[str, Json]:
    return {path.stem: json.loads(path.read_bytes()) for path in sorted((VECTORS / "allocator").glob("*.json"))}


@cache
def fuzz() -> dict[str, Json]:
    with (VECTORS / "allocator-fuzz-sample.jsonl").open("rb") as lines:
        return {case["id"]: case for case in map(json.loads, lines)}


def names(cases: Any) -> list[str]:
    return list(cases()) if VECTORS.is_dir() else []


def ask(question: Json, **more: Any) -> Json:
    """``dray allocate`` on one line, through JSON both ways."""
    answer, answered = _answer(json.dumps({**question, **more}).encode())
    assert answered, answer
    plain: Json = json.loads(msgspec.json.encode(answer))
    return plain


def comparable(result: Json) -> Json:
    """A result without what is random (share ids), what upstream does not write (groups), and how quantities are spelt."""
    devices = result.get("devices") or {}
    found: Json = {"results": [comparable_device(device) for device in devices.get("results") or ()]}
    found["config"] = [{key: value for key, value in entry.items() if value} for entry in devices.get("config") or ()]
    found["nodeSelector"] = result.get("nodeSelector")
    return found


def comparable_device(device: Json) -> Json:
    kept = {key: value for key, value in device.items() if key not in ("shareID", "compatibilityGroups")}
    kept["shared"] = "shareID" in device
    if "consumedCapacity" in device:
        kept["consumedCapacity"] = {name: Quantity.parse(value).nanos for name, value in device["consumedCapacity"].items()}
    if "tolerations" in device:
        kept["tolerations"] = [{key: value for key, value in each.items() if value} for each in device["tolerations"]]
    return kept


def in_any_order(results: list[Json]) -> list[str]:
    return sorted(json.dumps(comparable(result), sort_keys=True) for result in results)


def table_question(case: Json) -> Json:
    kept = ("features", "node", "classes", "slices", "allocatedClaims", "claims")
    return {"raw": True, **{key: case[key] for key in kept if case.get(key) is not None}}


@needs_vectors
@pytest.mark.parametrize("name", names(table))
def test_table_case_has_upstreams_answer(name: str) -> None:
    case = table()[name]
    upstream = case["actual"]["experimental"]
    answer = ask(table_question(case), upstreamOrder=kind_of(name) == "binding-conditions-by-device")
    if kind_of(name) == "compatibility-groups-off":
        assert answer["ok"]
        return
    assert answer["ok"] == (not upstream.get("error") and len(upstream.get("results") or []) == len(case["claims"] or []))
    assert in_any_order(answer.get("results", [])) == in_any_order(upstream.get("results") or [])
    assert bool(answer.get("error")) == bool(upstream.get("error"))
    if case["expectErrorSubstring"]:
        assert case["expectErrorSubstring"] in answer["error"]


@needs_vectors
@pytest.mark.parametrize("name", names(fuzz))
def test_fuzz_case_has_upstreams_answer(name: str) -> None:
    case = fuzz()[name]
    upstream = case["answer"]
    answer = ask(case["input"], upstreamOrder=kind_of(name) == "binding-conditions-by-device")
    if kind_of(name) == "compatibility-groups-off":
        assert answer["ok"]
        assert not upstream["ok"]
        return
    assert answer["ok"] == upstream["ok"]
    assert [comparable(result) for result in answer.get("results", [])] == [
        comparable(result) for result in upstream.get("results") or []
    ]
    assert answer.get("error", "") == upstream.get("error", "")
    everything = "asks for all devices, but resource pool" in upstream.get("error", "")
    assert answer.get("nodeError", False) == (everything or upstream.get("nodeError", False))


@needs_vectors
@pytest.mark.parametrize("name", sorted(DIFFERENT["binding-conditions-by-device"]))
def test_devices_without_binding_conditions_come_first_where_upstream_goes_by_pool(name: str) -> None:
    """Same verdict as upstream, and no device with conditions where upstream found one without."""
    question, upstream = (
        (table_question(table()[name]), table()[name]["actual"]["experimental"])
        if name in table()
        else (fuzz()[name]["input"], fuzz()[name]["answer"])
    )
    answer = ask(question)
    assert answer["ok"] == bool(upstream.get("results"))
    assert conditioned(answer) <= conditioned(upstream)
    assert [comparable(result) for result in answer.get("results", [])] != [
        comparable(result) for result in upstream.get("results") or []
    ] or answer.get("error") != upstream.get("error")


def conditioned(answer: Json) -> int:
    return sum(
        bool(device.get("bindingConditions"))
        for result in answer.get("results") or ()
        for device in result["devices"].get("results", ())
    )


@needs_vectors
def test_no_other_case_differs_in_the_order_of_devices() -> None:
    different = set()
    for name, case in fuzz().items():
        answer = ask(case["input"])
        if [comparable(result) for result in answer.get("results", [])] != [
            comparable(r) for r in case["answer"].get("results") or []
        ]:
            different.add(name)
    listed = DIFFERENT["binding-conditions-by-device"] | DIFFERENT["compatibility-groups-off"]
    assert different <= listed


def test_every_kind_of_difference_is_on_the_fidelity_page() -> None:
    page = (ROOT / "docs" / "fidelity.md").read_text()
    for kind in (*DIFFERENT, ALL_IS_A_NODE_ERROR):
        assert f'<a id="{kind}"></a>' in page, kind
