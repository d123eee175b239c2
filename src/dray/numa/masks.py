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

# How many branches a search may take, up to so many zones and above. No kubelet can go through all sets of more.
STEPS: Final = 2_000
WIDE: Final = 16
STEPS_WIDE: Final = 150
ROUNDS: Final = 8
UNKNOWN_DISTANCE: Final = 255
# What a need is worth when needs of different resources are added up.
SHARE: Final = 1 << 20

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


def lowest(number: int, places: Sequence[int], needs: Sequence[Need]) -> int | None:
    """The set of ``number`` of these places (ascending) with the lowest value that holds enough, or None.

    Amounts must not be negative. When the steps are used up: a set that holds enough, perhaps not the lowest. Raises
    BudgetSpent when none is found quickly either.
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
    if number == len(places):
        return None
    scarce = _scarce(number, places, needs)
    if scarce is None:
        return None
    try:
        return _Lowest(number, places, scarce).find()
    except BudgetSpent:
        found = _some(number, places, scarce)
        if found is None:
            raise
        return found


def _some(number: int, places: Sequence[int], needs: Sequence[Need]) -> int | None:
    """A set that holds enough, found by preferring places that have most of what was short before; amounts are by index."""
    weights = [1.0] * len(needs)
    for _ in range(ROUNDS):
        worth = [0.0] * len(places)
        for weight, (amounts, need) in zip(weights, needs):
            share = weight / need
            worth = [value + share * amount for value, amount in zip(worth, amounts)]
        chosen = sorted(range(len(places)), key=worth.__getitem__, reverse=True)[:number]
        missing = [need - sum(amounts[index] for index in chosen) for amounts, need in needs]
        if max(missing) <= 0:
            return sum(1 << places[index] for index in chosen)
        weights = [weight * (2 if short > 0 else 1) for weight, short in zip(weights, missing)]
    return None


def _scarce(number: int, places: Sequence[int], needs: Sequence[Need]) -> list[Need] | None:
    """The needs that not every set of so many places meets, as amounts by index of place; None when one of them is met by no
    set. With several there is one more, that all together must meet: each counted by its share of what is needed."""
    scarce: list[Need] = []
    for amounts, need in needs:
        here = [amounts[place] for place in places]
        ordered = sorted(here)
        if sum(ordered[-number:]) < need:
            return None
        if sum(ordered[:number]) < need:
            scarce.append((here, need))
    if len(scarce) > 1:
        # Whole numbers, rounded in favour of a set, so that nothing is ruled out by rounding; more than needed counts as needed.
        shares = [[-(-min(amount, need) * SHARE // need) for amount in here] for here, need in scarce]
        together = list(map(sum, zip(*shares)))
        if sum(sorted(together)[-number:]) < SHARE * len(scarce):
            return None
        scarce.append((together, SHARE * len(scarce)))
    return scarce


class _Lowest:
    """One search: from the highest place down, leaving a place out where that may still succeed."""

    def __init__(self, number: int, places: Sequence[int], needs: Sequence[Need]) -> None:
        """Amounts of ``needs`` are by index of place."""
        self._number, self._places = number, places
        self._steps = STEPS if len(places) <= WIDE else STEPS_WIDE
        self._amounts = [amounts for amounts, _ in needs]
        self._missing = [need for _, need in needs]
        self._best = [_prefixes(amounts, number) for amounts in self._amounts]
        self._failed: set[tuple[int, ...]] = set()

    def find(self) -> int | None:
        return self._among(len(self._places), self._number, self._missing)

    def _may(self, count: int, number: int, missing: list[int]) -> bool:
        """Whether the best ``number`` of the first ``count`` places make up for each amount on its own."""
        if number > count:
            return False
        return not any(best[count][number] < need for best, need in zip(self._best, missing))

    def _among(self, count: int, number: int, missing: list[int]) -> int | None:
        """The lowest set among the first ``count`` places; that there may be one is known."""
        while number and self._may(count - 1, number, missing):
            key = (count, number, *missing)
            # Leaving the last place out may succeed. With one amount it does.
            if len(missing) == 1:
                count -= 1
                continue
            if key not in self._failed:
                found = self._among(count - 1, number, missing)
                if found is not None:
                    return found
                self._failed.add(key)
            break
        if number == 0:
            return 0
        self._steps -= 1
        if self._steps < 0:
            raise BudgetSpent
        left = [need - amounts[count - 1] for amounts, need in zip(self._amounts, missing)]
        left = [need if need > 0 else 0 for need in left]
        if not self._may(count - 1, number - 1, left):
            return None
        found = self._among(count - 1, number - 1, left)
        return None if found is None else found | 1 << self._places[count - 1]


def _prefixes(amounts: Sequence[int], most: int) -> list[list[int]]:
    """``[k][j]``: the sum of the ``j`` largest of the first ``k``, up to ``most`` of them."""
    largest: list[int] = []
    found = [[0]]
    for amount in amounts:
        if len(largest) == most and amount <= largest[0]:
            found.append(found[-1])
            continue
        insort(largest, amount)
        del largest[:-most]
        found.append(list(accumulate(reversed(largest), initial=0)))
    return found


Distances = Sequence[Sequence[int]]


def apart(mask: int, distances: Distances) -> int:
    """The sum of all distances within a set, each zone's own included: for sets of one width it orders like their average."""
    places = bits(mask)
    return sum(distances[one][other] for one in places for other in places)


def closest(number: int, places: Sequence[int], needs: Sequence[Need], distances: Distances, base: int = 0) -> int | None:
    """Of the sets that ``lowest`` looks at, the one whose zones are nearest to each other and to those of ``base``; of equals
    the lowest.

    When the steps are used up: the best set found so far. Raises BudgetSpent when there is none.
    """
    found = lowest(number, places, needs)
    if found is None or number == len(places):
        return found
    if number == 1 and not base:
        return _nearest_single(places, needs, distances)
    search = _Closest(places, needs, distances, found | base, base)
    search.extend(0, number, base, apart(base, distances))
    return search.best[1] & ~base


def _nearest_single(places: Sequence[int], needs: Sequence[Need], distances: Distances) -> int:
    """Single zones are compared too, by the distance to themselves."""
    fitting = [place for place in places if all(amounts[place] >= need for amounts, need in needs)]
    return 1 << min(fitting, key=lambda place: (distances[place][place], place))


class _Closest:
    def __init__(self, places: Sequence[int], needs: Sequence[Need], distances: Distances, first: int, base: int) -> None:
        self._places, self._needs, self._distances, self._base = places, needs, distances, base
        self._steps = STEPS if len(places) <= WIDE else STEPS_WIDE
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
