"""Disruption budgets when queues make room: kept where that is possible, broken for as few pods as it takes where it is not."""

from __future__ import annotations

import pytest

from dray.api import kinds
from tests.scheduling.gangs import GPU, add_group, add_member, add_queue, add_single, cluster, running
from tests.scheduling.scheduling_cluster import Sim, pod


def protect(sim: Sim, app: str, allowed: int = 0) -> None:
    spec = {"selector": {"matchLabels": {"app": app}}}
    body = {"metadata": {"name": app, "namespace": "default"}, "spec": spec, "status": {"disruptionsAllowed": allowed}}
    sim.api.put(kinds.POD_DISRUPTION_BUDGETS, body)


def borrowed(sim: Sim, *apps: str, priority: int = 0) -> None:
    """Pods of queue a, which has no quota; the last is the youngest, and the first victim as far as budgets do not matter."""
    add_queue(sim, "a", 0)
    add_queue(sim, "b", 8)
    for index, app in enumerate(apps):
        labels = {"kai.scheduler/queue": "a", "app": app}
        sim.api.put(kinds.PODS, pod(f"a{index}", requests={GPU: "1"}, labels=labels, priority=priority))
        sim.settle(2)
    assert len(running(sim)) == len(apps)


def test_without_budgets_the_youngest_goes() -> None:
    sim = cluster(3)
    borrowed(sim, "free", "free", "guarded")
    add_single(sim, "b0", "b")
    sim.settle(10)
    assert running(sim) == {"a0", "a1", "b0"}


def test_who_is_protected_stays_when_another_can_go() -> None:
    sim = cluster(3)
    borrowed(sim, "free", "free", "guarded")
    protect(sim, "guarded")
    add_single(sim, "b0", "b")
    sim.settle(10)
    assert running(sim) == {"a0", "a2", "b0"}


def test_as_many_go_as_a_budget_allows_and_then_others() -> None:
    sim = cluster(4)
    borrowed(sim, "free", "free", "guarded", "guarded")
    protect(sim, "guarded", 1)
    add_group(sim, "train", "b", 2)
    add_member(sim, "b0", "train")
    add_member(sim, "b1", "train")
    sim.settle(10)
    assert running(sim) == {"a0", "a2", "b0", "b1"}


def test_what_one_plan_spends_of_a_budget_another_does_not_have() -> None:
    """The status of the budget does not know yet that the first victim leaves."""
    sim = cluster(4)
    borrowed(sim, "free", "free", "guarded", "guarded")
    protect(sim, "guarded", 1)
    add_single(sim, "b0", "b")
    add_single(sim, "b1", "b")
    sim.settle(1)
    assert sim.pod("a2")["spec"]["nodeName"] == "n0"
    sim.settle(10)
    assert running(sim) == {"a0", "a2", "b0", "b1"}


def test_a_budget_is_broken_where_nothing_else_helps_and_for_no_more_than_needed() -> None:
    sim = cluster(3)
    borrowed(sim, "guarded", "free", "guarded")
    protect(sim, "guarded")
    add_group(sim, "train", "b", 2)
    add_member(sim, "b0", "train")
    add_member(sim, "b1", "train")
    sim.settle(10)
    assert running(sim) == {"a0", "b0", "b1"}


def test_a_gang_that_would_leave_as_a_whole_counts_with_all_its_pods() -> None:
    """The gang is the younger one, but breaks its budget for one of its pods."""
    sim = cluster(4)
    borrowed(sim, "free", "free")
    protect(sim, "guarded", 1)
    add_group(sim, "old", "a", 2)
    for index in range(2):
        add_member(sim, f"g{index}", "old", labels={"app": "guarded"})
    sim.settle(3)
    add_single(sim, "b0", "b")
    sim.settle(10)
    assert running(sim) == {"a0", "g0", "g1", "b0"}


def test_preemption_in_a_queue_keeps_budgets_too() -> None:
    sim = cluster(2)
    borrowed(sim, "free", "guarded")
    protect(sim, "guarded")
    add_single(sim, "urgent", "a", priority=50)
    sim.settle(10)
    assert running(sim) == {"a1", "urgent"}


@pytest.mark.parametrize(("allowed", "moves"), [(0, False), (1, True)])
def test_nobody_is_moved_against_a_budget(allowed: int, moves: bool) -> None:
    """Consolidation is for the good of others; who is protected is left where it is."""
    sim = cluster(2, 2)
    add_queue(sim, "a", 4)
    labels = {"kai.scheduler/queue": "a", "app": "guarded"}
    for index in range(2):
        made = pod(f"a{index}", requests={GPU: "1"}, labels=labels, node_name=f"n{index}", phase="Running", again=True)
        sim.api.put(kinds.PODS, made)
    protect(sim, "guarded", allowed)
    add_single(sim, "large", "a", 2)
    sim.settle(10)
    assert ("large" in running(sim)) == moves
