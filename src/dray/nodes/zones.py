"""Simulated kubelets with zones: the Topology Manager as one more check of admission.

Nodes without zones are not concerned. A simulated node does not run init containers one by one in time, so what they had alone
comes back as soon as the pod is taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dray.api.core import Node, Pod
from dray.api.resource import ResourceClaim
from dray.nodes.admission import Exclusive, Rejection
from dray.nodes.topology import Rejection as Refused
from dray.nodes.topology import Topology
from dray.numa.podresources import ContainerDevices, ContainerMemory


class ZoneAdmission:
    """Implements ``Admission`` for the nodes that have a ``Topology``."""

    def __init__(self, nodes: Mapping[str, Topology]) -> None:
        self._nodes = nodes

    def admit(self, node: Node, pod: Pod, claims: Mapping[str, ResourceClaim]) -> Rejection | None:
        kubelet = self._nodes.get(node.metadata.name)
        if kubelet is None:
            return None
        answer = kubelet.admit(pod)
        if isinstance(answer, Refused):
            return Rejection(answer.reason, answer.message)
        kubelet.started(pod)
        return None

    def restore(self, node: Node, pod: Pod, claims: Mapping[str, ResourceClaim]) -> None:
        """What a kubelet finds in its state files; pods come in the order in which they were taken, as far as that is known."""
        self.admit(node, pod, claims)

    def release(self, node: str, uid: str) -> None:
        if node in self._nodes:
            self._nodes[node].release(uid)

    def exclusive(self, node: str, uid: str) -> Mapping[str, Exclusive]:
        if node not in self._nodes:
            return {}
        return {
            container.name: Exclusive(tuple(container.cpu_ids), _memory(container.memory), _devices(container.devices))
            for container in self._nodes[node].containers(uid)
        }

    def allocatable(self, node: str) -> Exclusive:
        if node not in self._nodes:
            return Exclusive()
        found = self._nodes[node].allocatable()
        return Exclusive(tuple(found.cpu_ids), _memory(found.memory), _devices(found.devices))


def _memory(blocks: Iterable[ContainerMemory]) -> tuple[tuple[str, int, tuple[int, ...]], ...]:
    return tuple(
        (block.memory_type, block.size, tuple(zone.id for zone in block.topology.nodes) if block.topology else ())
        for block in blocks
    )


def _devices(listed: Iterable[ContainerDevices]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for entry in listed:
        found[entry.resource_name] = (*found.get(entry.resource_name, ()), *entry.device_ids)
    return found
