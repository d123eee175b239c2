"""Would this node's kubelet admit this pod, and into which zones? One seam, an evaluator for each policy.

``Evaluators.admit(state, demand)`` is pure: equal states and equal demands have one answer, which is remembered. The evaluator
of a policy chooses the zones of one container (or of the whole pod, where the node aligns pods); everything else is the same
for all: the order of containers, what init containers leave, how amounts are split. An answer that was refused says with
``reason`` which numbers stood against it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, islice
from typing import Final, Protocol

import msgspec

from dray.api.reason import Reason
from dray.api.topology import Policy
from dray.numa.demand import Amounts, Demand, Role, is_memory
from dray.numa.layout import Interned, Layout, Row, State, spelt
from dray.numa.masks import BudgetSpent, bits, holds, joint_width, lowest, width
from dray.numa.placement import Groups, Placement, placement
from dray.numa.providers import merged_mask
from dray.numa.room import Needs, Room, RowNeeds

REMEMBERED: Final = 50_000
# Of the sets of zones that were too full so many are looked at to tell which came nearest.
SETS_TOLD: Final = 256


class Refusal(msgspec.Struct, frozen=True):
    """Why there are no zones: a reason's code, and the needs that could not be met (None: the pod was never looked at)."""

    code: str
    needs: Needs


class Verdict(msgspec.Struct, frozen=True):
    """The answer. Where the kubelet would not align the pod (``handled`` is False) it admits it, and nothing is placed.

    ``placement`` is what the pod keeps: also the CPUs (these are ``idle``) and devices that only its init containers used.
    ``peak`` is what it holds until these are done, and ``passing`` what then comes back: memory, by the zones that it is drawn
    from. ``masks`` has the zones of each aligned container, or of the pod. ``unknown`` are resources that the kubelet may align
    although this node does not report them by zone.
    """

    handled: bool
    admit: bool
    placement: Placement = ()
    peak: Placement = ()
    masks: tuple[int, ...] = ()
    unknown: tuple[str, ...] = ()
    refusal: Refusal | None = None
    passing: Groups = ()
    idle: Placement = ()

    @property
    def span(self) -> int:
        return len(self.placement)


class Evaluator(Protocol):
    """A policy. ``width``: how many zones one container or pod must get on this machine, or a reason's code when no state of
    it would do. ``choose``: these zones in the room that is left, or a reason's code."""

    def width(self, layout: Layout, needs: Needs) -> int | str: ...

    def choose(self, room: Room, needs: Needs) -> int | str: ...


class SingleNumaNode:
    """All in one zone."""

    def width(self, layout: Layout, needs: Needs) -> int | str:
        return 1 if all(least == 1 for _, least in needs.widths) else "ZoneTooSmall"

    def choose(self, room: Room, needs: Needs) -> int | str:
        return _chosen(room, needs, self.width(room.layout, needs))


class Restricted:
    """One set of zones that is for every resource as narrow as it can be on this machine, and has room for all of them."""

    def width(self, layout: Layout, needs: Needs) -> int | str:
        least = needs.widths[0][1]
        if any(other != least for _, other in needs.widths):
            return "ZoneWidthsDiffer"
        return least if least <= len(layout.zones) else "ZoneTooSmall"

    def choose(self, room: Room, needs: Needs) -> int | str:
        return _chosen(room, needs, self.width(room.layout, needs))


def _chosen(room: Room, needs: Needs, number: int | str) -> int | str:
    if isinstance(number, str):
        return number
    try:
        found = room.find(number, needs)
    except BudgetSpent:
        return "SearchBudget"
    return needs.full if found is None else found


class BestEffort:
    """What a kubelet that never refuses settles on: as Restricted where that succeeds, else the best of all merged hints."""

    def width(self, layout: Layout, needs: Needs) -> int | str:
        return max(least for _, least in needs.widths)

    def choose(self, room: Room, needs: Needs) -> int | str:
        found = _RESTRICTED.choose(room, needs)
        return merged_mask(room, needs) if isinstance(found, str) else found


_RESTRICTED: Final = Restricted()
_BEST_EFFORT: Final = BestEffort()
EVALUATORS: Final[dict[Policy, Evaluator]] = {"single-numa-node": SingleNumaNode(), "restricted": _RESTRICTED}


