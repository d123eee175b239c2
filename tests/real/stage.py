"""The cluster-wide objects, pods and claims of one test, on a server that tests share."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

from tests.real.upstream import manifests as make
from tests.real.upstream.client import Client, Refused, eventually

Json = dict[str, Any]


class Stage:
    """Cluster-wide objects of one test, removed after it."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client, self.namespace = client, namespace
        self._made: list[Json] = []

    def add(self, *objects: Json) -> None:
        for found in objects:
            self.client.create(found)
            self._made.append(found)

    def clear(self) -> None:
        for pod in self.client.list("Pod", self.namespace):
            self.client.delete("Pod", pod["metadata"]["name"], self.namespace)
        for claim in self.client.list("ResourceClaim", self.namespace):
            self._forget({**claim, "kind": "ResourceClaim"})
        for found in reversed(self._made):
            self.client.delete(found["kind"], found["metadata"]["name"])

    def _forget(self, claim: Json) -> None:
        """Nobody is left to release what a test allocated: its finalizer goes, then the claim."""
        with suppress(Refused):  # its controller was quicker
            self.client.patch(claim, {"metadata": {"finalizers": None}})
            self.client.delete("ResourceClaim", claim["metadata"]["name"], self.namespace)

    def run(self, name: str, request: Json, annotations: dict[str, str] | None = None, **pod: Any) -> None:
        """A pod with one claim of its own."""
        claim = make.claim(name, namespace=self.namespace, requests=[request])
        claim["metadata"]["annotations"] = annotations or {}
        self.client.create(claim)
        self.client.create(make.pod(name, name, namespace=self.namespace, **pod))

    def pod(self, name: str) -> Json:
        return self.client.get("Pod", name, self.namespace)

    def results(self, name: str) -> list[Json]:
        allocation = self.client.get("ResourceClaim", name, self.namespace).get("status", {}).get("allocation") or {}
        found: list[Json] = allocation.get("devices", {}).get("results", [])
        return found

    def devices(self, name: str) -> list[str]:
        return [result["device"] for result in self.results(name)]

    def bound(self, name: str, seconds: float = 30) -> str:
        node: str = eventually(lambda: self.pod(name)["spec"].get("nodeName"), f"pod {name} is bound", seconds)
        return node

    def refused(self, name: str) -> str:
        def told() -> str:
            conditions = self.pod(name).get("status", {}).get("conditions", [])
            return next((c["message"] for c in conditions if c["type"] == "PodScheduled" and c["status"] == "False"), "")

        message: str = eventually(told, f"pod {name} is told why it waits")
        assert "nodeName" not in self.pod(name)["spec"]
        return message


def request(class_name: str = "gpu.example.com", kind: str = "", **more: Any) -> Json:
    """One request, for devices whose type is ``kind``."""
    exactly: Json = {"deviceClassName": class_name, **more}
    if kind:
        driver = class_name
        exactly["selectors"] = [{"cel": {"expression": f"device.attributes['{driver}'].type == '{kind}'"}}]
    return {"name": "device", "exactly": exactly}


def report(stage: Stage, claim: str, condition: str) -> None:
    """What a composable-fabric controller does: tell the claim how the attach went."""
    result = eventually(lambda: stage.results(claim), f"claim {claim} is allocated")[0]
    entry = {key: result[key] for key in ("driver", "pool", "device")}
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    entry["conditions"] = [{"type": condition, "status": "True", "reason": "Told", "message": "", "lastTransitionTime": stamp}]
    found = stage.client.get("ResourceClaim", claim, stage.namespace)
    stage.client.patch_status(found, {"devices": [entry]})
