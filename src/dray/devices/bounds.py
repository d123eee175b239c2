"""What lets the careful search skip: symmetry, a memory of failed states, counting and matching bounds, components.

Every rule here is one-sided: it may say that no solution exists beyond a choice, never wrongly. Two devices are the same
for a search when every request sees them alike and they draw the same from the same counter sets; swapping them turns any
solution into another one, so if the first fails, so does the second.

Where looking at a device can end in an error, upstream's search ends there, so nothing may be skipped that leads to such a
device: bounds ask only about the requests before the first that can end so (``safe`` of them). Memory and symmetry hold for
all: what failed without an error does so again.
"""

from __future__ import annotations

from collections.abc import Sequence

from dray.devices.attempt import Attempt
from dray.devices.problem import Option, Problem, RequestProblem, positions


class Bounds:
    """Rules for one component of requests."""

    def __init__(self, attempt: Attempt, requests: Sequence[RequestProblem], safe: int | None = None) -> None:
        self._attempt = attempt
        self._requests = requests
        self._safe = len(requests) if safe is None else safe
        self.failed: set[object] = set()
        self._reach = self._suffix_unions()
        self._classes = self._equal_classes()
        self._class_of = {position: mask for mask in self._classes for position in positions(mask)}
        self._single = self._reach[0] if self._reach else 0
        for mask in self._classes:
            self._single &= ~mask
        self._reserved = _reserved(requests[: self._safe], attempt.problem)
        layout = attempt.problem.layout
        reach = self._reach[0]
        self._drawing = sum(1 << position for position in positions(reach) if layout.groups[position])
        self._multiple = sum(1 << position for position in positions(reach) if layout.kinds[position].multiple)

    def _suffix_unions(self) -> list[int]:
        """By request number: the positions that this or a later request could take or end in an error at."""
        unions = [0] * (len(self._requests) + 1)
        for number in range(len(self._requests) - 1, -1, -1):
            unions[number] = unions[number + 1]
            for option in self._requests[number].options:
                unions[number] |= option.usable | option.poison | self._attempt.asked_of_constraints(option)
        return unions

    def _equal_classes(self) -> list[int]:
        layout = self._attempt.problem.layout
        options = [(request, option) for request in self._requests for option in request.options]
        groups: dict[object, int] = {}
        asked = 0
        for _, option in options:
            asked |= self._attempt.asked_of_constraints(option)
        for position in positions(self._reach[0] if self._reach else 0):
            bit = 1 << position
            kind = layout.kinds[position]
            if self._attempt.base_shared & bit:
                continue
            key = (
                tuple((bool(option.usable & bit), bool(option.poison & bit)) for _, option in options),
                tuple(values.atoms.get(position) for _, option in options for values in option.values.values()),
                tuple(position in values.failures for _, option in options for values in option.values.values()),
                # The order in which All takes devices decides whether a constraint makes it an error.
                position if asked & bit else -1,
                tuple(position in option.listed for _, option in options if option.alternative.everything),
                layout.consumption[position] if kind.consumes else None,
                layout.groups[position] if kind.consumes else None,
                kind.serial if kind.multiple else -1,
                bool(layout.last & bit),
                bool(self._attempt.base_taken & bit),
            )
            groups[key] = groups.get(key, 0) | bit
        return [mask for mask in groups.values() if mask & (mask - 1)]

    def same(self, position: int) -> int:
        """The devices that are equal to this one here and now."""
        mask = self._class_of.get(position, 0)
        if not mask:
            return 0
        touched = self._attempt.taken
        for share in self._attempt.shares:
            touched |= 1 << share
        return 0 if touched >> position & 1 else mask & ~touched

    # -------------------------------------------------------------------------------------------------------- memory

    def key(self, number: int, option: int, need: int, mask: int) -> object:
        """What decides whether the rest can be solved. Equal devices are only counted, past ones left out."""
        attempt = self._attempt
        reach = self._reach[number + 1] if need else self._reach[number]
        ahead = reach | mask
        request = self._requests[number]
        results = sum(1 for pick in attempt.picks if pick.request.claim == request.claim)
        layout = attempt.problem.layout
        shares = tuple(
            (position, tuple(sorted((attempt.attempted(position) or {}).items())))
            for position in sorted(attempt.shares)
            if ahead >> position & 1
        )
        states = tuple((state.count > 0, state.atoms) for state in attempt.states[request.claim])
        used: tuple[object, ...] = ()
        if attempt.used:
            live = {(layout.consumption[p][0], c) for p in positions(ahead) for c, _ in layout.consumption[p][1]}
            used = tuple(sorted((key, amount) for key, amount in attempt.used.items() if amount and key in live))
        grouped: tuple[object, ...] = ()
        if attempt.group_states:
            sets = {(layout.consumption[p][0], number) for p in positions(ahead) for number, _ in layout.groups[p]}
            grouped = tuple(sorted((key, state.key()) for key, state in attempt.group_states.items() if key in sets))
        return (
            number,
            option,
            need,
            results,
            self._counted(mask),
            self._counted(attempt.taken & reach),
            self._counted(attempt.claim_taken[request.claim] & ahead),
            states,
            used,
            grouped,
            shares,
        )

    def _counted(self, mask: int) -> tuple[int, ...]:
        if not mask:
            return ()
        return (mask & self._single, *((mask & equal).bit_count() for equal in self._classes))

    # -------------------------------------------------------------------------------------------------------- bounds

    def forward(self, number: int) -> bool:
        """After a pick: does every later request still have enough to choose from?"""
        live = self._live(self._reach[number + 1])
        return all(self._best(self._requests[later], live) for later in range(number + 1, self._safe))

    def _live(self, ahead: int) -> int:
        """Without the devices that the counters and groups would refuse by now."""
        dead = 0
        for position in positions(ahead & self._drawing & ~self._attempt.taken):
            if not self._attempt.could_draw(position):
                dead |= 1 << position
        return ~dead

    def _best(self, request: RequestProblem, live: int) -> bool:
        return any((self._free(request, option) & live).bit_count() >= option.count for option in request.options)

    def _free(self, request: RequestProblem, option: Option) -> int:
        mask = self._attempt.candidates(request, option)
        if not option.alternative.everything and not option.alternative.admin:
            mask &= ~self._reserved
        return mask

    def promising(self, number: int) -> bool:
        """Before a request: can it and all later ones be satisfied as far as counting, matching and counters can tell?"""
        rest = self._requests[number : self._safe]
        live = self._live(self._reach[number])
        if not all(self._best(request, live) for request in rest):
            return False
        wanted: list[tuple[int, int]] = []
        for request in rest:
            masks = 0
            exclusive = True
            for option in request.options:
                masks |= self._free(request, option) & live
                exclusive = exclusive and not option.alternative.admin
            if exclusive and not masks & self._multiple:
                wanted.append((masks, request.least))
        if number == 0 and not self._shares_allow(rest):
            return False
        return self._counters_allow(wanted) and _matching(wanted) and self._values_suffice(rest)

    def _shares_allow(self, rest: Sequence[RequestProblem]) -> bool:
        """Of each capacity: have the shared devices together what all requests that can have no others take at least?"""
        needed: dict[str, int] = {}
        room: dict[str, dict[int, int]] = {}
        for request in rest if self._multiple else ():
            for name, amount in self._least_shares(request, room).items():
                needed[name] = needed.get(name, 0) + amount
        return all(amount <= sum(room[name].values()) for name, amount in needed.items())

    def _least_shares(self, request: RequestProblem, room: dict[str, dict[int, int]]) -> dict[str, int]:
        """What the request takes at least of every capacity; what its devices have left of it is added to ``room``."""
        least: dict[str, int] | None = None
        for option in request.options:
            if option.alternative.everything or not option.count:
                return {}
            for position in positions(self._attempt.candidates(request, option)):
                takes = option.consumes.get(position)
                if takes is None or not self._multiple >> position & 1:
                    return {}
                used = self._attempt.view.consumed(position)
                for name in takes.amounts:
                    room.setdefault(name, {})[position] = max(takes.limits[name] - used.get(name, 0), 0)
                amounts = {name: amount * option.count for name, amount in takes.amounts.items()}
                known = least if least is not None else amounts
                least = {name: min(amount, amounts.get(name, 0)) for name, amount in known.items()}
        return least or {}

    def _values_suffice(self, rest: Sequence[RequestProblem]) -> bool:
        """Under a distinctAttribute constraint every device needs a value of its own: match slots to values."""
        for claim, index in sorted({(r.claim, i) for r in rest for o in r.options for i in o.values}):
            if self._attempt.problem.constraints[claim][index].match:
                continue
            numbers: dict[object, int] = {}
            wanted: list[tuple[int, int]] = []
            for request in rest:
                if request.claim == claim and all(index in option.values for option in request.options):
                    values = 0
                    for option in request.options:
                        values |= self._values(option, index, self._free(request, option), numbers)
                    wanted.append((values, request.least))
            if not _matching(wanted):
                return False
        return True

    def _values(self, option: Option, index: int, free: int, numbers: dict[object, int]) -> int:
        """The values that the option's free devices have, as bits numbered by ``numbers``."""
        found = option.values[index]
        mask = 0
        for atom, devices in found.masks.items():
            if devices & free:
                mask |= 1 << numbers.setdefault(atom, len(numbers))
        if found.unknown & free:
            mask |= 1 << numbers.setdefault(None, len(numbers))
        return mask

    def _counters_allow(self, wanted: list[tuple[int, int]]) -> bool:
        """The smallest consumptions first: how many devices can each counter set give at most?"""
        union, total = 0, 0
        for mask, need in wanted:
            union |= mask
            total += need
            if need > 1 and not self._sets_give(mask, need):
                return False
        return total <= 1 or self._sets_give(union, total)

    def _sets_give(self, mask: int, need: int) -> bool:
        layout = self._attempt.problem.layout
        by_part: dict[int, dict[int, list[int]]] = {}
        possible = 0
        for position in positions(mask):
            groups = layout.groups[position]
            if groups:
                by_part.setdefault(layout.consumption[position][0], {}).setdefault(groups[0][0], []).append(position)
            else:
                possible += 1
        for part, by_set in by_part.items():
            given = sum(
                max(self._set_gives(part, together) for together in self._compatible(members)) for members in by_set.values()
            )
            possible += min(given, self._part_gives(part, [position for members in by_set.values() for position in members]))
        return possible >= need

    def _part_gives(self, part: int, members: list[int]) -> int:
        """Where devices draw from several sets: how many can there be at most, taking all sets of the pool as one?"""
        layout = self._attempt.problem.layout
        if all(len(layout.groups[position]) == 1 for position in members):
            return len(members)
        content = self._attempt.view.contents[part]
        name_of = {index: name for (_, name), index in content.layout.counters.items()}
        taken: dict[str, list[int]] = {}
        counters: set[int] = set()
        for position in members:
            amounts: dict[str, int] = {}
            for counter, amount in layout.consumption[position][1]:
                counters.add(counter)
                amounts[name_of[counter]] = amounts.get(name_of[counter], 0) + amount
            for name, amount in amounts.items():
                taken.setdefault(name, []).append(amount)
        left: dict[str, int] = {}
        for counter in counters:
            free = content.available[counter] - self._attempt.used.get((part, counter), 0)
            left[name_of[counter]] = left.get(name_of[counter], 0) + max(free, 0)
        return min((len(members) - len(some) + _smallest(some, left[name]) for name, some in taken.items()), default=len(members))

    def _compatible(self, members: list[int]) -> list[list[int]]:
        """Devices of one counter set that could be in use together: those that share a group, or have none."""
        by_group: dict[str, list[int]] = {}
        for position in members:
            for group in self._attempt.problem.layout.groups[position][0][1] or ("",):
                by_group.setdefault(group, []).append(position)
        return list(by_group.values())

    def _set_gives(self, part: int, members: list[int]) -> int:
        layout = self._attempt.problem.layout
        available = self._attempt.view.contents[part].available
        amounts: dict[int, list[int]] = {}
        for position in members:
            for counter, amount in layout.consumption[position][1]:
                amounts.setdefault(counter, []).append(amount)
        most = len(members)
        for counter, taken in amounts.items():
            left = available[counter] - self._attempt.used.get((part, counter), 0)
            most = min(most, len(members) - len(taken) + _smallest(taken, left))
        return most


