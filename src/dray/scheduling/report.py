"""What people see of a refusal: the pod's PodScheduled condition and an event, both within the API's limits.

Always true: a pod is told again only when its reasons changed, not when they were merely counted again.
"""

from __future__ import annotations

from typing import Any

from dray.api.core import Pod
from dray.api.events import event_body, shortened
from dray.api.kinds import EVENTS, PODS
from dray.api.times import format_time
from dray.cluster.port import Write
from dray.explain.words import message
from dray.scheduling.refusal import Refusal


def refused(pod: Pod, refusal: Refusal, controller: str, now: float, clear_nominated: bool) -> list[Write]:
    """The writes that tell about a refusal; none for what the condition says already."""
    gated = "SchedulingGated" in refusal.codes
    note = shortened(message(refusal.reasons, refusal.nodes))
    writes: list[Write] = []
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "SchedulingGated" if gated else "Unschedulable",
        "message": note,
    }
    if not _says(pod, condition):
        status: dict[str, Any] = {"conditions": [condition]}
        if clear_nominated and pod.status.nominated_node_name:
            status["nominatedNodeName"] = None
        writes.append(status_patch(pod, status))
        if not gated:
            writes.append(event(pod, "FailedScheduling", note, "Scheduling", controller, now, "Warning"))
    return writes


def preempted(victim: Pod, by: Pod, node: str, controller: str, now: float) -> list[Write]:
    """Why the pod has to go, on its status and as an event; then its deletion."""
    note = f"{controller}: preempting to accommodate a higher priority pod"
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByScheduler",
        "message": note,
        "lastTransitionTime": format_time(now),
    }
    told = event(victim, "Preempted", f"Preempted by pod {by.uid} on node {node}", "Preempting", controller, now)
    metadata = victim.metadata
    gone = Write("delete", PODS, metadata.namespace, metadata.name, uid=victim.uid, about=by.key)
    return [status_patch(victim, {"conditions": [condition]}), told, gone]


def _says(pod: Pod, wanted: dict[str, str]) -> bool:
    for condition in pod.status.conditions:
        if condition.type == wanted["type"]:
            return (condition.status, condition.reason, condition.message) == (
                wanted["status"],
                wanted["reason"],
                wanted["message"],
            )
    return False


def status_patch(pod: Pod, status: dict[str, Any]) -> Write:
    """A strategic patch, so that other conditions stay."""
    return Write(
        "patch",
        PODS,
        pod.metadata.namespace,
        pod.metadata.name,
        {"status": status},
        "status",
        "strategic",
        uid=pod.uid,
        about=pod.key,
    )


def event(pod: Pod, reason: str, note: str, action: str, controller: str, now: float, type: str = "Normal") -> Write:
    body = event_body(PODS, pod, now=now, type=type, reason=reason, note=note, action=action, controller=controller)
    return Write("create", EVENTS, body["metadata"]["namespace"], body["metadata"]["name"], body, about=pod.key)
