"""The scenarios of the design's section on testing, by name, with simulated kubelets on virtual time."""

from __future__ import annotations

import pytest

from dray.api.kinds import PODS
from dray.numa.placement import OBSERVED, PREDICTED
from tests.numa.clusters import GPU, Json, ZonedCluster, aligned_pod, zoned_node

CPU4 = {"cpus": 4, "memory": "8Gi"}
GPUS = {"cpus": 16, "memory": "64Gi", "devices": {GPU: 4}}


class TestInCycleConsistency:
    def test_of_three_three_and_two_cores_exactly_the_two_that_can_be_aligned_are_placed(self) -> None:
        cluster = ZonedCluster(zoned_node("n1", CPU4, CPU4))
        cluster.create(aligned_pod("a", 3), aligned_pod("b", 3), aligned_pod("c", 2))
        cluster.run(120)
        assert [cluster.phase(name) for name in "abc"] == ["Running", "Running", "Pending"]
        assert cluster.refused == 0

    def test_single_gpu_pods_fill_a_node_whose_cores_are_scarce_by_zone(self) -> None:
        cluster = ZonedCluster(zoned_node("n1", {**GPUS, "cpus": 7}, {**GPUS, "cpus": 7}))
        cluster.create(*(aligned_pod(f"p{number}", 2, gpu=1) for number in range(8)))
        cluster.run(120)
        assert sorted(cluster.phase(f"p{n}") for n in range(8)) == ["Pending"] * 2 + ["Running"] * 6
        assert cluster.refused == 0


class TestRestrictedMerge:
    @pytest.mark.parametrize(
        ("gpus", "zone", "cores", "runs"),
        [(6, GPUS, 10, False), (6, GPUS, 24, True), (4, {**GPUS, "devices": {GPU: 2}}, 1, False)],
    )
    def test_the_worked_examples(self, gpus: int, zone: dict[str, object], cores: int, runs: bool) -> None:
        cluster = ZonedCluster(zoned_node("n1", zone, zone, policy="restricted", memoryManagerPolicy="None"))
        cluster.create(aligned_pod("p", cores, gpu=gpus))
        cluster.run(60)
        assert (cluster.phase("p") == "Running") is runs
        assert cluster.refused == 0
        if runs:
            assert set(cluster.zones_of("p", OBSERVED)) == {"node-0", "node-1"}


class TestStaleNodes:
    """Topology objects are published a minute late."""

    def churn(self, **options: object) -> ZonedCluster:
        cluster = ZonedCluster(*(zoned_node(f"n{n}", GPUS, GPUS) for n in range(2)), **options)  # type: ignore[arg-type]
        shapes = [(4, 1), (6, 2), (10, 3), (5, 0)]
        for number in range(60):
            cores, gpus = shapes[number % 4]
            lasts = {"dray.dev/finishes-after": f"{20 + number * 7 % 50}s"}
            cluster.create(aligned_pod(f"p{number}", cores, gpus, annotations=lasts))
            cluster.run(4)
        cluster.run(120)
        return cluster

    def test_the_scheduler_places_no_pod_that_a_kubelet_would_refuse(self) -> None:
        cluster = self.churn()
        assert cluster.refused == 0
        done = [pod for pod in cluster.all(PODS) if pod["status"]["phase"] == "Succeeded"]
        assert len(done) > 30

    def test_who_believes_what_is_published_still_counts_what_was_decided_since(self) -> None:
        cluster = self.churn(reconstruct=False)
        assert cluster.refused <= 3

    def test_without_an_exporter_predictions_do(self) -> None:
        cluster = ZonedCluster(zoned_node("n1", CPU4, CPU4, exporter=None))
        cluster.create(aligned_pod("a", 3))
        cluster.run(30)
        cluster.create(aligned_pod("b", 2))
        cluster.run(30)
        assert (cluster.zones_of("a", OBSERVED), cluster.zones_of("b", PREDICTED)) == (
            {},
            {"node-1": {"cpu": "2", "memory": "1048576"}},
        )
        assert cluster.phase("b") == "Running"


