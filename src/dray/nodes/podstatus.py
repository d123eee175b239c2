"""What a kubelet reports of a pod, as status patches."""

from __future__ import annotations

from hashlib import blake2b
from ipaddress import IPv4Address
from typing import Any, Final

from dray.api.core import Container, Pod
from dray.api.resource import ResourceClaim
from dray.api.times import format_time

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
    ready = [_condition(type, "True", stamp) for type in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")]
    status: dict[str, Any] = {
        "phase": "Running",
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
