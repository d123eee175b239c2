"""``resource.k8s.io/v1``: slices, claims, templates, classes and taint rules, as far as Dray decides on them."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec
from msgspec import field

from dray.api.core import NodeSelector, QuantityValue
from dray.api.meta import Condition, Int64, Object, ObjectMeta, Struct

GROUP: Final = "resource.k8s.io"
FINALIZER: Final = "resource.kubernetes.io/delete-protection"
EXTENDED_RESOURCE_CLAIM: Final = "resource.kubernetes.io/extended-resource-claim"
# How the claim for extended resources is called before it is made.
UNMADE: Final = "<extended-resources>"
POD_CLAIM_NAME: Final = "resource.kubernetes.io/pod-claim-name"
IMPLICIT_RESOURCE_PREFIX: Final = "deviceclass.resource.kubernetes.io/"
PCIE_ROOT: Final = "resource.kubernetes.io/pcieRoot"
ADMIN_ACCESS_LABEL: Final = "resource.kubernetes.io/admin-access"

RESULTS_MAX: Final = 32
RESERVED_FOR_MAX: Final = 256
CONFIG_RESULTS_MAX: Final = 64


# ---------------------------------------------------------------------------------------------------- ResourceSlice


class DeviceAttribute(Struct):
    """Exactly one field is set; none set means a kind of value newer than Dray."""

    int_: Int64 | None = field(default=None, name="int")
    bool_: bool | None = field(default=None, name="bool")
    string: str | None = None
    version: str | None = None
    ints: tuple[int, ...] | None = None
    bools: tuple[bool, ...] | None = None
    strings: tuple[str, ...] | None = None
    versions: tuple[str, ...] | None = None


class CapacityRange(Struct):
    min: QuantityValue | None = None
    max: QuantityValue | None = None
    step: QuantityValue | None = None


class CapacityRequestPolicy(Struct):
    default: QuantityValue | None = None
    valid_values: tuple[QuantityValue, ...] | None = None
    valid_range: CapacityRange | None = None


class DeviceCapacity(Struct):
    value: QuantityValue = "0"
    request_policy: CapacityRequestPolicy | None = None


class Counter(Struct):
    value: QuantityValue = "0"


class CounterSet(Struct):
    name: str = ""
    counters: dict[str, Counter] = {}


class DeviceCounterConsumption(Struct):
    counter_set: str = ""
    counters: dict[str, Counter] = {}
    compatibility_groups: tuple[str, ...] = ()


class DeviceTaint(Struct):
    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class Device(Struct):
    name: str = ""
    attributes: dict[str, DeviceAttribute] = {}
    capacity: dict[str, DeviceCapacity] = {}
    consumes_counters: tuple[DeviceCounterConsumption, ...] = ()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    taints: tuple[DeviceTaint, ...] = ()
    binds_to_node: bool | None = None
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    allow_multiple_allocations: bool | None = None
    node_allocatable_resources: dict[str, Any] = {}


class ResourcePool(Struct):
    name: str = ""
    generation: Int64 = 0
    resource_slice_count: Int64 = 0


class ResourceSliceSpec(Struct):
    driver: str = ""
    pool: ResourcePool = field(default_factory=ResourcePool)
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    per_device_node_selection: bool | None = None
    devices: tuple[Device, ...] = ()
    shared_counters: tuple[CounterSet, ...] = ()
    partition_type_attribute: str | None = None
    skip_node_operations: tuple[str, ...] = ()


class ResourceSlice(Object):
    spec: ResourceSliceSpec = field(default_factory=ResourceSliceSpec)


# ------------------------------------------------------------------------------------------------- DeviceClass, rules


class CELSelector(Struct):
    expression: str = ""


class DeviceSelector(Struct):
    cel: CELSelector | None = None


class OpaqueConfiguration(Struct):
    driver: str = ""
    parameters: Any = None


class DeviceClassConfiguration(Struct):
    opaque: OpaqueConfiguration | None = None


class DeviceClassSpec(Struct):
    selectors: tuple[DeviceSelector, ...] = ()
    config: tuple[DeviceClassConfiguration, ...] = ()
    extended_resource_name: str | None = None


class DeviceClass(Object):
    spec: DeviceClassSpec = field(default_factory=DeviceClassSpec)


class DeviceTaintSelector(Struct):
    driver: str | None = None
    pool: str | None = None
    device: str | None = None
    # Of Kubernetes 1.34 and older. Only a published device has a class and attributes, so these were taken out of the API again.
    device_class_name: str | None = None
    selectors: tuple[DeviceSelector, ...] = ()

    @property
    def by_names(self) -> bool:
        """Whether the names of a device are enough to say if it is selected."""
        return self.device_class_name is None and not self.selectors


class DeviceTaintRuleSpec(Struct):
    device_selector: DeviceTaintSelector | None = None
    taint: DeviceTaint = field(default_factory=DeviceTaint)


class DeviceTaintRuleStatus(Struct):
    conditions: tuple[Condition, ...] = ()


class DeviceTaintRule(Object):
    spec: DeviceTaintRuleSpec = field(default_factory=DeviceTaintRuleSpec)
    status: DeviceTaintRuleStatus = field(default_factory=DeviceTaintRuleStatus)


# ---------------------------------------------------------------------------------------------------- ResourceClaim


class DeviceToleration(Struct):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: Int64 | None = None


class CapacityRequirements(Struct):
    requests: dict[str, QuantityValue] = {}


class DerivedAttribute(Struct):
    name: str = ""
    expression: str = ""


class DeviceSubRequest(Struct):
    """What is common to ``exactly`` and an entry of ``firstAvailable``; ``name`` is empty for the former."""

    name: str = ""
    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = ""
    count: Int64 = 0
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements | None = None
    derived_attributes: tuple[DerivedAttribute, ...] = ()


class ExactDeviceRequest(DeviceSubRequest):
    admin_access: bool | None = None


class DeviceRequest(Struct):
    name: str = ""
    exactly: ExactDeviceRequest | None = None
    first_available: tuple[DeviceSubRequest, ...] = ()


class DeviceConstraint(Struct):
    requests: tuple[str, ...] = ()
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class DeviceClaimConfiguration(Struct):
    requests: tuple[str, ...] = ()
    opaque: OpaqueConfiguration | None = None


class DeviceClaim(Struct):
    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[DeviceClaimConfiguration, ...] = ()


class ResourceClaimSpec(Struct):
    devices: DeviceClaim = field(default_factory=DeviceClaim)


class DeviceRequestAllocationResult(Struct):
    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    share_id: str | None = field(default=None, name="shareID")
    consumed_capacity: dict[str, QuantityValue] | None = None
    skip_node_operations: tuple[str, ...] = ()
    # KEP-5963: the groups that the device had, by counter set, when it was allocated. Go writes null for a list without elements.
    compatibility_groups: dict[str, tuple[str, ...] | None] | None = None

    @property
    def recorded_groups(self) -> dict[str, tuple[str, ...]]:
        recorded = self.compatibility_groups
        return {name: groups or () for name, groups in recorded.items()} if recorded else {}


class DeviceKey(NamedTuple):
    """Who a device is: names, not objects, because claims outlive slices. Neither a driver's nor a device's name has a slash."""

    driver: str
    pool: str
    device: str

    @classmethod
    def of(cls, result: DeviceRequestAllocationResult | AllocatedDeviceStatus) -> DeviceKey:
        return cls(result.driver, result.pool, result.device)

    @classmethod
    def parse(cls, text: str) -> DeviceKey:
        """The opposite of ``str``."""
        driver, _, rest = text.partition("/")
        pool, _, device = rest.rpartition("/")
        return cls(driver, pool, device)

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


class DeviceAllocationConfiguration(Struct):
    source: str = ""
    requests: tuple[str, ...] = ()
    opaque: OpaqueConfiguration | None = None


class DeviceAllocationResult(Struct):
    results: tuple[DeviceRequestAllocationResult, ...] = ()
    config: tuple[DeviceAllocationConfiguration, ...] = ()


class AllocationResult(Struct):
    devices: DeviceAllocationResult = field(default_factory=DeviceAllocationResult)
    node_selector: NodeSelector | None = None
    allocation_timestamp: str | None = None


class ResourceClaimConsumerReference(Struct):
    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class AllocatedDeviceStatus(Struct):
    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: str | None = field(default=None, name="shareID")
    conditions: tuple[Condition, ...] = ()


class ResourceClaimStatus(Struct):
    allocation: AllocationResult | None = None
    reserved_for: tuple[ResourceClaimConsumerReference, ...] = ()
    devices: tuple[AllocatedDeviceStatus, ...] = ()


class ResourceClaim(Object):
    spec: ResourceClaimSpec = field(default_factory=ResourceClaimSpec)
    status: ResourceClaimStatus = field(default_factory=ResourceClaimStatus)


class ResourceClaimTemplateSpec(Struct):
    """``spec`` is plain, because what is generated from it must keep the fields that Dray does not know; those that it knows
    have the right types."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: dict[str, Any] = {}

    def __post_init__(self) -> None:
        msgspec.convert(self.spec, ResourceClaimSpec)


class ResourceClaimTemplate(Object):
    spec: ResourceClaimTemplateSpec = field(default_factory=ResourceClaimTemplateSpec)
