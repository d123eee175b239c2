"""`dray nodes` as its Deployment starts it, with exactly the rights of its service account."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.test_on_servers import DEPLOY, as_account, kubectl, wait
from tests.real.upstream.client import Client
from tests.real.upstream.control_plane import Server

pytestmark = pytest.mark.real
OVERLAY = DEPLOY / "overlays/nodes"
FINALIZER = "resource.kubernetes.io/delete-protection"


@pytest.fixture(scope="module")
def running(cluster: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("nodes")
    kubectl(cluster, "apply", "-k", str(OVERLAY))
    (deployment,) = (d for d in yaml.safe_load_all((OVERLAY / "nodes.yaml").read_text()) if d["kind"] == "Deployment")
    given: list[str] = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    arguments = [each for each in given if not each.startswith(("--serve=", "--hardware="))]
    arguments += ["--hardware=gpu8:1", "--hardware=fabric:1"]
    account, log = as_account(cluster, "dray-nodes", folder, "dray-nodes"), folder / "log"
    with log.open("w") as out:
        command = [str(Path(sys.executable).parent / "dray"), *arguments, "--kubeconfig", str(account)]
        program = subprocess.Popen(command, stdout=out, stderr=out)
        try:
            wait(lambda: len(simulated(cluster)) == 2)
            yield cluster
            assert program.poll() is None, log.read_text()
        finally:
            program.terminate()
            program.wait(20)
    kubectl(cluster, "delete", "nodes,resourceslices", "-l", "dray.dev/simulated")
    kubectl(cluster, "delete", "-k", str(OVERLAY), "--wait=false")
    assert "forbidden" not in log.read_text().lower()


def simulated(server: Server) -> list[dict[str, Any]]:
    """The nodes of this test: the server may have others."""
    return [n for n in Client(server.kubeconfig).list("Node") if "dray.dev/simulated" in n["metadata"].get("labels", {})]


def placed(name: str, *, claim: str = "") -> dict[str, Any]:
    """A pod that somebody bound."""
    spec: dict[str, Any] = {"nodeName": "gpu8-0", "tolerations": [{"operator": "Exists"}]}
    spec["containers"] = [{"name": "c", "image": "i", "resources": {"claims": [{"name": "g"}] if claim else []}}]
    spec["resourceClaims"] = [{"name": "g", "resourceClaimName": claim}] if claim else []
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


def test_nodes_register_renew_their_leases_and_lead(running: Server) -> None:
    ready = [c for n in simulated(running) for c in n["status"]["conditions"] if c["type"] == "Ready"]
    assert {condition["status"] for condition in ready} == {"True"}
    leases = wait(lambda: json.loads(kubectl(running, "get", "leases", "-n", "kube-node-lease", "-o", "json"))["items"])
    assert "gpu8-0" in {lease["metadata"]["name"] for lease in leases}
    assert json.loads(kubectl(running, "get", "lease", "-n", "dray-nodes", "dray-nodes", "-o", "json"))


def test_a_pod_runs_and_goes(running: Server) -> None:
    client = Client(running.kubeconfig)
    client.create(placed("plain"))
    wait(lambda: client.get("Pod", "plain")["status"].get("phase") == "Running")
    kubectl(running, "delete", "pod", "plain", "--wait=false")
    wait(lambda: "plain" not in [each["metadata"]["name"] for each in client.list("Pod")])


def test_a_fault_is_published(running: Server) -> None:
    client = Client(running.kubeconfig)
    kubectl(running, "annotate", "resourceslice", "gpu8-0-gpu.dray.dev", "fault.dray.dev/gpu-3=NoSchedule hot")

    def taints() -> list[Any]:
        devices = client.get("ResourceSlice", "gpu8-0-gpu.dray.dev")["spec"]["devices"]
        return [taint for device in devices for taint in device.get("taints", [])]

    assert wait(taints)[0]["key"] == "dray.dev/unhealthy"


def test_a_device_on_the_fabric_is_attached(running: Server) -> None:
    client = Client(running.kubeconfig)
    (slice_,) = [each for each in client.list("ResourceSlice") if each["spec"]["driver"] == "fabric.dray.dev"]
    device = slice_["spec"]["devices"][0]
    request = {"name": "g", "exactly": {"deviceClassName": "fabric-gpu.dray.dev"}}
    claim: dict[str, Any] = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "far", "namespace": "default", "finalizers": [FINALIZER]},
        "spec": {"devices": {"requests": [request]}},
    }
    client.create(claim)
    result = {"request": "g", "driver": "fabric.dray.dev", "pool": slice_["spec"]["pool"]["name"], "device": device["name"]}
    result |= {name: device[name] for name in ("bindingConditions", "bindingFailureConditions") if name in device}
    client.patch_status(claim, {"allocation": {"devices": {"results": [result]}}})
    conditions = wait(
        lambda: [c for d in client.get("ResourceClaim", "far")["status"].get("devices", []) for c in d["conditions"]]
    )
    assert {condition["type"] for condition in conditions} <= {*device["bindingConditions"], *device["bindingFailureConditions"]}
    client.patch_status(claim, {"allocation": None, "devices": None})
    client.patch(claim, {"metadata": {"finalizers": None}})
    client.delete("ResourceClaim", "far")
