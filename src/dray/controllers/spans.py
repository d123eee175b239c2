"""Pods that say over how many zones they may be spread, held against where they were observed to be.

On a node whose kubelet never refuses a pod may end up otherwise than was predicted. Such a pod is told about in an event; one
that asks for it (``dray.dev/numa-heal``) is evicted, so that its controller makes it anew and it is placed elsewhere. Always
true: a pod without a controller is never evicted, because nobody would make it again; disruption budgets count; of one
controller's pods one is evicted at a time, and then none for a while, so that what cannot be kept costs little.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from dray.api.core import Pod
from dray.api.kinds import PODS, Kind
from dray.cluster.metrics import Declared, Meter, Silent
from dray.cluster.port import Change, Write
from dray.cluster.world import World
from dray.controllers.keyed import Keyed
from dray.numa.demand import Amounts
from dray.numa.intent import Intent, IntentError, intent, missed
from dray.numa.placement import GROUPS_OBSERVED, OBSERVED, groups_of, shares_of
from dray.numa.refused import SPREAD

# One pod of a controller in so many seconds.
REST_SECONDS: Final = 60.0
METRICS: Final[Declared] = {
    "dray_numa_spans_missed_total": ("counter", (), "Pods observed in more zones than they allow"),
    "dray_numa_pods_healed_total": ("counter", (), "Pods evicted for using more zones than they allow"),
}


class Spans(Keyed):
    """The decider. Keys are ``namespace/name`` of pods."""

    name = "spans"
    source = "dray-controllers"
    kinds: Sequence[Kind] = (PODS,)

    def __init__(self, world: World, meter: Meter | None) -> None:
        super().__init__(world)
        self._meter = meter or Silent()
        self._told: dict[str, str] = {}  # by key of the pod: its uid
        self._rests: dict[str, float] = {}  # controllers of evicted pods, by uid, and until when

    def concerned(self, change: Change) -> Iterable[str]:
        pod = change.object
        if not isinstance(pod, Pod):
            return ()
        observed = OBSERVED in pod.metadata.annotations or GROUPS_OBSERVED in pod.metadata.annotations
        return (pod.key,) if observed or pod.key in self._told else ()

    def decide(self, key: str, now: float) -> list[Write]:
        pod: Pod | None = self.world.get(PODS, key)
        found = over(pod) if pod is not None else None
        if pod is None or found is None or pod.terminal or pod.metadata.deletion_timestamp is not None:
            self._told.pop(key, None)
            return []
        own, zones = found
        if self._told.get(key) != pod.uid:
            self._told[key] = pod.uid
            self._tell(pod, own, zones, now)
        return self._heal(pod, now) if own.heal else []

    def _tell(self, pod: Pod, own: Intent, zones: int, now: float) -> None:
        self._meter.count("dray_numa_spans_missed_total")
        what = ", ".join(sorted(own.resources)) if own.resources is not None else "its resources"
        words = f"{what} are in {zones + own.span} zones of {pod.spec.node_name}, but the pod allows {own.span}"
        if own.heal and pod.metadata.controller is None:
            words += "; it is not evicted, because no controller would recreate it"
        self.say(self._recorder.warning(PODS, pod, SPREAD, words, action="Observing", now=now))

    def _heal(self, pod: Pod, now: float) -> list[Write]:
        controller = pod.metadata.controller
        if controller is None:
            return []
        self._rests = {uid: until for uid, until in self._rests.items() if until > now}
        if (until := self._rests.get(controller.uid)) is not None:
            self.look_at(pod.key, until)
            return []
        self._rests[controller.uid] = now + REST_SECONDS
        self._meter.count("dray_numa_pods_healed_total")
        namespace, name = pod.metadata.namespace, pod.metadata.name
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": pod.uid}},
        }
        return [Write("create", PODS, namespace, name, body, "eviction")]


def over(pod: Pod) -> tuple[Intent, int] | None:
    """What a pod says, and in how many zones too many it was observed; None for one that is where it should be."""
    annotations = pod.metadata.annotations
    shares, together = shares_of(annotations.get(OBSERVED, "")), groups_of(annotations.get(GROUPS_OBSERVED, ""))
    if not shares and not together:
        return None
    try:
        own = intent(pod)
    except IntentError:
        return None
    if own is None:
        return None
    # The zones by any numbers: which they are does not matter.
    named = (*(share.zone for share in shares), *(zone for group in together for zone in group.memory_nodes))
    places = {zone: place for place, zone in enumerate(dict.fromkeys(named))}
    placed = tuple((places[share.zone], _some(share.amount)) for share in shares)
    groups = tuple((sum(1 << places[zone] for zone in set(group.memory_nodes)), _some(group.amount)) for group in together)
    zones = missed(own, placed, groups)
    return (own, zones) if zones else None


def _some(amounts: Iterable[str]) -> Amounts:
    return tuple((name, 1) for name in amounts)
