"""Spare devices of a fabric are attached to nodes for pods that wait, and taken back when nobody uses them."""

from __future__ import annotations

from typing import Any

import pytest

from dray.api.kinds import EVENTS, PODS, RESOURCE_SLICES
from dray.devices.amounts import DETACHED
from dray.nodes.attaching import DETACHING, FROM, SPARE
from dray.nodes.autoscaling import DeviceAutoscaler
from dray.testing import (
    VirtualCluster,
    assert_running,
    assert_sound,
    claim_template,
    device,
    device_class,
    node,
    pod,
)

Plain = dict[str, Any]
DRIVER = "gpu.example.com"


def spare(count: int, **labels: str) -> Plain:
    """What the fabric has: devices that nobody can be given, for nodes on it."""
    taint = {"key": DETACHED, "effect": "NoSchedule"}
    devices = [device(f"gpu-{n}", taints=[taint]) for n in range(count)]
    terms = [{"matchExpressions": [{"key": "fabric", "operator": "In", "values": ["one"]}]}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "spare", "labels": {SPARE: "true", **labels}},
        "spec": {
            "driver": DRIVER,
            "pool": {"name": "fabric", "generation": 1, "resourceSliceCount": 1},
            "nodeSelector": {"nodeSelectorTerms": terms},
            "devices": devices,
        },
    }


def cluster(*objects: Plain, count: int = 4) -> VirtualCluster:
    made = VirtualCluster()
    made.start_all()
    made.start("fabric", DeviceAutoscaler.kinds, lambda world: [DeviceAutoscaler(world, attach_seconds=3, idle_seconds=60)])
    on, off = node("on", labels={"fabric": "one"}), node("off")
    templates = [claim_template("one"), claim_template("two", count=2)]
    made.create(device_class("gpu"), *templates, off, on, spare(count), *objects)
    return made


def attached(made: VirtualCluster) -> dict[str, list[str]]:
    """By node: the devices that are attached to it and can be had."""
    found = made.all(RESOURCE_SLICES, **{FROM: "spare"})
    return {each["spec"]["nodeName"]: [device["name"] for device in each["spec"]["devices"]] for each in found}


def test_a_pod_that_waits_gets_a_device_attached_to_a_node_that_is_there() -> None:
    made = cluster(pod("train", template="one"))
    made.run(30)
    assert_running(made, "train")
    assert attached(made) == {"on": ["gpu-0"]}
    (bound,) = made.all(PODS)
    assert bound["spec"]["nodeName"] == "on"
    assert_sound(made)


def test_as_many_as_it_needs_and_no_more() -> None:
    made = cluster(pod("train", template="two"))
    made.run(30)
    assert_running(made, "train")
    assert attached(made) == {"on": ["gpu-0", "gpu-1"]}


def test_one_after_the_other_until_there_are_none() -> None:
    made = cluster(*(pod(f"train-{n}", template="one") for n in range(6)))
    made.run(120)
    assert attached(made) == {"on": ["gpu-0", "gpu-1", "gpu-2", "gpu-3"]}
    assert sum(bool(body["spec"].get("nodeName")) for body in made.all(PODS)) == 4
    assert_sound(made)


def test_nothing_is_attached_for_a_pod_that_would_not_fit_all_the_same() -> None:
    made = cluster(pod("huge", template="one", requests={"cpu": "100"}), pod("many", claims=["none"]))
    made.run(60)
    assert attached(made) == {}


def test_what_nobody_uses_for_a_while_is_taken_back() -> None:
    made = cluster(pod("train", template="two"))
    made.run(30)
    made.delete(PODS, "train")
    made.run(50)
    assert attached(made) == {"on": ["gpu-0", "gpu-1"]}
    made.run(60)
    assert attached(made) == {}
    made.create(pod("again", template="one"))
    made.run(30)
    assert_running(made, "again")


def test_a_device_that_is_wanted_again_while_it_is_taken_back_stays() -> None:
    made = cluster(pod("train", template="one"))
    made.run(30)
    made.delete(PODS, "train")
    made.run_until(lambda: DETACHING in str(made.all(RESOURCE_SLICES, **{FROM: "spare"})), 200)
    made.create(pod("again", template="one"))
    made.run(60)
    assert_running(made, "again")
    assert_sound(made)


@pytest.mark.parametrize("at", [2.5, 4.0, 6.0, 8.0])
def test_a_crash_loses_no_device(at: float) -> None:
    made = cluster(pod("train", template="one"))
    made.at(at, lambda: made.crash("fabric", 5))
    made.run(60)
    assert_running(made, "train")
    assert attached(made) == {"on": ["gpu-0"]}


def test_why_tells_that_a_device_of_the_fabric_would_do() -> None:
    made = VirtualCluster()
    made.start_all()
    made.create(device_class("gpu"), claim_template("one"), node("on", labels={"fabric": "one"}), spare(1))
    made.create(pod("train", template="one"))
    made.run(10)
    assert "attach device gpu-0 of the fabric (gpu.example.com) to node on (then node on would do)" in made.why("train").fixes


