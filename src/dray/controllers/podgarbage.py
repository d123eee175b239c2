"""Pods that nobody will ever report on again are failed and removed; of finished ones only so many are kept.

Nobody reports on a pod whose node is gone, on one that was deleted before it had a node, and on one that was deleted on a node
which its administrator declared out of service.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import Final

from dray.api import disruption
from dray.api.core import Node, Pod
from dray.api.kinds import NODES, PODS, Kind
from dray.cluster.port import Change, Write
from dray.cluster.world import World
from dray.controllers.keyed import Keyed

# A node object that is deleted and made again at once keeps its pods.
QUARANTINE_SECONDS: Final = 40.0
FINISHED_MAX: Final = 12_500
OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"


Aged = tuple[str, str, str]  # creation, key and uid of a pod


class PodGarbage(Keyed):
    """The decider. Keys are ``namespace/name`` of pods."""

    name = "podgarbage"
    kinds: Sequence[Kind] = (PODS, NODES)

    def __init__(self, world: World, finished_max: int = FINISHED_MAX) -> None:
        super().__init__(world)
        self._pods = world.index(PODS, lambda pod: (pod.spec.node_name,) if pod.spec.node_name else ())
        self._missing: dict[str, float] = {}
        self._finished: dict[str, Aged] = {}  # pods that are kept although finished, by key
        self._oldest: list[Aged] = []  # the same by age, and some that went
        self._finished_max = finished_max
        self._surplus: set[str] = set()

    def concerned(self, change: Change) -> Iterable[str]:
        if change.kind == NODES:
            name = change.object.metadata.name
            if change.new is not None:
                self._missing.pop(name, None)
            return tuple(self._pods[name]) if change.new is None or _out_of_service(change.new) else ()
        pod = change.object
        assert isinstance(pod, Pod)
        if change.new is None:
            self._surplus.discard(pod.key)
            if self._finished.pop(pod.key, None) is not None and len(self._oldest) > 2 * len(self._finished):
                self._oldest = sorted(self._finished.values())
            return ()
        lonely = bool(pod.spec.node_name) or pod.metadata.deletion_timestamp is not None
        return ([pod.key] if lonely else []) + (self._too_many(pod) if pod.terminal else [])

    def _too_many(self, pod: Pod) -> list[str]:
        """The finished pods that must go because this one is finished: the oldest."""
        aged = (pod.metadata.creation_timestamp or "", pod.key, pod.uid)
        if pod.key not in self._surplus and self._finished.get(pod.key) != aged:
            self._finished[pod.key] = aged
            heapq.heappush(self._oldest, aged)
        found: list[str] = []
        while len(self._finished) > self._finished_max:
            oldest = heapq.heappop(self._oldest)
            key = oldest[1]
            if self._finished.get(key) == oldest:
                del self._finished[key]
                self._surplus.add(key)
                found.append(key)
        return found

    def decide(self, key: str, now: float) -> list[Write]:
        pod: Pod | None = self.world.get(PODS, key)
        if pod is None:
            self.forget(key)
            return []
        why = self._abandoned(pod, now)
        if why and not pod.terminal:
            return [self._failed(pod, why, now)]
        # One that is deleted with no grace left only waits for who holds it.
        leaving = pod.metadata.deletion_timestamp is not None and not pod.metadata.deletion_grace_period_seconds
        return [_delete(pod)] if (why or key in self._surplus) and pod.terminal and not leaving else []

    def _abandoned(self, pod: Pod, now: float) -> str:
        """Why nobody will report on the pod; empty if somebody may."""
        deleted, name = pod.metadata.deletion_timestamp is not None, pod.spec.node_name
        if not name:
            return "the pod was deleted before it had a node" if deleted else ""
        node: Node | None = self.world.get(NODES, name)
        if node is not None:
            return f"node {name} is out of service" if deleted and _out_of_service(node) else ""
        due = self._missing.setdefault(name, now) + QUARANTINE_SECONDS
        if now < due:
            self.look_at(pod.key, due)
            return ""
        return f"node {name} is gone"

    def _failed(self, pod: Pod, why: str, now: float) -> Write:
        condition = disruption.target("DeletionByPodGC", f"PodGC: {why}", now)
        body = {"status": {"phase": "Failed", "reason": "NodeLost", "message": why, "conditions": [condition]}}
        namespace, name = pod.metadata.namespace, pod.metadata.name
        return Write("patch", PODS, namespace, name, body, subresource="status", patch="strategic", uid=pod.uid)


def _out_of_service(node: object) -> bool:
    """Said by an administrator, and true: the node is not ready."""
    if not isinstance(node, Node) or not any(taint.key == OUT_OF_SERVICE for taint in node.spec.taints):
        return False
    return all(condition.status != "True" for condition in node.status.conditions if condition.type == "Ready")


def _delete(pod: Pod) -> Write:
    return Write("delete", PODS, pod.metadata.namespace, pod.metadata.name, {"gracePeriodSeconds": 0}, uid=pod.uid)
