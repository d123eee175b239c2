"""Zones and what is decided for several pods at once: gangs, and pods that move so that others find an aligned slot.

The kubelets really give out zones, so a wrong order shows as a pod that is refused.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from dray.api.kinds import PODS
from tests.numa.clusters import GPU, ZonedCluster, aligned_pod, zoned_node

CPU4 = {"cpus": 4, "memory": "8Gi"}
Json = dict[str, Any]


def queue(name: str, parent: str = "", cpu: int = -1) -> Json:
    amounts = {each: {"quota": -1, "limit": -1, "overQuotaWeight": 1} for each in ("cpu", "gpu", "memory")}
    amounts["cpu"]["quota"] = cpu
    spec = {"resources": amounts} | ({"parentQueue": parent} if parent else {})
    return {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": name}, "spec": spec}


def queues() -> list[Json]:
    return [queue("all"), queue("team", "all")]


def queued(name: str, cpu: int, gang: str = "", **annotations: str) -> Json:
    pod = aligned_pod(name, cpu, annotations={**({"pod-group-name": gang} if gang else {}), **annotations})
    pod["metadata"]["labels"] = {"kai.scheduler/queue": "team"}
    return pod


def deployment(name: str, cpu: int) -> Json:
    pod = queued(name, cpu)
    template = {"metadata": {"labels": {**pod["metadata"]["labels"], "app": name}}, "spec": pod["spec"]}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


def group(name: str, members: int) -> Json:
    """Its pods are nobody's, so they are not to be moved."""
    kind = {"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup"}
    spec = {"minMember": members, "queue": "team", "preemptibility": "non-preemptible"}
    return {**kind, "metadata": {"name": name, "namespace": "default"}, "spec": spec}


def running(cluster: ZonedCluster, app: str) -> list[str]:
    """The zones of the running pods of a deployment."""
    pods = [pod for pod in cluster.all(PODS, app=app) if pod["status"]["phase"] == "Running"]
    return [zone for pod in pods for zone in cluster.zones_of(pod["metadata"]["name"])]


