"""Gangs of no queue make room as single pods do: who is of lower priority, in no queue and in no gang, goes for them."""

from __future__ import annotations

from typing import Any

import pytest

from dray.api import kinds
from dray.explain.why import why
from tests.scheduling.gangs import GPU, add_group, add_member, add_queue, cluster, running
from tests.scheduling.scheduling_cluster import Sim, pod
from tests.scheduling.scheduling_cluster import node as made_node


def add_core_group(sim: Sim, name: str, members: int) -> None:
    policy = {"schedulingPolicy": {"gang": {"minCount": members}}}
    sim.api.put(kinds.CORE_POD_GROUPS, {"metadata": {"name": name, "namespace": "default"}, "spec": policy})


def add_gang(sim: Sim, sort: str, members: int, priority: int = 1000, **extra: Any) -> set[str]:
    names = {f"g{index}" for index in range(members)}
    if sort == "core":
        add_core_group(sim, "train", members)
        for name in sorted(names):
            sim.add_pod(name, requests={GPU: "1"}, priority=priority, schedulingGroup={"podGroupName": "train"}, **extra)
    else:
        add_group(sim, "train", "", members)
        for name in sorted(names):
            add_member(sim, name, "train", 1, priority=priority, **extra)
    return names


def full(*gpus: int, priority: int = 0) -> Sim:
    """Every GPU is used by a pod of its own."""
    sim = cluster(*gpus)
    for node, count in enumerate(gpus):
        for index in range(count):
            name = f"old{node}-{index}"
            sim.add_pod(name, requests={GPU: "1"}, priority=priority, node_name=f"n{node}", phase="Running")
    sim.settle(2)
    return sim


def evicted(sim: Sim, before: set[str]) -> set[str]:
    return before - running(sim)


