"""The hints that a kubelet's managers would give, set by set, for the policy that takes the best of them whatever it is.

Walking through all sets of zones is only done where no set suits every resource, and only on machines with as many zones as a
kubelet allows by default; on larger ones the narrowest set for the resource that needs most zones stands in.
"""

from __future__ import annotations

from collections.abc import Iterator

from dray.numa.hints import Hint, Provided, TooManyHints, merge
from dray.numa.masks import BudgetSpent, lowest
from dray.numa.room import ZONES_WALKED, Needs, Room


def merged_mask(room: Room, needs: Needs) -> int | str:
    """The zones that a kubelet with policy best-effort settles on, or the code of a reason why it cannot serve the pod at all."""
    layout = room.layout
    if not room.serves(needs):
        return "ZonesFull"
    if len(layout.zones) > ZONES_WALKED:
        return _narrowest(room, needs)
    try:
        hint, _ = merge(
            "best-effort", layout.all_zones, [_hints(room, needs)], layout.distances if layout.prefer_closest else None
        )
    except TooManyHints:
        return _narrowest(room, needs)
    return layout.all_zones if hint.mask is None else hint.mask


def _hints(room: Room, needs: Needs) -> Provided:
    layout = room.layout
    widths = dict(needs.widths)
    found: dict[str, list[Hint] | None] = {}
    for row, amount in needs.rows:
        name = layout.resources[row]
        # Device Manager and CPU Manager look at the zones that have such devices, or CPUs, at all.
        zones = sum(1 << place for place, total in enumerate(layout.capacity[row]) if total)
        found[name] = [Hint(m, m.bit_count() == widths[name]) for m in _subsets(zones) if room.usable(m, row, amount)]
    if needs.memory:
        _, least = needs.widths[-1]
        offers = [Hint(m, m.bit_count() == least) for m in _subsets(layout.all_zones) if room.memory_usable(m, needs)]
        # Memory and each size of huge pages come with the same sets, and are merged each for itself. No offer: no opinion.
        found |= {layout.resources[row]: offers or None for row, _ in needs.memory}
    return found


def _subsets(zones: int) -> Iterator[int]:
    mask = zones
    while mask:
        yield mask
        mask = (mask - 1) & zones


def _narrowest(room: Room, needs: Needs) -> int:
    layout = room.layout
    number, row, amount = max((dict(needs.widths).get(layout.resources[row], 1), row, amount) for row, amount in _all(needs))
    for size in range(number, len(layout.zones)):
        try:
            found = lowest(size, layout.places, [(room.free[row], amount)])
        except BudgetSpent:
            break
        if found is not None:
            return found
    return layout.all_zones


def _all(needs: Needs) -> tuple[tuple[int, int], ...]:
    return needs.rows + needs.memory
