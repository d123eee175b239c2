"""Waiting pods cost nothing until something that concerns them happens, and then they are woken."""

from __future__ import annotations

from typing import Any

import pytest
from scheduling_cluster import Sim

from dray.api import kinds
from dray.scheduling.config import Config


def decisions(sim: Sim) -> list[str]:
    """Pods that are decided on from now on, in order."""
    decided: list[str] = []
    decide = sim.scheduler.cycle.decide

    def counted(pending: Any, profile: Any, now: float) -> Any:
        decided.append(pending.pod.metadata.name)
        return decide(pending, profile, now)

    sim.scheduler.cycle.decide = counted  # type: ignore[method-assign]
    return decided


def test_ten_thousand_unschedulable_pods_add_no_work(sim: Sim) -> None:
    sim.add_node("n1")
    for index in range(10_000):
        sim.add_pod(f"big{index}", requests={"cpu": "100"})
    sim.settle(most=100_000)
    assert sim.scheduler.queue.count("waiting") == 10_000
    decided = decisions(sim)
    sim.add_pod("small", requests={"cpu": "100m"})
    sim.settle()
    assert sim.node_of("small") == "n1"
    assert decided == ["small"]
    # A pod that leaves frees too little for them: none is tried.
    sim.remove(kinds.PODS, "default/small")
    sim.settle()
    assert decided == ["small"]
    # A node that is large enough for two of them is tried by three: the two, and the one that finds it full.
    sim.add_node("n2", cpu="200")
    sim.settle()
    assert len(decided) == 4
    assert [sim.node_of(f"big{index}") for index in range(3)] == ["n2", "n2", ""]


