"""DaemonSets: one pod on every node that its template fits, aimed at that node by affinity and bound by the scheduler.

Always true: a node gets one pod, because the pod's name follows from the set, the template and the node; a pod on a node that no
longer fits goes; an update replaces pods within maxUnavailable.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from dray.api.core import Node, Pod, PodSpec, Toleration
from dray.api.kinds import DAEMON_SETS, NODES, PODS, Kind
from dray.api.selectors import node_selector_matches
from dray.api.workloads import DaemonSet
from dray.cluster.port import Change, Write
from dray.cluster.world import World
from dray.controllers import owning, podstate
from dray.controllers.creating import generated, suffix
from dray.controllers.keyed import Keyed
from dray.controllers.replicasets import pod_from
from dray.controllers.rollout import bound
from dray.scheduling.plugins.node import untolerated

REVISION: Final = "controller-revision-hash"
# A daemon stays on a node that is in trouble; upstream gives its pods the same tolerations.
TOLERATED: Final = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)


class DaemonSets(Keyed):
    """The decider. Keys are ``namespace/name`` of DaemonSets."""

    name = "daemonsets"
    kinds: Sequence[Kind] = (DAEMON_SETS, NODES, PODS)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._pods = world.index(PODS, owning.controller_of)
        self._by_uid = world.index(DAEMON_SETS, lambda found: (found.uid,))

    def concerned(self, change: Change) -> Iterable[str]:
        if change.kind == DAEMON_SETS:
            return [change.object.key]
        if change.kind == NODES:
            same = change.old is not None and change.new is not None and _shape(change.old) == _shape(change.new)
            return () if same else tuple(self.world.all(DAEMON_SETS))
        controller = change.object.metadata.controller
        return self._by_uid[controller.uid] if controller is not None else ()

    def decide(self, key: str, now: float) -> list[Write]:
        found: DaemonSet | None = self.world.get(DAEMON_SETS, key)
        if found is None:
            self.forget(key)
            return []
        spec = msgspec.convert(found.spec.template.spec, PodSpec)
        wanted = {name for name, node in self.world.all(NODES).items() if _fits(spec, node)}
        pods: dict[str, list[Pod]] = {}
        for pod_key in self._pods[found.uid]:
            pod = self.world.get(PODS, pod_key)
            pods.setdefault(_aimed_at(pod), []).append(pod)
        revision = suffix(msgspec.json.encode(found.spec.template, order="sorted"), length=10)
        writes = self._place(found, wanted, pods, revision) if found.metadata.deletion_timestamp is None else []
        return writes + self._status(found, wanted, pods, revision, now)

    def _place(self, found: DaemonSet, wanted: set[str], pods: dict[str, list[Pod]], revision: str) -> list[Write]:
        writes = []
        for node, here in pods.items():
            living = [pod for pod in here if podstate.active(pod)]
            ended = [pod for pod in here if pod.terminal and pod.metadata.deletion_timestamp is None]
            surplus = living if node not in wanted else sorted(living, key=podstate.removal_order)[:-1]
            writes += [owning.delete(PODS, pod) for pod in (*ended, *surplus)]
        writes += [_create(found, node, revision) for node in sorted(wanted) if not pods.get(node)]
        return writes or self._update(found, wanted, pods, revision)

    def _update(self, found: DaemonSet, wanted: set[str], pods: dict[str, list[Pod]], revision: str) -> list[Write]:
        strategy = found.spec.update_strategy
        if strategy.type == "OnDelete":
            return []
        limit = strategy.rolling_update.max_unavailable if strategy.rolling_update is not None else None
        allowed = max(1, bound(limit, "1", len(wanted), up=True))
        current = [pod for node in sorted(wanted) for pod in pods.get(node, ())]
        missing = len(wanted) - sum(podstate.active(pod) and podstate.ready(pod) for pod in current)
        old = [pod for pod in current if podstate.active(pod) and pod.metadata.labels.get(REVISION) != revision]
        broken = [pod for pod in old if not podstate.ready(pod)]
        ready = [pod for pod in old if podstate.ready(pod)]
        return [owning.delete(PODS, pod) for pod in (*broken, *ready[: max(0, allowed - missing)])]

    def _status(self, found: DaemonSet, wanted: set[str], pods: dict[str, list[Pod]], revision: str, now: float) -> list[Write]:
        active = {node: pod for node, here in pods.items() for pod in here if podstate.active(pod)}
        right = [pod for node, pod in active.items() if node in wanted]
        times = [podstate.available_at(pod, found.spec.min_ready_seconds) for pod in right]
        if later := [at for at in times if at is not None and at > now]:
            self.look_at(found.key, min(later))
        available = sum(at is not None and at <= now for at in times)
        status = {
            "observedGeneration": found.metadata.generation,
            "desiredNumberScheduled": len(wanted),
            "currentNumberScheduled": len(right),
            "numberMisscheduled": len(active) - len(right),
            "numberReady": sum(at is not None for at in times),
            "numberAvailable": available,
            "numberUnavailable": len(wanted) - available,
            "updatedNumberScheduled": sum(pod.metadata.labels.get(REVISION) == revision for pod in right),
        }
        if list(status.values()) == [getattr(found.status, field) for field in found.status.__struct_fields__]:
            return []
        namespace, name = found.metadata.namespace, found.metadata.name
        return [Write("patch", DAEMON_SETS, namespace, name, {"status": status}, subresource="status", uid=found.uid)]


def _shape(found: Any) -> tuple[Any, ...]:
    """What of a node decides whether a daemon belongs there."""
    return found.metadata.labels, found.spec.taints, found.metadata.deletion_timestamp


def _fits(spec: PodSpec, node: Node) -> bool:
    if node.metadata.deletion_timestamp is not None or not spec.node_selector.items() <= node.metadata.labels.items():
        return False
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    if affinity is not None and affinity.required is not None and not node_selector_matches(affinity.required, node):
        return False
    own = tuple(Toleration(key=key, operator="Exists", effect=effect) for key, effect in TOLERATED)
    return untolerated([t for t in node.spec.taints if t.effect != "PreferNoSchedule"], (*spec.tolerations, *own)) is None


def _aimed_at(pod: Pod) -> str:
    if pod.spec.node_name:
        return pod.spec.node_name
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    terms = affinity.required.node_selector_terms if affinity is not None and affinity.required is not None else ()
    return next((r.values[0] for term in terms for r in term.match_fields if r.key == "metadata.name" and r.values), "")


def _create(found: DaemonSet, node: str, revision: str) -> Write:
    name, namespace = generated(found.metadata.name, found.uid, revision, node), found.metadata.namespace
    body = pod_from(found.spec.template, name, namespace, owning.reference(DAEMON_SETS, found))
    body["metadata"]["labels"] = {**body["metadata"]["labels"], REVISION: revision}
    body["spec"] = _aimed(body["spec"], node)
    return Write("create", PODS, namespace, name, body)


def _aimed(spec: dict[str, Any], node: str) -> dict[str, Any]:
    """The template's spec for one node: every alternative of its affinity is narrowed to it."""
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    affinity = spec.get("affinity") or {}
    given = affinity.get("nodeAffinity") or {}
    required = (given.get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get("nodeSelectorTerms") or [{}]
    terms = [{**term, "matchFields": [field]} for term in required]
    narrowed = {**given, "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    own = [{"key": key, "operator": "Exists", "effect": effect} for key, effect in TOLERATED]
    return {
        **spec,
        "affinity": {**affinity, "nodeAffinity": narrowed},
        "tolerations": [*(spec.get("tolerations") or ()), *own],
    }
