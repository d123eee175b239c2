"""Waiting pods cost nothing until something that concerns them happens, and then they are woken."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from scheduling_cluster import Sim

from dray.api import kinds
from dray.cluster.port import Forbidden, Unreachable
from dray.scheduling.config import Config


def decisions(sim: Sim) -> list[str]:
    """Pods that are decided on from now on, in order."""
    decided: list[str] = []
    state = sim.scheduler.cycle.state

    def counted(pending: Any, profile: Any, now: float) -> Any:
        decided.append(pending.pod.metadata.name)
        return state(pending, profile, now)

    sim.scheduler.cycle.state = counted  # type: ignore[method-assign]
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
    sim.scheduler.nodes.offered["cpu"] = 8000
    sim.scheduler.cycle.forget_candidates()
    sim.settle(290)
    assert sim.node_of("p") == ""
    sim.settle(400)
    assert sim.node_of("p") == "n1"
    assert sim.meter.counters["dray_missed_wakeups_total", ()] == 1


def test_a_failed_write_backs_off_longer_each_time(sim: Sim) -> None:
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


def on(node: str) -> dict[str, str]:
    return {"kubernetes.io/hostname": node}


def publish_one_counter_for_two_nodes(sim: Sim) -> None:
    """Two nodes with one device each that draw from one counter: only one of them can be in use."""
    pool = {"name": "fabric", "generation": 1, "resourceSliceCount": 3}
    head = {"driver": "gpu.example.com", "pool": pool}
    counters = [{"name": "link", "counters": {"lanes": {"value": "1"}}}]
    sim.api.put(
        kinds.RESOURCE_SLICES, {"metadata": {"name": "counters"}, "spec": {**head, "allNodes": True, "sharedCounters": counters}}
    )
    for node in ("n1", "n2"):
        device = {"name": node, "consumesCounters": [{"counterSet": "link", "counters": {"lanes": {"value": "1"}}}]}
        sim.api.put(kinds.RESOURCE_SLICES, {"metadata": {"name": node}, "spec": {**head, "nodeName": node, "devices": [device]}})


def test_a_device_given_back_on_one_node_wakes_pods_that_wait_for_its_counters_on_another(sim: Sim) -> None:
    sim.add_class()
    sim.add_node("n1")
    sim.add_node("n2")
    publish_one_counter_for_two_nodes(sim)
    for node in ("n1", "n2"):
        sim.add_claim(node)
        sim.add_pod(node, claims=[node], nodeSelector=on(node))
        sim.settle()
    assert (sim.node_of("n1"), sim.node_of("n2")) == ("n1", "")
    sim.remove(kinds.PODS, "default/n1")
    sim.api.put(kinds.RESOURCE_CLAIMS, {**sim.claim("n1"), "status": {}})
    sim.settle(20)
    assert sim.node_of("n2") == "n2"


def test_a_slice_of_another_node_that_completes_the_pool_wakes_the_pod(sim: Sim) -> None:
    sim.add_class()
    pool = {"name": "rack", "generation": 1, "resourceSliceCount": 2}
    for node in ("n1", "n2"):
        sim.add_node(node)
        sim.add_claim(node)
        sim.add_pod(node, claims=[node], nodeSelector=on(node))
    slices = [
        {
            "metadata": {"name": node},
            "spec": {"driver": "gpu.example.com", "pool": pool, "nodeName": node, "devices": [{"name": node}]},
        }
        for node in ("n1", "n2")
    ]
    sim.api.put(kinds.RESOURCE_SLICES, slices[0])
    sim.settle()
    assert sim.node_of("n1") == ""
    sim.api.put(kinds.RESOURCE_SLICES, slices[1])
    sim.settle(20)
    assert (sim.node_of("n1"), sim.node_of("n2")) == ("n1", "n2")


def test_a_pod_that_is_made_smaller_where_it_runs_frees_what_it_gave_up(sim: Sim) -> None:
    sim.add_node("n1", cpu="2")
    sim.add_pod("large", requests={"cpu": "2"})
    sim.settle()
    sim.add_pod("waits", requests={"cpu": "1"})
    sim.settle()
    resized = copy.deepcopy(sim.pod("large"))
    resized["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1"
    sim.api.put(kinds.PODS, resized)
    sim.settle(20)
    assert sim.node_of("waits") == "n1"


def label_namespace(sim: Sim, name: str, **labels: str) -> None:
    known = sim.api.objects[kinds.NAMESPACES].get(name, {"metadata": {"name": name}})
    sim.api.put(kinds.NAMESPACES, {"metadata": {**known["metadata"], "labels": labels}})


def of_team_x(app: str) -> dict[str, Any]:
    selector = {"matchLabels": {"team": "x"}}
    return {
        "labelSelector": {"matchLabels": {"app": app}},
        "topologyKey": "kubernetes.io/hostname",
        "namespaceSelector": selector,
    }


def test_a_namespace_that_gets_the_label_wakes_pods_that_must_be_near_its_pods(sim: Sim) -> None:
    sim.add_node("n1")
    label_namespace(sim, "other")
    sim.add_pod("friend", namespace="other", labels={"app": "f"})
    sim.settle()
    near = {"requiredDuringSchedulingIgnoredDuringExecution": [of_team_x("f")]}
    sim.add_pod("p", affinity={"podAffinity": near})
    sim.settle()
    assert sim.node_of("p") == ""
    label_namespace(sim, "other", team="x")
    sim.settle(20)
    assert sim.node_of("p") == "n1"


def test_pods_that_keep_a_namespace_away_follow_its_label(sim: Sim) -> None:
    sim.add_node("n1")
    label_namespace(sim, "default", team="x")
    apart = {"requiredDuringSchedulingIgnoredDuringExecution": [of_team_x("b")]}
    sim.add_pod("guard", labels={"app": "a"}, affinity={"podAntiAffinity": apart})
    sim.settle()
    sim.add_pod("kept-away", labels={"app": "b"})
    sim.settle()
    assert sim.node_of("kept-away") == ""
    label_namespace(sim, "default")
    sim.settle(20)
    assert sim.node_of("kept-away") == "n1"
    # What was counted under the old label is gone with its pod.
    label_namespace(sim, "default", team="x")
    sim.remove(kinds.PODS, "default/guard")
    sim.add_pod("free", labels={"app": "b"})
    sim.settle(20)
    assert sim.node_of("free") == "n1"


def test_namespaces_that_are_listed_after_pods_count(sim: Sim) -> None:
    sim.add_node("n1")
    apart = {"requiredDuringSchedulingIgnoredDuringExecution": [of_team_x("b")]}
    sim.add_pod("guard", labels={"app": "a"}, affinity={"podAntiAffinity": apart}, node_name="n1")
    label_namespace(sim, "default", team="x")
    sim.add_pod("kept-away", labels={"app": "b"})
    sim.settle()
    assert sim.node_of("kept-away") == ""


def test_a_refusal_that_could_not_be_told_is_told_when_the_server_is_back(sim: Sim) -> None:
    sim.add_node("n1", cpu="1")
    sim.fault = lambda write: Unreachable("gone")
    sim.add_pod("p", requests={"cpu": "2"})
    sim.settle(60)
    assert sim.condition("p") == {}
    sim.fault = None
    sim.settle(10)
    assert sim.condition("p")["reason"] == "Unschedulable"
    assert len(sim.events("FailedScheduling")) == 1


def test_what_is_on_its_way_to_a_pod_counts_when_it_is_told_something_else(sim: Sim) -> None:
    """The condition shows the first reason while the second is being written, and then the first is so again."""
    sim.add_node("n1", cpu="1")
    sim.add_pod("p", requests={"cpu": "2"})
    sim.settle()
    first = sim.condition("p")["message"]
    sim.add_node("n1", cpu="1", taints=[{"key": "broken", "effect": "NoSchedule"}])
    writes = sim.scheduler.act(sim.now)
    assert any("broken" in str(write.body) for write in writes)
    sim.add_node("n1", cpu="1")
    again = sim.scheduler.act(sim.now)
    sim.carry_out(writes)
    sim.carry_out(again)
    sim.settle(10)
    assert sim.condition("p")["message"] == first


def test_a_pod_is_told_of_its_own_claims_although_it_shares_the_refusal_of_another(sim: Sim) -> None:
    sim.add_class()
    sim.add_node("n1")
    sim.add_slice("n1", 2, attributes={"gpu.example.com/root": {"string": "one"}})
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2}
    constraints = [{"distinctAttribute": "gpu.example.com/root"}]
    spec = {"devices": {"requests": [{"name": "req", "exactly": exactly}], "constraints": constraints}}
    for name in ("a", "b"):
        sim.add_claim(name, spec=spec)
        sim.add_pod(name, claims=[name])
    sim.settle(10)
    for name in ("a", "b"):
        assert f"for default/{name}" in sim.condition(name)["message"]


def test_a_pod_whose_own_claim_changes_is_looked_at_by_itself(sim: Sim) -> None:
    sim.add_class()
    for node in ("n1", "n2"):
        sim.add_node(node)
        sim.add_slice(node, 2)
    for name in ("a", "b", "c"):
        sim.add_claim(f"{name}-one")
        sim.add_claim(f"{name}-two", count=2)
        sim.add_pod(name, claims=[f"{name}-one", f"{name}-two"])
        claim = sim.claim(f"{name}-one")
        owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": sim.pod(name)["metadata"]["uid"], "controller": True}
        claim["metadata"]["ownerReferences"] = [owner]
        sim.api.put(kinds.RESOURCE_CLAIMS, claim)
    sim.settle(20)
    assert "no combination" in sim.condition("b")["message"]
    claim = sim.claim("b-one")
    result = {"request": "req", "driver": "gpu.example.com", "pool": "n1", "device": "gpu-0"}
    claim["status"] = {"allocation": {"devices": {"results": [result]}}}
    sim.api.put(kinds.RESOURCE_CLAIMS, claim)
    sim.settle(20)
    assert [sim.node_of(name) for name in ("a", "b", "c")] == ["", "n2", ""]


def test_words_about_devices_are_not_old_for_long(sim: Sim) -> None:
    """Devices came, but not those that the pod needs: it still fits nowhere, and soon says why it does not fit now."""
    sim.add_class()
    sim.add_node("n1")
    sim.add_slice("n1", 0)
    sim.add_claim("c", count=2)
    sim.add_pod("p", claims=["c"])
    sim.settle(5)
    assert "no device of class gpu" in sim.condition("p")["message"]
    sim.add_slice("n1", 1)
    sim.settle(60)
    assert "needs 2, 1 free of 1" in sim.condition("p")["message"]
    assert sim.scheduler.meter.counters.get(("dray_missed_wakeups_total", ()), 0) == 0  # type: ignore[attr-defined]


# --------------------------------------------------------------------------------------------------- priority and back-off


def with_claim(sim: Sim, name: str, priority: int, **extra: Any) -> None:
    sim.add_claim(name)
    sim.add_pod(name, claims=[name], priority=priority, **extra)


def test_a_device_that_appears_goes_to_the_high_priority_that_backs_off(sim: Sim) -> None:
    sim.add_class()
    sim.add_node("n1")
    with_claim(sim, "high", 10)
    sim.settle()
    sim.now += 0.5
    sim.add_slice("n1", 1)
    with_claim(sim, "low", 0)
    sim.settle()
    assert (sim.node_of("high"), sim.node_of("low")) == ("n1", "")
    assert sim.events("Preempted") == []


def test_a_high_priority_that_was_woken_before_and_still_backs_off_goes_first_too(sim: Sim) -> None:
    sim.add_class()
    sim.add_node("n1")
    with_claim(sim, "high", 10)
    sim.settle()
    sim.now += 0.5
    sim.add_slice("n1", 1)
    with_claim(sim, "equal", 10, nodeSelector={"nowhere": "yes"})
    sim.scheduler.config = Config(in_flight=0)
    sim.step()  # it is woken, and nothing is decided yet
    sim.scheduler.config = Config()
    with_claim(sim, "low", 0)
    sim.settle()
    assert (sim.node_of("high"), sim.node_of("low")) == ("n1", "")


def test_among_equals_the_one_that_backs_off_makes_way(sim: Sim) -> None:
    sim.add_class()
    sim.add_node("n1")
    with_claim(sim, "first", 10)
    sim.settle()
    sim.now += 0.5
    sim.add_slice("n1", 1)
    with_claim(sim, "second", 10)
    sim.settle()
    assert (sim.node_of("first"), sim.node_of("second")) == ("", "n1")


FABRIC = {"bindsToNode": True, "bindingConditions": ["x/ready"], "bindingFailureConditions": ["x/failed"]}


def fail(sim: Sim, name: str) -> None:
    claim = sim.claim(name)
    result = claim["status"]["allocation"]["devices"]["results"][0]
    said = {"type": "x/failed", "status": "True", "reason": "No", "message": "", "lastTransitionTime": "2027-01-15T08:00:00Z"}
    claim["status"]["devices"] = [{**{key: result[key] for key in ("driver", "pool", "device")}, "conditions": [said]}]
    sim.api.put(kinds.RESOURCE_CLAIMS, claim)


@pytest.mark.parametrize(("priority", "winner"), [(0, "high"), (10, "late")])
def test_a_high_priority_whose_device_failed_does_not_lose_another_to_a_low_one(sim: Sim, priority: int, winner: str) -> None:
    sim.add_class()
    sim.add_node("n1")
    sim.add_slice("n1", 1, **FABRIC)
    with_claim(sim, "high", 10)
    sim.settle()
    for seconds in (1, 2):
        fail(sim, "high")
        sim.settle(seconds)
    fail(sim, "high")
    sim.settle(1.5)  # of four
    assert sim.devices_of("high") == []
    sim.add_slice("n1", 1, pool="better")
    with_claim(sim, "late", priority, nodeSelector={"kubernetes.io/hostname": "n1"})
    sim.settle()
    assert sim.devices_of(winner) == ["better/gpu-0"]


def test_a_pod_that_looks_before_its_time_takes_nothing_that_failed_and_evicts_nobody(sim: Sim) -> None:
    sim.add_class()
    sim.add_node("n1")
    sim.add_slice("n1", 2, **FABRIC)
    with_claim(sim, "running", 0)
    sim.settle()
    with_claim(sim, "high", 10)
    sim.settle()
    for seconds in (1, 2):
        fail(sim, "high")
        sim.settle(seconds)
    fail(sim, "high")
    sim.settle(1.5)
    sim.add_node("n2")
    sim.add_pod("low")
    sim.settle()
    assert sim.devices_of("high") == []
    assert sim.devices_of("running") == ["n1/gpu-0"]
    sim.settle(3)
    assert sim.devices_of("high") == ["n1/gpu-1"]


def test_marks_of_pods_that_moved_on_do_not_pile_up(sim: Sim) -> None:
    sim.add_node("n1", cpu="1")
    sim.add_pod("big", requests={"cpu": "2"})
    sim.settle()
    for index in range(500):
        sim.now += 0.01
        sim.add_node(f"n{index % 2}", cpu="1", labels={"turn": str(index)})
        sim.add_pod(f"p{index}", requests={"cpu": "10"}, nodeSelector={"turn": "x"})
        sim.step()
    assert len(sim.scheduler.queue._stirred) < 200
