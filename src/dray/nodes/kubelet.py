"""Simulated kubelets: one decider is the kubelet of many nodes.

It registers its nodes and keeps their leases fresh. A pod bound to one of them starts after a moment, when its claims are
allocated and reserved for it; it then runs until an annotation says otherwise or it is deleted:

- ``dray.dev/starts-after``: how long starting takes (else the kubelet's ``start_seconds``)
- ``dray.dev/finishes-after``: the pod succeeds this long after its start
- ``dray.dev/fails-after``, with ``dray.dev/exit-code`` (1): it fails this long after its start
- ``dray.dev/stops-after``: how long it takes to stop when deleted (1s), never longer than its grace period

Always true: a pod never runs with a claim that is not allocated or not reserved for it; what a pod does next follows from what
the API shows, so a restarted kubelet goes on where the last one stopped. A Node that somebody deletes stays deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any, Final

from dray.api.core import Pod
from dray.api.durations import seconds
from dray.api.kinds import LEASES, NODES, PODS, RESOURCE_CLAIMS, Kind
from dray.api.resource import ResourceClaim
from dray.api.times import format_micro_time, format_time, parse_time
from dray.cluster.port import Change, Conflict, NotFound, Outcome, Write
from dray.cluster.recorder import Recorder
from dray.cluster.world import World
from dray.controllers.keyed import Keyed
from dray.nodes import podstatus

STARTS: Final = "dray.dev/starts-after"
FINISHES: Final = "dray.dev/finishes-after"
FAILS: Final = "dray.dev/fails-after"
EXIT_CODE: Final = "dray.dev/exit-code"
STOPS: Final = "dray.dev/stops-after"

SIMULATED: Final = "dray.dev/simulated"
HEARTBEAT_SECONDS: Final = 10.0
STATUS_SECONDS: Final = 300.0
LEASE_NAMESPACE: Final = "kube-node-lease"
LEASE_SECONDS: Final = 40


class Kubelets(Keyed):
    """The decider. Keys are ``node NAME`` and ``pod namespace/name``. ``manifests`` are the Nodes to be; ``heartbeat`` 0
    leaves leases alone."""

    name = "kubelets"
    kinds: Sequence[Kind] = (NODES, PODS, RESOURCE_CLAIMS)

    def __init__(
        self,
        world: World,
        manifests: Iterable[dict[str, Any]],
        *,
        start_seconds: float = 0.5,
        heartbeat: float = HEARTBEAT_SECONDS,
    ) -> None:
        super().__init__(world)
        self._manifests = {manifest["metadata"]["name"]: manifest for manifest in manifests}
        self._start_seconds, self._heartbeat = start_seconds, heartbeat
        self._recorder = Recorder("kubelet")
        self._pods_by_node = world.index(PODS, lambda pod: (pod.spec.node_name,) if pod.spec.node_name else ())
        self._pods_by_claim = world.index(PODS, _claim_keys)
        self._registered: set[str] = set()
        self._leased: dict[str, float] = {}  # node -> when its lease is next renewed
        self._reported: dict[str, float] = {}  # node -> when its status was last reported
        self._moments: dict[str, tuple[str, str, float]] = {}  # pod -> its uid, what it is doing, when that is done
        self._work.add(f"node {name}" for name in self._manifests)

    def concerned(self, change: Change) -> Iterable[str]:
        if change.kind == NODES:
            name = change.object.metadata.name
            return [f"node {name}", *(f"pod {key}" for key in self._pods_by_node[name])] if self._simulates(name) else []
        if change.kind == RESOURCE_CLAIMS:
            return [f"pod {key}" for key in self._pods_by_claim[change.object.key]]
        pod = change.object
        assert isinstance(pod, Pod)
        return [f"pod {pod.key}"] if self._simulates(pod.spec.node_name) else []

    def _simulates(self, name: str) -> bool:
        """A node that was asked for, or one in the API that says that it is simulated: after a restart, or made by a user."""
        if name in self._manifests:
            return True
        node = self.world.get(NODES, name)
        return node is not None and node.metadata.labels.get(SIMULATED) == "true"

    def ended(self, key: str, outcome: Outcome, now: float) -> None:
        kind, _, name = key.partition(" ")
        if kind == "node" and outcome.write.kind == LEASES and isinstance(outcome.error, NotFound):
            self._leased.pop(name, None)
        if kind == "node" and outcome.write.verb == "create" and isinstance(outcome.error, Conflict):
            self._leased.setdefault(name, now)

    def decide(self, key: str, now: float) -> list[Write]:
        kind, _, name = key.partition(" ")
        if kind == "node":
            return self._tend(name, now)
        pod: Pod | None = self.world.get(PODS, name)
        if pod is None or not self._simulates(pod.spec.node_name):
            self.forget(key)
            return []
        return self._run(pod, now)

    # ------------------------------------------------------------------------------------------------------- nodes

    def _tend(self, name: str, now: float) -> list[Write]:
        node = self.world.get(NODES, name)
        if node is None:
            return [] if name in self._registered or name not in self._manifests else [self._register(name, now)]
        self._registered.add(name)
        writes = self._lease(name, node.uid, now) if self._heartbeat else []
        return writes + self._report(name, node.uid, now)

    def _register(self, name: str, now: float) -> Write:
        manifest = self._manifests[name]
        status = {**manifest.get("status", {}), "conditions": _conditions(now)}
        status.setdefault("addresses", _addresses(name))
        status.setdefault("nodeInfo", _NODE_INFO)
        self._reported[name] = now
        return Write("create", NODES, name=name, body={**manifest, "status": status})

    def _lease(self, name: str, uid: str, now: float) -> list[Write]:
        known = self._leased.get(name)
        if known is not None and now < known:
            self.look_at(f"node {name}", known)
            return []
        # Spread over the period, so that many nodes do not renew at once.
        spread = int.from_bytes(blake2b(name.encode(), digest_size=2).digest(), "big") / 65536 if known is None else 1.0
        self._leased[name] = now + self._heartbeat * max(spread, 0.1)
        self.look_at(f"node {name}", self._leased[name])
        spec = {"holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": format_micro_time(now)}
        if known is not None:
            return [Write("patch", LEASES, LEASE_NAMESPACE, name, {"spec": spec})]
        owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}
        metadata = {"name": name, "namespace": LEASE_NAMESPACE, "ownerReferences": [owner]}
        body = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": metadata, "spec": spec}
        return [Write("create", LEASES, LEASE_NAMESPACE, name, body)]

    def _report(self, name: str, uid: str, now: float) -> list[Write]:
        """The node status is reported rarely; the lease says that the node lives."""
        due = self._reported.setdefault(name, now) + STATUS_SECONDS
        if now < due or not self._heartbeat:
            return []
        self._reported[name] = now
        beats = [{"type": c["type"], "lastHeartbeatTime": format_time(now)} for c in _conditions(now)]
        body = {"status": {"conditions": beats}}
        return [Write("patch", NODES, name=name, body=body, subresource="status", patch="strategic", uid=uid)]

    # -------------------------------------------------------------------------------------------------------- pods

    def _run(self, pod: Pod, now: float) -> list[Write]:
        if pod.metadata.deletion_timestamp is not None:
            return self._stop(pod, now)
        if pod.terminal:
            return []
        if pod.status.phase == "Running":
            return self._end(pod, now)
        return self._start(pod, now)

    def _start(self, pod: Pod, now: float) -> list[Write]:
        claims, missing = self._claims(pod)
        if missing:
            self._moments.pop(pod.key, None)
            self.look_at(f"pod {pod.key}", now + 60.0)
            why = f"Failed to prepare dynamic resources: {missing}"
            self.say(self._recorder.warning(PODS, pod, "FailedPrepareDynamicResources", why, action="Prepare", now=now))
            return []
        takes = self._annotated(pod, STARTS, self._start_seconds, now)
        due = self._moment(pod, "start", now + takes)
        if now < due:
            self.look_at(f"pod {pod.key}", due)
            return []
        self.say(self._recorder.normal(PODS, pod, "Started", "Containers started", action="Starting", now=now))
        return [_status(pod, podstatus.running(pod, claims, now))]

    def _end(self, pod: Pod, now: float) -> list[Write]:
        self._moments.pop(pod.key, None)
        if (change := podstatus.renewed(pod, now)) is not None:
            return [_status(pod, change)]
        if (end := podstatus.deadline(pod)) is not None:
            if now >= end:
                return [_status(pod, podstatus.expired(pod, now))]
            self.look_at(f"pod {pod.key}", end)
        started = parse_time(pod.status.start_time) if pod.status.start_time else now
        ends: list[tuple[float, int]] = []
        if FINISHES in pod.metadata.annotations:
            ends.append((started + self._annotated(pod, FINISHES, float("inf"), now), 0))
        if FAILS in pod.metadata.annotations:
            code = pod.metadata.annotations.get(EXIT_CODE, "1")
            number = int(code) if code.isdigit() and int(code) else 1
            ends.append((started + self._annotated(pod, FAILS, float("inf"), now), number))
        if not ends:
            return []
        due, code_ = min(ends)
        if now < due:
            self.look_at(f"pod {pod.key}", due)
            return []
        return [_status(pod, podstatus.finished(pod, code_, now))]

    def _stop(self, pod: Pod, now: float) -> list[Write]:
        """Deleted: it stops within its grace period and then is gone."""
        grace = pod.metadata.deletion_grace_period_seconds or 0
        takes = 0.0 if pod.terminal or pod.status.phase != "Running" else min(self._annotated(pod, STOPS, 1.0, now), grace)
        due = self._moment(pod, "stop", now + takes)
        deadline = parse_time(pod.metadata.deletion_timestamp or "") if grace else now
        if now < min(due, deadline):
            self.look_at(f"pod {pod.key}", min(due, deadline))
            return []
        return [Write("delete", PODS, pod.metadata.namespace, pod.metadata.name, {"gracePeriodSeconds": 0}, uid=pod.uid)]

    def _claims(self, pod: Pod) -> tuple[dict[str, ResourceClaim], str]:
        """The pod's claims by their name in the pod, or what one of them lacks."""
        found: dict[str, ResourceClaim] = {}
        for entry, name in _claim_names(pod):
            claim: ResourceClaim | None = self.world.get(RESOURCE_CLAIMS, f"{pod.metadata.namespace}/{name}") if name else None
            if claim is None:
                return {}, f"claim {name or entry} does not exist"
            if claim.status.allocation is None:
                return {}, f"claim {name} is not allocated"
            if not any(user.uid == pod.uid for user in claim.status.reserved_for):
                return {}, f"claim {name} is not reserved for the pod"
            found[entry] = claim
        return found, ""

    def _annotated(self, pod: Pod, annotation: str, default: float, now: float) -> float:
        text = pod.metadata.annotations.get(annotation)
        if text is None:
            return default
        try:
            return seconds(text)
        except ValueError as error:
            why = f"annotation {annotation}: {error}"
            self.say(self._recorder.warning(PODS, pod, "InvalidAnnotation", why, action="Run", now=now))
            return default

    def _moment(self, pod: Pod, what: str, at: float) -> float:
        """When something that began will be done: decided once for each pod."""
        known = self._moments.get(pod.key)
        if known is None or known[:2] != (pod.uid, what):
            known = self._moments[pod.key] = (pod.uid, what, at)
        return known[2]

    def forget(self, key: str) -> None:
        super().forget(key)
        self._moments.pop(key.partition(" ")[2], None)


def _claim_names(pod: Pod) -> list[tuple[str, str]]:
    """(name in the pod, name of the claim); the latter is empty until it is known."""
    made = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
    names = [
        (entry.name, entry.resource_claim_name or made.get(entry.name) or "")
        for entry in pod.spec.resource_claims
        if entry.resource_claim_name or entry.name not in made or made[entry.name]
    ]
    if (extended := pod.status.extended_resource_claim_status) is not None:
        names.append(("", extended.resource_claim_name))
    return names


def _claim_keys(pod: Pod) -> Iterable[str]:
    return tuple(f"{pod.metadata.namespace}/{name}" for _, name in _claim_names(pod) if name)


def _status(pod: Pod, body: dict[str, Any]) -> Write:
    namespace, name = pod.metadata.namespace, pod.metadata.name
    return Write("patch", PODS, namespace, name, body, subresource="status", patch="strategic", uid=pod.uid)


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
