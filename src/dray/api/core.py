"""Pods, nodes and the other core kinds, as far as scheduling depends on them."""

from __future__ import annotations

from typing import Any

from msgspec import field

from dray.api.meta import Condition, Int64, Object, ObjectMeta, Struct

QuantityValue = str | int | float
ResourceList = dict[str, QuantityValue]


# --------------------------------------------------------------------------------------------------------- selectors


class LabelSelectorRequirement(Struct):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class LabelSelector(Struct):
    match_labels: dict[str, str] = {}
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()


class NodeSelectorRequirement(Struct):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class NodeSelectorTerm(Struct):
    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


class NodeSelector(Struct):
    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


# -------------------------------------------------------------------------------------------------------------- Node


class Taint(Struct):
    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class NodeSpec(Struct):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    provider_id: str = field(default="", name="providerID")
    pod_cidr: str = field(default="", name="podCIDR")


class ContainerImage(Struct):
    names: tuple[str, ...] = ()
    size_bytes: Int64 = 0


class NodeStatus(Struct):
    capacity: ResourceList = {}
    allocatable: ResourceList = {}
    conditions: tuple[Condition, ...] = ()
    images: tuple[ContainerImage, ...] = ()
    declared_features: tuple[str, ...] = ()


class Node(Object):
    spec: NodeSpec = field(default_factory=NodeSpec)
    status: NodeStatus = field(default_factory=NodeStatus)


# --------------------------------------------------------------------------------------------------------------- Pod


class ResourceClaimReference(Struct):
    """``containers[].resources.claims[]``."""

    name: str = ""
    request: str = ""


class ResourceRequirements(Struct):
    requests: ResourceList = {}
    limits: ResourceList = {}
    claims: tuple[ResourceClaimReference, ...] = ()


class ContainerPort(Struct):
    container_port: Int64 = 0
    host_port: Int64 = 0
    host_ip: str = field(default="", name="hostIP")
    protocol: str = "TCP"
    name: str = ""


class ContainerRestartRule(Struct):
    action: str = ""


class VolumeMount(Struct):
    name: str = ""
    bind_mount_options: tuple[str, ...] = ()


class Container(Struct):
    name: str = ""
    image: str = ""
    resources: ResourceRequirements = field(default_factory=ResourceRequirements)
    ports: tuple[ContainerPort, ...] = ()
    restart_policy_rules: tuple[ContainerRestartRule, ...] = ()
    volume_mounts: tuple[VolumeMount, ...] = ()
    restart_policy: str = ""


class Toleration(Struct):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: Int64 | None = None


class PreferredSchedulingTerm(Struct):
    weight: Int64 = 0
    preference: NodeSelectorTerm = field(default_factory=NodeSelectorTerm)


class NodeAffinity(Struct):
    required: NodeSelector | None = field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: tuple[PreferredSchedulingTerm, ...] = field(default=(), name="preferredDuringSchedulingIgnoredDuringExecution")


class PodAffinityTerm(Struct):
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    topology_key: str = ""
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class WeightedPodAffinityTerm(Struct):
    weight: Int64 = 0
    pod_affinity_term: PodAffinityTerm = field(default_factory=PodAffinityTerm)


