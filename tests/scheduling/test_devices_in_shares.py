"""Devices in what queues may have: as many as a claim gets, once for all its pods, of alternatives the one that is taken."""

from __future__ import annotations

from typing import Any

import pytest

from dray.api import kinds
from dray.cluster.port import Write
from tests.scheduling.gangs import GPU, add_group, add_member, add_queue, add_single, cluster, running
from tests.scheduling.scheduling_cluster import Sim, node, pod

CLASS = "deviceclass/gpu"


def add_team(sim: Sim, name: str, quota: int, limit: int = -1) -> None:
    text = f'{{"{CLASS}": {{"quota": {quota}, "limit": {limit}, "overQuotaWeight": 1}}}}'
    add_queue(sim, name, 0, **{"dray.dev/resources": text})


def add_claim(sim: Sim, name: str, **exactly: Any) -> None:
    request = {"name": "req", "exactly": {"deviceClassName": "gpu", **exactly}}
    sim.add_claim(name, spec={"devices": {"requests": [request]}})


def devices(*counts: int) -> Sim:
    sim = cluster(*(0 for _ in counts))
    sim.add_class()
    for index, count in enumerate(counts):
        sim.add_slice(f"n{index}", count)
    return sim


def held(sim: Sim, queue: str) -> float:
    return sim.scheduler.workloads.use.allocated[queue].get(CLASS, 0.0)


def test_a_claim_of_all_devices_counts_those_that_it_gets() -> None:
    sim = devices(3)
    add_team(sim, "a", 4)
    add_claim(sim, "all", allocationMode="All")
    add_single(sim, "p", "a", 0, claims=["all"])
    sim.settle(5)
    assert running(sim) == {"p"}
    assert held(sim, "a") == 3
    sim.settle(10)
    assert sim.api.objects[kinds.QUEUES]["a"]["status"]["allocated"] == {CLASS: "3"}
    sim.remove(kinds.PODS, "default/p")
    sim.settle(5)
    assert held(sim, "a") == 0


def test_a_claim_of_all_devices_keeps_to_the_limit() -> None:
    sim = devices(3)
    add_team(sim, "a", 2, limit=2)
    add_claim(sim, "all", allocationMode="All")
    add_single(sim, "p", "a", 0, claims=["all"])
    sim.settle(5)
    assert running(sim) == set()
    assert "it holds 0 and may have 2, 3 more are asked for" in sim.condition("p")["message"]


def test_a_claim_of_several_pods_counts_once() -> None:
    sim = devices(4)
    add_team(sim, "a", 2, limit=2)
    add_claim(sim, "shared", count=2)
    add_group(sim, "train", "a", 3)
    for index in range(3):
        add_member(sim, f"w{index}", "train", 0, claims=["shared"])
    sim.settle(5)
    assert running(sim) == {"w0", "w1", "w2"}
    assert held(sim, "a") == 2
    sim.remove(kinds.PODS, "default/w0")
    sim.settle(2)
    assert held(sim, "a") == 2, "whoever paid is gone, the devices are not"
    sim.remove(kinds.PODS, "default/w1")
    sim.remove(kinds.PODS, "default/w2")
    sim.settle(2)
    assert held(sim, "a") == 0


def test_one_more_pod_of_a_claim_that_is_in_use_takes_nothing_more() -> None:
    sim = devices(4)
    add_team(sim, "a", 2, limit=2)
    add_claim(sim, "shared", count=2)
    add_single(sim, "first", "a", 0, claims=["shared"])
    sim.settle(5)
    add_single(sim, "second", "a", 0, claims=["shared"])
    sim.settle(5)
    assert running(sim) == {"first", "second"}
    assert held(sim, "a") == 2