class TestGangs:
    def test_members_that_differ_start_on_one_node(self) -> None:
        cluster = ZonedCluster(zoned_node("n1", CPU4, CPU4))
        cluster.create(*queues(), group("g", 2), queued("leader", 2, "g"), queued("worker", 4, "g"))
        cluster.run(60)
        assert [cluster.phase(name) for name in ("leader", "worker")] == ["Running", "Running"]
        assert cluster.refused == 0

    def test_they_come_to_the_kubelet_in_the_order_in_which_they_fit(self) -> None:
        """The small one would take the empty zone if it came first."""
        cluster = ZonedCluster(zoned_node("n1", CPU4, CPU4))
        cluster.create(*queues(), queued("first", 2), queued("second", 2), queued("third", 2))
        cluster.run(30)
        cluster.delete(PODS, "first")
        cluster.delete(PODS, "second")
        cluster.run(30)
        assert list(cluster.zones_of("third")) == ["node-1"]
        cluster.create(group("g", 2), queued("a-small", 2, "g"), queued("large", 4, "g"))
        cluster.run(60)
        assert [cluster.phase(name) for name in ("a-small", "large")] == ["Running", "Running"]
        assert cluster.refused == 0

    def test_nobody_of_a_gang_starts_that_does_not_fit_as_a_whole(self) -> None:
        cluster = ZonedCluster(zoned_node("n1", CPU4, CPU4))
        members = [queued(f"m{number}", cpu, "g") for number, cpu in enumerate((3, 3, 2))]
        cluster.create(*queues(), group("g", 3))
        cluster.run(2)
        cluster.create(*members)
        cluster.run(60)
        assert [cluster.node_of(f"m{number}") for number in range(3)] == ["", "", ""]

    def test_a_scheduler_that_crashes_between_two_members_starts_the_other_one(self) -> None:
        cluster = ZonedCluster(zoned_node("n1", CPU4, CPU4))
        cluster.create(*queues(), group("g", 2), queued("leader", 2, "g"), queued("worker", 4, "g"))
        cluster.run_until(lambda: any(map(cluster.node_of, ("leader", "worker"))), 30)
        assert not all(map(cluster.node_of, ("leader", "worker")))
        cluster.crash("scheduler")
        cluster.run(60)
        assert [cluster.phase(name) for name in ("leader", "worker")] == ["Running", "Running"]
        assert cluster.refused == 0

    def test_a_member_that_goes_between_two_leaves_no_half_of_its_gang(self) -> None:
        """They are bound one after the other: those that come after it are given back, and who was bound goes after the grace."""
        cluster = ZonedCluster(zoned_node("n1", CPU4, CPU4))
        cluster.create(*queues(), group("g", 3), *(queued(name, 2, "g") for name in ("a", "b", "c")))
        cluster.run_until(lambda: any(map(cluster.node_of, ("a", "b", "c"))), 30)
        waiting = [name for name in ("a", "b", "c") if not cluster.node_of(name)]
        assert waiting
        cluster.delete(PODS, waiting[0])
        cluster.run(120)
        left = {body["metadata"]["name"] for body in cluster.all(PODS) if body["spec"].get("nodeName")}
        assert left == set()

    def test_random_gangs_all_run_in_the_end_and_no_kubelet_refuses_one(self) -> None:
        for seed in range(4):
            rng = random.Random(seed)
            cluster = ZonedCluster(*(zoned_node(f"n{number}", CPU4, CPU4) for number in range(2)), seed=seed)
            cluster.create(*queues())
            cluster.run(1)
            for gang in range(8):
                sizes = [rng.randint(1, 4) for _ in range(rng.randint(1, 3))]
                lasts = {"dray.dev/finishes-after": f"{rng.randint(5, 40)}s"}
                name = f"g{gang}"
                cluster.create(group(name, len(sizes)), *(queued(f"{name}-{n}", c, name, **lasts) for n, c in enumerate(sizes)))
                cluster.run(rng.randint(1, 15))
            cluster.run(300)
            assert {pod["status"]["phase"] for pod in cluster.all(PODS)} == {"Succeeded"}
            assert cluster.refused == 0


class TestConsolidation:
    def test_a_pod_moves_to_another_zone_of_its_node(self) -> None:
        cluster = ZonedCluster(zoned_node("n1", CPU4, CPU4))
        cluster.create(*queues(), deployment("a", 2), queued("between", 2))
        cluster.run(20)
        cluster.create(deployment("b", 2))
        cluster.run(20)
        cluster.delete(PODS, "between")
        cluster.run(20)
        assert (running(cluster, "a"), running(cluster, "b")) == (["node-0"], ["node-1"])
        cluster.create(deployment("large", 4))
        cluster.run(60)
        (zone,) = running(cluster, "large")
        (other,) = {"node-0", "node-1"} - {zone}
        assert (running(cluster, "a"), running(cluster, "b")) == ([other], [other])
        assert cluster.refused == 0

    def test_a_pod_moves_to_a_zone_of_another_node(self) -> None:
        cluster = ZonedCluster(*(zoned_node(f"n{number}", CPU4) for number in range(2)))
        cluster.create(*queues(), deployment("a", 2))
        cluster.run(20)
        between = queued("between", 2)
        between["spec"]["nodeName"] = cluster.all(PODS, app="a")[0]["spec"]["nodeName"]
        cluster.create(between)
        cluster.run(20)
        cluster.create(deployment("b", 2))
        cluster.run(20)
        cluster.delete(PODS, "between")
        cluster.run(20)
        assert len({pod["spec"]["nodeName"] for pod in cluster.all(PODS)}) == 2
        cluster.create(deployment("large", 4))
        cluster.run(60)
        assert running(cluster, "large") == ["node-0"]
        assert len(running(cluster, "a") + running(cluster, "b")) == 2
        assert cluster.refused == 0

    def test_of_three_three_and_two_cores_nobody_moves_in_vain(self) -> None:
        cluster = ZonedCluster(zoned_node("n1", CPU4, CPU4))
        cluster.create(*queues(), deployment("a", 3), deployment("b", 3))
        cluster.run(30)
        before = sorted(pod["metadata"]["uid"] for pod in cluster.all(PODS))
        cluster.create(deployment("c", 2))
        cluster.run(120)
        assert running(cluster, "c") == []
        assert set(before) < {pod["metadata"]["uid"] for pod in cluster.all(PODS)}


