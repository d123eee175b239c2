"""Somebody who may read and nothing else, on a real kube-apiserver with one node and two devices."""

from __future__ import annotations

import json
from pathlib import Path

from dray.explain.snapshot import KINDS
from tests.real.upstream import manifests
from tests.real.upstream.client import Client
from tests.real.upstream.control_plane import PLAIN_TOKEN, PLAIN_USER, Server, write_kubeconfig

_RBAC = "rbac.authorization.k8s.io"


def reader_of(server: Server, folder: Path, *verbs: str) -> Path:
    """A kubeconfig of somebody who may do this with everything that is read but volumes."""
    client = Client(server.kubeconfig)
    kinds = [kind for kind in KINDS if kind.plural != "persistentvolumes"]
    rules = [{"apiGroups": [kind.group], "resources": [kind.plural], "verbs": list(verbs)} for kind in kinds]
    role = {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": "reader"}, "rules": rules}
    binding = {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": "reader"},
        "subjects": [{"apiGroup": _RBAC, "kind": "User", "name": PLAIN_USER}],
    }
    for body in (role, binding, manifests.node("n1"), manifests.device_class()):
        client.create(body)
    client.create(manifests.resource_slice("n1", [manifests.device("g0"), manifests.device("g1")]))
    config = json.loads(server.kubeconfig.read_text())
    ca = Path(config["clusters"][0]["cluster"]["certificate-authority"])
    return write_kubeconfig(folder / "reader", server.url, ca, PLAIN_TOKEN)
