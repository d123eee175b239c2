"""What ``dray why`` advises to pods that start together: each advice, followed, starts the whole gang."""

from __future__ import annotations

from typing import Any

from dray.api import kinds
from tests.scheduling.gangs import GPU, add_gang, add_group, add_member, asked, cluster, running
from tests.scheduling.scheduling_cluster import Sim, node


def change_node(sim: Sim, name: str, **spec: Any) -> None:
    sim.api.put(kinds.NODES, {**sim.api.objects[kinds.NODES][name], "spec": spec})


def full(*gpus: int) -> Sim:
    sim = cluster(*gpus)
    for index, count in enumerate(gpus):
        for number in range(count):
            sim.add_pod(f"old{index}{number}", requests={GPU: "1"}, priority=10**6, node_name=f"n{index}", phase="Running")
    sim.settle(1)
    return sim


def advised(sim: Sim, begins: str, name: str = "w0") -> str:
    [told] = [each for each in asked(sim, name).fixes if each.startswith(begins)]
    return told


def started(sim: Sim, members: int) -> bool:
    sim.settle(20)
    return {f"w{index}" for index in range(members)} <= running(sim)


def test_pods_to_end_are_those_that_all_members_need() -> None:
    sim = full(2, 2)
    add_gang(sim, 3, 1)
    told = advised(sim, "end pods ")
    assert told.endswith("(then all 3 pods start together)")
    names = told.removeprefix("end pods ").partition(" (")[0].split(", ")
    assert len(names) == 3, "and no more than it takes"
    fix = next(fix for fix in asked(sim, "w0").advice if fix.told == told)
    assert len(fix.command.splitlines()) == 3
    for each in names:
        sim.remove(kinds.PODS, each)
    assert started(sim, 3)


def test_it_is_the_same_whichever_member_is_asked_about() -> None:
    sim = full(2, 2)
    add_gang(sim, 3, 1)
    assert asked(sim, "w0").fixes == asked(sim, "w1").fixes == asked(sim, "w2").fixes


def test_nothing_is_told_that_helps_one_member_alone() -> None:
    """Nine pods are too many to be named; each member alone would be told to end one of them."""
    sim = full(9)
    add_gang(sim, 9, 1)
    assert not [each for each in asked(sim, "w0").fixes if each.startswith("end pod")]


def test_as_many_nodes_as_the_gang_needs() -> None:
    sim = cluster(4, 4)
    add_gang(sim, 5, 4)
    assert advised(sim, "add ") == "add 3 nodes like n0 (then all 5 pods start together)"
    for index in range(3):
        sim.api.put(kinds.NODES, node(f"more{index}", resources={GPU: "4"}))
    assert started(sim, 5)


def test_new_nodes_come_with_devices() -> None:
    sim = cluster(0)
    sim.add_class()
    sim.add_slice("n0", 2)
    add_group(sim, "train", "", 2)
    for index in range(2):
        sim.add_claim(f"c{index}", count=2)
        add_member(sim, f"w{index}", "train", 0, claims=[f"c{index}"])
    sim.settle(3)
    assert advised(sim, "add ") == "add a node like n0 (then all 2 pods start together)"
    assert advised(sim, "ask for ").startswith("ask for 1 instead of 2 in request req of default/c1 and of 1 other claim like it")


def test_all_nodes_that_have_to_be_uncordoned() -> None:
    sim = cluster(4, 4, 4, 4)
    for name in ("n1", "n2", "n3"):
        change_node(sim, name, unschedulable=True)
    add_gang(sim, 3, 4)
    assert advised(sim, "uncordon ") == "uncordon nodes n1 and n2 (then all 3 pods start together)"
    for name in ("n1", "n2"):
        change_node(sim, name)
    assert started(sim, 3)


def test_taints_are_tolerated_by_all_or_removed_from_enough_nodes() -> None:
    sim = cluster(4, 4, 4)
    for name in ("n1", "n2"):
        change_node(sim, name, taints=[{"key": "team", "value": "x", "effect": "NoSchedule"}])
    add_gang(sim, 3, 4)
    assert advised(sim, "add a toleration ").startswith(
        "add a toleration for the taint {team=x:NoSchedule} to all pods of the gang"
    )
    assert advised(sim, "remove the taint ").startswith("remove the taint {team=x:NoSchedule} from nodes n1 and n2 (then all 3")


def test_a_selector_that_all_have_to_do_without() -> None:
    sim = Sim()
    for index in range(3):
        sim.api.put(kinds.NODES, node(f"n{index}", resources={GPU: "4"}, labels={"zone": "ab"[index > 0]}))
    add_gang(sim, 3, 4, nodeSelector={"zone": "b"})
    assert (
        advised(sim, "do without ")
        == "do without zone=b in the node selector of all pods of the gang (then all 3 pods start together)"
    )


def test_how_much_each_may_ask_for() -> None:
    sim = cluster(8, 8, 8)
    add_gang(sim, 4, 8)
    assert (
        advised(sim, "request ") == "request 4 nvidia.com/gpu instead of 8 in each of the 4 pods (then all 4 pods start together)"
    )


def test_a_pod_beyond_the_minimum_is_advised_as_one_pod() -> None:
    sim = cluster(2)
    add_gang(sim, 3, 1, minimum=2)
    [waits] = {"w0", "w1", "w2"} - running(sim)
    assert not any("start together)" in each for each in asked(sim, waits).fixes)


def test_what_is_advised_costs_a_bounded_number_of_sessions() -> None:
    sim = full(*([2] * 12))
    add_gang(sim, 12, 2)
    found = asked(sim, "w0")
    assert found.verdict == "unschedulable"
    assert any(each.startswith("add 12 nodes") for each in found.fixes)


def test_as_many_start_together_as_can() -> None:
    sim = cluster(4, 4)
    add_gang(sim, 5, 3)
    assert advised(sim, "let ") == "let 2 start together instead of 5 (then so many start)"
    assert not [each for each in asked(sim, "w0").fixes if each.startswith("make room")], "there is none to be made"
    add_group(sim, "train", "", 2)
    sim.settle(20)
    assert len(running(sim)) == 2


def test_fewer_of_what_devices_serve() -> None:
    sim = Sim()
    sim.add_class(extended=GPU)
    for name in ("n0", "n1"):
        sim.api.put(kinds.NODES, node(name))
        sim.add_slice(name, 4)
    add_group(sim, "train", "", 4)
    for index in range(4):
        add_member(sim, f"w{index}", "train", 3)
        made = sim.pod(f"w{index}")
        # As the API server gives one to each.
        made["spec"]["containers"][0]["volumeMounts"] = [{"name": f"kube-api-access-{index}"}]
        sim.api.put(kinds.PODS, made)
    sim.settle(3)
    told = "request 2 nvidia.com/gpu instead of 3 in each of the 4 pods (then all 4 pods start together)"
    assert advised(sim, "request ") == told
