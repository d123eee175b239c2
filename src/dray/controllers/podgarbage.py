"""Pods whose node is gone: nobody will ever report on them again, so they are failed and removed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from dray.api.core import Pod
from dray.api.kinds import NODES, PODS, Kind
from dray.api.times import format_time
from dray.cluster.port import Change, Write
from dray.cluster.world import World
from dray.controllers.keyed import Keyed

# A node object that is deleted and made again at once keeps its pods.
QUARANTINE_SECONDS: Final = 40.0


class PodGarbage(Keyed):
    """The decider. Keys are ``namespace/name`` of pods."""

    name = "podgarbage"
    kinds: Sequence[Kind] = (PODS, NODES)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._pods = world.index(PODS, lambda pod: (pod.spec.node_name,) if pod.spec.node_name else ())
        self._missing: dict[str, float] = {}

    def concerned(self, change: Change) -> Iterable[str]:
        if change.kind == NODES:
            name = change.object.metadata.name
            if change.new is not None:
                self._missing.pop(name, None)
                return ()
            return tuple(self._pods[name])
        pod = change.new
        return [pod.key] if isinstance(pod, Pod) and pod.spec.node_name else ()

    def decide(self, key: str, now: float) -> list[Write]:
        pod: Pod | None = self.world.get(PODS, key)
        if pod is None or self.world.get(NODES, pod.spec.node_name) is not None:
            self.forget(key)
            return []
        due = self._missing.setdefault(pod.spec.node_name, now) + QUARANTINE_SECONDS
        if now < due:
            self.look_at(key, due)
            return []
        return [self._failed(pod, now)] if not pod.terminal else [_delete(pod)]

    def _failed(self, pod: Pod, now: float) -> Write:
        message = f"node {pod.spec.node_name} is gone"
        condition = {
            "type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC", "message": message,
            "lastTransitionTime": format_time(now),
        }  # fmt: skip
        body = {"status": {"phase": "Failed", "reason": "NodeLost", "message": message, "conditions": [condition]}}
        namespace, name = pod.metadata.namespace, pod.metadata.name
        return Write("patch", PODS, namespace, name, body, subresource="status", patch="strategic", uid=pod.uid)


def _delete(pod: Pod) -> Write:
    return Write("delete", PODS, pod.metadata.namespace, pod.metadata.name, {"gracePeriodSeconds": 0}, uid=pod.uid)
