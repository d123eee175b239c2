"""Nodes that fall silent or say that they are in trouble: their conditions and taints.

A node whose lease is not renewed for a while gets its conditions set to Unknown. What the conditions say becomes taints:
NoSchedule at once; NoExecute, which makes pods leave, at a bounded rate, and not at all while most nodes are in trouble, because
then it is more likely that the network between us and them is.

Always true: only taints of the keys below are touched; a node that never had a lease is believed what its conditions say; time in
which this controller itself did not run counts against no node.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from dray.api.core import Node, Taint
from dray.api.kinds import LEASES, NODES, Kind
from dray.api.meta import Object
from dray.api.times import format_time
from dray.cluster.port import Change, Event, Write
from dray.cluster.world import World
from dray.controllers.keyed import Keyed

LEASE_NAMESPACE: Final = "kube-node-lease"
GRACE_SECONDS: Final = 50.0
PERIOD_SECONDS: Final = 5.0
# NoExecute goes to one node in this time; to none while so large a part of more than so many nodes is in trouble, or all are.
EVICTION_SECONDS: Final = 10.0
DISRUPTED: Final = 0.55
FEW: Final = 2

NOT_READY: Final = "node.kubernetes.io/not-ready"
UNREACHABLE: Final = "node.kubernetes.io/unreachable"
UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"
# condition -> what it taints with when it is True
_TROUBLES: Final = {
    "MemoryPressure": "node.kubernetes.io/memory-pressure",
    "DiskPressure": "node.kubernetes.io/disk-pressure",
    "PIDPressure": "node.kubernetes.io/pid-pressure",
    "NetworkUnavailable": "node.kubernetes.io/network-unavailable",
}
_OURS: Final = frozenset({NOT_READY, UNREACHABLE, UNSCHEDULABLE, *_TROUBLES.values()})
_SILENCED: Final = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")


class NodeLifecycle(Keyed):
    """The decider. Keys are names of nodes."""

    name = "nodelifecycle"
    source = "node-controller"
    kinds: Sequence[Kind] = (NODES, LEASES)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._renewed: dict[str, tuple[str, float]] = {}  # node -> the time in its lease, and when that was first seen
        self._awake = float("-inf")
        self._evicts_again = float("-inf")
        self._in_trouble: dict[str, float] = {}  # node -> since when it is not ready

    # ------------------------------------------------------------------------------------------------------- changes

    def observe(self, event: Event, now: float) -> None:
        self._rise(now)
        if isinstance(event, Change) and event.kind == LEASES and event.object.metadata.namespace == LEASE_NAMESPACE:
            self._heard(event.object.metadata.name, now)
        if isinstance(event, Change) and event.kind == NODES:
            self._note(event.object.metadata.name, event.new, now)
        super().observe(event, now)

    def act(self, now: float) -> list[Write]:
        self._rise(now)
        return super().act(now)

    def wake(self) -> float | None:
        due = super().wake()
        return min(due, self._awake + PERIOD_SECONDS) if due is not None and self._renewed else due

    def concerned(self, change: Change) -> Iterable[str]:
        name = change.object.metadata.name
        if change.kind == NODES:
            return (name,)
        silent = change.object.metadata.namespace == LEASE_NAMESPACE and (node := self.world.get(NODES, name)) is not None
        return (name,) if silent and (change.old is None or change.new is None or _status(node) == "Unknown") else ()

    def _note(self, name: str, node: Object | None, now: float) -> None:
        if node is not None and _status(node) in ("False", "Unknown"):
            self._in_trouble.setdefault(name, now)
        else:
            self._in_trouble.pop(name, None)

    def _heard(self, name: str, now: float) -> None:
        lease = self.world.get(LEASES, f"{LEASE_NAMESPACE}/{name}")
        if lease is None:
            self._renewed.pop(name, None)
        elif self._renewed.get(name, ("", 0.0))[0] != (lease.spec.renew_time or ""):
            self._renewed[name] = (lease.spec.renew_time or "", now)

    def _rise(self, now: float) -> None:
        """After a pause of our own (a laptop that slept), everybody gets as much time again."""
        if now - self._awake > 3 * PERIOD_SECONDS:
            self._renewed = {name: (at, now) for name, (at, _) in self._renewed.items()}
        self._awake = now

    # ------------------------------------------------------------------------------------------------------ decisions

    def decide(self, key: str, now: float) -> list[Write]:
        node: Node | None = self.world.get(NODES, key)
        if node is None:
            self.forget(key)
            self._renewed.pop(key, None)
            return []
        if self._silent(key, now) and _status(node) != "Unknown":
            note = f"Node {key} status is now: NodeNotReady"
            self.say(self._recorder.normal(NODES, node, "NodeNotReady", note, action="Monitor", now=now))
            return [_silenced(node, now)]
        wanted = self._taints(node, now)
        if wanted == list(node.spec.taints):
            return []
        body = {"spec": {"taints": [_plain(taint) for taint in wanted] or None}}
        return [Write("patch", NODES, name=key, body=body, uid=node.uid, resource_version=node.metadata.resource_version)]

    def _silent(self, name: str, now: float) -> bool:
        known = self._renewed.get(name)
        if known is None:
            return False
        due = known[1] + GRACE_SECONDS
        if now < due:
            self.look_at(name, due)
        return now >= due

    def _taints(self, node: Node, now: float) -> list[Taint]:
        """Those of others as they are, then ours; a taint that stays keeps its time."""
        found = {(taint.key, taint.effect): taint for taint in node.spec.taints}
        wanted = [taint for taint in node.spec.taints if taint.key not in _OURS or taint.effect == "PreferNoSchedule"]
        for key in _troubles(node):
            wanted.append(found.get((key, "NoSchedule")) or Taint(key, effect="NoSchedule", time_added=format_time(now)))
            if key in (NOT_READY, UNREACHABLE):
                wanted += self._leaving(node, key, found, now)
        same = {(taint.key, taint.effect) for taint in wanted} == found.keys()
        return list(node.spec.taints) if same else wanted

    def _leaving(self, node: Node, key: str, found: dict[tuple[str, str], Taint], now: float) -> list[Taint]:
        """The taint that drives pods away, if it is the node's turn. As long as the node is in trouble, others are looked at."""
        name = node.metadata.name
        self.look_at(name, now + PERIOD_SECONDS)
        bad, everyone = len(self._in_trouble), len(self.world.all(NODES))
        if bad == everyone:
            return []
        known = found.get((key, "NoExecute"))
        taint = known or Taint(key, effect="NoExecute", time_added=format_time(now))
        if any((other, "NoExecute") in found for other in (NOT_READY, UNREACHABLE)):
            return [taint]
        mostly = bad > FEW and bad >= DISRUPTED * everyone
        # Nodes that are lost together are noticed one by one: a moment tells how many they are.
        if mostly or now < max(self._evicts_again, self._in_trouble.get(name, now) + PERIOD_SECONDS):
            return []
        self._evicts_again = now + EVICTION_SECONDS
        return [taint]