def add_asking(sim: Sim, name: str, sort: str) -> None:
    """A pod that says with whom it starts."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "train", "controller": True}
    body = pod(name, requests={GPU: "1"}, **({"schedulingGroup": {"podGroupName": "train"}} if sort == "core" else {}))
    if sort == "annotation":
        body["metadata"] |= {"annotations": {"dray.dev/gang": "3"}, "ownerReferences": [owner]}
    sim.api.put(kinds.PODS, body)


def test_pods_of_the_last_gang_of_a_cluster_say_nothing_of_the_next_one_of_its_name() -> None:
    """They were remembered: the next ones waited in the queue of those that were gone, for ever."""
    sim = cluster(3)
    for name in ("g0", "g1"):
        body = pod(name, requests={GPU: "1"}, schedulingGroup={"podGroupName": "train"}, labels={"kai.scheduler/queue": "gone"})
        sim.api.put(kinds.PODS, body)
    sim.settle(3)
    assert sim.condition("g0")["message"] == "queue gone does not exist."
    for name in ("g0", "g1"):
        sim.remove(kinds.PODS, f"default/{name}")
    for name in ("g0", "g1"):
        add_asking(sim, name, "core")
    sim.settle(3)
    add_core_group(sim, "train", 2)
    sim.settle(5)
    assert running(sim) == {"g0", "g1"}


@pytest.mark.parametrize("sort", ["core", "annotation"])
def test_the_first_gang_of_a_cluster_starts_together_too(sort: str) -> None:
    """There are no queues, and pods come before their group: nothing starts by itself."""
    sim = cluster(2)
    for index in range(2):
        add_asking(sim, f"g{index}", sort)
        sim.settle(2)
    assert running(sim) == set()
    if sort == "core":
        add_core_group(sim, "train", 2)
    else:
        sim.api.put(kinds.NODES, made_node("n1", resources={GPU: "1"}))
        add_asking(sim, "g2", sort)
    sim.settle(5)
    assert running(sim) == ({"g0", "g1"} if sort == "core" else {"g0", "g1", "g2"})


JOB_SET = {"jobset.sigs.k8s.io/jobset-name": "train"}
LEADER_AND_WORKERS = {"leaderworkerset.sigs.k8s.io/name": "train", "leaderworkerset.sigs.k8s.io/group-index": "0"}


@pytest.mark.parametrize("labels", [JOB_SET, LEADER_AND_WORKERS], ids=["JobSet", "LeaderWorkerSet"])
def test_pods_of_several_owners_that_belong_to_one_start_together(labels: dict[str, str]) -> None:
    """A leader and its workers have owners of their own: each by itself would wait for pods that it never has."""
    sim = cluster(2)
    for name, owner in (("leader", "train-leader-0"), ("worker-0", "train-worker-0"), ("worker-1", "train-worker-0")):
        of = {"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": owner, "controller": True}
        body = pod(name, requests={GPU: "1"}, labels=labels)
        body["metadata"] |= {"annotations": {"dray.dev/gang": "3"}, "ownerReferences": [of]}
        sim.api.put(kinds.PODS, body)
    sim.settle(5)
    assert running(sim) == set()
    assert "2 of 3 pods fit together" in sim.condition("leader")["message"]
    sim.api.put(kinds.NODES, made_node("n1", resources={GPU: "1"}))
    sim.settle(5)
    assert running(sim) == {"leader", "worker-0", "worker-1"}


@pytest.mark.parametrize("sort", ["core", "kai"])
def test_pods_of_lower_priority_leave_for_a_gang(sort: str) -> None:
    sim = full(2, 2)
    before = running(sim)
    gang = add_gang(sim, sort, 3)
    sim.settle(10)
    assert gang <= running(sim)
    assert len(evicted(sim, before)) == 3, "no more than it takes"


@pytest.mark.parametrize("sort", ["core", "kai"])
def test_nobody_leaves_for_a_gang_that_would_not_fit_then(sort: str) -> None:
    sim = full(2, 2)
    before = running(sim)
    add_gang(sim, sort, 5)
    sim.settle(10)
    assert running(sim) == before


def test_pods_of_equal_priority_stay() -> None:
    sim = full(2, priority=1000)
    before = running(sim)
    add_gang(sim, "core", 2)
    sim.settle(10)
    assert running(sim) == before


def test_who_never_preempts_does_not() -> None:
    sim = full(2)
    before = running(sim)
    add_gang(sim, "core", 2, preemptionPolicy="Never")
    sim.settle(10)
    assert running(sim) == before


def test_pods_of_a_queue_are_not_theirs_to_take() -> None:
    sim = cluster(2)
    add_queue(sim, "team", 2)
    for index in range(2):
        sim.add_pod(f"q{index}", requests={GPU: "1"}, labels={"kai.scheduler/queue": "team"})
    sim.settle(5)
    assert running(sim) == {"q0", "q1"}
    add_gang(sim, "core", 2)
    sim.settle(10)
    assert running(sim) == {"q0", "q1"}


def test_devices_are_made_free_for_them() -> None:
    sim = cluster(0, 0)
    sim.add_class()
    for node in ("n0", "n1"):
        sim.add_slice(node, 1)
    for index in range(2):
        sim.add_claim(f"old{index}")
        sim.add_pod(f"old{index}", claims=[f"old{index}"])
    sim.settle(5)
    assert running(sim) == {"old0", "old1"}
    add_core_group(sim, "train", 2)
    for index in range(2):
        sim.add_claim(f"g{index}")
        sim.add_pod(f"g{index}", claims=[f"g{index}"], priority=10, schedulingGroup={"podGroupName": "train"})
    sim.settle(3)
    for index in range(2):  # what the claims' controller does, which is not here
        sim.api.put(kinds.RESOURCE_CLAIMS, {**sim.claim(f"old{index}"), "status": {}})
    sim.settle(5)
    assert running(sim) == {"g0", "g1"}


def test_a_budget_is_spared_where_others_can_go() -> None:
    sim = full(2, 2)
    for name in ("old0-0", "old1-0"):
        sim.api.put(kinds.PODS, {**sim.pod(name), "metadata": {**sim.pod(name)["metadata"], "labels": {"app": "kept"}}})
    budget = {
        "metadata": {"name": "kept", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "kept"}}, "minAvailable": 2},
        "status": {"disruptionsAllowed": 0, "expectedPods": 2, "currentHealthy": 2, "desiredHealthy": 2},
    }
    sim.api.put(kinds.POD_DISRUPTION_BUDGETS, budget)
    before = running(sim)
    gang = add_gang(sim, "core", 2)
    sim.settle(10)
    assert gang <= running(sim)
    assert evicted(sim, before) == {"old0-1", "old1-1"}


def test_why_says_who_would_leave() -> None:
    sim = full(2)
    add_gang(sim, "core", 2)
    told = why(sim.world, sim.world.get(kinds.PODS, "default/g0"), now=sim.now)
    assert told.evicts is not None
    assert {victim.pod for victim in told.evicts.victims} == {"default/old0-0", "default/old0-1"}
    assert "below priority 1000;" in told.evicts.why
