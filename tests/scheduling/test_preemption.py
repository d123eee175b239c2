"""Pods of higher priority make room by evicting others, for cpu and for devices alike."""

from __future__ import annotations

from typing import Any

import pytest
from scheduling_cluster import Sim

from dray.api import kinds


def test_the_lower_pod_goes_and_the_higher_one_gets_its_place(sim: Sim) -> None:
    sim.add_node("n1", cpu="1")
    sim.add_pod("low", requests={"cpu": "1"}, priority=1)
    sim.settle()
    sim.add_pod("high", requests={"cpu": "1"}, priority=10)
    sim.settle(5)
    assert sim.node_of("high") == "n1"
    assert "default/low" not in sim.api.objects[kinds.PODS]
    assert [event["regarding"]["name"] for event in sim.events("Preempted")] == ["low"]


def test_the_node_is_nominated_while_victims_leave_and_no_more_are_evicted(sim: Sim) -> None:
    sim.add_node("n1", cpu="1")
    sim.add_node("n2", cpu="1")
    for name in ("a", "b"):
        sim.add_pod(name, requests={"cpu": "1"}, priority=1)
    sim.settle()
    for name in ("a", "b"):
        found = sim.pod(name)
        found["metadata"]["finalizers"] = ["graceful"]
        sim.api.put(kinds.PODS, found)
    sim.add_pod("high", requests={"cpu": "1"}, priority=10)
    sim.settle(30)
    assert sim.pod("high")["status"]["nominatedNodeName"] == sim.node_of("a")
    assert len(sim.events("Preempted")) == 1
    # What is being freed is not taken by another pod meanwhile.
    sim.add_pod("middle", requests={"cpu": "1"}, priority=1)
    leaving = sim.pod("a")
    assert leaving["metadata"]["deletionTimestamp"]
    leaving["metadata"]["finalizers"] = []
    del sim.api.objects[kinds.PODS]["default/a"]
    sim.settle(10)
    assert sim.node_of("high") != ""
    assert sim.node_of("middle") == ""


@pytest.mark.parametrize("extra", [{"preemptionPolicy": "Never"}, {"priority": 1}])
def test_no_eviction_without_the_right(sim: Sim, extra: dict[str, Any]) -> None:
    sim.add_node("n1", cpu="1")
    sim.add_pod("low", requests={"cpu": "1"}, priority=1)
    sim.settle()
    sim.add_pod("high", requests={"cpu": "1"}, **{"priority": 10, **extra})
    sim.settle(5)
    assert sim.node_of("high") == ""
    assert sim.node_of("low") == "n1"


def test_as_few_and_as_unimportant_pods_as_possible_go(sim: Sim) -> None:
    sim.add_node("n1", cpu="4")
    sim.add_node("n2", cpu="4")
    for name, node, priority in (("a", "n1", 5), ("b", "n1", 1), ("c", "n2", 6), ("d", "n2", 7)):
        sim.add_pod(name, requests={"cpu": "2"}, priority=priority, node_name=node)
    sim.add_pod("high", requests={"cpu": "2"}, priority=10)
    sim.settle(5)
    assert sim.node_of("high") == "n1"
    assert [event["regarding"]["name"] for event in sim.events("Preempted")] == ["b"]


def test_a_disruption_budget_is_kept_where_possible(sim: Sim) -> None:
    for node, app in (("n1", "guarded"), ("n2", "free")):
        sim.add_node(node, cpu="1")
        sim.add_pod(app, requests={"cpu": "1"}, priority=1, node_name=node, labels={"app": app})
    budget = {
        "metadata": {"name": "b", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "guarded"}}},
        "status": {"disruptionsAllowed": 0},
    }
    sim.api.put(kinds.POD_DISRUPTION_BUDGETS, budget)
    sim.add_pod("high", requests={"cpu": "1"}, priority=10)
    sim.settle(5)
    assert sim.node_of("high") == "n2"


def test_a_shortage_of_devices_preempts_too(sim: Sim) -> None:
    sim.add_class()
    sim.add_node("n1")
    sim.add_slice("n1", 2)
    for name in ("a", "b"):
        sim.add_claim(name)
        sim.add_pod(name, claims=[name], priority=1)
    sim.add_pod("bystander", priority=1)
    sim.settle()
    sim.add_claim("h")
    sim.add_pod("high", claims=["h"], priority=10)
    sim.settle(2)
    (event,) = sim.events("Preempted")
    victim = event["regarding"]["name"]
    assert victim in ("a", "b")
    # The claims controller gives back what the victim had.
    sim.api.put(kinds.RESOURCE_CLAIMS, {**sim.claim(victim), "status": {}})
    sim.settle(5)
    assert sim.node_of("high") == "n1"


def test_pods_are_not_evicted_where_that_would_not_help(sim: Sim) -> None:
    sim.add_class()
    sim.add_node("n1")
    sim.add_pod("low", priority=1)
    sim.settle()
    sim.add_claim("h")
    sim.add_pod("high", claims=["h"], priority=10)
    sim.settle(5)
    assert sim.events("Preempted") == []


def test_several_pods_of_one_shape_each_make_room(sim: Sim) -> None:
    for index in range(3):
        sim.add_node(f"n{index}", cpu="1")
        sim.add_pod(f"low{index}", requests={"cpu": "1"}, priority=1)
    sim.settle()
    for index in range(4):
        sim.add_pod(f"high{index}", requests={"cpu": "1"}, priority=10)
    sim.settle(30)
    assert sorted(sim.node_of(f"high{index}") for index in range(4)) == ["", "n0", "n1", "n2"]
    assert len(sim.events("Preempted")) == 3


# ------------------------------------------------------------------------------------------------ when it may help at last


