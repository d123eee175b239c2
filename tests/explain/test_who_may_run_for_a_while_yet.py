"""``dray why`` of pods for which others would have to leave, whose queue keeps them for a while (``reclaimMinRuntime``)."""

from __future__ import annotations

import pytest

from dray.api import kinds
from dray.api.times import format_time
from tests.explain.test_why_queues import asked, lent_by_quota
from tests.scheduling.gangs import add_group, add_member, add_queue, add_single, cluster, running
from tests.scheduling.scheduling_cluster import Sim


def safe_for_a_minute(sim: Sim, queue: str) -> None:
    known = sim.api.objects[kinds.QUEUES][queue]
    sim.api.put(kinds.QUEUES, {**known, "spec": {**known["spec"], "reclaimMinRuntime": "60s"}})


def four_run(sim: Sim, queue: str) -> None:
    """Since now, as their kubelet tells."""
    for index in range(4):
        add_single(sim, f"a{index}", queue)
    sim.settle(10)
    for index in range(4):
        started = sim.pod(f"a{index}")
        sim.api.put(kinds.PODS, {**started, "status": {**started["status"], "startTime": format_time(sim.now)}})


@pytest.mark.parametrize("limited", [False, True])
def test_that_who_would_have_to_leave_may_run_for_a_while_yet(limited: bool) -> None:
    """A limit of all queues together is no reason to raise it where one of them is about to give back."""
    sim = cluster(4)
    add_queue(sim, "all", 4, limit=4 if limited else -1)
    add_queue(sim, "a", 0, parent="all")
    add_queue(sim, "b", 2, parent="all")
    safe_for_a_minute(sim, "a")
    four_run(sim, "a")
    for index in range(2):
        add_single(sim, f"b{index}", "b")
    sim.settle(5)
    for index in range(2):
        found = asked(sim, f"b{index}")
        assert "queue a keeps its pods until they have run for 60 s: the first of them at 20" in found.summary
        assert "queue a keeps its pods" in sim.condition(f"b{index}")["message"]
        assert any(fix.startswith("wait until then, or lower reclaimMinRuntime") for fix in found.fixes)
    sim.settle(80)
    assert {"b0", "b1"} <= running(sim)


def test_who_lacks_pods_is_told_that_also_where_others_may_run_for_a_while_yet() -> None:
    sim = cluster(4)
    add_queue(sim, "a", 0)
    add_queue(sim, "b", 2)
    safe_for_a_minute(sim, "a")
    four_run(sim, "a")
    add_single(sim, "b0", "b")
    add_group(sim, "gang", "b", 2)
    add_member(sim, "g0", "gang")
    sim.settle(5)
    assert "queue a keeps its pods" in sim.condition("b0")["message"]
    assert "keeps its pods" not in sim.condition("g0")["message"]
    assert "1 of 2" in sim.condition("g0")["message"]


def test_nobody_waits_for_those_to_have_run_who_have_no_more_than_their_share() -> None:
    """Quotas exceed what there is."""
    sim = cluster(4)
    add_queue(sim, "a", 4)
    add_queue(sim, "b", 2)
    safe_for_a_minute(sim, "a")
    for index in range(4):
        add_single(sim, f"a{index}", "a")
    sim.settle(5)
    add_single(sim, "b0", "b")
    sim.settle(5)
    told = sim.condition("b0")["message"]
    assert "other queues hold no more than their shares" in told
    assert "keeps its pods" not in told
    sim.settle(80)
    assert "b0" not in running(sim)


def test_who_is_beyond_its_share_is_not_told_to_wait_for_those_that_run_for_a_while() -> None:
    sim = lent_by_quota(4)
    safe_for_a_minute(sim, "a")
    add_single(sim, "b0", "b", 4)
    sim.settle(5)
    assert "keeps its pods" not in asked(sim, "b0").summary
