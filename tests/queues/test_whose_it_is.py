"""Whose the room is that others leave: who comes first, also before whom they leave for; and gangs grow as far as they may."""

from __future__ import annotations

from dray.scheduling.workloads.promises import _why
from tests.queues.test_who_has_to_go import Cluster, job, queue


def promised(cluster: Cluster) -> dict[str, int]:
    """How many pods of each job were promised room in one session."""
    cluster.settling.round()
    jobs = {pod["name"]: each["name"] for each in cluster.jobs for pod in each["pods"]}
    seats = [seat.pending.pod.metadata.name for plan in cluster.settling.plans() for seat in plan.seats]
    return {name: [jobs[seat] for seat in seats].count(name) for name in jobs.values() if name in [jobs[seat] for seat in seats]}


def test_a_gang_grows_as_far_as_it_may_in_one_session() -> None:
    jobs = [
        *(job(f"low{index}", "lent", 1, "n0") for index in range(5)),
        job("grows", "owner", 1, count=6, least=2),
        job("other", "poor", 1, count=2, least=1),
    ]
    cluster = Cluster({"n0": 5}, [queue("lent", 0, weight=0), queue("owner", 4), queue("poor", 1, weight=0)], jobs)
    assert promised(cluster) == {"grows": 4, "other": 1}


def test_who_is_evicted_comes_back_before_who_comes_after_it() -> None:
    """What the gang leaves over is enough for the large one of its queue too, which has more than the other queue by then."""
    jobs = [
        job("back", "one", 2, "n0"),
        job("urgent", "one", 2, count=1, priority=75),
        job("gang", "other", 1, "n1", "n1", "n1", "n1", "n1"),
        job("above", "other", 2, count=1, priority=75),
        job("large", "other", 3, count=1, priority=60),
    ]
    cluster = Cluster({"n0": 2, "n1": 5}, [queue("one", -1), queue("other", -1)], jobs)
    assert cluster.settle() == {"back": 1, "urgent": 1, "gang": 0, "above": 1, "large": 0}


def contested(cores: int = 0) -> Cluster:
    """One of high priority waits in a queue that has everything; the other queue has nothing, and may ask for nothing."""
    jobs = [
        job("old", "rich", 1, "n0"),
        job("young", "rich", 1, "n1"),
        job("urgent", "rich", 1, count=1, priority=75),
        job("poor", "other", 0 if cores else 1, count=1),
    ]
    for each in jobs:
        each["pods"][0]["requests"]["cpu_milli"] = cores or 1_000
    return Cluster({"n0": 1, "n1": 1}, [queue("rich", -1), queue("other", -1)], jobs)


def test_what_one_of_low_priority_leaves_is_for_the_queue_whose_turn_it_is() -> None:
    """Else the queue that has everything would keep it by evicting its own."""
    cluster = contested()
    cluster.settling.round()
    plans = {plan.seats[0].pending.pod.metadata.name: plan for plan in cluster.settling.plans()}
    assert {name: [step.job.name for step in plan.evicted] for name, plan in plans.items()} == {
        "poor-0": ["default/young"],
        "urgent-0": ["default/old"],
    }
    assert contested().settle() == {"old": 0, "young": 0, "urgent": 1, "poor": 1}


def test_it_is_told_so() -> None:
    cluster = contested()
    cluster.settling.round()
    session = cluster.settling.scheduler.workloads.last_session
    assert session is not None
    told = {
        job.name: list(_why(job, session.plans[job.key], session.made_by[job.key]).values())
        for job in session.waiting
        if job.key in session.plans
    }
    assert told == {
        "default/poor": ["queue rich has to give it up, and it is the turn of queue other"],
        "default/urgent": ["preempting to accommodate a higher priority pod"],
    }


def test_no_device_is_left_idle_for_who_asks_for_none() -> None:
    assert contested(cores=60_000).settle() == {"old": 1, "young": 0, "urgent": 1, "poor": 0}
