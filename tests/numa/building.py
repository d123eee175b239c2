"""Short ways to write nodes and pods for tests about zones."""

from __future__ import annotations

from typing import Any

from dray.api.core import Pod
from dray.api.meta import decode
from dray.api.topology import NodeResourceTopology
from dray.numa.layout import Layout, Settings, State, layout_of, published_state

Json = dict[str, Any]
GPU, NIC = "nvidia.com/gpu", "example.com/nic"
SHORT = {"gpu": GPU, "nic": NIC}


def topology(
    *zones: Json, policy: str = "", scope: str = "", costs: list[list[int]] | None = None, **more: Any
) -> NodeResourceTopology:
    """Each zone is {resource: free} or {resource: (free, allocatable[, capacity])}."""
    attributes = [{"name": "topologyManagerPolicy", "value": policy}] if policy else []
    attributes += [{"name": "topologyManagerScope", "value": scope}] if scope else []
    listed = [zone(number, amounts, costs) for number, amounts in enumerate(zones)]
    return decode(NodeResourceTopology, {"metadata": {"name": "n1"}, "attributes": attributes, "zones": listed, **more})


def zone(number: int, amounts: Json, costs: list[list[int]] | None = None) -> Json:
    resources = []
    for name, value in amounts.items():
        free, *rest = value if isinstance(value, tuple) else (value,)
        allocatable = rest[0] if rest else free
        capacity = rest[1] if len(rest) > 1 else allocatable
        resources.append({"name": SHORT.get(name, name), "available": free, "allocatable": allocatable, "capacity": capacity})
    found: Json = {"name": f"node-{number}", "type": "Node", "resources": resources}
    if costs is not None:
        found["costs"] = [{"name": f"node-{other}", "value": value} for other, value in enumerate(costs[number])]
    return found


def layout(*zones: Json, settings: Settings | None = None, ignored: tuple[str, ...] = (), **more: Any) -> Layout:
    found = layout_of(topology(*zones, **more), settings, ignored)
    assert found is not None
    return found


def state(*zones: Json, **more: Any) -> State:
    return published_state(layout(*zones, **more), topology(*zones, **more))


def pod(*apps: Json, inits: tuple[Json, ...] = (), sidecars: tuple[Json, ...] = (), qos: str = "Guaranteed", **more: Any) -> Pod:
    """Containers as {resource: amount}; sidecars start before the init containers."""
    started = [{**container(f"sidecar-{n}", each), "restartPolicy": "Always"} for n, each in enumerate(sidecars)]
    started += [container(f"init-{n}", each) for n, each in enumerate(inits)]
    spec = {"initContainers": started, "containers": [container(f"app-{n}", each) for n, each in enumerate(apps)]}
    metadata = {"name": "p", "namespace": "ns", "uid": "p", **more.pop("metadata", {})}
    return decode(Pod, {"metadata": metadata, "spec": {**spec, **more}, "status": {"qosClass": qos}})


def container(name: str, amounts: Json) -> Json:
    named = {SHORT.get(resource, resource): str(value) for resource, value in amounts.items()}
    return {"name": name, "resources": {"requests": named, "limits": named}}
