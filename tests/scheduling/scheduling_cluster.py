"""A cluster in memory for tests: an API that keeps plain objects, a World that sees every change, and one scheduler.

Faults are asked for by a function: it sees each write and may answer with an error instead of the API.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from dray.api import kinds
from dray.api.gates import Gates
from dray.api.kinds import Kind
from dray.cluster.metrics import Recorder
from dray.cluster.port import ClusterError, Conflict, Invalid, NotFound, Outcome, Write
from dray.cluster.world import World
from dray.scheduling.config import Config
from dray.scheduling.plugins.owners import OWNER_KINDS
from dray.scheduling.scheduler import KINDS, Scheduler

Fault = Callable[[Write], ClusterError | None]
EPOCH = 1_800_000_000.0


class Api:
    def __init__(self) -> None:
        self.objects: dict[Kind, dict[str, dict[str, Any]]] = {kind: {} for kind in (*KINDS, *OWNER_KINDS, kinds.EVENTS)}
        self.version = 0
        self.serial = 0
        self.watchers: list[Callable[[Kind, dict[str, Any], bool], None]] = []

    def put(self, kind: Kind, obj: dict[str, Any]) -> dict[str, Any]:
        obj = copy.deepcopy(obj)
        meta = obj["metadata"]
        if not meta.get("name"):
            self.serial += 1
            meta["name"] = f"{meta['generateName']}{self.serial:05d}"
        if "uid" not in meta:
            self.serial += 1
            meta["uid"] = f"uid-{self.serial}"
        self.version += 1
        meta["resourceVersion"] = str(self.version)
        if kind in (kinds.PODS, kinds.RESOURCE_CLAIMS):
            obj.setdefault("status", {})
        self.objects[kind][key_of(obj)] = obj
        self._tell(kind, obj, False)
        return obj

    def delete(self, kind: Kind, key: str) -> None:
        obj = self.objects[kind].get(key)
        if obj is None:
            raise NotFound(404, "NotFound", key)
        if obj["metadata"].get("finalizers"):
            if not obj["metadata"].get("deletionTimestamp"):
                obj["metadata"]["deletionTimestamp"] = "2027-01-01T00:00:00Z"
                self.put(kind, obj)
            return
        del self.objects[kind][key]
        self._tell(kind, obj, True)

    def _tell(self, kind: Kind, obj: dict[str, Any], gone: bool) -> None:
        for watcher in self.watchers:
            watcher(kind, copy.deepcopy(obj), gone)

    # ---------------------------------------------------------------------------------------------------------- writes

    def write(self, write: Write) -> dict[str, Any]:
        kind, key = write.kind, write.key
        if write.verb == "create" and write.subresource == "binding":
            return self._bind(write)
        if write.verb == "create":
            if key in self.objects[kind]:
                raise Conflict(409, "AlreadyExists", key)
            body = copy.deepcopy(write.body)
            body["metadata"].setdefault("namespace", write.namespace)
            return self.put(kind, body)
        found = self._found(write)
        if write.verb == "delete":
            self.delete(kind, key)
            return found
        body = copy.deepcopy(write.body)
        if write.subresource == "status":
            assert set(body) == {"status"}, "a status patch changes the status only"
        merged = merge(copy.deepcopy(found), body, write.patch == "strategic")
        if kind is kinds.RESOURCE_CLAIMS:
            self._check_claim(found, merged)
        if kind is kinds.PODS and (named := found["status"].get("extendedResourceClaimStatus")):
            # Kubernetes' server lets nobody take it away.
            merged["status"].setdefault("extendedResourceClaimStatus", named)
        meta = merged["metadata"]
        if meta.get("deletionTimestamp") and not meta.get("finalizers"):
            del self.objects[kind][key]
            self._tell(kind, merged, True)
            return merged
        return self.put(kind, merged)

    def _found(self, write: Write) -> dict[str, Any]:
        found = self.objects[write.kind].get(write.key)
        if found is None:
            raise NotFound(404, "NotFound", write.key)
        if write.uid and write.uid != found["metadata"]["uid"]:
            raise Conflict(409, "Conflict", "uid")
        if write.resource_version and write.resource_version != found["metadata"]["resourceVersion"]:
            raise Conflict(409, "Conflict", "resourceVersion")
        return found

    def _bind(self, write: Write) -> dict[str, Any]:
        pod = self._found(write)
        if pod["spec"].get("nodeName"):
            raise Conflict(409, "Conflict", "pod is already assigned")
        pod = copy.deepcopy(pod)
        pod["spec"]["nodeName"] = write.body["target"]["name"]
        pod.setdefault("status", {})["conditions"] = [{"type": "PodScheduled", "status": "True"}]
        pod["status"].pop("nominatedNodeName", None)
        self.put(kinds.PODS, pod)
        return {"kind": "Status", "status": "Success"}

    def _check_claim(self, old: dict[str, Any], new: dict[str, Any]) -> None:
        before, after = (claim.get("status", {}).get("allocation") for claim in (old, new))
        if before is not None and after is not None and before != after:
            raise Invalid(422, "Invalid", "status.allocation: field is immutable")
        reserved = new.get("status", {}).get("reservedFor") or []
        if reserved and after is None:
            raise Invalid(422, "Invalid", "status.reservedFor: may not be specified without an allocation")
        if len(reserved) > 256:
            raise Invalid(422, "Invalid", "status.reservedFor: too many")


def merge(target: Any, patch: Any, strategic: bool, path: str = "") -> Any:
    if not isinstance(patch, dict):
        return patch
    if not isinstance(target, dict):
        target = {}
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif strategic and key == "conditions":
            kept = {condition["type"]: condition for condition in target.get(key, [])}
            kept.update({condition["type"]: condition for condition in value})
            target[key] = list(kept.values())
        else:
            target[key] = merge(target.get(key), value, strategic)
    return target


def key_of(obj: dict[str, Any]) -> str:
    meta = obj["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else meta["name"]


class Sim:
    """An API, a scheduler that watches it, and a clock."""

    def __init__(self, config: Config | None = None, gates: Gates | None = None) -> None:
        self.api = Api()
        self.config, self.gates = config, gates
        self.now = EPOCH
        self.log: list[Write] = []
        self.fault: Fault | None = None
        self.api.watchers.append(self._watch)
        self.start()

    def start(self) -> None:
        """A scheduler that knows nothing yet lists everything: also what a restart is."""
        self.meter = Recorder()
        self.world = World((*KINDS, *OWNER_KINDS, kinds.EVENTS))
        self.scheduler = Scheduler(self.world, self.config, self.gates, meter=self.meter)
        for kind, objects in self.api.objects.items():
            for obj in objects.values():
                self._watch(kind, copy.deepcopy(obj), False)

    def _watch(self, kind: Kind, obj: dict[str, Any], gone: bool) -> None:
        changes = self.world.remove(kind, obj) if gone else self.world.put(kind, obj)
        for change in changes:
            self.scheduler.observe(change, self.now)

    # -------------------------------------------------------------------------------------------------------- running

    def step(self) -> list[Write]:
        writes = self.scheduler.act(self.now)
        wrong = self.scheduler.validate() if len(self.scheduler.queue) <= 200 else []
        assert wrong == [], wrong
        for write in writes:
            self.log.append(write)
            error = self.fault(write) if self.fault is not None else None
            answer: dict[str, Any] | None = None
            if error is None:
                try:
                    answer = self.api.write(write)
                except ClusterError as refused:
                    error = refused
            self.scheduler.observe(Outcome(write, answer, error), self.now)
        return writes

    def settle(self, seconds: float = 0.0, most: int = 2000) -> None:
        """Run until nothing is left to do, then until the time given has passed."""
        until = self.now + seconds
        for _ in range(most):
            if self.step():
                continue
            wake = self.scheduler.wake()
            if wake is not None and wake <= self.now:
                continue
            if wake is None or wake > until:
                self.now = until
                return
            self.now = wake
        raise AssertionError("the scheduler does not come to rest")

    # ---------------------------------------------------------------------------------------------------------- reading

    def node_of(self, name: str, namespace: str = "default") -> str:
        return str(self.pod(name, namespace)["spec"].get("nodeName", ""))

    def pod(self, name: str, namespace: str = "default") -> dict[str, Any]:
        return self.api.objects[kinds.PODS][f"{namespace}/{name}"]

    def claim(self, name: str, namespace: str = "default") -> dict[str, Any]:
        return self.api.objects[kinds.RESOURCE_CLAIMS][f"{namespace}/{name}"]

    def condition(self, name: str) -> dict[str, Any]:
        found = self.pod(name).get("status", {}).get("conditions", [])
        return next((condition for condition in found if condition["type"] == "PodScheduled"), {})

    def events(self, reason: str) -> list[dict[str, Any]]:
        return [event for event in self.api.objects[kinds.EVENTS].values() if event["reason"] == reason]

    def devices_of(self, name: str) -> list[str]:
        allocation = self.claim(name).get("status", {}).get("allocation") or {}
        return [f"{r['pool']}/{r['device']}" for r in allocation.get("devices", {}).get("results", [])]

    # --------------------------------------------------------------------------------------------------------- making

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
    **spec: Any,
) -> dict[str, Any]:
    containers = spec.pop("containers", None) or [{"name": "main", "image": "app", "resources": {"requests": requests or {}}}]
    body: dict[str, Any] = {"schedulerName": "default-scheduler", "containers": containers, **spec}
    if claims:
        body["resourceClaims"] = [{"name": f"c{i}", "resourceClaimName": claim} for i, claim in enumerate(claims)]
    if node_name:
        body["nodeName"] = node_name
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": labels or {}},
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
