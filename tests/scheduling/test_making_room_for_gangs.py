"""Room for jobs of queues, made of devices, counters and nodes: proven before anything is evicted, as few as can be, and kept."""

from __future__ import annotations

from typing import Any

from dray.api import kinds
from dray.api.times import format_time
from dray.cluster.port import Unreachable
from dray.testing import VirtualCluster, assert_sound, device_class, node_with_devices
from dray.testing import pod as made_pod
from tests.scheduling.gangs import GPU, add_group, add_member, add_queue, add_single, cluster, running
from tests.scheduling.scheduling_cluster import Sim, pod

CLASS = '{"deviceclass/gpu": {"quota": %d, "limit": -1, "overQuotaWeight": 1}}'


def deletions(sim: Sim) -> list[str]:
    return [write.name for write in sim.log if write.kind is kinds.PODS and write.verb == "delete"]


def add_claimed(sim: Sim, name: str, queue: str, count: int = 1, group: str = "", **extra: Any) -> None:
    sim.add_claim(name, count=count)
    made = pod(name, labels={"kai.scheduler/queue": queue}, claims=[name], **extra)
    if group:
        made["metadata"]["annotations"] = {"pod-group-name": group}
    sim.api.put(kinds.PODS, made)


def give_back(sim: Sim) -> None:
    """What the controller of claims does when a pod is gone."""
    alive = {found["metadata"]["uid"] for found in sim.api.objects[kinds.PODS].values()}
    for key, claim in list(sim.api.objects[kinds.RESOURCE_CLAIMS].items()):
        users = claim.get("status", {}).get("reservedFor", [])
        if users and not any(user["uid"] in alive for user in users):
            claim["status"] = {}
            sim.api.objects[kinds.RESOURCE_CLAIMS][key] = claim


def settle(sim: Sim, seconds: int) -> None:
    for _ in range(seconds):
        sim.settle(1)
        give_back(sim)


