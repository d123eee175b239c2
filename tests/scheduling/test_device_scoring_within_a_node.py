"""Which of a node's devices are taken, by strategy."""

from __future__ import annotations

from typing import Any

import pytest
from scheduling_cluster import Sim, slice_of

from dray.api import kinds
from dray.devices import Rating
from dray.scheduling.config import Config, Profile
from dray.scheduling.plugins.device_scoring import Points

ROOT = "resource.kubernetes.io/pcieRoot"
FIRST_FIT = ["Upstream", "Ready"]


def cluster(strategy: str, *devices: dict[str, Any], counters: dict[str, str] | None = None) -> Sim:
    """One node with these devices; ``counters``: a counter set by this name with so much memory."""
    sim = Sim(Config(profiles=(Profile(device_scoring=strategy),)))
    sim.add_class()
    sim.add_node("n1", cpu="64", memory="256Gi")
    slices = [slice_of("n1", 0)]
    slices[0]["spec"]["devices"] = list(devices)
    if counters:
        slices.append(slice_of("n1", 0))
        slices[1]["metadata"]["name"] = "n1-counters"
        del slices[1]["spec"]["devices"]
        slices[1]["spec"]["sharedCounters"] = [
            {"name": name, "counters": {"memory": {"value": amount}}} for name, amount in counters.items()
        ]
    for each in slices:
        each["spec"]["pool"]["resourceSliceCount"] = len(slices)
        sim.api.put(kinds.RESOURCE_SLICES, each)
    return sim


def gpu(name: str, memory: str = "80Gi", *, root: str = "", **more: Any) -> dict[str, Any]:
    attributes = {"attributes": {ROOT: {"string": root}}} if root else {}
    return {"name": name, "capacity": {"memory": {"value": memory}}, **attributes, **more}


def partition(name: str, card: str, memory: str) -> dict[str, Any]:
    return gpu(name, memory, consumesCounters=[{"counterSet": card, "counters": {"memory": {"value": memory}}}])


def devices_of(sim: Sim, claim: str) -> list[str]:
    return [result["device"] for result in sim.claim(claim)["status"]["allocation"]["devices"]["results"]]


def place(sim: Sim, name: str, memory: str = "", count: int = 1) -> list[str]:
    """A pod with a claim of its own; the devices that it got."""
    exactly: dict[str, Any] = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}
    if memory:
        exactly["capacity"] = {"requests": {"memory": memory}}
    sim.add_claim(name, spec={"devices": {"requests": [{"name": "req", "exactly": exactly}]}})
    sim.add_pod(name, claims=[name])
    sim.settle()
    assert sim.node_of(name) == "n1"
    return devices_of(sim, name)


def test_packing_takes_the_small_partition_for_a_small_request() -> None:
    sim = cluster("Packing", partition("large", "card", "40Gi"), partition("small", "card", "10Gi"), counters={"card": "80Gi"})
    assert place(sim, "p", "1Gi") == ["small"]


def test_packing_puts_the_second_share_on_the_card_that_is_partly_used() -> None:
    shared = [gpu(f"gpu-{n}", size, allowMultipleAllocations=True) for n, size in enumerate(["80Gi", "40Gi"])]
    sim = cluster("Packing", *shared)
    assert [place(sim, name, "10Gi") for name in ("a", "b", "c")] == [["gpu-1"]] * 3


def test_packing_fills_a_card_before_it_opens_the_next() -> None:
    parts = [partition(f"{card}-{n}", card, "20Gi") for n in range(2) for card in ("a", "b")]
    sim = cluster("Packing", *parts, counters={"a": "40Gi", "b": "40Gi"})
    assert [place(sim, f"p{n}", "1Gi")[0] for n in range(3)] == ["a-0", "a-1", "b-0"]


def test_packing_puts_two_gpus_of_a_pod_on_one_pci_root() -> None:
    sim = cluster("Packing", gpu("gpu-0", root="a"), gpu("gpu-1", root="b"), gpu("gpu-2", root="b"))
    assert place(sim, "p", count=2) == ["gpu-1", "gpu-2"]


def test_packing_puts_the_claims_of_a_pod_on_one_pci_root() -> None:
    sim = cluster("Packing", gpu("gpu-0", root="a"), gpu("gpu-1", root="b"), gpu("gpu-2", root="b"))
    for name in ("x", "y"):
        sim.add_claim(name)
    sim.add_pod("p", claims=["x", "y"])
    sim.settle()
    assert devices_of(sim, "x") + devices_of(sim, "y") == ["gpu-1", "gpu-2"]


@pytest.mark.parametrize("strategy", FIRST_FIT)
def test_off_gives_the_first_fit(strategy: str) -> None:
    sim = cluster(strategy, partition("large", "card", "40Gi"), partition("small", "card", "10Gi"), counters={"card": "80Gi"})
    assert place(sim, "p", "1Gi") == ["large"]
    sim = cluster(strategy, gpu("gpu-0", root="a"), gpu("gpu-1", root="b"), gpu("gpu-2", root="b"))
    assert place(sim, "p", count=2) == ["gpu-0", "gpu-1"]


def test_the_score_of_a_node_can_be_taken_apart() -> None:
    sim = cluster("Packing", partition("large", "card", "40Gi"), partition("small", "card", "10Gi"), counters={"card": "80Gi"})
    place(sim, "p", "1Gi")
    sim.add_claim("next")
    claim = sim.world.get(kinds.RESOURCE_CLAIMS, "default/next")
    assert claim is not None
    scorer = sim.scheduler.cycle.devices.scorer
    score = scorer.breakdown([claim], "n1", sim.config.profiles[0])
    assert score is not None
    assert score.rating == Rating(rank=0, ready=True, taken=1000, broken=1000, apart=0, used=500)
    assert score.points == Points(ready=22_000, waste=0, close=4_000, used=3_000)
    assert score.text() == (
        "n1: all devices ready, takes 100% of the largest device, 50% of the node's devices in use before\n"
        "  gpu.example.com/n1/large for req: a partition, 50% of a card that was partly in use, of which 37.5% stays free"
    )


def test_there_is_no_score_where_the_claims_do_not_fit() -> None:
    sim = cluster("Packing", gpu("only"))
    sim.add_claim("two", count=2)
    claim = sim.world.get(kinds.RESOURCE_CLAIMS, "default/two")
    assert claim is not None
    assert sim.scheduler.cycle.devices.scorer.breakdown([claim], "n1", sim.config.profiles[0]) is None
