"""A cluster on virtual time with devices, claims, pods and the controller of device taints; words for what tests do with it."""

from __future__ import annotations

from typing import Any

from dray.api.gates import Gates
from dray.api.kinds import DEVICE_TAINT_RULES, EVENTS, NAMESPACES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from dray.api.resource import EXTENDED_RESOURCE_CLAIM, FINALIZER
from dray.api.times import format_time
from dray.cluster.metrics import Recorder
from dray.cluster.port import Decider, Write
from dray.cluster.world import World
from dray.controllers.eviction import TaintEviction
from dray.runtime.faults import NONE, Faults
from dray.runtime.virtual import Written
from tests.simulated import Place

Plain = dict[str, Any]
DRIVER = "gpu.example.com"
HOST = "controllers"


class Tainted(Place):
    """Pods on node ``n1`` with devices of one pool, ``n1``, unless a test says otherwise."""

    def __init__(self, seed: int = 0, faults: Faults = NONE, gates: Gates | None = None, **pace: Any) -> None:
        super().__init__(seed, faults)
        self.meter = Recorder()
        self.written: list[Written] = []
        self._gates, self._pace = gates, pace
        self.shell.listeners.append(self.written.append)

    def start_eviction(self) -> None:
        def made(world: World) -> list[Decider]:
            return [TaintEviction(world, self._gates, self.meter, **self._pace)]

        self.start(HOST, TaintEviction.kinds, made)

    # ------------------------------------------------------------------------------------------------------- objects

    def slice(
        self, taints: dict[str, list[Plain]] | None = None, *, name: str = "n1", generation: int = 1, devices: int = 4
    ) -> None:
        """Devices ``gpu-0`` and on, some with taints; the slice is replaced if it is there."""
        listed = [
            {"name": f"gpu-{n}", **({"taints": t} if (t := (taints or {}).get(f"gpu-{n}")) else {})} for n in range(devices)
        ]
        pool = {"name": "n1", "generation": generation, "resourceSliceCount": 1}
        spec = {"driver": DRIVER, "nodeName": "n1", "pool": pool, "devices": listed}
        if self.get(RESOURCE_SLICES, name) is None:
            self.create(RESOURCE_SLICES, {"metadata": {"name": name}, "spec": spec})
        else:
            self.patch(RESOURCE_SLICES, name, {"spec": spec})

    def rule(self, name: str = "rule", effect: str = "NoExecute", selector: Plain | None = None, **more: Any) -> Plain:
        """Without a selector: for the device ``gpu-0`` of the pool."""
        chosen = {"driver": DRIVER, "pool": "n1", "device": "gpu-0"} if selector is None else selector
        taint = {"key": "example.com/broken", "effect": effect, **more.pop("taint", {})}
        return self.create(
            DEVICE_TAINT_RULES, {"metadata": {"name": name, **more}, "spec": {"deviceSelector": chosen, "taint": taint}}
        )

    def change(self, name: str = "rule", **taint: Any) -> None:
        self.patch(DEVICE_TAINT_RULES, name, {"spec": {"taint": taint}})

    def pod(self, name: str, *claims: str, node: str = "n1", namespace: str = "default", **more: Any) -> Plain:
        """A pod that names claims; on a node unless that is empty. It does not use them yet."""
        if namespace != "default" and self.core.get(NAMESPACES, namespace) is None:
            self.create(NAMESPACES, {"metadata": {"name": namespace}})
        entries = [{"name": f"c{n}", "resourceClaimName": claim} for n, claim in enumerate(claims)]
        entries += more.pop("entries", [])
        container = {"name": "c", "image": "i", "resources": {"claims": [{"name": entry["name"]} for entry in entries]}}
        spec = {"containers": [container], "resourceClaims": entries, **({"nodeName": node} if node else {})}
        if group := more.pop("group", ""):
            spec["schedulingGroup"] = {"podGroupName": group}
        return self.create(PODS, {"metadata": {"name": name}, "spec": spec}, namespace)

    def claim(self, name: str, *devices: str, namespace: str = "default", **more: Any) -> Plain:
        """An allocated claim. ``tolerations`` and ``adminAccess`` go into each result; ``users`` are pods that exist."""
        fields = {key: more.pop(key) for key in ("tolerations", "adminAccess") if key in more}
        request = {"name": "gpu", "exactly": {"deviceClassName": "gpu", "count": max(1, len(devices)), **fields}}
        metadata = {"name": name, "finalizers": [FINALIZER], **more.pop("metadata", {})}
        self.create(RESOURCE_CLAIMS, {"metadata": metadata, "spec": {"devices": {"requests": [request]}}}, namespace)
        results = [{"request": "gpu", "driver": DRIVER, "pool": "n1", "device": device, **fields} for device in devices]
        self.status(RESOURCE_CLAIMS, name, {"allocation": {"devices": {"results": results}}}, namespace)
        return self.reserve(name, *more.pop("users", ()), namespace=namespace)

    def reserve(self, name: str, *pods: str, namespace: str = "default") -> Plain:
        users = [{"resource": "pods", "name": pod, "uid": self.uid(pod, namespace)} for pod in pods]
        return self.status(RESOURCE_CLAIMS, name, {"reservedFor": users}, namespace)

    def reserve_for_group(self, name: str, group: str, namespace: str = "default") -> Plain:
        user = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": group, "uid": f"uid of {group}"}
        return self.status(RESOURCE_CLAIMS, name, {"reservedFor": [user]}, namespace)

    def using(self, name: str, *devices: str, node: str = "n1", namespace: str = "default", **more: Any) -> None:
        """A pod, and a claim of the same name that it uses."""
        self.pod(name, name, node=node, namespace=namespace)
        self.claim(name, *devices, namespace=namespace, users=(name,), **more)

    def extended(self, name: str, device: str) -> None:
        """A pod that asked for an extended resource, and the claim that a scheduler made for it."""
        container = {
            "name": "c",
            "image": "i",
            "resources": {"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}},
        }
        made = self.create(PODS, {"metadata": {"name": name}, "spec": {"containers": [container], "nodeName": "n1"}})
        self.claim(f"{name}-special", device, metadata=owned(made, EXTENDED_RESOURCE_CLAIM, "true"), users=(name,))
        mapping = {"containerName": "c", "resourceName": "example.com/gpu", "requestName": "gpu"}
        self.status(
            PODS, name, {"extendedResourceClaimStatus": {"resourceClaimName": f"{name}-special", "requestMappings": [mapping]}}
        )

    def status(self, kind: Any, name: str, status: Plain, namespace: str = "default") -> Plain:
        return self.shell.user(Write("patch", kind, namespace, name, {"status": status}, subresource="status"))

    # ---------------------------------------------------------------------------------------------------------- time

    def run(self, seconds: float = 1.0) -> None:
        self.shell.run(self.shell.elapsed + seconds)

    @property
    def now(self) -> float:
        return self.shell.clock.now

    def ago(self, seconds: float) -> str:
        return format_time(self.now - seconds)

    def restart(self) -> None:
        self.shell.crash(HOST, 0.1)

    # ------------------------------------------------------------------------------------------------------ questions

    def uid(self, pod: str, namespace: str = "default") -> str:
        return str(self.core.all(PODS)[f"{namespace}/{pod}"]["metadata"]["uid"])

    def evicted(self, name: str, namespace: str = "default") -> bool:
        pod = self.core.get(PODS, f"{namespace}/{name}")
        return pod is None or "deletionTimestamp" in pod["metadata"]

    def leaving(self) -> set[str]:
        """The pods that were told to leave and are still there."""
        return {pod["metadata"]["name"] for pod in self.core.all(PODS).values() if "deletionTimestamp" in pod["metadata"]}

    def condition(self, rule: str = "rule") -> Plain | None:
        found = (self.core.get(DEVICE_TAINT_RULES, rule) or {}).get("status", {}).get("conditions", [])
        return next((condition for condition in found if condition["type"] == "EvictionInProgress"), None)

    def told(self, rule: str = "rule") -> tuple[str, str, str]:
        """Status, reason and message."""
        condition = self.condition(rule)
        assert condition is not None
        return condition["status"], condition["reason"], condition["message"]

    def events(self, pod: str = "") -> list[str]:
        found = [event for event in self.core.all(EVENTS).values() if pod in ("", event["involvedObject"]["name"])]
        assert {event["reason"] for event in found} <= {"DeviceTaintManagerEviction"}
        return [event["message"] for event in found]

    def writes(self, verb: str, kind: Any = PODS, subresource: str = "") -> list[Written]:
        return [
            one for one in self.written if (one.write.verb, one.write.kind, one.write.subresource) == (verb, kind, subresource)
        ]


def taint(effect: str = "NoExecute", **more: Any) -> Plain:
    return {"key": "example.com/broken", "effect": effect, **more}


def tolerates(seconds: int | None = None, **more: Any) -> Plain:
    limit = {} if seconds is None else {"tolerationSeconds": seconds}
    return {"key": "example.com/broken", "operator": "Exists", "effect": "NoExecute", **limit, **more}


def owned(pod: Plain, annotation: str, value: str) -> Plain:
    owner = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": pod["metadata"]["name"],
        "uid": pod["metadata"]["uid"],
        "controller": True,
    }
    return {"ownerReferences": [owner], "annotations": {annotation: value}}
