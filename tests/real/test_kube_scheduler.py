"""The real kube-scheduler runs on both servers and places pods with claims."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dray.scheduling.config import Profile
from dray.scheduling.configuration import load
from tests.real.upstream import manifests
from tests.real.upstream.binaries import binary
from tests.real.upstream.client import Client, eventually
from tests.real.upstream.process import Program

# Lines of a kube-scheduler log that only a server that misbehaves causes.
TROUBLE = re.compile(
    r"Failed to watch|failed to list|Unhandled Error|forbidden|the server could not find|watch of .* ended", re.I
)


@pytest.fixture
def two_gpu_nodes(client: Client) -> Iterator[None]:
    """Nodes gpu-a and gpu-b with four GPUs each."""
    objects = [manifests.device_class()]
    for name in ("gpu-a", "gpu-b"):
        objects.append(manifests.node(name))
        objects.append(manifests.resource_slice(name, [manifests.device(f"gpu-{i}") for i in range(4)]))
    for o in objects:
        client.create(o)
    yield
    for o in reversed(objects):
        client.delete(o["kind"], o["metadata"]["name"])


def place(client: Client, namespace: str, name: str, count: int) -> None:
    client.create(manifests.claim(name, count=count, namespace=namespace))
    client.create(manifests.pod(name, name, namespace=namespace))


def bound(client: Client, namespace: str, name: str) -> Any:
    return client.get("Pod", name, namespace)["spec"].get("nodeName")


@pytest.mark.usefixtures("two_gpu_nodes")
def test_kube_scheduler_places_a_pod_with_a_claim(client: Client, namespace: str, scheduler: Program) -> None:
    place(client, namespace, "train", 4)
    node = eventually(lambda: bound(client, namespace, "train"), f"the pod is bound; log:\n{scheduler.text()[-2000:]}")
    claim = client.get("ResourceClaim", "train", namespace)
    results = claim["status"]["allocation"]["devices"]["results"]
    assert [(r["pool"], r["device"]) for r in results] == [(node, f"gpu-{i}") for i in range(4)]
    assert [r["name"] for r in claim["status"]["reservedFor"]] == ["train"]


@pytest.mark.usefixtures("two_gpu_nodes")
def test_a_pod_that_does_not_fit_waits_and_is_told_why(client: Client, namespace: str, scheduler: Program) -> None:
    place(client, namespace, "too-big", 5)

    def told() -> bool:
        conditions = client.get("Pod", "too-big", namespace).get("status", {}).get("conditions", [])
        return any(c["type"] == "PodScheduled" and "cannot allocate all claims" in c.get("message", "") for c in conditions)

    eventually(told, "PodScheduled=False with the reason")
    assert not bound(client, namespace, "too-big")


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("two_gpu_nodes")
def test_kube_scheduler_runs_for_minutes_without_an_error_loop(client: Client, namespace: str, scheduler: Program) -> None:
    end = time.monotonic() + 120
    serial = 0
    while time.monotonic() < end:
        name = f"round-{serial}"
        place(client, namespace, name, 8 if serial % 5 == 4 else 2)
        if serial % 5 != 4:
            eventually(lambda name=name: bound(client, namespace, name), f"{name} is bound")  # type: ignore[misc]
        client.delete("Pod", name, namespace)
        release(client, namespace, name)
        serial += 1
        time.sleep(1)
    assert serial > 20
    lines = [line for line in scheduler.text().splitlines() if TROUBLE.search(line)]
    assert lines == []
    assert scheduler.process.poll() is None


def release(client: Client, namespace: str, name: str) -> None:
    """What the claim controller would do: drop the reservation and the finalizer, then delete the claim."""
    path = f"apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}"
    client.call("PATCH", f"{path}/status", {"status": {"reservedFor": None}}, "application/merge-patch+json")
    client.call("PATCH", f"{path}/status", {"status": {"allocation": None}}, "application/merge-patch+json")
    client.call("PATCH", path, {"metadata": {"finalizers": None}}, "application/merge-patch+json")
    client.delete("ResourceClaim", name, namespace)


@pytest.mark.usefixtures("upstream")
def test_the_configuration_that_it_writes_is_read_as_it_is_and_quietly(tmp_path: Path) -> None:
    """Of the version that is tested against, not of a copy that somebody made once."""
    written = tmp_path / "written.yaml"
    kubeconfig = tmp_path / "kubeconfig"
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}
    found = {"clusters": [cluster], "contexts": [{"name": "c", "context": {"cluster": "c"}}], "current-context": "c"}
    kubeconfig.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", **found}))
    argv = [binary("kube-scheduler"), f"--write-config-to={written}", f"--kubeconfig={kubeconfig}"]
    subprocess.run(argv, check=True, capture_output=True, timeout=60)
    config = load(written.read_text())
    assert config.notices == ()
    assert [profile.scheduler_name for profile in config.profiles] == ["default-scheduler"]
    assert config.profiles[0].scores == Profile("default-scheduler").scores
