"""Devices that several nodes can use may be held by pods on other nodes: those can be evicted too, and as few as possible."""

from __future__ import annotations

from typing import Any

import pytest
from scheduling_cluster import Sim

from dray.api import kinds
from dray.scheduling.actions import preemption

HERE = {"nodeSelector": {"kubernetes.io/hostname": "here"}}


@pytest.fixture
def fabric(sim: Sim) -> Sim:
    """Two nodes and a pool of two devices that both can use."""
    sim.add_class()
    sim.add_node("here")
    sim.add_node("there")
    sim.add_slice("", 2, pool="fabric")
    return sim


def hold(sim: Sim, name: str, priority: int = 1, node: str = "there", **extra: Any) -> None:
    sim.add_claim(name, count=extra.pop("count", 1))
    sim.add_pod(name, claims=[name], priority=priority, nodeSelector={"kubernetes.io/hostname": node}, **extra)
    sim.settle()
    assert sim.node_of(name) == node


def preempted(sim: Sim) -> list[str]:
    return sorted(event["regarding"]["name"] for event in sim.events("Preempted"))


def want(sim: Sim, priority: int = 10, **extra: Any) -> None:
    sim.add_claim("h", count=extra.pop("count", 1))
    sim.add_pod("high", claims=["h"], priority=priority, **{**HERE, **extra})
    sim.settle(5)


def give_back(sim: Sim) -> None:
    """What the claims controller does for claims whose pods are gone."""
    alive = {pod["metadata"]["uid"] for pod in sim.api.objects[kinds.PODS].values()}
    for claim in list(sim.api.objects[kinds.RESOURCE_CLAIMS].values()):
        users = claim["status"].get("reservedFor") or []
        kept = [user for user in users if user["uid"] in alive]
        if kept != users:
            status = {**claim["status"], "reservedFor": kept} if kept else {}
            sim.api.put(kinds.RESOURCE_CLAIMS, {**claim, "status": status})
    sim.settle(15)


def test_a_holder_on_another_node_goes(fabric: Sim) -> None:
    hold(fabric, "a", 1)
    hold(fabric, "b", 2)
    fabric.add_pod("bystander", priority=1, nodeSelector={"kubernetes.io/hostname": "there"})
    fabric.settle()
    want(fabric)
    assert preempted(fabric) == ["a"]
    assert fabric.pod("high")["status"]["nominatedNodeName"] == "here"
    give_back(fabric)
    assert fabric.node_of("high") == "here"
    assert fabric.node_of("b") == "there"
    assert not [uid for uid in fabric.scheduler.engine.ledger._entries if uid.startswith("promised/")]


def test_what_the_holder_leaves_is_not_taken_by_others(fabric: Sim) -> None:
    hold(fabric, "a", 1, count=2)
    want(fabric, count=2)
    fabric.add_claim("t")
    fabric.add_pod("thief", claims=["t"], priority=10)
    give_back(fabric)
    assert fabric.node_of("high") == "here"
    assert fabric.node_of("thief") == ""


def test_holders_of_equal_or_higher_priority_stay(fabric: Sim) -> None:
    hold(fabric, "a", 10)
    hold(fabric, "b", 11)
    want(fabric)
    assert preempted(fabric) == []
    assert "nominatedNodeName" not in fabric.pod("high")["status"]


def test_nobody_goes_if_not_enough_would_be_freed(fabric: Sim) -> None:
    hold(fabric, "a", 1)
    hold(fabric, "b", 11)
    want(fabric, count=2)
    assert preempted(fabric) == []


def test_a_claim_shared_with_a_higher_pod_is_left_alone(fabric: Sim) -> None:
    fabric.add_claim("shared")
    for name, priority in (("low", 1), ("boss", 50)):
        fabric.add_pod(name, claims=["shared"], priority=priority)
    fabric.settle()
    hold(fabric, "b", 2)
    want(fabric)
    assert preempted(fabric) == ["b"]


def test_a_budget_is_kept_where_another_holder_will_do(fabric: Sim) -> None:
    hold(fabric, "guarded", 1, labels={"app": "guarded"})
    hold(fabric, "free", 5, labels={"app": "free"})
    budget = {
        "metadata": {"name": "b", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "guarded"}}},
        "status": {"disruptionsAllowed": 0},
    }
    fabric.api.put(kinds.POD_DISRUPTION_BUDGETS, budget)
    want(fabric)
    assert preempted(fabric) == ["free"]