class TestDevices:
    def test_a_gang_reclaims_devices_on_several_nodes_and_all_of_it_starts(self) -> None:
        sim = cluster(0, 0)
        sim.add_class()
        for node in ("n0", "n1"):
            sim.add_slice(node, 2)
        add_queue(sim, "a", 0, **{"dray.dev/resources": CLASS % 0})
        add_queue(sim, "b", 0, **{"dray.dev/resources": CLASS % 4})
        for index in range(4):
            add_claimed(sim, f"a{index}", "a")
        settle(sim, 4)
        assert len(running(sim)) == 4
        add_group(sim, "train", "b", 2)
        for index in range(2):
            add_claimed(sim, f"w{index}", "b", count=2, group="train")
        settle(sim, 10)
        assert running(sim) == {"w0", "w1"}
        assert sim.node_of("w0") != sim.node_of("w1")

    def test_for_a_claim_that_several_jobs_share_room_is_made_once(self) -> None:
        sim = cluster(0)
        sim.add_class()
        sim.add_slice("n0", 2)
        add_queue(sim, "a", 0, **{"dray.dev/resources": CLASS % 0})
        add_queue(sim, "b", 0, **{"dray.dev/resources": CLASS % 2})
        for index in range(2):
            add_claimed(sim, f"a{index}", "a")
        settle(sim, 4)
        sim.add_claim("both")
        for name in ("one", "other"):
            sim.add_pod(name, labels={"kai.scheduler/queue": "b"}, claims=["both"])
        settle(sim, 10)
        assert {"one", "other"} < running(sim)
        assert len(deletions(sim)) == 1

    def test_a_gang_does_not_make_room_for_a_claim_for_which_a_pod_of_no_queue_does_already(self) -> None:
        sim = cluster(0)
        sim.add_class()
        sim.add_slice("n0", 2)
        for index in range(2):
            sim.add_claim(f"low{index}")
            sim.add_pod(f"low{index}", claims=[f"low{index}"])
        settle(sim, 2)
        sim.add_claim("both")
        sim.add_pod("one", priority=10, claims=["both"])
        sim.step()
        add_group(sim, "train", "", 2)
        for index in range(2):
            made = pod(f"w{index}", priority=10, claims=["both"])
            made["metadata"]["annotations"] = {"pod-group-name": "train"}
            sim.api.put(kinds.PODS, made)
        settle(sim, 10)
        assert {"one", "w0", "w1"} < running(sim)
        assert len(deletions(sim)) == 1

    def test_only_as_many_devices_are_taken_as_are_needed(self) -> None:
        sim = cluster(0)
        sim.add_class()
        sim.add_slice("n0", 4)
        add_queue(sim, "a", 0, **{"dray.dev/resources": CLASS % 0})
        add_queue(sim, "b", 0, **{"dray.dev/resources": CLASS % 2})
        for index in range(4):
            add_claimed(sim, f"a{index}", "a")
        settle(sim, 4)
        add_claimed(sim, "w", "b", count=2)
        settle(sim, 10)
        assert "w" in running(sim)
        assert len(deletions(sim)) == 2

    def test_nothing_is_evicted_for_devices_that_would_not_do(self) -> None:
        """Three devices on one node are asked for; no node has more than two."""
        sim = cluster(0, 0)
        sim.add_class()
        for node in ("n0", "n1"):
            sim.add_slice(node, 2)
        add_queue(sim, "a", 0, **{"dray.dev/resources": CLASS % 0})
        add_queue(sim, "b", 0, **{"dray.dev/resources": CLASS % 4})
        for index in range(4):
            add_claimed(sim, f"a{index}", "a")
        settle(sim, 4)
        add_claimed(sim, "w", "b", count=3)
        settle(sim, 10)
        assert deletions(sim) == []
        assert len(running(sim)) == 4

    def test_the_pod_that_is_made_again_does_not_keep_the_claim_of_the_one_that_left_for_another(self) -> None:
        """It would have to leave in turn, again and again."""
        sim = cluster(0)
        sim.add_class()
        sim.add_slice("n0", 4)
        add_queue(sim, "a", 0, **{"dray.dev/resources": CLASS % 4})
        sim.add_pod("lowest", labels={"kai.scheduler/queue": "a"}, priority=0)
        sim.add_claim("shared")
        sim.add_pod("first", labels={"kai.scheduler/queue": "a"}, claims=["shared"], priority=1)
        sim.settle(3)
        sim.api.put(kinds.PODS, sim.pod("first") | {"metadata": sim.pod("first")["metadata"] | {"finalizers": ["graceful"]}})
        add_claimed(sim, "high", "a", count=4, priority=10)
        sim.settle(2)
        assert deletions(sim) == ["first"]
        sim.add_pod("second", labels={"kai.scheduler/queue": "a"}, claims=["shared"], priority=1)
        sim.settle(5)
        assert running(sim) == {"first", "lowest"}
        del sim.api.objects[kinds.PODS]["default/first"]
        settle(sim, 20)
        assert running(sim) == {"high", "lowest"}
        assert deletions(sim) == ["first"]


