"""Whether a node takes a pod that was bound to it: the checks that a kubelet makes once, before anything of the pod starts.

A pod that is not taken is Failed with the reason, and stays so. ``Admission`` is the seam for checks beyond the sums of
resources, such as the alignment of CPUs, memory and devices to NUMA zones.

Always true: what a pod was admitted with is held until it has ended; pods that already ran are not checked again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol

import msgspec

from dray.api.core import Container, Node, Pod
from dray.api.requests import Amounts, amount, pod_requests
from dray.api.resource import ResourceClaim
from dray.api.selectors import SelectorError, node_selector_matches
from dray.numa.podresources import AllocatableResourcesResponse, ContainerResources
from dray.scheduling.plugins.node import untolerated

_FIRST: Final = ("cpu", "memory", "ephemeral-storage")
Port = tuple[str, str, int]  # address, protocol, number


class Rejection(msgspec.Struct, frozen=True):
    """Why a pod is not taken, as its status says it: ``OutOfcpu``, ``TopologyAffinityError``, …"""

    reason: str
    message: str


class Admission(Protocol):
    """One more check, with what it hands out. ``admit`` is asked before the sums of resources are looked at, as upstream."""

    def admit(self, node: Node, pod: Pod, claims: Mapping[str, ResourceClaim]) -> Rejection | None:
        """Take the pod, and hold what it gets until ``release``; or say why not. A pod that is already held is taken."""

    def started(self, node: str, pod: Pod) -> None:
        """The pod's init containers are done, its containers start. May be said again."""

    def restore(self, node: Node, pod: Pod, claims: Mapping[str, ResourceClaim]) -> None:
        """The pod was taken before this kubelet started."""

    def release(self, node: str, uid: str) -> None:
        """The pod has ended, or was not taken after all."""

    def exclusive(self, node: str, uid: str) -> Mapping[str, ContainerResources]:
        """What each container of a pod has for itself: whole CPUs, memory and device-plugin devices."""

    def allocatable(self, node: str) -> AllocatableResourcesResponse:
        """What there is to hand out."""


class Sums:
    """The requests of the pods that a node has taken."""

    def __init__(self) -> None:
        self.used: Amounts = {}
        self.ports: dict[Port, str] = {}
        self._held: dict[str, Amounts] = {}

    def __contains__(self, uid: str) -> bool:
        return uid in self._held

    def take(self, pod: Pod) -> None:
        if pod.uid in self._held:
            return
        held = self._held[pod.uid] = requested(pod)
        for name, value in held.items():
            self.used[name] = self.used.get(name, 0) + value
        self.ports.update((port, pod.uid) for port in _ports(pod))

    def release(self, uid: str) -> None:
        for name, value in self._held.pop(uid, {}).items():
            self.used[name] -= value
        if uid in self.ports.values():
            self.ports = {port: holder for port, holder in self.ports.items() if holder != uid}

    def refusal(self, node: Node, pod: Pod) -> Rejection | None:
        """The first thing that speaks against the pod, in the order in which a kubelet looks."""
        return self._short(node, pod) or _misplaced(node, pod) or self._collision(pod) or _repelled(node, pod)

    def _short(self, node: Node, pod: Pod) -> Rejection | None:
        wanted, capacity = requested(pod), node.status.allocatable
        order = ["pods", *_FIRST, *sorted(name for name in wanted if name not in _FIRST and name != "pods")]
        for name in order:
            asked = wanted.get(name, 0)
            if not asked or (name not in capacity and _extended(name)):
                continue
            used, there = self.used.get(name, 0), amount(name, capacity.get(name, 0))
            if used + asked > there:
                numbers = f"requested: {asked}, used: {used}, capacity: {there}"
                return Rejection(f"OutOf{name}", f"Node didn't have enough resource: {name}, {numbers}")
        return None

    def _collision(self, pod: Pod) -> Rejection | None:
        for wanted in _ports(pod):
            if any(_collide(wanted, taken) for taken in self.ports):
                return _predicate("NodePorts", "node(s) didn't have free ports for the requested pod ports")
        return None


def requested(pod: Pod) -> Amounts:
    """What the node itself must have: without what devices stand for."""
    extended = pod.status.extended_resource_claim_status
    devices = {mapping.resource_name for mapping in extended.request_mappings} if extended is not None else set()
    return {"pods": 1, **{name: value for name, value in pod_requests(pod.spec).items() if name not in devices}}


def _extended(name: str) -> bool:
    """Unknown to the node means that the resource is the cluster's, not the node's."""
    return "/" in name and "kubernetes.io/" not in name


def _misplaced(node: Node, pod: Pod) -> Rejection | None:
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    required = affinity.required if affinity is not None else None
    labels = node.metadata.labels
    try:
        matches = required is None or node_selector_matches(required, node)
    except SelectorError as error:
        return Rejection("UnexpectedAdmissionError", f"the pod's node affinity cannot be read: {error}")
    if not matches or any(labels.get(key) != value for key, value in pod.spec.node_selector.items()):
        return _predicate("NodeAffinity", "node(s) didn't match Pod's node affinity/selector")
    return None


def _repelled(node: Node, pod: Pod) -> Rejection | None:
    """Taints keep a pod that was bound all the same out only where they would also end it."""
    expelling = [taint for taint in node.spec.taints if taint.effect == "NoExecute"]
    if untolerated(expelling, pod.spec.tolerations) is not None:
        return _predicate("TaintToleration", "node(s) had taints that the pod didn't tolerate")
    return None


def _predicate(name: str, words: str) -> Rejection:
    return Rejection(name, f"Predicate {name} failed: {words}")


def _ports(pod: Pod) -> Iterable[Port]:
    containers: Iterable[Container] = (*pod.spec.init_containers, *pod.spec.containers)
    return {(port.host_ip or "0.0.0.0", port.protocol, port.host_port) for c in containers for port in c.ports if port.host_port}


def _collide(one: Port, other: Port) -> bool:
    return one[1:] == other[1:] and (one[0] == other[0] or "0.0.0.0" in (one[0], other[0]))


def rejected(rejection: Rejection) -> dict[str, Any]:
    """The status of a pod that was not taken."""
    return {"status": {"phase": "Failed", "reason": rejection.reason, "message": f"Pod was rejected: {rejection.message}"}}
