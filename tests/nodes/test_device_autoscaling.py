"""Spare devices of a fabric are attached to nodes for pods that wait, and taken back when nobody uses them."""

from __future__ import annotations

from typing import Any

import pytest

from dray.api.kinds import PODS, RESOURCE_SLICES
from dray.nodes.autoscaling import DETACHED, DETACHING, FROM, SPARE, DeviceAutoscaler
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