class Plan(msgspec.Struct, frozen=True):
    """A demand on a layout: the needs to find zones for, one after another. With pod scope there is one, and ``parts`` are the
    containers that share it; ``plain`` when they all run beside each other and ask for the same types of memory.

    ``number`` is set for the common cases, in which there is nothing to do but to find so many zones once, or one zone for
    each container; ``never`` where the answer is the same in every state."""

    handled: bool
    needs: tuple[Needs, ...] = ()
    parts: tuple[Needs, ...] = ()
    plain: bool = True
    unknown: tuple[str, ...] = ()
    number: int = 0
    amounts: Amounts = ()
    never: Verdict | None = None


class Evaluators:
    """All evaluators, with everything that was answered before."""

    def __init__(self) -> None:
        self.layouts: Interned[Layout] = Interned()
        self.states: Interned[State] = Interned()
        self.demands: Interned[Demand] = Interned()
        self._plans: dict[tuple[Layout, Demand], Plan] = {}
        self._verdicts: dict[tuple[State, Demand], Verdict] = {}
        self._predictions: dict[tuple[State, Demand], Verdict] = {}

    def admit(self, state: State, demand: Demand) -> Verdict:
        """Would the kubelet of a node in this state admit a pod with this demand?"""
        key = (state, demand)
        found = self._verdicts.get(key)
        if found is None:
            if len(self._verdicts) >= REMEMBERED:
                self._verdicts.clear()
            found = self._verdicts[key] = evaluate(state, self.plan(state.layout, demand))
        return found

    def predict(self, state: State, demand: Demand) -> Verdict:
        """Where a kubelet that never refuses (best-effort) would put the pod: ``admit`` says whether all of it is aligned.
        Nothing is placed where there is nothing to align or not enough of it on the whole node."""
        key = (state, demand)
        found = self._predictions.get(key)
        if found is None:
            if len(self._predictions) >= REMEMBERED:
                self._predictions.clear()
            found = self._predictions[key] = predict(state, self.plan(state.layout, demand))
        return found

    def plan(self, layout: Layout, demand: Demand) -> Plan:
        key = (layout, demand)
        found = self._plans.get(key)
        if found is None:
            if len(self._plans) >= REMEMBERED:
                self._plans.clear()
            found = self._plans[key] = plan(layout, demand)
        return found


# ------------------------------------------------------------------------------------------------------------------ plan


def plan(layout: Layout, demand: Demand) -> Plan:
    """What of a demand this layout's kubelet aligns, with the fewest zones that each resource needs."""
    unknown = tuple(sorted(demand.resources.difference(layout.resources, layout.unaligned)))
    units = tuple(filter(None, (_needs(layout, unit.role, unit.needs) for unit in demand.units)))
    whole = _needs(layout, "app", demand.pod) if layout.scope == "pod" else None
    needs = units if layout.scope == "container" else (whole,) if whole is not None else ()
    handled = bool(needs) and layout.policy in EVALUATORS
    parts = units if whole is not None else ()
    if not handled:
        return Plan(False, needs, parts, unknown=unknown, never=Verdict(False, True, unknown=unknown))
    plain = not parts or all(unit.role == "app" for unit in units)
    return _settled(layout, Plan(True, needs, parts, plain, unknown))


def _settled(layout: Layout, plan: Plan) -> Plan:
    """The plan with what can be said about it before any state is known."""
    evaluator = EVALUATORS[layout.policy]
    numbers = [evaluator.width(layout, needs) for needs in plan.needs]
    for needs, number in zip(plan.needs, numbers):
        # Of a whole pod without memory to offer the kubelet goes on to look at the rest.
        if isinstance(number, str) and not (plan.parts and needs.memory):
            return msgspec.structs.replace(plan, never=_refused(plan, number, needs))
    if not plan.plain or layout.prefer_closest or any(needs.role == "init" for needs in plan.needs):
        return plan
    (number, *rest) = numbers
    if isinstance(number, str) or any(other != 1 for other in (number, *rest) if rest):
        return plan
    amounts = tuple((layout.resources[row], value) for row, value in sorted(plan.needs[0].every))
    return msgspec.structs.replace(plan, number=number, amounts=amounts)


def _needs(layout: Layout, role: Role, amounts: Amounts) -> Needs | None:
    rows: list[tuple[int, int]] = []
    memory: list[tuple[int, int]] = []
    widths: list[tuple[str, int]] = []
    for name, value in amounts:
        row = layout.row(name)
        if row is None:
            continue
        if is_memory(name):
            memory.append((row, value))
        else:
            rows.append((row, value))
            widths.append((name, width(layout.total(row), value)))
    if memory:
        widths.append(("+".join(layout.resources[row] for row, _ in memory), _memory_width(layout, tuple(memory))))
    return _judged(layout, Needs(role, tuple(rows), tuple(memory), tuple(widths))) if widths else None


