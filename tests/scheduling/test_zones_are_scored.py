"""Which of the nodes that will do is best by its zones, and how far a pod itself lets its zones be spread."""

from __future__ import annotations

from typing import Any

import pytest
from scheduling_cluster import Sim, pod
from zoned import add_zoned, aligned, record, topology

from dray.api import kinds
from dray.scheduling.arguments import ZoneArgs
from dray.scheduling.config import Config, Profile
from dray.scheduling.configuration import ConfigError, load

CPU8 = {"cpu": 8}
# Only zones decide.
ALONE = (("NUMA", 1),)


def by(strategy: str = "LeastNUMANodes", **args: Any) -> Sim:
    return Sim(Config((Profile(scores=ALONE, zones=ZoneArgs(strategy=strategy, **args)),)))


def limited(name: str, cores: int, **annotations: str) -> dict[str, Any]:
    made = pod(name, **aligned(cores))
    made["metadata"]["annotations"] = {f"dray.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    return made


class TestBestEffort:
    def test_a_pod_goes_where_it_can_be_aligned(self) -> None:
        sim = by()
        add_zoned(sim, "narrow", {"cpu": 4}, {"cpu": 4}, policy="best-effort")
        add_zoned(sim, "wide", {"cpu": 6}, {"cpu": 2}, policy="best-effort")
        sim.add_pod("p", **aligned(5))
        sim.settle()
        assert record(sim, "p") == {"node-0": {"cpu": "5"}}
        assert sim.node_of("p") == "wide"

    def test_and_elsewhere_rather_than_nowhere(self) -> None:
        sim = by()
        add_zoned(sim, "narrow", {"cpu": 4}, {"cpu": 4}, policy="best-effort")
        sim.add_pod("p", **aligned(5))
        sim.settle()
        assert set(record(sim, "p")) == {"node-0", "node-1"}

    def test_a_node_that_aligns_nothing_is_worth_less(self) -> None:
        sim = by()
        add_zoned(sim, "indifferent", CPU8, CPU8, policy="none")
        add_zoned(sim, "willing", CPU8, CPU8, policy="best-effort")
        sim.add_pod("p", **aligned(5))
        sim.settle()
        assert sim.node_of("p") == "willing"


class TestStrategies:
    @pytest.mark.parametrize(("strategy", "chosen"), [("LeastAllocated", "large"), ("MostAllocated", "small")])
    def test_zones_are_spread_or_packed(self, strategy: str, chosen: str) -> None:
        sim = by(strategy)
        add_zoned(sim, "small", {"cpu": 6}, {"cpu": 6})
        add_zoned(sim, "large", {"cpu": 32}, {"cpu": 32})
        sim.add_pod("p", **aligned(4))
        sim.settle()
        assert sim.node_of("p") == chosen

    def test_zones_are_used_evenly(self) -> None:
        sim = by("BalancedAllocation")
        gpu = "nvidia.com/gpu"
        add_zoned(sim, "uneven", {"cpu": 32, gpu: 2}, {"cpu": 32, gpu: 2})
        add_zoned(sim, "even", {"cpu": 8, gpu: 4}, {"cpu": 8, gpu: 4})
        sim.add_pod("p", **aligned(4, gpu=2))
        sim.settle()
        assert sim.node_of("p") == "even"

    def test_zones_that_are_near_to_each_other_are_better_where_that_is_asked_for(self) -> None:
        """Two of four zones are needed, and only those that are far from each other have room."""
        sim = by(distances=True)
        for name, cpus in (("far", (4, 1, 1, 4)), ("near", (4, 4, 1, 1))):
            zones = [{"cpu": cpu} for cpu in cpus]
            add_zoned(sim, name, *zones, policy="best-effort")
            made = topology(name, *zones, policy="best-effort")
            for number, zone in enumerate(made["zones"]):
                apart = [10 if other == number else 12 if other // 2 == number // 2 else 32 for other in range(4)]
                zone["costs"] = [{"name": f"node-{other}", "value": value} for other, value in enumerate(apart)]
            sim.api.put(kinds.NODE_RESOURCE_TOPOLOGIES, made)
        sim.add_pod("p", **aligned(8))
        sim.settle()
        assert sim.node_of("p") == "near"


class TestWhatAPodSaysItself:
    def test_it_may_refuse_to_be_spread_where_the_kubelet_would_spread_it(self, sim: Sim) -> None:
        add_zoned(sim, "narrow", {"cpu": 4}, {"cpu": 4}, policy="best-effort")
        sim.api.put(kinds.PODS, limited("p", 5, numa_span="1"))
        sim.settle()
        assert sim.node_of("p") == ""
        assert "at least 2 zones for the pod, which allows 1" in sim.condition("p")["message"]
        add_zoned(sim, "wide", {"cpu": 6}, {"cpu": 2}, policy="best-effort")
        sim.settle(30)
        assert sim.node_of("p") == "wide"

    def test_pods_that_say_something_else_do_not_share_its_answer(self, sim: Sim) -> None:
        add_zoned(sim, "narrow", {"cpu": 4}, {"cpu": 4}, policy="best-effort")
        sim.api.put(kinds.PODS, limited("p", 5, numa_span="1"))
        sim.api.put(kinds.PODS, limited("q", 5, numa_span="2"))
        sim.settle()
        assert [sim.node_of(name) for name in "pq"] == ["", "narrow"]

    def test_what_cannot_be_read_is_told(self, sim: Sim) -> None:
        add_zoned(sim, "n1", CPU8, CPU8)
        sim.api.put(kinds.PODS, limited("p", 5, numa_span="one"))
        sim.settle()
        assert "'one' is not a positive whole number" in sim.condition("p")["message"]


class TestConfiguration:
    def text(self, args: str) -> str:
        head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        return head + f"profiles:\n- pluginConfig:\n  - name: NUMA\n    args: {args}\n"

    def test_arguments_are_read(self) -> None:
        args = '{ignoreList: [memory], reconstructAvailable: "false", placementWait: 3s, scoringStrategy: {type: MostAllocated}}'
        (profile,) = load(self.text(args)).profiles
        assert profile.zones == ZoneArgs(frozenset({"memory"}), False, 3.0, "MostAllocated")

    def test_arguments_as_kai_writes_them_are_read(self) -> None:
        (profile,) = load(self.text('{ignoreList: " memory , cpu,", reconstructAvailable: "true"}')).profiles
        assert profile.zones.ignored == {"memory", "cpu"}
        assert profile.zones.reconstruct

    @pytest.mark.parametrize(
        ("args", "told"),
        [
            ("{scoringStrategy: {type: Best}}", "unknown strategy 'Best'"),
            ('{reconstructAvailable: "perhaps"}', "must be true or false"),
            ("{placementWait: soon}", "is not a duration"),
            ("{ignorelist: []}", "ignorelist"),
        ],
    )
    def test_what_is_wrong_is_named(self, args: str, told: str) -> None:
        with pytest.raises(ConfigError, match=told):
            load(self.text(args))

    def test_it_can_be_switched_off(self) -> None:
        head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        config = load(head + "profiles:\n- plugins: {multiPoint: {disabled: [{name: NUMA}]}}\n")
        assert config.zones is None
        sim = Sim(config)
        add_zoned(sim, "n1", {"cpu": 4}, {"cpu": 4})
        sim.add_pod("p", **aligned(5))
        sim.settle()
        assert (sim.node_of("p"), record(sim, "p")) == ("n1", {})
