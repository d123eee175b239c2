"""A queue takes back devices of a claim that several pods use: it is free when the last of them is gone, and counts once."""

from __future__ import annotations

import pytest

from tests.scheduling.gangs import add_group, add_member, add_queue, cluster, running
from tests.scheduling.scheduling_cluster import Sim
from tests.scheduling.test_making_room_for_gangs import CLASS, add_claimed, deletions, settle


def lent(devices: int, quota: int = 0) -> Sim:
    """Devices of one node, and two queues: what the lender has above its quota is the owner's."""
    sim = cluster(0)
    sim.add_class()
    sim.add_slice("n0", devices)
    add_queue(sim, "lender", 0, **{"dray.dev/resources": CLASS % quota})
    add_queue(sim, "owner", 0, **{"dray.dev/resources": CLASS % (devices - quota)})
    return sim


def add_gang(sim: Sim, minimum: int, *claims: str) -> None:
    """As many pods as there are claims, each with one."""
    add_group(sim, "gang", "lender", minimum)
    for name in dict.fromkeys(claims):
        sim.add_claim(name)
    for index, name in enumerate(claims):
        add_member(sim, f"w{index}", "gang", 0, claims=[name])
    settle(sim, 4)
    assert len(running(sim)) == len(claims)


def holds(sim: Sim, queue: str) -> float:
    return float(sim.scheduler.workloads.use.allocated[queue]["deviceclass/gpu"])


@pytest.mark.parametrize("minimum", [1, 2, 3])
def test_from_a_gang_whatever_its_minimum(minimum: int) -> None:
    sim = lent(1)
    add_gang(sim, minimum, "c", "c", "c")
    add_claimed(sim, "p", "owner")
    settle(sim, 10)
    assert running(sim) == {"p"}
    assert (holds(sim, "lender"), holds(sim, "owner")) == (0, 1)


def test_from_pods_that_have_nothing_else_in_common() -> None:
    sim = lent(1)
    sim.add_claim("c")
    for name in ("v0", "v1"):
        sim.add_pod(name, labels={"kai.scheduler/queue": "lender"}, claims=["c"])
    settle(sim, 4)
    add_claimed(sim, "p", "owner")
    settle(sim, 10)
    assert running(sim) == {"p"}


def test_of_several_claims_of_a_gang_those_leave_who_share_one() -> None:
    """The last two by age have one each: with either, another pod would have to leave besides."""
    sim = lent(2, quota=1)
    add_gang(sim, 2, "c", "d", "c", "d")
    add_claimed(sim, "p", "owner")
    settle(sim, 10)
    assert deletions(sim) == ["w3", "w1"]
    assert running(sim) == {"p", "w0", "w2"}
    assert (holds(sim, "lender"), holds(sim, "owner")) == (1, 1)


def test_not_where_a_pod_uses_it_from_which_nothing_is_taken() -> None:
    sim = lent(1)
    sim.add_claim("c")
    sim.add_pod("v", labels={"kai.scheduler/queue": "lender"}, claims=["c"])
    labels = {"kai.scheduler/queue": "lender", "kai.scheduler/preemptibility": "non-preemptible"}
    add_queue(sim, "lender", 0, **{"dray.dev/resources": CLASS % 1})
    sim.add_pod("safe", labels=labels, claims=["c"])
    settle(sim, 4)
    assert running(sim) == {"v", "safe"}
    add_queue(sim, "lender", 0, **{"dray.dev/resources": CLASS % 0})
    add_claimed(sim, "p", "owner")
    settle(sim, 10)
    assert deletions(sim) == []
