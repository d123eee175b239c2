"""Claims whose parameters were stored with white space: to kube-apiserver every write in JSON changes them. Dray writes them."""

from __future__ import annotations

import asyncio
import json
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dray.api.kinds import RESOURCE_CLAIMS
from dray.api.resource import FINALIZER
from dray.cluster.kubeconfig import load
from dray.cluster.port import Conflict, Invalid, Write
from dray.cluster.remote import Remote
from tests.real.upstream import manifests
from tests.real.upstream.client import Client, Refused, eventually
from tests.real.upstream.control_plane import Server
from tests.real.upstream.process import Program

CONFIG = [{"opaque": {"driver": manifests.DRIVER, "parameters": {"sharing": {"strategy": "MPS"}, "memory": [1, 2]}}}]


def spaced(client: Client, method: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """As clients send it that do not compact their JSON."""
    request = urllib.request.Request(
        f"{client.url}/{path}",
        method=method,
        data=json.dumps(body, indent=2).encode(),
        headers={**client.headers, "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30, context=client.trusted) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def create(client: Client, name: str, namespace: str = "default") -> dict[str, Any]:
    path = RESOURCE_CLAIMS.path(namespace).lstrip("/")
    return spaced(client, "POST", path, manifests.claim(name, namespace=namespace, config=CONFIG))


def patch(claim: dict[str, Any], body: dict[str, Any], **more: Any) -> Write:
    metadata = claim["metadata"]
    return Write("patch", RESOURCE_CLAIMS, metadata["namespace"], metadata["name"], body, uid=metadata["uid"], **more)


def write(server: Server, *writes: Write) -> list[dict[str, Any]]:
    async def go() -> list[dict[str, Any]]:
        remote = Remote(load(server.kubeconfig))
        try:
            return [await remote.write(one) for one in writes]
        finally:
            await remote.close()

    return asyncio.run(go())


class TestAWriteThatJsonCannotMake:
    def test_the_real_server_refuses_it_in_json(self, real_server: Server) -> None:
        client = Client(real_server.kubeconfig)
        claim = create(client, "refused")
        with pytest.raises(Refused, match="field is immutable"):
            client.patch(claim, {"metadata": {"finalizers": [FINALIZER]}})

    def test_adds_and_removes_the_finalizer_and_answers_with_the_claim(
        self, cluster: Server, client: Client, namespace: str
    ) -> None:
        claim = create(client, "w", namespace)
        (made,) = write(cluster, patch(claim, {"metadata": {"finalizers": [FINALIZER]}}))
        assert made["metadata"]["finalizers"] == [FINALIZER]
        assert made["spec"] == claim["spec"]
        (gone,) = write(
            cluster, patch(made, {"metadata": {"finalizers": None}}, resource_version=made["metadata"]["resourceVersion"])
        )
        assert "finalizers" not in gone["metadata"]

    def test_of_nothing_gives_the_claim(self, cluster: Server, client: Client, namespace: str) -> None:
        claim = create(client, "w", namespace)
        (found,) = write(cluster, patch(claim, {}))
        assert found["metadata"]["resourceVersion"] == claim["metadata"]["resourceVersion"]

    def test_keeps_its_preconditions(self, cluster: Server, client: Client, namespace: str) -> None:
        claim = create(client, "w", namespace)
        body = {"metadata": {"finalizers": [FINALIZER]}}
        other = {"metadata": claim["metadata"] | {"uid": "00000000-0000-4000-8000-000000000000"}}
        for wrong in (patch(other, body), patch(claim, body, resource_version="1")):
            with pytest.raises(Conflict):
                write(cluster, wrong)

    def test_of_anything_else_is_refused_as_before(self, real_server: Server) -> None:
        client = Client(real_server.kubeconfig)
        claim = create(client, "labels")
        with pytest.raises(Invalid, match="field is immutable"):
            write(real_server, patch(claim, {"metadata": {"labels": {"a": "b"}}}))

    def test_changes_reservations_of_a_claim_whose_allocation_has_white_space(
        self, cluster: Server, client: Client, namespace: str
    ) -> None:
        claim = create(client, "w", namespace)
        result = {"request": "device", "driver": manifests.DRIVER, "pool": "p", "device": "g0"}
        config = [{"source": "FromClaim", **CONFIG[0]}]
        users = [{"resource": "pods", "name": name, "uid": name} for name in ("a", "b")]
        claim["status"] = {"allocation": {"devices": {"results": [result], "config": config}}, "reservedFor": users}
        path = RESOURCE_CLAIMS.path(namespace, "w", "status").lstrip("/")
        claim = spaced(client, "PUT", path, claim)
        left = {"status": {"reservedFor": [{"$patch": "delete", "uid": "a"}]}}
        (made,) = write(cluster, patch(claim, left, subresource="status", patch="strategic"))
        assert [user["name"] for user in made["status"]["reservedFor"]] == ["b"]
        assert made["status"]["allocation"] == claim["status"]["allocation"]


@pytest.fixture
def dray(server: Server, tmp_path: Path) -> Iterator[None]:
    """Dray's scheduler, and its controllers of claims and pods."""
    program = Path(sys.executable).with_name("dray")
    with (
        Program("dray scheduler", [program, "scheduler", "--kubeconfig", server.kubeconfig], tmp_path / "scheduler.log"),
        Program("dray controllers", [program, "controllers", "--kubeconfig", server.kubeconfig], tmp_path / "controllers.log"),
    ):
        yield


@pytest.mark.usefixtures("dray")
def test_its_pod_is_scheduled_and_the_claim_is_free_afterwards(server: Server) -> None:
    client = Client(server.kubeconfig)
    for found in (manifests.device_class(), manifests.node("n1"), manifests.resource_slice("n1", [manifests.device("g0")])):
        client.create(found)
    create(client, "train")
    pod = manifests.pod("train", "train", scheduler="dray")
    client.create(pod)
    eventually(lambda: client.get("Pod", "train")["spec"].get("nodeName"), "train is bound")
    assert client.get("ResourceClaim", "train")["metadata"]["finalizers"] == [FINALIZER]
    client.patch_status(pod, {"phase": "Succeeded"})
    eventually(lambda: "finalizers" not in client.get("ResourceClaim", "train")["metadata"], "the claim is let go")
    assert "allocation" not in client.get("ResourceClaim", "train").get("status", {})
