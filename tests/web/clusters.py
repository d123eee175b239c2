"""Clusters to look at: a small one in which everything occurs, and large ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from dray.api.resource import FINALIZER
from dray.api.times import format_time
from dray.cluster.world import World
from dray.explain.snapshot import KINDS, kind_of
from dray.nodes.hardware import hardware
from dray.testing.builders import node, resource_slice

Plain = dict[str, Any]
DRIVER = "gpu.dray.dev"
MADE = "2026-01-01T00:00:00Z"


def world_of(objects: Iterable[Plain]) -> World:
    """What a cluster with these objects shows."""
    world, by_kind = World(KINDS), dict[Any, list[Plain]]()
    for body in objects:
        kind = kind_of(body, Path("a test"))
        assert kind is not None
        named = {"uid": f"{kind.plural}/{body['metadata']['name']}", "resourceVersion": "1", **body["metadata"]}
        by_kind.setdefault(kind, []).append({**body, "metadata": named})
    for kind, found in by_kind.items():
        world.replace(kind, found)
    return world


def claim(name: str, *devices: str, node: str = "gpu8-0", pod: str = "", namespace: str = "team", count: int = 1) -> Plain:
    """A claim for GPUs; with devices it is allocated, with a pod it is reserved for it."""
    status: Plain = {}
    metadata: Plain = {"name": name, "namespace": namespace, "uid": f"uid-claim-{name}", "creationTimestamp": MADE}
    if devices:
        metadata["finalizers"] = [FINALIZER]
        results = [{"request": "gpu", "driver": DRIVER, "pool": node, "device": device} for device in devices]
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        status["allocation"] = {
            "devices": {"results": results},
            "nodeSelector": {"nodeSelectorTerms": [term]},
            "allocationTimestamp": "2026-01-01T00:00:05Z",
        }
    if pod:
        status["reservedFor"] = [{"resource": "pods", "name": pod, "uid": f"uid-{pod}"}]
    exactly = {"deviceClassName": DRIVER, "allocationMode": "ExactCount", "count": count}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": metadata,
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
        "status": status,
    }


def pod(name: str, *claims: str, node: str = "", namespace: str = "team", **metadata: Any) -> Plain:
    container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": "1"}, "claims": [{"name": c} for c in claims]}}
    metadata = {
        "name": name,
        "namespace": namespace,
        "uid": f"uid-{name}",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        **metadata,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {
            "schedulerName": "dray",
            "containers": [container],
            "resourceClaims": [{"name": c, "resourceClaimName": c} for c in claims],
            **({"nodeName": node} if node else {}),
        },
        "status": {"phase": "Running" if node else "Pending"},
    }


def used(node_name: str, device: str) -> Sequence[Plain]:
    """A pod with one device."""
    name = f"{node_name}-{device}"
    return claim(f"c-{name}", device, node=node_name, pod=f"p-{name}"), pod(f"p-{name}", f"c-{name}", node=node_name)


def rule(name: str, effect: str = "NoSchedule", **selector: str) -> Plain:
    taint = {"key": "example.com/broken", "value": "ecc", "effect": effect, "timeAdded": "2026-01-01T00:00:09Z"}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "metadata": {"name": name, "uid": f"uid-{name}"},
        "spec": {"deviceSelector": {"driver": DRIVER, **selector}, "taint": taint},
    }


def small() -> list[Plain]:
    """Two nodes with eight GPUs, one with partitions, one with cards; two pods run, two wait, one device is tainted."""
    made = hardware(["gpu8:2", "mig:1", "nic:1"])
    for number, found in enumerate(made.nodes):
        found["metadata"].setdefault("labels", {})["example.com/rack"] = f"r{number % 2}"
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        found["status"] = {**found.get("status", {}), "conditions": [ready]}
        found["status"].setdefault("allocatable", {"pods": "110", **found["status"].get("capacity", {})})
    busy = [each for device in ("gpu-0", "gpu-1") for each in used("gpu8-0", device)]
    waiting = [
        *(claim("eight", count=8), pod("train", "eight")),
        *(claim("nine", count=9), pod("too-much", "nine")),
    ]
    return [*made.nodes, *made.objects, *busy, *waiting, rule("broken", pool="gpu8-1", device="gpu-7")]


def large(nodes: int, devices: int = 8, busy: float = 0.5) -> list[Plain]:
    """Many nodes in racks of 32, with so much of each node's devices in use."""
    made: list[Plain] = [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": DRIVER},
            "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]},
        }
    ]
    for number in range(nodes):
        name = f"node-{number:05}"
        made.append(node(name, cpu="64", memory="512Gi", labels={"example.com/rack": f"rack-{number // 32:03}"}))
        described = [
            {
                "name": f"gpu-{place}",
                "attributes": {
                    "numaNode": {"int": place * 2 // devices},
                    "resource.kubernetes.io/pcieRoot": {"string": f"pci0000:{place // 2:02x}"},
                },
                "capacity": {"memory": {"value": "80Gi"}},
            }
            for place in range(devices)
        ]
        made.append(resource_slice(name, described, driver=DRIVER))
        for place in range(int(devices * busy) if number % 3 else devices):
            made.extend(used(name, f"gpu-{place}"))
    return made


def queue(name: str, gpus: int, parent: str = "") -> Plain:
    unlimited = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    spec: Plain = {
        "resources": {"gpu": {"quota": gpus, "limit": -1, "overQuotaWeight": 1}, "cpu": unlimited, "memory": unlimited}
    }
    if parent:
        spec["parentQueue"] = parent
    return {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": name, "uid": f"uid-{name}"}, "spec": spec}


def queued() -> list[Plain]:
    """The small cluster, divided between two teams; their pods are made again when they are gone."""
    tree = [queue("research", 12), queue("vision", 8, "research"), queue("speech", 4, "research")]
    job = {"apiVersion": "batch/v1", "kind": "Job", "controller": True}
    made = small()
    for found in made:
        if found["kind"] == "Pod":
            name = found["metadata"]["name"]
            found["metadata"]["labels"] = {"kai.scheduler/queue": "vision" if "gpu8" in name else "speech"}
            found["metadata"]["ownerReferences"] = [{**job, "name": name, "uid": f"uid-job-{name}"}]
    return [*made, *tree]


def gang(name: str, members: int, placed: int) -> list[Plain]:
    """A pod group that needs all its members, so many of which have a node; and a pod that had to leave for one of them."""
    made: list[Plain] = [
        {
            "apiVersion": "scheduling.run.ai/v2alpha2",
            "kind": "PodGroup",
            "metadata": {"name": name, "namespace": "team", "uid": f"uid-{name}"},
            "spec": {"queue": "vision", "minMember": members},
        },
        {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": f"left.{name}", "namespace": "team", "uid": f"uid-event-{name}"},
            "regarding": {"kind": "Pod", "namespace": "team", "name": "left", "uid": "uid-left"},
            "eventTime": "2026-01-01T00:00:10.000000Z",
            "reason": "Preempted",
            "note": f"Preempted by pod uid-{name}-0 on node gpu8-0",
            "type": "Normal",
        },
    ]
    for number in range(members):
        where = "gpu8-0" if number < placed else ""
        made.append(pod(f"{name}-{number}", node=where, annotations={"pod-group-name": name}))
    return made


def failed(device: str, at: float) -> Plain:
    """What a scheduler tells of a device that could not be bound for a pod."""
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "train.failed", "namespace": "team", "uid": "uid-event-failed"},
        "regarding": {"kind": "Pod", "namespace": "team", "name": "train", "uid": "uid-train"},
        "eventTime": format_time(at),
        "reason": "FailedScheduling",
        "note": f"device {device} could not be bound to node gpu8-0: failed",
        "type": "Warning",
    }
