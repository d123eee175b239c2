"""What is known of a gang in a session is what is so, and in a trial what is tried, by whomever and whenever it is asked."""

from __future__ import annotations

import pytest

from dray.api import kinds
from dray.queues.gangs import is_stale, surplus
from dray.scheduling.workloads.jobs import Job
from dray.scheduling.workloads.session import Session
from tests.scheduling.gangs import add_group, add_member, add_queue, cluster
from tests.scheduling.scheduling_cluster import Sim

Held = tuple[Sim, Session, Job]


@pytest.fixture
def held() -> Held:
    """A gang of three that needs two, on three nodes, and a session in which nobody asked for it yet."""
    sim = cluster(1, 1, 1)
    add_queue(sim, "team", 8)
    add_group(sim, "train", "team", 2)
    for index in range(3):
        add_member(sim, f"w{index}", "train")
    sim.settle(5)
    job = sim.scheduler.workloads.jobs.by_key("default/train")
    assert job is not None
    return sim, sim.scheduler.workloads.survey(sim.now), job


def uids(sim: Sim) -> list[str]:
    return [sim.pod(f"w{index}")["metadata"]["uid"] for index in range(3)]


def test_what_is_first_asked_for_in_a_trial_is_as_it_is_without(held: Held) -> None:
    sim, session, job = held
    with sim.scheduler.parts.books.trial():
        for uid in uids(sim)[:2]:
            sim.scheduler.parts.nodes.displace(uid)
        assert len(session.members.active(job)) == 3
        assert len(session.tried.active(job)) == 1
    for each in (session.members, session.tried):
        assert len(each.active(job)) == 3
        assert not is_stale(each.gang(job))


def test_nor_does_a_trial_within_a_trial_leave_anything_behind(held: Held) -> None:
    sim, session, job = held
    first, second, _ = uids(sim)
    books, nodes = sim.scheduler.parts.books, sim.scheduler.parts.nodes
    with books.trial():
        nodes.displace(first)
        with books.trial():
            nodes.displace(second)
            assert len(session.tried.active(job)) == 1
        assert len(session.tried.active(job)) == 2
        assert len(session.members.active(job)) == 3


def test_what_is_kept_counts_from_then_on(held: Held) -> None:
    sim, session, job = held
    assert len(session.members.active(job)) == 3
    with sim.scheduler.parts.books.trial() as trial:
        sim.scheduler.parts.nodes.displace(uids(sim)[0])
        assert len(session.members.active(job)) == 3
        trial.keep()
    assert len(session.members.active(job)) == 2


def test_a_pod_on_a_node_that_nobody_knows_counts_as_well(held: Held) -> None:
    sim, session, job = held
    sim.remove(kinds.NODES, sim.node_of("w0"))
    sim.step()
    with sim.scheduler.parts.books.trial():
        sim.scheduler.parts.nodes.displace(uids(sim)[0])
        assert len(session.tried.active(job)) == 2
    assert len(session.tried.active(job)) == len(session.members.active(job)) == 3


def test_a_gang_has_no_more_surplus_than_it_has_while_one_of_it_is_to_go(held: Held) -> None:
    """Else another would go, too, and the last would be left alone."""
    sim, session, job = held
    with sim.scheduler.parts.books.trial():
        assert len(surplus(session.tried.gang(job))) == 1
        sim.scheduler.parts.nodes.displace(uids(sim)[0])
        steps = session.taking._victims.on(sim.node_of("w1"), {job.key})
        assert [len(step.pods) for step in steps] == [2]
