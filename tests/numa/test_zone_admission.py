"""Simulated nodes with zones: a pod that a kubelet would refuse is Failed, and others have what they were given."""

from __future__ import annotations

import random
from typing import Any

import pytest

from dray.api.core import Node
from dray.api.kinds import PODS
from dray.api.meta import decode
from dray.nodes.admission import Admission
from dray.nodes.kubelet import Kubelets
from dray.nodes.machine import MachineZone
from dray.nodes.topology import Config, Topology
from dray.nodes.zones import ZoneAdmission
from dray.numa.observe import Observed, as_annotations, observe
from dray.numa.placement import OBSERVED
from dray.numa.podresources import (
    AllocatableResourcesResponse,
    ContainerDevices,
    ContainerMemory,
    ContainerResources,
    NUMANode,
    PodResources,
    TopologyInfo,
)
from tests.numa import building
from tests.numa.building import GPU
from tests.numa.machines import machine
from tests.numa.machines import pod as random_pod
from tests.simulated import Place

NODE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n1"},
    "status": {
        "allocatable": {"cpu": "8", "memory": "100", "pods": "10", GPU: "4"},
        "capacity": {"cpu": "8", "memory": "100", "pods": "10"},
    },
}


class Cluster:
    def __init__(self) -> None:
        self.machine = Topology(
            [MachineZone(n, 4, 0, {"memory": 50}, {}, {GPU: 2}) for n in (0, 1)], Config("single-numa-node", "pod")
        )
        self.admission: Admission = ZoneAdmission({"n1": self.machine})
        self.place = Place()
        self.place.start(
            "nodes",
            Kubelets.kinds,
            lambda world: [Kubelets(world, [NODE], heartbeat=0, admission=self.admission)],
        )
        self.wait(3)

    def wait(self, seconds: float) -> None:
        self.place.shell.run(self.place.shell.elapsed + seconds)

    def run(self, name: str, **amounts: str) -> Any:
        limits = {GPU if key == "gpu" else key: value for key, value in amounts.items()} | {"memory": "10"}
        containers = [{"name": "c", "image": "i", "resources": {"requests": limits, "limits": limits}}]
        self.place.create(PODS, {"metadata": {"name": name}, "spec": {"nodeName": "n1", "containers": containers}})
        self.wait(20)
        return self.pod(name)

    def pod(self, name: str) -> Any:
        return self.place.get(PODS, name)


def test_a_pod_that_cannot_be_aligned_is_failed_and_the_others_run() -> None:
    cluster = Cluster()
    assert cluster.run("a", cpu="3")["status"]["phase"] == "Running"
    assert cluster.run("b", cpu="3")["status"]["phase"] == "Running"
    refused = cluster.run("c", cpu="2")["status"]
    assert (refused["phase"], refused["reason"]) == ("Failed", "TopologyAffinityError")


def test_what_a_pod_has_is_told_and_given_back() -> None:
    cluster = Cluster()
    uid = cluster.run("a", cpu="3", gpu="1")["metadata"]["uid"]
    held = cluster.admission.exclusive("n1", uid)
    near = TopologyInfo((NUMANode(0),))
    devices, memory = ContainerDevices(GPU, ("0-000",), near), ContainerMemory("memory", 10, near)
    assert held == {"c": ContainerResources("c", (devices,), (0, 1, 2), (memory,))}
    assert cluster.admission.allocatable("n1").cpu_ids == tuple(range(8))
    cluster.place.delete(PODS, "a")
    cluster.wait(60)
    assert cluster.admission.exclusive("n1", uid) == {}
    assert cluster.run("b", cpu="4")["status"]["phase"] == "Running"


def test_nodes_without_zones_are_not_concerned() -> None:
    admission: Admission = ZoneAdmission({})
    assert admission.exclusive("n2", "u") == {}
    assert admission.allocatable("n2") == AllocatableResourcesResponse()
    admission.release("n2", "u")


def observed(node: Topology, uid: str) -> Observed:
    return observe(PodResources("p", "ns", node.containers(uid)), node.zone_of_cpus())


def test_a_kubelet_that_starts_again_finds_every_pod_where_it_was() -> None:
    rng = random.Random(5)
    pods = found = 0
    for _ in range(150):
        before = machine(rng, policies=("best-effort", "restricted", "single-numa-node"), split="packed")
        given = [random_pod(rng, f"p{number}") for number in range(10)]
        for pod in given:
            before.admit(pod)
            before.started(pod)
        for pod in rng.sample(given, 4):
            before.remove(pod)
        after, admission = Topology(before.zones, before.config, None), {}
        admission["n1"] = after
        left = [pod for pod in given if pod.uid in before.held()]
        rng.shuffle(left)
        for pod in left:
            noted = {name: text for name, text in as_annotations(observed(before, pod.uid)).items() if text is not None}
            pod.metadata.annotations = noted
            ZoneAdmission(admission).restore(decode(Node, NODE), pod, {})
            pods += 1
            found += observed(after, pod.uid) == observed(before, pod.uid)
    # Of two containers it is not recorded which of them had what.
    assert pods > 100
    assert found >= 0.97 * pods, (found, pods)


@pytest.mark.parametrize(
    "text",
    ['[{"zone": "node-7", "amount": {"cpu": "3"}}]', '[{"zone": "node-0", "amount": {"cpu": "lots"}}]', "[{}]", "[", "7"],
)
def test_a_pod_that_nothing_is_recorded_of_is_taken_as_if_it_came_now(text: str) -> None:
    node = Topology([MachineZone(n, 4, 0, {"memory": 50}, {}, {}) for n in (0, 1)], Config("single-numa-node", "pod"))
    admission = ZoneAdmission({"n1": node})
    wrong = building.pod({"cpu": 3}, metadata={"uid": "1", "annotations": {OBSERVED: text}})
    admission.restore(decode(Node, NODE), wrong, {})
    assert observed(node, "1").zones == {0: {"cpu": 3000}}
