"""``impossible`` of a gang: only where it is proven that its minimum has no place on the empty cluster, whoever is there now."""

from __future__ import annotations

import random
from typing import Any

import pytest

from dray.api import kinds
from tests.scheduling.gangs import GPU, add_gang, add_group, add_member, add_queue, asked, cluster, running
from tests.scheduling.scheduling_cluster import Sim
from tests.scheduling.scheduling_cluster import node as made_node


def add_with_claims(sim: Sim, counts: list[int], **extra: Any) -> None:
    add_group(sim, "train", "", len(counts))
    for index, count in enumerate(counts):
        sim.add_claim(f"c{index}", count=count, **extra)
        add_member(sim, f"w{index}", "train", 0, claims=[f"c{index}"])
    sim.settle(3)


def with_devices(*nodes: int) -> Sim:
    sim = cluster(*([0] * len(nodes)))
    sim.add_class()
    for index, count in enumerate(nodes):
        if count:
            sim.add_slice(f"n{index}", count)
    return sim


def fill(sim: Sim, gpus: int) -> None:
    for index in range(gpus):
        sim.add_pod(f"old{index}", requests={GPU: "1"}, priority=10**6)
        sim.settle(1)


class TestImpossible:
    def test_more_than_the_nodes_have_together(self) -> None:
        sim = cluster(4, 4)
        add_gang(sim, 3, 4)
        found = asked(sim, "w0")
        assert found.verdict == "impossible"
        assert found.summary.startswith("pod default/w0 cannot be scheduled, even on an empty cluster: 0/2 nodes are available")
        assert "cannot start as a whole: 2 of 3 pods fit together, and then there is no place for default/w2" in found.summary
        blocked = next(reason for reason in found.reasons if reason.code == "GangBlocked")
        assert blocked.data == {"member": "default/w2", "placed": 2, "needed": 3}

    def test_enough_in_all_and_not_on_the_nodes(self) -> None:
        sim = cluster(5, 5, 5)
        add_gang(sim, 4, 3)
        assert asked(sim, "w3").verdict == "impossible"

    def test_the_empty_cluster_is_told_and_not_who_is_there(self) -> None:
        sim = cluster(4, 4)
        fill(sim, 7)
        add_gang(sim, 3, 4)
        found = asked(sim, "w1")
        assert found.verdict == "impossible"
        assert "2 of 3 pods fit together" in found.summary
        assert "default/w2" in found.summary

    def test_a_member_that_fits_nowhere_makes_it_so_for_all(self) -> None:
        sim = cluster(4, 4)
        add_group(sim, "train", "", 2)
        add_member(sim, "small", "train", 1)
        add_member(sim, "large", "train", 5)
        sim.settle(3)
        found = asked(sim, "small")
        assert found.verdict == "impossible"
        assert "no place for default/large" in found.summary

    @pytest.mark.parametrize("counts", [[2, 2, 2], [3, 1, 1, 1]])
    def test_devices_of_claims_count_too(self, counts: list[int]) -> None:
        sim = with_devices(3, 2)
        add_with_claims(sim, counts)
        assert asked(sim, "w0").verdict == "impossible"

    def test_members_that_differ(self) -> None:
        """Eleven devices for eleven, but the two of five leave one each, and three of two do not fit beside them."""
        sim = with_devices(6, 6)
        add_with_claims(sim, [5, 5, 2])
        assert asked(sim, "w0").verdict == "impossible"

    def test_in_no_domain_of_a_topology(self) -> None:
        sim = Sim()
        for index in range(4):
            labels = {"rack": f"r{index % 2}"}
            sim.api.put(kinds.NODES, made_node(f"n{index}", labels=labels, resources={GPU: "2"}))
        near = {"topologyConstraint": {"topology": "", "requiredTopologyLevel": "rack"}}
        add_group(sim, "train", "", 5, **near)
        for index in range(5):
            add_member(sim, f"w{index}", "train", 1)
        sim.settle(3)
        found = asked(sim, "w0")
        assert found.verdict == "impossible"
        assert "fits into no domain of level rack: 4 of 5 pods fit into r0" in found.summary