class PodAffinity(Struct):
    required: tuple[PodAffinityTerm, ...] = field(default=(), name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: tuple[WeightedPodAffinityTerm, ...] = field(default=(), name="preferredDuringSchedulingIgnoredDuringExecution")


class Affinity(Struct):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(Struct):
    max_skew: Int64 = 1
    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    min_domains: Int64 | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: tuple[str, ...] = ()


class PersistentVolumeClaimVolumeSource(Struct):
    claim_name: str = ""
    read_only: bool = False


class Volume(Struct):
    name: str = ""
    persistent_volume_claim: PersistentVolumeClaimVolumeSource | None = None
    ephemeral: dict[str, Any] | None = None
    csi: dict[str, Any] | None = None
    gce_persistent_disk: dict[str, Any] | None = None
    aws_elastic_block_store: dict[str, Any] | None = None
    azure_disk: dict[str, Any] | None = None
    cinder: dict[str, Any] | None = None
    vsphere_volume: dict[str, Any] | None = None
    portworx_volume: dict[str, Any] | None = None
    iscsi: dict[str, Any] | None = None
    rbd: dict[str, Any] | None = None


class PodResourceClaim(Struct):
    """``pod.spec.resourceClaims[]``."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodSchedulingGate(Struct):
    name: str = ""


class PodReadinessGate(Struct):
    condition_type: str = ""


class PodSchedulingGroup(Struct):
    pod_group_name: str | None = None


class PodSpec(Struct):
    readiness_gates: tuple[PodReadinessGate, ...] = ()
    node_name: str = ""
    scheduler_name: str = ""
    priority: Int64 | None = None
    priority_class_name: str = ""
    preemption_policy: str | None = None
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    ephemeral_containers: tuple[Container, ...] = ()
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    volumes: tuple[Volume, ...] = ()
    resource_claims: tuple[PodResourceClaim, ...] = ()
    scheduling_gates: tuple[PodSchedulingGate, ...] = ()
    scheduling_group: PodSchedulingGroup | None = None
    overhead: ResourceList = {}
    resources: ResourceRequirements | None = None
    restart_policy: str = "Always"
    termination_grace_period_seconds: Int64 | None = None
    host_network: bool = False
    host_users: bool | None = None
    service_account_name: str = ""
    active_deadline_seconds: Int64 | None = None


class PodResourceClaimStatus(Struct):
    name: str = ""
    resource_claim_name: str | None = None


class ContainerExtendedResourceRequest(Struct):
    container_name: str = ""
    resource_name: str = ""
    request_name: str = ""


class PodExtendedResourceClaimStatus(Struct):
    resource_claim_name: str = ""
    request_mappings: tuple[ContainerExtendedResourceRequest, ...] = ()


class PodStatus(Struct):
    phase: str = ""
    observed_generation: Int64 = 0
    conditions: tuple[Condition, ...] = ()
    nominated_node_name: str = ""
    reason: str = ""
    message: str = ""
    pod_ip: str = field(default="", name="podIP")
    host_ip: str = field(default="", name="hostIP")
    start_time: str | None = None
    qos_class: str = ""
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] = ()
    extended_resource_claim_status: PodExtendedResourceClaimStatus | None = None


class Pod(Object):
    spec: PodSpec = field(default_factory=PodSpec)
    status: PodStatus = field(default_factory=PodStatus)

    @property
    def terminal(self) -> bool:
        """Succeeded or Failed: it will never use its devices again."""
        return self.status.phase in ("Succeeded", "Failed")


class PodTemplateSpec(Struct):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: dict[str, Any] = {}


# ------------------------------------------------------------------------------------------------------ other kinds


class NamespaceStatus(Struct):
    phase: str = "Active"
    conditions: tuple[Condition, ...] = ()


class Namespace(Object):
    spec: dict[str, Any] = {}
    status: NamespaceStatus = field(default_factory=NamespaceStatus)


class PersistentVolumeClaimSpec(Struct):
    volume_name: str = ""
    storage_class_name: str | None = None
    access_modes: tuple[str, ...] = ()
    resources: ResourceRequirements = field(default_factory=ResourceRequirements)
    volume_mode: str | None = None
    selector: LabelSelector | None = None
    volume_attributes_class_name: str | None = None


class ModifyVolumeStatus(Struct):
    target_volume_attributes_class_name: str = ""


class PersistentVolumeClaimStatus(Struct):
    phase: str = ""
    allocated_resources: ResourceList = {}
    current_volume_attributes_class_name: str | None = None
    modify_volume_status: ModifyVolumeStatus | None = None


class PersistentVolumeClaim(Object):
    spec: PersistentVolumeClaimSpec = field(default_factory=PersistentVolumeClaimSpec)
    status: PersistentVolumeClaimStatus = field(default_factory=PersistentVolumeClaimStatus)


class VolumeNodeAffinity(Struct):
    required: NodeSelector | None = None


class ObjectReference(Struct):
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class PersistentVolumeSpec(Struct):
    capacity: ResourceList = {}
    access_modes: tuple[str, ...] = ()
    claim_ref: ObjectReference | None = None
    persistent_volume_reclaim_policy: str = "Retain"
    node_affinity: VolumeNodeAffinity | None = None
    storage_class_name: str = ""
    volume_attributes_class_name: str | None = None
    volume_mode: str | None = None
    csi: dict[str, Any] | None = None
    gce_persistent_disk: dict[str, Any] | None = None
    aws_elastic_block_store: dict[str, Any] | None = None
    azure_disk: dict[str, Any] | None = None
    cinder: dict[str, Any] | None = None
    vsphere_volume: dict[str, Any] | None = None
    portworx_volume: dict[str, Any] | None = None


class PersistentVolumeStatus(Struct):
    phase: str = ""


class PersistentVolume(Object):
    spec: PersistentVolumeSpec = field(default_factory=PersistentVolumeSpec)
    status: PersistentVolumeStatus = field(default_factory=PersistentVolumeStatus)


class TopologySelectorLabelRequirement(Struct):
    key: str = ""
    values: tuple[str, ...] = ()


class TopologySelectorTerm(Struct):
    match_label_expressions: tuple[TopologySelectorLabelRequirement, ...] = ()


class StorageClass(Object):
    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    allowed_topologies: tuple[TopologySelectorTerm, ...] = ()


class VolumeNodeResources(Struct):
    count: Int64 | None = None


class CSINodeDriver(Struct):
    name: str = ""
    allocatable: VolumeNodeResources | None = None


class CSINodeSpec(Struct):
    drivers: tuple[CSINodeDriver, ...] = ()


class CSINode(Object):
    spec: CSINodeSpec = field(default_factory=CSINodeSpec)


class VolumeAttachmentSource(Struct):
    persistent_volume_name: str | None = None
    inline_volume_spec: PersistentVolumeSpec | None = None


class VolumeAttachmentSpec(Struct):
    attacher: str = ""
    node_name: str = ""
    source: VolumeAttachmentSource = field(default_factory=VolumeAttachmentSource)


class VolumeAttachment(Object):
    spec: VolumeAttachmentSpec = field(default_factory=VolumeAttachmentSpec)


class PriorityClass(Object):
    value: Int64 = 0
    global_default: bool = False
    preemption_policy: str = "PreemptLowerPriority"


class PodDisruptionBudgetSpec(Struct):
    selector: LabelSelector | None = None
    min_available: Int64 | str | None = None
    max_unavailable: Int64 | str | None = None


class PodDisruptionBudgetStatus(Struct):
    disruptions_allowed: Int64 = 0
    current_healthy: Int64 = 0
    desired_healthy: Int64 = 0
    expected_pods: Int64 = 0
    observed_generation: Int64 = 0


class PodDisruptionBudget(Object):
    spec: PodDisruptionBudgetSpec = field(default_factory=PodDisruptionBudgetSpec)
    status: PodDisruptionBudgetStatus = field(default_factory=PodDisruptionBudgetStatus)


class ScopedSelectorRequirement(Struct):
    scope_name: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class ScopeSelector(Struct):
    match_expressions: tuple[ScopedSelectorRequirement, ...] = ()


class ResourceQuotaSpec(Struct):
    hard: ResourceList = {}
    scopes: tuple[str, ...] = ()
    scope_selector: ScopeSelector | None = None


class ResourceQuotaStatus(Struct):
    hard: ResourceList = {}
    used: ResourceList = {}


class ResourceQuota(Object):
    spec: ResourceQuotaSpec = field(default_factory=ResourceQuotaSpec)
    status: ResourceQuotaStatus = field(default_factory=ResourceQuotaStatus)


class LeaseSpec(Struct):
    holder_identity: str | None = None
    lease_duration_seconds: Int64 | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: Int64 | None = None


class Lease(Object):
    spec: LeaseSpec = field(default_factory=LeaseSpec)


class ReplicaSetSpec(Struct):
    replicas: Int64 | None = None
    selector: LabelSelector | None = None
    min_ready_seconds: Int64 = 0
    template: PodTemplateSpec = field(default_factory=PodTemplateSpec)


class ReplicaSetStatus(Struct):
    replicas: Int64 = 0
    fully_labeled_replicas: Int64 = 0
    ready_replicas: Int64 = 0
    available_replicas: Int64 = 0
    observed_generation: Int64 = 0
    conditions: tuple[Condition, ...] = ()


class ReplicaSet(Object):
    spec: ReplicaSetSpec = field(default_factory=ReplicaSetSpec)
    status: ReplicaSetStatus = field(default_factory=ReplicaSetStatus)


class Service(Object):
    spec: dict[str, Any] = {}


class Endpoints(Object):
    subsets: tuple[dict[str, Any], ...] = ()


class EndpointSlice(Object):
    address_type: str = ""
    endpoints: tuple[dict[str, Any], ...] | None = None
    ports: tuple[dict[str, Any], ...] | None = None


class ReplicationController(Object):
    spec: dict[str, Any] = {}
    status: ReplicaSetStatus = field(default_factory=ReplicaSetStatus)


class StatefulSetRollingUpdate(Struct):
    partition: Int64 = 0
    max_unavailable: Int64 | str | None = None


class StatefulSetUpdateStrategy(Struct):
    type: str = "RollingUpdate"
    rolling_update: StatefulSetRollingUpdate | None = None


class StatefulSetOrdinals(Struct):
    start: Int64 = 0


class StatefulSetSpec(Struct):
    replicas: Int64 | None = None
    selector: LabelSelector | None = None
    service_name: str = ""
    pod_management_policy: str = "OrderedReady"
    min_ready_seconds: Int64 = 0
    update_strategy: StatefulSetUpdateStrategy = field(default_factory=StatefulSetUpdateStrategy)
    ordinals: StatefulSetOrdinals | None = None
    revision_history_limit: Int64 | None = None
    template: PodTemplateSpec = field(default_factory=PodTemplateSpec)


class StatefulSetStatus(Struct):
    observed_generation: Int64 = 0
    replicas: Int64 = 0
    ready_replicas: Int64 = 0
    available_replicas: Int64 = 0
    current_replicas: Int64 = 0
    updated_replicas: Int64 = 0
    current_revision: str = ""
    update_revision: str = ""


class StatefulSet(Object):
    spec: StatefulSetSpec = field(default_factory=StatefulSetSpec)
    status: StatefulSetStatus = field(default_factory=StatefulSetStatus)
