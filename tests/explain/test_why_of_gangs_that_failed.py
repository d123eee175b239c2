"""``dray why`` of a gang of which one pod could not be bound: each of its pods is told which one, and why."""

from __future__ import annotations

from dray.api import kinds
from dray.explain.failures import FailedBinding
from dray.explain.why import why
from tests.scheduling.gangs import add_group, add_member, add_queue, cluster
from tests.scheduling.scheduling_cluster import Sim

FAILURE = "device gpu.example.com/n0/gpu-0 could not be bound to node n0"


def gang_with_a_claim() -> Sim:
    sim = cluster(2)
    add_queue(sim, "a", 8)
    sim.add_class()
    sim.add_slice("n0", 1)
    sim.add_claim("c")
    add_group(sim, "train", "a", 2)
    add_member(sim, "w0", "train", claims=["c"])
    add_member(sim, "w1", "train")
    return sim


def test_all_pods_of_a_gang_are_told_of_the_device_that_failed_one_of_them() -> None:
    sim = gang_with_a_claim()
    long_ago = FailedBinding("gpu.example.com/n0/gpu-0", "default/w0", FAILURE, at=sim.now - 3600)
    answers = [
        why(sim.world, sim.world.get(kinds.PODS, f"default/{name}"), now=sim.now, failures=[long_ago]) for name in ("w0", "w1")
    ]
    assert [answer.fits for answer in answers] == [["n0"], ["n0"]]
    assert [[reason.code for reason in answer.reasons] for answer in answers] == [
        ["BindingFailed"],
        ["GangMemberFailed", "BindingFailed"],
    ]
    assert answers[1].reasons[0].data == {"member": "default/w0"}
    assert all(FAILURE in answer.summary for answer in answers)


def test_a_failure_of_a_pod_outside_the_gang_is_not_told() -> None:
    sim = gang_with_a_claim()
    elsewhere = FailedBinding("gpu.example.com/n0/gpu-0", "default/other", FAILURE, at=sim.now - 3600)
    answer = why(sim.world, sim.world.get(kinds.PODS, "default/w1"), now=sim.now, failures=[elsewhere])
    assert answer.fits == ["n0"]
    assert answer.reasons == []