class TestNotImpossible:
    def test_what_others_use(self) -> None:
        sim = cluster(4, 4)
        fill(sim, 5)
        add_gang(sim, 2, 4)
        assert asked(sim, "w0").verdict == "unschedulable"

    @pytest.mark.parametrize("limit", ["limit", "quota"])
    def test_what_a_queue_may_not_have(self, limit: str) -> None:
        sim = cluster(4, 4)
        add_queue(sim, "team", 1, **({"limit": 2} if limit == "limit" else {}))
        add_group(sim, "train", "team", 3, preemptibility="non-preemptible")
        for index in range(3):
            add_member(sim, f"w{index}", "train", 1)
        sim.settle(3)
        found = asked(sim, "w0")
        assert found.verdict == "unschedulable"
        assert [reason.code for reason in found.reasons] == ["QueueLimit" if limit == "limit" else "QueueQuota"]

    def test_a_queue_that_may_not_and_a_cluster_that_cannot_are_both_told(self) -> None:
        sim = cluster(4, 4)
        add_queue(sim, "team", 1, limit=2)
        add_group(sim, "train", "team", 3)
        for index in range(3):
            add_member(sim, f"w{index}", "train", 4)
        sim.settle(3)
        found = asked(sim, "w0")
        assert found.verdict == "impossible"
        assert found.summary.startswith("pod default/w0 cannot be scheduled, even on an empty cluster: 0/2 nodes are available")
        assert "; besides, queue team would exceed its limit of gpu" in found.summary

    def test_too_few_pods(self) -> None:
        sim = cluster(1)
        add_gang(sim, 2, 1, minimum=3)
        assert asked(sim, "w0").verdict == "unschedulable"

    def test_pods_above_the_minimum(self) -> None:
        sim = cluster(4, 4)
        add_gang(sim, 3, 4, minimum=2)
        [waits] = {"w0", "w1", "w2"} - running(sim)
        assert asked(sim, waits).verdict == "unschedulable"

    def test_pods_above_a_minimum_that_would_start(self) -> None:
        """Two of four are enough, and two is what the empty cluster has room for."""
        sim = cluster(4, 4)
        fill(sim, 8)
        add_gang(sim, 4, 4, minimum=2)
        assert {asked(sim, f"w{index}").verdict for index in range(4)} == {"unschedulable"}

    def test_whoever_they_must_be_near_may_come(self) -> None:
        sim = cluster(4)
        term = {"labelSelector": {"matchLabels": {"app": "cache"}}, "topologyKey": "kubernetes.io/hostname"}
        affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        add_gang(sim, 2, 1, affinity=affinity)
        assert asked(sim, "w0").verdict == "unschedulable"

    def test_some_of_the_parts(self) -> None:
        """One of two parts is enough, and the one that never fits is not needed."""
        sim = cluster(2)
        fill(sim, 2)
        parts = [{"name": "a", "minMember": 3}, {"name": "b", "minMember": 2}]
        add_group(sim, "train", "", 0, minSubGroup=1, subGroups=parts)
        for index in range(5):
            add_member(sim, f"w{index}", "train", 1, labels={"kai.scheduler/subgroup-name": "a" if index < 3 else "b"})
        sim.settle(3)
        assert asked(sim, "w0").verdict == "unschedulable"


def test_what_is_called_impossible_never_starts_on_the_empty_cluster() -> None:
    """Random gangs on random clusters that others use: what starts when these are gone was not called impossible; and what does
    not start because there are too few devices in all was."""
    rng = random.Random(7)
    called = 0
    for _ in range(60):
        sizes = [rng.randint(1, 4) for _ in range(rng.randint(1, 3))]
        sim = with_devices(*sizes)
        for index in range(rng.randint(0, 3)):
            sim.add_claim(f"old{index}")
            sim.add_pod(f"old{index}", claims=[f"old{index}"], priority=10**6)
        sim.settle(2)
        counts = [rng.randint(1, 3) for _ in range(rng.randint(2, 4))]
        add_with_claims(sim, counts)
        verdict = asked(sim, "w0").verdict
        for index in range(3):
            for kind in (kinds.PODS, kinds.RESOURCE_CLAIMS):
                if f"default/old{index}" in sim.api.objects[kind]:
                    sim.remove(kind, f"default/old{index}")
                    if f"default/old{index}" in sim.api.objects[kind]:
                        del sim.api.objects[kind][f"default/old{index}"]
        sim.settle(20)
        starts = "w0" in running(sim)
        called += verdict == "impossible"
        assert not (starts and verdict == "impossible"), (sizes, counts)
        assert verdict == "impossible" or sum(counts) <= sum(sizes), (sizes, counts)
    assert called > 10
