"""Pods for which room is being made: until it is free they count on their node, and their devices are promised to them.

Always true: what a nomination takes is in the nodes and in the devices exactly while it is made and not lifted; a claim is
promised devices for one pod at most. Nothing here is lost in a restart: the pod's status names the node, and what it is
promised there is worked out again from the pods that leave.
"""

from __future__ import annotations

from collections.abc import Iterable

from dray.api.resource import AllocationResult, ResourceClaim
from dray.books.changes import EVERYTHING, ChangeLog
from dray.books.nodes import Nodes
from dray.devices import Devices
from dray.devices.engine import promised
from dray.scheduling.placing.state import CycleState, Placement
from dray.scheduling.plugins.node import names_in
from dray.scheduling.waiting.queue import QueuedPod

Device = tuple[str, str, str]


class Nomination:
    """A pod, the node on which room is being made for it, and the devices that it is to have there."""

    __slots__ = ("node", "pending", "promises")

    def __init__(self, pending: QueuedPod, placement: Placement) -> None:
        self.pending = pending
        self.node = placement.node
        self.promises: list[tuple[ResourceClaim, AllocationResult]] = list(zip(placement.open, placement.results))
        special = placement.special
        if special is not None and special.claim.status.allocation is None:
            self.promises.append((special.claim, special.allocation))

    def collides(self, placement: Placement) -> bool:
        """Whether the other pod took something of this: on the same node, the same claim or the same devices."""
        if placement.node == self.node or any(claim.uid == own.uid for claim in placement.open for own, _ in self.promises):
            return True
        return bool(_taken(placement) & self._devices())

    def kept(self, placement: Placement) -> bool:
        """Whether the pod takes all that it was promised, so that nothing of it is left for others."""
        return placement.node == self.node and self._devices() <= _taken(placement)

    def _devices(self) -> set[Device]:
        return _devices(result for _, result in self.promises)


class Nominator:
    """By the pod's uid. ``freed`` is told where devices may do that were promised."""

    def __init__(self, nodes: Nodes, engine: Devices, freed: ChangeLog) -> None:
        self._nodes, self._engine, self._freed = nodes, engine, freed
        self._of: dict[str, Nomination] = {}
        self._by_claim: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._of)

    def get(self, uid: str) -> Nomination | None:
        return self._of.get(uid)

    def on(self, node: str) -> list[Nomination]:
        return [found for found in self._of.values() if found.node == node]

    def charged(self, uid: str) -> list[str]:
        """Under which names the devices that a pod is promised are charged."""
        nomination = self._of.get(uid)
        return [promised(claim.uid) for claim, _ in nomination.promises] if nomination is not None else []

    def promised_to(self, name: str) -> str:
        """The pod for which something is charged under this name, or ''."""
        return next((uid for claim, uid in self._by_claim.items() if promised(claim) == name), "")

    def giving_way(self, wish: CycleState) -> list[Nomination]:
        """Those that do not stand against the pod: of lower priority, or for a claim that it shares with them."""
        sharing = {self._by_claim[claim.uid] for claim in wish.resolved.open if claim.uid in self._by_claim}
        priority = wish.demand.priority
        return [found for uid, found in self._of.items() if found.pending.demand.priority < priority or uid in sharing]

    def shares_claims(self, wish: CycleState) -> bool:
        """Whether room is being made already for a claim of this pod, by another pod that uses it."""
        return any(self._by_claim.get(claim.uid, wish.pod.uid) != wish.pod.uid for claim in wish.resolved.open)

    # ------------------------------------------------------------------------------------------------------ changing

    def make(self, pending: QueuedPod, placement: Placement) -> None:
        nomination = self._of[pending.uid] = Nomination(pending, placement)
        pending.nominated = nomination.node
        for claim, _ in nomination.promises:
            self._by_claim[claim.uid] = pending.uid
        self.restore(nomination)

    def drop(self, uid: str) -> Nomination | None:
        """The pod is promised nothing any more."""
        nomination = self._of.get(uid)
        if nomination is None:
            return None
        self.lift(nomination)
        del self._of[uid]
        for claim, _ in nomination.promises:
            self._by_claim.pop(claim.uid, None)
        return nomination

    def lift(self, nomination: Nomination) -> None:
        """For a moment it takes nothing, until ``restore``."""
        self._nodes.displace(nomination.pending.uid)
        for claim, result in nomination.promises:
            self._engine.take_back(claim.uid)
            names = names_in(result.node_selector) if result.node_selector is not None else None
            for name in sorted(names) if names is not None else (EVERYTHING,):
                self._freed.note(name)

    def restore(self, nomination: Nomination) -> None:
        pending = nomination.pending
        self._nodes.place(pending.pod, pending.demand, nomination.node, assumed=True)
        for claim, result in nomination.promises:
            self._engine.promise(claim, result)


def _taken(placement: Placement) -> set[Device]:
    special = placement.special
    return _devices(placement.results if special is None else (*placement.results, special.allocation))


def _devices(results: Iterable[AllocationResult]) -> set[Device]:
    return {(device.driver, device.pool, device.device) for result in results for device in result.devices.results}
