"""Pods leave nodes with NoExecute taints that they do not tolerate, or not for ever.

Always true: deadlines follow from what the API shows (when the taint was added, when the pod came to the node), so a restart
neither forgives nor hurries anybody; only a taint that does not tell its time counts from when it was noticed. A pod is deleted
only by its uid and after its status says why; finished pods stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from dray.api import disruption
from dray.api.core import Node, Pod, Taint
from dray.api.kinds import NODES, PODS, Kind
from dray.api.meta import Object
from dray.api.times import parse_time
from dray.cluster.port import Change, Event, Write
from dray.cluster.world import World
from dray.controllers.keyed import Keyed
from dray.scheduling.plugins.node import tolerated

REASON: Final = "DeletionByTaintManager"
MESSAGE: Final = "Taint manager: deleting due to NoExecute taint"
NEVER: Final = float("inf")

Mark = tuple[str, str]  # key and value of a taint


class NodeEviction(Keyed):
    """The decider. Keys are ``namespace/name`` of pods."""

    name = "nodeeviction"
    source = "taint-eviction-controller"
    kinds: Sequence[Kind] = (PODS, NODES)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._pods = world.index(PODS, lambda pod: (pod.spec.node_name,) if pod.spec.node_name else ())
        self._due: dict[str, str] = {}  # pods that have a deadline, by key, with their uid
        self._noticed: dict[str, dict[Mark, float]] = {}  # node -> its taints, and since when they are known

    def observe(self, event: Event, now: float) -> None:
        if isinstance(event, Change) and event.kind == NODES:
            self._notice(event.object.metadata.name, event.new, now)
        super().observe(event, now)

    def _notice(self, name: str, node: Object | None, now: float) -> None:
        marks = [(taint.key, taint.value) for taint in _driving(node)] if isinstance(node, Node) else []
        known = self._noticed.pop(name, {})
        if marks:
            self._noticed[name] = {mark: known.get(mark, now) for mark in marks}

    def concerned(self, change: Change) -> Iterable[str]:
        if isinstance(change.object, Pod):
            return [change.object.key] if self._driven(change.object) or change.object.key in self._due else ()
        old, new = (tuple(_driving(node)) if isinstance(node, Node) else () for node in (change.old, change.new))
        return tuple(self._pods[change.object.metadata.name]) if old != new else ()

    def decide(self, key: str, now: float) -> list[Write]:
        pod: Pod | None = self.world.get(PODS, key)
        if pod is None or pod.terminal or pod.metadata.deletion_timestamp is not None:
            self.forget(key)
            return []
        deadline = min((self._deadline(pod, taint, now) for taint in self._driven(pod)), default=NEVER)
        if deadline == NEVER:
            self._cancel(pod, now)
            return []
        if now < deadline:
            self._due[key] = pod.uid
            self.look_at(key, deadline)
            return []
        if not disruption.is_target(pod):
            note = f"Marking for deletion Pod {key}"
            self.say(self._recorder.normal(PODS, pod, "TaintManagerEviction", note, action="Evict", now=now))
            return [_marked(pod, now)]
        return [Write("delete", PODS, pod.metadata.namespace, pod.metadata.name, uid=pod.uid)]

    def forget(self, key: str) -> None:
        super().forget(key)
        self._due.pop(key, None)

    def _cancel(self, pod: Pod, now: float) -> None:
        if self._due.get(pod.key) == pod.uid:
            note = f"Cancelling deletion of Pod {pod.key}"
            self.say(self._recorder.normal(PODS, pod, "TaintManagerEviction", note, action="Evict", now=now))
        self.forget(pod.key)

    def _deadline(self, pod: Pod, taint: Taint, now: float) -> float:
        """When the pod must leave because of this taint: its first toleration that matches says how long it may stay."""
        matching = next((each for each in pod.spec.tolerations if tolerated(taint, (each,))), None)
        if matching is None:
            return 0.0
        if matching.toleration_seconds is None:
            return NEVER
        noticed = self._noticed.get(pod.spec.node_name, {}).get((taint.key, taint.value), now)
        added = parse_time(taint.time_added) if taint.time_added else noticed
        return max(added, _arrived(pod, now)) + max(0, matching.toleration_seconds)

    def _driven(self, pod: Pod) -> Iterable[Taint]:
        node: Node | None = self.world.get(NODES, pod.spec.node_name) if pod.spec.node_name else None
        return tuple(_driving(node)) if node is not None else ()


def _driving(node: Node) -> Iterable[Taint]:
    return (taint for taint in node.spec.taints if taint.effect == "NoExecute")


def _arrived(pod: Pod, now: float) -> float:
    """When the pod came to its node."""
    bound = next((c.last_transition_time for c in pod.status.conditions if c.type == "PodScheduled" and c.status == "True"), None)
    known = bound or pod.status.start_time or pod.metadata.creation_timestamp
    return parse_time(known) if known else now


def _marked(pod: Pod, now: float) -> Write:
    body = {"status": {"conditions": [disruption.target(REASON, MESSAGE, now)]}}
    namespace, name = pod.metadata.namespace, pod.metadata.name
    return Write("patch", PODS, namespace, name, body, subresource="status", patch="strategic", uid=pod.uid)
