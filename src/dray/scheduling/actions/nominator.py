"""Pods for which room is being made: until it is free they count on their node, and their devices are promised to them.

Always true: what a nomination takes is in the books, with the standing ``promised``, exactly while it is made; a claim is
promised devices for one pod at most, and one that has devices is promised these when it loses them. Nothing here is lost in
a restart: the pod's status names the node, and what it is promised there is worked out again from the pods that leave.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from dray.api.resource import AllocationResult, DeviceKey, ResourceClaim
from dray.books.journal import Books
from dray.books.nodes import Nodes
from dray.devices import Devices
from dray.devices.engine import promised
from dray.devices.ledger import PoolKey
from dray.scheduling.placing.state import CycleState, Placement
from dray.scheduling.waiting.queue import QueuedPod


class Nomination:
    """A pod, the node on which room is being made for it, and the devices that it is to have there; ``shared``: by uid those of
    claims that others use as yet."""

    __slots__ = ("node", "pending", "promises", "shared")

    def __init__(self, pending: QueuedPod, placement: Placement) -> None:
        self.pending = pending
        self.node = placement.node
        self.promises: list[tuple[ResourceClaim, AllocationResult]] = placement.given
        self.shared = {claim.uid: (claim, placement.allocations[claim.uid]) for claim in placement.pinned}

    @property
    def devices(self) -> set[DeviceKey]:
        return _devices(result for _, result in self.promises)

    @property
    def pools(self) -> set[PoolKey]:
        return {(driver, pool) for driver, pool, _ in self.devices}


class Nominator:
    """Nominations by the pod's uid."""

    def __init__(self, books: Books, nodes: Nodes, engine: Devices) -> None:
        self._books, self._nodes, self._engine = books, nodes, engine
        self._of: dict[str, Nomination] = {}
        self._by_claim: dict[str, str] = {}
        # By claim the pods that are to share it, those that were nominated first in front.
        self._sharing: dict[str, dict[str, None]] = {}

    def __len__(self) -> int:
        return len(self._of)

    def all(self) -> list[Nomination]:
        return list(self._of.values())

    def get(self, uid: str) -> Nomination | None:
        return self._of.get(uid)

    def on(self, node: str) -> list[Nomination]:
        return [found for found in self._of.values() if found.node == node]

    def charged(self, uid: str) -> list[str]:
        """Under which names the devices that a pod is promised are charged."""
        nomination = self._of.get(uid)
        return [promised(claim.uid) for claim, _ in nomination.promises] if nomination is not None else []

    def shared(self, uid: str) -> list[str]:
        """The claims that others use as yet, and that a pod is to share."""
        nomination = self._of.get(uid)
        return [claim.key for claim, _ in nomination.shared.values()] if nomination is not None else []

    def sharing(self, claim: str) -> Collection[str]:
        """The pods that are to share a claim, by its uid."""
        return self._sharing.get(claim, ())

    def waits_for(self, claim: str) -> str:
        """The pod for which a claim is promised devices, by its uid, or ''."""
        return self._by_claim.get(claim, "")

    def promised_to(self, name: str) -> str:
        """The pod for which something is charged under this name, or ''."""
        return next((uid for claim, uid in self._by_claim.items() if promised(claim) == name), "")

    def giving_way(self, state: CycleState) -> list[Nomination]:
        """Those that do not stand against the pod: of lower priority, or for a claim that it shares with them."""
        sharing = {self._by_claim[claim.uid] for claim in state.resolved.open if claim.uid in self._by_claim}
        priority = state.demand.priority
        own = state.pod.uid
        weaker = (found for uid, found in self._of.items() if uid != own)
        return [found for found in weaker if found.pending.demand.priority < priority or found.pending.uid in sharing]

    def shares_claims(self, state: CycleState) -> bool:
        """Whether room is being made already for a claim of this pod, by another pod that uses it."""
        return any(self._by_claim.get(claim.uid, state.pod.uid) != state.pod.uid for claim in state.resolved.open)

    def collides(self, nomination: Nomination, placement: Placement) -> bool:
        """Whether the placement takes something of what was promised: on the same node, the same claim or devices, or of
        counters that their devices share."""
        if placement.node == nomination.node:
            return True
        if any(claim.uid == own.uid for claim in placement.open for own, _ in nomination.promises):
            return True
        return self.takes_from(nomination, devices_of(placement))

    def takes_from(self, nomination: Nomination, results: Iterable[AllocationResult]) -> bool:
        """Whether these allocations have some of the devices that were promised, or of counters that those share."""
        taken = _devices(results)
        if taken & nomination.devices:
            return True
        pools = {(driver, pool) for driver, pool, _ in taken} & nomination.pools
        return any(self._engine.inventory.counts(pool) for pool in pools)

    def reach(self, nominations: Iterable[Nomination]) -> set[str] | None:
        """The nodes that can use something of what these are promised; None: perhaps all."""
        found: set[str] = set()
        for nomination in nominations:
            found.add(nomination.node)
            for pool in nomination.pools:
                nodes = self._engine.inventory.reach(pool)
                if nodes is None:
                    return None
                found |= nodes
        return found

    # ------------------------------------------------------------------------------------------------------ changing

    def make(self, pending: QueuedPod, placement: Placement) -> None:
        """Instead of what the pod was promised before."""
        with self._books.trial() as trial:
            self.drop(pending.uid)
            nomination = self._of[pending.uid] = Nomination(pending, placement)
            # After a restart several may be found to wait for one claim: it is promised devices once.
            nomination.promises = [each for each in nomination.promises if each[0].uid not in self._by_claim]
            pending.nominated = nomination.node
            self._nodes.place(placement.placed(pending.pod, pending.demand, "promised"))
            for account, entry in placement.postings:
                self._books.post(account, pending.uid, entry)
            for claim, result in nomination.promises:
                self._promise(nomination, claim, result)
            for each in nomination.shared:
                self._sharing.setdefault(each, {})[pending.uid] = None
            trial.keep()

    def _promise(self, nomination: Nomination, claim: ResourceClaim, result: AllocationResult) -> None:
        self._by_claim[claim.uid] = nomination.pending.uid
        self._engine.promise(claim, result)

    def given_back(self, uid: str) -> None:
        """A claim is left by the last pod that used it: what it had is kept for a pod that was to share it and is not there
        yet."""
        first = next(iter(self.sharing(uid)), None) if uid not in self._by_claim else None
        if first is not None:
            nomination = self._of[first]
            nomination.promises.append(nomination.shared[uid])
            self._promise(nomination, *nomination.shared[uid])

    def drop(self, uid: str) -> None:
        """The pod is promised nothing any more."""
        nomination = self._of.get(uid)
        if nomination is None:
            return
        self.lift(nomination)
        del self._of[uid]
        nomination.pending.nominated = ""
        for claim, _ in nomination.promises:
            self._by_claim.pop(claim.uid, None)
        for each in nomination.shared:
            del self._sharing[each][uid]
            if not self._sharing[each]:
                del self._sharing[each]

    def lift(self, nomination: Nomination) -> None:
        """It takes nothing: until the end of the trial in which this is done."""
        placed = self._nodes.placed(nomination.pending.uid)
        if placed is not None and placed.standing == "promised":
            self._nodes.displace(nomination.pending.uid)
        for claim, _ in nomination.promises:
            self._engine.take_back(claim.uid)


def devices_of(placement: Placement) -> Sequence[AllocationResult]:
    special = placement.special
    return placement.results if special is None else (*placement.results, special.allocation)


def _devices(results: Iterable[AllocationResult]) -> set[DeviceKey]:
    return {DeviceKey.of(device) for result in results for device in result.devices.results}
