"""One pool of devices, pods that use them, and Dray's controller of device taints, on a server that tests share."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import yaml

from tests.real.upstream import manifests
from tests.real.upstream.client import PATHS, Client, Json, eventually
from tests.real.upstream.control_plane import PLAIN_TOKEN, PLAIN_USER, Server, write_kubeconfig
from tests.real.upstream.process import Program

RBAC = Path(__file__).parents[2] / "deploy/overlays/controllers/controllers-rbac.yaml"
POD_SECONDS = 20.0


class Place:
    """One pool of devices for one test, in a namespace of its own, on a server that tests share."""

    def __init__(self, server: Server, client: Client, namespace: str, folder: Path) -> None:
        self.server, self.client, self.namespace, self.folder = server, client, namespace, folder
        self.pool = f"pool-{namespace}"
        self.kubeconfig = self._limited()
        self._made: list[Json] = []
        self._starts = 0

    def _limited(self) -> Path:
        """The user without rights, bound to the role of the controllers; our own server allows everybody everything."""
        if len(self.server.programs) < 2:
            return self.server.kubeconfig
        for found in yaml.safe_load_all(RBAC.read_text()):
            if found["kind"] == "ClusterRole":
                self._ensure(found)
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": PLAIN_USER}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "dray-controllers"}
        self._ensure(
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": "dray-controllers-plain"},
                "roleRef": role,
                "subjects": [subject],
            }
        )
        config = json.loads(self.server.kubeconfig.read_text())
        ca = Path(config["clusters"][0]["cluster"]["certificate-authority"])
        return write_kubeconfig(self.folder / "limited", self.server.url, ca, PLAIN_TOKEN)

    def _ensure(self, found: Json) -> None:
        names = [one["metadata"]["name"] for one in self.client.call("GET", PATHS[found["kind"]])["items"]]
        if found["metadata"]["name"] not in names:
            self.client.create(found)

    def controllers(self) -> Program:
        self._starts += 1
        argv = [Path(sys.executable).with_name("dray"), "controllers", "--only", "eviction", "--kubeconfig", self.kubeconfig]
        return Program("dray controllers", argv, self.folder / f"controllers-{self._starts}.log")

    # ------------------------------------------------------------------------------------------------------- objects

    def create(self, found: Json) -> Json:
        self._made.append(found)
        return self.client.create(found)

    def tidy(self) -> None:
        for found in reversed(self._made):
            if "namespace" not in found["metadata"]:
                self.client.call("DELETE", f"{PATHS[found['kind']]}/{found['metadata']['name']}", {})

    def slice(self, taints: dict[str, list[Json]] | None = None) -> None:
        devices = [manifests.device(f"g{n}", **({"taints": t} if (t := (taints or {}).get(f"g{n}")) else {})) for n in range(3)]
        found = manifests.resource_slice("n1", devices, pool=self.pool)
        if taints is None:
            self.create(found)
        else:
            self.client.patch(found, {"spec": {"devices": devices}})

    def using(self, name: str, *devices: str, spec: Json | None = None, labels: Json | None = None, **fields: Any) -> None:
        """A pod on a node that uses a claim of its own."""
        exactly = {"deviceClassName": "gpu", "count": len(devices), **fields}
        claim = manifests.claim(name, namespace=self.namespace, requests=[{"name": "device", "exactly": exactly}])
        self.client.create(claim)
        found = manifests.pod(name, name, namespace=self.namespace, nodeName="n1", **(spec or {}))
        pod = self.client.create({**found, "metadata": {**found["metadata"], "labels": labels or {}}})
        results = [{"request": "device", "driver": manifests.DRIVER, "pool": self.pool, "device": d, **fields} for d in devices]
        user = {"resource": "pods", "name": name, "uid": pod["metadata"]["uid"]}
        self.client.patch_status(claim, {"allocation": {"devices": {"results": results}}, "reservedFor": [user]})

    def rule(self, effect: str, device: str = "", **more: Any) -> Json:
        selector = {"pool": self.pool, **({"device": device} if device else {})}
        name = f"rule-{self.namespace}"
        spec = {"deviceSelector": selector, "taint": {"key": "example.com/broken", "effect": effect}}
        metadata = {"name": name, **more}
        return self.create({"apiVersion": manifests.RESOURCE, "kind": "DeviceTaintRule", "metadata": metadata, "spec": spec})

    def change(self, **taint: Any) -> Json:
        return self.client.patch(self.stored_rule(), {"spec": {"taint": taint}})

    # ------------------------------------------------------------------------------------------------------ questions

    def stored_rule(self) -> Json:
        return self.client.get("DeviceTaintRule", f"rule-{self.namespace}")

    def condition(self) -> Json | None:
        found = self.stored_rule().get("status", {}).get("conditions", [])
        return next((condition for condition in found if condition["type"] == "EvictionInProgress"), None)

    def told(self, reason: str) -> Json:
        def found() -> Json | None:
            condition = self.condition()
            return condition if condition is not None and condition["reason"] == reason else None

        return dict(eventually(found, f"the rule says {reason}", seconds=POD_SECONDS))

    def evicted(self, name: str) -> bool:
        pods = {pod["metadata"]["name"]: pod for pod in self.client.list("Pod", self.namespace)}
        return name not in pods or "deletionTimestamp" in pods[name]["metadata"]

    def wait_evicted(self, name: str) -> None:
        eventually(lambda: self.evicted(name), f"{name} is told to leave", seconds=POD_SECONDS)