class TestNodes:
    def test_nobody_leaves_for_a_gang_that_would_exceed_the_limit_of_its_queue_then(self) -> None:
        """For the first member one has to leave; for the others nobody has to, and they count as well."""
        sim = cluster(4)
        add_queue(sim, "a", 2, limit=2)
        sim.api.put(kinds.PODS, pod("low", requests={GPU: "1", "cpu": "60"}, labels={"kai.scheduler/queue": "a"}, priority=1))
        sim.settle(3)
        add_group(sim, "train", "a", 3)
        for name in ("w0", "w1", "w2"):
            made = pod(name, requests={GPU: "1", "cpu": "10"}, priority=10)
            made["metadata"]["annotations"] = {"pod-group-name": "train"}
            sim.api.put(kinds.PODS, made)
        sim.settle(5)
        assert running(sim) == {"low"}
        assert "queue a would exceed its limit of gpu" in sim.condition("w0")["message"]

    def test_a_whole_node_is_freed_by_moving_who_finds_another_place(self) -> None:
        sim = cluster(4, 4)
        add_queue(sim, "a", 8)
        for index in range(2):
            add_single(sim, f"s{index}", "a", 1, again=True)
        sim.settle(3)
        assert len({sim.node_of(f"s{index}") for index in range(2)}) == 2
        add_single(sim, "large", "a", 4)
        sim.settle(5)
        assert "large" in running(sim)
        assert len(deletions(sim)) == 1

    def test_nobody_is_moved_whom_no_controller_makes_again(self) -> None:
        """There is room for each elsewhere, and nobody to go there. Of two the one moves that is made again."""
        sim = cluster(4, 4)
        add_queue(sim, "a", 8)
        for index in range(2):
            add_single(sim, f"s{index}", "a", 1, node_name=f"n{index}", phase="Running")
        add_single(sim, "large", "a", 4)
        sim.settle(5)
        assert running(sim) == {"s0", "s1"}
        assert not deletions(sim)
        sim = cluster(4, 4)
        add_queue(sim, "a", 8)
        for index in range(2):
            add_single(sim, f"s{index}", "a", 1, node_name=f"n{index}", phase="Running", again=bool(index))
        add_single(sim, "large", "a", 4)
        sim.settle(5)
        assert deletions(sim) == ["s1"]

    def test_nobody_is_moved_who_would_not_find_a_place(self) -> None:
        sim = cluster(4, 2)
        add_queue(sim, "a", 8)
        add_single(sim, "s0", "a", 3)
        sim.settle(3)
        add_single(sim, "s1", "a", 3)
        sim.settle(5)
        assert deletions(sim) == []

    def test_inside_a_queue_only_lower_priority_gives_way(self) -> None:
        sim = cluster(2)
        add_queue(sim, "a", 2)
        add_single(sim, "low", "a", 1, priority=10)
        add_single(sim, "same", "a", 1, priority=50)
        sim.settle(3)
        add_single(sim, "next", "a", 1, priority=50)
        sim.settle(5)
        assert running(sim) == {"same", "next"}
        add_single(sim, "third", "a", 1, priority=50)
        sim.settle(5)
        assert running(sim) == {"same", "next"}

    def test_what_runs_for_too_short_is_left_alone(self) -> None:
        sim = cluster(1)
        add_queue(sim, "a", 0)
        add_queue(sim, "b", 1)
        queue = sim.api.objects[kinds.QUEUES]["a"]
        queue["spec"]["reclaimMinRuntime"] = "60s"
        sim.api.objects[kinds.QUEUES]["a"] = queue
        add_single(sim, "a0", "a")
        sim.settle(3)
        add_single(sim, "b0", "b")
        sim.settle(30)
        assert running(sim) == {"a0"}
        sim.settle(60)
        assert running(sim) == {"b0"}

    def test_so_it_is_by_a_scheduler_that_did_not_see_it_start(self) -> None:
        sim = cluster(1)
        add_queue(sim, "a", 0)
        add_queue(sim, "b", 1)
        queue = sim.api.objects[kinds.QUEUES]["a"]
        queue["spec"]["reclaimMinRuntime"] = "60s"
        sim.api.objects[kinds.QUEUES]["a"] = queue
        add_single(sim, "a0", "a")
        sim.settle(3)
        started = sim.pod("a0")
        started["status"]["startTime"] = format_time(sim.now)
        sim.api.objects[kinds.PODS]["default/a0"] = started
        sim.restart()
        add_single(sim, "b0", "b")
        sim.settle(30)
        assert running(sim) == {"a0"}
        sim.settle(60)
        assert running(sim) == {"b0"}

    def test_surplus_of_an_elastic_gang_goes_first(self) -> None:
        sim = cluster(4)
        add_queue(sim, "a", 0)
        add_queue(sim, "b", 2)
        add_group(sim, "elastic", "a", 2)
        for index in range(4):
            add_member(sim, f"e{index}", "elastic")
        sim.settle(5)
        assert len(running(sim)) == 4
        add_single(sim, "b0", "b", 2)
        sim.settle(5)
        assert running(sim) >= {"b0"}
        assert len(running(sim)) == 3
        assert sorted(deletions(sim)) == ["e2", "e3"]

    def test_a_gang_is_never_evicted_in_part(self) -> None:
        sim = cluster(2, 2)
        add_queue(sim, "a", 0)
        add_queue(sim, "b", 1)
        add_group(sim, "whole", "a", 4)
        for index in range(4):
            add_member(sim, f"g{index}", "whole")
        sim.settle(5)
        add_single(sim, "b0", "b")
        sim.settle(5)
        assert running(sim) == {"b0"}
        assert len(deletions(sim)) == 4

    def test_room_that_was_promised_is_not_taken_by_others(self) -> None:
        sim = cluster(1)
        add_queue(sim, "a", 0)
        add_queue(sim, "b", 1)
        add_single(sim, "a0", "a")
        sim.settle(3)
        add_single(sim, "b0", "b")
        sim.step()
        sim.api.put(kinds.PODS, pod("other", requests={GPU: "1"}))
        sim.settle(10)
        assert running(sim) == {"b0"}


