"""The account of nodes: which pods count on them, and what is left of cpu, memory, pod slots and host ports.

Always true: what a node has requested is the exact sum over the pods on it, and nothing is kept of a sum that is zero; so
equal content is equal whatever happened in between, and ``state_of`` gives it an equal number. A pod counts on one node at
most. A pod whose node is not known (yet, or any more) counts as soon as the node appears.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, Protocol

from dray.api.core import Node, Pod
from dray.api.requests import Amounts, amount
from dray.api.resource import AllocationResult, ResourceClaim
from dray.books.demand import Demand, Port
from dray.books.journal import Account, Books, Standing

ANY_ADDRESS: Final = "0.0.0.0"
_MOST_STATES: Final = 65536


Given = tuple[ResourceClaim, AllocationResult]


class Placed:
    """A pod on a node; never changed, only replaced. ``given``: by uid the claims that get devices with this decision, and which,
    until the claims themselves show them."""

    __slots__ = ("demand", "given", "node", "pod", "standing")

    def __init__(
        self,
        pod: Pod,
        demand: Demand,
        node: str,
        standing: Standing = "shown",
        given: Mapping[str, Given] = MappingProxyType({}),
    ) -> None:
        self.pod = pod
        self.demand = demand
        self.node = node
        self.standing: Standing = standing
        self.given = given

    def __repr__(self) -> str:
        return f"Placed({self.pod.key}, {self.node}, {self.standing})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Placed) and self._content == other._content

    def __hash__(self) -> int:
        return hash((self.pod.uid, self.node))

    @property
    def _content(self) -> tuple[object, ...]:
        return self.pod, self.demand, self.node, self.standing

    @property
    def leaving(self) -> bool:
        return self.pod.metadata.deletion_timestamp is not None


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
        "zone",
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
        self.zone = zone(node)
        self.allocatable: Amounts = {name: amount(name, value) for name, value in node.status.allocatable.items()}
        self.allowed_pods = self.allocatable.get("pods", 0)
        self.images: dict[str, int] = {name: image.size_bytes for image in node.status.images for name in image.names}
        # What checks and scores read of the node itself, names and labels apart.
        taints = tuple((taint.key, taint.value, taint.effect) for taint in node.spec.taints)
        features = node.status.declared_features
        self.shape = (
            tuple(self.allocatable.items()),
            taints,
            node.spec.unschedulable,
            tuple(self.images.items()),
            tuple(features),
        )
        self.state = 0

    def add(self, placed: Placed) -> None:
        self.pods[placed.pod.metadata.uid] = placed
        self._charge(placed.demand, 1)

    def remove(self, uid: str) -> None:
        self._charge(self.pods.pop(uid).demand, -1)

    def _charge(self, demand: Demand, sign: int) -> None:
        self.state = 0
        requested = self.requested
        for name, value in demand.requests:
            total = requested.get(name, 0) + sign * value
            if total:
                requested[name] = total
            else:
                requested.pop(name, None)
        for name in ("cpu", "memory"):
            self.usage[name] += sign * demand.assumed.get(name, 0)
        for port in demand.ports:
            count = self.ports.get(port, 0) + sign
            if count:
                self.ports[port] = count
            else:
                del self.ports[port]

    def without(self, leaving: Iterable[Placed]) -> NodeInfo:
        """The node as it would be without these pods; made in one step, for looking at only."""
        found = NodeInfo.__new__(NodeInfo)
        for name in ("allocatable", "allowed_pods", "images", "name", "node", "place", "shape", "zone"):
            setattr(found, name, getattr(self, name))
        gone = {placed.pod.uid for placed in leaving}
        counts: dict[Demand, int] = {}
        for placed in leaving:
            counts[placed.demand] = counts.get(placed.demand, 0) + 1
        found.pods = {uid: placed for uid, placed in self.pods.items() if uid not in gone}
        found.requested, found.usage, found.ports = dict(self.requested), dict(self.usage), dict(self.ports)
        for demand, count in counts.items():
            found._charge(demand, -count)
        return found

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

    def content(self) -> tuple[Hashable, ...]:
        """What nodes in the same state share."""
        requested, ports = self.requested, self.ports
        amounts = tuple(requested.items()) if len(requested) < 2 else tuple(sorted(requested.items()))
        used = tuple(sorted(ports)) if ports else ()
        return self.shape, len(self.pods), amounts, self.usage["cpu"], self.usage["memory"], used


class Listener(Protocol):
    """Counts pods by node: told of every pod that comes to count on a node or counts there no more, trials included."""

    def came(self, placed: Placed) -> None: ...

    def left(self, placed: Placed) -> None: ...


class Nodes:
    """All nodes by name, and the pods on them by uid."""

    def __init__(self, books: Books) -> None:
        self._books = books
        self._by_name: dict[str, NodeInfo] = {}
        self._placed: dict[str, Placed] = {}
        self._homeless: dict[str, dict[str, Placed]] = {}
        # Pods that are being deleted, in the order in which that came to count.
        self._leaving: dict[str, None] = {}
        # What nodes that take pods offer in all, and the nodes that take none.
        self.offered: Amounts = {}
        self.closed: set[str] = set()
        self.listeners: list[Listener] = []
        # Accounts in which a pod has something only while it counts on a node: zones, shares of a queue.
        self.followers: list[Account] = []
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
            content = info.content()
            if len(self._states) > _MOST_STATES:
                self._states.clear()
            found = self._states.get(content)
            if found is None:
                self._last_state += 1
                found = self._states[content] = self._last_state
            info.state = found
        return info.state

    def placed(self, uid: str) -> Placed | None:
        return self._placed.get(uid)

    entry = placed

    def settled(self, uid: str) -> bool:
        """Whether the pod has a node or is on its way to one, also where the watch has yet to tell that it is bound."""
        placed = self._placed.get(uid)
        return placed is not None and placed.standing != "promised"

    def node_of(self, uid: str) -> str:
        """The node that the pod counts on, or ''."""
        placed = self._placed.get(uid)
        return placed.node if placed is not None else ""

    def all_placed(self) -> Iterator[Placed]:
        return iter(self._placed.values())

    def leaving(self) -> list[Placed]:
        """Pods that are being deleted and have their node still."""
        return [self._placed[uid] for uid in self._leaving]

    def counted(self, uid: str) -> Placed | None:
        """The pod, if it counts on a node that is known: that is, if listeners were told that it came."""
        placed = self._placed.get(uid)
        return placed if placed is not None and placed.node in self._by_name else None

    def all_counted(self) -> Iterator[Placed]:
        return (placed for info in self for placed in info.pods.values())

    # -------------------------------------------------------------------------------------------------- changing

    def put(self, node: Node) -> NodeInfo:
        name = node.metadata.name
        info = self._by_name.get(name)
        if info is None:
            info = self._by_name[name] = NodeInfo(node, self._next_place)
            self._next_place += 1
            self._order = None
            self._offer(info, 1)
            for placed in self._homeless.pop(name, {}).values():
                self._add(info, placed)
        else:
            if info.zone != zone(node):
                self._order = None
            self._offer(info, -1)
            info.set(node)
            self._offer(info, 1)
        return info

    def _offer(self, info: NodeInfo, sign: int) -> None:
        if info.node.spec.unschedulable:
            self.closed ^= {info.name}
            return
        for name, value in info.allocatable.items():
            self.offered[name] = self.offered.get(name, 0) + sign * value

    def remove(self, name: str) -> None:
        info = self._by_name.pop(name, None)
        if info is not None:
            self._order = None
            self._offer(info, -1)
            if info.pods:
                self._homeless[name] = info.pods
                for listener in self.listeners:
                    for placed in info.pods.values():
                        listener.left(placed)

    def place(self, placed: Placed) -> None:
        """The pod is on this node now, wherever it was before."""
        self._books.post(self, placed.pod.metadata.uid, placed)

    def displace(self, uid: str) -> None:
        """The pod is on no node now, and has nothing that goes with one."""
        if uid in self._placed:
            self._books.post(self, uid, None)
        for account in self.followers:
            if account.entry(uid) is not None:
                self._books.post(account, uid, None)

    def post(self, holder: str, entry: Placed | None) -> Placed | None:
        before = self._placed.get(holder)
        if before is not None and entry is not None and _counts_alike(before, entry):
            self._placed[holder] = entry
            info = self._by_name.get(entry.node)
            (info.pods if info is not None else self._homeless[entry.node])[holder] = entry
            return before
        if before is not None:
            self._take_out(holder, before)
        if entry is not None:
            self._put_in(holder, entry)
        return before

    def _put_in(self, uid: str, placed: Placed) -> None:
        self._placed[uid] = placed
        if placed.pod.metadata.deletion_timestamp is not None:
            self._leaving[uid] = None
        info = self._by_name.get(placed.node)
        if info is None:
            self._homeless.setdefault(placed.node, {})[uid] = placed
        else:
            self._add(info, placed)

    def _add(self, info: NodeInfo, placed: Placed) -> None:
        info.add(placed)
        for listener in self.listeners:
            listener.came(placed)

    def _take_out(self, uid: str, placed: Placed) -> None:
        del self._placed[uid]
        if self._leaving:
            self._leaving.pop(uid, None)
        info = self._by_name.get(placed.node)
        if info is not None:
            info.remove(uid)
            for listener in self.listeners:
                listener.left(placed)
            return
        waiting = self._homeless[placed.node]
        del waiting[uid]
        if not waiting:
            del self._homeless[placed.node]

    # ------------------------------------------------------------------------------------------------- checking

    def snapshot(self) -> dict[str, object]:
        """Everything counted, comparable: two accounts with equal snapshots are equal."""
        found: dict[str, object] = {
            info.name: (info.content(), frozenset(info.pods.items()), self.state_of(info)) for info in self
        }
        return {**found, "": frozenset(self._placed.items()), "homeless": {n: dict(p) for n, p in self._homeless.items()}}


def _counts_alike(a: Placed, b: Placed) -> bool:
    """Whether both count the same: what the pod takes and where, its labels, and whether it is leaving."""
    if a.demand is not b.demand or a.node != b.node:
        return False
    x, y = a.pod.metadata, b.pod.metadata
    return (x.deletion_timestamp is None) == (y.deletion_timestamp is None) and x.labels == y.labels


def zone(node: Node) -> tuple[str, str]:
    labels = node.metadata.labels
    return labels.get("topology.kubernetes.io/region", ""), labels.get("topology.kubernetes.io/zone", "")


def _by_zones_in_turn(infos: Iterable[NodeInfo]) -> list[NodeInfo]:
    zones: dict[tuple[str, str], list[NodeInfo]] = {}
    for info in infos:
        zones.setdefault(info.zone, []).append(info)
    if len(zones) == 1:
        return next(iter(zones.values()))
    ordered: list[NodeInfo] = []
    columns = list(zones.values())
    for row in range(max(map(len, columns), default=0)):
        ordered.extend(column[row] for column in columns if row < len(column))
    return ordered
