"""Which of the nodes whose devices fit is taken."""

from __future__ import annotations

from typing import Any

import pytest
from scheduling_cluster import Sim, slice_of

from dray.api import kinds
from dray.devices import Rating
from dray.scheduling.config import Config, Profile
from dray.scheduling.plugins.device_scoring import points

ROOT = "resource.kubernetes.io/pcieRoot"


def cluster(strategy: str) -> Sim:
    sim = Sim(Config(profiles=(Profile(device_scoring=strategy),)))
    sim.add_class()
    for name in ("n1", "n2", "n3"):
        sim.add_node(name, cpu="64", memory="256Gi")
        sim.add_slice(name, 4)
    return sim


def run(sim: Sim, count: int, first: int = 0) -> list[str]:
    for index in range(first, first + count):
        sim.add_claim(f"c{index}")
        sim.add_pod(f"p{index}", claims=[f"c{index}"])
        sim.settle()
    return [sim.node_of(f"p{index}") for index in range(first, first + count)]


def test_packing_fills_one_node_before_the_next() -> None:
    placed = run(cluster("Packing"), 6)
    assert placed == ["n1"] * 4 + [placed[4]] * 2


def test_packing_leaves_whole_nodes_for_those_who_need_them() -> None:
    sim = cluster("Packing")
    run(sim, 3)
    for name in ("whole-1", "whole-2"):
        sim.add_claim(name, count=4)
        sim.add_pod(name, claims=[name])
    sim.settle()
    assert {sim.node_of("whole-1"), sim.node_of("whole-2")} == {"n2", "n3"}


def test_packing_follows_what_is_given_back() -> None:
    sim = cluster("Packing")
    run(sim, 5)
    fifth = sim.node_of("p4")
    for index in range(4):
        sim.remove(kinds.PODS, f"default/p{index}")
        sim.api.put(kinds.RESOURCE_CLAIMS, {**sim.claim(f"c{index}"), "status": {}})
    assert run(sim, 1, first=10) == [fifth]


def test_packing_outweighs_what_pods_take_of_cpu_and_memory() -> None:
    sim = cluster("Packing")
    for index in range(4):
        sim.add_claim(f"c{index}")
        sim.add_pod(f"p{index}", claims=[f"c{index}"], cpu="16", memory="64Gi")
        sim.settle()
    assert {sim.node_of(f"p{index}") for index in range(4)} == {"n1"}


# ------------------------------------------------------------------------------------------------------ waste between nodes


def gpu(name: str, memory: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "capacity": {"memory": {"value": memory}}, **more}


def card(sim: Sim, node: str, *sizes: str, whole: str = "80Gi") -> None:
    """A node with a card that is published whole and in partitions of these sizes."""
    published = [("whole", whole), *((f"part-{i}", size) for i, size in enumerate(sizes))]
    devices = slice_of(node, 0)
    devices["spec"]["devices"] = [
        gpu(name, size, consumesCounters=[{"counterSet": "card", "counters": {"memory": {"value": size}}}])
        for name, size in published
    ]
    counters = slice_of(node, 0)
    counters["metadata"]["name"] = f"{node}-counters"
    del counters["spec"]["devices"]
    counters["spec"]["sharedCounters"] = [{"name": "card", "counters": {"memory": {"value": whole}}}]
    for each in (devices, counters):
        each["spec"]["pool"]["resourceSliceCount"] = 2
        sim.api.put(kinds.RESOURCE_SLICES, each)


def plain(sim: Sim, node: str, *devices: dict[str, Any]) -> None:
    made = slice_of(node, 0)
    made["spec"]["devices"] = list(devices)
    sim.api.put(kinds.RESOURCE_SLICES, made)


def place(sim: Sim, name: str, memory: str, count: int = 1, **more: Any) -> str:
    exactly = {
        "deviceClassName": "gpu",
        "allocationMode": "ExactCount",
        "count": count,
        "capacity": {"requests": {"memory": memory}},
    }
    sim.add_claim(name, spec={"devices": {"requests": [{"name": "req", "exactly": exactly}]}})
    sim.add_pod(name, claims=[name], **more)
    sim.settle()
    return sim.node_of(name)


def empty(*nodes: str, strategy: str = "Packing") -> Sim:
    sim = Sim(Config(profiles=(Profile(device_scoring=strategy),)))
    sim.add_class()
    for name in nodes:
        sim.add_node(name, cpu="64", memory="256Gi")
    return sim


def test_a_small_request_goes_to_a_small_device_and_not_to_a_card_that_it_would_split() -> None:
    sim = empty("a-card", "b-small")
    card(sim, "a-card", "10Gi", "10Gi", "40Gi")
    plain(sim, "b-small", gpu("small", "20Gi"))
    assert place(sim, "first", "10Gi") == "b-small"
    assert place(sim, "second", "10Gi") == "a-card"


def test_a_partition_of_a_card_in_use_is_better_than_a_larger_device() -> None:
    sim = empty("a-small", "b-card")
    plain(sim, "a-small", gpu("small", "20Gi"))
    card(sim, "b-card", "40Gi", "10Gi", "10Gi", "30Gi")
    assert place(sim, "large", "40Gi") == "b-card"
    assert place(sim, "small", "10Gi") == "b-card"


