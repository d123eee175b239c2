"""What in a change of an object can change a decision: the rest (heartbeats, conditions, finalizers) wakes nobody."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dray.api.core import Pod
from dray.api.resource import ResourceClaim, ResourceSlice
from dray.api.tolerations import evicts
from dray.scheduling.plugins.neighbours import View
from dray.scheduling.shape.claims import claim_keys


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


def must_be_left(old: ResourceSlice | None, new: ResourceSlice) -> bool:
    """Whether a device of the slice has a taint that evicts and that it did not have before."""
    found = [(device.name, taint) for device in new.spec.devices for taint in device.taints if evicts(taint)]
    before = {device.name: device.taints for device in old.spec.devices} if found and old is not None else {}
    return any(taint not in before.get(name, ()) for name, taint in found)


def with_conditions(slice: Any) -> int:
    return sum(bool(device.binding_conditions) for device in slice.spec.devices) if slice is not None else 0


def changed_since(view: View | None) -> Callable[[], bool] | None:
    """Whether the other pods that had a say when a pod was refused are not what they were."""
    if view is None:
        return None
    stamp = view.stamp
    return lambda: view.stamp != stamp


def unbound_claim_keys(pod: Pod) -> tuple[str, ...]:
    return () if pod.spec.node_name or not pod.spec.resource_claims else tuple(claim_keys(pod))
