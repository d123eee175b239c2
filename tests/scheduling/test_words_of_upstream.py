"""Events and conditions have kube-scheduler's key phrases behind Dray's own words: people and alerts search for them."""

from __future__ import annotations

import pytest
from scheduling_cluster import Sim, pod

from dray.api import kinds
from dray.scheduling.config import Config, Profile


@pytest.fixture
def cluster(sim: Sim) -> Sim:
    sim.add_class()
    sim.add_node("n1", cpu="1")
    sim.add_slice("n1", 1)
    return sim


def told(sim: Sim, name: str = "p") -> str:
    """What the condition says; the event says the same."""
    sim.settle()
    said = str(sim.condition(name)["message"])
    assert said in [event["note"] for event in sim.events("FailedScheduling") if event["regarding"]["name"] == name]
    return said


def test_devices_that_do_not_suffice(cluster: Sim) -> None:
    cluster.add_claim("c", count=2)
    cluster.add_pod("p", claims=["c"])
    assert told(cluster).endswith(
        " In kube-scheduler's words: 1 cannot allocate all claims."
        " preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
    )


def test_a_refusal_says_which_generation_of_the_pod_it_is_about(cluster: Sim) -> None:
    made = pod("p", nodeSelector={"no": "such"})
    made["metadata"]["generation"] = 3
    cluster.api.put(kinds.PODS, made)
    cluster.settle(2)
    assert cluster.condition("p")["observedGeneration"] == 3


def test_a_pool_that_contradicts_itself(cluster: Sim) -> None:
    twice = cluster.api.objects[kinds.RESOURCE_SLICES]["n1-gpu.example.com"]
    twice["metadata"] = {"name": "n1-again"}
    twice["spec"]["pool"]["resourceSliceCount"] = 2
    first = cluster.api.objects[kinds.RESOURCE_SLICES]["n1-gpu.example.com"]
    first["spec"]["pool"]["resourceSliceCount"] = 2
    for each in (twice, first):
        cluster.api.put(kinds.RESOURCE_SLICES, each)
    cluster.add_claim("c")
    cluster.add_pod("p", claims=["c"])
    assert "1 invalid resource pools were encountered" in told(cluster)


def test_a_selector_that_fails_at_run_time(cluster: Sim) -> None:
    cel = {"cel": {"expression": "device.attributes['gpu.example.com'].nothing == 'x'"}}
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1, "selectors": [cel]}
    cluster.add_claim("c", spec={"devices": {"requests": [{"name": "req", "exactly": exactly}]}})
    cluster.add_pod("p", claims=["c"])
    assert "CEL runtime error" in told(cluster)


def test_devices_that_are_not_ready_in_time() -> None:
    sim = Sim(Config(profiles=(Profile(binding_timeout=20.0),)))
    sim.add_class()
    sim.add_node("n1")
    sim.add_slice("n1", 1, bindingConditions=["x/ready"], bindingFailureConditions=["x/failed"])
    sim.add_claim("c")
    sim.add_pod("p", claims=["c"])
    sim.settle(20)
    assert told(sim).endswith(" In kube-scheduler's words: device binding timeout.")


def test_what_evicting_others_came_to(cluster: Sim) -> None:
    cluster.add_node("n2", cpu="1", unschedulable=True)
    cluster.add_pod("p", requests={"cpu": "2"})
    assert told(cluster).endswith(
        " In kube-scheduler's words: 1 Insufficient cpu, 1 node(s) were unschedulable."
        " preemption: 0/2 nodes are available: 1 No preemption victims found for incoming pod,"
        " 1 Preemption is not helpful for scheduling."
    )


def test_that_evicting_others_is_not_allowed(cluster: Sim) -> None:
    cluster.add_pod("p", requests={"cpu": "2"}, preemptionPolicy="Never")
    assert "1 Insufficient cpu. preemption: not eligible due to preemptionPolicy=Never." in told(cluster)


def test_while_room_is_being_made_nothing_is_said_of_preemption_in_vain(cluster: Sim) -> None:
    cluster.add_pod("low", requests={"cpu": "1"}, node_name="n1")
    cluster.add_pod("p", requests={"cpu": "1"}, priority=10)
    cluster.step()
    said = [event["note"] for event in cluster.events("FailedScheduling")]
    assert said
    assert all("preemption: " not in note for note in said)


@pytest.mark.parametrize("failing", ["a", "m", "z"])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_selector_that_fails_on_one_node_keeps_every_pod_waiting_whatever_the_order(
    sim: Sim, failing: str, restarted: bool
) -> None:
    """As upstream, always: not bound because a node that will do was looked at first, and not minutes later either."""
    sim.add_class()
    for name in ("a", "m", "z"):
        sim.add_node(name)
        model = {} if name == failing else {"attributes": {"model": {"string": "x"}}}
        sim.add_slice(name, 4, **model)
    cel = {"cel": {"expression": "device.attributes['gpu.example.com'].model == 'x'"}}
    request = {"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1, "selectors": [cel]}}
    for number in range(3):
        sim.add_claim(f"c{number}", spec={"devices": {"requests": [request]}})
        sim.add_pod(f"p{number}", claims=[f"c{number}"])
        sim.settle(20)
        if restarted:
            sim.restart()
    sim.settle(600)
    for number in range(3):
        assert sim.node_of(f"p{number}") == ""
        assert "CEL runtime error" in sim.condition(f"p{number}")["message"]
