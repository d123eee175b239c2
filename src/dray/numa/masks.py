"""Sets of zones as integers: bit ``i`` is the zone at position ``i``, and the numeric order is the kubelet's order of ties.

``lowest`` and ``closest`` find the set that a kubelet would choose among all sets of one width that hold enough of everything,
without walking through all of them: zones are decided from the highest down, and a branch ends as soon as the best zones left
could not make up what is missing. With one resource that bound is exact. With several the work is limited in steps.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

# How many branches a search may take; a search that ends early has not proved that there is nothing.
STEPS: Final = 4_000
UNKNOWN_DISTANCE: Final = 255

# Amounts by position, and how much a set must hold of them together.
Need = tuple[Sequence[int], int]


class BudgetSpent(Exception):
    """The search was ended before it found a set or proved that there is none."""


def bits(mask: int) -> tuple[int, ...]:
    """The positions in a mask, lowest first."""
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return tuple(found)


def holds(places: Sequence[int], needs: Sequence[Need]) -> bool:
    """Whether these zones together hold enough of everything."""
    for amounts, need in needs:
        for place in places:
            need -= amounts[place]
        if need > 0:
            return False
    return True


def width(amounts: Sequence[int], need: int) -> int:
    """The fewest zones that hold this much; one more than there are zones when all of them do not."""
    number = 0
    for amount in sorted(amounts, reverse=True):
        if need <= 0:
            break
        need -= amount
        number += 1
    return max(number, 1) if need <= 0 else len(amounts) + 1


def joint_width(needs: Sequence[Need], places: Sequence[int]) -> int:
    """The fewest zones that hold enough of several amounts at once; one more than there are zones when all of them do not."""
    least = max((width([amounts[place] for place in places], need) for amounts, need in needs), default=1)
    for number in range(least, len(places) + 1):
        if lowest(number, places, needs) is not None:
            return number
    return len(places) + 1


def lowest(number: int, places: Sequence[int], needs: Sequence[Need], steps: int = STEPS) -> int | None:
    """The set of ``number`` of these places (ascending) with the lowest value that holds enough, or None.

    Amounts must not be negative. Raises BudgetSpent.
    """
    if number > len(places):
        return None
    if number == 1:
        for place in places:
            if all(amounts[place] >= need for amounts, need in needs):
                return 1 << place
        return None
    first = places[:number]
    if holds(first, needs):
        return sum(1 << place for place in first)
    return None if number == len(places) else _Lowest(places, needs, steps).find(number)


class _Lowest:
    """One search: from the highest place down, leaving a place out where that may still succeed."""

    def __init__(self, places: Sequence[int], needs: Sequence[Need], steps: int) -> None:
        self._places, self._steps = places, steps
        self._amounts = [amounts for amounts, _ in needs]
        self._missing = tuple(need for _, need in needs)
        self._best = [_prefixes([amounts[place] for place in places]) for amounts in self._amounts]
        self._failed: set[tuple[int, int, tuple[int, ...]]] = set()

    def find(self, number: int) -> int | None:
        count = len(self._places)
        return self._among(count, number, self._missing) if self._may(count, number, self._missing) else None

    def _may(self, count: int, number: int, missing: tuple[int, ...]) -> bool:
        """Whether the best ``number`` of the first ``count`` places make up for each amount on its own."""
        if number > count:
            return False
        return all(best[count][number] >= need for best, need in zip(self._best, missing))

    def _among(self, count: int, number: int, missing: tuple[int, ...]) -> int | None:
        if number == 0:
            return 0
        key = (count, number, missing)
        if key in self._failed:
            return None
        self._steps -= 1
        if self._steps < 0:
            raise BudgetSpent
        found = self._among(count - 1, number, missing) if self._may(count - 1, number, missing) else None
        if found is None:
            place = self._places[count - 1]
            left = tuple(max(need - amounts[place], 0) for amounts, need in zip(self._amounts, missing))
            if self._may(count - 1, number - 1, left):
                found = self._among(count - 1, number - 1, left)
                found = None if found is None else found | 1 << place
        if found is None:
            self._failed.add(key)
        return found


def _prefixes(amounts: Sequence[int]) -> list[list[int]]:
    """``[k][j]``: the sum of the ``j`` largest of the first ``k``."""
    ordered: list[int] = []
    found = [[0]]
    for amount in amounts:
        insort(ordered, amount)
        found.append(list(accumulate(reversed(ordered), initial=0)))
    return found


Distances = Sequence[Sequence[int]]


def apart(mask: int, distances: Distances) -> int:
    """The sum of all distances within a set, each zone's own included: for sets of one width it orders like their average."""
    places = bits(mask)
    return sum(distances[one][other] for one in places for other in places)


def closest(
    number: int, places: Sequence[int], needs: Sequence[Need], distances: Distances, base: int = 0, steps: int = STEPS
) -> int | None:
    """Of the sets that ``lowest`` looks at, the one whose zones are nearest to each other and to those of ``base``; of equals
    the lowest.

    When the steps are used up: the best set found so far. Raises BudgetSpent when there is none.
    """
    found = lowest(number, places, needs, steps)
    if found is None or number == len(places):
        return found
    if number == 1 and not base:
        return _nearest_single(places, needs, distances)
    search = _Closest(places, needs, distances, steps, found | base, base)
    search.extend(0, number, base, apart(base, distances))
    return search.best[1] & ~base


def _nearest_single(places: Sequence[int], needs: Sequence[Need], distances: Distances) -> int:
    """Single zones are compared too, by the distance to themselves."""
    fitting = [place for place in places if all(amounts[place] >= need for amounts, need in needs)]
    return 1 << min(fitting, key=lambda place: (distances[place][place], place))


class _Closest:
    def __init__(
        self, places: Sequence[int], needs: Sequence[Need], distances: Distances, steps: int, first: int, base: int
    ) -> None:
        self._places, self._needs, self._distances, self._steps, self._base = places, needs, distances, steps, base
        self.best = (apart(first, distances), first)

    def extend(self, start: int, number: int, mask: int, so_far: int) -> None:
        """Try every way to add ``number`` more places from ``start`` on, while that can still be the nearest."""
        self._steps -= 1
        if so_far > self.best[0] or self._steps < 0:
            return
        if number == 0:
            if (so_far, mask) < self.best and holds(bits(mask & ~self._base), self._needs):
                self.best = (so_far, mask)
            return
        inside = bits(mask)
        for index in range(start, len(self._places) - number + 1):
            place = self._places[index]
            added = self._distances[place][place]
            added += sum(self._distances[place][other] + self._distances[other][place] for other in inside)
            self.extend(index + 1, number - 1, mask | 1 << place, so_far + added)
