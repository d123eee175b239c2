"""Nodes and what runs on them, kept as pods come and go.

Always true: what a node has requested is the exact sum over the pods in it, so adding and removing a pod undo each
other. Every change of a node is noted in one log; a cache that knows its place in the log catches up with only the nodes
that changed since.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Final, Protocol

from dray.api.core import Node, Pod
from dray.api.requests import Amounts, amount
from dray.books.changes import ChangeLog
from dray.books.demand import Demand, Port

ANY_ADDRESS: Final = "0.0.0.0"
_MOST_STATES: Final = 65536


class Placed:
    """A pod on a node: bound, or decided and being bound."""

    __slots__ = ("assumed", "demand", "pod")

    def __init__(self, pod: Pod, demand: Demand, assumed: bool) -> None:
        self.pod = pod
        self.demand = demand
        self.assumed = assumed


class NodeInfo:
    """One node: what it offers, what is requested of it, and by whom. ``place`` orders nodes as they appeared."""

    __slots__ = (
        "allocatable",
        "allowed_pods",
        "images",
        "name",
        "node",
        "place",
        "pods",
        "ports",
        "requested",
        "shape",
        "state",
        "usage",
    )

    def __init__(self, node: Node, place: int) -> None:
        self.place = place
        self.name = node.metadata.name
        self.pods: dict[str, Placed] = {}
        self.requested: Amounts = {}
        self.usage: Amounts = {"cpu": 0, "memory": 0}
        self.ports: dict[Port, int] = {}
        self.set(node)

    def set(self, node: Node) -> None:
        self.node = node
        self.allocatable: Amounts = {name: amount(name, value) for name, value in node.status.allocatable.items()}
        self.allowed_pods = self.allocatable.get("pods", 0)
        self.images: dict[str, int] = {name: image.size_bytes for image in node.status.images for name in image.names}
        # What checks and scores read of the node itself, names and labels apart.
        taints = tuple((taint.key, taint.value, taint.effect) for taint in node.spec.taints)
        self.shape = (tuple(self.allocatable.items()), taints, node.spec.unschedulable, tuple(self.images.items()))
        self.state = 0

    def add(self, placed: Placed) -> None:
        self.pods[placed.pod.uid] = placed
        self._charge(placed.demand, 1)

    def remove(self, uid: str) -> Placed | None:
        placed = self.pods.pop(uid, None)
        if placed is not None:
            self._charge(placed.demand, -1)
        return placed

    def _charge(self, demand: Demand, sign: int) -> None:
        self.state = 0
        requested = self.requested
        for name, value in demand.requests:
            requested[name] = requested.get(name, 0) + sign * value
        for name in ("cpu", "memory"):
            self.usage[name] += sign * demand.assumed.get(name, 0)
        for port in demand.ports:
            count = self.ports.get(port, 0) + sign
            if count:
                self.ports[port] = count
            else:
                del self.ports[port]

    def free(self, resource: str) -> int:
        return self.allocatable.get(resource, 0) - self.requested.get(resource, 0)

    def port_taken(self, port: Port) -> bool:
        """Whether a host port collides with one in use: the wildcard address collides with every address."""
        address, protocol, number = port
        if port in self.ports:
            return True
        if address == ANY_ADDRESS:
            return any(used[1] == protocol and used[2] == number for used in self.ports)
        return (ANY_ADDRESS, protocol, number) in self.ports


class Listener(Protocol):
    """Told about every pod that comes to a node or leaves one."""

    def came(self, placed: Placed, node: str) -> None: ...

    def left(self, placed: Placed, node: str) -> None: ...


class Nodes:
    """All nodes by name, and the log of which of them changed."""

    def __init__(self) -> None:
        self._by_name: dict[str, NodeInfo] = {}
        # Pods on nodes that have not been seen (yet, or any more): counted as soon as the node appears.
        self._homeless: dict[str, dict[str, Placed]] = {}
        self._where: dict[str, str] = {}
        self.changes = ChangeLog()
        self.listener: Listener | None = None
        self._next_place = 0
        self._order: list[NodeInfo] | None = None
        self._states: dict[Hashable, int] = {}
        self._last_state = 0

    # -------------------------------------------------------------------------------------------------- reading

    def __len__(self) -> int:
        return len(self._by_name)

    def __iter__(self) -> Iterator[NodeInfo]:
        return iter(self._by_name.values())

    def get(self, name: str) -> NodeInfo | None:
        return self._by_name.get(name)

    @property
    def order(self) -> list[NodeInfo]:
        """Nodes in the order in which they are looked at: zones take turns, as they appeared within a zone."""
        if self._order is None:
            self._order = _by_zones_in_turn(self._by_name.values())
        return self._order

    def state_of(self, info: NodeInfo) -> int:
        """A number that nodes share which offer the same and of which the same is requested."""
        if not info.state:
            content = (info.shape, len(info.pods), *info.requested.items(), *info.usage.values(), *info.ports)
            if len(self._states) > _MOST_STATES:
                self._states.clear()
            found = self._states.get(content)
            if found is None:
                self._last_state += 1
                found = self._states[content] = self._last_state
            info.state = found
        return info.state

    def node_of(self, uid: str) -> str:
        return self._where.get(uid, "")

    def placed(self, uid: str) -> Placed | None:
        name = self._where.get(uid)
        if name is None:
            return None
        info = self._by_name.get(name)
        return info.pods.get(uid) if info is not None else self._homeless.get(name, {}).get(uid)

    def where(self, uid: str) -> str:
        """The node that the pod counts on, or ''."""
        return self._where.get(uid, "")

    # -------------------------------------------------------------------------------------------------- changing

    def put(self, node: Node) -> NodeInfo:
        name = node.metadata.name
        info = self._by_name.get(name)
        if info is None:
            info = self._by_name[name] = NodeInfo(node, self._next_place)
            self._next_place += 1
            self._order = None
            for placed in self._homeless.pop(name, {}).values():
                info.add(placed)
                self._tell_came(placed, name)
        else:
            if zone(info.node) != zone(node):
                self._order = None
            info.set(node)
        self.changes.note(name)
        return info

    def remove(self, name: str) -> None:
        info = self._by_name.pop(name, None)
        if info is not None:
            self._order = None
            if info.pods:
                self._homeless[name] = info.pods
                for placed in info.pods.values():
                    self._tell_left(placed, name)
            self.changes.note(name)

    def place(self, pod: Pod, demand: Demand, node: str, assumed: bool = False) -> None:
        """The pod is on this node now, wherever it was before."""
        known = self.placed(pod.uid)
        if known is not None and known.demand is demand and self._where[pod.uid] == node and _counts_alike(known.pod, pod):
            known.pod, known.assumed = pod, assumed
            return
        self.displace(pod.uid)
        placed = Placed(pod, demand, assumed)
        self._where[pod.uid] = node
        info = self._by_name.get(node)
        if info is None:
            self._homeless.setdefault(node, {})[pod.uid] = placed
            return
        info.add(placed)
        self.changes.note(node)
        self._tell_came(placed, node)

    def displace(self, uid: str) -> str:
        """The pod is on no node now; answers the node that it was on, if any."""
        name = self._where.pop(uid, "")
        if not name:
            return ""
        info = self._by_name.get(name)
        if info is not None:
            removed = info.remove(uid)
            self.changes.note(name)
            if removed is not None:
                self._tell_left(removed, name)
        elif (waiting := self._homeless.get(name)) is not None:
            waiting.pop(uid, None)
            if not waiting:
                del self._homeless[name]
        return name

    def _tell_came(self, placed: Placed, node: str) -> None:
        if self.listener is not None:
            self.listener.came(placed, node)

    def _tell_left(self, placed: Placed, node: str) -> None:
        if self.listener is not None:
            self.listener.left(placed, node)


def _counts_alike(a: Pod, b: Pod) -> bool:
    """Whether a listener counts both the same: by labels, and whether the pod is leaving."""
    leaving = a.metadata.deletion_timestamp is not None, b.metadata.deletion_timestamp is not None
    return a.metadata.labels == b.metadata.labels and leaving[0] == leaving[1]


def zone(node: Node) -> tuple[str, str]:
    labels = node.metadata.labels
    return labels.get("topology.kubernetes.io/region", ""), labels.get("topology.kubernetes.io/zone", "")


def _by_zones_in_turn(infos: Iterable[NodeInfo]) -> list[NodeInfo]:
    zones: dict[tuple[str, str], list[NodeInfo]] = {}
    for info in infos:
        zones.setdefault(zone(info.node), []).append(info)
    if len(zones) == 1:
        return next(iter(zones.values()))
    ordered: list[NodeInfo] = []
    columns = list(zones.values())
    for row in range(max(map(len, columns), default=0)):
        ordered.extend(column[row] for column in columns if row < len(column))
    return ordered
