"""What the scheduler is asked after each step of a simulation would be noticed if it were so."""

from __future__ import annotations

from typing import Any

from scheduling_cluster import Sim

from dray.api import kinds
from dray.api.quantity import Quantity
from dray.devices.ledger import Charge, DeviceKey
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
