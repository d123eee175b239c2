"""Disruption budgets when room is made for a job: who may leave without breaking one goes first, and what is broken is the least.

Always true: a budget has what its status allows, less those who are told to leave and are not seen leaving yet; of a gang that
leaves as a whole every pod counts. Without budgets nothing here is looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from dray.api.core import Pod, PodDisruptionBudget
from dray.api.kinds import POD_DISRUPTION_BUDGETS
from dray.books.nodes import Placed
from dray.cluster.world import World
from dray.scheduling.actions.preemption import protects

if TYPE_CHECKING:
    from dray.scheduling.workloads.room import Step


class Budgets:
    """All budgets of the cluster, as they were when the session began."""

    def __init__(self, world: World) -> None:
        known = POD_DISRUPTION_BUDGETS in world.kinds
        self._all: list[PodDisruptionBudget] = list(world.all(POD_DISRUPTION_BUDGETS).values()) if known else []
        self._of_pod: dict[str, list[str]] = {}

    def __bool__(self) -> bool:
        return bool(self._all)

    def of(self, pod: Pod) -> list[str]:
        found = self._of_pod.get(pod.uid)
        if found is None:
            found = self._of_pod[pod.uid] = [budget.uid for budget in self._all if protects(budget, pod)]
        return found

    def now(self, leaving: Iterable[Placed]) -> Allowance:
        left = {budget.uid: budget.status.disruptions_allowed for budget in self._all}
        for placed in leaving if self._all else ():
            # One that is being deleted is seen by whoever keeps the budget's status.
            if placed.pod.metadata.deletion_timestamp is None:
                _spend(left, self.of(placed.pod))
        return Allowance(self, left)


class Allowance:
    """What budgets allow at one moment."""

    def __init__(self, budgets: Budgets, left: dict[str, int]) -> None:
        self._budgets, self._left = budgets, left

    def broken(self, pods: Iterable[Placed]) -> int:
        """Of these pods, those whose leaving breaks a budget if all of them leave."""
        left = dict(self._left)
        return sum(_spend(left, self._budgets.of(placed.pod)) for placed in pods) if left else 0

    def sparing(self, steps: Iterable[Step]) -> Iterator[Step]:
        """The steps that may all be taken without breaking a budget."""
        return self._harmless(steps, []) if self._left else iter(steps)

    def least_harm_first(self, steps: Iterable[Step]) -> Iterator[Step]:
        """All of them: those that break a budget at the end, those that break it for the fewest pods first."""
        harmful: list[tuple[int, Step]] = []
        yield from self._harmless(steps, harmful)
        yield from (step for _, step in sorted(harmful, key=lambda each: each[0]))

    def _harmless(self, steps: Iterable[Step], harmful: list[tuple[int, Step]]) -> Iterator[Step]:
        left, worst = dict(self._left), dict[str, int]()
        for step in steps:
            then = dict(left)
            harm = sum(_spend(then, self._budgets.of(placed.pod)) for placed in step.pods)
            # The core of a gang leaves after its surplus, or with it.
            harm = max(harm, worst.get(step.job.key, 0))
            if harm:
                worst[step.job.key] = harm
                harmful.append((harm, step))
            else:
                left = then
                yield step


def _spend(left: dict[str, int], budgets: Iterable[str]) -> bool:
    """One pod of these budgets leaves; whether one of them does not allow it."""
    broken = False
    for uid in budgets:
        left[uid] -= 1
        broken = broken or left[uid] < 0
    return broken
