"""Pods without devices: the node they get, and why they get none."""

from __future__ import annotations

from typing import Any

import pytest
from scheduling_cluster import Sim

from dray.api import kinds


def test_a_pod_goes_to_the_only_node(sim: Sim) -> None:
    sim.add_node("n1")
    sim.add_pod("p")
    sim.settle()
    assert sim.node_of("p") == "n1"
    assert [event["note"] for event in sim.events("Scheduled")] == ["Successfully assigned default/p to n1"]


def test_pods_spread_over_nodes_by_what_is_left(sim: Sim) -> None:
    for name in ("n1", "n2", "n3"):
        sim.add_node(name)
    for index in range(6):
        sim.add_pod(f"p{index}", requests={"cpu": "1"})
    sim.settle()
    assert sorted(sim.node_of(f"p{index}") for index in range(6)) == ["n1", "n1", "n2", "n2", "n3", "n3"]


def test_decisions_in_one_act_see_each_other(sim: Sim) -> None:
    sim.add_node("n1", cpu="1")
    sim.add_node("n2", cpu="1")
    for index in range(3):
        sim.add_pod(f"p{index}", requests={"cpu": "1"})
    sim.settle()
    assert [sim.node_of(f"p{index}") for index in range(3)] == ["n1", "n2", ""]
    assert sim.condition("p2")["message"].startswith("0/2 nodes are available: 2 nodes have not enough cpu (needs 1")


def test_higher_priority_goes_first(sim: Sim) -> None:
    sim.add_node("n1", cpu="1")
    sim.add_pod("low", requests={"cpu": "1"}, priority=1, preemptionPolicy="Never")
    sim.add_pod("high", requests={"cpu": "1"}, priority=2, preemptionPolicy="Never")
    sim.settle()
    assert (sim.node_of("high"), sim.node_of("low")) == ("n1", "")


def test_pods_of_other_schedulers_are_left_alone_but_count(sim: Sim) -> None:
    sim.add_node("n1", cpu="1")
    sim.add_pod("theirs", requests={"cpu": "1"}, node_name="n1", schedulerName="other")
    sim.add_pod("unplaced", schedulerName="other")
    sim.add_pod("ours", requests={"cpu": "1"})
    sim.settle()
    assert sim.node_of("ours") == ""
    assert sim.node_of("unplaced") == ""


@pytest.mark.parametrize(
    ("extra", "code"),
    [
        ({"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}, "taint"),
        ({"unschedulable": True}, "cordon"),
        ({"cpu": "500m"}, "cpu"),
        ({"pods": "0"}, "pods"),
        ({"labels": {"zone": "b"}}, "select"),
    ],
)
def test_a_node_that_will_not_do_is_told(sim: Sim, extra: dict[str, object], code: str) -> None:
    sim.add_node("n1", **{"labels": {"zone": "a"}, **extra})
    sim.add_pod("p", requests={"cpu": "1"}, nodeSelector={"zone": "a"})
    sim.settle()
    assert sim.node_of("p") == ""
    assert sim.condition("p")["reason"] == "Unschedulable"
    assert "0/1 nodes are available" in sim.condition("p")["message"]
    assert code in sim.condition("p")["message"].lower()
    assert len(sim.events("FailedScheduling")) == 1


def test_tolerated_taints_do_not_repel(sim: Sim) -> None:
    sim.add_node("n1", taints=[{"key": "k", "value": "v", "effect": "NoExecute"}])
    sim.add_pod("p", tolerations=[{"key": "k", "operator": "Exists"}])
    sim.settle()
    assert sim.node_of("p") == "n1"


def test_preferred_taints_and_affinity_decide_between_nodes(sim: Sim) -> None:
    sim.add_node("a", taints=[{"key": "k", "value": "v", "effect": "PreferNoSchedule"}])
    sim.add_node("b")
    sim.add_node("c", labels={"disk": "ssd"})
    sim.add_pod("plain")
    preferred = [{"weight": 5, "preference": {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}}]
    sim.add_pod("wants-ssd", affinity={"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}})
    sim.settle()
    assert sim.node_of("plain") == "b"
    assert sim.node_of("wants-ssd") == "c"


def test_host_ports_do_not_collide(sim: Sim) -> None:
    sim.add_node("n1")
    containers = [{"name": "m", "ports": [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}]}]
    other = [{"name": "m", "ports": [{"containerPort": 80, "hostPort": 80, "hostIP": "10.0.0.1", "protocol": "TCP"}]}]
    sim.add_pod("a", containers=containers)
    sim.add_pod("b", containers=other)
    sim.settle()
    assert (sim.node_of("a"), sim.node_of("b")) == ("n1", "")


def test_a_gated_pod_waits_without_an_event(sim: Sim) -> None:
    sim.add_node("n1")
    made = sim.add_pod("p", schedulingGates=[{"name": "later"}])
    sim.settle()
    assert sim.condition("p")["reason"] == "SchedulingGated"
    assert sim.events("FailedScheduling") == []
    del made["spec"]["schedulingGates"]
    sim.api.put(kinds.PODS, made)
    sim.settle()
    assert sim.node_of("p") == "n1"


def test_no_nodes_at_all_is_a_reason(sim: Sim) -> None:
    sim.add_pod("p")
    sim.settle()
    assert "no nodes" in sim.condition("p")["message"].lower()
    sim.add_node("n1")
    sim.settle()
    assert sim.node_of("p") == "n1"


@pytest.mark.parametrize(
    ("whole", "fits"),
    [
        ({"requests": {"cpu": "3"}}, True),
        ({"requests": {"cpu": "5"}}, False),
        # From a server that does not complete it: what the containers ask for, up to the limit where they do not.
        ({"limits": {"cpu": "5"}}, True),
        ({"limits": {"memory": "1Ti"}}, False),
    ],
)
def test_what_a_pod_asks_for_as_a_whole_counts_instead_of_its_containers(sim: Sim, whole: dict[str, Any], fits: bool) -> None:
    sim.add_node("n", cpu="4")
    sim.add_pod("p", containers=[{"name": "m", "resources": {"requests": {"cpu": "1"}}}], resources=whole)
    sim.settle()
    assert sim.node_of("p") == ("n" if fits else "")


def test_init_containers_count_with_their_largest_and_sidecars_with_the_rest(sim: Sim) -> None:
    sim.add_node("small", cpu="3")
    sim.add_node("large", cpu="4")
    resources = {"requests": {"cpu": "1"}}
    init = [
        {"name": "sidecar", "restartPolicy": "Always", "resources": resources},
        {"name": "init", "resources": {"requests": {"cpu": "3"}}},
    ]
    sim.add_pod("p", containers=[{"name": "m", "resources": resources}], initContainers=init)
    sim.settle()
    assert sim.node_of("p") == "large"


def test_a_daemon_pod_goes_to_the_node_it_names(sim: Sim) -> None:
    for name in ("n1", "n2", "n3"):
        sim.add_node(name)
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n3"]}]}]
    required = {"nodeSelectorTerms": terms}
    sim.add_pod("p", affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}})
    sim.settle()
    assert sim.node_of("p") == "n3"
