"""Pods that nobody will ever report on again are failed and removed; of finished ones only so many are kept.

Nobody reports on a pod whose node is gone, on one that was deleted before it had a node, and on one that was deleted on a node
which its administrator declared out of service.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from dray.api.core import Node, Pod
from dray.api.kinds import NODES, PODS, Kind
from dray.api.times import format_time
from dray.cluster.port import Change, Write
from dray.cluster.world import World
from dray.controllers.keyed import Keyed

# A node object that is deleted and made again at once keeps its pods.
QUARANTINE_SECONDS: Final = 40.0
FINISHED_MAX: Final = 12_500
OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"


class PodGarbage(Keyed):
    """The decider. Keys are ``namespace/name`` of pods."""

    name = "podgarbage"
    kinds: Sequence[Kind] = (PODS, NODES)

    def __init__(self, world: World, finished_max: int = FINISHED_MAX) -> None:
        super().__init__(world)
        self._pods = world.index(PODS, lambda pod: (pod.spec.node_name,) if pod.spec.node_name else ())
        self._finished = world.index(PODS, lambda pod: ("finished",) if pod.terminal else ())
        self._finished_max = finished_max
        self._missing: dict[str, float] = {}

    def concerned(self, change: Change) -> Iterable[str]:
        if change.kind == NODES:
            name = change.object.metadata.name
            if change.new is not None:
                self._missing.pop(name, None)
            return tuple(self._pods[name]) if change.new is None or _out_of_service(change.new) else ()
        pod = change.new
        if not isinstance(pod, Pod):
            return ()
        lonely = bool(pod.spec.node_name) or pod.metadata.deletion_timestamp is not None
        return ([pod.key] if lonely else []) + (self._too_many() if pod.terminal else [])

    def _too_many(self) -> list[str]:
        """The finished pods beyond those that are kept, oldest first."""
        found = self._finished["finished"]
        over = len(found) - self._finished_max
        if over <= 0:
            return []
        return sorted(found, key=lambda key: (self.world.get(PODS, key).metadata.creation_timestamp or "", key))[:over]

    def decide(self, key: str, now: float) -> list[Write]:
        pod: Pod | None = self.world.get(PODS, key)
        if pod is None:
            self.forget(key)
            return []
        why = self._abandoned(pod, now)
        if why:
            return [self._failed(pod, why, now)] if not pod.terminal else [_delete(pod)]
        if pod.terminal and pod.metadata.deletion_timestamp is None and key in self._too_many():
            return [_delete(pod)]
        return []

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
        condition = {
            "type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC", "message": f"PodGC: {why}",
            "lastTransitionTime": format_time(now),
        }  # fmt: skip
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
