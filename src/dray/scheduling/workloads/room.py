"""Making room for a gang: who would have to go, who of them stays after all, and who finds another place.

Always true: everything here is a trial that is not kept; an answer is a plan in which all members have their places at once.
Victims are taken in the order that is given, each as a whole (a surplus pod, or the core of a gang); those that are not in the
way are given back, the most deserving first; those that are left are moved where there is room for them, or evicted.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from typing import Final, NamedTuple, TypeVar

from dray.books.nodes import NodeInfo, Placed
from dray.scheduling.actions.preemption import Preemption, TakenOut
from dray.scheduling.parts import Parts
from dray.scheduling.placing.cycle import Cycle
from dray.scheduling.placing.state import CycleState, NotPlaced, Placement
from dray.scheduling.waiting.queue import QueuedPod
from dray.scheduling.workloads.freeing import ToFree
from dray.scheduling.workloads.jobs import Job
from dray.scheduling.workloads.nearness import Nearness
from dray.scheduling.workloads.together import NOWHERE_SPECIAL, Scope, Seat, Table, Together
from dray.scheduling.workloads.weights import Weight, Weights

Answer = TypeVar("Answer")

# Nodes that are tried one by one for one job.
MOST_NODES: Final = 128
# Of those, how many are tried where one was found already, but fewer may have to go on another.
MOST_BETTER: Final = 16
# How often members are seated anew with one more out, where what was found is not allowed: as they sit it would be found again.
MOST_ANEW: Final = 8
# Victims of a plan of whom it is asked whether they need go.
MOST_SPARED: Final = 32
# How many members get up and sit down again for others who go back to their node, node by node.
MOST_RESEATED: Final = 4096
# How many members are seated to find out whether victims need go, all victims together.
MOST_SEATED: Final = 1024


class Step(NamedTuple):
    """What one job loses at once. ``surplus``: of its pods that it does without, each is as good as another."""

    job: Job
    pods: tuple[Placed, ...]
    surplus: bool = False


class Plan(NamedTuple):
    """``evicted`` have no other place; ``moved`` are evicted too, and each of their pods has another node. ``places``: what of
    those nodes they are to have, by uid."""

    seats: list[Seat]
    evicted: list[Step]
    moved: list[tuple[Step, dict[str, str]]]
    places: Mapping[str, Placement] = {}

    def with_more(self, other: Plan) -> Plan:
        """Both at once, for one job."""
        places = {**self.places, **other.places}
        return Plan(self.seats + other.seats, self.evicted + other.evicted, self.moved + other.moved, places)

    @property
    def victims(self) -> list[Placed]:
        return [placed for step in (*self.evicted, *(step for step, _ in self.moved)) for placed in step.pods]


class Wanted(NamedTuple):
    """The pods that need room. ``within``: whether what is posted keeps to the limits of queues; ``judge``: whether a plan is
    allowed; ``breaks``: how many of its victims break a disruption budget; ``returns``: whether who is evicted may start again
    elsewhere, for the limits of its queues; ``all_stay``: no plan is in which anybody is left without a place, so that large ones
    keep theirs first; ``scope``: by pod the only nodes for it."""

    members: Sequence[QueuedPod]
    within: Callable[[], bool]
    judge: Callable[[Plan], bool]
    breaks: Callable[[Plan], int]
    returns: Callable[[Job], bool]
    all_stay: bool = False
    scope: Scope = NOWHERE_SPECIAL


def _orders(steps: Sequence[Step], weights: Weights) -> list[list[Step]]:
    """In which victims may be spared. Where all lose the same these are one, and it is found only once who has to go."""
    found = [list(reversed(steps))]
    for order in (_most_at_once_first(steps, weights), _most_lost_first(steps, weights)):
        if order not in found:
            found.append(order)
    return found


def _most_at_once_first(steps: Sequence[Step], weights: Weights) -> list[Step]:
    """By how many pods a job loses at once, then by how little that is; of one job the core before its surplus."""
    largest: dict[str, tuple[int, Weight]] = {}
    for step in steps:
        own = -len(step.pods), weights.placed(step.pods)
        largest[step.job.key] = min(own, largest.get(step.job.key, own))
    found = list(reversed(steps))
    found.sort(key=lambda step: largest[step.job.key])
    return found


def _most_lost_first(steps: Sequence[Step], weights: Weights) -> list[Step]:
    """By how many pods a job loses at once, then by how much that is; of one job the core before its surplus."""
    largest: dict[str, tuple[int, Weight]] = {}
    for step in steps:
        own = len(step.pods), weights.placed(step.pods)
        largest[step.job.key] = max(own, largest.get(step.job.key, own))
    found = list(reversed(steps))
    found.sort(key=lambda step: largest[step.job.key], reverse=True)
    return found


def _has_devices(seat: Seat) -> bool:
    """Of claims, or for extended resources: those are the pod's own."""
    return bool(seat.pending.pod.spec.resource_claims or seat.placement.results or seat.placement.special)


