"""ReplicaSets and ReplicationControllers: as many pods as asked for, made from the template; surplus ones go, matching strays
are adopted. A create that is refused shows as the condition ReplicaFailure until one succeeds.

Always true: a pod is created once although its answer is lost; nothing is deleted while it is unknown how many there are; only
pods that this ReplicaSet controls are deleted, and exactly those (by uid).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from dray.api.core import Pod, ReplicaSet, ReplicaSetSpec, ReplicationController
from dray.api.kinds import PODS, REPLICA_SETS, REPLICATION_CONTROLLERS, RESOURCE_QUOTAS, Kind
from dray.api.selectors import selects
from dray.api.times import format_time
from dray.cluster.port import Change, Outcome, Refused, Write
from dray.cluster.world import World
from dray.controllers import owning, podstate
from dray.controllers.creating import Creates, generated
from dray.controllers.keyed import Keyed

BURST: Final = 500
FAILURE: Final = "ReplicaFailure"


class ReplicaSets(Keyed):
    """The decider. Keys are ``namespace/name`` of ReplicaSets."""

    name = "replicasets"
    kinds: Sequence[Kind] = (REPLICA_SETS, PODS, RESOURCE_QUOTAS)
    counted = True
    kind: Kind = REPLICA_SETS
    source = "replicaset-controller"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._creates = Creates(PODS)
        self._refused: dict[str, str] = {}  # key -> why the last create was refused
        self._pods = world.index(PODS, owning.controller_of)
        self._orphans = world.index(PODS, owning.orphan_in)
        self._owners = owning.Owners(world, self.kind, lambda key, pod: self._selects(key, pod.metadata.labels))

    def _get(self, key: str) -> ReplicaSet | None:
        found: ReplicaSet | None = self.world.get(REPLICA_SETS, key)
        return found

    def _selects(self, key: str, labels: dict[str, str]) -> bool:
        return selects(self.world.get(REPLICA_SETS, key).spec.selector, labels)

    def concerned(self, change: Change) -> Iterable[str]:
        if change.kind == self.kind:
            return [change.object.key]
        return self._owners.of(change)

    def ended(self, key: str, outcome: Outcome, now: float) -> None:
        if outcome.write.verb != "create":
            return
        self._creates.ended(key, outcome, now)
        found = self.world.get(self.kind, key)
        if found is None or outcome.ok:
            self._refused.pop(key, None)
            return
        if isinstance(outcome.error, Refused):
            self._refused[key] = outcome.error.message
        note = f"Error creating: {outcome.error}"
        self.say(self._recorder.warning(self.kind, found, "FailedCreate", note, action="CreatePod", now=now))

    def decide(self, key: str, now: float) -> list[Write]:
        found = self._get(key)
        if found is None:
            self.forget(key)
            self._creates.forget(key)
            self._refused.pop(key, None)
            return []
        owned = [self.world.get(PODS, pod) for pod in self._pods[found.uid]]
        mine = [pod for pod in owned if selects(found.spec.selector, pod.metadata.labels)]
        active = [pod for pod in mine if podstate.active(pod)]
        if found.metadata.deletion_timestamp is not None:
            return self._status(found, active, now)
        moved = [owning.release(PODS, pod, found.uid) for pod in owned if pod not in mine and podstate.active(pod)]
        moved += self._adoptions(found)
        return (moved or self._scale(found, active, now)) + self._status(found, active, now)

    def _adoptions(self, found: ReplicaSet) -> list[Write]:
        strays = (self.world.get(PODS, key) for key in self._orphans[found.metadata.namespace])
        return [
            owning.adopt(PODS, pod, self.kind, found)
            for pod in strays
            if podstate.active(pod) and selects(found.spec.selector, pod.metadata.labels)
        ]

    def _scale(self, found: ReplicaSet, pods: list[Pod], now: float) -> list[Write]:
        namespace = found.metadata.namespace
        unseen = self._creates.unseen(found.key, lambda name: self.world.get(PODS, f"{namespace}/{name}") is not None, now)
        wanted = found.spec.replicas if found.spec.replicas is not None else 1
        difference = wanted - len(pods) - unseen
        if difference <= 0:
            self._refused.pop(found.key, None)
        if unseen:
            self.look_at(found.key, now + 5.0)
        if difference < 0 and not unseen:
            surplus = sorted(pods, key=podstate.removal_order)[: min(-difference, BURST)]
            return [owning.delete(PODS, pod) for pod in surplus]
        burst = 1 if found.key in self._refused else BURST  # who was refused tries with one
        new = [self._create(found, now, number) for number in range(min(difference, burst))]
        return [*self._creates.again(found.key, but=new), *new]

    def _create(self, found: ReplicaSet, now: float, number: int) -> Write:
        name = generated(found.metadata.name, found.uid, now, number)
        body = pod_from(found.spec.template, name, found.metadata.namespace, owning.reference(self.kind, found))
        return self._creates.send(found.key, found.metadata.namespace, name, body)

    def _status(self, found: ReplicaSet, pods: list[Pod], now: float) -> list[Write]:
        labels = found.spec.template.metadata.labels.items()
        times = [podstate.available_at(pod, found.spec.min_ready_seconds) for pod in pods]
        if later := [at for at in times if at is not None and at > now]:
            self.look_at(found.key, min(later))
        known = found.status
        status: dict[str, tuple[Any, Any]] = {
            "replicas": (len(pods), known.replicas),
            "fullyLabeledReplicas": (
                sum(labels <= pod.metadata.labels.items() for pod in pods),
                known.fully_labeled_replicas,
            ),
            "readyReplicas": (sum(at is not None for at in times), known.ready_replicas),
            "availableReplicas": (sum(at is not None and at <= now for at in times), known.available_replicas),
            "observedGeneration": (found.metadata.generation, known.observed_generation),
        }
        status |= self._conditions(found, now)
        if all(new == old for new, old in status.values()):
            return []
        body = {"status": {field: new for field, (new, _) in status.items()}}
        namespace, name = found.metadata.namespace, found.metadata.name
        return [Write("patch", self.kind, namespace, name, body, subresource="status", uid=found.uid)]

    def _conditions(self, found: ReplicaSet, now: float) -> dict[str, tuple[Any, Any]]:
        """The condition ReplicaFailure, where it has to come or go."""
        had = next((c for c in found.status.conditions if c.type == FAILURE), None)
        why = self._refused.get(found.key)
        if (had is None) == (why is None):  # the message names another pod each time
            return {}
        others = [c for c in found.status.conditions if c.type != FAILURE]
        made = {
            "type": FAILURE,
            "status": "True",
            "reason": "FailedCreate",
            "message": why,
            "lastTransitionTime": format_time(now),
        }
        return {"conditions": ([*others, made] if why is not None else others, None)}


class ReplicationControllers(ReplicaSets):
    """The same for ReplicationControllers, whose selector is a map of labels. Keys are their ``namespace/name``."""

    name = "replicationcontrollers"
    kinds: Sequence[Kind] = (REPLICATION_CONTROLLERS, PODS, RESOURCE_QUOTAS)
    counted = True
    kind = REPLICATION_CONTROLLERS
    source = "replication-controller"

    def _get(self, key: str) -> ReplicaSet | None:
        found: ReplicationController | None = self.world.get(REPLICATION_CONTROLLERS, key)
        if found is None:
            return None
        spec = {**found.spec, "selector": {"matchLabels": found.spec.get("selector") or {}}}
        return ReplicaSet(metadata=found.metadata, spec=msgspec.convert(spec, ReplicaSetSpec), status=found.status)

    def _selects(self, key: str, labels: dict[str, str]) -> bool:
        selector = self.world.get(REPLICATION_CONTROLLERS, key).spec.get("selector")
        return bool(selector) and selector.items() <= labels.items()


def pod_from(template: Any, name: str, namespace: str, owner: dict[str, Any]) -> dict[str, Any]:
    """The pod that a template describes."""
    given = template.metadata
    metadata: dict[str, Any] = {"name": name, "namespace": namespace, "labels": given.labels}
    if given.annotations:
        metadata["annotations"] = given.annotations
    if given.finalizers:
        metadata["finalizers"] = given.finalizers
    metadata["ownerReferences"] = [owner]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template.spec}
