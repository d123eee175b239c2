"""The placement exporter on a real API server, with exactly the rights of its manifests, asking a simulated kubelet's socket."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from dray.api.core import Pod
from dray.api.meta import decode as decode_object
from dray.api.wire import decode, encode
from dray.nodes.machine import MachineZone
from dray.nodes.topology import Assignment, Config, Topology
from dray.numa.placement import GROUPS_OBSERVED, OBSERVED
from dray.numa.podresources import SERVICE, ListPodResourcesRequest
from tests.real.upstream.binaries import binary
from tests.real.upstream.client import Client, Refused, eventually
from tests.real.upstream.control_plane import Server, write_kubeconfig

DEPLOY = Path(__file__).parents[2] / "deploy" / "overlays" / "exporter"
Json = dict[str, Any]

CRD: Json = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": "noderesourcetopologies.topology.node.k8s.io",
        "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/enhancements/pull/1870"},
    },
    "spec": {
        "group": "topology.node.k8s.io",
        "scope": "Cluster",
        "names": {"kind": "NodeResourceTopology", "plural": "noderesourcetopologies", "shortNames": ["node-res-topo"]},
        "versions": [
            {
                "name": "v1alpha2",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


def kubectl(server: Server, *arguments: str, text: str | None = None) -> str:
    command = [str(binary("kubectl")), "--kubeconfig", str(server.kubeconfig), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, input=text)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def installed(server: Server) -> Server:
    """The manifests, the kind of topology objects, and a node that has one, with names of its own for its zones."""
    kubectl(server, "apply", "-k", str(DEPLOY))
    kubectl(server, "apply", "-f", "-", text=json.dumps(CRD))
    for name in ("n1", "n2"):
        Client(server.kubeconfig).create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    zones = [{"name": f"numa-{number}", "type": "Node"} for number in (0, 1)]
    topology = {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": "n1"},
        "zones": zones,
    }
    eventually(lambda: _applied(server, topology), "the kind is served")
    return server


def _applied(server: Server, manifest: Json) -> bool:
    command = [str(binary("kubectl")), "--kubeconfig", str(server.kubeconfig), "apply", "-f", "-"]
    return (
        subprocess.run(command, capture_output=True, text=True, check=False, input=json.dumps(manifest), timeout=60).returncode
        == 0
    )


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[tuple[Topology, Path, Path]]:
    machine = Topology([MachineZone(n, 4, 0, {"memory": 8}) for n in (0, 1)], Config("restricted", "pod"))
    server = grpc.server(ThreadPoolExecutor(1))
    handler = grpc.unary_unary_rpc_method_handler(
        lambda request, context: machine.podresources(),
        request_deserializer=lambda raw: decode(ListPodResourcesRequest, raw),
        response_serializer=encode,
    )
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {"List": handler}),))
    socket = tmp_path / "kubelet.sock"
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    for name, text in machine.cpu_lists().items():
        (tmp_path / "node" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "node" / name).write_text(text)
    yield machine, socket, tmp_path / "node"
    server.stop(None)


def running_pod(client: Client, name: str, node: str) -> Pod:
    """A pod that another scheduler placed and the kubelet has started."""
    amounts = {"cpu": "6", "memory": "12"}
    containers = [{"name": "c", "image": "i", "resources": {"requests": amounts, "limits": amounts}}]
    metadata = {"name": name, "namespace": "default"}
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"nodeName": node, "containers": containers}}
    client.create(manifest)
    client.patch_status(manifest, {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"})
    return decode_object(Pod, client.get("Pod", name))


def token(server: Server, node: str) -> str:
    """A token of the exporter's account as a kubelet of this node hands it to the exporter's pod."""
    bound = ("--bound-object-kind=Node", f"--bound-object-name={node}")
    return kubectl(server, "create", "token", "dray-exporter", "-n", "dray-exporter", *bound).strip()


def as_exporter(server: Server, node: str, folder: Path) -> Path:
    config = json.loads(server.kubeconfig.read_text())
    ca = Path(config["clusters"][0]["cluster"]["certificate-authority"])
    return write_kubeconfig(folder / "exporter.kubeconfig", server.url, ca, token(server, node))


def test_pods_get_their_zones_with_exactly_the_rights_of_the_manifests(
    installed: Server, kubelet: tuple[Topology, Path, Path], tmp_path: Path
) -> None:
    machine, socket, sysfs = kubelet
    client = Client(installed.kubeconfig)
    assert isinstance(machine.admit(running_pod(client, "train", "n1")), Assignment)
    config = as_exporter(installed, "n1", tmp_path)
    arguments = ["--kubeconfig", str(config), "--node", "n1", "--podresources", str(socket), "--sysfs", str(sysfs)]
    process = subprocess.Popen([sys.executable, "-m", "dray", "exporter", *arguments])
    try:
        found = eventually(lambda: annotations(client, "train").get(OBSERVED), "the annotation")
    finally:
        process.terminate()
        assert process.wait(30) == 0
    assert json.loads(found) == [
        {"zone": "numa-0", "amount": {"cpu": "4"}},
        {"zone": "numa-1", "amount": {"cpu": "2"}},
    ]
    groups = json.loads(annotations(client, "train")[GROUPS_OBSERVED])
    assert groups == [{"memoryNodes": ["numa-0", "numa-1"], "amount": {"memory": "12"}}]


def annotations(client: Client, name: str) -> dict[str, str]:
    found: dict[str, str] = client.get("Pod", name)["metadata"].get("annotations", {})
    return found


def test_whoever_has_the_exporters_token_of_one_node_can_do_nothing_else(installed: Server, tmp_path: Path) -> None:
    client = Client(installed.kubeconfig)
    for name, node in (("here", "n1"), ("there", "n2")):
        running_pod(client, name, node)
    exporter = Client(as_exporter(installed, "n1", tmp_path))

    def patch(name: str, metadata: Json) -> None:
        manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}}
        exporter.patch(manifest, {"metadata": metadata})

    own = {"annotations": {OBSERVED: "[]"}}
    eventually(lambda: refused(lambda: patch("there", own)), "the policy is in force")
    patch("here", own)
    assert annotations(client, "here")[OBSERVED] == "[]"
    assert refused(lambda: patch("here", {"annotations": {"other": "x"}}))
    assert refused(lambda: patch("here", {"labels": {"a": "b"}}))
    assert refused(lambda: exporter.delete("Pod", "here"))
    assert refused(lambda: exporter.call("GET", "/api/v1/secrets"))


def refused(attempt: Any) -> bool:
    try:
        attempt()
    except Refused as error:
        return error.code in (403, 422)
    return False
