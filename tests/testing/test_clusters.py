"""A cluster for other people's tests: time, parts, users, and assertions that say why."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from dray.api.kinds import NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from dray.cluster.port import Change, Invalid, Write
from dray.controllers.keyed import Keyed
from dray.testing import (
    FAULTS,
    Lockstep,
    NotAtRest,
    VirtualCluster,
    assert_running,
    assert_sound,
    assert_waiting,
    claim,
    claim_template,
    device,
    device_class,
    node,
    node_with_devices,
    pod,
    resource_slice,
)


@pytest.fixture
def cluster() -> VirtualCluster:
    made = VirtualCluster()
    made.start_all()
    made.create(device_class("gpu"), *node_with_devices("n1", 1), claim_template("one-gpu"))
    return made


def test_pods_run_with_devices_and_without(cluster: VirtualCluster) -> None:
    cluster.create(pod("plain", requests={"cpu": "1"}), pod("train", template="one-gpu"))
    cluster.run(10)
    assert_running(cluster, "plain", "train", on="n1")
    assert_sound(cluster, strict=True)


@pytest.mark.parametrize("name", ["default-scheduler", "dray", "kai-scheduler"])
def test_pods_may_ask_for_the_scheduler_by_each_of_its_names(cluster: VirtualCluster, name: str) -> None:
    cluster.create(pod("train", template="one-gpu", schedulerName=name))
    cluster.run(10)
    assert_running(cluster, "train", on="n1")


def test_the_same_seed_gives_the_same_run() -> None:
    def digest(seed: int) -> str:
        cluster = VirtualCluster(seed=seed, faults=FAULTS["everything"])
        cluster.start_all()
        cluster.create(device_class("gpu"), *node_with_devices("n1", 1), claim("c"), pod("p", claims=["c"]))
        cluster.run(120)
        return cluster.shell.digest

    assert digest(1) == digest(1) != digest(2)


def test_a_crashed_part_comes_back(cluster: VirtualCluster) -> None:
    cluster.crash("scheduler", down=30)
    cluster.create(pod("p"))
    cluster.run(20)
    assert_waiting(cluster, "p")
    cluster.run(20)
    assert_running(cluster, "p")


def test_something_happens_at_its_time(cluster: VirtualCluster) -> None:
    cluster.at(30, lambda: cluster.delete(PODS, "p"))
    cluster.create(pod("p"))
    cluster.run_until(lambda: cluster.get(PODS, "p") is None)
    assert 30 <= cluster.elapsed < 40


def test_what_the_api_refuses_is_raised(cluster: VirtualCluster) -> None:
    with pytest.raises(Invalid, match=r"spec.containers"):
        cluster.create(pod("p", containers=[]))


def test_what_is_planted_was_always_there(cluster: VirtualCluster) -> None:
    """A client cannot create a pod that runs, with a uid of its choice."""
    body = pod("old", nodeName="n1")
    cluster.plant({**body, "metadata": {**body["metadata"], "uid": "mine"}, "status": {"phase": "Running"}})
    cluster.run(5)
    assert_running(cluster, "old", on="n1")
    assert cluster.all(PODS)[0]["metadata"]["uid"] == "mine"


@pytest.mark.parametrize(
    "body",
    [
        node("n2", labels={"a": "b"}, taints=[{"key": "k", "effect": "NoSchedule"}]),
        resource_slice(
            "n1", [device("d", capacity={"memory": "1Gi"}, attributes={"model": "x", "index": 1, "ok": True})], pool="p"
        ),
        resource_slice("", 3),
        device_class("large", expression='device.capacity["gpu.example.com"].memory.isGreaterThan(quantity("1Gi"))'),
        claim("c", count=2, tolerations=[{"operator": "Exists"}]),
        claim_template("t", device_class="large"),
        pod("p", limits={"example.com/gpu": "1"}, claims=["c"], template="t", labels={"a": "b"}, annotations={"a": "b"}),
    ],
    ids=lambda body: body["kind"],
)
def test_what_is_built_is_taken_by_the_api(cluster: VirtualCluster, body: dict[str, object]) -> None:
    cluster.create(body)


class TestAssertions:
    def test_say_why_a_pod_does_not_run(self, cluster: VirtualCluster) -> None:
        cluster.create(pod("large", requests={"cpu": "100"}))
        cluster.run(5)
        with pytest.raises(AssertionError, match=r"pod large is Pending, not Running: .* has not enough cpu"):
            assert_running(cluster, "large")

    def test_say_where_it_runs_instead(self, cluster: VirtualCluster) -> None:
        cluster.create(pod("p"))
        cluster.run(5)
        with pytest.raises(AssertionError, match="runs on node n1, not on n2"):
            assert_running(cluster, "p", on="n2")
        with pytest.raises(AssertionError, match="does not wait: it is on node n1"):
            assert_waiting(cluster, "p")
        with pytest.raises(AssertionError, match="there is no pod default/other"):
            assert_running(cluster, "other")

    def test_say_what_it_waits_for_instead(self, cluster: VirtualCluster) -> None:
        cluster.create(pod("large", requests={"cpu": "100"}))
        cluster.run(5)
        with pytest.raises(AssertionError, match=r"does not wait for NotEnoughDevices but: .* has not enough cpu"):
            assert_waiting(cluster, "large", "NotEnoughDevices")

    def test_name_the_rules_that_do_not_hold(self, cluster: VirtualCluster) -> None:
        result = {"request": "devices", "driver": "gpu.example.com", "pool": "n1", "device": "dev-0"}
        for name in ("a", "b"):
            cluster.plant({**claim(name), "status": {"allocation": {"devices": {"results": [result]}}}})
        with pytest.raises(AssertionError, match=r"device-owner: device/gpu.example.com/n1/dev-0 claim/default/a"):
            assert_sound(cluster)

    def test_time_that_runs_out_is_told(self, cluster: VirtualCluster) -> None:
        with pytest.raises(AssertionError, match="within 60 s of virtual time"):
            cluster.run_until(lambda: False, limit=60)


class Restless(Keyed):
    """A controller with a mistake: it writes something else each time."""

    name, kinds = "restless", (NODES,)

    def concerned(self, change: Change) -> Iterable[str]:
        return [change.object.metadata.name]

    def decide(self, key: str, now: float) -> list[Write]:
        version = self.world.get(NODES, key).metadata.resource_version
        return [Write("patch", NODES, name=key, body={"metadata": {"annotations": {"seen": version}}})]


class TestLockstep:
    def test_says_so_when_a_decider_does_not_come_to_rest(self) -> None:
        restless = Lockstep(Restless.kinds, Restless)
        restless.server.plant(node("n1"))
        with pytest.raises(NotAtRest, match="restless does not come to rest; its last writes: patch nodes n1"):
            restless.settle()

    def test_changes_can_be_held_back_until_a_list(self) -> None:
        held = Lockstep(Restless.kinds, Restless)
        held.server.watchers.remove(held.see)
        held.server.plant(node("n1"))
        assert held.step() == []
        held.relist()
        assert [write.key for write in held.step()] == ["n1"]

    def test_planting_again_keeps_who_it_is(self) -> None:
        held = Lockstep((RESOURCE_SLICES, RESOURCE_CLAIMS), lambda world: Restless(world))
        first = held.server.plant(claim("c"))
        again = held.server.plant(claim("c", count=2))
        assert first["metadata"]["uid"] == again["metadata"]["uid"]
        assert int(first["metadata"]["resourceVersion"]) < int(again["metadata"]["resourceVersion"])


def test_a_sick_device_shows_in_the_status_of_its_pod_and_ends_it_if_it_must(cluster: VirtualCluster) -> None:
    cluster.create(pod("train", template="one-gpu"))
    cluster.run(10)
    (slice_,) = cluster.all(RESOURCE_SLICES)
    name, (found,) = slice_["metadata"]["name"], slice_["spec"]["devices"]
    annotation = f"fault.dray.dev/{found['name']}"
    cluster.patch(RESOURCE_SLICES, name, {"metadata": {"annotations": {annotation: "NoSchedule two bits flipped"}}})
    cluster.run(10)
    (status,) = (cluster.get(PODS, "train") or {})["status"]["containerStatuses"]
    ((unit,),) = [resources["resources"] for resources in status["allocatedResourcesStatus"]]
    assert (unit["health"], unit["message"]) == ("Unhealthy", "two bits flipped")
    cluster.patch(RESOURCE_SLICES, name, {"metadata": {"annotations": {annotation: "fell off the bus"}}})
    cluster.run(60)
    assert cluster.get(PODS, "train") is None


def test_a_kubelet_that_stops_is_missed_where_nodes_have_a_heartbeat() -> None:
    cluster = VirtualCluster()
    cluster.start_controllers()
    cluster.start_nodes(heartbeat=10)
    cluster.create(node("n1"), node("n2"))
    cluster.run(30)
    cluster.patch(NODES, "n1", {"metadata": {"annotations": {"dray.dev/kubelet": "stopped"}}})
    cluster.run(120)
    taints = {name: (cluster.get(NODES, name) or {})["spec"].get("taints") for name in ("n1", "n2")}
    assert [taint["key"] for taint in taints["n1"]] == ["node.kubernetes.io/unreachable"] * 2
    assert not taints["n2"]
