"""What ``dray why`` advises where neither a node nor a device class offers an extended resource."""

from __future__ import annotations

import json
import shlex

import pytest

from dray.api.gates import Gates
from dray.api.kinds import DEVICE_CLASSES, PODS
from dray.explain.answer import Why
from dray.explain.tree import nearest, tree
from dray.testing import VirtualCluster, device, device_class, node, pod, resource_slice

IMPLICIT = "deviceclass.resource.kubernetes.io/"


def asked(resource: str, gates: Gates | None = None, extended: str = "example.com/gpu") -> Why:
    cluster = VirtualCluster(gates=gates)
    cls = device_class("gpu.example.com")
    if extended:
        cls["spec"]["extendedResourceName"] = extended
    cluster.plant(cls)
    cluster.create(node("n1"), resource_slice("n1", [device("gpu-0")]), pod("p", limits={resource: "1"}))
    return cluster.why("p")


def test_a_name_that_is_nearly_the_same_is_suggested() -> None:
    answer = asked("example.com/gpus")
    assert "ask for example.com/gpu, which there is, instead of example.com/gpus" in answer.fixes


def test_where_nothing_is_alike_a_node_is_missing() -> None:
    assert asked("other.org/fpga").fixes == ["add a node that offers other.org/fpga"]


def test_a_class_that_has_no_name_may_be_given_it() -> None:
    (fix,) = [fix for fix in asked("example.com/card", extended="").advice if "device class" in fix.text]
    assert fix.text == "let a device class serve example.com/card, such as gpu.example.com"
    *command, change = shlex.split(fix.command)
    assert command == ["kubectl", "patch", "deviceclass", "gpu.example.com", "--type", "merge", "-p"]
    assert json.loads(change) == {"spec": {"extendedResourceName": "example.com/card"}}


def test_a_node_whose_device_plugin_is_gone_does_not_offer_it() -> None:
    cluster = VirtualCluster()
    left = node("n1")
    left["status"]["allocatable"] |= {"example.com/card": "0"}
    cluster.create(device_class("gpu.example.com"), left, node("n2"), pod("p", limits={"example.com/card": "1"}))
    assert cluster.why("p").fixes[0] == "let a device class serve example.com/card, such as gpu.example.com"


def test_with_that_name_the_pod_is_placed() -> None:
    cluster = VirtualCluster()
    cluster.create(device_class("gpu.example.com"), node("n1"), resource_slice("n1", [device("gpu-0")]))
    cluster.create(pod("p", limits={"example.com/card": "1"}))
    cluster.start_all()
    cluster.run(10)
    (fix,) = [fix for fix in cluster.why("p").advice if "device class" in fix.text]
    change = json.loads(shlex.split(fix.command)[-1])
    cluster.patch(DEVICE_CLASSES, "gpu.example.com", change)
    cluster.run(30)
    placed = cluster.get(PODS, "p")
    assert placed is not None
    assert placed["status"]["phase"] == "Running"


def test_an_implicit_name_is_that_of_a_class() -> None:
    fixes = asked(f"{IMPLICIT}gpus.example.com").fixes
    assert "name DeviceClass gpu.example.com, which exists, instead of gpus.example.com" in fixes
    assert "create DeviceClass gpus.example.com" in fixes


@pytest.mark.parametrize("resource", ["example.com/gpu", f"{IMPLICIT}gpu.example.com"])
def test_a_class_offers_it_and_the_feature_is_off(resource: str) -> None:
    answer = asked(resource, Gates.dray().updated({"DRAExtendedResource": False}))
    assert answer.fixes == [
        f"switch on the feature gate DRAExtendedResource: then device class gpu.example.com serves {resource}"
    ]


def test_more_of_it_than_a_claim_can_hold_is_as_many_as_a_node_has() -> None:
    cluster = VirtualCluster()
    cluster.create(device_class("gpu.example.com", extendedResourceName="example.com/gpu"))
    cluster.create(node("n1"), resource_slice("n1", 3), pod("p", limits={"example.com/gpu": "128"}))
    less, general = cluster.why("p").advice
    assert less.told == "request 3 example.com/gpu instead of 128 (then node n1 would do)"
    assert "example.com/gpu: '3'" in less.command
    assert general.text == "ask for at most 32 example.com/gpu in one pod, or add a node whose device plugin has as many"


def test_what_lacks_is_told_of_the_resource_and_the_container() -> None:
    cluster = VirtualCluster()
    cluster.create(device_class("gpu.example.com", extendedResourceName="example.com/gpu"))
    cluster.create(node("n1"), resource_slice("n1", 3), pod("p", limits={"example.com/gpu": "4"}))
    answer = cluster.why("p")
    name = cluster.get(PODS, "p")["spec"]["containers"][0]["name"]
    asked = f"example.com/gpu of container {name}"
    assert f"for {asked} (needs 4, 3 free of 3)" in answer.summary
    (claim,) = tree(answer, wide=False).branches
    assert (claim.text, claim.branches[0].text) == ("claim for extended resources", f"{asked}: 4 of class gpu.example.com")
    assert answer.nearest is not None
    assert nearest(answer.nearest) == f"Nearest: node n1 lacks 1 device for {asked}."


def test_a_pod_that_no_scheduler_placed_has_no_device_and_why_says_so() -> None:
    cluster = VirtualCluster()
    cluster.start_all()
    cluster.create(device_class("gpu.example.com", extendedResourceName="example.com/gpu"))
    plugin = node("plugin")
    plugin["status"]["allocatable"] = {**plugin["status"]["allocatable"], "example.com/gpu": "1"}
    cluster.plant(plugin)
    cluster.create(node("n1"), resource_slice("n1", 1))
    for name, where in (("direct", {"nodeName": "n1"}), ("placed", {}), ("by-plugin", {"nodeName": "plugin"})):
        cluster.create(pod(name, limits={"example.com/gpu": "1"}, **where))
    cluster.run(5)
    without = "it runs without example.com/gpu: no device plugin of node n1 offers it, and no scheduler made a claim for the pod"
    assert {name: cluster.why(name).notes for name in ("direct", "placed", "by-plugin")} == {
        "direct": [without],
        "placed": [],
        "by-plugin": [],
    }
    assert {name: cluster.why(name).choice is None for name in ("direct", "placed")} == {"direct": True, "placed": False}
