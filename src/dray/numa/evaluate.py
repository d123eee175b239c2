"""Would this node's kubelet admit this pod, and into which zones? One seam, an evaluator for each policy.

``Evaluators.admit(state, demand)`` is pure: equal states and equal demands have one answer, which is remembered. The evaluator
of a policy chooses the zones of one container (or of the whole pod, where the node aligns pods); everything else is the same
for all: the order of containers, what init containers leave, how amounts are split. An answer that was refused says with
``reason`` which numbers stood against it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from dray.api.reason import Reason
from dray.api.topology import Policy
from dray.numa.demand import Amounts, Demand, Role, is_memory
from dray.numa.layout import Interned, Layout, Row, State, spelt
from dray.numa.masks import BudgetSpent, joint_width, lowest, width
from dray.numa.placement import Placement, placement
from dray.numa.providers import merged_mask
from dray.numa.room import Needs, Room, RowNeeds

REMEMBERED: Final = 200_000


class Refusal(msgspec.Struct, frozen=True):
    """Why there are no zones: a reason's code, and the needs that could not be met (None: the pod was never looked at)."""

    code: str
    needs: Needs


class Verdict(msgspec.Struct, frozen=True):
    """The answer. Where the kubelet would not align the pod (``handled`` is False) it admits it, and nothing is placed.

    ``placement`` is what the pod keeps; ``peak`` what it holds until its init containers are done. ``masks`` has the zones of
    each aligned container, or of the pod. ``unknown`` are resources that the kubelet may align although this node does not
    report them by zone.
    """

    handled: bool
    admit: bool
    placement: Placement = ()
    peak: Placement = ()
    masks: tuple[int, ...] = ()
    unknown: tuple[str, ...] = ()
    refusal: Refusal | None = None

    @property
    def span(self) -> int:
        return len(self.placement)


class Evaluator(Protocol):
    """A policy: the zones for one container or pod in the room that is left, or a reason's code."""

    def choose(self, room: Room, needs: Needs) -> int | str: ...


class SingleNumaNode:
    """All in one zone."""

    def choose(self, room: Room, needs: Needs) -> int | str:
        if any(least > 1 for _, least in needs.widths):
            return "ZoneTooSmall"
        found = room.find(1, needs)
        return "ZonesFull" if found is None else found


class Restricted:
    """One set of zones that is for every resource as narrow as it can be on this machine, and has room for all of them."""

    def choose(self, room: Room, needs: Needs) -> int | str:
        widths = {least for _, least in needs.widths}
        if len(widths) > 1:
            return "ZoneWidthsDiffer"
        (least,) = widths
        if least > len(room.layout.zones):
            return "ZoneTooSmall"
        try:
            found = room.find(least, needs)
        except BudgetSpent:
            return "SearchBudget"
        return "ZonesFull" if found is None else found


class BestEffort:
    """What a kubelet that never refuses settles on: as Restricted where that succeeds, else the best of all merged hints."""

    def choose(self, room: Room, needs: Needs) -> int | str:
        found = _RESTRICTED.choose(room, needs)
        return merged_mask(room, needs) if isinstance(found, str) else found


_RESTRICTED: Final = Restricted()
_BEST_EFFORT: Final = BestEffort()
EVALUATORS: Final[dict[Policy, Evaluator]] = {"single-numa-node": SingleNumaNode(), "restricted": _RESTRICTED}


class Plan(msgspec.Struct, frozen=True):
    """A demand on a layout: the needs to find zones for, one after another. With pod scope there is one, and ``parts`` are the
    containers that share it; ``plain`` when they all run beside each other and ask for the same types of memory."""

    handled: bool
    needs: tuple[Needs, ...] = ()
    parts: tuple[Needs, ...] = ()
    plain: bool = True
    unknown: tuple[str, ...] = ()


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
    unknown = tuple(sorted(name for name in demand.resources if name not in layout.resources))
    units = tuple(filter(None, (_needs(layout, unit.role, unit.needs) for unit in demand.units)))
    handled = layout.policy in EVALUATORS
    if layout.scope == "container":
        return Plan(handled and bool(units), units, unknown=unknown)
    whole = _needs(layout, "app", demand.pod)
    if whole is None:
        return Plan(False, unknown=unknown)
    return Plan(handled, (whole,), units, all(unit.role == "app" for unit in units), unknown)


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
    return Needs(role, tuple(rows), tuple(memory), tuple(widths)) if widths else None


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
    if not plan.handled:
        return Verdict(False, True, unknown=plan.unknown)
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


