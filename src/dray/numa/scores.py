"""Which of the nodes that could take a pod is best for its zones: whole numbers from 0 to 100, more is better.

The strategies have the names and the arithmetic of the scheduler-plugins project, over what is free in each zone.
``LeastNUMANodes`` counts how few zones would do and whether these are as near to each other as any; the others look at single
zones: how much would be left (``LeastAllocated``), used (``MostAllocated``), or how evenly (``BalancedAllocation``).
``nearness`` says how close the zones of a set are on this machine. A score never changes whether a node is admissible.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Final

from dray.numa.demand import CPU
from dray.numa.evaluate import Plan
from dray.numa.layout import Layout, State
from dray.numa.masks import BudgetSpent, Need, apart, closest, lowest
from dray.numa.room import Needs, Room

BEST: Final = 100
MAX_ZONES: Final = 8
Weights = Mapping[str, int]


def nearness(layout: Layout, mask: int) -> int:
    """100 for a set whose zones are as near to each other as any so many zones here, less the further apart they are."""
    if layout.distances is None or not mask:
        return BEST
    best = _nearest(layout, mask.bit_count())
    return BEST if best is None else BEST * best // max(apart(mask, layout.distances), 1)


def _nearest(layout: Layout, number: int) -> int | None:
    if layout.distances is None:
        return None
    found = closest(number, layout.places, (), layout.distances)
    return None if found is None else apart(found, layout.distances)


# ---------------------------------------------------------------------------------------------------------- LeastNUMANodes


def least_numa_nodes(state: State, plan: Plan, most: int = MAX_ZONES) -> int:
    """The fewer zones the better; half a step more when no zones so many are nearer to each other. 0 when it does not fit."""
    if not plan.needs:
        return BEST
    room = Room(state)
    widest, nearest = 0, True
    for needs in plan.needs:
        mask = _fewest(room, needs)
        if mask is None:
            return 0
        widest = max(widest, mask.bit_count())
        nearest = nearest and _is_nearest(state.layout, mask)
        room.take(mask, needs)
    step = BEST // most
    return max(BEST - widest * step + (step // 2 if nearest else 0), 0)


def _fewest(room: Room, needs: Needs) -> int | None:
    layout = room.layout
    places = [p for p in layout.places if all(layout.capacity[row][p] for row, _ in needs.every)]
    wanted: list[Need] = [(room.free[row], value) for row, value in needs.every]
    for number in range(1, len(places) + 1):
        try:
            if layout.distances is not None:
                found = closest(number, places, wanted, layout.distances)
            else:
                found = lowest(number, places, wanted)
        except BudgetSpent:
            continue
        if found is not None:
            return found
    return None


def _is_nearest(layout: Layout, mask: int) -> bool:
    return layout.distances is not None and apart(mask, layout.distances) == _nearest(layout, mask.bit_count())


# ---------------------------------------------------------------------------------------------------------- single zones


def least_allocated(asked: Sequence[int], free: Sequence[int], weights: Sequence[int]) -> int:
    """What would be left of each resource in a zone, as a weighted mean of percents."""
    shares = [0 if have == 0 or need > have else (have - need) * BEST // have for need, have in zip(asked, free)]
    return sum(w * s for w, s in zip(weights, shares)) // sum(weights)


def most_allocated(asked: Sequence[int], free: Sequence[int], weights: Sequence[int]) -> int:
    """What would be used of each resource in a zone, as a weighted mean of percents."""
    shares = [0 if have == 0 or need > have else need * BEST // have for need, have in zip(asked, free)]
    return sum(w * s for w, s in zip(weights, shares)) // sum(weights)


def balanced_allocation(asked: Sequence[int], free: Sequence[int], weights: Sequence[int]) -> int:
    """100 when all resources of a zone would be used to the same share; weights do not matter."""
    shares = [Fraction(need, have) if have else Fraction(1) for need, have in zip(asked, free)]
    if any(share > 1 for share in shares):
        return 0
    if len(shares) < 2:
        return BEST
    mean = sum(shares, Fraction()) / len(shares)
    variance = sum(((share - mean) ** 2 for share in shares), Fraction()) / (len(shares) - 1)
    return max(int((1 - variance) * BEST), 0)


Strategy = Callable[[Sequence[int], Sequence[int], Sequence[int]], int]
STRATEGIES: Final[dict[str, Strategy]] = {
    "LeastAllocated": least_allocated,
    "MostAllocated": most_allocated,
    "BalancedAllocation": balanced_allocation,
}


def by_zone(strategy: Strategy, state: State, plan: Plan, weights: Weights | None) -> int:
    """The least of the zones' scores that are not 0; over several containers the mean of that."""
    if not plan.needs:
        return BEST
    scores = [_container(strategy, state, needs, weights or {}) for needs in plan.needs]
    return sum(scores) // len(scores)


def _container(strategy: Strategy, state: State, needs: Needs, weights: Weights) -> int:
    layout = state.layout
    rows = [row for row, _ in needs.every]
    asked = [_whole(layout, row, value) for row, value in needs.every]
    given = [max(weights.get(layout.resources[row], 1), 1) for row in rows]
    scores = [strategy(asked, [_whole(layout, row, state.free[row][place]) for row in rows], given) for place in layout.places]
    return min((score for score in scores if score), default=0)


def _whole(layout: Layout, row: int, value: int) -> int:
    """Whole units: a part of a CPU counts as one."""
    return -(-value // 1000) if layout.resources[row] == CPU else value


def score_of(strategy: str, state: State, plan: Plan, weights: Weights | None = None, most: int = MAX_ZONES) -> int:
    """The score by a strategy's name. Raises KeyError for a name that is none."""
    if strategy == "LeastNUMANodes":
        return least_numa_nodes(state, plan, most)
    return by_zone(STRATEGIES[strategy], state, plan, weights)
