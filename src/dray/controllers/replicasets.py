"""ReplicaSets: as many pods as asked for, made from the template; surplus ones go, matching strays are adopted.

Always true: a pod is created once although its answer is lost; nothing is deleted while it is unknown how many there are; only
pods that this ReplicaSet controls are deleted, and exactly those (by uid).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from dray.api.core import Pod, ReplicaSet
from dray.api.kinds import PODS, REPLICA_SETS, Kind
from dray.api.selectors import selects
from dray.cluster.port import Change, Outcome, Write
from dray.cluster.recorder import Recorder
from dray.cluster.world import World
from dray.controllers import owning, podstate
from dray.controllers.creating import Creates, generated
from dray.controllers.keyed import Keyed

BURST: Final = 500


class ReplicaSets(Keyed):
    """The decider. Keys are ``namespace/name`` of ReplicaSets."""

    name = "replicasets"
    kinds: Sequence[Kind] = (REPLICA_SETS, PODS)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._creates = Creates(PODS)
        self._recorder = Recorder("replicaset-controller")
        self._pods = world.index(PODS, owning.controller_of)
        self._orphans = world.index(PODS, owning.orphan_in)
        self._by_uid = world.index(REPLICA_SETS, lambda found: (found.uid,))
        self._by_namespace = world.index(REPLICA_SETS, lambda found: (found.metadata.namespace,))

    def concerned(self, change: Change) -> Iterable[str]:
        if change.kind == REPLICA_SETS:
            return [change.object.key]
        return [key for pod in (change.old, change.new) if pod is not None for key in self._wanting(pod)]

    def _wanting(self, pod: Any) -> Iterable[str]:
        if (controller := pod.metadata.controller) is not None:
            return self._by_uid[controller.uid]
        near = self._by_namespace[pod.metadata.namespace]
        return [key for key in near if selects(self.world.get(REPLICA_SETS, key).spec.selector, pod.metadata.labels)]

    def ended(self, key: str, outcome: Outcome, now: float) -> None:
        if outcome.write.verb != "create":
            return
        self._creates.ended(key, outcome, now)
        found = self.world.get(REPLICA_SETS, key)
        if found is not None and not outcome.ok:
            note = f"Error creating: {outcome.error}"
            self.say(self._recorder.warning(REPLICA_SETS, found, "FailedCreate", note, action="CreatePod", now=now))

    def decide(self, key: str, now: float) -> list[Write]:
        found: ReplicaSet | None = self.world.get(REPLICA_SETS, key)
        if found is None:
            self.forget(key)
            self._creates.forget(key)
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
            owning.adopt(PODS, pod, REPLICA_SETS, found)
            for pod in strays
            if podstate.active(pod) and selects(found.spec.selector, pod.metadata.labels)
        ]

    def _scale(self, found: ReplicaSet, pods: list[Pod], now: float) -> list[Write]:
        namespace = found.metadata.namespace
        unseen = self._creates.unseen(found.key, lambda name: self.world.get(PODS, f"{namespace}/{name}") is not None, now)
        wanted = found.spec.replicas if found.spec.replicas is not None else 1
        difference = wanted - len(pods) - unseen
        if unseen:
            self.look_at(found.key, now + 5.0)
        if difference < 0 and not unseen:
            surplus = sorted(pods, key=podstate.removal_order)[: min(-difference, BURST)]
            return [owning.delete(PODS, pod) for pod in surplus]
        new = [self._create(found, now, number) for number in range(min(difference, BURST))]
        return [*self._creates.again(found.key, but=new), *new]

    def _create(self, found: ReplicaSet, now: float, number: int) -> Write:
        name = generated(found.metadata.name, found.uid, now, number)
        body = pod_from(found.spec.template, name, found.metadata.namespace, owning.reference(REPLICA_SETS, found))
        return self._creates.send(found.key, found.metadata.namespace, name, body)

    def _status(self, found: ReplicaSet, pods: list[Pod], now: float) -> list[Write]:
        labels = found.spec.template.metadata.labels.items()
        times = [podstate.available_at(pod, found.spec.min_ready_seconds) for pod in pods]
        if later := [at for at in times if at is not None and at > now]:
            self.look_at(found.key, min(later))
        known = found.status
        status = {
            "replicas": (len(pods), known.replicas),
            "fullyLabeledReplicas": (
                sum(labels <= pod.metadata.labels.items() for pod in pods),
                known.fully_labeled_replicas,
            ),
            "readyReplicas": (sum(at is not None for at in times), known.ready_replicas),
            "availableReplicas": (sum(at is not None and at <= now for at in times), known.available_replicas),
            "observedGeneration": (found.metadata.generation, known.observed_generation),
        }
        if all(new == old for new, old in status.values()):
            return []
        body = {"status": {field: new for field, (new, _) in status.items()}}
        namespace, name = found.metadata.namespace, found.metadata.name
        return [Write("patch", REPLICA_SETS, namespace, name, body, subresource="status", uid=found.uid)]


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
