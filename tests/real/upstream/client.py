"""A small blocking client for tests: one kubeconfig, plain JSON, the API's own words when it refuses."""

from __future__ import annotations

import base64
import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

Json = dict[str, Any]

PATHS = {
    "Binding": "api/v1/namespaces/{namespace}/bindings",
    "ConfigMap": "api/v1/namespaces/{namespace}/configmaps",
    "Event": "api/v1/namespaces/{namespace}/events",
    "Namespace": "api/v1/namespaces",
    "Node": "api/v1/nodes",
    "Pod": "api/v1/namespaces/{namespace}/pods",
    "Deployment": "apis/apps/v1/namespaces/{namespace}/deployments",
    "ClusterRole": "apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "DeviceClass": "apis/resource.k8s.io/v1/deviceclasses",
    "DeviceTaintRule": "apis/resource.k8s.io/v1/devicetaintrules",
    "ResourceClaim": "apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims",
    "ResourceClaimTemplate": "apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaimtemplates",
    "ResourceSlice": "apis/resource.k8s.io/v1/resourceslices",
    "NodeResourceTopology": "apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies",
    "CustomResourceDefinition": "apis/apiextensions.k8s.io/v1/customresourcedefinitions",
}


class Refused(Exception):
    """The API server answered with a failure Status."""

    def __init__(self, code: int, status: Json) -> None:
        super().__init__(f"{code} {status.get('reason')}: {status.get('message')}")
        self.code, self.status = code, status


class Client:
    def __init__(self, kubeconfig: Path, token: str | None = None) -> None:
        self.kubeconfig = kubeconfig
        self.url, self.trusted, self.headers = connection(kubeconfig, token)

    def call(self, method: str, path: str, body: Json | None = None, content_type: str = "application/json") -> Json:
        request = urllib.request.Request(
            f"{self.url}/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={**self.headers, "Content-Type": content_type},
        )
        try:
            with urllib.request.urlopen(request, timeout=30, context=self.trusted) as answer:
                found: Json = json.load(answer)
                return found
        except urllib.error.HTTPError as error:
            raise Refused(error.code, _status(error.read())) from None

    def create(self, manifest: Json) -> Json:
        """Creates it, and then its status, which a create does not set."""
        made = self.call("POST", collection(manifest), manifest)
        if "status" in manifest:
            made = self.patch_status(manifest, manifest["status"])
        return made

    def patch(self, manifest: Json, body: Json) -> Json:
        return self.call("PATCH", f"{collection(manifest)}/{manifest['metadata']['name']}", body, "application/merge-patch+json")

    def patch_status(self, manifest: Json, status: Json) -> Json:
        path = f"{collection(manifest)}/{manifest['metadata']['name']}/status"
        return self.call("PATCH", path, {"status": status}, "application/merge-patch+json")

    def get(self, kind: str, name: str, namespace: str = "default") -> Json:
        return self.call("GET", f"{PATHS[kind].format(namespace=namespace)}/{name}")

    def list(self, kind: str, namespace: str = "default") -> list[Json]:
        items: list[Json] = self.call("GET", PATHS[kind].format(namespace=namespace))["items"]
        return items

    def delete(self, kind: str, name: str, namespace: str = "default") -> None:
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
        self.call("DELETE", f"{PATHS[kind].format(namespace=namespace)}/{name}", options)


def collection(manifest: Json) -> str:
    return PATHS[manifest["kind"]].format(namespace=manifest["metadata"].get("namespace", "default"))


def connection(kubeconfig: Path, token: str | None = None) -> tuple[str, ssl.SSLContext, dict[str, str]]:
    """Server address, TLS context and headers of the first cluster and user of a kubeconfig."""
    config = yaml.safe_load(kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    inline = cluster.get("certificate-authority-data")
    trusted = ssl.create_default_context(
        cafile=cluster.get("certificate-authority"), cadata=base64.b64decode(inline).decode() if inline else None
    )
    return cluster["server"], trusted, {"Authorization": f"Bearer {token or user['token']}", "Accept": "application/json"}


def _status(raw: bytes) -> Json:
    try:
        found: Json = json.loads(raw)
        return found
    except ValueError:
        return {"reason": "NotAStatus", "message": raw.decode(errors="replace")[:500]}


def eventually(found: Callable[[], Any], what: str, seconds: float = 30, every: float = 0.1) -> Any:
    """The first true answer of ``found``; fails with ``what`` when none comes in time."""
    end = time.monotonic() + seconds
    while True:
        answer = found()
        if answer:
            return answer
        assert time.monotonic() < end, f"not within {seconds:g} s: {what}"
        time.sleep(every)