def _smallest(amounts: list[int], left: int) -> int:
    """How many of the amounts fit together at most: the smallest ones."""
    fitting = 0
    for amount in sorted(amounts):
        left -= amount
        if left < 0:
            break
        fitting += 1
    return fitting


def _reserved(requests: Sequence[RequestProblem], problem: Problem) -> int:
    """Devices that an All request without alternative must have: nobody else can take them."""
    mask = 0
    for request in requests:
        if len(request.options) == 1 and request.options[0].alternative.everything and not request.options[0].alternative.admin:
            for position in request.options[0].listed:
                if not problem.layout.kinds[position].multiple:
                    mask |= 1 << position
    return mask


def _matching(wanted: list[tuple[int, int]]) -> bool:
    """Can every request have its number of devices, each device once? Augmenting paths over bit masks."""
    slots = [mask for mask, need in wanted for _ in range(need)]
    owner: dict[int, int] = {}
    free = 0
    for mask in slots:
        free |= mask
    if free.bit_count() < len(slots):
        return False
    for slot, mask in enumerate(slots):
        direct = mask & free
        if direct:
            low = direct & -direct
            owner[low] = slot
            free ^= low
            continue
        freed = _augment(slot, slots, owner, free)
        if not freed:
            return False
        free ^= freed
    return True


