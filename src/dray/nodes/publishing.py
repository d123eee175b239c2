"""NodeResourceTopology of simulated nodes: published late, as exporters do it.

A topology object exists as soon as its node does. What pods take and give back shows in it only after a delay, with jitter from
a seed; until then it says what was true before. Always true: what is published is a state that the kubelet was in, and when
nothing changes for longer than the delay it is the state that it is in now.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Any

from dray.api.core import Pod
from dray.api.kinds import NODE_RESOURCE_TOPOLOGIES, NODES, PODS
from dray.api.meta import decode
from dray.api.topology import NodeResourceTopology
from dray.cluster.port import Change, Outcome, Write
from dray.cluster.world import World
from dray.controllers.keyed import Keyed
from dray.nodes.topology import Topology


class TopologyPublisher(Keyed):
    """The decider. Keys are names of nodes. A change shows after ``delay`` seconds, and up to ``jitter`` more."""

    name = "topology-publisher"
    kinds = (NODES, PODS, NODE_RESOURCE_TOPOLOGIES)

    def __init__(
        self, world: World, nodes: Mapping[str, Topology], *, delay: float = 0.0, jitter: float = 0.0, seed: int = 0
    ) -> None:
        super().__init__(world)
        self._nodes, self._delay, self._jitter = nodes, delay, jitter
        self._rng = random.Random(seed)
        self._published: dict[str, int] = {}
        self._sent: dict[str, int] = {}
        self._due: dict[str, float] = {}

    def concerned(self, change: Change) -> Iterable[str]:
        if change.kind is PODS:
            pods = [pod for pod in (change.old, change.new) if isinstance(pod, Pod)]
            return {pod.spec.node_name for pod in pods if pod.spec.node_name in self._nodes}
        name = change.object.metadata.name
        return (name,) if name in self._nodes else ()

    def decide(self, key: str, now: float) -> list[Write]:
        kubelet = self._nodes[key]
        if self.world.get(NODES, key) is None:
            return []
        found: NodeResourceTopology | None = self.world.get(NODE_RESOURCE_TOPOLOGIES, key)
        if found is None:
            return [self._write("create", key, kubelet.topology(key), kubelet.version)]
        if self._published.get(key) == kubelet.version:
            return []
        due = self._due.setdefault(key, now + self._delay + self._rng.uniform(0, self._jitter))
        if now < due:
            self.look_at(key, due)
            return []
        del self._due[key]
        wanted = kubelet.topology(key)
        if _same(found, wanted):
            self._published[key] = kubelet.version
            return []
        return [self._write("patch", key, {"attributes": wanted["attributes"], "zones": wanted["zones"]}, kubelet.version)]

    def _write(self, verb: Any, node: str, body: dict[str, Any], version: int) -> Write:
        self._sent[node] = version
        return Write(verb, NODE_RESOURCE_TOPOLOGIES, "", node, body)

    def ended(self, key: str, outcome: Outcome, now: float) -> None:
        if outcome.ok:
            self._published[key] = self._sent.pop(key, -1)


def _same(found: NodeResourceTopology, wanted: dict[str, Any]) -> bool:
    other = decode(NodeResourceTopology, wanted)
    return found.zones == other.zones and found.attributes == other.attributes