def _judged(layout: Layout, needs: Needs) -> Needs:
    """With the code of why there are no zones, where no state of the machine would have any."""
    number = _number(layout, needs)
    needed = [(layout.allocatable[row], value) for row, value in needs.every]
    if any(sum(sorted(row, reverse=True)[:number]) < value for row, value in needed):
        return msgspec.structs.replace(needs, full="ZoneTooSmall")
    try:
        apart = lowest(number, layout.places, needed) is None
    except BudgetSpent:
        return needs
    return msgspec.structs.replace(needs, full="ZonesApart") if apart else needs


def _number(layout: Layout, needs: Needs) -> int:
    """How many zones the policy lets them have."""
    return 1 if layout.policy == "single-numa-node" else max(least for _, least in needs.widths)


def _memory_width(layout: Layout, memory: RowNeeds) -> int:
    """Memory and huge pages are one family: the width of a set that holds enough of all of them."""
    needs = [(layout.total(row), value) for row, value in memory]
    try:
        return joint_width(needs, layout.places) if len(needs) > 1 else width(*needs[0])
    except BudgetSpent:
        return len(layout.zones) + 1


# -------------------------------------------------------------------------------------------------------------- evaluate


def evaluate(state: State, plan: Plan) -> Verdict:
    """Zones for all needs of a plan, or why not."""
    if plan.never is not None:
        return plan.never
    if plan.number and not state.groups and (plan.number == 1 or not state.singles):
        return _once(state, plan) if len(plan.needs) == 1 else _one_by_one(state, plan)
    evaluator = EVALUATORS[state.layout.policy]
    room = Room(state)
    masks: list[int] = []
    for needs in plan.needs:
        chosen = evaluator.choose(room, needs)
        if isinstance(chosen, str) and plan.parts and needs.memory:
            return _without_opinion(state, plan, evaluator, chosen)
        if isinstance(chosen, str):
            return _refused(plan, _blame(room, needs, chosen), needs)
        if not plan.plain:
            return _served(state, plan, chosen)
        room.take(chosen, needs)
        masks.append(chosen)
    return _admitted(state, plan, room, masks)


def _once(state: State, plan: Plan) -> Verdict:
    """The common case: one set of zones, found once, with nothing that binds zones to each other."""
    (needs,) = plan.needs
    free = state.free
    try:
        mask = lowest(plan.number, state.layout.places, [(free[row], value) for row, value in needs.every])
    except BudgetSpent:
        return _refused(plan, "SearchBudget", needs)
    if mask is None:
        # Without bonds, all zones together are offered as soon as they have enough.
        bound = state.singles or not holds(state.layout.places, [(free[row], value) for row, value in needs.memory])
        if plan.parts and needs.memory and bound:
            return _without_opinion(state, plan, EVALUATORS[state.layout.policy], needs.full)
        return _refused(plan, needs.full, needs)
    if plan.number == 1:
        placed: Placement = ((mask.bit_length() - 1, plan.amounts),)
    else:
        placed = _drawn(state, needs, mask)
    return Verdict(True, True, placed, placed, (mask,), plan.unknown)


def _drawn(state: State, needs: Needs, mask: int) -> Placement:
    """What is given out of a set when nobody had anything of it before: from the lowest zones on."""
    places = bits(mask)
    found: list[list[tuple[str, int]]] = [[] for _ in places]
    for row, value in sorted(needs.every):
        free, name = state.free[row], state.layout.resources[row]
        for index, place in enumerate(places):
            given = min(free[place], value)
            if given:
                found[index].append((name, given))
                value -= given
    return tuple((place, tuple(amounts)) for place, amounts in zip(places, found) if amounts)


def _one_by_one(state: State, plan: Plan) -> Verdict:
    """Containers that need one zone each, one after another, with no init container that leaves anything."""
    free = list(map(list, state.free))
    placed: dict[int, dict[str, int]] = {}
    masks = []
    for needs in plan.needs:
        wanted = needs.every
        for place in state.layout.places:
            if all(free[row][place] >= value for row, value in wanted):
                break
        else:
            return _refused(plan, needs.full, needs)
        here = placed.setdefault(place, {})
        for row, value in wanted:
            free[row][place] -= value
            name = state.layout.resources[row]
            here[name] = here.get(name, 0) + value
        masks.append(1 << place)
    found = tuple((place, tuple(sorted(placed[place].items()))) for place in sorted(placed))
    return Verdict(True, True, found, found, tuple(masks), plan.unknown)