def _augment(start: int, slots: list[int], owner: dict[int, int], free: int) -> int:
    """Breadth first over alternating paths; the free device that the path ends in, or 0."""
    came_from: dict[int, int] = {}
    seen = 0
    queue = [start]
    for slot in queue:
        fresh = slots[slot] & ~seen
        seen |= fresh
        while fresh:
            low = fresh & -fresh
            fresh ^= low
            came_from[low] = slot
            if low & free:
                _flip(low, start, came_from, owner)
                return low
            queue.append(owner[low])
    return 0


def _flip(device: int, start: int, came_from: dict[int, int], owner: dict[int, int]) -> None:
    held = {slot: low for low, slot in owner.items()}
    while True:
        slot = came_from[device]
        before = held.get(slot)
        owner[device] = slot
        if slot == start or before is None:
            return
        device = before


def components(problem: Problem) -> list[list[RequestProblem]]:
    """Groups of requests that share no device, counter set or constraint, each in order."""
    found: list[tuple[set[object], list[int]]] = []
    for number, request in enumerate(problem.requests):
        ties = _ties(request, problem)
        members = [number]
        apart = []
        for other_ties, other in found:
            if ties & other_ties:
                ties |= other_ties
                members += other
            else:
                apart.append((other_ties, other))
        found = [*apart, (ties, members)]
    groups = sorted(sorted(members) for _, members in found)
    return [[problem.requests[number] for number in members] for members in groups]


def _ties(request: RequestProblem, problem: Problem) -> set[object]:
    """Everything through which this request can get in the way of another one."""
    ties: set[object] = set()
    layout = problem.layout
    largest = 0
    for option in request.options:
        largest = max(largest, option.count)
        ties.update(("constraint", request.claim, index) for index in option.alternative.constraints)
        for position in positions(option.usable):
            ties.add(position)
            ties.update(("set", layout.consumption[position][0], number) for number, _ in layout.groups[position])
    if len(request.options) > 1 or request.options[0].alternative.everything:
        # How many devices it takes is not fixed, so it shares the limit of results with its claim.
        ties.add(("limit", request.claim))
    elif _limit_matters(request, problem):
        ties.add(("limit", request.claim))
    return ties


def _limit_matters(request: RequestProblem, problem: Problem) -> bool:
    return any(len(other.options) > 1 for other in problem.requests if other.claim == request.claim)
