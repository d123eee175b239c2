"""What a kubelet reports of a pod, as status patches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from ipaddress import IPv4Address
from typing import Any, Final

from dray.api.core import Container, Pod
from dray.api.times import format_time, parse_time
from dray.nodes.restarts import Restarts

POD_NETWORK: Final = int(IPv4Address("10.128.0.0"))
HOST_NETWORK: Final = int(IPv4Address("172.20.0.0"))

Resources = Mapping[str, list[dict[str, Any]]]  # allocatedResourcesStatus by container


def address(text: str, network: int, bits: int) -> str:
    """An address that follows from a name."""
    number = int.from_bytes(blake2b(text.encode(), digest_size=4).digest(), "big") % ((1 << bits) - 2) + 1
    return str(IPv4Address(network + number))


def host_ip(node: str) -> str:
    return address(node, HOST_NETWORK, 16)


def pod_ip(pod: Pod) -> str:
    return host_ip(pod.spec.node_name) if pod.spec.host_network else address(pod.uid, POD_NETWORK, 23)


def running(pod: Pod, resources: Resources, now: float) -> dict[str, Any]:
    """Started: addresses, containers and readiness. ``resources`` are what each container has and how that is."""
    stamp = format_time(now)
    ip, host = pod_ip(pod), host_ip(pod.spec.node_name)
    ready = _conditions(pod, ("PodReadyToStartContainers", "Initialized", "ContainersReady"), "True", stamp)
    ready.append(_readiness(pod, "True", stamp))
    if not any(c.type == "PodScheduled" for c in pod.status.conditions):
        ready.append(_condition("PodScheduled", "True", stamp))  # nobody scheduled it: its maker named the node
    status: dict[str, Any] = {
        "phase": "Running",
        "observedGeneration": pod.metadata.generation,
        "startTime": pod.status.start_time or stamp,
        "podIP": ip,
        "podIPs": [{"ip": ip}],
        "hostIP": host,
        "hostIPs": [{"ip": host}],
        "conditions": ready,
        "containerStatuses": [_container(c, {"running": {"startedAt": stamp}}, True, resources) for c in pod.spec.containers],
    }
    if pod.spec.init_containers:
        done = {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": stamp, "finishedAt": stamp}}
        status["initContainerStatuses"] = [_container(c, done, True, {}) for c in pod.spec.init_containers]
    return {"status": status}


def starting(pod: Pod, now: float) -> dict[str, Any]:
    """Taken by the node, and not running yet."""
    stamp, host = format_time(now), host_ip(pod.spec.node_name)
    waiting = {"waiting": {"reason": "ContainerCreating"}}
    unready = [_condition(type, "False", stamp, "ContainersNotReady") for type in ("Ready", "ContainersReady")]
    initial = "False" if pod.spec.init_containers else "True"
    conditions = [_condition("PodReadyToStartContainers", "False", stamp), _condition("Initialized", initial, stamp), *unready]
    return {
        "status": {
            "phase": "Pending",
            "startTime": stamp,
            "hostIP": host,
            "hostIPs": [{"ip": host}],
            "conditions": conditions,
            "containerStatuses": [_container(c, waiting, False, {}) for c in pod.spec.containers],
        }
    }


def progress(pod: Pod, state: Restarts, resources: Resources, now: float) -> dict[str, Any]:
    """Running: where the containers are in their starts and ends, and how their devices are. The list is written whole, because
    the API takes it only so."""
    stamp, runs = format_time(now), state.since is not None
    current: dict[str, Any] = {"waiting": {"reason": "CrashLoopBackOff", "message": state.message}}
    if state.since is not None:
        current = {"running": {"startedAt": format_time(state.since)}}
    containers = [_container(c, current, runs, resources) for c in pod.spec.containers]
    for container in containers:
        container["restartCount"] = state.count
        if state.last_end:
            last = {"exitCode": state.exit_code, "reason": "Error", "startedAt": format_time(state.last_start)}
            container["lastState"] = {"terminated": {**last, "finishedAt": format_time(state.last_end)}}
    reason = "" if runs else "ContainersNotReady"
    ready = _conditions(pod, ("ContainersReady",), "True" if runs else "False", stamp, reason)
    ready.append(_readiness(pod, "True" if runs else "False", stamp, reason))
    return {"status": {"conditions": ready, "containerStatuses": containers}}


def renewed(pod: Pod, now: float) -> dict[str, Any] | None:
    """What changes in the status of a pod that runs: its readiness gates, and the generation that was seen."""
    changes: dict[str, Any] = {}
    if pod.status.observed_generation != pod.metadata.generation:
        changes["observedGeneration"] = pod.metadata.generation
    known = {c.type: c.status for c in pod.status.conditions}
    wanted = _readiness(pod, known.get("ContainersReady", "True"), format_time(now))
    if pod.spec.readiness_gates and known.get("Ready") != wanted["status"]:
        changes["conditions"] = [wanted]
    return {"status": changes} if changes else None


def deadline(pod: Pod) -> float | None:
    """When a pod that runs has been active long enough."""
    seconds = pod.spec.active_deadline_seconds
    return parse_time(pod.status.start_time) + seconds if seconds is not None and pod.status.start_time else None


def expired(pod: Pod, now: float) -> dict[str, Any]:
    """Ended because it was active longer than it may be."""
    body = finished(pod, 137, now)
    words = "Pod was active on the node longer than the specified deadline"
    body["status"] |= {"reason": "DeadlineExceeded", "message": words}
    return body


def _readiness(pod: Pod, containers: str, stamp: str, reason: str = "") -> dict[str, Any]:
    """Ready when the containers are and every readiness gate is open."""
    known = {c.type: c.status for c in pod.status.conditions}
    closed = [gate.condition_type for gate in pod.spec.readiness_gates if known.get(gate.condition_type) != "True"]
    if not closed or containers != "True":
        return _conditions(pod, ("Ready",), containers, stamp, reason)[0]
    words = ", ".join(f'the status of pod readiness gate "{name}" is not "True"' for name in closed)
    return {**_condition("Ready", "False", stamp, "ReadinessGatesNotReady"), "message": words}


def finished(pod: Pod, exit_code: int, now: float) -> dict[str, Any]:
    stamp = format_time(now)
    reason = "Completed" if exit_code == 0 else "Error"
    state = {"exitCode": exit_code, "reason": reason, "startedAt": pod.status.start_time or stamp, "finishedAt": stamp}
    phase = "Succeeded" if exit_code == 0 else "Failed"
    why = "PodCompleted" if exit_code == 0 else "PodFailed"
    return {
        "status": {
            "phase": phase,
            "conditions": [_condition(type, "False", stamp, why) for type in ("Ready", "ContainersReady")],
            "containerStatuses": [_container(c, {"terminated": state}, False, {}) for c in pod.spec.containers],
        }
    }


def _container(container: Container, state: dict[str, Any], ready: bool, resources: Resources) -> dict[str, Any]:
    started = "running" in state
    status: dict[str, Any] = {
        "name": container.name,
        "image": container.image,
        "imageID": "",
        "ready": ready,
        "started": started,
        "restartCount": 0,
        "state": state,
    }
    if given := resources.get(container.name):
        status["allocatedResourcesStatus"] = given
    return status


def _conditions(pod: Pod, types: Sequence[str], status: str, stamp: str, reason: str = "") -> list[dict[str, Any]]:
    """Conditions, without the reasons that they had before: a patch keeps what it does not name."""
    reasons = {condition.type for condition in pod.status.conditions if condition.reason}
    made = [_condition(type, status, stamp, reason) for type in types]
    return [{"reason": None, **condition} if condition["type"] in reasons else condition for condition in made]


def _condition(type: str, status: str, stamp: str, reason: str = "") -> dict[str, Any]:
    condition = {"type": type, "status": status, "lastTransitionTime": stamp}
    return {**condition, "reason": reason} if reason else condition
