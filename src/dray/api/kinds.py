"""The kinds that Dray talks about, and where they live in the API. Names only: no behaviour.

All of them together are what a snapshot has (``dray.explain.snapshot``), so one that nothing names may still be needed.
"""

from __future__ import annotations

from typing import Final

import msgspec

from dray.api import access, core, extensions, queues, resource, topology, workloads
from dray.api.meta import Object


class Kind(msgspec.Struct, frozen=True, cache_hash=True):
    """One served kind. ``type`` is what objects of it are decoded to."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    type: type[Object] = Object

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """``pods``, ``resourceclaims.resource.k8s.io``: how messages and RBAC name it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The URL path of a collection, an object or a subresource."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        if self.namespaced and namespace:
            root += f"/namespaces/{namespace}"
        return "/".join(filter(None, (root, self.plural, name, subresource)))


_RBAC: Final = "rbac.authorization.k8s.io"

PODS: Final = Kind("", "v1", "pods", "Pod", True, core.Pod)
NODES: Final = Kind("", "v1", "nodes", "Node", False, core.Node)
NAMESPACES: Final = Kind("", "v1", "namespaces", "Namespace", False, core.Namespace)
CONFIG_MAPS: Final = Kind("", "v1", "configmaps", "ConfigMap", True)
SERVICE_ACCOUNTS: Final = Kind("", "v1", "serviceaccounts", "ServiceAccount", True)
LIMIT_RANGES: Final = Kind("", "v1", "limitranges", "LimitRange", True)
SERVICES: Final = Kind("", "v1", "services", "Service", True, core.Service)
ENDPOINTS: Final = Kind("", "v1", "endpoints", "Endpoints", True, core.Endpoints)
ENDPOINT_SLICES: Final = Kind("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", True, core.EndpointSlice)
REPLICATION_CONTROLLERS: Final = Kind(
    "", "v1", "replicationcontrollers", "ReplicationController", True, core.ReplicationController
)
PERSISTENT_VOLUMES: Final = Kind("", "v1", "persistentvolumes", "PersistentVolume", False, core.PersistentVolume)
PERSISTENT_VOLUME_CLAIMS: Final = Kind(
    "", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", True, core.PersistentVolumeClaim
)
RESOURCE_QUOTAS: Final = Kind("", "v1", "resourcequotas", "ResourceQuota", True, core.ResourceQuota)
REPLICA_SETS: Final = Kind("apps", "v1", "replicasets", "ReplicaSet", True, core.ReplicaSet)
STATEFUL_SETS: Final = Kind("apps", "v1", "statefulsets", "StatefulSet", True, core.StatefulSet)
DAEMON_SETS: Final = Kind("apps", "v1", "daemonsets", "DaemonSet", True, workloads.DaemonSet)
CONTROLLER_REVISIONS: Final = Kind("apps", "v1", "controllerrevisions", "ControllerRevision", True, workloads.ControllerRevision)
DEPLOYMENTS: Final = Kind("apps", "v1", "deployments", "Deployment", True, workloads.Deployment)
JOBS: Final = Kind("batch", "v1", "jobs", "Job", True, workloads.Job)
CRON_JOBS: Final = Kind("batch", "v1", "cronjobs", "CronJob", True, workloads.CronJob)
EVENTS: Final = Kind("events.k8s.io", "v1", "events", "Event", True)
LEASES: Final = Kind("coordination.k8s.io", "v1", "leases", "Lease", True, core.Lease)
RUNTIME_CLASSES: Final = Kind("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", False)
PRIORITY_CLASSES: Final = Kind("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False, core.PriorityClass)
POD_DISRUPTION_BUDGETS: Final = Kind(
    "policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", True, core.PodDisruptionBudget
)
STORAGE_CLASSES: Final = Kind("storage.k8s.io", "v1", "storageclasses", "StorageClass", False, core.StorageClass)
CSI_NODES: Final = Kind("storage.k8s.io", "v1", "csinodes", "CSINode", False, core.CSINode)
VOLUME_ATTACHMENTS: Final = Kind("storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", False, core.VolumeAttachment)
RESOURCE_SLICES: Final = Kind(resource.GROUP, "v1", "resourceslices", "ResourceSlice", False, resource.ResourceSlice)
RESOURCE_CLAIMS: Final = Kind(resource.GROUP, "v1", "resourceclaims", "ResourceClaim", True, resource.ResourceClaim)
RESOURCE_CLAIM_TEMPLATES: Final = Kind(
    resource.GROUP, "v1", "resourceclaimtemplates", "ResourceClaimTemplate", True, resource.ResourceClaimTemplate
)
DEVICE_CLASSES: Final = Kind(resource.GROUP, "v1", "deviceclasses", "DeviceClass", False, resource.DeviceClass)
DEVICE_TAINT_RULES: Final = Kind(resource.GROUP, "v1", "devicetaintrules", "DeviceTaintRule", False, resource.DeviceTaintRule)
CUSTOM_RESOURCE_DEFINITIONS: Final = Kind(
    "apiextensions.k8s.io",
    "v1",
    "customresourcedefinitions",
    "CustomResourceDefinition",
    False,
    extensions.CustomResourceDefinition,
)
NODE_RESOURCE_TOPOLOGIES: Final = Kind(
    topology.GROUP, "v1alpha2", "noderesourcetopologies", "NodeResourceTopology", False, topology.NodeResourceTopology
)
QUEUES: Final = Kind(queues.GROUP, "v2", "queues", "Queue", False, queues.Queue)
POD_GROUPS: Final = Kind(queues.GROUP, "v2alpha2", "podgroups", "PodGroup", True, queues.PodGroup)
TOPOLOGIES: Final = Kind(queues.TOPOLOGY_GROUP, "v1alpha1", "topologies", "Topology", False, queues.Topology)
CORE_POD_GROUPS: Final = Kind("scheduling.k8s.io", "v1beta1", "podgroups", "PodGroup", True, queues.CorePodGroup)
CLUSTER_ROLES: Final = Kind(_RBAC, "v1", "clusterroles", "ClusterRole", False, access.ClusterRole)
CLUSTER_ROLE_BINDINGS: Final = Kind(_RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", False, access.RoleBinding)
ROLES: Final = Kind(_RBAC, "v1", "roles", "Role", True, access.Role)
ROLE_BINDINGS: Final = Kind(_RBAC, "v1", "rolebindings", "RoleBinding", True, access.RoleBinding)
CERTIFICATE_SIGNING_REQUESTS: Final = Kind(
    "certificates.k8s.io",
    "v1",
    "certificatesigningrequests",
    "CertificateSigningRequest",
    False,
    access.CertificateSigningRequest,
)
