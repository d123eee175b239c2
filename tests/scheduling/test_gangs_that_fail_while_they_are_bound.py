"""A member of a gang that cannot be bound gives all back that can be given back; what is bound is made whole again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dray.api import kinds
from dray.cluster.port import ClusterError, Refused, Write
from dray.explain.verify import verify
from tests.scheduling.gangs import GPU, add_group, add_member, add_queue, cluster, running
from tests.scheduling.scheduling_cluster import Sim, node
from tests.scheduling.test_gangs_whose_devices_are_prepared import FABRIC, FAILED, READY, say

Fault = Callable[[Write], ClusterError | None]


def is_bind(write: Write, *names: str) -> bool:
    return write.kind is kinds.PODS and write.subresource == "binding" and (not names or write.name in names)


def refusing(*names: str, times: int = 1) -> Fault:
    """An admission plugin that says no, so often for each."""
    left = dict.fromkeys(names, times)

    def fault(write: Write) -> ClusterError | None:
        if is_bind(write, *names) and left[write.name] > 0:
            left[write.name] -= 1
            return Refused(403, "Forbidden", "a webhook says no")
        return None

    return fault


def gang(sim: Sim, members: int, gpus: int = 1, claims: bool = False) -> None:
    add_queue(sim, "team", 8)
    add_group(sim, "train", "team", members)
    for index in range(members):
        if claims:
            sim.add_claim(f"c{index}")
        add_member(sim, f"w{index}", "train", 0 if claims else gpus, claims=[f"c{index}"] if claims else None)


def in_turn(sim: Sim) -> None:
    """As on a node with zones, where members come one after the other: the next when the one before it is bound."""

    def waits(uid: str) -> bool:
        before = [other for other in sim.scheduler.binder.bindings if other.key < sim.scheduler.binder.bindings.get(uid).key]
        return bool(before)

    sim.scheduler.binder.overtakes = waits


def test_who_comes_after_the_one_that_failed_is_not_bound() -> None:
    sim = cluster(2, 2)
    in_turn(sim)
    sim.fault = refusing("w1", times=10**6)
    gang(sim, 4)
    sim.settle(5)
    assert running(sim) == {"w0"}, "it was bound before, and what is bound cannot be taken back"
    assert not [write for write in sim.log if is_bind(write, "w2", "w3")]


def test_what_it_lacks_is_placed_again() -> None:
    sim = cluster(2, 2)
    in_turn(sim)
    sim.fault = refusing("w1", times=2)
    gang(sim, 4)
    sim.settle(30)
    assert running(sim) == {"w0", "w1", "w2", "w3"}
    assert sim.scheduler.validate() == []


def test_a_gang_that_stays_broken_is_given_up_after_its_grace() -> None:
    sim = cluster(2, 2)
    in_turn(sim)
    sim.fault = refusing("w1", times=10**6)
    gang(sim, 4)
    sim.settle(5)
    assert running(sim) == {"w0"}
    sim.settle(70)
    assert running(sim) == set()


def test_who_is_bound_all_at_once_lacks_only_the_one_that_failed() -> None:
    sim = cluster(2, 2)
    sim.fault = refusing("w1")
    gang(sim, 4)
    sim.settle(0.5)
    assert running(sim) == {"w0", "w2", "w3"}
    sim.settle(10)
    assert running(sim) == {"w0", "w1", "w2", "w3"}


def test_claims_of_those_that_are_given_back_are_given_back() -> None:
    """Where nobody gets a place again: neither devices nor reservations are left behind."""
    sim = cluster(0)
    sim.add_class()
    sim.add_slice("n0", 2)
    in_turn(sim)
    sim.fault = refusing("w0", times=10**6)
    gang(sim, 2, claims=True)
    sim.settle(1)
    sim.api.put(kinds.NODES, {**sim.api.objects[kinds.NODES]["n0"], "spec": {"unschedulable": True}})
    sim.settle(60)
    assert running(sim) == set()
    assert [sim.devices_of(name) for name in ("c0", "c1")] == [[], []]
    assert not any(sim.claim(name)["status"].get("reservedFor") for name in ("c0", "c1"))


@pytest.mark.parametrize(
    "error", [Refused(403, "Forbidden", "no"), Refused(500, "InternalError", "busy")], ids=["refused", "in doubt"]
)
def test_nothing_is_double_or_left_over_whoever_fails_and_when(error: ClusterError) -> None:
    for failing in range(3):
        sim = cluster(0)
        sim.add_class()
        sim.add_slice("n0", 3)
        tried: list[Write] = []

        def fault(write: Write, failing: int = failing, tried: list[Write] = tried) -> ClusterError | None:
            tried += [write] if is_bind(write) else []
            return error if is_bind(write, f"w{failing}") and len(tried) < 5 else None

        sim.fault = fault
        in_turn(sim)
        gang(sim, 3, claims=True)
        sim.settle(60)
        assert running(sim) == {"w0", "w1", "w2"}
        assert all(len(held) == 1 for held in sim.holders().values())
        assert not verify(sim.world).violations


class TestDevicesThatArePrepared:
    def preparing(self) -> Sim:
        sim = cluster(0, 0)
        sim.add_class()
        for name in ("n0", "n1"):
            sim.add_slice(name, 2, **FABRIC)
        gang(sim, 3, claims=True)
        sim.settle(5)
        assert len(sim.preparing()) == 3
        return sim

    def test_one_that_fails_gives_all_back(self) -> None:
        sim = self.preparing()
        say(sim, "c0", READY)
        say(sim, "c1", FAILED)
        sim.settle(0.2)
        assert running(sim) == set()
        assert sim.preparing() == []

    def test_a_node_that_goes_gives_all_back_also_those_on_other_nodes(self) -> None:
        sim = self.preparing()
        nodes = {binding.node for binding in sim.scheduler.binder.bindings}
        assert nodes == {"n0", "n1"}
        for name in ("c0", "c1", "c2"):
            if sim.devices_of(name)[0].startswith("n0"):
                say(sim, name, READY)
        sim.settle(1)
        sim.remove(kinds.NODES, "n1")
        sim.remove(kinds.RESOURCE_SLICES, "n1-gpu.example.com")
        sim.settle(5)
        assert running(sim) == set()
        assert sim.preparing() == []
        assert [sim.devices_of(name) for name in ("c0", "c1", "c2")] == [[], [], []]
        assert "podgroup default/train cannot start as a whole" in sim.condition("w0")["message"]

    def test_a_restart_in_between_binds_none_before_all_are_ready(self) -> None:
        sim = self.preparing()
        say(sim, "c0", READY)
        sim.settle(1)
        sim.restart()
        sim.settle(5)
        assert running(sim) == set()
        for name in ("c1", "c2"):
            say(sim, name, READY)
        sim.settle(5)
        assert running(sim) == {"w0", "w1", "w2"}


def test_a_node_that_goes_between_two_members_gives_back_the_rest() -> None:
    sim = cluster(2, 1, 3)
    in_turn(sim)
    gang(sim, 3)

    def goes(write: Write) -> ClusterError | None:
        if is_bind(write, "w1"):
            gone = next(binding.node for binding in sim.scheduler.binder.bindings if binding.key == "default/w2")
            sim.fault = None
            sim.remove(kinds.NODES, gone)
        return None

    sim.fault = goes
    sim.settle(30)
    assert running(sim) == {"w0", "w1", "w2"}
    assert sim.node_of("w2") in set(sim.api.objects[kinds.NODES])


def test_a_scheduler_that_starts_again_between_two_members_starts_the_others_together() -> None:
    sim = cluster(2, 2)
    in_turn(sim)
    gang(sim, 4)
    sim.fault = lambda write: Refused(503, "ServiceUnavailable", "nobody is there") if is_bind(write, "w1", "w2", "w3") else None
    sim.settle(1)
    assert running(sim) == {"w0"}
    sim.fault = None
    sim.restart()
    sim.api.put(kinds.NODES, node("n2", resources={GPU: "1"}))
    sim.settle(10)
    assert running(sim) == {"w0", "w1", "w2", "w3"}