@pytest.mark.parametrize("uids", ["ab", "ba"])
def test_for_a_claim_that_pods_of_several_queues_use_the_oldest_pays_whatever_its_uid(uids: str) -> None:
    sim = devices(4)
    add_team(sim, "a", 2)
    add_team(sim, "b", 2, limit=1)
    add_claim(sim, "shared", count=2)
    for name, queue, uid in zip(("first", "second"), "ab", uids, strict=True):
        made = pod(name, labels={"kai.scheduler/queue": queue}, claims=["shared"])
        sim.api.put(kinds.PODS, made | {"metadata": made["metadata"] | {"uid": uid}})
        sim.settle(5)
    assert running(sim) == {"first", "second"}
    assert (held(sim, "a"), held(sim, "b")) == (2, 0)


def test_an_older_pod_does_not_start_with_a_claim_for_which_its_queue_would_have_to_pay_too_much() -> None:
    sim = devices(4)
    add_team(sim, "a", 2)
    add_team(sim, "b", 2, limit=1)
    made = pod("older", labels={"kai.scheduler/queue": "b"}, claims=["shared"])
    sim.api.put(kinds.PODS, made)  # and waits for its claim
    sim.settle(5)
    made = pod("younger", labels={"kai.scheduler/queue": "a"}, claims=["shared"])
    sim.api.put(kinds.PODS, made)
    add_claim(sim, "shared", count=2)
    sim.settle(5)
    assert running(sim) == {"younger"}
    assert "queue b would exceed its limit" in sim.condition("older")["message"]
    assert (held(sim, "a"), held(sim, "b")) == (2, 0)


def test_a_restart_counts_the_same() -> None:
    sim = devices(4)
    add_team(sim, "a", 4)
    add_claim(sim, "shared", count=2)
    for name in ("first", "second"):
        add_single(sim, name, "a", 0, claims=["shared"])
    sim.settle(5)
    sim.restart()
    add_single(sim, "plain", "a", 0)
    sim.settle(5)
    assert held(sim, "a") == 2


def test_a_claim_that_is_seen_after_its_pod_counts_too() -> None:
    """Kinds are watched apart: which comes first says nothing."""
    sim = devices(3)
    add_team(sim, "a", 4)
    add_single(sim, "first", "a", 0)
    sim.settle(5)
    add_single(sim, "p", "a", 0, claims=["late"], node_name="n0", phase="Running")
    sim.settle(5)
    results = [{"request": "req", "driver": "gpu.example.com", "pool": "n0", "device": f"gpu-{index}"} for index in range(2)]
    users = [{"resource": "pods", "name": "p", "uid": sim.pod("p")["metadata"]["uid"]}]
    request = {"name": "req", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2}}
    status = {"allocation": {"devices": {"results": results}}, "reservedFor": users}
    sim.add_claim("late", spec={"devices": {"requests": [request]}}, status=status)
    sim.settle(5)
    assert held(sim, "a") == 2


def test_a_claim_that_names_nobody_counts_for_the_pods_that_name_it() -> None:
    """Somebody took its allocation and its reservations away, and pods still run with it: before and after a restart."""
    sim = devices(3)
    add_team(sim, "a", 4)
    add_single(sim, "first", "a", 0)
    add_single(sim, "p", "a", 0, claims=["late"], node_name="n0", phase="Running")
    sim.settle(5)
    add_claim(sim, "late", count=2)
    sim.settle(5)
    assert held(sim, "a") == 2
    sim.remove(kinds.RESOURCE_CLAIMS, "default/late")
    sim.settle(5)
    assert held(sim, "a") == 0
    add_claim(sim, "late", count=3)
    sim.settle(5)
    assert held(sim, "a") == 3
    sim.restart()
    add_single(sim, "second", "a", 0)
    sim.settle(5)
    assert held(sim, "a") == 3


def test_a_claim_that_is_made_anew_while_its_pods_are_bound_counts_as_it_is_now() -> None:
    """And not also as the one that it was: what that was given is nothing of the pods' extended resources."""
    sim = devices(4)
    add_team(sim, "a", 4)
    add_claim(sim, "shared", count=2)
    for index in range(2):
        add_single(sim, f"p{index}", "a", 0, claims=["shared"])

    def made_anew(write: Write) -> None:
        if write.subresource == "binding":
            sim.fault = None
            sim.api.objects[kinds.RESOURCE_CLAIMS].pop("default/shared")
            add_claim(sim, "shared", count=1)

    sim.fault = made_anew
    sim.settle(5)
    assert running(sim)
    assert held(sim, "a") == 1