def test_a_pod_is_tried_again_when_one_that_it_could_not_evict_is_gone(sim: Sim) -> None:
    """With the upper pod gone, evicting the lower one is enough: no room is free, and yet the pod is woken at once."""
    sim.add_node("n1", cpu="2")
    sim.add_pod("upper", requests={"cpu": "1"}, priority=10)
    sim.add_pod("lower", requests={"cpu": "1"}, priority=1)
    sim.settle()
    sim.add_pod("middle", requests={"cpu": "2"}, priority=5)
    sim.settle(20)
    assert sim.node_of("middle") == ""
    sim.remove(kinds.PODS, "default/upper")
    sim.settle(15)
    assert sim.node_of("middle") == "n1"


def test_a_pod_is_tried_again_when_the_upper_user_of_a_shared_claim_is_gone(sim: Sim) -> None:
    sim.add_class()
    sim.add_node("n1")
    sim.add_slice("n1", 1)
    sim.add_claim("shared")
    sim.add_pod("upper", claims=["shared"], priority=10)
    sim.add_pod("lower", claims=["shared"], priority=1)
    sim.settle()
    sim.add_claim("m")
    sim.add_pod("middle", claims=["m"], priority=5)
    sim.settle(20)
    assert sim.events("Preempted") == []
    sim.remove(kinds.PODS, "default/upper")
    sim.settle(15)
    assert [event["regarding"]["name"] for event in sim.events("Preempted")] == ["lower"]


def test_nobody_is_tried_again_in_vain_when_a_pod_of_its_own_priority_leaves_equals_behind(sim: Sim) -> None:
    sim.add_node("n1", cpu="2")
    for name in ("a", "b"):
        sim.add_pod(name, requests={"cpu": "1"}, priority=5)
    sim.settle()
    sim.add_pod("big", requests={"cpu": "2"}, priority=5)
    sim.settle(20)
    (waiting,) = sim.scheduler.queue
    attempts = waiting.attempts
    sim.remove(kinds.PODS, "default/a")
    sim.settle(20)
    assert waiting.attempts == attempts


@pytest.mark.parametrize("selector", [{}, None])
def test_a_budget_without_requirements_protects_nobody_as_upstream_reads_it(sim: Sim, selector: dict[str, Any] | None) -> None:
    for node, app, priority in (("n1", "a", 1), ("n2", "b", 2)):
        sim.add_node(node, cpu="1")
        sim.add_pod(app, requests={"cpu": "1"}, priority=priority, node_name=node, labels={"app": app})
    spec = {} if selector is None else {"selector": selector}
    budget = {"metadata": {"name": "b", "namespace": "default"}, "spec": spec, "status": {"disruptionsAllowed": 0}}
    sim.api.put(kinds.POD_DISRUPTION_BUDGETS, budget)
    sim.add_pod("high", requests={"cpu": "1"}, priority=10)
    sim.settle(5)
    assert sim.node_of("high") == "n1"


def test_a_pod_that_is_on_its_way_out_is_not_evicted_again(sim: Sim) -> None:
    sim.add_node("n1", cpu="1")
    sim.add_pod("low", requests={"cpu": "1"}, priority=1)
    sim.settle()
    found = sim.pod("low")
    found["metadata"]["finalizers"] = ["graceful"]
    sim.api.put(kinds.PODS, found)
    sim.remove(kinds.PODS, "default/low")
    sim.add_pod("high", requests={"cpu": "1"}, priority=10)
    sim.settle(20)
    assert sim.pod("high")["status"]["nominatedNodeName"] == "n1"
    assert not [write for write in sim.log if write.verb == "delete"]
    assert sim.events("Preempted") == []


def test_more_go_where_a_spread_constraint_needs_it(sim: Sim) -> None:
    """Resources alone would ask for one victim; with one, the node would still have too many of them."""
    for name in ("n1", "n2"):
        sim.add_node(name, cpu="10", labels={"zone": name})
    sim.add_pod("high", requests={"cpu": "9"}, priority=1000, labels={"app": "x"}, node_name="n1")
    for number in range(3):
        sim.add_pod(f"low-{number}", requests={"cpu": "3"}, priority=1, labels={"app": "x"}, node_name="n2")
    even = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    spread = [{**even, "labelSelector": {"matchLabels": {"app": "x"}}}]
    sim.add_pod("medium", requests={"cpu": "3"}, priority=100, labels={"app": "x"}, topologySpreadConstraints=spread)
    sim.settle(30)
    assert sim.node_of("medium") == "n2"
    assert len(sim.events("Preempted")) == 2


def test_pods_that_must_not_be_near_go_from_the_node_where_room_is_made(sim: Sim) -> None:
    for name in ("n1", "n2"):
        sim.add_node(name, cpu="4", labels={"zone": "z"})
    sim.add_pod("rival", requests={"cpu": "1"}, priority=1, labels={"app": "rival"}, node_name="n1")
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "rival"}}}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    sim.add_pod("high", requests={"cpu": "1"}, priority=10, affinity=apart)
    sim.settle(30)
    assert sim.node_of("high") == "n1"
    assert [event["regarding"]["name"] for event in sim.events("Preempted")] == ["rival"]


def test_the_only_pod_that_keeps_others_away_is_evicted_and_nobody_else(sim: Sim) -> None:
    """Without it nothing is said about neighbours any more; with it back, that is said again."""
    away = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "b"}}}
    sim.add_node("n1")
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [away]}}
    sim.add_pod("hermit", labels={"app": "a"}, affinity=affinity)
    sim.add_pod("neighbour", labels={"app": "a"})
    sim.settle()
    sim.add_pod("high", labels={"app": "b"}, priority=10)
    sim.settle(20)
    assert sim.node_of("high") == "n1"
    assert sorted(event["regarding"]["name"] for event in sim.events("Preempted")) == ["hermit"]
