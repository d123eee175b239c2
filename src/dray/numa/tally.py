"""What is taken from the zones of one node, kept as pods come and go: an account for the scheduler's books.

``post`` says what a holder has and answers what it had before, which is the undo. Always true: amounts are added and subtracted
exactly, never rounded off at nothing, so that taking back restores what was; ``state`` follows from the content alone, and equal
content gives the same object.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import lru_cache

import msgspec

from dray.numa.demand import is_memory
from dray.numa.layout import Interned, Layout, State
from dray.numa.placement import Groups, Placement


class Usage(msgspec.Struct, frozen=True):
    """What one pod takes. ``groups`` are sets of zones that its memory came from together, with the memory that no single zone
    accounts for."""

    placement: Placement = ()
    groups: Groups = ()


class Tally:
    """One node's account (``dray.books.Account``). More taken than there is counts as nothing free."""

    def __init__(self, layout: Layout, interned: Interned[State] | None = None) -> None:
        self.layout = layout
        self._interned = interned
        self._rows = _rows(layout)
        self._free = [list(row) for row in layout.allocatable]
        # Pods with memory from one zone alone, by zone; and the zones that have such pods.
        self._alone: Counter[int] = Counter()
        self._singles = 0
        self._groups: Counter[int] = Counter()
        # Memory of groups by (mask, row): drawn from the group when the state is asked for.
        self._joint: Counter[tuple[int, int]] = Counter()
        self._held: dict[str, Usage] = {}
        self._state: State | None = None

    def post(self, holder: str, usage: Usage | None) -> Usage | None:
        """The holder has this from now on, None for nothing. Answers what it had."""
        before = self._held.pop(holder, None)
        if before is not None:
            self._count(before, -1)
        if usage is not None:
            self._held[holder] = usage
            self._count(usage, 1)
        self._state = None
        return before

    def believe(self, published: State) -> None:
        """Exactly this is free now, whatever the holders have; from here on what they take and give back counts again."""
        self._free = [list(row) for row in published.free]
        for (mask, row), value in self._joint.items():
            # It is drawn from the lowest zone again when the state is asked for.
            self._free[row][(mask & -mask).bit_length() - 1] += value
        self._state = None

    def entry(self, holder: str) -> Usage | None:
        return self._held.get(holder)

    def holders(self, mask: int) -> list[str]:
        """Who has something in these zones, in the order in which they came."""
        return [holder for holder, usage in self._held.items() if _zones(usage) & mask]

    def state(self) -> State:
        if self._state is None:
            free = self._free
            if self._joint:
                free = [list(row) for row in free]
                for (mask, row), value in self._joint.items():
                    _draw(free[row], mask, value)
            rows = tuple(map(tuple, free))
            if min(map(min, rows), default=0) < 0:
                rows = tuple(tuple([v if v > 0 else 0 for v in row]) for row in rows)
            groups = tuple(sorted(mask for mask, count in self._groups.items() if count)) if self._groups else ()
            made = State(self.layout, rows, self._singles, groups)
            self._state = made if self._interned is None else self._interned(made)
        return self._state

    def _count(self, usage: Usage, sign: int) -> None:
        rows, joined = self._rows, 0
        for mask, amounts in usage.groups:
            self._groups[mask] += sign
            joined |= mask
            for name, value in amounts:
                if name in rows:
                    self._joint[mask, rows[name][0]] += sign * value
        for place, amounts in usage.placement:
            for name, value in amounts:
                if name in rows:
                    row, memory = rows[name]
                    self._free[row][place] -= sign * value
                    if memory and value and not joined >> place & 1:
                        self._count_alone(place, sign)

    def _count_alone(self, place: int, sign: int) -> None:
        self._alone[place] += sign
        if self._alone[place]:
            self._singles |= 1 << place
        else:
            self._singles &= ~(1 << place)


@lru_cache(maxsize=1024)
def _rows(layout: Layout) -> Mapping[str, tuple[int, bool]]:
    """By resource where its amounts are, and whether it is a kind of memory."""
    return {name: (row, is_memory(name)) for row, name in enumerate(layout.resources)}


def _draw(row: list[int], mask: int, value: int) -> None:
    """Memory of a group, from its lowest zones on. Which zone has how much of it does not matter: the group is used whole."""
    places = [place for place in range(len(row)) if mask >> place & 1]
    for place in places[:-1]:
        given = min(max(row[place], 0), value)
        row[place] -= given
        value -= given
    row[places[-1]] -= value


def _zones(usage: Usage) -> int:
    mask = sum(1 << place for place, _ in usage.placement)
    for group, _ in usage.groups:
        mask |= group
    return mask