def in_order(seats: list[Seat], scope: Scope) -> list[Seat]:
    """Of members that ask for the same, and may be on the same nodes, the first gets the first node by name."""
    alike: dict[object, list[Seat]] = {}
    for seat in seats:
        same = (seat.pending.demand.id, scope.get(seat.pending.uid))
        alike.setdefault(same if not _has_devices(seat) else seat.pending.uid, []).append(seat)
    found: list[Seat] = []
    for group in alike.values():
        pods = sorted((seat.pending for seat in group), key=lambda pending: pending.pod.key)
        places = sorted((seat.placement for seat in group), key=lambda placement: placement.node)
        found.extend(map(Seat, pods, places))
    return found


def _first_none(steps: Iterable[Step]) -> Iterator[Step | None]:
    yield None
    yield from steps


class Room:
    def __init__(
        self, parts: Parts, cycle: Cycle, preemption: Preemption, together: Together, nearness: Nearness, now: float
    ) -> None:
        self._parts, self._cycle, self.preemption, self._together, self._now = parts, cycle, preemption, together, now
        self._nearness, self._weights = nearness, together.weights
        self._states: dict[int, CycleState] = {}
        self._reseated = 0
        # Pods that are leaving already: what they hold is as good as free, though not yet.
        self.leaving: list[Placed] = []
        # Of those, who is to have which other place, by uid: that is as good as taken.
        self.places: dict[str, Placement] = {}

    def planned(self, plan: Plan) -> None:
        self.leaving += plan.victims
        self.places |= plan.places

    def withdrawn(self, plan: Plan) -> None:
        gone = {placed.pod.uid for placed in plan.victims}
        self.leaving = [placed for placed in self.leaving if placed.pod.uid not in gone]
        self.give_up(gone)

    def give_up(self, pods: Container[str]) -> None:
        """Nothing is kept for pods that were to move."""
        self.places = {uid: place for uid, place in self.places.items() if uid not in pods}

    # ----------------------------------------------------------------------------------------------------- in their order

    def in_order(self, wanted: Wanted, steps: Iterable[Step]) -> Plan | None:
        """Victims go in this order until all members fit and the plan is allowed."""
        judged = 0
        with self._parts.books.trial():
            table, taken = self._together.table(wanted.scope), list[Step]()
            out = self._taken_out(table, wanted.members)
            left = self._seat(table, wanted.members)
            for step in _first_none(steps):
                if step is not None:
                    out.take(step.pods)
                    taken.append(step)
                    left = self._seat(table, left)
                if left or not wanted.within():
                    continue
                for plan in self._cheapest(wanted, table, out, taken):
                    if wanted.judge(plan):
                        return plan
                judged += 1
                if judged >= MOST_ANEW:
                    return None
            if taken and left and len(wanted.members) > 1:
                return self._all_out(wanted, table, out, taken)
        return None

    def _cheapest(self, wanted: Wanted, table: Table, out: TakenOut, taken: list[Step]) -> list[Plan]:
        """As the members came to sit, seated anew now that all are out, and anew beside everybody who need not go then; those
        that break fewer budgets and drive out fewer first."""
        plans = [self._finish(wanted, table, out, taken)]
        if len(taken) < 2 or not plans[0].victims:
            return plans
        for spare in (False, True):
            with self._parts.books.trial():
                noted, before = table.noted(), out.noted()
                left = self._spared(wanted, table, out, taken, plans[0]) if spare else self._anew(wanted, table, taken)
                if left is not None:
                    plans.append(self._finish(wanted, table, out, left))
            table.restore(noted)
            out.restore(before)
            plans.sort(key=lambda each: (wanted.breaks(each), len(each.victims)))
        return plans

    def _anew(self, wanted: Wanted, table: Table, taken: list[Step]) -> list[Step] | None:
        for uid in list(table.seats):
            table.leave(uid)
        return taken if not self._seat(table, wanted.members) and wanted.within() else None

    def _spared(self, wanted: Wanted, table: Table, out: TakenOut, taken: Sequence[Step], plan: Plan) -> list[Step] | None:
        """Who of the plan's victims has to go wherever the members sit, which they do then; None if all have to."""
        for uid in list(table.seats):
            table.leave(uid)
        victims = {placed.pod.uid for placed in plan.victims}
        left, broken, spared = list[Step](), set[str](), False
        tries = min(MOST_SPARED, max(1, MOST_SEATED // len(wanted.members)))
        for step in reversed(taken):
            if not any(placed.pod.uid in victims for placed in step.pods):
                out.give_back(step.pods)
            elif step.job.key in broken or len(left) >= tries or not self._can_stay(step, wanted, table, out):
                # Where the core of a gang goes, its surplus goes too.
                broken.update(() if step.surplus else (step.job.key,))
                left.insert(0, step)
            else:
                spared = True
        return left if spared and not self._seat(table, wanted.members) and wanted.within() else None

    def _can_stay(self, step: Step, wanted: Wanted, table: Table, out: TakenOut) -> bool:
        """Whether the members find places also with these pods where they were, which they are then."""
        out.give_back(step.pods)
        with self._parts.books.trial():
            noted = table.noted()
            stays = not self._seat(table, wanted.members) and wanted.within()
        table.restore(noted)
        if not stays:
            out.take(step.pods)
        return stays

    def _all_out(self, wanted: Wanted, table: Table, out: TakenOut, taken: list[Step]) -> Plan | None:
        """With everybody out that may go: whether the members fit if they are placed more cleverly."""
        for uid in list(table.seats):
            table.leave(uid)
        found = self._together.find(wanted.members, wanted.scope)
        if not isinstance(found, list) or not wanted.within():
            return None
        for seat in found:
            table.adopt(seat)
        plan = self._finish(wanted, table, out, taken)
        return plan if wanted.judge(plan) else None

    def _seat(self, table: Table, members: Sequence[QueuedPod]) -> list[QueuedPod]:
        """Those that still have no place."""
        left: list[QueuedPod] = []
        failed: set[Hashable] = set()
        for pending in members:
            if (failed and self._together.likeness(pending) in failed) or not table.sits(pending):
                left.append(pending)
                failed.add(self._together.likeness(pending))
        return left

    # ---------------------------------------------------------------------------------------------------- of several jobs

    def jointly(self, wanted: Wanted, steps: Sequence[Step]) -> Plan | None:
        """Places for members of several jobs at once, if all of these go who have to: spared in the order of what they deserve
        or by how many leave at once, whichever lets fewer go."""
        wanted = wanted._replace(members=sorted(wanted.members, key=self._weights.waiting, reverse=True))
        plans: list[Plan] = []

        def cost(plan: Plan) -> tuple[int, int, Weight]:
            return wanted.breaks(plan), len(plan.victims), self._lost(plan)

        with self._parts.books.trial():
            table = self._together.table(wanted.scope)
            out = self._taken_out(table, wanted.members)
            for step in steps:
                out.take(step.pods)
            if self._seat(table, wanted.members) or not wanted.within():
                return None
            for order in _orders(steps, self._weights):
                with self._parts.books.trial():
                    noted, before = table.noted(), out.noted()
                    left = self._in_the_way(order, wanted, table, out)
                    if not self._seat(table, wanted.members) and wanted.within():
                        plans.append(self._finish(wanted, table, out, [step for step in steps if step in left]))
                table.restore(noted)
                out.restore(before)
        return min(plans, key=cost, default=None)

    def _lost(self, plan: Plan) -> Weight:
        return self._weights.placed(placed for step in plan.evicted for placed in step.pods)

    def supposing(self, plans: Sequence[Plan], then: Callable[[Callable[[Step], bool]], Answer]) -> Answer:
        """What is answered when all of these have come true; it may ask whether there is room again for who was evicted, who has
        it then."""
        with self._parts.books.trial():
            table = self._together.table()
            out = self._taken_out(table, [seat.pending for plan in plans for seat in plan.seats])
            for plan in plans:
                out.take(placed for placed in plan.victims if placed.pod.uid not in out.out)
                for placed in plan.victims:
                    if (place := plan.places.get(placed.pod.uid)) is not None:
                        table.post(placed.pod, placed.demand, place)
                for seat in plan.seats:
                    table.take(seat.pending, seat.placement)
            return then(lambda step: self._comes_back(step, table, out))

    def _comes_back(self, step: Step, table: Table, out: TakenOut) -> bool:
        with self._parts.books.trial() as trial:
            for placed in step.pods:
                place = self._best_for(placed, out, None)
                if place is None:
                    return False
                table.post(placed.pod, placed.demand, place)
            trial.keep()
        return True

    def _in_the_way(self, order: Sequence[Step], wanted: Wanted, table: Table, out: TakenOut) -> list[Step]:
        """Who of those that are out has to stay out wherever the members sit, who get up for it."""
        for uid in list(table.seats):
            table.leave(uid)
        left, broken = list[Step](), set[str]()
        for step in order:
            # Where the core of a gang goes, its surplus goes too.
            if step.job.key in broken or not self._can_stay(step, wanted, table, out):
                broken.update(() if step.surplus else (step.job.key,))
                left.append(step)
        return left

    # ------------------------------------------------------------------------------------------------------ node by node

    def by_node(self, wanted: Wanted, nodes: Sequence[ToFree], steps_on: Callable[[str], list[Step]]) -> Plan | None:
        """For each member, the hardest first, the node of these on which it fits when the fewest victims leave it, in a plan that
        is allowed."""
        with self._parts.books.trial():
            table, taken = self._together.table(wanted.scope), list[Step]()
            out = self._taken_out(table, wanted.members)
            plan: Plan | None = None
            self._reseated = 0
            for pending in sorted(wanted.members, key=self._weights.waiting, reverse=True):
                if table.sits(pending):
                    continue
                already = len(plan.victims) if plan is not None else 0
                plan = self._freed_node(pending, wanted, nodes, steps_on, out, table, taken, already)
                if plan is None:
                    return None
                # Nobody sits where somebody is who stays after all.
                gone = self._put_back(wanted, table, out, taken)
                taken = [step for step in taken if step in gone]
            if plan is None or not wanted.within():  # whoever sat down for whom nobody had to leave counts for limits, too
                return None
            if len(plan.seats) < len(wanted.members):
                plan = self._finish(wanted, table, out, taken)
                if not wanted.judge(plan):
                    return None
            return plan._replace(seats=in_order(plan.seats, wanted.scope))

    def _freed_node(
        self,
        pending: QueuedPod,
        wanted: Wanted,
        nodes: Sequence[ToFree],
        steps_on: Callable[[str], list[Step]],
        out: TakenOut,
        table: Table,
        taken: list[Step],
        already: int,
    ) -> Plan | None:
        """``already``: how many leave for the members before it."""
        within = wanted.scope.get(pending.uid)
        nodes = [node for node in nodes if within is None or node.name in within][:MOST_NODES]
        best: tuple[int, str] | None = None
        left = MOST_BETTER
        for index, (name, least) in enumerate(nodes):
            if best is not None and (best[0] <= already + least or left <= 0):
                break
            if self._reseated > MOST_RESEATED:
                return None
            with self._parts.books.trial() as trial:
                before = out.noted(), table.noted(), len(taken)
                plan = self._free(pending, name, wanted, steps_on(name), out, table, taken)
                following = nodes[index + 1 : index + 2]
                if best is None and plan is not None and all(len(plan.victims) <= already + each.least for each in following):
                    trial.keep()
                    return plan
                out.restore(before[0])
                table.restore(before[1])
                del taken[before[2] :]
            left -= best is not None
            if plan is not None and (best is None or len(plan.victims) < best[0]):
                best = len(plan.victims), name
        return self._free(pending, best[1], wanted, steps_on(best[1]), out, table, taken) if best is not None else None

    def _free(
        self,
        pending: QueuedPod,
        node: str,
        wanted: Wanted,
        steps: list[Step],
        out: TakenOut,
        table: Table,
        taken: list[Step],
    ) -> Plan | None:
        info = self._parts.nodes.get(node)
        try:
            state = table.state(pending)
        except NotPlaced:
            return None
        if info is None:
            return None
        refused: list[Placed] = []
        for step in steps:
            if any(placed.pod.uid in out.out for placed in step.pods):
                continue
            out.take(step.pods)
            taken.append(step)
            found = self._cycle.try_on(state, info)
            if isinstance(found, Placement):
                table.take(pending, found)
                if wanted.within():
                    plan = self._finish(wanted, table, out, taken)
                    if wanted.judge(plan):
                        return plan
                    if plan.victims == refused and not wanted.all_stay:
                        # Whoever else leaves the node comes back, for it is not in the way.
                        return None
                    refused = plan.victims
                table.leave(pending.uid)
        return None

    # ------------------------------------------------------------------------------------------------- who stays after all

    def _taken_out(self, table: Table, members: Iterable[QueuedPod]) -> TakenOut:
        kept = self.preemption.used_by(pending.pod for pending in members)
        out = TakenOut(self.preemption, self._parts.books, self._parts.nodes, self._parts.engine, kept)
        out.take(self.leaving)
        out.free(self.preemption.gone_with_claims())
        for placed in self.leaving if self.places else ():
            if (place := self.places.get(placed.pod.uid)) is not None:
                table.post(placed.pod, placed.demand, place)
        return out

    def _finish(self, wanted: Wanted, table: Table, out: TakenOut, taken: Sequence[Step]) -> Plan:
        """All members have places: who of those that were taken out is in their way?"""
        before, noted = out.noted([placed for step in taken for placed in step.pods]), table.noted()
        with self._parts.books.trial():
            gone = self._put_back(wanted, table, out, taken)
            evicted: list[Step] = []
            moved: list[tuple[Step, dict[str, str]]] = []
            places: dict[str, Placement] = {}
            for step in gone:
                # A surplus without its core has no use for another place; if that moves, it may be where it was.
                alone = any(step.job is other.job and not other.surplus for other in evicted)
                beside = step.surplus and not alone and any(step.job is other.job for other, _ in moved)
                if beside and self._stays(step, wanted, table, out):
                    continue
                found = self._elsewhere(step, wanted, table, out) if not alone else None
                if found is None:
                    evicted.insert(0, step)
                else:
                    going = tuple(placed for placed in step.pods if placed.pod.uid in found)
                    moved.append((Step(step.job, going), {uid: place.node for uid, place in found.items()}))
                    places |= found
            plan = Plan(list(table.seats.values()), sorted(evicted, key=taken.index), moved, places)
        out.restore(before)
        table.restore(noted)
        return plan

    def _put_back(self, wanted: Wanted, table: Table, out: TakenOut, taken: Sequence[Step]) -> list[Step]:
        """Who was taken out and need not go is where it was; those that are left."""
        broken: set[str] = set()
        gone: list[Step] = []
        for step in sorted(taken, key=self._weight, reverse=True) if wanted.all_stay else reversed(taken):
            # Where the core of a gang goes, its surplus goes too.
            if step.job.key in broken or not self._stays(step, wanted, table, out):
                broken.update(() if step.surplus else (step.job.key,))
                gone.append(step)
        return gone

    def _weight(self, step: Step) -> Weight:
        return self._weights.placed(step.pods)

    def _stays(self, step: Step, wanted: Wanted, table: Table, out: TakenOut) -> bool:
        """Whether all pods of the step can be where they were, beside the members."""
        with self._parts.books.trial() as trial:
            before, noted = out.noted(step.pods), table.noted()
            if all(self._fits_back(placed, table, out) for placed in step.pods) and wanted.within():
                trial.keep()
                return True
        out.restore(before)
        table.restore(noted)
        return False

    def _fits_back(self, placed: Placed, table: Table, out: TakenOut) -> bool:
        info = self._parts.nodes.get(placed.node)
        if info is None:
            return False
        if not self._holds_devices(placed) and not out.has_slots(placed.pod.uid):
            if not self._has_room(placed, info):
                return False
            out.give_back((placed,))
            return True
        return self._beside_members(placed, info, table, out)

    def _holds_devices(self, placed: Placed) -> bool:
        """Of its claims, or for its extended resources, though their claim may not be made yet."""
        return bool(placed.pod.spec.resource_claims or self.preemption.claims(placed.pod.uid))

    def _has_extended(self, placed: Placed) -> bool:
        served = any(value and self._parts.classes.offers(name) for name, value in placed.demand.requests)
        return served and self._holds_devices(placed)

    def _has_room(self, placed: Placed, info: NodeInfo) -> bool:
        state = self._state_of(placed)
        return state is not None and self._cycle.plan(state).refuses(info) is None

    def _beside_members(self, placed: Placed, info: NodeInfo, table: Table, out: TakenOut) -> bool:
        """A pod with devices or zones goes back to what it had, where the members find theirs beside it."""
        pools = self._parts.engine.inventory.shared_pools(info.name)
        beyond = bool(pools) and out.had_of(placed.pod.uid, pools)
        near = [seat for seat in table.seats.values() if seat.placement.node == info.name or (beyond and _has_devices(seat))]
        self._reseated += len(near)
        for seat in near:
            table.leave(seat.pending.uid)
        if not self._has_room(placed, info):
            return False
        out.give_back((placed,))
        return all(table.sits(seat.pending, seat.placement.node) for seat in near)

    def _elsewhere(self, step: Step, wanted: Wanted, table: Table, out: TakenOut) -> dict[str, Placement] | None:
        """Another place for each pod of the step that cannot stay, kept in the trial; None if there is none for some."""
        found: dict[str, Placement] = {}
        before, noted = out.noted(step.pods), table.noted()
        within = self._where(step)
        with self._parts.books.trial() as trial:
            for placed in self._cannot_stay(step, wanted, table, out):
                place = self._best_for(placed, out, within.get(placed.pod.uid))
                if place is None:
                    break
                found[placed.pod.uid] = place
                table.post(placed.pod, placed.demand, place)
            else:
                if wanted.within() and wanted.returns(step.job):
                    trial.keep()
                    return found
        out.restore(before)
        table.restore(noted)
        return None

    def _cannot_stay(self, step: Step, wanted: Wanted, table: Table, out: TakenOut) -> list[Placed]:
        """Of several, those that do not fit where they were, the largest first: nobody has to go for another of its own gang."""
        pods = sorted(step.pods, key=lambda each: self._weights.placed((each,)), reverse=True)
        if len(pods) == 1:
            return pods
        alone = (Step(step.job, (each,)) for each in pods)
        return [each.pods[0] for each in alone if not self._stays(each, wanted, table, out)]

    def _where(self, step: Step) -> Scope:
        """Who has to be near to others of its gang moves within its domain, so that nobody has to ask where those are going."""
        if not step.job.root.constrained:
            return NOWHERE_SPECIAL
        return self._nearness.around(step.job, {placed.pod.uid: placed.node for placed in step.pods})

    def _best_for(self, placed: Placed, out: TakenOut, within: frozenset[str] | None) -> Placement | None:
        """Where a pod would be placed now. Claims that only it uses are allocated anew; one that others use keeps its devices.
        A pod that has devices for extended resources has them where it is: they are made with it, and go with it."""
        state = self._state_of(placed)
        if state is None or self._has_extended(placed):
            return None
        if placed.pod.spec.resource_claims:
            self._cycle.needs.reopen(state, out.freed)
        if within is not None:
            # The state is shared by whoever asks for the same.
            state = copy(state)
            self._cycle.needs.confine(state, within)
        return self._cycle.found(state)

    def _state_of(self, placed: Placed) -> CycleState | None:
        """What a running pod needs: as if it were to be placed now."""
        alone = bool(placed.pod.spec.resource_claims)
        known = self._states.get(placed.demand.id) if not alone else None
        if known is not None and known.view is None and known.ranking is None:
            return known
        profile = self._together.profile_of(placed.demand.scheduler_name)
        try:
            state = self._cycle.state(QueuedPod(placed.pod, placed.demand, self._now), profile, self._now)
        except NotPlaced:
            return None
        if not alone:
            # A demand says nothing of claims.
            self._states[placed.demand.id] = state
        return state
