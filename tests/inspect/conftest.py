"""A small cluster as objects, written to a file as kubectl would; tests break one thing and look at what is said."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from dray.api.resource import FINALIZER
from dray.cli import root

Plain = dict[str, Any]


def node(name: str, **allocatable: str) -> Plain:
    resources = {"cpu": "8", "memory": "16Gi", "pods": "110", **allocatable}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"allocatable": resources, "capacity": resources},
    }


def slice_(name: str, devices: list[Plain], *, node: str = "n1", pool: str = "", count: int = 1, **spec: Any) -> Plain:
    pool_of = {"name": pool or node, "generation": 1, "resourceSliceCount": count}
    where: Plain = {} if "allNodes" in spec or "nodeSelector" in spec else {"nodeName": node}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {"driver": "gpu.example.com", "pool": pool_of, **where, "devices": devices, **spec},
    }


def device_class(name: str = "gpu", expression: str = 'device.driver == "gpu.example.com"') -> Plain:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }


def result(device: str, *, pool: str = "n1", **fields: Any) -> Plain:
    return {"request": "gpu", "driver": "gpu.example.com", "pool": pool, "device": device, **fields}


def claim(name: str, *results: Plain, pods: tuple[str, ...] = (), node: str = "n1", count: int = 1, **metadata: Any) -> Plain:
    status: Plain = {}
    if results:
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        status["allocation"] = {"devices": {"results": list(results)}, "nodeSelector": {"nodeSelectorTerms": [term]}}
        metadata.setdefault("finalizers", [FINALIZER])
    if pods:
        status["reservedFor"] = [{"resource": "pods", "name": pod, "uid": f"uid-{pod}"} for pod in pods]
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "ns", "uid": f"uid-claim-{name}", **metadata},
        "spec": {"devices": {"requests": [request]}},
        "status": status,
    }


def pod(name: str, *claims: str, node: str = "", phase: str = "", cpu: str = "1", **spec: Any) -> Plain:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}, "claims": [{"name": c} for c in claims]}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {
            "schedulerName": "dray",
            "containers": [container],
            "resourceClaims": [{"name": c, "resourceClaimName": c} for c in claims],
            **({"nodeName": node} if node else {}),
            **spec,
        },
        "status": {"phase": phase or ("Running" if node else "Pending")},
    }


def healthy() -> list[Plain]:
    """Two nodes with two devices each; one is used by a running pod."""
    return [
        node("n1"),
        node("n2"),
        device_class(),
        slice_("s1", [{"name": "g0"}, {"name": "g1"}], node="n1"),
        slice_("s2", [{"name": "g0"}, {"name": "g1"}], node="n2"),
        claim("used", result("g0"), pods=("train",)),
        pod("train", "used", node="n1"),
    ]


Run = Callable[..., Result]


@pytest.fixture
def dray(tmp_path: Path) -> Run:
    """``dray("verify", objects, "-o", "json")``: the command on a snapshot of the objects."""

    def run(command: str, objects: list[Plain], *arguments: str) -> Result:
        file = tmp_path / "cluster.yaml"
        file.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": objects}))
        return CliRunner().invoke(root, [command, "--snapshot", str(file), *arguments], catch_exceptions=False)

    return run
