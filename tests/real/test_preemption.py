"""``dray scheduler`` evicts on a real kube-apiserver with exactly the rights of ``deploy/``, and not a right more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.real.upstream import manifests
from tests.real.upstream.client import Client, eventually
from tests.real.upstream.control_plane import PLAIN_TOKEN, PLAIN_USER, Server, write_kubeconfig
from tests.real.upstream.dray import dray_part

DEPLOY = Path(__file__).parents[2] / "deploy" / "base" / "scheduler-rbac.yaml"


@pytest.fixture
def client(server: Server) -> Client:
    """One node with one device, and the scheduler's role for a user who has no other rights."""
    made = Client(server.kubeconfig)
    made.create(manifests.device_class())
    made.create(manifests.node("gpu"))
    made.create(manifests.resource_slice("gpu", [manifests.device("dev-0")]))
    for found in yaml.safe_load_all(DEPLOY.read_text()):
        if found["kind"] == "ClusterRole":
            made.create(found)
        if found["kind"] == "ClusterRoleBinding":
            who = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": PLAIN_USER}
            made.create({**found, "subjects": [who]})
    return made


def ask(client: Client, name: str, priority: int) -> None:
    client.create(manifests.claim(name))
    client.create(manifests.pod(name, name, scheduler="dray", priority=priority, terminationGracePeriodSeconds=0))


def node_of(client: Client, name: str) -> Any:
    return client.get("Pod", name)["spec"].get("nodeName")


def events(client: Client, reason: str) -> list[str]:
    return [event["involvedObject"]["name"] for event in client.list("Event") if event["reason"] == reason]


def test_a_pod_of_higher_priority_gets_the_device_and_nobody_takes_it_before(
    server: Server, client: Client, tmp_path: Path
) -> None:
    config = write_kubeconfig(tmp_path / "plain.kubeconfig", server.url, tmp_path / "control-plane" / "ca.crt", PLAIN_TOKEN)
    with dray_part("scheduler", config, tmp_path / "scheduler") as scheduler:
        ask(client, "low", 1)
        eventually(lambda: node_of(client, "low"), f"low is bound; log:\n{scheduler.text()[-2000:]}")
        ask(client, "high", 10)
        said = f"the log says:\n{scheduler.text()[-2000:]}"
        eventually(lambda: "low" not in {pod["metadata"]["name"] for pod in client.list("Pod")}, f"low is evicted; {said}")
        # Nobody gives back what it had yet. Meanwhile others of the same priority ask for it.
        eventually(lambda: client.get("Pod", "high")["status"].get("nominatedNodeName") == "gpu", "high is nominated")
        ask(client, "thief", 10)
        ask(client, "lower-thief", 5)
        with dray_part("controllers", server.kubeconfig, tmp_path / "controllers", "--only", "claims"):
            eventually(lambda: node_of(client, "high"), f"high is bound; log:\n{scheduler.text()[-2000:]}")
        assert "low" in eventually(lambda: events(client, "Preempted"), "the victim is told")
    assert node_of(client, "thief") is node_of(client, "lower-thief") is None
    (result,) = client.get("ResourceClaim", "high")["status"]["allocation"]["devices"]["results"]
    assert (result["pool"], result["device"]) == ("gpu", "dev-0")
