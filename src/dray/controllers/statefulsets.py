"""StatefulSets: pods with stable names, started, replaced and removed in the order of their ordinals.

Always true: a name has one pod at a time, because the API allows no second one; with OrderedReady a pod is started or removed
only when every pod before it is ready; a pod below the partition of an update is made from the template before the update. Old
templates are kept as ControllerRevisions. Volume claim templates are not made.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from dray.api.core import Pod, StatefulSet
from dray.api.digits import whole
from dray.api.kinds import CONTROLLER_REVISIONS, PODS, RESOURCE_QUOTAS, STATEFUL_SETS, Kind
from dray.api.meta import Object
from dray.api.selectors import selects
from dray.cluster.port import Change, Write
from dray.cluster.world import World
from dray.controllers import owning, podstate
from dray.controllers.keyed import Keyed
from dray.controllers.replicasets import pod_from
from dray.controllers.revisions import HASH, History
from dray.controllers.rollout import bound

POD_NAME: Final = "statefulset.kubernetes.io/pod-name"
POD_INDEX: Final = "apps.kubernetes.io/pod-index"


class StatefulSets(Keyed):
    """The decider. Keys are ``namespace/name`` of StatefulSets."""

    name = "statefulsets"
    kinds: Sequence[Kind] = (STATEFUL_SETS, PODS, CONTROLLER_REVISIONS, RESOURCE_QUOTAS)
    counted = True

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._pods = world.index(PODS, owning.controller_of)
        self._owners = owning.Owners(world, STATEFUL_SETS, lambda key, pod: _wants(world.get(STATEFUL_SETS, key), pod))
        self._orphans = world.index(PODS, owning.orphan_in)
        self._revisions = world.index(CONTROLLER_REVISIONS, owning.controller_of)

    def concerned(self, change: Change) -> Iterable[str]:
        if change.kind == STATEFUL_SETS:
            return [change.object.key]
        return self._owners.of(change)

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
        history = History(
            found, STATEFUL_SETS, (self.world.get(CONTROLLER_REVISIONS, each) for each in self._revisions[found.uid])
        )
        revision = history.current
        if found.metadata.deletion_timestamp is not None:
            return self._status(found, pods, revision, now)
        used = {found.status.current_revision, *(pod.metadata.labels.get(HASH) for pod in pods.values())}
        writes = history.writes(found.spec.revision_history_limit, used.__contains__)
        writes += self._adoptions(found) or self._scale(found, pods, history, now)
        return writes + self._status(found, pods, revision, now)

    def _adoptions(self, found: StatefulSet) -> list[Write]:
        """Pods with the set's names and labels that nothing controls are its own."""
        strays = [self.world.get(PODS, key) for key in self._orphans[found.metadata.namespace]]
        return [owning.adopt(PODS, pod, STATEFUL_SETS, found) for pod in strays if podstate.active(pod) and _wants(found, pod)]

    def _scale(self, found: StatefulSet, pods: dict[int, Pod], history: History, now: float) -> list[Write]:
        revision = history.current
        start = found.spec.ordinals.start if found.spec.ordinals is not None else 0
        wanted = range(start, start + (found.spec.replicas if found.spec.replicas is not None else 1))
        parallel = found.spec.pod_management_policy == "Parallel"
        writes: list[Write] = []
        for ordinal in wanted:
            pod = pods.get(ordinal)
            if pod is None:
                name = revision if ordinal >= self._partition(found) else found.status.current_revision or revision
                writes.append(_create(found, ordinal, name, history.template(name)))
            elif pod.terminal and pod.metadata.deletion_timestamp is None:
                writes.append(owning.delete(PODS, pod))
            if not parallel and (pod is None or not self._available(found, pod, now)):
                return writes or self._unstick(found, pod, ordinal, revision)
        surplus = [pod for ordinal, pod in sorted(pods.items(), reverse=True) if ordinal not in wanted]
        leaving = [pod for pod in surplus if pod.metadata.deletion_timestamp is None]
        if not parallel and len(leaving) < len(surplus):
            return writes
        writes += [owning.delete(PODS, pod) for pod in (leaving if parallel else leaving[:1])]
        return writes or self._update(found, pods, wanted, revision, now)

    def _partition(self, found: StatefulSet) -> int:
        strategy = found.spec.update_strategy
        return strategy.rolling_update.partition if strategy.rolling_update is not None else 0

    def _available(self, found: StatefulSet, pod: Pod, now: float) -> bool:
        at = podstate.available_at(pod, found.spec.min_ready_seconds)
        return podstate.active(pod) and at is not None and at <= now

    def _unstick(self, found: StatefulSet, pod: Pod | None, ordinal: int, revision: str) -> list[Write]:
        """A pod of an old template that does not become ready does not hold up the update that may mend it."""
        if pod is None or found.spec.update_strategy.type == "OnDelete" or podstate.ready(pod) or not podstate.active(pod):
            return []
        stale = pod.metadata.labels.get(HASH) != revision and ordinal >= self._partition(found)
        return [owning.delete(PODS, pod)] if stale and pod.status.phase != "Pending" else []

    def _update(self, found: StatefulSet, pods: dict[int, Pod], wanted: range, revision: str, now: float) -> list[Write]:
        """The highest ordinals of another revision are replaced, as many as may be missing at once."""
        strategy = found.spec.update_strategy
        if strategy.type == "OnDelete":
            return []
        most = strategy.rolling_update.max_unavailable if strategy.rolling_update is not None else None
        room = max(1, bound(most, "1", len(wanted), up=False)) - sum(not self._available(found, pods[n], now) for n in wanted)
        first = self._partition(found)
        old = [n for n in reversed(wanted) if n >= first and pods[n].metadata.labels.get(HASH) != revision]
        return [owning.delete(PODS, pods[n]) for n in old if podstate.active(pods[n])][: max(0, room)]

    def _status(self, found: StatefulSet, pods: dict[int, Pod], revision: str, now: float) -> list[Write]:
        active = [pod for pod in pods.values() if podstate.active(pod)]
        times = [podstate.available_at(pod, found.spec.min_ready_seconds) for pod in active]
        if later := [at for at in times if at is not None and at > now]:
            self.look_at(found.key, min(later))
        updated = sum(pod.metadata.labels.get(HASH) == revision for pod in active)
        known = found.status
        replicas = found.spec.replicas if found.spec.replicas is not None else 1
        done = updated == len(active) == replicas and sum(at is not None for at in times) == replicas
        current = revision if not known.current_revision or done else known.current_revision
        status = {
            "observedGeneration": found.metadata.generation,
            "replicas": len(active),
            "readyReplicas": sum(at is not None for at in times),
            "availableReplicas": sum(at is not None and at <= now for at in times),
            "currentReplicas": sum(pod.metadata.labels.get(HASH) == current for pod in active),
            "updatedReplicas": updated,
            "currentRevision": current,
            "updateRevision": revision,
        }
        if list(status.values()) == [getattr(known, field) for field in known.__struct_fields__]:
            return []
        namespace, name = found.metadata.namespace, found.metadata.name
        return [Write("patch", STATEFUL_SETS, namespace, name, {"status": status}, subresource="status", uid=found.uid)]


def _wants(found: StatefulSet, pod: Object) -> bool:
    """Whether a pod that nothing controls has one of the set's names, and its labels."""
    return _ordinal(found, pod) is not None and selects(found.spec.selector, pod.metadata.labels)


def _ordinal(found: StatefulSet, pod: Object) -> int | None:
    base, _, number = pod.metadata.name.rpartition("-")
    return whole(number) if base == found.metadata.name else None


def _create(found: StatefulSet, ordinal: int, revision: str, template: Any) -> Write:
    name, namespace = f"{found.metadata.name}-{ordinal}", found.metadata.namespace
    body: dict[str, Any] = pod_from(template, name, namespace, owning.reference(STATEFUL_SETS, found))
    own = {HASH: revision, POD_NAME: name, POD_INDEX: str(ordinal)}
    body["metadata"]["labels"] = {**body["metadata"]["labels"], **own}
    body["spec"] = {**body["spec"], "hostname": name}
    if found.spec.service_name:
        body["spec"]["subdomain"] = found.spec.service_name
    return Write("create", PODS, namespace, name, body)