@pytest.mark.parametrize("kind", ["labels", "taint", "cordon", "cpu"])
def test_a_node_that_changes_wakes_the_pods_it_will_do_for(sim: Sim, kind: str) -> None:
    extra = {
        "labels": {},
        "taint": {"labels": {"a": "b"}, "taints": [{"key": "k", "value": "", "effect": "NoSchedule"}]},
        "cordon": {"labels": {"a": "b"}, "unschedulable": True},
        "cpu": {"labels": {"a": "b"}, "cpu": "1"},
    }[kind]
    node = sim.add_node("n1", **extra)
    sim.add_pod("p", nodeSelector={"a": "b"}, requests={"cpu": "2"})
    sim.settle()
    assert sim.node_of("p") == ""
    decided = decisions(sim)
    node["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    sim.api.put(kinds.NODES, node)
    sim.settle()
    assert decided == []
    node["metadata"]["labels"]["a"] = "b"
    node["spec"] = {"taints": []}
    node["status"]["allocatable"]["cpu"] = "4"
    sim.api.put(kinds.NODES, node)
    sim.settle()
    assert sim.node_of("p") == "n1"


def test_a_finished_pod_frees_its_place(sim: Sim) -> None:
    sim.add_node("n1", cpu="1")
    sim.add_pod("first", requests={"cpu": "1"})
    sim.settle()
    sim.add_pod("second", requests={"cpu": "1"})
    sim.settle()
    done = sim.pod("first")
    done["status"]["phase"] = "Succeeded"
    sim.api.put(kinds.PODS, done)
    sim.settle()
    assert sim.node_of("second") == "n1"


def test_only_pods_of_the_claim_are_woken_by_it(sim: Sim) -> None:
    sim.add_node("n1")
    for name in ("a", "b"):
        sim.add_pod(name, claims=[name])
    sim.settle()
    decided = decisions(sim)
    sim.add_claim("a")
    sim.settle()
    assert decided == ["a"]


def test_a_finalizer_alone_wakes_nobody(sim: Sim) -> None:
    sim.add_class()
    sim.add_node("n1")
    claim = sim.add_claim("c")
    sim.add_pod("p", claims=["c"])
    sim.settle()
    decided = decisions(sim)
    claim["metadata"]["finalizers"] = ["resource.kubernetes.io/delete-protection"]
    sim.api.put(kinds.RESOURCE_CLAIMS, claim)
    sim.settle()
    assert decided == []


def test_the_condition_is_not_written_again_for_the_same_reason(sim: Sim) -> None:
    sim.add_node("n1", cpu="1")
    sim.add_pod("p", requests={"cpu": "8"})
    sim.settle()
    for index in range(5):
        sim.add_node(f"more{index}", cpu="1")
        sim.settle(20)
    patches = [write for write in sim.log if write.kind is kinds.PODS and write.subresource == "status"]
    assert len(patches) <= 2
    assert len(sim.events("FailedScheduling")) <= 2


def test_the_sweep_finds_what_no_event_told() -> None:
    sim = Sim(Config(sweep_interval=300.0))
    sim.add_node("n1", cpu="1")
    sim.add_pod("p", requests={"cpu": "2"})
    sim.settle()
    # The node grows behind the scheduler's back.
    sim.scheduler.nodes.get("n1").allocatable["cpu"] = 8000  # type: ignore[union-attr]
    sim.scheduler.cycle.forget_candidates()
    sim.settle(290)
    assert sim.node_of("p") == ""
    sim.settle(400)
    assert sim.node_of("p") == "n1"
    assert sim.meter.counters["dray_missed_wakeups_total", ()] == 1


def test_a_failed_write_backs_off_longer_each_time(sim: Sim) -> None:
    from dray.cluster.port import Forbidden

    sim.add_node("n1")
    sim.fault = lambda write: Forbidden(403, "Forbidden", "no") if write.subresource == "binding" else None
    sim.add_pod("p")
    sim.settle(60)
    binds = [write for write in sim.log if write.subresource == "binding"]
    # After 0, 1, 3, 7, 15 and then every 10 seconds.
    assert 8 <= len(binds) <= 10
    assert "refused a write" in sim.condition("p")["message"]


def test_a_deleted_pod_is_forgotten_everywhere(sim: Sim) -> None:
    sim.add_node("n1", cpu="1")
    for index in range(3):
        sim.add_pod(f"p{index}", requests={"cpu": "1"})
    sim.settle()
    for index in range(3):
        sim.remove(kinds.PODS, f"default/p{index}")
    sim.settle()
    scheduler = sim.scheduler
    assert len(scheduler.queue) == 0
    assert scheduler.queue.groups() == []
    assert all(not info.pods and not any(info.requested.values()) for info in scheduler.nodes)


def test_a_pod_being_deleted_is_not_scheduled(sim: Sim) -> None:
    sim.add_node("n1")
    pod = sim.add_pod("p", schedulingGates=[{"name": "x"}])
    pod["metadata"]["deletionTimestamp"] = "2027-01-01T00:00:00Z"
    pod["spec"]["schedulingGates"] = []
    sim.api.put(kinds.PODS, pod)
    sim.settle()
    assert sim.node_of("p") == ""


def test_telling_ten_thousand_pods_does_not_hold_up_a_binding(sim: Sim) -> None:
    sim.add_node("n1")
    for index in range(200):
        sim.add_pod(f"big{index}", requests={"cpu": "100"})
    first = sim.scheduler.act(sim.now)
    assert len(first) <= 16
    sim.add_pod("small", priority=1)
    second = sim.scheduler.act(sim.now)
    assert [write.name for write in second] == ["small"]


def test_shapes_that_nobody_has_any_more_are_forgotten(sim: Sim) -> None:
    sim.add_node("n1")
    for index in range(50):
        sim.add_pod(f"p{index}", requests={"cpu": f"{index + 1}m"})
    sim.settle()
    for index in range(50):
        sim.remove(kinds.PODS, f"default/p{index}")
    sim.add_pod("waits", requests={"cpu": "100"})
    sim.settle(700)
    assert len(sim.scheduler.demands) == 1