def _status(node: Any) -> str:
    """What the node's Ready condition says; empty without one."""
    return next((condition.status for condition in node.status.conditions if condition.type == "Ready"), "")


def _troubles(node: Node) -> Iterable[str]:
    says = {condition.type: condition.status for condition in node.status.conditions}
    if says.get("Ready") == "False":
        yield NOT_READY
    if says.get("Ready") == "Unknown":
        yield UNREACHABLE
    yield from (key for condition, key in _TROUBLES.items() if says.get(condition) == "True")
    if node.spec.unschedulable:
        yield UNSCHEDULABLE


def _silenced(node: Node, now: float) -> Write:
    known = {condition.type for condition in node.status.conditions}
    conditions = [
        {
            "type": each,
            "status": "Unknown",
            "reason": "NodeStatusUnknown" if each in known else "NodeStatusNeverUpdated",
            "message": "Kubelet stopped posting node status." if each in known else "Kubelet never posted node status.",
            "lastTransitionTime": format_time(now),
        }
        for each in _SILENCED
    ]
    body = {"status": {"conditions": conditions}}
    return Write("patch", NODES, name=node.metadata.name, body=body, subresource="status", patch="strategic", uid=node.uid)


def _plain(taint: Taint) -> dict[str, Any]:
    fields = {"key": taint.key, "value": taint.value, "effect": taint.effect, "timeAdded": taint.time_added}
    return {name: value for name, value in fields.items() if value}
