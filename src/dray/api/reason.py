"""Why something was refused, as data.

A reason names the object, the check that failed and its numbers. It holds no sentence: words are made at the edge
(``dray.explain``). The codes are a closed list; each is documented in docs/reasons.md.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec


class Reason(msgspec.Struct, frozen=True):
    """One refusal. ``object`` is what was refused (``node/n1``, ``claim/ns/name``, ``device/driver/pool/name``)."""

    code: str
    object: str = ""
    data: dict[str, Any] = {}

    def __post_init__(self) -> None:
        if self.code not in CODES:
            raise ValueError(f"reason code {self.code!r} is not in the closed list")


# code -> what it says, in one line. Grouped by who refuses.
CODES: Final[dict[str, str]] = {
    # devices: one device
    "DeviceTaken": "the device is allocated to another claim",
    "DeviceTainted": "the device has a taint that the request does not tolerate",
    "DeviceNotSelected": "a selector of the class or the request is false for the device",
    "DeviceOtherNode": "the device cannot be used from this node",
    "CountersExhausted": "the shared counters that the device consumes are used up",
    "CapacityExhausted": "the device has not enough capacity left for this share",
    "CapacityMissing": "the device does not have the capacity that is requested",
    "CapacityPolicy": "the requested capacity is not allowed by the device's request policy",
    "GroupIncompatible": "devices in use on the counter set share no compatibility group with this one",
    "ConstraintViolated": "a matchAttribute or distinctAttribute constraint would not hold",
    "AttributeMissing": "a constraint names an attribute that the device does not have",
    "BindingConditionsOff": "the device needs binding conditions and the feature is off",
    "FeatureOff": "the object uses a feature that is switched off",
    "NodeOperationsUnsupported": "the slice skips node operations and the node does not declare that feature",
    "DeviceCoolingDown": "binding to this device failed a short while ago",
    # devices: a request, a claim or a pool
    "NotEnoughDevices": "fewer devices are left than the request needs",
    "NoDevices": "no device matches the request",
    "AllDevicesBusy": "the request asks for all matching devices and at least one cannot be used",
    "PoolIncomplete": "the pool is being updated: not all its slices are published",
    "PoolInvalid": "the pool's slices contradict each other",
    "TooManyDevices": "the claim would need more devices than one claim may hold",
    "ClassMissing": "the device class does not exist",
    "SelectorError": "a selector expression fails",
    "InvalidRequest": "the request cannot be satisfied as it is written",
    "SearchBudget": "the search was given up after its budget of steps",
    "NoCombination": "enough devices match, but no combination of them satisfies all requests and constraints",
    # claims
    "ClaimMissing": "the claim does not exist",
    "ClaimNotCreated": "the claim has not been generated from its template yet",
    "ClaimDeleting": "the claim is being deleted",
    "ClaimForeign": "the claim belongs to another pod",
    "ClaimNamed": "the pod's status names a claim for extended resources, and the node would serve them without one",
    "ClaimElsewhere": "the claim is allocated on other nodes",
    "ClaimInFlight": "the claim is being allocated for another pod, or given back",
    "ClaimFull": "the claim is reserved for as many pods as it can be",
    "ClaimTainted": "the claim holds a device whose taint it does not tolerate",
    "ClaimLost": "the claim changed between decision and write",
    "BindingPending": "devices are being prepared for binding",
    "BindingFailed": "a device reported that it cannot be bound",
    "BindingTimeout": "a device did not become ready in time",
    # pods and nodes
    "SchedulingGated": "the pod has scheduling gates",
    "NodeNameMismatch": "the pod asks for another node by name",
    "NodeUnschedulable": "the node is cordoned",
    "NodeSelectorMismatch": "the node does not match the pod's node selector or affinity",
    "NodeTainted": "the node has a taint that the pod does not tolerate",
    "PortTaken": "a host port of the pod is in use on the node",
    "ResourcesInsufficient": "the node has not enough of a resource left",
    "ResourceUnknown": "neither the node nor a device class offers the resource",
    "TooManyPods": "the node runs as many pods as it may",
    "TopologySpread": "placing the pod here would break a topology spread constraint",
    "PodAffinity": "no pod that this pod must be near is here",
    "PodAntiAffinity": "a pod that this pod must stay away from is here",
    "PodAntiAffinityExisting": "a pod that is here must stay away from this pod",
    "VolumeClaimMissing": "a persistent volume claim of the pod does not exist",
    "VolumeClaimUnbound": "a persistent volume claim of the pod is not bound",
    "VolumeNodeAffinity": "a volume of the pod cannot be reached from the node",
    "VolumeTaken": "a volume of the pod is in use by another pod or node",
    "VolumeLimit": "the node cannot attach more volumes of this driver",
    "NoNodes": "the cluster has no nodes",
    "WriteFailed": "the API server refused a write; it is tried again",
    "Preempting": "pods of lower priority are being evicted to make room",
}
