"""Variations of the recorded clusters, answered by the upstream allocator itself and by Dray, in upstream's order of pools."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.allocators import Allocator, upstream_allocator
from tests.devices.test_upstream_vectors import ask, comparable, fuzz, needs_vectors
from tests.real.upstream.binaries import Unavailable

Json = dict[str, Any]
pytestmark = [pytest.mark.real, needs_vectors]
OFTEN_OFF = ("ListTypeAttributes", "PartitionableDevices", "ConsumableCapacity", "DeviceTaints", "DeviceBindingAndStatus")


@pytest.fixture(scope="module")
def upstream() -> Iterator[Allocator]:
    try:
        running = upstream_allocator(pod_seconds=3)
    except Unavailable as error:
        pytest.skip(str(error))
    with running:
        yield running


def varied(pick: random.Random) -> Json:
    """A recorded cluster on another node, with other claims, gates, taints and counts."""
    cases = list(fuzz().values())
    line: Json = copy.deepcopy(pick.choice(cases)["input"])
    line["node"] = pick.choice(line.pop("nodes"))
    if pick.random() < 0.3:
        line["allocatedClaims"] = [each for each in line.get("allocatedClaims") or () if pick.random() < 0.5]
    if pick.random() < 0.3:
        line["claims"] = renamed(copy.deepcopy(pick.choice(cases)["input"]["claims"])) + line["claims"][: pick.randint(0, 1)]
    # With this gate off Dray differs on purpose.
    line["features"] = {name: False for name in OFTEN_OFF if pick.random() < 0.06}
    for slice in line["slices"]:
        slice["spec"]["pool"]["resourceSliceCount"] += pick.random() < 0.02
        for device in slice["spec"].get("devices") or ():
            if pick.random() < 0.05:
                device["taints"] = [{"key": "k", "effect": "NoSchedule"}]
    for claim in line["claims"]:
        for request in claim["spec"]["devices"]["requests"]:
            for wanted in [request["exactly"]] if "exactly" in request else request["firstAvailable"]:
                vary(wanted, pick)
    return line


def renamed(claims: list[Json]) -> list[Json]:
    for number, claim in enumerate(claims):
        claim["metadata"] |= {"name": f"other-{number}", "uid": f"uid-other-{number}"}
    return claims


def vary(wanted: Json, pick: random.Random) -> None:
    if wanted.get("allocationMode", "ExactCount") == "ExactCount" and pick.random() < 0.2:
        wanted["count"] = pick.randint(1, 5)
    if pick.random() < 0.05:
        wanted.pop("selectors", None)
    if pick.random() < 0.05:
        wanted["allocationMode"] = "All"
        wanted.pop("count", None)


# The order in which several errors of one pod are found is not upstream's: what no node can mend comes first.
EITHER_ERROR = "asks for all devices, but resource pool"


@pytest.mark.parametrize("seed", range(10))
def test_a_varied_cluster_has_upstreams_answer(upstream: Allocator, seed: int) -> None:
    pick = random.Random(seed)
    for _ in range(40):
        line = varied(pick)
        theirs = upstream.answer(line)
        if "aborted" in theirs.get("error", ""):
            continue
        ours = ask(line, upstreamOrder=True)
        assert ours["ok"] == theirs["ok"], line
        assert [comparable(each) for each in ours.get("results", [])] == [
            comparable(each) for each in theirs.get("results") or []
        ], line
        if EITHER_ERROR not in theirs.get("error", ""):
            assert ours.get("error", "") == theirs.get("error", ""), line
