"""``dray scheduler`` on a real kube-apiserver: alone, and beside kube-scheduler on the same devices."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.real.upstream import manifests
from tests.real.upstream.client import Client, eventually
from tests.real.upstream.control_plane import Server
from tests.real.upstream.process import Program
from tests.real.upstream.scheduler import kube_scheduler

NODES, DEVICES = 4, 8


@pytest.fixture
def client(server: Server) -> Client:
    made = Client(server.kubeconfig)
    for body in manifests.nodes_with_devices(NODES, DEVICES):
        made.create(body)
    return made


@pytest.fixture
def dray(server: Server, client: Client, tmp_path: Path) -> Iterator[Program]:
    argv: list[str | Path] = [Path(sys.executable).with_name("dray"), "scheduler", "--kubeconfig", server.kubeconfig]
    with Program("dray scheduler", argv, tmp_path / "dray-scheduler.log") as program:
        yield program
        assert program.process.poll() is None, program.text()


def ask(client: Client, name: str, scheduler: str, count: int = 1) -> None:
    client.create(manifests.claim(name, count=count))
    client.create(manifests.pod(name, name, scheduler=scheduler))


def node_of(client: Client, name: str) -> Any:
    return client.get("Pod", name)["spec"].get("nodeName")


def devices_of(claim: dict[str, Any]) -> list[tuple[str, str]]:
    results = claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", [])
    return [(r["pool"], r["device"]) for r in results]


def test_a_pod_gets_its_devices_and_its_node(client: Client, dray: Program) -> None:
    ask(client, "train", "dray", count=8)
    node = eventually(lambda: node_of(client, "train"), f"train is bound; log:\n{dray.text()[-2000:]}")
    claim = client.get("ResourceClaim", "train")
    assert devices_of(claim) == [(node, f"dev-{i}") for i in range(8)]
    assert claim["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
    assert [(r["resource"], r["name"]) for r in claim["status"]["reservedFor"]] == [("pods", "train")]
    assert claim["status"]["allocation"]["nodeSelector"]["nodeSelectorTerms"][0]["matchFields"][0]["values"] == [node]


def test_a_pod_that_does_not_fit_is_told_why(client: Client, dray: Program) -> None:
    ask(client, "too-big", "dray", count=9)

    def told() -> Any:
        conditions = client.get("Pod", "too-big").get("status", {}).get("conditions", [])
        return next((c for c in conditions if c["type"] == "PodScheduled" and c["status"] == "False"), None)

    condition = eventually(told, "PodScheduled=False")
    assert condition["reason"] == "Unschedulable"
    assert "9" in condition["message"]


@pytest.mark.usefixtures("dray")
def test_each_scheduler_keeps_off_what_the_other_gave(client: Client, server: Server, tmp_path: Path) -> None:
    """One pod after the other, in turn, until no device is left. (Nothing in the API stops two schedulers that decide in the
    same moment from choosing the same device for different claims, so they take turns here.)"""
    count = NODES * DEVICES
    with kube_scheduler(server.kubeconfig, tmp_path / "kube-scheduler"):
        for number in range(count):
            name = f"pod-{number}"
            ask(client, name, "dray" if number % 2 else "default-scheduler")
            eventually(lambda name=name: node_of(client, name), f"{name} is bound", every=0.05)  # type: ignore[misc]
    taken = Counter(device for claim in client.list("ResourceClaim") for device in devices_of(claim))
    assert len(taken) == count
    assert set(taken.values()) == {1}
