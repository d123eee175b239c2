"""The placement exporter: writes into each pod's annotations which zones a kubelet really gave it.

What the kubelet says comes in through ``see``; what the API shows comes in as for every decider. Always true: a pod is only
patched when its annotations say something else than the kubelet does, so saying the same again costs nothing, and an
annotation that somebody took away comes back; every pod of the node is reported, whoever scheduled it; patches carry the pod's
uid and are limited in rate. What a kubelet says of a pod that started later than it said so is about another pod of that name,
and is not used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from dray.api.core import Pod
from dray.api.kinds import NODE_RESOURCE_TOPOLOGIES, PODS
from dray.api.times import parse_time
from dray.cluster.metrics import Declared, Meter, Silent
from dray.cluster.port import Change, Write
from dray.cluster.world import World
from dray.controllers.keyed import Keyed
from dray.numa.observe import as_annotations, observe
from dray.numa.podresources import ListPodResourcesResponse, PodResources

LOOK_SECONDS: Final = 1.0
# Patches: so many at once, and so many a second when there are more.
BURST: Final = 100
PER_SECOND: Final = 20.0

METRICS: Final[Declared] = {
    "dray_numa_exporter_lists_total": ("counter", ("result",), "Answers of the kubelet's podresources socket"),
    "dray_numa_exporter_writes_total": ("counter", (), "Placement annotations written"),
    "dray_numa_exporter_pods": ("gauge", (), "Pods of the node that use resources by zone"),
    "dray_numa_exporter_last_list_timestamp_seconds": ("gauge", (), "Time of the kubelet's last answer"),
}


class Exporter(Keyed):
    """The decider. Keys are ``namespace/name`` of pods on the node. ``due`` says when the kubelet should be asked."""

    name = "placement-exporter"
    kinds = (PODS, NODE_RESOURCE_TOPOLOGIES)

    def __init__(
        self, world: World, node: str, cpu_zones: Mapping[int, int], *, period: float = 10.0, meter: Meter | None = None
    ) -> None:
        super().__init__(world)
        self._node, self._cpu_zones, self._period, self._meter = node, cpu_zones, period, meter or Silent()
        self._seen: dict[str, PodResources] = {}
        self._seen_at = 0.0
        self._inbox: list[tuple[float, ListPodResourcesResponse]] = []
        self._tokens, self._filled_at = float(BURST), 0.0
        # When the kubelet should be asked next: soon after something changed, and now and then in any case.
        self.due = 0.0
        self._next = LOOK_SECONDS
        self._answered = False

    # --------------------------------------------------------------------------------------------------- from the kubelet

    def see(self, said: ListPodResourcesResponse, at: float) -> None:
        """What the kubelet said at this time; it is looked at when the exporter acts next, within a second."""
        self._answered = True
        self._inbox.append((at, said))
        self.due = at + self._period
        self._meter.count("dray_numa_exporter_lists_total", ("ok",))
        self._meter.gauge("dray_numa_exporter_last_list_timestamp_seconds", at)

    def unseen(self, at: float) -> None:
        """The kubelet did not answer."""
        self._answered = False
        self.due = at + min(self._period, LOOK_SECONDS * 5)
        self._meter.count("dray_numa_exporter_lists_total", ("error",))

    def silence(self) -> str | None:
        """None, or why there is nothing to report: a check of whether this is ready."""
        return None if self._answered else "no answer from the kubelet"

    def changed(self, at: float) -> None:
        """Something that the kubelet knows of has changed: ask it, but not more than once a second."""
        self.due = min(self.due, max(at, self._seen_at + LOOK_SECONDS))

    # ------------------------------------------------------------------------------------------------------- the decider

    def concerned(self, change: Change) -> Iterable[str]:
        if change.kind is not PODS:
            return tuple(self._seen)
        pod = change.object
        if not isinstance(pod, Pod) or pod.spec.node_name != self._node:
            return ()
        old = change.old
        if not isinstance(old, Pod) or change.new is None or old.status.phase != pod.status.phase:
            self.changed(0.0)
        return (pod.key,)

    def act(self, now: float) -> list[Write]:
        self._next = now + LOOK_SECONDS
        for at, said in self._inbox:
            self._take(at, said)
        self._inbox.clear()
        return super().act(now)

    def _take(self, at: float, said: ListPodResourcesResponse) -> None:
        found = {f"{pod.namespace}/{pod.name}": pod for pod in said.pod_resources}
        # Also what did not change: an annotation may have been taken away meanwhile.
        self._work.add(found)
        self._seen, self._seen_at = found, at
        self._meter.gauge("dray_numa_exporter_pods", sum(1 for pod in found.values() if observe(pod, self._cpu_zones).zones))

    def wake(self) -> float | None:
        found = super().wake()
        return self._next if found is None else min(found, self._next)

    def decide(self, key: str, now: float) -> list[Write]:
        pod: Pod | None = self.world.get(PODS, key)
        said = self._seen.get(key)
        if pod is None:
            self.forget(key)
            return []
        if said is None or pod.spec.node_name != self._node or pod.terminal or not self._same_pod(pod):
            return []
        wanted = as_annotations(observe(said, self._cpu_zones), self._zone_names())
        differ = {name: text for name, text in wanted.items() if pod.metadata.annotations.get(name) != text}
        if not differ:
            return []
        if not self._token(now):
            self.look_at(key, now + 1 / PER_SECOND)
            return []
        self._meter.count("dray_numa_exporter_writes_total")
        body = {"metadata": {"annotations": differ}}
        return [Write("patch", PODS, pod.metadata.namespace, pod.metadata.name, body, uid=pod.uid, field_manager="dray-exporter")]

    def _same_pod(self, pod: Pod) -> bool:
        """The kubelet names pods without their uid. It had this one when it was asked if the pod had started by then."""
        return pod.status.start_time is not None and parse_time(pod.status.start_time) <= self._seen_at

    def _zone_names(self) -> dict[int, str]:
        """What the node's topology object calls the zones, where there is one."""
        for topology in self.world.all(NODE_RESOURCE_TOPOLOGIES).values():
            if topology.metadata.name == self._node:
                return {zone.number: zone.name for zone in topology.numa_zones if zone.number is not None}
        return {}

    def _token(self, now: float) -> bool:
        self._tokens = min(BURST, self._tokens + (now - self._filled_at) * PER_SECOND)
        self._filled_at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True
