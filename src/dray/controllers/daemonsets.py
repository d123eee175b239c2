"""DaemonSets: one pod on every node that its template fits, aimed at that node by affinity and bound by the scheduler.

Always true: a node gets one pod, because the pod's name follows from the set, the template, the node and the pod that was there
before; a pod on a node that no longer fits goes; an update replaces pods within maxUnavailable, or, with maxSurge, after a new
one beside the old is available. Old templates are kept as ControllerRevisions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from dray.api.core import Node, Pod, PodSpec, Toleration
from dray.api.kinds import CONTROLLER_REVISIONS, DAEMON_SETS, NODES, PODS, RESOURCE_QUOTAS, Kind
from dray.api.meta import Object
from dray.api.selectors import node_selector_matches, selects
from dray.api.workloads import DaemonSet
from dray.cluster.port import Change, Write
from dray.cluster.world import World
from dray.controllers import owning, podstate
from dray.controllers.creating import generated
from dray.controllers.keyed import Keyed
from dray.controllers.replicasets import pod_from
from dray.controllers.revisions import HASH, History
from dray.controllers.rollout import bound
from dray.scheduling.plugins.node import untolerated

# A daemon stays on a node that is in trouble; upstream gives its pods the same tolerations.
TOLERATED: Final = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)
# Of pods that were let go, one after the other, on one node; after that it waits for one of them to go.
NAMES_TRIED: Final = 16


class DaemonSets(Keyed):
    """The decider. Keys are ``namespace/name`` of DaemonSets."""

    name = "daemonsets"
    kinds: Sequence[Kind] = (DAEMON_SETS, NODES, PODS, CONTROLLER_REVISIONS, RESOURCE_QUOTAS)
    counted = True

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._pods = world.index(PODS, owning.controller_of)
        self._orphans = world.index(PODS, owning.orphan_in)
        self._owners = owning.Owners(world, DAEMON_SETS, lambda key, pod: _wants(world.get(DAEMON_SETS, key), pod))
        self._revisions = world.index(CONTROLLER_REVISIONS, owning.controller_of)
        self._gone: dict[str, dict[str, str]] = {}  # uid of a set -> node -> uid of the pod that was there last

    def concerned(self, change: Change) -> Iterable[str]:
        if change.kind == DAEMON_SETS:
            return [change.object.key]
        if change.kind == NODES:
            same = change.old is not None and change.new is not None and _shape(change.old) == _shape(change.new)
            return () if same else tuple(self.world.all(DAEMON_SETS))
        controller = change.object.metadata.controller
        if controller is not None and change.kind == PODS and isinstance(change.old, Pod) and change.new is None:
            self._gone.setdefault(controller.uid, {})[_aimed_at(change.old)] = change.old.uid
        return self._owners.of(change)

    def decide(self, key: str, now: float) -> list[Write]:
        found: DaemonSet | None = self.world.get(DAEMON_SETS, key)
        if found is None:
            self.forget(key)
            self._gone = {uid: nodes for uid, nodes in self._gone.items() if any(True for _ in self._owners.with_uid[uid])}
            return []
        spec = msgspec.convert(found.spec.template.spec, PodSpec)
        wanted = {name for name, node in self.world.all(NODES).items() if _fits(spec, node)}
        pods: dict[str, list[Pod]] = {}
        owned = [self.world.get(PODS, pod_key) for pod_key in self._pods[found.uid]]
        for pod in owned:
            if _wants(found, pod):
                pods.setdefault(_aimed_at(pod), []).append(pod)
        known = (self.world.get(CONTROLLER_REVISIONS, each) for each in self._revisions[found.uid])
        history = History(found, DAEMON_SETS, known)
        revision = history.hash_of(history.current)
        if found.metadata.deletion_timestamp is not None:
            return self._status(found, wanted, pods, revision, now)
        hashes = {pod.metadata.labels.get(HASH) for here in pods.values() for pod in here}
        writes = history.writes(found.spec.revision_history_limit, lambda name: history.hash_of(name) in hashes)
        writes += self._moved(found, owned) or self._place(found, wanted, pods, revision, now)
        return writes + self._status(found, wanted, pods, revision, now)

    def _moved(self, found: DaemonSet, owned: list[Pod]) -> list[Write]:
        """Pods that change hands: own ones that no longer match, and matching ones that nothing controls."""
        strays = (self.world.get(PODS, key) for key in self._orphans[found.metadata.namespace])
        moved = [owning.adopt(PODS, pod, DAEMON_SETS, found) for pod in strays if _is_stray(found, pod)]
        lost = [pod for pod in owned if podstate.active(pod) and not _wants(found, pod)]
        return moved + [owning.release(PODS, pod, found.uid) for pod in lost]

    def _place(self, found: DaemonSet, wanted: set[str], pods: dict[str, list[Pod]], revision: str, now: float) -> list[Write]:
        writes = []
        for node, here in pods.items():
            living = [pod for pod in here if podstate.active(pod)]
            ended = [pod for pod in here if pod.terminal and pod.metadata.deletion_timestamp is None]
            surplus = living if node not in wanted else _surplus(living, revision, _surge(found, len(wanted)))
            writes += [owning.delete(PODS, pod) for pod in (*ended, *surplus)]
        writes += [self._create(found, node, revision) for node in sorted(wanted) if not pods.get(node)]
        if writes:
            return writes
        surge = _surge(found, len(wanted))
        return self._surge(found, wanted, pods, revision, surge, now) if surge else self._update(found, wanted, pods, revision)

    def _surge(
        self, found: DaemonSet, wanted: set[str], pods: dict[str, list[Pod]], revision: str, most: int, now: float
    ) -> list[Write]:
        """New pods come beside old ones; an old one goes when the new one beside it is available."""
        if found.spec.update_strategy.type == "OnDelete":
            return []
        writes, beside = [], 0
        for node in sorted(wanted):
            living = [pod for pod in pods.get(node, ()) if podstate.active(pod)]
            old = [pod for pod in living if pod.metadata.labels.get(HASH) != revision]
            new = [pod for pod in living if pod.metadata.labels.get(HASH) == revision]
            beside += bool(old and new)
            times = [podstate.available_at(pod, found.spec.min_ready_seconds) for pod in new]
            if any(at is not None and at <= now for at in times):
                writes += [owning.delete(PODS, pod) for pod in old]
        waiting = [node for node in sorted(wanted) if not _has(pods.get(node, ()), revision)]
        return writes + [self._create(found, node, revision) for node in waiting[: max(0, most - beside)]]

    def _create(self, found: DaemonSet, node: str, revision: str) -> Write:
        return _create(found, node, revision, self._name(found, node, revision))

    def _name(self, found: DaemonSet, node: str, revision: str) -> str:
        """One that follows from the pod that was there last, so that a name is not used again; another than those of pods that
        were let go and are still there."""
        before = self._gone.get(found.uid, {}).get(node, "")
        for _ in range(NAMES_TRIED):
            name = generated(found.metadata.name, found.uid, revision, node, before)
            taken: Pod | None = self.world.get(PODS, f"{found.metadata.namespace}/{name}")
            if taken is None:
                break
            before = taken.uid
        return name

    def _update(self, found: DaemonSet, wanted: set[str], pods: dict[str, list[Pod]], revision: str) -> list[Write]:
        strategy = found.spec.update_strategy
        if strategy.type == "OnDelete":
            return []
        limit = strategy.rolling_update.max_unavailable if strategy.rolling_update is not None else None
        allowed = max(1, bound(limit, "1", len(wanted), up=True))
        current = [pod for node in sorted(wanted) for pod in pods.get(node, ())]
        missing = len(wanted) - sum(podstate.active(pod) and podstate.ready(pod) for pod in current)
        old = [pod for pod in current if podstate.active(pod) and pod.metadata.labels.get(HASH) != revision]
        broken = [pod for pod in old if not podstate.ready(pod)]
        ready = [pod for pod in old if podstate.ready(pod)]
        return [owning.delete(PODS, pod) for pod in (*broken, *ready[: max(0, allowed - missing)])]

    def _status(self, found: DaemonSet, wanted: set[str], pods: dict[str, list[Pod]], revision: str, now: float) -> list[Write]:
        active = {
            node: max(living, key=lambda pod: (podstate.ready(pod), pod.metadata.labels.get(HASH) == revision))
            for node, here in pods.items()
            if (living := [pod for pod in here if podstate.active(pod)])
        }
        right = [pod for node, pod in sorted(active.items()) if node in wanted]
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
            "updatedNumberScheduled": sum(pod.metadata.labels.get(HASH) == revision for pod in right),
        }
        if list(status.values()) == [getattr(found.status, field) for field in found.status.__struct_fields__]:
            return []
        namespace, name = found.metadata.namespace, found.metadata.name
        return [Write("patch", DAEMON_SETS, namespace, name, {"status": status}, subresource="status", uid=found.uid)]


def _is_stray(found: DaemonSet, pod: Pod) -> bool:
    """One that nothing controls, and that could be a daemon of the set: on a node, or aimed at one."""
    return podstate.active(pod) and bool(_aimed_at(pod)) and _wants(found, pod)


def _wants(found: DaemonSet, pod: Object) -> bool:
    return selects(found.spec.selector, pod.metadata.labels)


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


def _surge(found: DaemonSet, nodes: int) -> int:
    rolling = found.spec.update_strategy.rolling_update
    return bound(rolling.max_surge if rolling is not None else None, "0", nodes, up=True)


def _has(pods: Iterable[Pod], revision: str) -> bool:
    return any(podstate.active(pod) and pod.metadata.labels.get(HASH) == revision for pod in pods)


def _surplus(living: list[Pod], revision: str, surge: int) -> list[Pod]:
    """Of several pods on a node all but one; while an update surges, all but one of the old and one of the new."""
    if not surge:
        return sorted(living, key=podstate.removal_order)[:-1]
    old = [pod for pod in living if pod.metadata.labels.get(HASH) != revision]
    new = [pod for pod in living if pod.metadata.labels.get(HASH) == revision]
    return [*sorted(old, key=podstate.removal_order)[:-1], *sorted(new, key=podstate.removal_order)[:-1]]


def _create(found: DaemonSet, node: str, revision: str, name: str) -> Write:
    namespace = found.metadata.namespace
    body = pod_from(found.spec.template, name, namespace, owning.reference(DAEMON_SETS, found))
    body["metadata"]["labels"] = {**body["metadata"]["labels"], HASH: revision}
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
