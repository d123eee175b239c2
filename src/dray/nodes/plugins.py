"""Devices of device plugins on simulated nodes: which of them each container has.

A node has as many as its capacity says of an extended resource; what is missing in ``allocatable`` is unhealthy. The device
manager is that of nodes with zones, with all devices in one zone.

Always true: nothing is refused here. Where there are too few, the sums of admission say so, with the reason that a kubelet gives.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from dray.api.core import Container, Node, Pod
from dray.api.kinds import NODES
from dray.api.requests import amounts, container_requests, is_sidecar
from dray.api.resource import ResourceClaim
from dray.cluster.world import World
from dray.nodes.admission import Rejection
from dray.nodes.machine import AllocationFailed, Devices, MachineZone
from dray.numa.podresources import AllocatableResourcesResponse, ContainerDevices, ContainerResources
from dray.scheduling.plugins.resources import is_extended

# More than this of one resource on one node is an amount, not devices that a plugin hands out one by one.
DEVICES_MAX: Final = 4096

Counts = dict[str, tuple[int, int]]  # resource -> how many there are, and how many of them are healthy


class _Node:
    def __init__(self, counts: Counts) -> None:
        self.counts = counts
        there = {resource: count for resource, (count, _) in counts.items()}
        unhealthy = {resource: max(count - healthy, 0) for resource, (count, healthy) in counts.items()}
        self.devices = Devices([MachineZone(0, devices=there, unhealthy=unhealthy)])
        self.pods: dict[str, Pod] = {}

    def take(self, pod: Pod) -> None:
        try:
            for container, resource, count in _wanted(pod, self.counts):
                init = container in pod.spec.init_containers and not is_sidecar(container)
                self.devices.allocate(pod.uid, container.name, resource, count, None, init=init)
        except AllocationFailed:
            self.devices.release(pod.uid)
        else:
            self.pods[pod.uid] = pod
        self.devices.forget(pod.uid)

    def release(self, uid: str) -> None:
        if self.pods.pop(uid, None) is not None:
            self.devices.release(uid)


class DevicePlugins:
    """Implements ``Admission`` for nodes whose capacity has extended resources."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._nodes: dict[str, _Node] = {}

    def admit(self, node: Node, pod: Pod, claims: Mapping[str, ResourceClaim]) -> Rejection | None:
        known = self._of(node)
        if pod.uid not in known.pods:
            known.take(pod)
        return None

    def started(self, node: str, pod: Pod) -> None:
        """Devices of init containers stay with the pod."""

    def restore(self, node: Node, pod: Pod, claims: Mapping[str, ResourceClaim]) -> None:
        self.admit(node, pod, claims)

    def release(self, node: str, uid: str) -> None:
        if node in self._nodes:
            self._nodes[node].release(uid)

    def exclusive(self, node: str, uid: str) -> Mapping[str, ContainerResources]:
        given = self._nodes[node].devices.given if node in self._nodes else {}
        return {
            container: ContainerResources(
                container, tuple(ContainerDevices(name, tuple(sorted(ids))) for name, ids in held.items())
            )
            for (pod, container), held in given.items()
            if pod == uid
        }

    def allocatable(self, node: str) -> AllocatableResourcesResponse:
        found: Node | None = self._world.get(NODES, node)
        if found is None:
            return AllocatableResourcesResponse()
        known = self._of(found)
        healthy = (ContainerDevices(name, tuple(sorted(known.devices.healthy(name)))) for name in known.counts)
        return AllocatableResourcesResponse(tuple(healthy))

    def _of(self, node: Node) -> _Node:
        """What the node has now. Where plugins came or went, its pods are given their devices anew."""
        counts = _counts(node)
        known = self._nodes.get(node.metadata.name)
        if known is None or known.counts != counts:
            pods = known.pods.values() if known is not None else ()
            known = self._nodes[node.metadata.name] = _Node(counts)
            for pod in pods:
                known.take(pod)
        return known


def _counts(node: Node) -> Counts:
    there = amounts({name: value for name, value in node.status.capacity.items() if is_extended(name)})
    usable = amounts({name: node.status.allocatable.get(name, node.status.capacity[name]) for name in there})
    return {name: (count, usable[name]) for name, count in there.items() if 0 < count <= DEVICES_MAX}


def _wanted(pod: Pod, counts: Counts) -> Iterable[tuple[Container, str, int]]:
    extended = pod.status.extended_resource_claim_status
    mapped = {(m.container_name, m.resource_name) for m in extended.request_mappings} if extended is not None else set()
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        for resource, count in container_requests(container).items():
            if resource in counts and count and (container.name, resource) not in mapped:
                yield container, resource, count
