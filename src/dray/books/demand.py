"""The canonical shape of what a pod needs from a node.

Always true: equal pods share one ``Demand`` object, so identity is equality and every cache is keyed by it. A demand
holds no name of a pod or a claim; pods whose needs depend on their own name (volumes) have a demand of their own.
"""

from __future__ import annotations

from typing import Any

import msgspec

from dray.api.core import Affinity, Pod, PodSpec, Toleration, TopologySpreadConstraint, Volume
from dray.api.requests import Amounts, assumed_usage, container_requests, is_sidecar, pod_requests

Port = tuple[str, str, int]


class Demand:
    """What filters and scores read of a pod. Made only by ``Demands``."""

    __slots__ = (
        "affinity",
        "assumed",
        "containers",
        "id",
        "images",
        "namespace",
        "node_selector",
        "pod_name",
        "ports",
        "preemption_policy",
        "priority",
        "requests",
        "scheduler_name",
        "spec",
        "spread",
        "tied",
        "tolerations",
        "volumes",
    )

    def __init__(self, id: int, spec: PodSpec, volumes: tuple[Volume, ...], namespace: str, pod_name: str) -> None:
        requests = pod_requests(spec)
        assumed = assumed_usage(spec)
        self.id = id
        self.spec = spec
        self.scheduler_name = spec.scheduler_name
        self.priority = spec.priority or 0
        self.preemption_policy = spec.preemption_policy or "PreemptLowerPriority"
        self.requests: tuple[tuple[str, int], ...] = tuple(sorted(requests.items()))
        self.assumed: Amounts = assumed
        self.ports = _host_ports(spec)
        self.node_selector = spec.node_selector
        self.affinity: Affinity = spec.affinity or Affinity()
        self.tolerations: tuple[Toleration, ...] = spec.tolerations
        # Whether it says itself where it is to be beside other pods.
        self.tied = bool(spec.topology_spread_constraints or self.affinity.pod_affinity or self.affinity.pod_anti_affinity)
        self.spread: tuple[TopologySpreadConstraint, ...] = spec.topology_spread_constraints
        self.images = tuple(container.image for container in (*spec.init_containers, *spec.containers))
        self.containers = len(spec.init_containers) + len(spec.containers)
        # Set only for pods with volumes that name other objects.
        self.volumes = volumes
        self.namespace = namespace
        self.pod_name = pod_name

    def __repr__(self) -> str:
        return f"Demand({self.id}, {dict(self.requests)})"


class Demands:
    """Demands by content. ``of`` answers the same object for equal pods."""

    def __init__(self) -> None:
        self._known: dict[bytes, Demand] = {}
        self._encoder = msgspec.msgpack.Encoder(order="deterministic")
        self._count = 0

    def of(self, pod: Pod) -> Demand:
        volumes = tuple([volume for volume in pod.spec.volumes if _names_objects(volume)]) if pod.spec.volumes else ()
        key = self._encoder.encode(_content(pod, volumes))
        found = self._known.get(key)
        if found is None:
            self._count += 1
            namespace, name = (pod.metadata.namespace, pod.metadata.name) if volumes else ("", "")
            found = self._known[key] = Demand(self._count, pod.spec, volumes, namespace, name)
        return found

    def keep(self, used: set[Demand]) -> None:
        """Forget every demand that no pod has any more."""
        self._known = {key: demand for key, demand in self._known.items() if demand in used}

    def __len__(self) -> int:
        return len(self._known)


def _content(pod: Pod, volumes: tuple[Volume, ...]) -> tuple[Any, ...]:
    spec = pod.spec
    named = (pod.metadata.namespace, pod.metadata.name if any(v.ephemeral for v in volumes) else "", volumes) if volumes else ()
    return (
        spec.scheduler_name,
        spec.priority or 0,
        spec.preemption_policy,
        [_container_content(container) for container in spec.containers],
        [_container_content(container) for container in spec.init_containers] if spec.init_containers else (),
        spec.overhead,
        spec.resources,
        spec.node_selector,
        spec.affinity,
        spec.tolerations,
        spec.topology_spread_constraints,
        spec.host_network,
        spec.host_users,
        named,
    )


def _container_content(container: Any) -> tuple[Any, ...]:
    # The name counts because the mapping of extended resources to devices names containers.
    resources = container.resources
    rules, mounts = container.restart_policy_rules, container.volume_mounts
    actions = [rule.action for rule in rules] if rules else ()
    options = [mount.bind_mount_options for mount in mounts if mount.bind_mount_options] if mounts else ()
    named = (container.name, container.image, container.ports, container.restart_policy, actions, options)
    return (*named, resources.requests, resources.limits)


def _names_objects(volume: Volume) -> bool:
    return bool(
        volume.persistent_volume_claim
        or volume.ephemeral
        or volume.csi
        or volume.gce_persistent_disk
        or volume.aws_elastic_block_store
        or volume.azure_disk
        or volume.cinder
        or volume.vsphere_volume
        or volume.portworx_volume
        or volume.iscsi
        or volume.rbd
    )


def _host_ports(spec: PodSpec) -> tuple[Port, ...]:
    sidecars = (container for container in spec.init_containers if is_sidecar(container))
    return tuple(
        (port.host_ip or "0.0.0.0", port.protocol or "TCP", port.host_port)
        for container in (*spec.containers, *sidecars)
        for port in container.ports
        if port.host_port > 0
    )


__all__ = ["Demand", "Demands", "Port", "container_requests"]