def test_never_means_never_across_nodes_too(fabric: Sim) -> None:
    hold(fabric, "a", 1, count=2)
    want(fabric, preemptionPolicy="Never")
    assert preempted(fabric) == []


def test_room_on_the_node_and_devices_elsewhere_are_made_together(fabric: Sim) -> None:
    hold(fabric, "a", 1, count=2)
    fabric.add_pod("filler", requests={"cpu": "4"}, priority=1, **HERE)
    fabric.settle()
    want(fabric, requests={"cpu": "4"})
    assert preempted(fabric) == ["a", "filler"]
    give_back(fabric)
    assert fabric.node_of("high") == "here"


def test_a_victim_on_the_node_itself_comes_before_one_elsewhere(fabric: Sim) -> None:
    hold(fabric, "a", 1)
    hold(fabric, "b", 5, node="here")
    want(fabric)
    assert preempted(fabric) == ["b"]


def test_a_nomination_elsewhere_gives_way_to_a_higher_pod(fabric: Sim) -> None:
    hold(fabric, "a", 1, count=2)
    lingering = fabric.pod("a")
    lingering["metadata"]["finalizers"] = ["graceful"]
    fabric.api.put(kinds.PODS, lingering)
    want(fabric, count=2)
    assert preempted(fabric) == ["a"]
    fabric.add_claim("top", count=2)
    fabric.add_pod("top", claims=["top"], priority=20, nodeSelector={"kubernetes.io/hostname": "there"})
    fabric.settle(5)
    assert fabric.pod("top")["status"]["nominatedNodeName"] == "there"
    assert "nominatedNodeName" not in fabric.pod("high")["status"]
    assert preempted(fabric) == ["a"]


@pytest.mark.parametrize("seed", range(3))
def test_what_it_costs_does_not_grow_with_the_holders(sim: Sim, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """A few hundred holders, one of whom has to go: the number of trials is that of a bisection."""
    count = 100 * (seed + 1)
    sim.add_class()
    sim.add_node("here")
    sim.add_node("there", pods="1000")
    sim.add_slice("", count, pool="fabric")
    for index in range(count):
        sim.add_claim(f"c{index}")
        sim.add_pod(f"p{index}", claims=[f"c{index}"], priority=index % 5, nodeSelector={"kubernetes.io/hostname": "there"})
    sim.settle()
    trials = []
    fits = preemption.Preemption._fits
    monkeypatch.setattr(preemption.Preemption, "_fits", lambda self, *args: trials.append(1) or fits(self, *args))
    want(sim)
    assert len(preempted(sim)) == 1
    victim = sim.events("Preempted")[0]["regarding"]["name"]
    assert int(victim[1:]) % 5 == 0
    assert len(trials) < 30


@pytest.mark.parametrize("gone", [False, True])
def test_a_restart_still_waits_for_the_holder_elsewhere(fabric: Sim, gone: bool) -> None:
    hold(fabric, "a", 1)
    hold(fabric, "b", 1)
    for name in ("a", "b"):
        found = fabric.pod(name)
        found["metadata"]["finalizers"] = ["graceful"]
        fabric.api.put(kinds.PODS, found)
    want(fabric)
    (victim,) = preempted(fabric)
    if gone:
        del fabric.api.objects[kinds.PODS][f"default/{victim}"]
    fabric.start()
    fabric.settle(20)
    assert fabric.pod("high")["status"]["nominatedNodeName"] == "here"
    assert preempted(fabric) == [victim]


def test_a_pod_is_tried_again_when_the_upper_user_of_a_claim_leaves_another_node(fabric: Sim) -> None:
    fabric.add_claim("shared", count=2)
    for name, priority, node in (("upper", 50, "here"), ("lower", 1, "there")):
        fabric.add_pod(name, claims=["shared"], priority=priority, nodeSelector={"kubernetes.io/hostname": node})
    fabric.settle()
    want(fabric)
    fabric.settle(20)
    assert preempted(fabric) == []
    fabric.remove(kinds.PODS, "default/upper")
    fabric.settle(15)
    assert preempted(fabric) == ["lower"]
