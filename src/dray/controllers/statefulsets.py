"""StatefulSets: pods with stable names, started, replaced and removed in the order of their ordinals.

Always true: a name has one pod at a time, because the API allows no second one; with OrderedReady a pod is started or removed
only when every pod before it is ready. Volume claim templates are not made.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from dray.api.core import Pod, StatefulSet
from dray.api.kinds import PODS, STATEFUL_SETS, Kind
from dray.cluster.port import Change, Write
from dray.cluster.world import World
from dray.controllers import owning, podstate
from dray.controllers.creating import suffix
from dray.controllers.keyed import Keyed
from dray.controllers.replicasets import pod_from

REVISION: Final = "controller-revision-hash"
POD_NAME: Final = "statefulset.kubernetes.io/pod-name"
POD_INDEX: Final = "apps.kubernetes.io/pod-index"


class StatefulSets(Keyed):
    """The decider. Keys are ``namespace/name`` of StatefulSets."""

    name = "statefulsets"
    kinds: Sequence[Kind] = (STATEFUL_SETS, PODS)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._pods = world.index(PODS, owning.controller_of)
        self._by_uid = world.index(STATEFUL_SETS, lambda found: (found.uid,))

    def concerned(self, change: Change) -> Iterable[str]:
        if change.kind == STATEFUL_SETS:
            return [change.object.key]
        controller = change.object.metadata.controller
        return self._by_uid[controller.uid] if controller is not None else ()

    def decide(self, key: str, now: float) -> list[Write]:
        found: StatefulSet | None = self.world.get(STATEFUL_SETS, key)
        if found is None:
            self.forget(key)
            return []
        pods = {}
        for pod_key in self._pods[found.uid]:
            pod = self.world.get(PODS, pod_key)
            if (ordinal := _ordinal(found, pod)) is not None:
                pods[ordinal] = pod
        revision = _revision(found)
        writes = self._scale(found, pods, revision) if found.metadata.deletion_timestamp is None else []
        return writes + self._status(found, pods, revision, now)

    def _scale(self, found: StatefulSet, pods: dict[int, Pod], revision: str) -> list[Write]:
        start = found.spec.ordinals.start if found.spec.ordinals is not None else 0
        wanted = range(start, start + (found.spec.replicas if found.spec.replicas is not None else 1))
        parallel = found.spec.pod_management_policy == "Parallel"
        writes: list[Write] = []
        for ordinal in wanted:
            pod = pods.get(ordinal)
            if pod is None:
                writes.append(_create(found, ordinal, revision))
            elif pod.terminal and pod.metadata.deletion_timestamp is None:
                writes.append(owning.delete(PODS, pod))
            if not parallel and (pod is None or not (podstate.active(pod) and podstate.ready(pod))):
                return writes
        surplus = [pod for ordinal, pod in sorted(pods.items(), reverse=True) if ordinal not in wanted]
        leaving = [pod for pod in surplus if pod.metadata.deletion_timestamp is None]
        if not parallel and len(leaving) < len(surplus):
            return writes
        writes += [owning.delete(PODS, pod) for pod in (leaving if parallel else leaving[:1])]
        return writes or self._update(found, pods, wanted, revision)

    def _update(self, found: StatefulSet, pods: dict[int, Pod], wanted: range, revision: str) -> list[Write]:
        """The highest ordinal of another revision is replaced, when all others are ready."""
        strategy = found.spec.update_strategy
        if strategy.type == "OnDelete":
            return []
        first = strategy.rolling_update.partition if strategy.rolling_update is not None else 0
        for ordinal in reversed(wanted):
            pod = pods[ordinal]
            if not (podstate.active(pod) and podstate.ready(pod)):
                return []
            if ordinal >= first and pod.metadata.labels.get(REVISION) != revision:
                return [owning.delete(PODS, pod)]
        return []

    def _status(self, found: StatefulSet, pods: dict[int, Pod], revision: str, now: float) -> list[Write]:
        active = [pod for pod in pods.values() if podstate.active(pod)]
        times = [podstate.available_at(pod, found.spec.min_ready_seconds) for pod in active]
        if later := [at for at in times if at is not None and at > now]:
            self.look_at(found.key, min(later))
        updated = sum(pod.metadata.labels.get(REVISION) == revision for pod in active)
        known = found.status
        current = revision if not known.current_revision or updated == len(active) else known.current_revision
        status = {
            "observedGeneration": found.metadata.generation,
            "replicas": len(active),
            "readyReplicas": sum(at is not None for at in times),
            "availableReplicas": sum(at is not None and at <= now for at in times),
            "currentReplicas": sum(pod.metadata.labels.get(REVISION) == current for pod in active),
            "updatedReplicas": updated,
            "currentRevision": current,
            "updateRevision": revision,
        }
        if list(status.values()) == [getattr(known, field) for field in known.__struct_fields__]:
            return []
        namespace, name = found.metadata.namespace, found.metadata.name
        return [Write("patch", STATEFUL_SETS, namespace, name, {"status": status}, subresource="status", uid=found.uid)]


def _ordinal(found: StatefulSet, pod: Pod) -> int | None:
    base, _, number = pod.metadata.name.rpartition("-")
    return int(number) if base == found.metadata.name and number.isdigit() else None


def _revision(found: StatefulSet) -> str:
    template = msgspec.json.encode(found.spec.template, order="sorted")
    return f"{found.metadata.name[:52]}-{suffix(template, length=10)}"


def _create(found: StatefulSet, ordinal: int, revision: str) -> Write:
    name, namespace = f"{found.metadata.name}-{ordinal}", found.metadata.namespace
    body: dict[str, Any] = pod_from(found.spec.template, name, namespace, owning.reference(STATEFUL_SETS, found))
    own = {REVISION: revision, POD_NAME: name, POD_INDEX: str(ordinal)}
    body["metadata"]["labels"] = {**body["metadata"]["labels"], **own}
    body["spec"] = {**body["spec"], "hostname": name}
    if found.spec.service_name:
        body["spec"]["subdomain"] = found.spec.service_name
    return Write("create", PODS, namespace, name, body)