def test_a_partition_that_breaks_a_card_is_better_than_a_whole_device_of_that_size() -> None:
    sim = empty("a-large", "b-card")
    plain(sim, "a-large", gpu("large", "80Gi"))
    card(sim, "b-card", "40Gi", "10Gi")
    assert place(sim, "small", "10Gi") == "b-card"


def test_of_two_cards_in_use_the_one_is_taken_that_keeps_its_large_partition() -> None:
    sim = empty("a-room", "b-full")
    card(sim, "a-room", "40Gi", "40Gi", "10Gi", "10Gi")
    card(sim, "b-full", "60Gi", "10Gi", "10Gi")
    assert place(sim, "half", "40Gi") == "a-room"
    assert place(sim, "most", "50Gi") == "b-full"
    assert [place(sim, f"small-{i}", "10Gi") for i in range(3)] == ["b-full", "b-full", "a-room"]


def test_a_share_goes_to_the_device_on_which_least_is_free() -> None:
    sim = empty("a", "b")
    for node in ("a", "b"):
        plain(sim, node, gpu("shared", "80Gi", allowMultipleAllocations=True))
    assert place(sim, "large", "60Gi") == "a"
    assert place(sim, "other", "40Gi") == "b"
    assert [place(sim, f"small-{i}", "10Gi") for i in range(3)] == ["a", "a", "b"]


def test_a_node_whose_devices_are_close_to_each_other_is_preferred() -> None:
    sim = empty("a-apart", "b-close")
    for node, roots in (("a-apart", "wxyz"), ("b-close", "xxyy")):
        plain(sim, node, *(gpu(f"gpu-{i}", "80Gi", attributes={ROOT: {"string": root}}) for i, root in enumerate(roots)))
    assert place(sim, "pair", "1Gi", count=2) == "b-close"


def test_waste_counts_where_other_pods_have_a_say_too() -> None:
    sim = empty("a-card", "b-small")
    card(sim, "a-card", "10Gi", "10Gi")
    plain(sim, "b-small", gpu("small", "20Gi"))
    term = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "kubernetes.io/hostname"}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    assert place(sim, "p", "10Gi", affinity=apart) == "b-small"


def test_the_better_alternative_outweighs_waste() -> None:
    sim = empty("a-small", "b-large")
    plain(sim, "a-small", gpu("small", "20Gi"))
    plain(sim, "b-large", gpu("large", "80Gi"))
    wanted = [
        {
            "name": f"at-least-{size.lower()}",
            "deviceClassName": "gpu",
            "allocationMode": "ExactCount",
            "count": 1,
            "capacity": {"requests": {"memory": size}},
        }
        for size in ("40Gi", "10Gi")
    ]
    sim.add_claim("c", spec={"devices": {"requests": [{"name": "req", "firstAvailable": wanted}]}})
    sim.add_pod("p", claims=["c"])
    sim.settle()
    assert sim.node_of("p") == "b-large"


def test_sizes_are_compared_anew_when_a_larger_device_appears() -> None:
    sim = empty("a", "b")
    plain(sim, "a", gpu("small-0", "10Gi"), gpu("small-1", "10Gi"))
    assert place(sim, "first", "10Gi") == "a"
    plain(sim, "b", gpu("large-0", "80Gi"), gpu("large-1", "80Gi"))
    assert place(sim, "second", "10Gi") == "a"


def test_the_event_says_what_spoke_for_the_node() -> None:
    sim = empty("a-card", "b-small")
    card(sim, "a-card", "10Gi", "10Gi")
    plain(sim, "b-small", gpu("small", "20Gi"))
    place(sim, "p", "10Gi")
    place(sim, "q", "10Gi")
    assert [event["note"] for event in sim.events("Scheduled")] == [
        (
            "Successfully assigned default/p to b-small: all devices ready, takes 25% of the largest device, "
            "0% of the node's devices in use before"
        ),
        (
            "Successfully assigned default/q to a-card: all devices ready, takes 12.5% of the largest device, "
            "breaks a piece of 100%, 0% of the node's devices in use before"
        ),
    ]


def test_off_the_first_node_that_fits_is_taken() -> None:
    sim = empty("a-card", "b-small", strategy="Upstream")
    card(sim, "a-card", "10Gi", "10Gi")
    plain(sim, "b-small", gpu("small", "20Gi"))
    assert place(sim, "p", "10Gi") == "a-card"
    assert [event["note"] for event in sim.events("Scheduled")] == ["Successfully assigned default/p to a-card"]


# -------------------------------------------------------------------------------------------------------- without packing


def test_the_most_that_devices_can_add_is_one_step_of_rank() -> None:
    best = Rating(rank=8, ready=True, taken=0, broken=0, apart=0, used=1000)
    for ranked in (1, 2, 3):
        one_step = 100 * 2 * 100 // (8 * ranked)
        assert 0 < sum(points(best, Profile(device_scoring="Packing"), ranked)) <= one_step


@pytest.mark.parametrize("strategy", ["Upstream", "Ready"])
def test_without_packing_pods_spread_by_node_resources(strategy: str) -> None:
    assert sorted(run(cluster(strategy), 3)) == ["n1", "n2", "n3"]
