"""What a refused pod waits for: every reason names the events that can change it.

Always true: each reason code stands in this table, so no pod can wait for nothing.
"""

from __future__ import annotations

from typing import Final

from dray.api.reason import CODES
from dray.scheduling.placing.refusal import Refusal

NODE: Final = "node"
"""A node came or changed."""
FREE: Final = "free"
"""A pod left a node."""
DEVICES: Final = "devices"
"""Devices appeared, changed or were given back."""
PODS: Final = "pods"
"""A pod that others look at came, went or changed its labels."""
VOLUMES: Final = "volumes"
"""A volume, its claim or its class changed."""
CLASSES: Final = "classes"
"""A device class changed."""
ITSELF: Final = "itself"
"""Only the pod itself or one of its claims can change this; those wake it in any case."""

_BY_CODE: Final[dict[str, str]] = {
    "SchedulingGated": ITSELF,
    "NodeNameMismatch": NODE,
    "NodeUnschedulable": NODE,
    "NodeSelectorMismatch": NODE,
    "NodeTainted": NODE,
    "PortTaken": FREE,
    "ResourcesInsufficient": FREE,
    "ResourceUnknown": CLASSES,
    "TooManyPods": FREE,
    "TopologySpread": PODS,
    "PodAffinity": PODS,
    "PodAntiAffinity": PODS,
    "PodAntiAffinityExisting": PODS,
    "VolumeClaimMissing": VOLUMES,
    "VolumeClaimUnbound": VOLUMES,
    "VolumeNodeAffinity": VOLUMES,
    "VolumeTaken": FREE,
    "VolumeLimit": FREE,
    "NoNodes": NODE,
    "ClassMissing": CLASSES,
    "ClaimMissing": ITSELF,
    "ClaimNotCreated": ITSELF,
    "ClaimDeleting": ITSELF,
    "ClaimForeign": ITSELF,
    "ClaimElsewhere": ITSELF,
    "ClaimInFlight": ITSELF,
    "ClaimFull": ITSELF,
    "ClaimLost": ITSELF,
    "ClaimTainted": DEVICES,
    "BindingPending": ITSELF,
    "BindingFailed": ITSELF,
    "BindingTimeout": ITSELF,
    "WriteFailed": ITSELF,
    "Preempting": FREE,
    "InvalidRequest": ITSELF,
}


def events_for(refusal: Refusal, also: frozenset[str] = frozenset()) -> frozenset[str]:
    """Everything that can change a refusal; where nodes refused, a new node can too."""
    found = {_topic(code) for code in refusal.codes}
    if refusal.nodes or "NoNodes" in refusal.codes:
        found.add(NODE)
    if "SelectorError" in refusal.codes:
        found.add(CLASSES)
    return frozenset(found) | also


def _topic(code: str) -> str:
    # Everything that devices say changes with devices.
    assert code in CODES
    return _BY_CODE.get(code, DEVICES)