def _admitted(state: State, plan: Plan, room: Room, masks: Sequence[int]) -> Verdict:
    peak = placement(_taken(state, room), state.layout)
    return Verdict(True, True, _lasting(state, room, peak), peak, tuple(masks), plan.unknown)


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
    if room.offers(needs):
        return _refused(plan, _blame(room, needs, code), needs)
    rest = msgspec.structs.replace(needs, memory=(), widths=needs.widths[:-1])
    if not rest.rows:
        # With nothing left to align, one policy stores no zones and the other all of them.
        return _served(state, plan, None if state.layout.policy == "single-numa-node" else state.layout.all_zones)
    chosen = evaluator.choose(room, rest)
    if isinstance(chosen, str):
        return _refused(plan, _blame(room, rest, chosen), rest)
    return _served(state, plan, chosen)


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
        room.spill(chosen, needs)
        masks.append(chosen)
    peak = placement(_taken(state, room), state.layout)
    return Verdict(False, aligned and bool(masks), _lasting(state, room, peak), peak, tuple(masks), plan.unknown)


def _taken(state: State, room: Room) -> dict[int, Row]:
    pairs = enumerate(zip(state.free, room.free))
    return {row: tuple(have - left for have, left in zip(before, after)) for row, (before, after) in pairs if before is not after}


def _lasting(state: State, room: Room, peak: Placement) -> Placement:
    """What the pod keeps when its init containers are done."""
    passing = room.passing()
    if not passing:
        return peak
    taken = _taken(state, room)
    return placement({row: _less(values, passing.get(row, ())) for row, values in taken.items()}, state.layout)


def _less(values: Sequence[int], back: Sequence[int]) -> list[int]:
    """Amounts by position without what comes back; what one zone does not have comes from the next."""
    left = list(values)
    rest = 0
    for place, amount in enumerate(back):
        given = min(left[place], amount + rest)
        rest += amount - given
        left[place] -= given
    for place in range(len(left)):
        given = min(left[place], rest)
        left[place] -= given
        rest -= given
    return left


# ---------------------------------------------------------------------------------------------------------------- reasons


def _blame(room: Room, needs: Needs, code: str) -> str:
    """Full zones by what fills them: the bonds of the Memory Manager or of the pod's own init containers, where those are it."""
    if code != "ZonesFull":
        return code
    least = max(number for _, number in needs.widths)
    free = [(room.free[row], value) for row, value in (*needs.rows, *needs.memory)]
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
    data["requests"] = {layout.resources[row]: spelt(layout.resources[row], value) for row, value in (*needs.rows, *needs.memory)}
    if code in ("ZonesFull", "ZoneTooSmall"):
        data |= _scarce(state, needs)
    subject = f"node/{node}" if node else ""
    return Reason(code, subject, data)


def _scarce(state: State, needs: Needs) -> dict[str, object]:
    """The resource that is furthest from fitting, with the most that so many zones have of it; none when only all together
    do not fit."""
    number = 1 if state.layout.policy == "single-numa-node" else max(least for _, least in needs.widths)
    worst: tuple[float, dict[str, object]] = (1.0, {"width": number})
    for row, value in (*needs.rows, *needs.memory):
        best = sum(sorted(state.free[row], reverse=True)[:number])
        name = state.layout.resources[row]
        if best / value < worst[0]:
            total = sum(sorted(state.layout.allocatable[row], reverse=True)[:number])
            found = {"width": number, "resource": name, "free": spelt(name, best), "total": spelt(name, total)}
            worst = (best / value, {**found, "needed": spelt(name, value)})
    return worst[1]
