"""A node takes a bound pod or fails it, once, with the reason that a kubelet gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from dray.api.core import Node, Pod
from dray.api.kinds import NODES, PODS
from dray.api.resource import ResourceClaim
from dray.nodes.admission import Rejection
from dray.numa.podresources import AllocatableResourcesResponse, ContainerResources
from dray.runtime.faults import Crash, Faults
from tests.nodes.laboratory import NODE, Laboratory


def asking(**requests: str) -> list[dict[str, Any]]:
    return [{"name": "c", "image": "i", "resources": {"requests": requests, "limits": requests}}]


@pytest.mark.parametrize(
    ("resource", "amount", "numbers"),
    [
        ("cpu", "50", "requested: 50000, used: 50000, capacity: 95500"),
        ("memory", "500Gi", "requested: 536870912000, used: 536870912000, capacity: 824633720832"),
        ("ephemeral-storage", "300Gi", "requested: 322122547200, used: 322122547200, capacity: 536870912000"),
    ],
)
def test_a_pod_that_is_too_much_for_the_node_fails(resource: str, amount: str, numbers: str) -> None:
    lab = Laboratory()
    lab.pod("first", containers=asking(**{resource: amount}))
    lab.run(5)
    lab.pod("second", containers=asking(**{resource: amount}))
    lab.run(10)
    assert (lab.phase("first"), lab.phase("second")) == ("Running", "Failed")
    status = lab.shown("second")
    assert status["reason"] == f"OutOf{resource}"
    assert status["message"] == f"Pod was rejected: Node didn't have enough resource: {resource}, {numbers}"
    assert f"OutOf{resource}: Node didn't have enough resource: {resource}, {numbers}" in lab.events()


def test_more_pods_than_the_node_allows_fail() -> None:
    lab = Laboratory()
    lab.node["status"]["allocatable"]["pods"] = "3"
    for number in range(5):
        lab.pod(f"p{number}")
    lab.run(10)
    assert sorted(lab.phase(f"p{n}") for n in range(5)) == ["Failed", "Failed", "Running", "Running", "Running"]
    failed = [lab.shown(f"p{n}") for n in range(5) if lab.phase(f"p{n}") == "Failed"]
    assert {status["reason"] for status in failed} == {"OutOfpods"}


def test_a_rejected_pod_stays_failed_when_there_is_room_again() -> None:
    lab = Laboratory()
    lab.pod("first", containers=asking(cpu="90"), annotations={"dray.dev/finishes-after": "20s"})
    lab.run(5)
    lab.pod("second", containers=asking(cpu="90"))
    lab.run(60)
    assert (lab.phase("first"), lab.phase("second")) == ("Succeeded", "Failed")
    lab.pod("third", containers=asking(cpu="90"))
    lab.run(70)
    assert lab.phase("third") == "Running"


def test_a_pod_that_terminates_holds_its_room_until_it_is_gone() -> None:
    lab = Laboratory()
    lab.pod("old", containers=asking(cpu="90"), annotations={"dray.dev/stops-after": "20s"})
    lab.run(5)
    lab.place.delete(PODS, "old")
    lab.run(6)
    lab.pod("early", containers=asking(cpu="90"))
    lab.run(30)
    lab.pod("late", containers=asking(cpu="90"))
    lab.run(40)
    assert (lab.phase("old"), lab.phase("early"), lab.phase("late")) == ("gone", "Failed", "Running")


def test_extended_resources_count_where_the_node_has_them_and_not_where_devices_stand_for_them() -> None:
    lab = Laboratory()
    lab.node["status"]["allocatable"]["vendor.example/widget"] = "1"
    lab.pod("has", containers=asking(**{"vendor.example/widget": "1"}))
    lab.run(5)
    lab.pod("short", containers=asking(**{"vendor.example/widget": "1"}))
    lab.pod("elsewhere", containers=asking(**{"cluster.example/licence": "5"}))
    lab.claim("special", "gpu-0")
    uid = lab.pod("devices", containers=asking(**{"vendor.example/widget": "1"}), resourceClaims=[])
    lab.reserve("special", "devices", uid)
    mapping = {"containerName": "c", "resourceName": "vendor.example/widget", "requestName": "gpu"}
    extended = {"resourceClaimName": "special", "requestMappings": [mapping]}
    lab.place.patch(PODS, "devices", {"status": {"extendedResourceClaimStatus": extended}}, subresource="status")
    lab.run(10)
    assert lab.shown("short")["reason"] == "OutOfvendor.example/widget"
    assert (lab.phase("elsewhere"), lab.phase("devices")) == ("Running", "Running")


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"nodeSelector": {"disk": "fast"}}, "NodeAffinity"),
        ({"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 1, "hostPort": 80}]}]}, "NodePorts"),
        ({"tolerations": []}, "TaintToleration"),
    ],
)
def test_a_pod_that_does_not_belong_on_the_node_fails(spec: dict[str, Any], reason: str) -> None:
    lab = Laboratory()
    port = [{"name": "c", "image": "i", "ports": [{"containerPort": 1, "hostPort": 80}]}]
    lab.pod("first", containers=port)
    lab.run(5)
    if reason == "TaintToleration":
        taint = {"key": "gone", "value": "", "effect": "NoExecute"}
        lab.place.patch(NODES, NODE, {"spec": {"taints": [taint]}})
        lab.run(6)
    lab.pod("second", **spec)
    lab.run(10)
    assert lab.shown("second")["reason"] == reason
    assert lab.phase("first") == "Running"


def test_pods_that_ran_before_a_restart_are_not_checked_again() -> None:
    lab = Laboratory(faults=Faults(crashes=(Crash(8.0, "nodes"),)))
    lab.pod("first", containers=asking(cpu="60"))
    lab.run(5)
    lab.place.patch(NODES, NODE, {"status": {"allocatable": {"cpu": "10"}}}, subresource="status")
    lab.run(20)
    assert lab.phase("first") == "Running"
    lab.pod("second", containers=asking(cpu="1"))
    lab.run(30)
    assert lab.shown("second")["message"].endswith("requested: 1000, used: 60000, capacity: 10000")


# ------------------------------------------------------------------------------------------------------ the seam


class Aligned:
    """A check beyond sums: takes two pods, and hands out a CPU to each."""

    def __init__(self) -> None:
        self.held: dict[str, int] = {}
        self.restored: list[str] = []

    def admit(self, node: Node, pod: Pod, claims: Mapping[str, ResourceClaim]) -> Rejection | None:
        if len(self.held) >= 2:
            return Rejection("TopologyAffinityError", "Resources cannot be allocated with Topology locality")
        self.held[pod.uid] = len(self.held)
        return None

    def started(self, node: str, pod: Pod) -> None:
        pass

    def restore(self, node: Node, pod: Pod, claims: Mapping[str, ResourceClaim]) -> None:
        self.restored.append(pod.metadata.name)

    def release(self, node: str, uid: str) -> None:
        self.held.pop(uid, None)

    def exclusive(self, node: str, uid: str) -> Mapping[str, ContainerResources]:
        return {"c": ContainerResources("c", cpu_ids=(self.held[uid],))} if uid in self.held else {}

    def allocatable(self, node: str) -> AllocatableResourcesResponse:
        return AllocatableResourcesResponse(cpu_ids=(0, 1))


def test_another_check_may_refuse_and_gets_back_what_it_gave() -> None:
    aligned = Aligned()
    lab = Laboratory(admission=aligned)
    lab.pod("a", annotations={"dray.dev/finishes-after": "20s"})
    lab.pod("too-much", containers=asking(cpu="900"))
    lab.run(5)
    assert lab.shown("too-much")["reason"] == "OutOfcpu"
    assert len(aligned.held) == 1
    lab.pod("b")
    lab.run(10)
    lab.pod("c")
    lab.run(15)
    assert lab.shown("c")["reason"] == "TopologyAffinityError"
    lab.run(30)
    lab.pod("d")
    lab.run(40)
    assert (lab.phase("a"), lab.phase("b"), lab.phase("d")) == ("Succeeded", "Running", "Running")
    lab.place.delete(PODS, "b")
    lab.run(50)
    assert len(aligned.held) == 1


def test_the_other_check_hears_of_pods_that_ran_before_a_restart() -> None:
    aligned = Aligned()
    lab = Laboratory(faults=Faults(crashes=(Crash(8.0, "nodes"),)), admission=aligned)
    lab.pod("a")
    lab.run(20)
    assert aligned.restored == ["a"]
