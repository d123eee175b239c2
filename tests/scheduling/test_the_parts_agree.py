"""What the scheduler is asked after each step of a simulation would be noticed if it were so."""

from __future__ import annotations

from typing import Any

import pytest
from scheduling_cluster import Sim

from dray.api import kinds
from dray.api.quantity import Quantity
from dray.api.resource import DeviceKey
from dray.devices.ledger import Charge
from tests.scheduling.gangs import add_group, add_member, add_queue, add_single, cluster
from tests.scheduling.test_gangs_whose_devices_are_prepared import preparing

POOL = ("gpu.example.com", "n1")
GIB = Quantity.parse("1Gi").nanos


def publish(sim: Sim, devices: list[dict[str, Any]], counters: dict[str, Any] | None = None) -> None:
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
    spec: dict[str, Any] = {"driver": POOL[0], "nodeName": "n1", "pool": pool, "devices": devices}
    if counters:
        spec["sharedCounters"] = [{"name": "set", "counters": counters}]
    sim.api.put(kinds.RESOURCE_SLICES, {"metadata": {"name": "s"}, "spec": spec})


def decide(sim: Sim, holder: str, device: str, mode: Any = "exclusive", **consumed: int) -> None:
    charge = Charge(DeviceKey(*POOL, device), mode, tuple(consumed.items()))
    sim.scheduler.parts.engine.ledger.charge(holder, (charge,), "decided")


def wrong(sim: Sim) -> str:
    """What is said of devices; that nobody knows these holders is so, and not what is looked at."""
    return "; ".join(text for text in sim.scheduler.validate() if not text.startswith("holder "))


def test_more_shared_capacity_than_there_is(sim: Sim) -> None:
    publish(sim, [{"name": "d", "allowMultipleAllocations": True, "capacity": {"memory": {"value": "4Gi"}}}])
    decide(sim, "a", "d", "share", memory=3 * GIB)
    assert wrong(sim) == ""
    decide(sim, "b", "d", "share", memory=2 * GIB)
    assert "of memory is taken, of 4Gi" in wrong(sim)


def test_more_of_a_counter_than_there_is(sim: Sim) -> None:
    half = [{"counterSet": "set", "counters": {"memory": {"value": "4Gi"}}}]
    publish(sim, [{"name": name, "consumesCounters": half} for name in "abc"], {"memory": {"value": "8Gi"}})
    decide(sim, "a", "a")
    decide(sim, "b", "b")
    assert wrong(sim) == ""
    decide(sim, "c", "c")
    assert "of counter set/memory is taken" in wrong(sim)


def test_what_others_have_too_much_of_is_no_error_of_who_takes_something_else(sim: Sim) -> None:
    too_much = [{"counterSet": "set", "counters": {"memory": {"value": "9Gi"}}}]
    publish(sim, [{"name": "a", "consumesCounters": too_much}, {"name": "b"}], {"memory": {"value": "8Gi"}})
    sim.scheduler.parts.engine.ledger.charge("other", (Charge(DeviceKey(*POOL, "a")),), "shown")
    decide(sim, "own", "b")
    assert wrong(sim) == ""


def test_a_device_that_is_held_as_nobody_holds_it(sim: Sim) -> None:
    publish(sim, [{"name": "d", "allowMultipleAllocations": True, "capacity": {"memory": {"value": "4Gi"}}}])
    decide(sim, "a", "d", "share", memory=GIB)
    sim.scheduler.parts.engine.ledger.holdings(POOL)["d"].consumed["memory"] += 1
    assert "is held as" in wrong(sim)


def test_a_device_of_two(sim: Sim) -> None:
    publish(sim, [{"name": "d"}])
    decide(sim, "a", "d")
    decide(sim, "b", "d")
    assert "decided for a and for b" in wrong(sim)


