"""Simulated kubelets with zones: the Topology Manager as one more check of admission.

Nodes without zones are not concerned. A simulated node does not run init containers one by one in time, so what they had alone
comes back as soon as the pod is taken.
"""

from __future__ import annotations

from collections.abc import Mapping

from dray.api.core import Node, Pod
from dray.api.resource import ResourceClaim
from dray.nodes.admission import Admission, Rejection
from dray.nodes.topology import Rejection as Refused
from dray.nodes.topology import Topology
from dray.numa.podresources import AllocatableResourcesResponse, ContainerResources


class ZoneAdmission:
    """Implements ``Admission`` for the nodes that have a ``Topology``."""

    def __init__(self, nodes: Mapping[str, Topology], others: Admission | None = None) -> None:
        """``others`` is asked for the nodes that have none."""
        self._nodes, self._others = nodes, others

    def admit(self, node: Node, pod: Pod, claims: Mapping[str, ResourceClaim]) -> Rejection | None:
        kubelet = self._nodes.get(node.metadata.name)
        if kubelet is None:
            return self._others.admit(node, pod, claims) if self._others is not None else None
        answer = kubelet.admit(pod)
        if isinstance(answer, Refused):
            return Rejection(answer.reason, answer.message)
        kubelet.started(pod)
        return None

    def restore(self, node: Node, pod: Pod, claims: Mapping[str, ResourceClaim]) -> None:
        """What a kubelet finds in its state files; pods come in the order in which they were taken, as far as that is known."""
        self.admit(node, pod, claims)

    def release(self, node: str, uid: str) -> None:
        if (kubelet := self._nodes.get(node)) is not None:
            kubelet.release(uid)
        elif self._others is not None:
            self._others.release(node, uid)

    def exclusive(self, node: str, uid: str) -> Mapping[str, ContainerResources]:
        kubelet = self._nodes.get(node)
        if kubelet is None:
            return self._others.exclusive(node, uid) if self._others is not None else {}
        return {container.name: container for container in kubelet.containers(uid)}

    def allocatable(self, node: str) -> AllocatableResourcesResponse:
        kubelet = self._nodes.get(node)
        if kubelet is None:
            return self._others.allocatable(node) if self._others is not None else AllocatableResourcesResponse()
        return kubelet.allocatable()
