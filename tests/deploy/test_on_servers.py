"""A real API server and Dray's accept the manifests, and the rights that they grant are enough for what runs with them."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dray.api.kinds import EVENTS, PODS, RESOURCE_CLAIMS, Kind
from dray.cluster.kubeconfig import load
from dray.cluster.remote import Remote
from dray.cluster.world import World
from dray.controllers.claims import ClaimsController
from dray.runtime.live import Live
from tests.real.upstream.binaries import binary
from tests.real.upstream.client import Client
from tests.real.upstream.control_plane import Server

pytestmark = pytest.mark.real
DEPLOY = Path(__file__).parents[2] / "deploy"


def kubectl(server: Server, *arguments: str) -> str:
    command = [str(binary("kubectl")), "--kubeconfig", str(server.kubeconfig), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(cluster: Server) -> Iterator[Server]:
    kubectl(cluster, "apply", "-k", str(DEPLOY / "overlays/controllers"))
    yield cluster
    kubectl(cluster, "delete", "-k", str(DEPLOY / "overlays/controllers"), "--wait=false")


@pytest.mark.parametrize("what", ["base", "overlays/controllers"])
def test_the_server_accepts_the_manifests(what: str, cluster: Server) -> None:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "dray-system"}}
    made = json.dumps(namespace)
    subprocess.run(
        [str(binary("kubectl")), "--kubeconfig", str(cluster.kubeconfig), "apply", "-f", "-"],
        input=made,
        text=True,
        check=True,
        capture_output=True,
        timeout=60,
    )
    told = kubectl(cluster, "apply", "--dry-run=server", "--validate=strict", "-k", str(DEPLOY / what))
    assert "deployment.apps/dray-scheduler" in told
    assert all("server dry run" in line for line in told.splitlines())


def as_account(server: Server, account: str, folder: Path, namespace: str = "dray-system") -> Path:
    """A kubeconfig with the token of a service account: exactly the rights that the manifests give."""
    token = kubectl(server, "create", "token", account, "-n", namespace).strip()
    config = json.loads(server.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    made = folder / f"{account}.kubeconfig"
    made.write_text(json.dumps(config))
    return made


@pytest.mark.parametrize(
    ("account", "verb", "what", "may"),
    [
        ("dray-scheduler", "create", "pods/binding", "yes"),
        ("dray-scheduler", "patch", "resourceclaims.resource.k8s.io/binding", "yes"),
        ("dray-scheduler", "create", "pods", "no"),
        ("dray-scheduler", "get", "secrets", "no"),
        ("dray-scheduler", "patch", "nodes", "no"),
        ("dray-controllers", "delete", "pods", "yes"),
        ("dray-controllers", "create", "pods", "no"),
        ("dray-controllers", "patch", "devicetaintrules.resource.k8s.io/status", "yes"),
        ("dray-controllers", "patch", "devicetaintrules.resource.k8s.io", "no"),
        ("dray-controllers", "create", "pods/binding", "no"),
        ("dray-controllers", "create", "resourceclaims.resource.k8s.io", "yes"),
    ],
)
def test_the_rights_are_these(account: str, verb: str, what: str, may: str, installed: Server, tmp_path: Path) -> None:
    resource, _, subresource = what.partition("/")
    extra = [f"--subresource={subresource}"] if subresource else []
    command = [str(binary("kubectl")), "--kubeconfig", str(as_account(installed, account, tmp_path)), "auth", "can-i"]
    done = subprocess.run([*command, verb, resource, *extra], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip() == may


TEMPLATE: dict[str, Any] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "one", "namespace": "default"},
    "spec": {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}},
    },
}


def pod(name: str, template: str = "one") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "containers": [{"name": "c", "image": "i", "resources": {"claims": [{"name": "gpu"}]}}],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": template}],
        },
    }


def wait(done: Callable[[], Any]) -> Any:
    """What ``done`` gives, once it gives something."""
    end = time.monotonic() + 20
    while not (found := done()):
        assert time.monotonic() < end, "not in time"
        time.sleep(0.05)
    return found


class TestTheControllerOfClaimsWithExactlyItsRights:
    async def run(self, server: Server, folder: Path, job: Any) -> None:
        """The controller live on the server while ``job`` runs."""
        remote = Remote(load(as_account(server, "dray-controllers", folder)))
        world = World(ClaimsController.kinds)
        live = Live(remote, world, [ClaimsController(world)])
        running = asyncio.create_task(live.run())
        try:
            await asyncio.wait_for(asyncio.to_thread(job), 40)
            assert not running.done()
        finally:
            live.stop()
            await running
            await remote.close()

    async def test_a_claim_is_made_recorded_released_and_removed(self, installed: Server, tmp_path: Path) -> None:
        client = Client(installed.kubeconfig)
        client.create(TEMPLATE)

        def job() -> None:
            made = client.create(pod("train"))
            status = wait(lambda: client.get("Pod", "train").get("status", {}).get("resourceClaimStatuses"))
            name = status[0]["resourceClaimName"]
            claim = client.get("ResourceClaim", name)
            assert claim["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"]
            assert claim["metadata"]["labels"] == {"a": "b"}
            self.allocate(client, name, made)
            client.patch_status(pod("train"), {"phase": "Succeeded"})
            wait(lambda: not client.list("ResourceClaim"))

        await self.run(installed, tmp_path, job)
        client.delete("Pod", "train")

    def allocate(self, client: Client, name: str, made: dict[str, Any]) -> None:
        """As a scheduler does: finalizer, then allocation and reservation."""
        path = RESOURCE_CLAIMS.path("default", name).lstrip("/")
        merge = "application/merge-patch+json"
        client.call("PATCH", path, {"metadata": {"finalizers": ["resource.kubernetes.io/delete-protection"]}}, merge)
        results = [{"request": "gpu", "driver": "d.example.com", "pool": "p", "device": "g0"}]
        user = {"resource": "pods", "name": "train", "uid": made["metadata"]["uid"]}
        status = {"allocation": {"devices": {"results": results}}, "reservedFor": [user]}
        client.call("PATCH", f"{path}/status", {"status": status}, merge)

    async def test_a_missing_template_is_told(self, installed: Server, tmp_path: Path) -> None:
        client = Client(installed.kubeconfig)

        def told() -> bool:
            return any(event["reason"] == "FailedResourceClaimCreation" for event in listed(client, EVENTS))

        def job() -> None:
            client.create(pod("waits", "none"))
            wait(told)

        await self.run(installed, tmp_path, job)
        client.delete("Pod", "waits")

    async def test_a_reservation_for_a_pod_that_is_gone_is_found_after_a_restart(self, installed: Server, tmp_path: Path) -> None:
        client = Client(installed.kubeconfig)
        claim = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": "left", "namespace": "default"},
            "spec": TEMPLATE["spec"]["spec"],
        }
        client.create(claim)
        self.allocate(client, "left", {"metadata": {"uid": "gone"}})

        def job() -> None:
            wait(lambda: "allocation" not in client.get("ResourceClaim", "left").get("status", {}))
            wait(lambda: "finalizers" not in client.get("ResourceClaim", "left")["metadata"])

        await self.run(installed, tmp_path, job)
        client.delete("ResourceClaim", "left")
        assert listed(client, PODS) == []


class TestTheSchedulerWithExactlyItsRights:
    """`dray scheduler` as the Deployment starts it, with the token of its service account."""

    @pytest.fixture
    def scheduler(self, installed: Server, tmp_path: Path) -> Iterator[Path]:
        objects = list(yaml.safe_load_all(kubectl(installed, "kustomize", str(DEPLOY / "base"))))
        config = next(found for found in objects if found["kind"] == "ConfigMap")
        file, log = tmp_path / "config.yaml", tmp_path / "log"
        file.write_text(config["data"]["config.yaml"])
        deployment = next(found for found in objects if found["kind"] == "Deployment")
        given = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
        arguments = [f"--config={file}" if a.startswith("--config=") else a for a in given if not a.startswith("--serve=")]
        kubeconfig = as_account(installed, "dray-scheduler", tmp_path)
        with log.open("wb") as out:
            command = [str(Path(sys.executable).parent / "dray"), *arguments, "--kubeconfig", str(kubeconfig)]
            running = subprocess.Popen(command, stdout=out, stderr=out)
            try:
                yield log
                assert running.poll() is None, log.read_text()
            finally:
                running.terminate()
                running.wait(20)

    def test_allocates_binds_reports_and_leads(self, scheduler: Path, installed: Server) -> None:
        client = Client(installed.kubeconfig)
        for found in CLUSTER:
            client.create(found)
        client.create(claimed("wants", "one"))
        client.create(claimed("waits", "nine"))
        bound = wait(lambda: client.get("Pod", "wants")["spec"].get("nodeName"))
        assert bound == "n1"
        claim = client.get("ResourceClaim", "one")
        assert claim["status"]["allocation"]["devices"]["results"][0]["device"] == "g0"
        assert claim["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
        told = wait(lambda: client.get("Pod", "waits")["status"].get("conditions"))
        assert told[0]["reason"] == "Unschedulable"
        wait(lambda: any(event["reason"] == "FailedScheduling" for event in listed(client, EVENTS)))
        assert json.loads(kubectl(installed, "get", "lease", "-n", "dray-system", "dray-scheduler", "-o", "json"))
        assert "forbidden" not in scheduler.read_text().lower()


def claimed(name: str, claim: str) -> dict[str, Any]:
    made = pod(name)
    made["spec"] |= {"schedulerName": "dray", "resourceClaims": [{"name": "gpu", "resourceClaimName": claim}]}
    return made


def plain_claim(name: str, count: int) -> dict[str, Any]:
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu", "count": count}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": {"requests": [request]}},
    }


CLUSTER: list[dict[str, Any]] = [
    {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n1"},
        "status": {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "20"}, "capacity": {"cpu": "8", "pods": "20"}},
    },
    {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {}},
    {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "n1-gpus"},
        "spec": {
            "driver": "gpu.example.com",
            "nodeName": "n1",
            "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "g0"}, {"name": "g1"}],
        },
    },
    plain_claim("one", 1),
    plain_claim("nine", 9),
]


def listed(client: Client, kind: Kind) -> list[Any]:
    items: list[Any] = client.call("GET", kind.path("default").lstrip("/"))["items"]
    return items
