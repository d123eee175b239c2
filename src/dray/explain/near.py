"""Which of the names that there are was probably meant: the one that few slips of the hand make of what was written.

Always true: a name that differs by more than a slip or two is not suggested. What comes after the first dot is a domain, which
says nothing about how much two names are alike.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile
from typing import Final

# Of a name, one letter in so many may be wrong; but never more than so many letters.
_ONE_IN: Final = 4
_MOST: Final = 3


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The name that was probably meant, if any is near enough."""
    most = min(_MOST, max(1, len(name.partition(".")[0]) // _ONE_IN))
    near = [(count, other) for other in names if (count := slips(name, other, most)) <= most]
    return min(near)[1] if near else None


def slips(one: str, other: str, most: int) -> int:
    """How many letters were left out, added, mistaken or swapped with the next; more than ``most`` is not counted further."""
    start = _in_common(one, other)
    one, other = one[start:], other[start:]
    end = _in_common(one[::-1], other[::-1])
    one, other = one[: len(one) - end], other[: len(other) - end]
    if abs(len(one) - len(other)) > most:
        return most + 1
    before, row = list[int](), list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        before, above, row = row, before, [i]
        for j, wanted in enumerate(other, 1):
            swapped = i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == wanted
            ways = (before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != wanted))
            row.append(min(*ways, above[j - 2] + 1) if swapped else min(ways))
        if min(row) > most:
            return most + 1
    return min(row[-1], most + 1)


def _in_common(one: str, other: str) -> int:
    """How many letters both begin with."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other)))
