"""What a kubelet reports of a pod, as status patches."""

from __future__ import annotations

from hashlib import blake2b
from ipaddress import IPv4Address
from typing import Any, Final

from dray.api.core import Container, Pod
from dray.api.resource import ResourceClaim
from dray.api.times import format_time, parse_time

POD_NETWORK: Final = int(IPv4Address("10.128.0.0"))
HOST_NETWORK: Final = int(IPv4Address("172.20.0.0"))
DEVICES: Final = "dray.dev/devices"


def address(text: str, network: int, bits: int) -> str:
    """An address that follows from a name."""
    number = int.from_bytes(blake2b(text.encode(), digest_size=4).digest(), "big") % ((1 << bits) - 2) + 1
    return str(IPv4Address(network + number))


def host_ip(node: str) -> str:
    return address(node, HOST_NETWORK, 16)


def pod_ip(pod: Pod) -> str:
    return host_ip(pod.spec.node_name) if pod.spec.host_network else address(pod.uid, POD_NETWORK, 23)


def running(pod: Pod, claims: dict[str, ResourceClaim], now: float) -> dict[str, Any]:
    """Started: addresses, containers and readiness. ``claims`` are the pod's, by their name in the pod."""
    stamp = format_time(now)
    ip, host = pod_ip(pod), host_ip(pod.spec.node_name)
    ready = [_condition(type, "True", stamp) for type in ("PodReadyToStartContainers", "Initialized", "ContainersReady")]
    ready.append(_readiness(pod, stamp))
    if not any(c.type == "PodScheduled" for c in pod.status.conditions):
        ready.append(_condition("PodScheduled", "True", stamp))  # nobody scheduled it: its maker named the node
    status: dict[str, Any] = {
        "phase": "Running",
        "observedGeneration": pod.metadata.generation,
        "startTime": stamp,
        "podIP": ip,
        "podIPs": [{"ip": ip}],
        "hostIP": host,
        "hostIPs": [{"ip": host}],
        "conditions": ready,
        "containerStatuses": [_container(c, {"running": {"startedAt": stamp}}, True, claims) for c in pod.spec.containers],
    }
    if pod.spec.init_containers:
        done = {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": stamp, "finishedAt": stamp}}
        status["initContainerStatuses"] = [_container(c, done, True, {}) for c in pod.spec.init_containers]
    body: dict[str, Any] = {"status": status}
    if claims:
        body["metadata"] = {"annotations": {DEVICES: ", ".join(d for claim in claims.values() for d in devices(claim))}}
    return body


def renewed(pod: Pod, now: float) -> dict[str, Any] | None:
    """What changes in the status of a pod that runs: its readiness gates, and the generation that was seen."""
    changes: dict[str, Any] = {}
    if pod.status.observed_generation != pod.metadata.generation:
        changes["observedGeneration"] = pod.metadata.generation
    wanted = _readiness(pod, format_time(now))
    known = next((c for c in pod.status.conditions if c.type == "Ready"), None)
    if pod.spec.readiness_gates and (known is None or known.status != wanted["status"]):
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


def _readiness(pod: Pod, stamp: str) -> dict[str, Any]:
    known = {c.type: c.status for c in pod.status.conditions}
    missing = [gate.condition_type for gate in pod.spec.readiness_gates if known.get(gate.condition_type) != "True"]
    if not missing:
        return _condition("Ready", "True", stamp)
    words = ", ".join(f'the status of pod readiness gate "{name}" is not "True"' for name in missing)
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


def devices(claim: ResourceClaim) -> list[str]:
    """``driver/pool/device`` of each device of a claim."""
    allocation = claim.status.allocation
    results = allocation.devices.results if allocation is not None else ()
    return [f"{r.driver}/{r.pool}/{r.device}" + (f"/{r.share_id}" if r.share_id else "") for r in results]


def _container(container: Container, state: dict[str, Any], ready: bool, claims: dict[str, ResourceClaim]) -> dict[str, Any]:
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
    if given := _resources(container, claims):
        status["allocatedResourcesStatus"] = given
    return status


def _resources(container: Container, claims: dict[str, ResourceClaim]) -> list[dict[str, Any]]:
    """The devices that a container sees, as the kubelet reports their health."""
    found = []
    for wanted in container.resources.claims:
        claim = claims.get(wanted.name)
        if claim is None or claim.status.allocation is None:
            continue
        results = [
            r for r in claim.status.allocation.devices.results if not wanted.request or r.request.split("/")[0] == wanted.request
        ]
        name = f"claim:{wanted.name}/{wanted.request}" if wanted.request else f"claim:{wanted.name}"
        # Each device once, also where the claim has several shares of it.
        ids = dict.fromkeys(f"{r.driver}/{r.pool}/{r.device}" for r in results)
        found.append({"name": name, "resources": [{"resourceID": each, "health": "Healthy"} for each in ids]})
    return found


def _condition(type: str, status: str, stamp: str, reason: str = "") -> dict[str, Any]:
    condition = {"type": type, "status": status, "lastTransitionTime": stamp}
    return {**condition, "reason": reason} if reason else condition
