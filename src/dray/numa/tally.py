"""What is taken from the zones of one node, kept as pods come and go: an account for the scheduler's books.

``post`` says what a holder has and answers what it had before, which is the undo. Always true: amounts are added and subtracted
exactly, never rounded off at nothing, so that taking back restores what was; ``state`` follows from the content alone, and equal
content gives the same object.
"""

from __future__ import annotations

from collections import Counter

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
        self._index = {name: row for row, name in enumerate(layout.resources)}
        self._free = [list(row) for row in layout.allocatable]
        self._singles: Counter[int] = Counter()
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
            singles = sum(1 << place for place, count in self._singles.items() if count)
            groups = tuple(sorted(mask for mask, count in self._groups.items() if count)) if self._groups else ()
            made = State(self.layout, tuple(tuple([v if v > 0 else 0 for v in row]) for row in free), singles, groups)
            self._state = made if self._interned is None else self._interned(made)
        return self._state

    def _count(self, usage: Usage, sign: int) -> None:
        joined = 0
        for mask, amounts in usage.groups:
            self._groups[mask] += sign
            joined |= mask
            for name, value in amounts:
                if name in self._index:
                    self._joint[mask, self._index[name]] += sign * value
        for place, amounts in usage.placement:
            for name, value in amounts:
                if name in self._index:
                    self._free[self._index[name]][place] -= sign * value
                    if is_memory(name) and value and not joined >> place & 1:
                        self._singles[place] += sign


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
