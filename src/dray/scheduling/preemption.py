"""Making room by evicting pods of lower priority, for node resources and for devices.

Always true: looking for victims changes nothing; pods and devices are taken out and put back exactly. A pod that already
waits for victims on its nominated node evicts no others.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dray.api.core import Pod, PodDisruptionBudget
from dray.api.kinds import POD_DISRUPTION_BUDGETS, RESOURCE_CLAIMS
from dray.api.resource import ResourceClaim
from dray.api.selectors import selects
from dray.api.times import parse_time
from dray.cluster.world import World
from dray.devices import Devices
from dray.scheduling.cycle import Cycle, NotPlaced, Placement, Wish
from dray.scheduling.nodes import NodeInfo, Nodes, Placed
from dray.scheduling.refusal import CURABLE, Reasons

# Nodes on which room is really tried to be made; more would cost more than a better choice is worth.
_MOST_TRIES: Final = 256


class Eviction:
    """The pods that have to go so that one pod fits on a node."""

    __slots__ = ("node", "rank", "victims")

    def __init__(self, node: str, victims: list[Placed], violations: int) -> None:
        self.node = node
        self.victims = victims
        priorities = [victim.demand.priority for victim in victims]
        # Upstream's order: budgets, then who is hit hardest, then how many, then who has run the shortest.
        highest = max(priorities, default=-(2**31))
        started = min((_started(v.pod) for v in victims if v.demand.priority == highest), default=0.0)
        self.rank = (violations, highest, sum(priority + 2**31 for priority in priorities), len(victims), -started)


class Preemption:
    def __init__(self, world: World, nodes: Nodes, cycle: Cycle, engine: Devices) -> None:
        self._world, self._nodes, self._cycle, self._engine = world, nodes, cycle, engine
        # Victims and the nodes that they leave, until everything that they used is free.
        self._evicted: dict[str, str] = {}
        self._claims_of = world.index(RESOURCE_CLAIMS, lambda claim: [user.uid for user in claim.status.reserved_for])

    def may_help(self, refused: NotPlaced) -> bool:
        wish = refused.wish
        if wish is None or not wish.profile.preempts or wish.demand.preemption_policy == "Never":
            return False
        return bool(refused.refusal.codes & CURABLE)

    def under_way(self, node: str, priority: int) -> bool:
        """Whether pods of lower priority are leaving the node already, or have left and their claims are being given back."""
        info = self._nodes.get(node)
        if info is None:
            return False
        leaving = (placed for placed in info.pods.values() if placed.pod.metadata.deletion_timestamp is not None)
        return node in self._evicted.values() or any(placed.demand.priority < priority for placed in leaving)

    def evict(self, uid: str, node: str) -> None:
        self._evicted[uid] = node

    def failed(self, uid: str) -> None:
        """The victim could not be deleted: others may be found."""
        self._evicted.pop(uid, None)

    def gone(self, uid: str) -> None:
        """The victim is gone; it counts until nothing is reserved for it any more."""
        if uid in self._evicted and not self._claims_of[uid]:
            del self._evicted[uid]

    def claim_changed(self, before: ResourceClaim | None) -> None:
        if self._evicted and before is not None:
            for consumer in before.status.reserved_for:
                if self._nodes.placed(consumer.uid) is None:
                    self.gone(consumer.uid)

    def find(self, wish: Wish) -> Eviction | None:
        """The least harmful eviction that makes room, if there is any."""
        total = len(self._nodes)
        profile = wish.profile
        wanted = max(total * profile.min_candidate_nodes_percentage // 100, profile.min_candidate_nodes_absolute)
        found: list[Eviction] = []
        for tries, info in enumerate(self._promising(wish)):
            if tries >= _MOST_TRIES or len(found) >= wanted:
                break
            eviction = self._try(wish, info)
            if eviction is not None:
                found.append(eviction)
        return min(found, key=lambda eviction: eviction.rank, default=None)

    def _promising(self, wish: Wish) -> Iterable[NodeInfo]:
        verdicts: dict[str, Reasons] | None = None
        if wish.view is None:
            verdicts = self._cycle.candidates(wish).verdicts()
        for info in self._nodes.order:
            if verdicts is not None and not any(reason.code in CURABLE for reason in verdicts.get(info.name, ())):
                continue
            if any(placed.demand.priority < wish.demand.priority for placed in info.pods.values()):
                yield info

    def _try(self, wish: Wish, info: NodeInfo) -> Eviction | None:
        lower = [placed for placed in info.pods.values() if placed.demand.priority < wish.demand.priority]
        if wish.needs_devices and self._cycle.plan(wish).refuses(info) is None and not any(map(self._has_claims, lower)):
            return None
        out: dict[str, Placed] = {}
        for placed in lower:
            self._take(placed, out)
        try:
            if not self._fits(wish, info, out):
                return None
            violating = self._violating(lower)
            order = sorted(
                lower, key=lambda placed: (placed.pod.uid not in violating, -placed.demand.priority, _started(placed.pod))
            )
            for placed in order:
                self._give_back(placed, info.name, out)
                if not self._fits(wish, info, out):
                    self._take(placed, out)
            victims = [placed for placed in order if placed.pod.uid in out]
            return Eviction(info.name, victims, sum(placed.pod.uid in violating for placed in victims))
        finally:
            for placed in lower:
                if placed.pod.uid in out:
                    self._give_back(placed, info.name, out)

    def _take(self, placed: Placed, out: dict[str, Placed]) -> None:
        self._nodes.displace(placed.pod.uid)
        out[placed.pod.uid] = placed

    def _give_back(self, placed: Placed, node: str, out: dict[str, Placed]) -> None:
        del out[placed.pod.uid]
        self._nodes.place(placed.pod, placed.demand, node, placed.assumed)

    def _has_claims(self, placed: Placed) -> bool:
        return bool(self._claims_of[placed.pod.uid])

    def _fits(self, wish: Wish, info: NodeInfo, out: dict[str, Placed]) -> bool:
        mark = self._engine.checkpoint()
        try:
            for uid in self._freed_by(out):
                self._engine.release(uid)
            return isinstance(self._cycle.try_on(wish, info), Placement)
        finally:
            self._engine.rollback(mark)

    def _freed_by(self, out: dict[str, Placed]) -> set[str]:
        """Claims that nobody else uses."""
        freed: set[str] = set()
        for uid in out:
            for key in self._claims_of[uid]:
                claim: ResourceClaim = self._world.get(RESOURCE_CLAIMS, key)
                if all(consumer.uid in out for consumer in claim.status.reserved_for):
                    freed.add(claim.uid)
        return freed

    def _violating(self, lower: list[Placed]) -> set[str]:
        """Pods whose eviction would break a disruption budget, the more important ones protected first."""
        if POD_DISRUPTION_BUDGETS not in self._world.kinds:
            return set()
        budgets: list[PodDisruptionBudget] = list(self._world.all(POD_DISRUPTION_BUDGETS).values())
        left = {budget.uid: budget.status.disruptions_allowed for budget in budgets}
        violating: set[str] = set()
        for placed in sorted(lower, key=lambda placed: (-placed.demand.priority, _started(placed.pod))):
            metadata = placed.pod.metadata
            for budget in budgets:
                if budget.metadata.namespace != metadata.namespace or not metadata.labels:
                    continue
                if selects(budget.spec.selector, metadata.labels):
                    left[budget.uid] -= 1
                    if left[budget.uid] < 0:
                        violating.add(placed.pod.uid)
        return violating


def _started(pod: Pod) -> float:
    stamp = pod.status.start_time or pod.metadata.creation_timestamp
    return parse_time(stamp) if stamp else 0.0
