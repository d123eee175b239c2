"""What in a change of an object can change a decision: the rest (heartbeats, conditions, finalizers) wakes nobody."""

from __future__ import annotations

from typing import Any

from dray.api.core import Pod
from dray.api.resource import ResourceClaim


def pod_matters(old: Pod, new: Pod) -> bool:
    """Whether a change of a waiting pod can change its verdict; its own condition cannot."""
    return (
        old.spec != new.spec
        or old.metadata.labels != new.metadata.labels
        or old.status.resource_claim_statuses != new.status.resource_claim_statuses
    )


def same_node(old: Any, new: Any) -> bool:
    return bool(
        old.spec == new.spec
        and old.metadata.labels == new.metadata.labels
        and old.status.allocatable == new.status.allocatable
        and old.status.images == new.status.images
        and old.status.declared_features == new.status.declared_features
    )


def claim_matters(old: ResourceClaim | None, new: ResourceClaim | None) -> bool:
    """A finalizer that comes or goes changes nothing for a waiting pod."""
    if old is None or new is None:
        return True
    return old.status != new.status or old.metadata.deletion_timestamp != new.metadata.deletion_timestamp


def with_conditions(slice: Any) -> int:
    return sum(bool(device.binding_conditions) for device in slice.spec.devices) if slice is not None else 0