class TestPreemption:
    def test_evicting_frees_a_slot_that_can_be_used_and_nobody_else_is_evicted(self) -> None:
        cluster = ZonedCluster(zoned_node("n1", CPU4, CPU4))
        cluster.create(
            {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 100},
            *(aligned_pod(name, 2) for name in "abcd"),
        )
        cluster.run(60)
        assert [cluster.phase(name) for name in "abcd"] == ["Running"] * 4
        cluster.create(aligned_pod("urgent", 4, priorityClassName="high"))
        cluster.run(60)
        assert cluster.phase("urgent") == "Running"
        assert sum(cluster.get(PODS, name) is not None for name in "abcd") == 2
        assert cluster.refused == 0

    def test_a_published_zone_that_still_shows_the_victim_does_not_cost_a_second_one(self) -> None:
        """The over-eviction of the appendix: what is published lags behind what was evicted."""
        cluster = ZonedCluster(zoned_node("n1", CPU4, CPU4, after="300s"))
        cluster.create(
            {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 100},
            aligned_pod("a", 4),
            aligned_pod("b", 4),
        )
        cluster.run(30)
        cluster.create(aligned_pod("urgent", 3, priorityClassName="high"))
        cluster.run(60)
        assert cluster.phase("urgent") == "Running"
        assert sum(cluster.get(PODS, name) is not None for name in "ab") == 1

    @pytest.mark.parametrize("seed", range(3))
    def test_without_an_exporter_the_worst_is_a_wasted_eviction_and_never_a_loop(self, seed: int) -> None:
        """Which of four equal pods is where is not known for sure; who is refused is made anew, and finds a zone in the end."""
        cluster = ZonedCluster(zoned_node("n1", CPU4, CPU4, exporter=None), seed=seed)
        cluster.create(
            {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 100},
            set_of(aligned_pod("low", 2), 4),
        )
        cluster.run(60)
        cluster.create(set_of(aligned_pod("urgent", 4, priorityClassName="high")))
        cluster.run(400)
        assert "Running" in {pod["status"]["phase"] for pod in cluster.all(PODS, app="urgent")}
        assert cluster.refused <= 2
        assert len([pod for pod in cluster.all(PODS, app="low") if pod["status"]["phase"] == "Running"]) == 2


def set_of(pod: Json, replicas: int = 1) -> Json:
    name = pod["metadata"]["name"]
    template = {"metadata": {"labels": {"app": name}}, "spec": pod["spec"]}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name}, "spec": spec}


class TestKubeletsThatRefuse:
    def test_a_set_whose_pods_are_refused_does_not_make_hundreds_of_them(self) -> None:
        """A foreign pod has the zone, came when no scheduler ran, nobody reports it, and nobody waits for it."""
        cluster = ZonedCluster(zoned_node("n1", CPU4, CPU4, exporter=None, after="600s"), wait=0.0)
        cluster.create(aligned_pod("foreign", 3, nodeName="n1", schedulerName="another"))
        cluster.run(10)
        cluster.crash("scheduler")
        cluster.run(5)
        cluster.create(aligned_pod("ours", 3))
        cluster.run(10)
        cluster.create(set_of(aligned_pod("x", 2)))
        cluster.run(300)
        assert 1 <= cluster.refused <= 6

    def test_what_a_memory_manager_refuses_where_the_policy_never_does_is_not_tried_in_a_loop_either(self) -> None:
        """One zone serves a pod alone, so no Memory Manager joins it with the other; policy best-effort is asked all the same."""
        cluster = ZonedCluster(zoned_node("n1", CPU4, CPU4, policy="best-effort"))
        cluster.create(aligned_pod("small", 1, memory="2Gi"))
        cluster.run(20)
        cluster.create(set_of(aligned_pod("x", 1, memory="12Gi")))
        cluster.run(300)
        failed = [pod for pod in cluster.all(PODS) if pod["status"].get("reason") == "UnexpectedAdmissionError"]
        assert 1 <= len(failed) <= 6


class TestNodeCrashes:
    def test_a_kubelet_that_starts_again_knows_who_has_what(self) -> None:
        cluster = ZonedCluster(zoned_node("n1", CPU4, CPU4))
        cluster.create(aligned_pod("a", 3), aligned_pod("b", 3))
        cluster.run(30)
        before = {name: cluster.zones_of(name, OBSERVED) for name in "ab"}
        cluster.crash("nodes")
        cluster.run(30)
        cluster.create(aligned_pod("c", 1))
        cluster.run(30)
        assert {name: cluster.zones_of(name, OBSERVED) for name in "ab"} == before
        assert cluster.phase("c") == "Running"
