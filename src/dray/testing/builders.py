"""Objects as plain dictionaries, short to write and taken by the API as they are. Keyword arguments that are not named here go
into ``spec``, in the API's own spelling (``nodeSelector=…``, ``priorityClassName=…``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

Plain = dict[str, Any]

DRIVER: Final = "gpu.example.com"
_GROUP: Final = "resource.k8s.io/v1"


def node(name: str, *, cpu: str = "4", memory: str = "8Gi", labels: Mapping[str, str] | None = None, **spec: Any) -> Plain:
    """A ready Node. Simulated kubelets look after it."""
    amounts = {"cpu": cpu, "memory": memory, "pods": "110"}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    simulated = {"kubernetes.io/hostname": name, "dray.dev/simulated": "true", **(labels or {})}
    status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": simulated}, "spec": spec, "status": status}


def device(
    name: str, *, capacity: Mapping[str, str] | None = None, attributes: Mapping[str, Any] | None = None, **more: Any
) -> Plain:
    """A device of a slice. Attributes are given as they are: text, numbers, truth."""
    made: Plain = {"name": name, **more}
    if attributes:
        made["attributes"] = {key: {_type(value): value} for key, value in attributes.items()}
    if capacity:
        made["capacity"] = {key: {"value": value} for key, value in capacity.items()}
    return made


def _type(value: Any) -> str:
    return "bool" if isinstance(value, bool) else "int" if isinstance(value, int) else "string"


def resource_slice(
    node_name: str, devices: int | Sequence[Plain] = 1, *, driver: str = DRIVER, pool: str = "", generation: int = 1
) -> Plain:
    """What a driver publishes for a node, or, with ``node_name`` empty, for all of them. A number makes that many devices."""
    where: Plain = {"nodeName": node_name} if node_name else {"allNodes": True}
    pool = pool or node_name or "shared"
    made = [device(f"dev-{number}") for number in range(devices)] if isinstance(devices, int) else list(devices)
    described = {"name": pool, "generation": generation, "resourceSliceCount": 1}
    spec = {"driver": driver, "pool": described, **where, "devices": made}
    return {"apiVersion": _GROUP, "kind": "ResourceSlice", "metadata": {"name": f"{pool}-{driver}"}, "spec": spec}


def node_with_devices(name: str, devices: int | Sequence[Plain], *, driver: str = DRIVER, **more: Any) -> tuple[Plain, Plain]:
    """A node and the slice of its devices."""
    return node(name, **more), resource_slice(name, devices, driver=driver)


def device_class(name: str = "gpu", *, driver: str = DRIVER, expression: str = "", **spec: Any) -> Plain:
    """All devices of a driver, or those that an expression selects."""
    selectors = [{"cel": {"expression": expression or f'device.driver == "{driver}"'}}]
    return {"apiVersion": _GROUP, "kind": "DeviceClass", "metadata": {"name": name}, "spec": {"selectors": selectors, **spec}}


def _devices(device_class: str, count: int, request: Mapping[str, Any]) -> Plain:
    return {
        "devices": {"requests": [{"name": "devices", "exactly": {"deviceClassName": device_class, "count": count, **request}}]}
    }


def claim(name: str, *, count: int = 1, device_class: str = "gpu", namespace: str = "default", **request: Any) -> Plain:
    """A ResourceClaim for ``count`` devices of a class; more goes into its request."""
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": _GROUP, "kind": "ResourceClaim", "metadata": metadata, "spec": _devices(device_class, count, request)}


def claim_template(name: str, *, count: int = 1, device_class: str = "gpu", namespace: str = "default", **request: Any) -> Plain:
    """A ResourceClaimTemplate for ``count`` devices of a class; more goes into its request."""
    spec = {"spec": _devices(device_class, count, request)}
    return {
        "apiVersion": _GROUP,
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


def pod(
    name: str,
    *,
    namespace: str = "default",
    requests: Mapping[str, str] | None = None,
    limits: Mapping[str, str] | None = None,
    claims: Sequence[str] = (),
    template: str = "",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> Plain:
    """A pod with one container, which uses the ``claims`` of those names and one that is made from ``template``."""
    entries = [{"name": f"claim-{number}", "resourceClaimName": each} for number, each in enumerate(claims)]
    if template:
        entries.append({"name": "claim", "resourceClaimTemplateName": template})
    resources = {"requests": requests, "limits": limits, "claims": [{"name": entry["name"]} for entry in entries]}
    container = {"name": "main", "image": "app", "resources": {key: value for key, value in resources.items() if value}}
    metadata = {"name": name, "namespace": namespace, "labels": labels, "annotations": annotations}
    body: Plain = {"containers": [container], **spec}
    if entries:
        body["resourceClaims"] = entries
    kept = {key: value for key, value in metadata.items() if value}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": kept, "spec": body}
