"""Simulated kubelets with zones: the Topology Manager as one more check of admission.

Nodes without zones are not concerned. A simulated node does not run init containers one by one in time: all of them have what
they were given until the pod runs, and then give back what a kubelet takes back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dray.api.core import Node, Pod, QuantityValue
from dray.api.quantity import Quantity
from dray.api.resource import ResourceClaim
from dray.nodes.admission import Admission, Rejection
from dray.nodes.topology import Had, Topology
from dray.nodes.topology import Rejection as Refused
from dray.numa.placement import GROUPS_OBSERVED, GROUPS_PREDICTED, OBSERVED, PREDICTED, groups_of, shares_of
from dray.numa.podresources import AllocatableResourcesResponse, ContainerResources


def _records(pod: Pod) -> Iterator[Had]:
    annotations = pod.metadata.annotations
    for placed, grouped in ((OBSERVED, GROUPS_OBSERVED), (PREDICTED, GROUPS_PREDICTED)):
        shares, groups = shares_of(annotations.get(placed, "")), groups_of(annotations.get(grouped, ""))
        if shares or groups:
            zones = {_number(share.zone): _amounts(share.amount) for share in shares}
            yield Had(zones, {frozenset(map(_number, group.memory_nodes)): _amounts(group.amount) for group in groups})


def _number(zone: str) -> int:
    number = zone.removeprefix("node-")
    return int(number) if number.isdecimal() else -1


def _amounts(given: Mapping[str, QuantityValue]) -> dict[str, int]:
    return {name: Quantity.parse(value).value for name, value in given.items()}


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
        return None

    def started(self, node: str, pod: Pod) -> None:
        if (kubelet := self._nodes.get(node)) is not None:
            kubelet.started(pod)

    def restore(self, node: Node, pod: Pod, claims: Mapping[str, ResourceClaim]) -> None:
        """What a kubelet finds in its state files. A simulated one has none: what was reported of the pod says it, else what was
        foreseen; a pod of which nothing does is taken as if it came now."""
        kubelet = self._nodes.get(node.metadata.name)
        if kubelet is None or not any(kubelet.restore(pod, had) for had in _records(pod)):
            self.admit(node, pod, claims)
            if pod.status.phase == "Running":
                self.started(node.metadata.name, pod)

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