class TestReclaim:
    def run(self, wanted: int, **victims: str) -> tuple[ZonedCluster, set[str]]:
        """``team`` has all eight cores of two zones, of which four are ``other``'s; answers who had to go."""
        cluster = ZonedCluster(zoned_node("n1", CPU4, CPU4, after="300s"))
        cluster.create(queue("all"), queue("team", "all", cpu=4000), queue("other", "all", cpu=4000))
        cluster.run(1)
        cluster.create(*(queued(name, 2, **victims) for name in "abcd"))
        cluster.run(30)
        late = queued("late", wanted)
        late["metadata"]["labels"]["kai.scheduler/queue"] = "other"
        cluster.create(late)
        gone: set[str] = set()
        for _ in range(90):
            cluster.run(1)
            pods = {name: cluster.get(PODS, name) for name in "abcd"}
            gone |= {name for name, pod in pods.items() if pod is None or pod["metadata"].get("deletionTimestamp")}
        return cluster, gone

    @pytest.mark.parametrize("stops", ["0s", "20s"])
    def test_who_must_go_shared_a_zone_and_nobody_else_goes_however_long_they_take(self, stops: str) -> None:
        cluster, gone = self.run(4, **{"dray.dev/stops-after": stops})
        assert cluster.phase("late") == "Running"
        assert len(gone) == 2
        assert cluster.refused == 0

    def test_nobody_goes_for_what_no_zone_has(self) -> None:
        cluster, gone = self.run(5)
        assert (cluster.phase("late"), gone) == ("Pending", set())


class TestMakingRoomForOneThatAsksForMore:
    """With ``restricted`` 6 GPUs with 24 cores fit where 6 with 10 never do, so the smaller pod keeps nobody from making room."""

    ZONE: Json = {"cpus": 16, "memory": "64Gi", "devices": {GPU: 4}}

    def run(self, victim: tuple[str, str], others: tuple[str, str], quota: int) -> ZonedCluster:
        cluster = ZonedCluster(zoned_node("n1", self.ZONE, self.ZONE, policy="restricted", memoryManagerPolicy="None"))
        cluster.create(queue("all"), queue("team", "all", cpu=quota), queue("other", "all", cpu=0))
        kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
        cluster.create(*({**kind, "metadata": {"name": name}, "value": value} for name, value in (("low", 10), ("high", 50))))
        cluster.run(1)

        def create(name: str, cpu: int, gpu: int, where: tuple[str, str]) -> None:
            pod = aligned_pod(name, cpu, gpu, priorityClassName=where[1])
            pod["metadata"]["labels"] = {"kai.scheduler/queue": where[0]}
            cluster.create(pod)
            cluster.run(10)

        create("victim", 24, 8, victim)
        create("smaller", 10, 6, others)
        create("larger", 24, 6, others)
        cluster.run(30)
        assert cluster.refused == 0
        return cluster

    @pytest.mark.parametrize(
        ("victim", "others", "quota"), [(("team", "low"), ("team", "high"), -1), (("other", "low"), ("team", "low"), 32000)]
    )
    def test_s26_it_is_tried_although_one_before_it_asks_for_less_in_vain(
        self, victim: tuple[str, str], others: tuple[str, str], quota: int
    ) -> None:
        cluster = self.run(victim, others, quota)
        assert (cluster.phase("larger"), cluster.phase("smaller")) == ("Running", "Pending")
