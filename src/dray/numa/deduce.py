"""Where pods must be for a node's published zones to be as they are.

NodeResourceTopology says what is free in each zone, not who has the rest. Where it counts exactly the pods that are there, that
is a sum with few solutions: each container or pod that needs one zone is in one of them, and what is left over is the one's that
is spread. Memory is left out of it, because exporters count it in ways of their own; it is where the rest of a pod is.

Always true: what is answered adds up to what was published, to the last CPU and device. Which of equal pods is where nobody can
tell, so of those it is said that they are not told apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from dray.numa.demand import Amounts, Demand, is_memory
from dray.numa.layout import Layout, State
from dray.numa.masks import width
from dray.numa.placement import Placement
from dray.numa.tally import Usage

# Zones tried, over all pods of a node.
BUDGET: Final = 4096
# By row and zone.
_Left = list[list[int]]


class Resident(NamedTuple):
    """A pod of which it is not certain where it is; ``thought`` is what its record says, nothing for one without."""

    asked: Demand
    thought: Usage


class Deduced(NamedTuple):
    """``apart``: no other pod could be there in its stead."""

    usage: Usage
    apart: bool


class _Kind(NamedTuple):
    """Residents that ask for the same: how much each takes of each row where it is in one zone."""

    rows: tuple[tuple[int, int], ...]
    uids: tuple[str, ...]


def deduced(published: State, certain: Sequence[Usage], residents: Mapping[str, Resident]) -> dict[str, Deduced]:
    """Where these are, beside those of whom it is certain; nothing where it cannot be told."""
    layout = published.layout
    if layout.scope != "pod" and any(len(each.asked.units) > 1 for each in residents.values()):
        return {}
    # What init containers alone had stays with a pod, and is not in every exporter's sums.
    for whole in (True, False) if any(_has_init(each.asked) for each in residents.values()) else (True,):
        found = _deduced(layout, _left(published, certain), residents, whole)
        if found:
            return found
    return {}


def _deduced(layout: Layout, left: _Left, residents: Mapping[str, Resident], whole: bool) -> dict[str, Deduced]:
    kinds, spread = _sorted_out(layout, residents, whole)
    if kinds is None or len(spread) > 1:
        return {}
    solutions = _solutions(layout, left, kinds, residents[spread[0]].asked if spread else None, whole)
    if not solutions:
        return {}
    as_thought = [_counts(kind, residents, len(layout.zones)) for kind in kinds]
    chosen = as_thought if as_thought in solutions else solutions[0]
    found: dict[str, Deduced] = {}
    for kind, counts in zip(kinds, chosen):
        for uid, place in _assigned(kind, counts, residents):
            found[uid] = Deduced(
                _moved(layout, residents[uid], place), apart=len(solutions) == 1 and max(counts) == len(kind.uids)
            )
        for place, count in enumerate(counts):
            for row, amount in kind.rows:
                left[row][place] -= count * amount
    for uid in spread:
        found[uid] = Deduced(_spread(layout, residents[uid], left), apart=len(solutions) == 1)
    return found


def _left(published: State, certain: Sequence[Usage]) -> _Left:
    """What those have of whom it is not certain where they are, all together."""
    layout = published.layout
    left = [[has - free for has, free in zip(*rows)] for rows in zip(layout.allocatable, published.free)]
    for usage in certain:
        for place, amounts in usage.placement:
            for name, value in amounts:
                if (row := layout.row(name)) is not None:
                    left[row][place] -= value
    return left


def _sorted_out(layout: Layout, residents: Mapping[str, Resident], whole: bool) -> tuple[list[_Kind] | None, list[str]]:
    """Residents of one zone by what they ask for, the largest first, and those that are spread; None where one has nothing that
    could be seen."""
    by_rows: dict[tuple[tuple[int, int], ...], list[str]] = {}
    spread: list[str] = []
    for uid, each in residents.items():
        rows = _rows(layout, _taken(each.asked, whole))
        if not rows:
            return None, []
        if max(width(layout.total(row), amount) for row, amount in _rows(layout, each.asked.pod)) > 1:
            spread.append(uid)
        else:
            by_rows.setdefault(rows, []).append(uid)
    ordered = sorted(by_rows, key=lambda rows: [amount for _, amount in rows], reverse=True)
    return [_Kind(rows, tuple(by_rows[rows])) for rows in ordered], spread


def _solutions(
    layout: Layout, had: _Left, kinds: Sequence[_Kind], spread: Demand | None, whole: bool
) -> list[list[tuple[int, ...]]]:
    """Of each kind, how many are in each zone, so that nothing is left but what the one has that is spread: all ways, or as many
    as are looked at; none where that were too many to look at."""
    left, budget, found = [list(row) for row in had], BUDGET, list[list[tuple[int, ...]]]()
    rest = dict(_rows(layout, _taken(spread, whole))) if spread is not None else {}
    seen = [row for row, name in enumerate(layout.resources) if not is_memory(name) and name not in layout.unaligned]

    def search(chosen: list[tuple[int, ...]]) -> None:
        nonlocal budget
        if len(chosen) == len(kinds):
            if all(min(left[row]) >= 0 and sum(left[row]) == rest.get(row, 0) for row in seen):
                found.append(chosen)
            return
        kind = kinds[len(chosen)]
        for counts in _divided(len(kind.uids), len(layout.zones)):
            budget -= 1
            if budget < 0:
                return
            if _take(left, kind, counts, 1):
                search([*chosen, counts])
            _take(left, kind, counts, -1)

    search([])
    return found if budget >= 0 else []


def _counts(kind: _Kind, residents: Mapping[str, Resident], zones: int) -> tuple[int, ...]:
    """How many are thought to be in each zone."""
    masks = [residents[uid].thought.mask for uid in kind.uids]
    return tuple(masks.count(1 << place) for place in range(zones))


def _take(left: _Left, kind: _Kind, counts: tuple[int, ...], sign: int) -> bool:
    """Whether there is so much."""
    enough = True
    for row, amount in kind.rows:
        for place, count in enumerate(counts):
            left[row][place] -= sign * count * amount
            enough = enough and left[row][place] >= 0
    return enough


def _divided(count: int, zones: int) -> Iterator[tuple[int, ...]]:
    """All ways in which so many may be in these zones."""
    if zones == 1:
        yield (count,)
        return
    for here in range(count, -1, -1):
        for rest in _divided(count - here, zones - 1):
            yield (here, *rest)


def _assigned(kind: _Kind, counts: tuple[int, ...], residents: Mapping[str, Resident]) -> Iterator[tuple[str, int]]:
    """Who is thought to be in a zone stays there as far as possible."""
    left, others = list(counts), []
    for uid in kind.uids:
        mask = residents[uid].thought.mask
        place = mask.bit_length() - 1
        if mask.bit_count() == 1 and left[place]:
            left[place] -= 1
            yield uid, place
        else:
            others.append(uid)
    free = [place for place, count in enumerate(left) for _ in range(count)]
    yield from zip(others, free)


def _moved(layout: Layout, resident: Resident, place: int) -> Usage:
    thought = resident.thought
    if len(thought.placement) == 1 and not thought.groups:
        return Usage(((place, thought.placement[0][1]),))
    return Usage(((place, tuple((name, value) for name, value in _kept(resident.asked) if layout.row(name) is not None)),))


def _spread(layout: Layout, resident: Resident, left: _Left) -> Usage:
    rows = {row for row, _ in _rows(layout, resident.asked.pod)}
    by_place: Placement = tuple(
        (place, amounts)
        for place in layout.places
        if (amounts := tuple(sorted((layout.resources[row], left[row][place]) for row in rows if left[row][place])))
    )
    memory = tuple((name, value) for name, value in _kept(resident.asked) if is_memory(name) and layout.row(name) is not None)
    mask = sum(1 << place for place, _ in by_place)
    return Usage(by_place, ((mask, memory),) if memory and mask.bit_count() > 1 else ())


def _rows(layout: Layout, amounts: Amounts) -> tuple[tuple[int, int], ...]:
    """What can be seen of these."""
    found = ((layout.row(name), value) for name, value in amounts if value and not is_memory(name))
    return tuple((row, value) for row, value in found if row is not None)


def _taken(asked: Demand, whole: bool) -> Amounts:
    return asked.pod if whole else _lasting(asked)


def _kept(asked: Demand) -> Amounts:
    """CPUs and devices also of init containers, memory of those that run on."""
    lasting = dict(_lasting(asked))
    return tuple(sorted({**lasting, **{name: value for name, value in asked.pod if not is_memory(name)}}.items()))


def _lasting(asked: Demand) -> Amounts:
    found: dict[str, int] = {}
    for unit in asked.units:
        for name, value in unit.needs if unit.role != "init" else ():
            found[name] = found.get(name, 0) + value
    return tuple(sorted(found.items()))


def _has_init(asked: Demand) -> bool:
    return any(unit.role == "init" for unit in asked.units)
