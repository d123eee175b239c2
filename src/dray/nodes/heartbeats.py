"""The life signs of simulated nodes: their Node object, their lease, and now and then their whole status."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from math import ceil
from typing import Any, Final

from dray.api.core import Node
from dray.api.kinds import LEASES, NODES
from dray.api.times import format_micro_time, format_time
from dray.cluster.port import Conflict, NotFound, Outcome, Write
from dray.controllers.nodelifecycle import LEASE_NAMESPACE
from dray.nodes import podstatus

SECONDS: Final = 10.0
STATUS_SECONDS: Final = 300.0
LEASE_SECONDS: Final = 40
MOMENTS: Final = 100


class Heartbeats:
    """``every`` seconds a lease is renewed; 0 leaves leases alone."""

    def __init__(self, manifests: Iterable[dict[str, Any]], every: float) -> None:
        self.manifests: Mapping[str, dict[str, Any]] = {manifest["metadata"]["name"]: manifest for manifest in manifests}
        self._every = every
        self._registered: set[str] = set()
        self._leased: dict[str, float] = {}  # node -> when its lease is next renewed
        self._reported: dict[str, float] = {}  # node -> when its status was last reported

    def tend(self, name: str, node: Node | None, now: float, look_at: Callable[[float], None]) -> list[Write]:
        """What keeps the node alive now; a Node that somebody deletes stays deleted."""
        if node is None:
            return [] if name in self._registered or name not in self.manifests else [self._register(name, now)]
        self._registered.add(name)
        offered = _offered(node)
        if not self._every:
            return offered
        return offered + self._lease(name, node.uid, now, look_at) + self._report(node, now)

    def ended(self, name: str, outcome: Outcome, now: float) -> None:
        if outcome.write.kind == LEASES and isinstance(outcome.error, NotFound):
            self._leased.pop(name, None)
        if outcome.write.verb == "create" and isinstance(outcome.error, Conflict):
            self._leased.setdefault(name, now)

    def _register(self, name: str, now: float) -> Write:
        manifest = self.manifests[name]
        status = {**manifest.get("status", {}), "conditions": _conditions(now)}
        status.setdefault("addresses", _addresses(name))
        status.setdefault("nodeInfo", _NODE_INFO)
        self._reported[name] = now
        return Write("create", NODES, name=name, body={**manifest, "status": status})

    def _lease(self, name: str, uid: str, now: float, look_at: Callable[[float], None]) -> list[Write]:
        known = self._leased.get(name)
        if known is not None and now < known:
            look_at(known)
            return []
        self._leased[name] = due = self._next_lease(name, known, now)
        look_at(due)
        spec = {"holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": format_micro_time(now)}
        if known is not None:
            return [Write("patch", LEASES, LEASE_NAMESPACE, name, {"spec": spec})]
        owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}
        metadata = {"name": name, "namespace": LEASE_NAMESPACE, "ownerReferences": [owner]}
        body = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": metadata, "spec": spec}
        return [Write("create", LEASES, LEASE_NAMESPACE, name, body)]

    def _next_lease(self, name: str, due: float | None, now: float) -> float:
        """Spread over the period, so that many nodes do not renew at once; each keeps its moment, also after a late renewal, so
        that those which were late together do not stay together. There are few moments: where thousands of nodes share them,
        looking at everything that a renewal may concern happens once for many."""
        if due is not None:
            return due + self._every * ((now - due) // self._every + 1)
        spread = int.from_bytes(blake2b(name.encode(), digest_size=2).digest(), "big") / 65536
        apart = self._every / MOMENTS
        return ceil((now + self._every * max(spread, 0.1)) / apart) * apart

    def _report(self, node: Node, now: float) -> list[Write]:
        """The node status is reported rarely; the lease says that the node lives. A node that was given up says that it does."""
        name = node.metadata.name
        given_up = any(condition.status == "Unknown" for condition in node.status.conditions)
        due = self._reported.setdefault(name, now) + STATUS_SECONDS
        if now < due and not given_up:
            return []
        return [self.ready(name, node.uid, now, transition=given_up)]

    def ready(self, name: str, uid: str, now: float, *, transition: bool) -> Write:
        """The whole status; with ``transition`` of a node that comes back, whatever others said of it meanwhile."""
        self._reported[name] = now
        keys = ("type", "status", "reason", "message", "lastHeartbeatTime", "lastTransitionTime")
        shown = keys if transition else ("type", "lastHeartbeatTime")
        beats = [{key: condition[key] for key in shown} for condition in _conditions(now)]
        body = {"status": {"conditions": beats}}
        return Write("patch", NODES, name=name, body=body, subresource="status", patch="strategic", uid=uid)


def _offered(node: Node) -> list[Write]:
    """What somebody wrote into the capacity of the node is allocatable, too, as a kubelet says it."""
    missing = {name: amount for name, amount in node.status.capacity.items() if name not in node.status.allocatable}
    if not missing:
        return []
    body = {"status": {"allocatable": missing}}
    return [Write("patch", NODES, name=node.metadata.name, body=body, subresource="status", uid=node.uid)]


def _conditions(now: float) -> list[dict[str, Any]]:
    stamp = format_time(now)
    states = {
        "MemoryPressure": ("False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        "DiskPressure": ("False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        "PIDPressure": ("False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        "Ready": ("True", "KubeletReady", "kubelet is posting ready status"),
    }
    return [
        {"type": t, "status": s, "reason": r, "message": m, "lastHeartbeatTime": stamp, "lastTransitionTime": stamp}
        for t, (s, r, m) in states.items()
    ]


def _addresses(name: str) -> list[dict[str, str]]:
    return [{"type": "InternalIP", "address": podstatus.host_ip(name)}, {"type": "Hostname", "address": name}]


_NODE_INFO: Final = {
    "architecture": "amd64", "operatingSystem": "linux", "kernelVersion": "simulated", "osImage": "Dray", "machineID": "",
    "systemUUID": "", "bootID": "", "containerRuntimeVersion": "simulated://1", "kubeletVersion": "v1.37.0",
    "kubeProxyVersion": "",
}  # fmt: skip
