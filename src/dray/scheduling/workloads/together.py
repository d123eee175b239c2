"""Placing the pods of a gang together: all of them or none, in a trial.

Always true: what is found holds for all members at once, with the claims that they share and the devices that they compete for.
First each member takes the best node that is left, which is nearly always enough; where that fails, members on one node are given
their devices jointly; then the hardest members go first; then every way is tried (``backtracking``), with zones in every order of
the members, within a bound.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from contextlib import suppress
from itertools import islice, permutations
from typing import Final, NamedTuple

from dray.api.codes import CURABLE
from dray.api.core import Pod
from dray.api.kinds import RESOURCE_CLAIMS
from dray.api.resource import RESERVED_FOR_MAX, AllocationResult, DeviceKey, ResourceClaim
from dray.books.demand import Demand
from dray.books.nodes import NodeInfo, Placed
from dray.numa.account import Held
from dray.scheduling.config import Profile
from dray.scheduling.parts import Parts
from dray.scheduling.placing.cycle import Cycle
from dray.scheduling.placing.needs import Alike
from dray.scheduling.placing.plan import Plan
from dray.scheduling.placing.state import CycleState, NotPlaced, Placement
from dray.scheduling.shape.claims import Refused, check_room, claim_keys, reserved_for
from dray.scheduling.waiting.queue import QueuedPod
from dray.scheduling.workloads.backtracking import BUDGET, Backtracking
from dray.scheduling.workloads.bounds import too_few_devices
from dray.scheduling.workloads.headroom import Headroom
from dray.scheduling.workloads.weights import Weights

# By uid of a pod: the only nodes that it may be on, as long as it has to be near to others.
Scope = Mapping[str, frozenset[str]]
NOWHERE_SPECIAL: Final[Scope] = {}
# Orders of the members of a gang that are looked at where it matters who comes first.
MOST_ORDERS: Final = 720


class Seat(NamedTuple):
    pending: QueuedPod
    placement: Placement


class Blocked(NamedTuple):
    """The member that found no node when ``placed`` of the others had one, those of ``seats`` here: the most that could be had
    together. ``level``: where they have to be in one domain, that of the topology; ``domain``: the one in which that was;
    ``tried``: how many, where it was not all of them."""

    pending: QueuedPod
    refused: NotPlaced
    placed: int
    seats: tuple[Seat, ...] = ()
    level: str = ""
    domain: str = ""
    tried: int = 0


class Table:
    """The members of a gang that have a place so far, in a trial that is open. ``scope``: by pod the only nodes for it;
    ``beside``: members of the gang who have theirs already."""

    def __init__(
        self,
        parts: Parts,
        cycle: Cycle,
        profiles: Mapping[str, Profile],
        headroom: Headroom,
        now: float,
        scope: Scope,
        beside: Sequence[Seat],
        like: Callable[[QueuedPod], Hashable],
    ) -> None:
        self._parts, self._cycle, self._profiles, self._headroom, self._now = parts, cycle, profiles, headroom, now
        self._scope, self._beside_these, self._like = scope, beside, like
        # By pod: the nodes on which its queue has room for what its claims take there, where that is not all of them.
        self._nodes: dict[str, frozenset[str]] = {}
        self.seats: dict[str, Seat] = {}
        self._decided: dict[str, AllocationResult] = {
            claim.uid: result for seat in beside for claim, result in seat.placement.given
        }
        self._states: dict[str, CycleState] = {}
        # What was asked of nodes for several members at once, to no avail.
        self._in_vain: set[tuple[Hashable, str, int, int]] = set()

    def profile(self, pending: QueuedPod) -> Profile:
        return self._profiles[pending.demand.scheduler_name]

    def state(self, pending: QueuedPod) -> CycleState:
        """What the member needs, with what the others were given of the claims that they share."""
        if not pending.pod.spec.resource_claims and (known := self._states.get(pending.uid)) is not None:
            return known
        state = self._cycle.state(pending, self.profile(pending), self._now)
        if pending.pod.spec.resource_claims:
            self._check_room(state)
        if self._decided:
            self._cycle.needs.pin(state, self._decided)
        if state.resolved.open and (nodes := self._headroom.narrow(state, pending)) is not None:
            self._nodes[pending.uid] = nodes
        if (within := self._scope.get(pending.uid)) is not None:
            self._cycle.needs.confine(state, within)
        self._states[pending.uid] = state
        return state

    def _check_room(self, state: CycleState) -> None:
        """The members that have a place use their claims as much as those that the API shows."""
        seated = len(self.seats) + len(self._beside_these)
        for claim in (*state.resolved.open, *state.resolved.pinned):
            known = self._parts.claims.intents.consumers(claim)
            if known + seated >= RESERVED_FOR_MAX:
                sharing = [seat for seat in (*self.seats.values(), *self._beside_these) if _uses(seat, claim)]
                try:
                    check_room(state.pod, claim, known + len(sharing))
                except Refused as refused:
                    raise NotPlaced(state.pod.uid, refused.refusal, refused.topics) from None

    def seat(self, pending: QueuedPod, first: str = "") -> NotPlaced | None:
        """A place for the member beside the others; or why there is none."""
        if self.sits(pending, first):
            return None
        try:
            self.take(pending, self._cycle.best(self.state(pending)))
        except NotPlaced as refused:
            return refused
        return None

    def sits(self, pending: QueuedPod, first: str = "") -> bool:
        """Whether there is a place for the member beside the others, which it has then."""
        try:
            state = self.state(pending)
            placement = self._on(state, first) if first else None
            placement = placement if placement is not None else self._found(state)
        except NotPlaced:
            return False
        if placement is None:
            return self._beside(pending)
        self.take(pending, placement)
        return True

    def _found(self, state: CycleState) -> Placement | None:
        nodes = self._nodes.get(state.pod.uid)
        return self._cycle.found(state) if nodes is None else self._cycle.among(state, nodes)

    def _on(self, state: CycleState, node: str) -> Placement | None:
        info = self._parts.nodes.get(node) if node in self._nodes.get(state.pod.uid, (node,)) else None
        found = self._cycle.try_on(state, info) if info is not None else None
        return found if isinstance(found, Placement) else None

    def take(self, pending: QueuedPod, placement: Placement) -> None:
        self.adopt(Seat(pending, placement))
        self.post(pending.pod, pending.demand, placement)

    def adopt(self, seat: Seat) -> None:
        """The member sits there, as is posted already."""
        self.seats[seat.pending.uid] = seat
        self._decided.update((claim.uid, result) for claim, result in seat.placement.given)

    def post(self, pod: Pod, demand: Demand, placement: Placement) -> None:
        """Whoever it is, a member or one who makes room for them, has this place from now on."""
        self._parts.nodes.place(placement.placed(pod, demand, "promised"))
        for account, entry in placement.postings:
            self._parts.books.post(account, pod.uid, entry.foreseen if isinstance(entry, Held) else entry)
        for claim, result in placement.given:
            self._parts.engine.promise(claim, result)

    def leave(self, uid: str) -> Seat:
        seat = self.seats.pop(uid)
        self._parts.nodes.displace(uid)
        for claim, _ in seat.placement.given:
            self._decided.pop(claim.uid, None)
            self._parts.engine.take_back(claim.uid)
        return seat

    def noted(self) -> tuple[dict[str, Seat], dict[str, AllocationResult]]:
        """Who sits where, to ``restore`` when a trial that went on from here is undone."""
        return dict(self.seats), dict(self._decided)

    def restore(self, noted: tuple[dict[str, Seat], dict[str, AllocationResult]]) -> None:
        self.seats, self._decided = noted

    # ------------------------------------------------------------------------------------- devices of several members

    def _beside(self, pending: QueuedPod) -> bool:
        """Whether the member fits on a node of another when both get their devices at once: each took the first that would do."""
        if not pending.pod.spec.resource_claims:
            return False
        nodes = (self._parts.nodes.get(name) for name in self.nodes_with_devices())
        return any(self._has_joint_place(pending, info) for info in nodes if info is not None)

    def _has_joint_place(self, pending: QueuedPod, info: NodeInfo) -> bool:
        """Asked once of a node in the same state: members that ask for the same and found none there find none."""
        view = self._parts.engine.inventory.view(info.name)
        devices = self._parts.engine.inventory.state(view) if view is not None else 0
        asked = self._like(pending), info.name, self._parts.nodes.state_of(info), devices
        if asked in self._in_vain:
            return False
        found = self.jointly(pending, info)
        if not found:
            self._in_vain.add(asked)
        return found

    def nodes_with_devices(self) -> dict[str, None]:
        """The nodes on which members have devices."""
        return dict.fromkeys(seat.placement.node for seat in self.seats.values() if seat.placement.results)

    def jointly(self, pending: QueuedPod, info: NodeInfo, without: Collection[DeviceKey] = ()) -> bool:
        """Whether the member and those who have devices on the node get theirs at once, none of them one of these; else nothing
        changes."""
        if not (others := self._may_have_others(info.name)):
            return False
        with self._parts.books.trial() as trial:
            noted = self.noted()
            for seat in others:
                self.leave(seat.pending.uid)
            if self._all_on(info, [*(seat.pending for seat in others), pending], without):
                trial.keep()
                return True
            self.restore(noted)
        return False

    def _may_have_others(self, node: str) -> list[Seat]:
        """The members on the node that may get other devices than they have. Claims that members elsewhere use as well stay as
        they are, and whoever uses one of these."""
        here = [(seat, given) for seat in self.seats.values() if seat.placement.node == node and (given := self._given(seat))]
        fixed = {uid for seat in self.seats.values() if seat.placement.node != node for uid in self._given(seat)}
        while stuck := {uid for _, given in here if given & fixed for uid in given} - fixed:
            fixed |= stuck
        return [seat for seat, given in here if not given & fixed]

    def _given(self, seat: Seat) -> set[str]:
        """The claims that it uses, of those that get their devices here."""
        return {claim.uid for claim in (*seat.placement.open, *seat.placement.pinned) if claim.uid in self._decided}

    def apart(self, pending: QueuedPod, info: NodeInfo, without: Collection[DeviceKey] = ()) -> bool:
        """Whether the member gets a place on the node beside the others as they sit, with none of these devices."""
        if without:
            return self._all_on(info, [pending], without)
        try:
            placement = self._on(self.state(pending), info.name)
        except NotPlaced:
            return False
        if placement is not None:
            self.take(pending, placement)
        return placement is not None

    def _all_on(self, info: NodeInfo, members: Sequence[QueuedPod], without: Collection[DeviceKey]) -> bool:
        try:
            states = [self.state(pending) for pending in members]
        except NotPlaced:
            return False
        if any(state.leftover is not None or state.names or self._bound_to_zones(state, info) for state in states):
            return False
        engine, order = self._parts.engine, self._cycle.devices.scorer.order(states[0].profile)
        claims: dict[str, ResourceClaim] = {claim.uid: claim for state in states for claim in state.resolved.open}
        within = engine.without(info.name, without) if without else None
        verdict = engine.allocate(info.name, list(claims.values()), order, within)
        if not verdict.ok:
            return False
        results = dict(zip(claims, verdict.results))
        for pending, state in zip(members, states):
            placement = self._cycle.try_on(state, info, [results[claim.uid] for claim in state.resolved.open])
            if not isinstance(placement, Placement):
                return False
            self.take(pending, placement)
        return True

    def _bound_to_zones(self, state: CycleState, info: NodeInfo) -> bool:
        """Whether the pod itself says from which zones its devices have to be: that is looked at for each pod alone."""
        return self._cycle.devices.limits(state, info)[1] is not None


class Together:
    """Finds places for all members of a gang; the caller has the trial."""

    def __init__(self, parts: Parts, cycle: Cycle, profiles: Mapping[str, Profile], headroom: Headroom, now: float) -> None:
        self._parts, self._cycle, self._profiles, self.headroom, self._now = parts, cycle, profiles, headroom, now
        self.weights = Weights(parts.world)
        self._likeness: dict[str, Hashable] = {}
        # By claim, how many pods wait for it.
        self._awaited: Counter[str] | None = None

    def profile_of(self, scheduler: str) -> Profile:
        return self._profiles.get(scheduler) or next(iter(self._profiles.values()))

    def may_preempt(self, pending: QueuedPod) -> bool:
        """Whether the pod itself, and its scheduler's profile, let it drive out others."""
        return self.profile_of(pending.demand.scheduler_name).preempts and pending.demand.preemption_policy != "Never"

    def table(self, scope: Scope = NOWHERE_SPECIAL, beside: Sequence[Seat] = ()) -> Table:
        return Table(self._parts, self._cycle, self._profiles, self.headroom, self._now, scope, beside, self.likeness)

    def find(
        self, members: Sequence[QueuedPod], scope: Scope = NOWHERE_SPECIAL, beside: Sequence[Seat] = ()
    ) -> list[Seat] | Blocked:
        """Places for all, posted in the open trial; or which member was in the way of the best attempt, and nothing posted.
        ``scope`` and ``beside`` as a ``Table`` has them."""
        blocked = self._greedy(members, scope, beside)
        if isinstance(blocked, list) or len(members) == 1 or blocked.refused.state is None or _alike(members):
            return blocked
        if self.lacks_devices(members, beside=beside):
            return blocked
        orders = self._hardest_first(members)
        for order in orders:
            again = self._greedy(order, scope, beside)
            if isinstance(again, list):
                return again
            blocked = max(blocked, again, key=lambda each: each.placed)
        for order in orders:
            found, _ = self._every_way(order, blocked, scope, beside)
            if isinstance(found, list):
                return found
            blocked = found
        return self._in_other_orders(members, orders, blocked, scope, beside) if self._parts.zones.tallies else blocked

    def _in_other_orders(
        self,
        members: Sequence[QueuedPod],
        tried: Sequence[Sequence[QueuedPod]],
        blocked: Blocked,
        scope: Scope,
        beside: Sequence[Seat],
    ) -> list[Seat] | Blocked:
        """With zones it may matter who comes first also among those who need as much: all orders, as far as the budget goes."""
        known, left = {tuple(map(self.likeness, order)) for order in tried}, BUDGET // 2
        for order in islice(permutations(members), MOST_ORDERS):
            if left <= 0:
                break
            if (kinds := tuple(map(self.likeness, order))) not in known:
                known.add(kinds)
                found, left = self._every_way(order, blocked, scope, beside, left)
                if isinstance(found, list):
                    return found
                blocked = found
        return blocked

    def _hardest_first(self, members: Sequence[QueuedPod]) -> list[list[QueuedPod]]:
        """Orders in which members may go. Kubelets give out zones to whoever comes, the lowest first, so where there are zones
        it is not enough that those with devices go first: who needs most of a zone must not come after who needs little."""
        by_devices = sorted(members, key=self.weights.waiting, reverse=True)
        if not self._parts.zones.tallies:
            return [by_devices]
        by_cpu = sorted(members, key=lambda each: self.weights.waiting(each)[::-1], reverse=True)
        return [by_devices, by_cpu] if by_cpu != by_devices else [by_devices]

    def _every_way(
        self, members: Sequence[QueuedPod], blocked: Blocked, scope: Scope, beside: Sequence[Seat], left: int = BUDGET
    ) -> tuple[list[Seat] | Blocked, int]:
        """In this order, on whichever nodes; and how many places may still be tried."""
        with self._parts.books.trial() as trial:
            table = self.table(scope, beside)
            search = Backtracking(self._parts, self._cycle, table, left)
            if search.seats(members):
                trial.keep()
                return list(table.seats.values()), search.left
            if len(search.most) <= blocked.placed:
                return blocked, search.left
            for seat in search.most:
                table.take(seat.pending, seat.placement)
            last = members[len(search.most)]
            refused = table.seat(last)
            return blocked if refused is None else Blocked(last, refused, len(search.most), search.most), search.left

    def wait_for_claims(self, members: Sequence[QueuedPod]) -> bool:
        """Whether one of these could not be placed whatever there is room for: its claim is not there yet, or cannot be used."""
        table = self.table()
        for pending in members:
            if pending.pod.spec.resource_claims:
                try:
                    table.state(pending)
                except NotPlaced:
                    return True
        return False

    def lacks_devices(self, members: Sequence[QueuedPod], leaving: Sequence[Placed] = (), beside: Sequence[Seat] = ()) -> bool:
        """Whether there are too few devices in all, also with those that these leave."""
        spare = self.weights.placed(leaving)[0]
        return too_few_devices(self._parts.engine, self.open_claims(members, beside), spare)

    def open_claims(self, members: Sequence[QueuedPod], beside: Sequence[Seat] = ()) -> list[ResourceClaim]:
        """The claims of these that have no devices yet, and get none with somebody else."""
        keys = dict.fromkeys(key for pending in members for key in claim_keys(pending.pod))
        given = {claim.uid for seat in beside for claim, _ in seat.placement.given}
        known = (self._parts.world.get(RESOURCE_CLAIMS, key) for key in keys)
        allocation_of = self._parts.claims.intents.allocation_of
        return [claim for claim in known if claim is not None and claim.uid not in given and allocation_of(claim) is None]

    def alike(self, pending: QueuedPod) -> Alike:
        return self._cycle.needs.alike(pending, self.profile_of(pending.demand.scheduler_name))

    def likeness(self, pending: QueuedPod) -> Hashable:
        """Members of a gang of which this is equal find the same. Claims that one pod alone is to use are the same where they ask
        for the same; a pod with a claim that others use too is like no other."""
        known = self._likeness.get(pending.uid)
        if known is None:
            known = self._likeness[pending.uid] = self._like(pending)
        return known

    def _like(self, pending: QueuedPod) -> Hashable:
        claims = pending.pod.spec.resource_claims
        if not claims:
            return self.alike(pending)
        if all(claim.resource_claim_template_name for claim in claims) or all(map(self._has_one_user, claim_keys(pending.pod))):
            with suppress(NotPlaced):
                return self._cycle.state(pending, self.profile_of(pending.demand.scheduler_name), self._now).key
        return pending.uid

    def _has_one_user(self, key: str) -> bool:
        """Whether nobody has the claim, and only one pod waits for it."""
        if self._awaited is None:
            self._awaited = Counter(key for pending in self._parts.queue for key in claim_keys(pending.pod))
        claim: ResourceClaim | None = self._parts.world.get(RESOURCE_CLAIMS, key)
        return claim is not None and self._awaited[key] <= 1 and not self._parts.claims.intents.consumers(claim)

    def never(self, members: Sequence[QueuedPod]) -> Callable[[NodeInfo], bool]:
        """Whether a node will not do for any of these, whoever leaves it."""
        plans: list[Plan] = []
        for pending in {each.uid if each.pod.spec.resource_claims else each.demand.id: each for each in members}.values():
            try:
                state = self.table().state(pending)
            except NotPlaced:
                return lambda info: False
            if state.view is not None:
                # What others say of it changes with who is where.
                return lambda info: False
            plans.append(self._cycle.plan(state))
        return lambda info: all(_never(plan, info) for plan in plans)

    def rise(self, seats: Sequence[Seat]) -> None:
        """They have no places any more, in the open trial."""
        table = self.table()
        for seat in seats:
            table.adopt(seat)
            table.leave(seat.pending.uid)

    def near(self, members: Sequence[QueuedPod], nodes: Sequence[str]) -> list[Seat] | None:
        """Places for all, each on its node or else where it is best; nothing is posted."""
        with self._parts.books.trial():
            table = self.table()
            if all(table.sits(pending, node) for pending, node in zip(members, nodes)):
                return list(table.seats.values())
        return None

    def _greedy(self, members: Sequence[QueuedPod], scope: Scope, beside: Sequence[Seat]) -> list[Seat] | Blocked:
        with self._parts.books.trial() as trial:
            table = self.table(scope, beside)
            for pending in members:
                if (refused := table.seat(pending, pending.nominated)) is not None:
                    return Blocked(pending, refused, len(table.seats), tuple(table.seats.values()))
            trial.keep()
            return list(table.seats.values())


def _never(plan: Plan, info: NodeInfo) -> bool:
    if plan.names is not None and info.name not in plan.names:
        return True
    reasons = plan.examine(info)[0]
    return reasons is not None and not any(reason.code in CURABLE for reason in reasons)


def _uses(seat: Seat, claim: ResourceClaim) -> bool:
    """Whether the member will be one more pod that uses the claim."""
    named = any(each.uid == claim.uid for each in (*seat.placement.open, *seat.placement.pinned))
    return named and not reserved_for(claim, seat.pending.uid)


def _alike(members: Sequence[QueuedPod]) -> bool:
    """Whether it cannot matter who goes first: all ask for the same, and for nothing that only one of them can have."""
    first = members[0].demand
    return all(each.demand is first and not each.pod.spec.resource_claims for each in members)
