"""What is taken from the zones of a node, as a value that changes by making another one.

A tally knows what follows from it: taking something, or giving it back, leads to another tally, and that is worked out once for
all nodes with equal content, which share one. Always true: amounts are added and subtracted exactly, never rounded off at
nothing, so that giving back restores what was; ``state`` follows from the content alone.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import lru_cache
from typing import Final, TypeVar

import msgspec

from dray.numa.demand import is_memory
from dray.numa.layout import Interned, Layout, Row, State
from dray.numa.placement import Groups, Placement

# Contents that are known, and steps that are remembered from each of them.
_KNOWN: Final = 65536
_STEPS: Final = 1024

K = TypeVar("K", bound=Hashable)
Doubt = Hashable
"""What is not sure of a share: tallies with other doubts are others."""


class Usage(msgspec.Struct, frozen=True, cache_hash=True):
    """What one pod takes. ``groups`` are sets of zones that its memory came from together, with the memory that no single zone
    accounts for."""

    placement: Placement = ()
    groups: Groups = ()

    @property
    def mask(self) -> int:
        """The zones that it takes something from."""
        mask = sum(1 << place for place, _ in self.placement)
        for group, _ in self.groups:
            mask |= group
        return mask

    def has(self, mask: int, concerned: Callable[[str], bool]) -> bool:
        """Whether it takes of such a resource from one of these zones."""
        alone = ((1 << place, amounts) for place, amounts in self.placement)
        return any(zones & mask and any(concerned(name) for name, _ in amounts) for zones, amounts in (*alone, *self.groups))


class _Content(msgspec.Struct, frozen=True):
    """``free`` may be negative. ``alone``: pods with memory from one zone alone, by zone; ``groups``: sets of zones and how many
    pods have memory from them; ``joint``: memory of groups by (mask, row), drawn when the state is asked for."""

    layout: Layout
    free: tuple[Row, ...]
    alone: Row
    groups: frozenset[tuple[int, int]] = frozenset()
    joint: frozenset[tuple[tuple[int, int], int]] = frozenset()
    doubts: frozenset[tuple[Doubt, int]] = frozenset()


class Tally:
    """Made by ``Tallies``. More taken than there is counts as nothing free."""

    __slots__ = ("_all", "_content", "_fewer", "_more", "state")

    def __init__(self, content: _Content, all_: Tallies) -> None:
        self._content, self._all = content, all_
        self._more: dict[tuple[Usage, Doubt], Tally] = {}
        self._fewer: dict[tuple[Usage, Doubt], Tally] = {}
        self.state: State = all_.states(_state(content))

    @property
    def doubts(self) -> frozenset[tuple[Doubt, int]]:
        """What is not sure, and how often."""
        return self._content.doubts

    def plus(self, usage: Usage, doubt: Doubt = None) -> Tally:
        """When somebody takes this."""
        return self._more.get((usage, doubt)) or self._step(self._more, usage, doubt, 1)

    def minus(self, usage: Usage, doubt: Doubt = None) -> Tally:
        """When somebody who took this gives it back."""
        return self._fewer.get((usage, doubt)) or self._step(self._fewer, usage, doubt, -1)

    def _step(self, steps: dict[tuple[Usage, Doubt], Tally], usage: Usage, doubt: Doubt, sign: int) -> Tally:
        if len(steps) >= _STEPS:
            steps.clear()
        found = steps[usage, doubt] = self._all.of(_counted(self._content, usage, doubt, sign))
        return found

    def believing(self, published: State) -> Tally:
        """When exactly this is free, whatever is held; what is taken and given back from here on counts again."""
        free = [list(row) for row in published.free]
        for (mask, row), value in self._content.joint:
            # It is drawn from the lowest zone again when the state is asked for.
            free[row][(mask & -mask).bit_length() - 1] += value
        return self._all.of(msgspec.structs.replace(self._content, free=tuple(map(tuple, free))))

    def forget(self) -> None:
        self._more.clear()
        self._fewer.clear()


class Tallies:
    """Equal contents as one tally; when there are too many, all are forgotten."""

    def __init__(self, states: Interned[State] | None = None) -> None:
        self.states: Interned[State] = states if states is not None else Interned()
        self._known: dict[_Content, Tally] = {}

    def empty(self, layout: Layout) -> Tally:
        return self.of(_Content(layout, layout.allocatable, (0,) * len(layout.zones)))

    def of(self, content: _Content) -> Tally:
        found = self._known.get(content)
        if found is None:
            if len(self._known) >= _KNOWN:
                for each in self._known.values():
                    each.forget()
                self._known.clear()
            found = self._known[content] = Tally(content, self)
        return found


def _state(content: _Content) -> State:
    rows = content.free
    if content.joint:
        free = [list(row) for row in rows]
        for (mask, row), value in sorted(content.joint):
            _draw(free[row], mask, value)
        rows = tuple(map(tuple, free))
    if min(map(min, rows), default=0) < 0:
        rows = tuple(tuple([value if value > 0 else 0 for value in row]) for row in rows)
    singles = sum(1 << place for place, count in enumerate(content.alone) if count)
    return State(content.layout, rows, singles, tuple(sorted(mask for mask, _ in content.groups)))


def _counted(content: _Content, usage: Usage, doubt: Doubt, sign: int) -> _Content:
    rows, joined = _rows(content.layout), 0
    free, alone = [list(row) for row in content.free], list(content.alone)
    groups, joint, doubts = dict(content.groups), dict(content.joint), dict(content.doubts)
    for mask, amounts in usage.groups:
        _add(groups, mask, sign)
        joined |= mask
        for name, value in amounts:
            if name in rows:
                _add(joint, (mask, rows[name][0]), sign * value)
    for place, amounts in usage.placement:
        for name, value in amounts:
            if name in rows:
                row, memory = rows[name]
                free[row][place] -= sign * value
                if memory and value and not joined >> place & 1:
                    alone[place] += sign
    if doubt is not None:
        _add(doubts, doubt, sign)
    made = frozenset(groups.items()), frozenset(joint.items()), frozenset(doubts.items())
    return _Content(content.layout, tuple(map(tuple, free)), tuple(alone), *made)


def _add(counts: dict[K, int], key: K, value: int) -> None:
    total = counts.get(key, 0) + value
    if total:
        counts[key] = total
    else:
        counts.pop(key, None)


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
