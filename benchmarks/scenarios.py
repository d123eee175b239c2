"""Inputs for ``dray allocate``: many pods on many nodes, one function per shape of hardware and claim."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

Json = dict[str, Any]
DRIVER = "gpu.example.com"
PROFILES = (("1g10", 7, 1), ("1g10me", 7, 1), ("1g20", 4, 1), ("2g20", 6, 2), ("3g40", 2, 3), ("4g40", 1, 4), ("7g80", 1, 7))
"""Partitions of one GPU: name, how many are published, compute slices that one takes. 28 in all."""


def line(nodes: int, slices: Iterable[Json], pods: Iterable[list[Json]], **more: Any) -> Json:
    return {
        "nodes": [{"metadata": {"name": name(i), "labels": {"kubernetes.io/hostname": name(i)}}} for i in range(nodes)],
        "classes": [{"metadata": {"name": "gpu"}, "spec": {"selectors": [cel(f'device.driver == "{DRIVER}"')]}}],
        "slices": list(slices),
        "allocatedClaims": [],
        "pods": list(pods),
        "rotate": True,
        **more,
    }


def name(node: int) -> str:
    return f"node-{node:04d}"


def cel(expression: str) -> Json:
    return {"cel": {"expression": expression}}


def pool(node: int, parts: list[Json]) -> Iterator[Json]:
    """The slices of a node's pool; one slice for each part."""
    for number, part in enumerate(parts):
        spec = {
            "driver": DRIVER,
            "nodeName": name(node),
            "pool": {"name": name(node), "generation": 1, "resourceSliceCount": len(parts)},
            **part,
        }
        yield {"metadata": {"name": f"{name(node)}-{number}"}, "spec": spec}


def pods(count: int, exactly: Json, **devices: Any) -> Iterator[list[Json]]:
    """Pods with one claim of one request each."""
    for number in range(count):
        request = {"name": "gpu", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1, **exactly}}
        meta = {"name": f"claim-{number}", "namespace": "default", "uid": f"uid-{number}"}
        yield [{"metadata": meta, "spec": {"devices": {"requests": [request], **devices}}}]


def gpu(number: int, **more: Any) -> Json:
    attributes = {"model": {"string": "h100"}, "index": {"int": number}, "root": {"string": f"pci{number // 4}"}}
    return {"name": f"gpu-{number}", "attributes": attributes, "capacity": {"memory": {"value": "80Gi"}}, **more}


def whole_gpus(nodes: int, count: int) -> Json:
    """8 GPUs a node, one for each pod."""
    slices = (s for n in range(nodes) for s in pool(n, [{"devices": [gpu(i) for i in range(8)]}]))
    return line(nodes, slices, pods(count, {}))


def full_cluster(nodes: int) -> Json:
    """Every GPU is taken; one more pod comes."""
    question = whole_gpus(nodes, 1)
    question["allocatedClaims"] = [taken(n, i) for n in range(nodes) for i in range(8)]
    return question


def taken(node: int, number: int) -> Json:
    result = {"request": "gpu", "driver": DRIVER, "pool": name(node), "device": f"gpu-{number}"}
    key = f"taken-{node}-{number}"
    asked = {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}
    return {
        "metadata": {"name": key, "namespace": "default", "uid": key},
        "spec": {"devices": asked},
        "status": {"allocation": {"devices": {"results": [result]}}},
    }


def same_root(nodes: int, count: int, *, roots: int, devices: int) -> Json:
    """``devices`` GPUs that share a PCI root, on nodes whose 8 GPUs hang on ``roots`` of them."""
    made = [gpu(i) for i in range(8)]
    for i, each in enumerate(made):
        each["attributes"]["root"] = {"string": f"pci{i * roots // 8}"}
    slices = (s for n in range(nodes) for s in pool(n, [{"devices": made}]))
    constraint = {"requests": ["gpu"], "matchAttribute": f"{DRIVER}/root"}
    return line(nodes, slices, pods(count, {"count": devices}, constraints=[constraint]))


def partitions(nodes: int, count: int, exactly: Json, **devices: Any) -> Json:
    """8 GPUs a node, each published as 28 partitions that share its counters."""
    made = [p for g in range(8) for p in gpu_partitions(g)]
    parts: list[Json] = [{"devices": made[i : i + 56]} for i in range(0, len(made), 56)]
    parts.append({"sharedCounters": [{"name": f"gpu-{g}", "counters": {"slices": {"value": "7"}}} for g in range(8)]})
    slices = (s for n in range(nodes) for s in pool(n, parts))
    return line(nodes, slices, pods(count, exactly, **devices))


def gpu_partitions(number: int) -> Iterator[Json]:
    for profile, published, takes in PROFILES:
        for i in range(published):
            yield {
                "name": f"gpu-{number}-{profile}-{i}",
                "attributes": {"profile": {"string": profile}, "gpu": {"int": number}},
                "consumesCounters": [{"counterSet": f"gpu-{number}", "counters": {"slices": {"value": str(takes)}}}],
            }


def profile(wanted: str) -> Json:
    return {"selectors": [cel(f'device.attributes["{DRIVER}"].profile == "{wanted}"')]}


def groups(nodes: int, count: int) -> Json:
    """8 GPUs a node; each can be cut one way or the other, not both; pods ask for one way and the other in turn."""
    made = [grouped(g, way, i) for g in range(8) for way in ("mig", "vgpu") for i in range(4)]
    counters = [{"name": f"gpu-{g}", "counters": {"slots": {"value": "4"}}} for g in range(8)]
    slices = (s for n in range(nodes) for s in pool(n, [{"devices": made}, {"sharedCounters": counters}]))
    ways = [list(pods(count, profile(way))) for way in ("mig", "vgpu")]
    return line(nodes, slices, (ways[i % 2][i] for i in range(count)))


def grouped(number: int, way: str, index: int) -> Json:
    consumed = {"counterSet": f"gpu-{number}", "counters": {"slots": {"value": "1"}}, "compatibilityGroups": [way]}
    return {
        "name": f"gpu-{number}-{way}-{index}",
        "attributes": {"profile": {"string": way}},
        "consumesCounters": [consumed],
    }


def shares(nodes: int, count: int) -> Json:
    """8 GPUs a node, shared by memory: 10Gi steps of 80Gi, each pod asks for a little less than 20Gi."""
    policy = {"default": "10Gi", "validRange": {"min": "10Gi", "step": "10Gi", "max": "80Gi"}}
    shared = {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "80Gi", "requestPolicy": policy}}}
    slices = (s for n in range(nodes) for s in pool(n, [{"devices": [gpu(i) | shared for i in range(8)]}]))
    return line(nodes, slices, pods(count, {"capacity": {"requests": {"memory": "18Gi"}}}))
