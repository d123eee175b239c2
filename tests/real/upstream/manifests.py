"""The objects that tests and benchmarks put into a cluster: nodes, device slices, classes, claims and pods, as plain JSON."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]
RESOURCE = "resource.k8s.io/v1"
DRIVER = "gpu.example.com"


def node(name: str, *, cpu: str = "64", memory: str = "256Gi", pods: str = "1000", **labels: str) -> Json:
    """A node that is ready and has room."""
    room = {"cpu": cpu, "memory": memory, "pods": pods}
    status = {"capacity": room, "allocatable": room, "conditions": [{"type": "Ready", "status": "True"}]}
    meta = {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": status}


def device(name: str, **more: Any) -> Json:
    return {"name": name, "attributes": {"model": {"string": "h100"}}, **more}


def resource_slice(node_name: str, devices: list[Json], *, driver: str = DRIVER, pool: str = "", **spec: Any) -> Json:
    """A whole pool of one node in one slice."""
    pool = pool or node_name
    body = {
        "driver": driver,
        "nodeName": node_name,
        "pool": {"name": pool, "generation": 1, "resourceSliceCount": 1},
        "devices": devices,
        **spec,
    }
    meta = {"name": f"{pool}-{driver}"}
    return {"apiVersion": RESOURCE, "kind": "ResourceSlice", "metadata": meta, "spec": body}


def device_class(name: str = "gpu", driver: str = DRIVER, **spec: Any) -> Json:
    selector = {"cel": {"expression": f'device.driver == "{driver}"'}}
    body = {"selectors": [selector], **spec}
    return {"apiVersion": RESOURCE, "kind": "DeviceClass", "metadata": {"name": name}, "spec": body}


def nodes_with_devices(nodes: int, devices: int) -> list[Json]:
    """A class, and so many nodes ``gpu-0`` … with so many devices ``dev-0`` … each."""
    made = [device_class()]
    for name in (f"gpu-{number}" for number in range(nodes)):
        made += [node(name), resource_slice(name, [device(f"dev-{number}") for number in range(devices)])]
    return made


def claim(name: str, *, class_name: str = "gpu", count: int = 1, namespace: str = "default", **devices: Any) -> Json:
    """A claim for ``count`` devices of a class; keyword arguments replace parts of ``spec.devices``."""
    exactly = {"deviceClassName": class_name, "allocationMode": "ExactCount", "count": count}
    spec = {"devices": {"requests": [{"name": "device", "exactly": exactly}], **devices}}
    meta = {"name": name, "namespace": namespace}
    return {"apiVersion": RESOURCE, "kind": "ResourceClaim", "metadata": meta, "spec": spec}


def pod(name: str, *claims: str, namespace: str = "default", scheduler: str = "default-scheduler", **spec: Any) -> Json:
    """A pod that uses the named claims."""
    container: Json = {"name": "main", "image": "registry.k8s.io/pause:3.10", "resources": {}}
    container["resources"] = {"requests": {"cpu": "10m"}, "claims": [{"name": c} for c in claims]}
    body: Json = {
        "schedulerName": scheduler,
        "containers": [container],
        "resourceClaims": [{"name": c, "resourceClaimName": c} for c in claims],
        **spec,
    }
    if not claims:
        del body["resourceClaims"], container["resources"]["claims"]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}, "spec": body}