def _admitted(state: State, plan: Plan, room: Room, masks: Sequence[int]) -> Verdict:
    peak = placement(_taken(state, room), state.layout)
    lasting, passing, idle = _lasting(state, room, peak), _passing(room), placement(room.idle(), state.layout)
    return Verdict(True, True, lasting, peak, tuple(masks), plan.unknown, passing=passing, idle=idle)


def _refused(plan: Plan, code: str, needs: Needs) -> Verdict:
    return Verdict(True, False, unknown=plan.unknown, refusal=Refusal(code, needs))


def _served(state: State, plan: Plan, mask: int | None) -> Verdict:
    """A pod's containers served one after another from the pod's zones. The Memory Manager may have to look further for one of
    them, and may then refuse, although the pod as a whole fits."""
    room = Room(state)
    masks = 0
    for part in plan.parts:
        if part.rows and mask is not None:
            room.take(mask, msgspec.structs.replace(part, memory=()))
        if part.memory:
            settled = room.settle(mask, part)
            if settled is None:
                return _refused(plan, "ZoneMemoryOfPod", part)
            room.take(settled, msgspec.structs.replace(part, rows=()))
            masks |= settled
    return _admitted(state, plan, room, (masks if mask is None else mask,))


def _without_opinion(state: State, plan: Plan, evaluator: Evaluator, code: str) -> Verdict:
    """A pod that no zones were found for. If the Memory Manager had nothing to offer for the pod as a whole, the kubelet takes
    that for no opinion, aligns the rest, and then serves memory container by container."""
    (needs,) = plan.needs
    room = Room(state)
    if room.offers_any(needs):
        return _refused(plan, _blame(room, needs, code), needs)
    rest = msgspec.structs.replace(needs, memory=(), widths=needs.widths[:-1], full="ZonesFull")
    if not rest.rows:
        # With nothing left to align, one policy stores no zones and the other all of them.
        zones: int | str | None = None if state.layout.policy == "single-numa-node" else state.layout.all_zones
    else:
        rest = _judged(state.layout, rest)
        zones = evaluator.choose(room, rest)
    if isinstance(zones, str):
        return _refused(plan, _blame(room, rest, zones), rest)
    found = _served(state, plan, zones)
    # Not that one of the containers is not served stands against the pod, but that there is no memory for all of it.
    return found if found.admit else _refused(plan, _blame(room, needs, code), needs)


def predict(state: State, plan: Plan) -> Verdict:
    """As ``evaluate``, for a policy that never refuses: what does not fit into the chosen zones comes from others."""
    room = Room(state)
    masks: list[int] = []
    aligned = True
    for needs in plan.needs:
        chosen = _BEST_EFFORT.choose(room, needs)
        if isinstance(chosen, str):
            return Verdict(False, False, unknown=plan.unknown)
        aligned = aligned and room.holds(chosen, needs)
        for part in plan.parts or (needs,):
            room.spill(chosen, part)
        masks.append(chosen)
    peak = placement(_taken(state, room), state.layout)
    lasting, aligned = _lasting(state, room, peak), aligned and bool(masks)
    return Verdict(False, aligned, lasting, peak, tuple(masks), plan.unknown, passing=_passing(room))


def _taken(state: State, room: Room) -> dict[int, Row]:
    pairs = enumerate(zip(state.free, room.free))
    return {row: tuple(have - left for have, left in zip(before, after)) for row, (before, after) in pairs if before is not after}


def _lasting(state: State, room: Room, peak: Placement) -> Placement:
    """What the pod keeps when its init containers are done: the Memory Manager gives back to the zones that it drew from
    together, the lowest first."""
    passing = room.passing()
    if not passing:
        return peak
    left = {row: list(values) for row, values in _taken(state, room).items()}
    # A zone on its own comes before every set with others in which it is.
    for mask, by_row in sorted(passing.items()):
        for row, amount in by_row.items():
            for place in bits(mask):
                given = min(left[row][place], amount)
                left[row][place] -= given
                amount -= given
    return placement(left, state.layout)


def _passing(room: Room) -> Groups:
    names = room.layout.resources
    return tuple(
        (mask, tuple(sorted((names[row], amount) for row, amount in by_row.items())))
        for mask, by_row in sorted(room.passing().items())
    )


# ---------------------------------------------------------------------------------------------------------------- reasons