def test_a_pod_that_nobody_knows_of(sim: Sim) -> None:
    sim.add_pod("p")
    assert wrong(sim) == ""
    sim.scheduler.queue.forget(sim.pod("p")["metadata"]["uid"], sim.now)
    assert wrong(sim) == "pod default/p: is to be placed, and nobody knows of it"


def test_a_pod_that_counts_nowhere(sim: Sim) -> None:
    sim.add_node("n1")
    sim.add_pod("p", node_name="n1")
    assert wrong(sim) == ""
    sim.scheduler.nodes.displace(sim.pod("p")["metadata"]["uid"])
    assert wrong(sim) == "pod default/p: is on n1 and counts as None"


def test_a_member_that_is_waited_for_and_does_not_come() -> None:
    sim = preparing()
    first, second = sim.scheduler.binder.bindings
    sim.scheduler.binder.bindings.remove(second)
    assert f"pod {first.key}: waits for {second.uid} of its gang, which is not on its way" in wrong(sim)


def test_a_pod_that_waits_for_devices_and_counts_as_being_written() -> None:
    sim = preparing()
    assert wrong(sim) == ""
    first, _ = sim.scheduler.binder.bindings
    first.stage = "claims"
    assert wrong(sim) == "binder: counts the writes of 0 pods, and those of 1 are under way"


def test_a_queue_that_holds_what_its_pods_do_not_have() -> None:
    sim = preparing()
    assert wrong(sim) == ""
    sim.scheduler.workloads.use.allocated["team"]["cpu"] += 1000
    assert wrong(sim).startswith("queue account, team (all): is {'cpu': 1000.0}, and its pods have {}")


@pytest.fixture
def queued() -> Sim:
    """A gang of two that runs, and one pod that waits."""
    sim = cluster(2)
    add_queue(sim, "team", 2)
    add_group(sim, "train", "team", 2)
    for name in ("w0", "w1"):
        add_member(sim, name, "train")
    sim.settle(5)
    add_single(sim, "late", "team")
    sim.settle(5)
    assert wrong(sim) == ""
    return sim


def test_what_nodes_offer_in_all_is_not_what_they_offer(queued: Sim) -> None:
    queued.scheduler.nodes.offered["cpu"] += 1
    assert wrong(queued).startswith("nodes: {'cpu': 64001, ")


def test_a_node_that_takes_pods_and_counts_as_one_that_does_not(queued: Sim) -> None:
    queued.scheduler.nodes.closed.add("n0")
    assert wrong(queued) == "nodes: ['n0'] take no pods, and others do not"


def test_a_pod_that_is_being_deleted_and_does_not_count_as_leaving(queued: Sim) -> None:
    uid = queued.pod("w0")["metadata"]["uid"]
    stamped = {**queued.pod("w0")["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    queued.api.put(kinds.PODS, {**queued.pod("w0"), "metadata": stamped})
    assert [placed.pod.uid for placed in queued.scheduler.nodes.leaving()] == [uid]
    assert wrong(queued) == ""
    del queued.scheduler.nodes._leaving[uid]
    assert wrong(queued) == f"nodes: [] are leaving, and ['{uid}'] are being deleted"


def test_a_pod_that_waits_and_that_no_session_would_ask_about(queued: Sim) -> None:
    jobs = queued.scheduler.workloads.jobs
    jobs._waiting.clear()
    assert "waits, and is not among those who do" in wrong(queued)


def test_a_gang_that_is_broken_and_that_nobody_would_look_at(queued: Sim) -> None:
    queued.remove(kinds.PODS, "default/w0")
    jobs = queued.scheduler.workloads.jobs
    assert "default/train" in jobs.stirred
    assert wrong(queued) == ""
    jobs.stirred.clear()
    assert wrong(queued) == "Job(default/train): is broken, and nobody looks at it"


def test_devices_in_all_that_are_not_there(queued: Sim) -> None:
    kept = queued.scheduler.workloads.jobs.devices.kept
    kept["gpu"] += 1.0
    assert wrong(queued) == "queues: 1.0 of gpu is kept for all devices, and 0.0 is there"
