"""The scheduler in lockstep with the embedded API server, and words for what its tests do.

What tests set up is planted as it is given; what the scheduler writes is judged by the server. Nodes stop deleted pods at once.
Faults are asked for by a function: it sees each write and may answer with an error instead of the API.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

import msgspec

from dray.api import kinds
from dray.api.gates import Gates
from dray.api.kinds import Kind
from dray.cluster.metrics import Recorder
from dray.cluster.port import NotFound, WatchEvent, Write
from dray.cluster.world import World
from dray.runtime.virtual import START as EPOCH
from dray.scheduling.config import Config
from dray.scheduling.kinds import KINDS, OWNER_KINDS
from dray.scheduling.scheduler import Scheduler
from dray.simulate.run import VALIDATED_MAX
from dray.testing import Lockstep, Server
from dray.testing.cluster import scheduler

__all__ = ["EPOCH", "Api", "Sim"]
Plain = dict[str, Any]
Watcher = Callable[[Kind, Plain, bool], None]


class Api:
    """The server as tests see it: what there is by kind and key, who watches, and writes."""

    def __init__(self, sim: Sim) -> None:
        self._server = sim.server
        self.objects: dict[Kind, MutableMapping[str, Plain]] = {kind: Objects(self._server, kind) for kind in sim.kinds}
        self.watchers: list[Watcher] = [sim._watch]
        self._server.watchers[:] = [self._tell]

    def _tell(self, kind: Kind, event: WatchEvent) -> None:
        obj = msgspec.json.decode(event.raw)
        for watcher in list(self.watchers):
            watcher(kind, obj, event.type == "DELETED")

    @property
    def version(self) -> int:
        return self._server.core.store.revision

    def put(self, kind: Kind, obj: Plain) -> Plain:
        return self._server.plant(obj, kind)

    def delete(self, kind: Kind, key: str) -> None:
        namespace, _, name = key.rpartition("/")
        self.write(Write("delete", kind, namespace, name))

    def write(self, write: Write) -> Plain:
        answer = self._server.write(write)
        if write.verb == "delete" and write.kind == kinds.PODS:
            self._stop(write)
        return answer

    def _stop(self, write: Write) -> None:
        """What the kubelet does when the containers have stopped, which they do at once."""
        try:
            self._server.write(Write("delete", kinds.PODS, write.namespace, write.name, {"gracePeriodSeconds": 0}))
        except NotFound:
            return


class Objects(MutableMapping[str, Plain]):
    """The objects of one kind by their keys."""

    def __init__(self, server: Server, kind: Kind) -> None:
        self._server, self._kind = server, kind

    def __getitem__(self, key: str) -> Plain:
        found = self._server.read(self._kind, key)
        if found is None:
            raise KeyError(key)
        return found

    def __setitem__(self, key: str, obj: Plain) -> None:
        self._server.plant(obj, self._kind)

    def __delitem__(self, key: str) -> None:
        self._server.uproot(self._kind, key)

    def __iter__(self) -> Iterator[str]:
        return iter(self._server.keys(self._kind))

    def __len__(self) -> int:
        return len(self._server.keys(self._kind))


class Sim(Lockstep):
    """An API, a scheduler that watches it, and a clock."""

    def __init__(self, config: Config | None = None, gates: Gates | None = None) -> None:
        self.config, self.gates = config, gates
        super().__init__((*KINDS, *OWNER_KINDS, kinds.EVENTS), self._made, gates=gates)
        self.api = Api(self)
        self.send = self.api.write  # type: ignore[method-assign]

    def _made(self, world: World) -> Scheduler:
        """The one place in which these tests make a scheduler."""
        self.meter = Recorder()
        self.scheduler = scheduler(world, self.config, self.gates, meter=self.meter)
        return self.scheduler

    def start(self) -> None:
        self.restart()

    def step(self) -> list[Write]:
        writes = self.scheduler.act(self.now)
        if len(self.scheduler.queue) <= VALIDATED_MAX:
            wrong = self.scheduler.validate()
            assert wrong == [], wrong
        self.carry_out(writes)
        return writes

    def _watch(self, kind: Kind, obj: Plain, gone: bool) -> None:
        self.observe(self.world.remove(kind, obj) if gone else self.world.put(kind, obj))

    # ---------------------------------------------------------------------------------------------------------- reading

    def node_of(self, name: str, namespace: str = "default") -> str:
        return str(self.pod(name, namespace)["spec"].get("nodeName", ""))

    def pod(self, name: str, namespace: str = "default") -> dict[str, Any]:
        return self.api.objects[kinds.PODS][f"{namespace}/{name}"]

    def claim(self, name: str, namespace: str = "default") -> dict[str, Any]:
        return self.api.objects[kinds.RESOURCE_CLAIMS][f"{namespace}/{name}"]

    def preparing(self) -> list[str]:
        """The pods that wait until their devices are prepared."""
        return [binding.pod.key for binding in self.scheduler.binder.bindings if binding.stage == "conditions"]

    def condition(self, name: str) -> dict[str, Any]:
        found = self.pod(name).get("status", {}).get("conditions", [])
        return next((condition for condition in found if condition["type"] == "PodScheduled"), {})

    def events(self, reason: str) -> list[dict[str, Any]]:
        return [event for event in self.api.objects[kinds.EVENTS].values() if event["reason"] == reason]

    def devices_of(self, name: str) -> list[str]:
        allocation = self.claim(name).get("status", {}).get("allocation") or {}
        return [f"{r['pool']}/{r['device']}" for r in allocation.get("devices", {}).get("results", [])]

    # --------------------------------------------------------------------------------------------------------- making

    def holders(self) -> dict[str, list[str]]:
        """The claims that have each allocated device."""
        found: dict[str, list[str]] = {}
        for claim in self.api.objects[kinds.RESOURCE_CLAIMS].values():
            allocation = claim["status"].get("allocation") or {}
            for result in allocation.get("devices", {}).get("results", []):
                found.setdefault(f"{result['pool']}/{result['device']}", []).append(claim["metadata"]["name"])
        return found

    def add_node(self, name: str, **extra: Any) -> dict[str, Any]:
        return self.api.put(kinds.NODES, node(name, **extra))

    def add_pod(self, name: str, **extra: Any) -> dict[str, Any]:
        return self.api.put(kinds.PODS, pod(name, **extra))

    def add_claim(self, name: str, **extra: Any) -> dict[str, Any]:
        return self.api.put(kinds.RESOURCE_CLAIMS, claim(name, **extra))

    def add_slice(self, node_name: str, devices: int = 2, **extra: Any) -> dict[str, Any]:
        return self.api.put(kinds.RESOURCE_SLICES, slice_of(node_name, devices, **extra))

    def add_class(self, name: str = "gpu", **extra: Any) -> dict[str, Any]:
        return self.api.put(kinds.DEVICE_CLASSES, device_class(name, **extra))

    def remove(self, kind: Kind, key: str) -> None:
        self.api.delete(kind, key)


# ---------------------------------------------------------------------------------------------------------------- objects


def node(
    name: str,
    cpu: str = "4",
    memory: str = "8Gi",
    pods: str = "110",
    labels: dict[str, str] | None = None,
    taints: list[dict[str, str]] | None = None,
    unschedulable: bool = False,
    resources: dict[str, str] | None = None,
    images: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    allocatable = {"cpu": cpu, "memory": memory, "pods": pods, **(resources or {})}
    spec: dict[str, Any] = {"taints": taints or []}
    if unschedulable:
        spec["unschedulable"] = True
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "spec": spec,
        "status": {"allocatable": allocatable, "capacity": allocatable, "images": images or []},
    }


def pod(
    name: str,
    namespace: str = "default",
    requests: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    claims: list[str] | None = None,
    node_name: str = "",
    phase: str = "Pending",
    status: dict[str, Any] | None = None,
    again: bool = False,
    **spec: Any,
) -> dict[str, Any]:
    """``again``: a controller makes it again when it is gone."""
    containers = spec.pop("containers", None) or [{"name": "main", "image": "app", "resources": {"requests": requests or {}}}]
    body: dict[str, Any] = {"schedulerName": "default-scheduler", "containers": containers, **spec}
    if claims:
        body["resourceClaims"] = [{"name": f"c{i}", "resourceClaimName": claim} for i, claim in enumerate(claims)]
    if node_name:
        body["nodeName"] = node_name
    owner = {"apiVersion": "example.com/v1", "kind": "Work", "name": "work", "uid": "work", "controller": True}
    owners = {"ownerReferences": [owner]} if again else {}
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": labels or {}, **owners},
        "spec": body,
        "status": {"phase": phase, **(status or {})},
    }


def claim(name: str, namespace: str = "default", count: int = 1, cls: str = "gpu", **extra: Any) -> dict[str, Any]:
    exactly = {"deviceClassName": cls, "allocationMode": "ExactCount", "count": count}
    spec = extra.pop("spec", None) or {"devices": {"requests": [{"name": "req", "exactly": exactly}]}}
    metadata = {"name": name, "namespace": namespace, **extra.pop("metadata", {})}
    return {"metadata": metadata, "spec": spec, "status": extra.pop("status", {})}


def slice_of(node_name: str, devices: int, driver: str = "gpu.example.com", pool: str = "", **device: Any) -> dict[str, Any]:
    where: dict[str, Any] = {"nodeName": node_name} if node_name else {"allNodes": True}
    pool = pool or node_name or "shared"
    return {
        "metadata": {"name": f"{pool}-{driver}"},
        "spec": {
            "driver": driver,
            "pool": {"name": pool, "generation": 1, "resourceSliceCount": 1},
            **where,
            "devices": [{"name": f"gpu-{i}", **device} for i in range(devices)],
        },
    }


def device_class(
    name: str, created: str = "2026-01-01T00:00:00Z", extended: str = "", driver: str = "gpu.example.com"
) -> dict[str, Any]:
    spec: dict[str, Any] = {"selectors": [{"cel": {"expression": f"device.driver == '{driver}'"}}]}
    if extended:
        spec["extendedResourceName"] = extended
    return {"metadata": {"name": name, "creationTimestamp": created}, "spec": spec}