def _blame(room: Room, needs: Needs, code: str) -> str:
    """Full zones by what fills them: the bonds of the Memory Manager or of the pod's own init containers, where those are it."""
    if code != "ZonesFull" or room.unbound:
        return code
    least = max(number for _, number in needs.widths)
    free = [(room.free[row], value) for row, value in needs.every]
    try:
        fits = lowest(least, room.layout.places, free) is not None
    except BudgetSpent:
        return code
    if not fits:
        return code
    return "ZonesOfInit" if room.forced(needs) else "ZoneMemoryGroups"


def reason(verdict: Verdict, state: State, node: str = "") -> Reason | None:
    """Why a verdict refused, with the numbers; None for one that did not."""
    if verdict.refusal is None:
        return None
    code, needs = verdict.refusal.code, verdict.refusal.needs
    layout = state.layout
    data: dict[str, object] = {"policy": layout.policy, "zones": len(layout.zones)}
    data["widths"] = dict(needs.widths)
    data["requests"] = {layout.resources[row]: spelt(layout.resources[row], value) for row, value in needs.every}
    if code == "ZonesFull":
        data |= _scarce(state, needs)
    elif code == "ZoneTooSmall":
        data |= _too_small(layout, needs)
    near = nearest(verdict.refusal, state)
    if near is not None:
        mask, lacks = near
        data |= {"nearest": list(layout.named(mask)), "lacks": {name: spelt(name, value) for name, value in lacks}}
    subject = f"node/{node}" if node else ""
    return Reason(code, subject, data)


def nearest(refusal: Refusal, state: State) -> tuple[int, Amounts] | None:
    """The zones that it is about, with what they lack: nothing where they have room and memory given out before stands against
    it. None where it is not about certain zones."""
    layout, needs = state.layout, refusal.needs
    match refusal.code:
        case "ZonesFull":
            return _nearest_miss(state, needs)
        case "ZonesApart":
            return _nearest_miss(State(layout, layout.allocatable), needs)
        case "ZoneMemoryGroups":
            mask = lowest(_number(layout, needs), layout.places, [(state.free[row], value) for row, value in needs.every])
            return (mask, ()) if mask is not None else None
        case _:
            return None


def _nearest_miss(state: State, needs: Needs) -> tuple[int, Amounts] | None:
    """The zones that come nearest to having room, with what they lack: zones that would do when empty come before all others.
    None when what is free does not show it, as for a container that only those before it left no room for. A bounded number of
    sets is looked at."""
    layout = state.layout
    number = _number(layout, needs)
    best: tuple[tuple[bool, float], int, Amounts] | None = None
    for places in islice(combinations(layout.places, number), SETS_TOLD):
        short = [(row, value - sum(state.free[row][place] for place in places), value) for row, value in needs.every]
        short = [(row, missing, value) for row, missing, value in short if missing > 0]
        never = not holds(places, [(layout.allocatable[row], value) for row, value in needs.every])
        far = never, sum(missing / value for _, missing, value in short)
        if short and (best is None or far < best[0]):
            lacks = tuple((layout.resources[row], missing) for row, missing, _ in short)
            best = (far, sum(1 << place for place in places), lacks)
    return None if best is None else best[1:]


def _scarce(state: State, needs: Needs) -> dict[str, object]:
    """The resource that is furthest from fitting, with the most that so many zones have of it; none when only all together
    do not fit."""
    number = _number(state.layout, needs)
    worst: tuple[float, dict[str, object]] = (1.0, {"width": number})
    for row, value in needs.every:
        best = _most(state.free[row], number)
        name = state.layout.resources[row]
        if best / value < worst[0]:
            found = {"width": number, "resource": name, "free": spelt(name, best), "total": _total(state.layout, row, number)}
            worst = (best / value, {**found, "needed": spelt(name, value)})
    return worst[1]


def _too_small(layout: Layout, needs: Needs) -> dict[str, object]:
    """The resource of which so many zones have too little even when they are empty, with what of it nobody gets."""
    number = _number(layout, needs)
    row, value = min(needs.every, key=lambda need: _most(layout.allocatable[need[0]], number) / need[1])
    name = layout.resources[row]
    found: dict[str, object] = {"width": number, "resource": name, "total": _total(layout, row, number)}
    kept = _most(layout.capacity[row], number) - _most(layout.allocatable[row], number)
    return {**found, "needed": spelt(name, value), **({"kept": spelt(name, kept)} if kept > 0 else {})}


def _total(layout: Layout, row: int, number: int) -> str:
    return spelt(layout.resources[row], _most(layout.allocatable[row], number))


def _most(amounts: Row, number: int) -> int:
    return sum(sorted(amounts, reverse=True)[:number])