class TestDevicesThatAreMadeReady:
    def test_a_gang_is_bound_when_the_devices_of_all_are_ready(self) -> None:
        sim = cluster(0, 0)
        sim.add_class()
        for node in ("n0", "n1"):
            sim.add_slice(node, 1, bindingConditions=["ready"], bindingFailureConditions=["failed"])
        add_queue(sim, "a", 8)
        add_group(sim, "train", "a", 2)
        for index in range(2):
            add_claimed(sim, f"w{index}", "a", group="train")
        sim.settle(3)
        assert running(sim) == set()
        make_ready(sim, "w0")
        sim.settle(3)
        assert running(sim) == set()
        make_ready(sim, "w1")
        sim.settle(3)
        assert running(sim) == {"w0", "w1"}


def make_ready(sim: Sim, name: str) -> None:
    claim = sim.claim(name)
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    ready = {"type": "ready", "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    device = {key: result[key] for key in ("driver", "pool", "device")}
    claim["status"]["devices"] = [{**device, "conditions": [ready]}]
    sim.api.objects[kinds.RESOURCE_CLAIMS][f"default/{name}"] = claim


def queued_with_devices(pods: int, devices: int) -> VirtualCluster:
    """One node with so many devices, and pods of one queue that each ask for all of them by number."""
    found = VirtualCluster()
    found.start_all()
    found.create(device_class("gpu", extendedResourceName="example.com/gpu"), *node_with_devices("n0", devices, cpu="64"))
    unlimited = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    spec = {"resources": {"cpu": unlimited, "memory": unlimited, "gpu": unlimited}}
    found.create({"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": "blue"}, "spec": spec})
    limits, labels = {"example.com/gpu": str(devices)}, {"kai.scheduler/queue": "blue"}
    found.create(*(made_pod(f"p{number}", limits=limits, labels=labels) for number in range(pods)))
    return found


def test_nobody_is_promised_the_devices_that_another_has_for_extended_resources() -> None:
    """They stand in no claim that the pod names: it seemed to be able to stay beside the one that would take them."""
    found = queued_with_devices(5, 2)
    for left in range(5, 0, -1):
        found.run(20)
        pods = found.all(kinds.PODS)
        placed = [each["metadata"]["name"] for each in pods if each["spec"].get("nodeName")]
        assert (len(pods), len(placed)) == (left, 1), "each has its turn, and nobody goes for another"
        assert [each for each in pods if each["status"].get("nominatedNodeName")] == []
        found.delete(kinds.PODS, placed[0])
    assert_sound(found)


def test_of_a_gang_with_one_pod_more_than_it_needs_the_one_in_the_way_goes_and_the_others_go_on() -> None:
    """Also while one of these is about to start, which may not go any more: it would be left alone."""
    sim = cluster(1, 1, 1)
    add_queue(sim, "a", 3)
    add_single(sim, "low", "a")
    settle(sim, 3)
    add_group(sim, "train", "a", 2)
    for index in range(3):
        add_member(sim, f"w{index}", "train", priority=20)
    sim.fault = lambda write: Unreachable("no") if write.subresource == "binding" and write.name == "w2" else None
    settle(sim, 6)
    assert len(running(sim)) == 2
    assert deletions(sim) == ["low"]
    add_single(sim, "high", "a", priority=60, nodeSelector={"kubernetes.io/hostname": sim.node_of("w0")})
    settle(sim, 6)
    assert deletions(sim) == ["low", "w0"]
    sim.fault = lambda write: None
    settle(sim, 90)
    assert running(sim) == {"high", "w1", "w2"}


def test_so_it_is_rather_than_that_the_last_one_goes_and_another_moves_into_its_place() -> None:
    sim = cluster(1, 1, 1)
    add_queue(sim, "a", 3)
    add_group(sim, "train", "a", 2)
    for index in range(3):
        add_member(sim, f"w{index}", "train", again=True)
        settle(sim, 2)
    add_single(sim, "high", "a", priority=60, nodeSelector={"kubernetes.io/hostname": sim.node_of("w0")})
    settle(sim, 5)
    assert deletions(sim) == ["w0"]
    assert running(sim) == {"high", "w1", "w2"}
