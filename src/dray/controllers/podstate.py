"""What workload controllers need to know of a pod: is it running, ready, available, in the way."""

from __future__ import annotations

from dray.api.core import Pod
from dray.api.digits import whole
from dray.api.times import parse_time


def active(pod: Pod) -> bool:
    """Not finished and not being deleted."""
    return not pod.terminal and pod.metadata.deletion_timestamp is None


def ready(pod: Pod) -> bool:
    return any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions)


def available_at(pod: Pod, min_ready_seconds: int) -> float | None:
    """From when on a ready pod counts as available; None while it is not ready."""
    for condition in pod.status.conditions:
        if condition.type == "Ready" and condition.status == "True":
            since = parse_time(condition.last_transition_time) if condition.last_transition_time else 0.0
            return since + min_ready_seconds if min_ready_seconds else 0.0
    return None


def removal_order(pod: Pod) -> tuple[bool, bool, bool, int, str, str]:
    """Sorts the pods that are missed least first: unassigned, pending, not ready, cheap by annotation, young."""
    cost = pod.metadata.annotations.get("controller.kubernetes.io/pod-deletion-cost", "")
    number = (whole(cost.removeprefix("-")) or 0) * (-1 if cost.startswith("-") else 1)
    young = "".join(chr(0x10FFFF - ord(c)) for c in pod.metadata.creation_timestamp or "")
    return bool(pod.spec.node_name), pod.status.phase == "Running", ready(pod), number, young, pod.metadata.name
