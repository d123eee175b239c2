"""Nodes with zones, and pods that a kubelet aligns, for tests of the scheduler."""

from __future__ import annotations

from typing import Any

import msgspec
from scheduling_cluster import Sim

from dray.api import kinds
from dray.numa.placement import OBSERVED, PREDICTED

GPU = "nvidia.com/gpu"
Json = dict[str, Any]


def topology(name: str, *zones: Json, policy: str = "single-numa-node", scope: str = "pod", **free: Json) -> Json:
    """Each zone is {resource: amount}; ``free`` says what is published as available, by zone (``zone0={"cpu": "1"}``)."""
    listed = []
    for number, amounts in enumerate(zones):
        left = free.get(f"zone{number}", {})
        resources = [
            {"name": key, "capacity": str(value), "allocatable": str(value), "available": str(left.get(key, value))}
            for key, value in amounts.items()
        ]
        listed.append({"name": f"node-{number}", "type": "Node", "resources": resources})
    attributes = [{"name": "topologyManagerPolicy", "value": policy}, {"name": "topologyManagerScope", "value": scope}]
    return {"metadata": {"name": name}, "attributes": attributes, "zones": listed}


def add_zoned(sim: Sim, name: str, *zones: Json, **more: Any) -> None:
    """A node with these zones, which publishes them. Memory is not reported by zone where it is not named."""
    total: dict[str, int] = {}
    for amounts in zones:
        for key, value in amounts.items():
            total[key] = total.get(key, 0) + int(value)
    cpu = str(total.pop("cpu", 8))
    memory = str(total.pop("memory", "64Gi"))
    sim.add_node(name, cpu=cpu, memory=memory, resources={key: str(value) for key, value in total.items()})
    sim.api.put(kinds.NODE_RESOURCE_TOPOLOGIES, topology(name, *zones, **more))


def aligned(cpu: int | str = 1, **more: Any) -> Json:
    """Keywords for ``add_pod``: one Guaranteed container with so many CPUs, GPUs (``gpu``) and memory."""
    amounts = {"cpu": str(cpu), "memory": str(more.pop("memory", "1Mi"))}
    if gpu := more.pop("gpu", 0):
        amounts[GPU] = str(gpu)
    return {"containers": [{"name": "main", "image": "app", "resources": {"requests": amounts, "limits": amounts}}], **more}


def record(sim: Sim, pod: str, kind: str = PREDICTED) -> dict[str, Json]:
    """A pod's record: amounts by zone."""
    text = sim.pod(pod)["metadata"].get("annotations", {}).get(kind, "[]")
    return {share["zone"]: share["amount"] for share in msgspec.json.decode(text)}


def observe(sim: Sim, pod: str, **zones: Json) -> None:
    """What the exporter writes: ``zone0={"cpu": "3"}``."""
    shares = [{"zone": f"node-{name.removeprefix('zone')}", "amount": amount} for name, amount in zones.items()]
    change(sim, pod, metadata={"annotations": {OBSERVED: msgspec.json.encode(shares).decode()}})


def started(sim: Sim, *pods: str) -> None:
    """Their kubelet has admitted these pods."""
    for name in pods:
        change(sim, name, status={"phase": "Running", "startTime": "2026-01-01T00:00:00Z"})


def change(sim: Sim, pod: str, **parts: Json) -> None:
    found = sim.pod(pod)
    for part, values in parts.items():
        for key, value in values.items():
            before = found.setdefault(part, {}).get(key)
            found[part][key] = {**before, **value} if isinstance(before, dict) and isinstance(value, dict) else value
    sim.api.put(kinds.PODS, found)
