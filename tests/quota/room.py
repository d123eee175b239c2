"""A namespace with quotas on the embedded API server, and words for what tests do in it."""

from __future__ import annotations

from typing import Any

from tests.apiserver.conftest import Cluster

Json = dict[str, Any]

IN_DEFAULT = "/api/v1/namespaces/default"
PODS = f"{IN_DEFAULT}/pods"
QUOTAS = f"{IN_DEFAULT}/resourcequotas"
LIMIT_RANGES = f"{IN_DEFAULT}/limitranges"
SERVICES = f"{IN_DEFAULT}/services"
VOLUMES = f"{IN_DEFAULT}/persistentvolumeclaims"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"

GPU_DEVICES = "gpu.deviceclass.resource.k8s.io/devices"
GPU_IMPLICIT = "requests.deviceclass.resource.kubernetes.io/gpu"
GPU_EXPLICIT = "requests.example.com/gpu"
GPU_NAMES = (GPU_DEVICES, GPU_IMPLICIT, GPU_EXPLICIT)


class Room(Cluster):
    def quota(self, name: str = "q", *, scopes: list[str] | None = None, selector: list[Json] | None = None, **hard: Any) -> None:
        spec: Json = {"hard": {key: str(value) for key, value in hard.items()}}
        if scopes:
            spec["scopes"] = scopes
        if selector:
            spec["scopeSelector"] = {"matchExpressions": selector}
        self.post(QUOTAS, {"metadata": {"name": name}, "spec": spec})

    def used(self, name: str = "q") -> Json:
        found: Json = self.get(f"{QUOTAS}/{name}").get("status", {}).get("used", {})
        return found

    def refused(self, path: str, body: Json) -> str:
        message: str = self.post(path, body, code=403)["message"]
        return message

    def map_gpus(self, name: str = "gpu", resource: str = "example.com/gpu") -> Json:
        return self.post(CLASSES, {"metadata": {"name": name}, "spec": {"extendedResourceName": resource}})


def pod(name: str = "p", requests: Json | None = None, limits: Json | None = None, **spec: Any) -> Json:
    resources = {"requests": requests or {}, "limits": limits or {}}
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}], **spec}}


def claim(name: str = "claim", *requests: Json, **metadata: Any) -> Json:
    return {"metadata": {"name": name, **metadata}, "spec": {"devices": {"requests": list(requests)}}}


def exactly(count: int | None = None, device_class: str = "gpu", name: str = "r", **more: Any) -> Json:
    request: Json = {"deviceClassName": device_class, **more}
    if count is not None:
        request["count"] = count
    return {"name": name, "exactly": request}


def special(name: str, owner: Json, *requests: Json) -> Json:
    """The claim that a scheduler makes for a pod's extended resources."""
    reference = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }
    annotations = {"resource.kubernetes.io/extended-resource-claim": "true"}
    return claim(name, *requests, annotations=annotations, ownerReferences=[reference])
