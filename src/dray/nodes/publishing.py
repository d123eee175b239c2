"""What simulated nodes with zones let others know, late, as exporters do it: NodeResourceTopology, and where each pod is.

A topology object exists as soon as its node does. What pods take and give back shows in it only after a delay, with jitter from
a seed; until then it says what was true before. Where a pod is is written into its annotations after a delay of its own. Always
true: what is published is a state that the kubelet was in, and when nothing changes for longer than the delay it is the state
that it is in now.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

from dray.api.core import Pod
from dray.api.durations import seconds
from dray.api.kinds import NODE_RESOURCE_TOPOLOGIES, NODES, PODS
from dray.api.meta import decode
from dray.api.times import parse_time
from dray.api.topology import NodeResourceTopology
from dray.cluster.port import Change, Outcome, Write
from dray.cluster.world import World
from dray.controllers.keyed import Keyed
from dray.nodes.topology import Topology
from dray.nodes.zoned import ZonedNodes
from dray.numa.observe import as_annotations, observe
from dray.numa.podresources import PodResources


class TopologyPublisher(Keyed):
    """The decider for topology objects. Keys are names of nodes."""

    name = "topology-publisher"
    kinds = (NODES, PODS, NODE_RESOURCE_TOPOLOGIES)

    def __init__(self, world: World, nodes: ZonedNodes, *, seed: int) -> None:
        super().__init__(world)
        self._nodes = nodes
        self._rng = random.Random(seed)
        self._published: dict[str, tuple[Topology, int]] = {}
        self._sent: dict[str, tuple[Topology, int]] = {}
        self._due: dict[str, float] = {}

    def concerned(self, change: Change) -> Iterable[str]:
        if change.kind is PODS:
            pods = [pod for pod in (change.old, change.new) if isinstance(pod, Pod)]
            return {pod.spec.node_name for pod in pods if pod.spec.node_name in self._nodes}
        name = change.object.metadata.name
        return (name,) if name in self._nodes else ()

    def decide(self, key: str, now: float) -> list[Write]:
        kubelet = self._nodes.get(key)
        if kubelet is None:
            return []
        found: NodeResourceTopology | None = self.world.get(NODE_RESOURCE_TOPOLOGIES, key)
        if found is None:
            return [self._write("create", key, kubelet.topology(key), kubelet)]
        if self._published.get(key) == (kubelet, kubelet.version):
            return []
        times = self._nodes.zoning(key).publish
        due = self._due.setdefault(key, now + seconds(times.after) + self._rng.uniform(0, seconds(times.jitter)))
        if now < due:
            self.look_at(key, due)
            return []
        del self._due[key]
        wanted = kubelet.topology(key)
        if _same(found, wanted):
            self._published[key] = (kubelet, kubelet.version)
            return []
        return [self._write("patch", key, {"attributes": wanted["attributes"], "zones": wanted["zones"]}, kubelet)]

    def _write(self, verb: Any, node: str, body: dict[str, Any], kubelet: Topology) -> Write:
        self._sent[node] = (kubelet, kubelet.version)
        return Write(verb, NODE_RESOURCE_TOPOLOGIES, "", node, body)

    def ended(self, key: str, outcome: Outcome, now: float) -> None:
        if outcome.ok and key in self._sent:
            self._published[key] = self._sent.pop(key)


class PlacementPublisher(Keyed):
    """The decider for where pods are: what an exporter on each node would write. Keys are ``namespace/name`` of pods."""

    name = "placement-publisher"
    kinds = (NODES, PODS)

    def __init__(self, world: World, nodes: ZonedNodes, *, seed: int) -> None:
        super().__init__(world)
        self._nodes = nodes
        self._rng = random.Random(seed)

    def concerned(self, change: Change) -> Iterable[str]:
        pod = change.object
        if not isinstance(pod, Pod) or pod.spec.node_name not in self._nodes:
            return ()
        return (pod.key,)

    def decide(self, key: str, now: float) -> list[Write]:
        pod: Pod | None = self.world.get(PODS, key)
        kubelet = self._nodes.get(pod.spec.node_name) if pod is not None else None
        if pod is None or kubelet is None or pod.terminal or pod.status.start_time is None:
            return []
        times = self._nodes.zoning(pod.spec.node_name).exporter
        if times is None:
            return []
        due = parse_time(pod.status.start_time) + seconds(times.after)
        if now < due:
            self.look_at(key, due + self._rng.uniform(0, seconds(times.jitter)))
            return []
        said = PodResources(pod.metadata.name, pod.metadata.namespace, kubelet.containers(pod.uid))
        wanted = as_annotations(observe(said, kubelet.zone_of_cpus()))
        differ = {name: text for name, text in wanted.items() if pod.metadata.annotations.get(name) != text}
        if not differ:
            return []
        body = {"metadata": {"annotations": differ}}
        return [Write("patch", PODS, pod.metadata.namespace, pod.metadata.name, body, uid=pod.uid, field_manager="dray-exporter")]


def _same(found: NodeResourceTopology, wanted: dict[str, Any]) -> bool:
    other = decode(NodeResourceTopology, wanted)
    return found.zones == other.zones and found.attributes == other.attributes
