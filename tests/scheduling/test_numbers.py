"""The numbers that scheduling records, by upstream's names."""

from __future__ import annotations

from scheduling_cluster import Sim

from dray.api import kinds
from dray.cluster.metrics import METRICS
from dray.cluster.numbers import Registry
from dray.runtime.meter import Meter

DURATION = "scheduler_scheduling_attempt_duration_seconds"
FILTER = "scheduler_framework_extension_point_duration_seconds"


def test_every_attempt_is_timed_with_its_result_and_profile(sim: Sim) -> None:
    sim.add_node("n1", cpu="1")
    sim.add_pod("fits", requests={"cpu": "1"})
    sim.add_pod("waits", requests={"cpu": "2"})
    sim.settle()
    # The recorder's clock moves by a second each time it is asked: before the attempt, after the search in it, and at its end.
    assert sim.meter.samples[DURATION, ("scheduled", "default-scheduler")] == [2.0]
    assert sim.meter.samples[DURATION, ("unschedulable", "default-scheduler")] == [2.0]
    assert sim.meter.samples[FILTER, ("Filter", "Success", "default-scheduler")] == [1.0]
    assert sim.meter.samples[FILTER, ("Filter", "Unschedulable", "default-scheduler")] == [1.0]


def test_looking_for_devices_is_timed_as_upstreams_plugin(sim: Sim) -> None:
    sim.add_class()
    sim.add_node("n1")
    sim.add_slice("n1", 1)
    sim.add_claim("c")
    sim.add_pod("p", claims=["c"])
    sim.settle()
    assert sim.meter.samples["scheduler_plugin_execution_duration_seconds", ("DynamicResources", "Filter", "Success")] == [1.0]


def test_every_number_has_its_kind_of_histogram() -> None:
    Meter(Registry(), METRICS)


def test_a_bound_pod_tells_how_many_attempts_it_took(sim: Sim) -> None:
    sim.add_pod("patient")
    sim.settle(5)
    assert ("scheduler_pod_scheduling_attempts", ()) not in sim.meter.samples
    sim.add_node("n1")
    sim.settle(30)
    assert sim.node_of("patient") == "n1"
    assert sim.meter.samples["scheduler_pod_scheduling_attempts", ()] == [2]


def test_pending_pods_are_counted_in_upstreams_four_queues(sim: Sim) -> None:
    sim.add_node("n1", cpu="1")
    sim.add_pod("large", requests={"cpu": "2"})
    sim.add_pod("gated", schedulingGates=[{"name": "wait"}])
    sim.settle()
    gauges = {labels[0]: value for (name, labels), value in sim.meter.gauges.items() if name == "scheduler_pending_pods"}
    assert gauges == {"active": 0, "backoff": 0, "unschedulable": 1, "gated": 1}


def test_many_attempts_share_one_label(sim: Sim) -> None:
    sim.add_node("n1", cpu="1")
    pod = sim.add_pod("p", requests={"cpu": "2"})
    for attempt in range(20):
        pod = sim.api.put(kinds.PODS, {**pod, "metadata": {**pod["metadata"], "labels": {"attempt": str(attempt)}}})
        sim.settle(10)
    sim.add_node("n2")
    sim.settle(10)
    assert ("scheduler_pod_scheduling_sli_duration_seconds", ("15+",)) in sim.meter.samples
