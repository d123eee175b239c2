"""Which of the nodes whose devices fit is taken."""

from __future__ import annotations

import pytest
from scheduling_cluster import Sim

from dray.api import kinds
from dray.scheduling.config import Config, Profile


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


@pytest.mark.parametrize("strategy", ["Upstream", "Ready"])
def test_without_packing_pods_spread_by_node_resources(strategy: str) -> None:
    assert sorted(run(cluster(strategy), 3)) == ["n1", "n2", "n3"]
