"""What is left in the zones of one node while the containers of one pod are given their parts, one after another.

``find`` names the set of zones that a kubelet would choose, ``take`` gives out of it. Always true: nothing is given twice, and
what an ordinary init container had is there again for those after it, where the kubelet puts it: CPUs and devices only to sets
that contain the zones of all of them, memory only to the very same set.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import Final

import msgspec

from dray.numa.demand import CPU, Role
from dray.numa.layout import State
from dray.numa.masks import Need, apart, bits, closest, holds, lowest

RowNeeds = tuple[tuple[int, int], ...]
# As many zones as a kubelet allows unless it is told otherwise: so many have their sets walked through where that is needed.
ZONES_WALKED: Final = 8


class Needs(msgspec.Struct, frozen=True):
    """One container's demand (or a pod's) on one layout: (row, amount) of CPUs and devices, of memory, and for each resource
    the fewest zones that it needs; what counts as one has one entry. ``full`` is the code of the reason where no zones have
    room: one that says so when none would have it on an empty machine either."""

    role: Role
    rows: RowNeeds
    memory: RowNeeds
    widths: tuple[tuple[str, int], ...]
    full: str = "ZonesFull"

    @property
    def every(self) -> RowNeeds:
        return self.rows + self.memory


class Room:
    """A copy of a state that is used up."""

    def __init__(self, state: State) -> None:
        self.layout = state.layout
        self.free: list[Sequence[int]] = list(state.free)
        self._singles, self._groups = state.singles, state.groups
        # Zones of groups that have served one of the containers alone since: the Memory Manager forgets their bond then.
        self._forgotten = 0
        # By row, by position; memory by mask, then row.
        self._reuse: dict[int, list[int]] = {}
        self._memory_reuse: dict[int, dict[int, int]] = {}

    # -------------------------------------------------------------------------------------------------------------- find

    def find(self, number: int, needs: Needs) -> int | None:
        """The set of ``number`` zones that is chosen for this, or None. Raises BudgetSpent."""
        forced, wanted = self._with_reuse(needs)
        wanted += [(self._memory_in_one(row) if number == 1 else self.free[row], amount) for row, amount in needs.memory]
        places: Sequence[int] = self.layout.places
        known: list[int] = []
        if needs.memory and (self._groups or self._singles):
            grouped = reduce(or_, self._groups, 0) & ~self._forgotten
            taken = grouped if number == 1 else grouped | self._singles
            places = [place for place in places if not taken >> place & 1]
            known = [mask for mask in self._groups if mask.bit_count() == number and self._group_holds(mask, forced, needs)]
        found = self._search(number, places, wanted, forced)
        if found is not None:
            known.append(found)
        return min(known, key=self._order) if known else None

    def forced(self, needs: Needs) -> int:
        """The zones that must be in the set because an init container left something there."""
        return self._with_reuse(needs)[0]

    def _search(self, number: int, places: Sequence[int], wanted: list[Need], forced: int) -> int | None:
        if forced:
            inside = bits(forced)
            if any(place not in places for place in inside) or len(inside) > number:
                return None
            wanted = [(amounts, amount - sum(amounts[place] for place in inside)) for amounts, amount in wanted]
            wanted = [(amounts, amount) for amounts, amount in wanted if amount > 0]
            if len(inside) == number:
                return None if wanted else forced
            places = [place for place in places if not forced >> place & 1]
            number -= len(inside)
        distances = self.layout.distances
        if self.layout.prefer_closest and distances is not None:
            found = closest(number, places, wanted, distances, forced)
        else:
            found = lowest(number, places, wanted)
        return None if found is None else found | forced

    def _order(self, mask: int) -> tuple[int, int]:
        if self.layout.prefer_closest and self.layout.distances is not None:
            return apart(mask, self.layout.distances), mask
        return 0, mask

    def _with_reuse(self, needs: Needs) -> tuple[int, list[Need]]:
        """The zones that must be in the set because an init container left something there, and the amounts with that."""
        forced = 0
        wanted: list[Need] = []
        for row, amount in needs.rows:
            amounts = self.free[row]
            left = self._reuse.get(row)
            if left is not None:
                forced |= sum(1 << place for place, value in enumerate(left) if value)
                amounts = [one + other for one, other in zip(amounts, left)]
            wanted.append((amounts, amount))
        return forced, wanted

    def _memory_in_one(self, row: int) -> Sequence[int]:
        if not self._memory_reuse:
            return self.free[row]
        return [value + self._memory_reuse.get(1 << place, {}).get(row, 0) for place, value in enumerate(self.free[row])]

    def _group_holds(self, mask: int, forced: int, needs: Needs) -> bool:
        """Whether a set that memory is already given out from together has enough: such a set is used whole or not at all."""
        if forced & ~mask:
            return False
        _, wanted = self._with_reuse(needs)
        again = self._memory_reuse.get(mask, {})
        wanted += [(self.free[row], amount - again.get(row, 0)) for row, amount in needs.memory]
        return holds(bits(mask), wanted)

    # -------------------------------------------------------------------------------------------------------------- take

    def take(self, mask: int, needs: Needs) -> None:
        """Give out what is needed from the lowest zones of the set on. It must hold enough."""
        places = bits(mask)
        for row, amount in needs.rows:
            self._take_row(row, amount, places, needs.role)
        if needs.memory:
            self._take_memory(mask, places, needs)

    def holds(self, mask: int, needs: Needs) -> bool:
        """Whether these zones alone have room for all of this, with what init containers left there."""
        again = self._memory_reuse.get(mask, {})
        wanted = self._with_reuse(needs)[1] + [(self.free[row], amount - again.get(row, 0)) for row, amount in needs.memory]
        return holds(bits(mask), wanted)

    def serves(self, needs: Needs) -> bool:
        """Whether the machine has all of this, in whatever zones."""
        everywhere = self.layout.all_zones
        if self.holds(everywhere, needs):
            return True
        rows = msgspec.structs.replace(needs, memory=())
        return self.holds(everywhere, rows) and any(self.memory_usable(mask, needs) for mask in self._memory_reuse)

    def spill(self, mask: int, needs: Needs) -> None:
        """Give out from the set first and what it lacks from the other zones, lowest first, as far as they have it."""
        others = [place for place in self.layout.places if not mask >> place & 1]
        for row, amount in needs.rows:
            self._take_row(row, amount, (*bits(mask), *others), needs.role)
        if needs.memory:
            wider = self._widened(mask, needs)
            self._take_memory(wider, bits(wider), needs)

    def _widened(self, mask: int, needs: Needs) -> int:
        """The set that the Memory Manager serves a container from when these zones may lack what it needs: of those that it
        would offer and that contain them, one of the least width before all others, the narrowest, the lowest. Where it offers
        none, or there are too many to walk through: as many of the lowest zones more as have it."""
        wanted = [(self.free[row], amount) for row, amount in needs.memory]
        if holds(bits(mask), wanted):
            return mask
        if len(self.layout.zones) <= ZONES_WALKED:
            least = needs.widths[-1][1]
            offers = [each for each in self.offers(needs) if each & mask == mask]
            if offers:
                return min(offers, key=lambda each: (each.bit_count() != least, each.bit_count(), each))
        for place in self.layout.places:
            if holds(bits(mask), wanted):
                break
            mask |= 1 << place
        return mask

    def usable(self, mask: int, row: int, amount: int) -> bool:
        """Whether CPUs or devices of a row could be given from this set: room enough, and all that init containers left."""
        left = self._reuse.get(row)
        if left is None:
            return holds(bits(mask), [(self.free[row], amount)])
        if any(value and not mask >> place & 1 for place, value in enumerate(left)):
            return False
        return holds(bits(mask), [([a + b for a, b in zip(self.free[row], left)], amount)])

    def memory_usable(self, mask: int, needs: Needs) -> bool:
        """Whether the Memory Manager would offer this set."""
        together = mask.bit_count() > 1
        bound = mask & ~self._forgotten
        if any(bound & group and (not together or mask != group) for group in self._groups) or (
            together and mask & self._singles
        ):
            return False
        again = self._memory_reuse.get(mask, {})
        return holds(bits(mask), [(self.free[row], amount - again.get(row, 0)) for row, amount in needs.memory])

    def offers(self, needs: Needs) -> list[int]:
        """Every set that the Memory Manager would offer. On a machine with more zones than can be walked through: the sets that
        are in use together, those that init containers left memory in, and all zones."""
        everywhere = self.layout.all_zones
        walked = len(self.layout.zones) <= ZONES_WALKED
        sets = range(1, everywhere + 1) if walked else {*self._groups, *self._memory_reuse, everywhere}
        return [mask for mask in sets if self.memory_usable(mask, needs)]

    def offers_any(self, needs: Needs) -> bool:
        if not self._groups and not self._singles:
            return self.memory_usable(self.layout.all_zones, needs)  # wider sets have more, and nothing stands against them
        return bool(self.offers(needs))

    @property
    def unbound(self) -> bool:
        """Nothing given out before binds zones to each other, and no init container has left anything."""
        return not (self._groups or self._singles or self._reuse)

    def settle(self, mask: int | None, needs: Needs) -> int | None:
        """The set that the Memory Manager serves a container from when the pod's zones are these (None: any), or None when it
        refuses. It looks at what is free without counting what init containers left, and goes on to wider sets only if those
        are the narrowest for this container."""
        least = needs.widths[-1][1]
        if mask is None or not holds(bits(mask), [(self.free[row], amount) for row, amount in needs.memory]):
            offers = self.offers(needs)
            if mask is not None and mask not in offers and self.memory_usable(mask, needs):
                offers.append(mask)
            wider = [each for each in offers if each.bit_count() == least and (mask is None or each & mask == mask)]
            return min(wider, default=None)
        return None if self._violates(mask) else mask

    def _violates(self, mask: int) -> bool:
        if mask.bit_count() == 1:
            return False
        return bool(mask & self._singles) or any(mask & group and mask != group for group in self._groups)

    def _take_row(self, row: int, amount: int, places: Sequence[int], role: Role) -> None:
        free = list(self.free[row])
        left = self._reuse.get(row) or [0] * len(free)
        again = [0] * len(free)
        new = [0] * len(free)
        if self.layout.resources[row] == CPU:
            # The CPU Manager takes the lowest CPUs, whoever had them before.
            for place in places:
                again[place] = min(left[place], amount)
                new[place] = min(free[place], amount - again[place])
                amount -= again[place] + new[place]
        else:
            for place in range(len(free)):
                again[place] = min(left[place], amount)
                amount -= again[place]
            for place in places:
                new[place] = min(free[place], amount)
                amount -= new[place]
        self.free[row] = [have - given for have, given in zip(free, new)]
        if role == "init":
            self._reuse[row] = [have + given for have, given in zip(left, new)]
        elif row in self._reuse:
            self._reuse[row] = [have - given for have, given in zip(left, again)]

    def _take_memory(self, mask: int, places: Sequence[int], needs: Needs) -> None:
        again = self._memory_reuse.setdefault(mask, {}) if needs.role == "init" else self._memory_reuse.get(mask, {})
        for row, amount in needs.memory:
            reused = again.get(row, 0)
            self._draw(row, max(amount - reused, 0), places)
            if needs.role == "init":
                again[row] = max(reused, amount)
            elif reused:
                again[row] = max(reused - amount, 0)
        if len(places) == 1:
            self._singles |= mask
            self._forgotten |= mask
            return
        self._forgotten &= ~mask
        if mask not in self._groups:
            self._groups = tuple(sorted((*self._groups, mask)))

    def _draw(self, row: int, amount: int, places: Sequence[int]) -> None:
        free = list(self.free[row])
        for place in places:
            given = min(free[place], amount)
            free[place] -= given
            amount -= given
        self.free[row] = free

    # -------------------------------------------------------------------------------------------------------- what is left

    def idle(self) -> dict[int, list[int]]:
        """By row the CPUs of init containers that no container after them uses, by zone."""
        return {row: left for row, left in self._reuse.items() if self.layout.resources[row] == CPU and any(left)}

    def passing(self) -> dict[int, dict[int, int]]:
        """By set of zones and row the memory of init containers that no container after them has: it comes back when these are
        done. Their CPUs and devices stay with the pod until it is gone."""
        left = {mask: {row: amount for row, amount in by_row.items() if amount} for mask, by_row in self._memory_reuse.items()}
        return {mask: by_row for mask, by_row in left.items() if by_row}