def test_who_was_refused_only_just_is_not_forgotten() -> None:
    """Nothing else happens any more in the cluster, and a queue decides a second after its pods came."""
    spec = {"resources": {name: {"quota": -1, "limit": -1} for name in ("cpu", "memory", "gpu")}}
    queue = {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": "a"}, "spec": spec}
    made = cluster(queue, *(pod(f"a-{n}", template="one", labels={"kai.scheduler/queue": "a"}) for n in range(2)))
    made.run(60)
    assert_running(made, "a-0")
    assert_running(made, "a-1")


def test_queues_divide_what_is_attached_and_not_what_is_spare_besides() -> None:
    """The fabric goes on publishing what it has attached: counted twice, who has all of it would seem to have his half."""
    counted = {"dray.dev/resources": '{"deviceclass/gpu": {"quota": 0}}'}
    unlimited = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    spec = {"resources": dict.fromkeys(("cpu", "memory", "gpu"), unlimited)}
    about = {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "spec": spec}
    queues = [{**about, "metadata": {"name": name, "annotations": counted}} for name in ("a", "b")]
    labels = {"kai.scheduler/queue": "a"}
    made = cluster(*queues, *(pod(f"a-{n}", template="one", labels=labels) for n in range(4)))
    made.run(60)
    assert attached(made) == {"on": ["gpu-0", "gpu-1", "gpu-2", "gpu-3"]}
    made.create(*(pod(f"b-{n}", template="one", labels={"kai.scheduler/queue": "b"}) for n in range(4)))
    made.run(60)
    bound = [body["metadata"]["name"] for body in made.all(PODS) if body["spec"].get("nodeName")]
    assert sorted(name[0] for name in bound) == ["a", "a", "b", "b"]
    assert_sound(made)


def test_nobody_is_told_to_tolerate_that_a_device_is_not_attached() -> None:
    """With all of them attached elsewhere, whoever tolerates it would be given what others have."""
    made = cluster(*(pod(f"train-{n}", template="one") for n in range(5)))
    made.run(120)
    assert attached(made) == {"on": ["gpu-0", "gpu-1", "gpu-2", "gpu-3"]}
    (waits,) = [body["metadata"]["name"] for body in made.all(PODS) if not body["spec"].get("nodeName")]
    assert not [fix for fix in made.why(waits).fixes if DETACHED in fix]


@pytest.mark.parametrize("spares", [2, 3])
def test_why_tells_what_has_to_be_attached_for_all_pods_that_start_together(spares: int) -> None:
    made = VirtualCluster()
    made.start_all()
    made.create(device_class("gpu"), claim_template("one"), node("on", labels={"fabric": "one"}), spare(spares))
    made.create(*gang("train", "one", 3))
    made.run(10)
    told = [fix for fix in made.why("train-1").fixes if fix.startswith("attach")]
    what = "gpu-0, gpu-1, gpu-2 of the fabric (gpu.example.com) to node on"
    assert told == ([f"attach {what} (then all 3 pods start together)"] if spares == 3 else [])


@pytest.mark.parametrize("template", ["one", "two"])
def test_a_gang_starts_when_all_its_members_have_theirs(template: str) -> None:
    spec = {"minMember": 2}
    group = {"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup", "metadata": {"name": "train"}, "spec": spec}
    members = (pod(f"w{n}", template=template, annotations={"pod-group-name": "train"}) for n in range(2))
    made = cluster(group, *members)
    made.run(90)
    assert_running(made, "w0")
    assert_running(made, "w1")
    assert len(attached(made)["on"]) == {"one": 2, "two": 4}[template]
    assert_sound(made)


def gang(name: str, template: str, count: int, minimum: int = 0, **more: Any) -> list[Plain]:
    spec = {"minMember": minimum or count}
    group = {"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup", "metadata": {"name": name}, "spec": spec}
    annotations = {"pod-group-name": name}
    return [group, *(pod(f"{name}-{n}", template=template, annotations=annotations, **more) for n in range(count))]


def on_two_nodes(*objects: Plain, count: int, idle: float = 60) -> VirtualCluster:
    made = VirtualCluster()
    made.start_all()
    made.start("fabric", DeviceAutoscaler.kinds, lambda world: [DeviceAutoscaler(world, attach_seconds=3, idle_seconds=idle)])
    nodes = [node(name, labels={"fabric": "one"}, cpu="2") for name in ("a", "b")]
    made.create(device_class("gpu"), claim_template("one"), claim_template("two", count=2), *nodes, spare(count), *objects)
    return made


def running(made: VirtualCluster) -> set[str]:
    return {body["metadata"]["name"] for body in made.all(PODS) if body["spec"].get("nodeName")}


class TestPodsThatStartTogether:
    def test_nothing_is_attached_where_it_is_too_little_for_all(self) -> None:
        made = cluster(*gang("train", "one", 3), count=2)
        seen: list[dict[str, list[str]]] = []
        for _ in range(60):
            made.run(2)
            seen.append(attached(made))
        assert seen == [{}] * 60
        [told] = {event["message"] for event in made.all(EVENTS) if event["reason"] == "FabricTooSmall"}
        start = "no devices attached for podgroup default/train: the spare devices are enough"
        assert told == f"{start} for 2 of its 3 pods, but not for default/train-2"

    def test_all_is_attached_at_once_where_it_is_enough(self) -> None:
        made = cluster(*gang("train", "one", 3), count=3)
        made.run_until(lambda: bool(attached(made)), 60)
        assert attached(made) == {"on": ["gpu-0", "gpu-1", "gpu-2"]}
        made.run(20)
        assert running(made) == {"train-0", "train-1", "train-2"}
        assert_sound(made)

    def test_also_on_several_nodes(self) -> None:
        made = on_two_nodes(*gang("train", "one", 4, requests={"cpu": "1"}), count=4)
        made.run_until(lambda: bool(attached(made)), 60)
        made.run(0.5)
        assert {name: len(devices) for name, devices in attached(made).items()} == {"a": 2, "b": 2}
        made.run(20)
        assert len(running(made)) == 4
        assert_sound(made)

    def test_nothing_where_the_nodes_have_no_room_for_all(self) -> None:
        made = on_two_nodes(*gang("train", "one", 5, requests={"cpu": "1"}), count=8)
        made.run(60)
        assert attached(made) == {}

    def test_nothing_while_pods_of_it_are_missing(self) -> None:
        made = cluster(*gang("train", "one", 2, minimum=3), count=4)
        made.run(60)
        assert attached(made) == {}

    def test_pods_beyond_the_minimum_come_one_by_one(self) -> None:
        made = cluster(*gang("train", "one", 4, minimum=2), count=3)
        made.run(90)
        assert len(running(made)) == 3
        assert len(attached(made)["on"]) == 3

    def test_a_gang_that_gets_nothing_is_in_nobodys_way(self) -> None:
        made = cluster(*gang("train", "one", 5), pod("single", template="one"), count=2)
        made.run(60)
        assert running(made) == {"single"}

    def test_who_is_before_a_gang_has_its_device_first(self) -> None:
        """Three devices for a gang of three and a pod that is more important: the gang gets nothing then."""
        high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000}
        made = cluster(high, pod("first", template="one", priorityClassName="high"), *gang("train", "one", 3), count=3)
        made.run(90)
        assert running(made) == {"first"}
        assert attached(made) == {"on": ["gpu-0"]}

    def test_of_two_gangs_one_starts_and_not_a_part_of_each(self) -> None:
        made = cluster(*gang("one", "one", 3), *gang("two", "one", 3), count=4)
        made.run(120)
        assert len(running(made)) == 3
        assert len({name.partition("-")[0] for name in running(made)}) == 1
        assert len(attached(made)["on"]) == 3

    def test_the_older_gang_has_the_devices_though_a_smaller_one_would_take_them(self) -> None:
        made = cluster(*gang("four", "one", 4), count=5)
        made.run(1)
        made.create(*gang("two", "one", 2))
        made.run(90)
        assert running(made) == {f"four-{n}" for n in range(4)}
        assert len(attached(made)["on"]) == 4

    def test_who_cannot_have_them_leaves_them_to_a_smaller_one(self) -> None:
        made = cluster(*gang("four", "one", 4), count=3)
        made.run(1)
        made.create(*gang("two", "one", 2))
        made.run(90)
        assert running(made) == {"two-0", "two-1"}
        assert len(attached(made)["on"]) == 2
        told = {event["message"] for event in made.all(EVENTS) if event["reason"] == "FabricTooSmall"}
        assert any("are enough for 3 of its 4 pods, but not for default/four-3" in each for each in told)

    def test_an_annotation_is_enough(self) -> None:
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u", "controller": True}
        members = [pod(f"w{n}", template="one", annotations={"dray.dev/gang": "3"}) for n in range(3)]
        for body in members:
            body["metadata"]["ownerReferences"] = [owner]
        made = cluster(*members, count=2)
        made.run(60)
        assert attached(made) == {}

    def test_what_is_idle_is_not_taken_back_from_a_gang_that_is_about_to_use_it(self) -> None:
        """One of its devices was attached for somebody before, and would go back while the others are attached."""
        made = cluster(pod("old", template="one"), count=3)
        made.run(30)
        made.delete(PODS, "old")
        made.run(52)  # idle for nearly as long as is allowed
        assert attached(made) == {"on": ["gpu-0"]}
        made.create(*gang("train", "one", 3))
        seen: list[str] = []
        for _ in range(20):
            made.run(1)
            seen.append(str(made.all(RESOURCE_SLICES, **{FROM: "spare"})))
        assert not any(DETACHING in each for each in seen)
        assert running(made) == {"train-0", "train-1", "train-2"}

    @pytest.mark.parametrize("at", [2.5, 4.0, 6.0, 8.0])
    def test_a_crash_leaves_no_half_of_it(self, at: float) -> None:
        made = on_two_nodes(*gang("train", "one", 4, requests={"cpu": "1"}), count=4)
        made.at(at, lambda: made.crash("fabric", 5))
        made.run(90)
        assert len(running(made)) == 4
        assert sum(map(len, attached(made).values())) == 4
