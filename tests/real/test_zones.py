"""Zones on a real kube-apiserver: the kind appears while Dray runs, nodes publish their zones, pods go where their kubelet takes
them with their records written by the binding, and the exporter tells from the kubelet's socket where they really are."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from dray.apiserver.custom.shipped import definition, source
from dray.numa.placement import OBSERVED, PREDICTED
from tests.real.upstream.client import Client, Refused, eventually
from tests.real.upstream.control_plane import control_plane
from tests.real.upstream.dray import dray_part
from tests.real.upstream.process import Program

Json = dict[str, Any]
HARDWARE = """
apiVersion: dray.dev/v1alpha1
kind: Hardware
metadata: {name: box}
each:
- kind: Node
  numa:
    topologyManager: {policy: single-numa-node, scope: pod}
    zones:
    - {cpus: 4, memory: 8Gi}
    - {cpus: 4, memory: 8Gi}
    publish: {after: 30s}
    exporter: null
"""


def guaranteed(name: str, cores: int) -> Json:
    amounts = {"cpu": str(cores), "memory": "1Gi"}
    container = {"name": "c", "image": "i", "resources": {"requests": amounts, "limits": amounts}}
    spec = {"schedulerName": "dray", "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


def record(client: Client, name: str, kind: str) -> dict[str, str]:
    """The CPUs of a pod by zone, as its record says."""
    text = client.get("Pod", name)["metadata"].get("annotations", {}).get(kind, "[]")
    return {share["zone"]: share["amount"]["cpu"] for share in json.loads(text)}


def published(client: Client) -> bool:
    try:
        return len(client.list("NodeResourceTopology")) == 1
    except Refused:
        return False  # the kind is not served yet


@pytest.fixture
def cluster(upstream: None, tmp_path: Path) -> Iterator[tuple[Client, Program, Path]]:
    described = tmp_path / "box.yaml"
    described.write_text(HARDWARE)
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="zones-")))
        server = stack.enter_context(control_plane(tmp_path / "control-plane"))
        scheduler = stack.enter_context(dray_part("scheduler", server.kubeconfig, tmp_path))
        wanted = ("--no-taint", "--hardware", f"{described}:1", "--kubelet-root", f"box-0={root}")
        stack.enter_context(dray_part("nodes", server.kubeconfig, tmp_path, *wanted))
        client = Client(server.kubeconfig)
        # Only now, while everything runs.
        client.create(definition(*source("noderesourcetopologies.topology.node.k8s.io")))
        yield client, scheduler, root


def test_pods_are_placed_by_zone_and_observed(cluster: tuple[Client, Program, Path], tmp_path: Path) -> None:
    client, scheduler, root = cluster
    eventually(lambda: published(client), "the node publishes its zones", 90)
    for name, cores in (("a", 3), ("b", 3)):
        client.create(guaranteed(name, cores))
    scheduler.wait_until(lambda: all(record(client, name, PREDICTED) for name in "ab"))
    assert sorted(tuple(record(client, name, PREDICTED)) for name in "ab") == [("node-0",), ("node-1",)]
    client.create(guaranteed("c", 2))
    where = ("--node", "box-0", "--podresources", root / "pod-resources/kubelet.sock", "--sysfs", root / "sysfs")
    with dray_part("exporter", client.kubeconfig, tmp_path, *where):
        eventually(lambda: all(record(client, name, OBSERVED) for name in "ab"), "the exporter tells where they are", 60)
    assert sorted(tuple(record(client, name, OBSERVED)) for name in "ab") == [("node-0",), ("node-1",)]

    def told() -> str:
        conditions = client.get("Pod", "c")["status"].get("conditions", [])
        return next((c.get("message", "") for c in conditions if c["type"] == "PodScheduled"), "")

    eventually(lambda: "in the same zones" in told(), "c waits for a zone", 60)
    client.delete("Pod", "a")
    eventually(lambda: record(client, "c", PREDICTED), "c has the zone of a", 60)
    assert client.get("Pod", "c")["status"].get("phase") != "Failed"