def test_of_alternatives_the_one_that_is_taken_counts() -> None:
    sim = devices(2)
    add_team(sim, "a", 4, limit=4)
    first = {"name": "four", "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 4}
    second = {"name": "one", "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    sim.add_claim("either", spec={"devices": {"requests": [{"name": "req", "firstAvailable": [first, second]}]}})
    add_single(sim, "p", "a", 0, claims=["either"])
    sim.settle(5)
    assert running(sim) == {"p"}
    assert held(sim, "a") == 1


def test_who_only_looks_at_devices_takes_nothing() -> None:
    sim = devices(2)
    add_team(sim, "a", 0, limit=0)
    sim.api.put(kinds.NAMESPACES, {"metadata": {"name": "default", "labels": {"resource.kubernetes.io/admin-access": "true"}}})
    add_claim(sim, "watch", adminAccess=True, count=1)
    add_single(sim, "p", "a", 0, claims=["watch"])
    sim.settle(5)
    assert running(sim) == {"p"}
    assert held(sim, "a") == 0


def test_a_queue_takes_back_devices_that_a_claim_of_all_borrowed() -> None:
    sim = devices(2, 2)
    add_team(sim, "a", 0)
    add_team(sim, "b", 2)
    for index in range(2):
        add_claim(sim, f"all{index}", allocationMode="All")
        add_single(sim, f"a{index}", "a", 0, claims=[f"all{index}"])
    sim.settle(5)
    assert held(sim, "a") == 4
    add_claim(sim, "b0", count=2)
    add_single(sim, "b0", "b", 0, claims=["b0"])
    sim.settle(3)
    [gone] = {"a0", "a1"} - running(sim)
    claim = sim.claim(f"all{gone[-1]}")
    claim["status"] = {}  # given back by the claims' controller, which is not here
    sim.api.put(kinds.RESOURCE_CLAIMS, claim)
    sim.settle(5)
    assert "b0" in running(sim)
    assert (held(sim, "a"), held(sim, "b")) == (2, 2)


@pytest.mark.parametrize("asked", ["example.com/gpu", "deviceclass.resource.kubernetes.io/gpu"])
def test_devices_of_pods_that_know_no_claims_count_for_their_class(asked: str) -> None:
    """Whether the class offers a name or is asked for by its own: from the decision on, and so does the limit."""
    sim = devices(4)
    sim.add_class(extended="example.com/gpu")
    add_team(sim, "a", 2, limit=2)
    for index in range(3):
        sim.add_pod(f"p{index}", requests={asked: "1"}, labels={"kai.scheduler/queue": "a"})
        sim.settle(3)
        assert held(sim, "a") == min(index + 1, 2)
    assert running(sim) == {"p0", "p1"}
    assert "it holds 2 and may have 2, 1 more are asked for" in sim.condition("p2")["message"]


def test_gpus_that_are_asked_for_by_the_name_of_their_class_are_gpus() -> None:
    sim = cluster(0)
    sim.add_class("gpu.nvidia.com")
    sim.add_slice("n0", 4)
    add_queue(sim, "a", 1, limit=1)
    for index in range(2):
        requests = {"deviceclass.resource.kubernetes.io/gpu.nvidia.com": "1"}
        sim.add_pod(f"p{index}", requests=requests, labels={"kai.scheduler/queue": "a"})
        sim.settle(3)
    assert running(sim) == {"p0"}
    assert sim.scheduler.workloads.use.allocated["a"]["gpu"] == 1


def test_a_node_that_comes_back_brings_what_its_pods_have_once() -> None:
    """Meanwhile queues changed, so that everything was counted anew."""
    sim = cluster(2)
    add_queue(sim, "a", 2, limit=2)
    add_single(sim, "p", "a")
    sim.settle(3)
    sim.remove(kinds.NODES, "n0")
    add_queue(sim, "b", 1)
    sim.settle(3)
    sim.api.put(kinds.NODES, node("n0", resources={GPU: "2"}))
    sim.settle(3)
    assert sim.scheduler.workloads.use.allocated["a"]["gpu"] == 1
    add_single(sim, "q", "a")
    sim.settle(3)
    assert running(sim) == {"p", "q"}


def test_who_is_not_evicted_after_all_counts_again() -> None:
    """The one that it was to make room for was placed without that."""
    sim = cluster(2)
    add_queue(sim, "a", 2)
    add_single(sim, "p", "a")
    sim.settle(3)
    preemption, uid = sim.scheduler.preemptor.preemption, sim.pod("p")["metadata"]["uid"]
    preemption.evict(uid, "somebody")
    add_queue(sim, "b", 1)
    sim.settle(3)
    assert sim.scheduler.workloads.use.allocated["a"]["gpu"] == 0
    preemption.end("somebody")
    assert sim.scheduler.workloads.use.allocated["a"]["gpu"] == 1


def test_devices_of_a_pod_whose_claim_was_taken_away_count_no_more() -> None:
    """The pod still runs, and somebody cleared its claim for extended resources."""
    sim = devices(4)
    sim.add_class(extended="example.com/gpu")
    add_team(sim, "a", 2)
    sim.add_pod("p", requests={"example.com/gpu": "1"}, labels={"kai.scheduler/queue": "a"})
    sim.settle(3)
    assert held(sim, "a") == 1
    [name] = [name for names in sim.holders().values() for name in names]
    sim.api.put(kinds.RESOURCE_CLAIMS, {**sim.claim(name), "status": {}})
    assert held(sim, "a") == 0
    assert sim.scheduler.validate() == []


class TestAResourceThatOnlyAnotherQueueNames:
    """Four GPUs and four network cards on a node; ``other`` has a quota of cards, which nobody of it asks for."""

    NIC = "example.com/nic"

    @pytest.fixture
    def sim(self) -> Sim:
        sim = Sim()
        sim.api.put(kinds.NODES, node("n0", cpu="64", resources={GPU: "4", self.NIC: "4"}))
        add_queue(sim, "lent", 0)
        add_queue(sim, "owner", 4)
        add_queue(sim, "other", 0, **{"dray.dev/resources": f'{{"{self.NIC}": {{"quota": 4}}}}'})
        return sim

    def add_gang(self, sim: Sim, name: str, queue: str, size: int, **spec: Any) -> None:
        add_group(sim, name, queue, size, **spec)
        for number in range(size):
            add_member(sim, f"{name}-{number}", name, 0, containers=[{"name": "c", "resources": {"requests": self.asked()}}])

    def asked(self) -> dict[str, str]:
        return {GPU: "1", self.NIC: "1"}

    def test_keeps_no_queue_from_taking_back_what_it_is_due_of_others(self, sim: Sim) -> None:
        """Of the cards two are the share of each, of the GPUs three are due to ``owner``."""
        for number in range(4):
            self.add_gang(sim, f"lent-{number}", "lent", 1)
        sim.settle(5)
        assert len(running(sim)) == 4
        self.add_gang(sim, "train", "owner", 3)
        sim.settle(10)
        assert {"train-0", "train-1", "train-2"} < running(sim)

    def test_keeps_nobody_from_starting_who_cannot_be_preempted(self, sim: Sim) -> None:
        self.add_gang(sim, "train", "owner", 2, preemptibility="non-preemptible")
        sim.settle(5)
        assert running(sim) == {"train-0", "train-1"}

    def test_is_shared_out_all_the_same(self, sim: Sim) -> None:
        """Whoever names it takes back its quota of it."""
        self.add_gang(sim, "lent", "lent", 4)
        sim.settle(5)
        add_single(sim, "due", "other", 0, containers=[{"name": "c", "resources": {"requests": {self.NIC: "1"}}}])
        sim.settle(10)
        assert running(sim) == {"due"}
