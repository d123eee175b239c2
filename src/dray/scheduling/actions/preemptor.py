"""Deciding where room is being made: who waits for evicted pods to leave, who may take what was promised, and who lost it.

Always true: a pod that waits for victims holds what it is to have (``nominator``) until it is placed, gone, or gives up; so
pods of its own or of lower priority do not take what was freed for it. While it decides itself its promise does not stand in
its way; a pod of higher priority that fits nowhere else may take it. Without nominations nothing here costs anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
from typing import Final

from msgspec.structs import replace

from dray.api.codes import CODES
from dray.api.codes.code import UNALLOCATED
from dray.api.core import Pod
from dray.api.reason import Reason
from dray.api.resource import ResourceClaim
from dray.books.changes import EVERYTHING
from dray.books.nodes import NodeInfo, Placed
from dray.cluster.port import ClusterError, NotFound, Outcome, Write
from dray.scheduling.actions.nominator import Nomination, Nominator, devices_of
from dray.scheduling.actions.preemption import Eviction, Preemption
from dray.scheduling.config import Profile
from dray.scheduling.parts import Parts
from dray.scheduling.placing.cycle import Cycle
from dray.scheduling.placing.refusal import Refusal
from dray.scheduling.placing.state import CycleState, NotPlaced, Placement
from dray.scheduling.shape.claims import Resolved
from dray.scheduling.telling import reports
from dray.scheduling.telling.reports import Reports
from dray.scheduling.waiting import events, pauses
from dray.scheduling.waiting.pauses import Pause
from dray.scheduling.waiting.queue import INITIAL_BACKOFF, Group, QueuedPod
from dray.scheduling.waiting.wakeups import Openings

# Victims that a reason names; the rest is counted.
_NAMED: Final = 5
_OF_DEVICES: Final = frozenset(code for code, found in CODES.items() if found.upstream == UNALLOCATED)


class Preemptor:
    def __init__(self, parts: Parts, cycle: Cycle, reports: Reports) -> None:
        self._books, self._queue, self._nodes, self._binder = parts.books, parts.queue, parts.nodes, parts.binder
        self._meter, self._cycle, self._reports, self._rests = parts.meter, cycle, reports, parts.rests
        self.nominator = Nominator(parts.books, parts.nodes, parts.engine)
        self.preemption = Preemption(parts, cycle, self.nominator)
        self._out: list[Write] = []
        # Victims that had not started and were not deleted, until they are bound or gone.
        self._called_off: set[str] = set()
        parts.wakeups.sharing = self._lowest_sharing
        cycle.needs.promised_away = self._promised_away

    def writes(self) -> list[Write]:
        out, self._out = self._out, []
        return out

    # ------------------------------------------------------------------------------------------------------- deciding

    def decide(self, pending: QueuedPod, profile: Profile, now: float) -> Placement:
        """Where the pod goes, with what is promised to others; raises ``NotPlaced``."""
        state = self._cycle.state(pending, profile, now)
        own = self.nominator.get(pending.uid)
        if own is not None and (placement := self._without([own], state, first=own.node)) is not None:
            return placement
        try:
            return self._cycle.decide(state)
        except NotPlaced as refused:
            weaker = self.nominator.giving_way(state) if len(self.nominator) and not refused.shared else []
            placement = self._without([*weaker, own] if own is not None else weaker, state) if weaker else None
            if placement is None and now >= pending.failed_until and not refused.shared:
                weaker, placement = [], self._as_last_choice(state, refused, own)
            if placement is None:
                raise
        for nomination in weaker:
            if self.nominator.collides(nomination, placement):
                self.give_up(nomination.pending, now)
        return placement

    def _without(self, nominations: list[Nomination], state: CycleState, first: str = "") -> Placement | None:
        """Where the pod goes if these are promised nothing: only what they would leave is looked at."""
        if state.unusable:
            return None
        with self._books.trial():
            for nomination in nominations:
                self.nominator.lift(nomination)
            return self._cycle.among(state, self.nominator.reach(nominations), first)

    def _as_last_choice(self, state: CycleState, refused: NotPlaced, own: Nomination | None) -> Placement | None:
        """Where the pod goes with devices that failed a short while ago, because there are no others."""
        if not len(self._rests) or refused.free_claims or not refused.refusal.codes & _OF_DEVICES:
            # What it holds elsewhere is given back first: it may find devices that did not fail.
            return None
        placement = self._with_rested(state, self._rests.steps, own)
        if placement is None:
            return None
        # What does with few does with more, so that the fewest are found by halving.
        least, enough = 1, self._rests.steps
        while least < enough:
            middle = (least + enough) // 2
            if (found := self._with_rested(state, middle, own)) is not None:
                placement, enough = found, middle
            else:
                least = middle + 1
        placement.rested = self._rests.holds(devices_of(placement))
        return placement

    def _with_rested(self, state: CycleState, steps: int, own: Nomination | None) -> Placement | None:
        with self._books.trial():
            if own is not None:
                self.nominator.lift(own)
            return self._cycle.among(state, self._rests.lift(steps), own.node if own is not None else "")

    # ----------------------------------------------------------------------------------------------------- making room

    def make(self, pending: QueuedPod, refused: NotPlaced, profile: Profile, now: float) -> bool:
        """Whether room is being made for the pod by evicting others: then it waits for that, by itself."""
        state = refused.state
        if state is None or not self.preemption.may_help(refused):
            self.lose(pending)
            return False
        node = pending.nominated or pending.pod.status.nominated_node_name
        eviction = self.preemption.under_way(state, node) if node else None
        if eviction is None:
            self.preemption.end(pending.uid)
            if now < pending.evicts_from:
                self._pause(pending, refused)
                return False
            self._meter.count("scheduler_preemption_attempts_total")
            eviction = self.preemption.find(state)
            if eviction is None:
                self.lose(pending)
                return False
            self.evict(eviction, pending.pod, profile, now)
            pending.made_room = True
        self.nominator.make(pending, eviction.placement)
        self._wait(pending, refused, eviction, now)
        return True

    def _wait(self, pending: QueuedPod, refused: NotPlaced, eviction: Eviction, now: float) -> None:
        pod, refusal = pending.pod, refused.refusal
        reason = preempting(pod, eviction.node, [placed.pod.key for placed in eviction.victims])
        waits = Refusal(((reason, 0), *refusal.reasons), refusal.nodes, refusal.claims)
        also = refused.topics | {events.FREE}
        if refused.state is not None and refused.state.needs_devices:
            also |= {events.DEVICES}
        self._queue.refuse(pending, pod.uid, waits, events.events_for(waits) | also, now)
        if eviction.node != pod.status.nominated_node_name:
            self._out.append(reports.status_patch(pod, {"nominatedNodeName": eviction.node}))
        self._reports.tell(pending, waits, now, clear_nominated=False)

    def _pause(self, pending: QueuedPod, refused: NotPlaced) -> None:
        """Devices failed the pod whenever others had left for it: it waits by itself, since equal pods may evict, until it finds
        devices that are free or its pause ends."""
        self.lose(pending)
        reason = Pause(pending.evicts_from, pending.in_vain).reason(pending.pod)
        refusal = refused.refusal
        refused.key = pending.uid
        refused.refusal = replace(refusal, reasons=(*refusal.reasons, (reason, 0)))

    def without_room(self, refused: NotPlaced) -> Refusal:
        """The refusal of a pod for which no room was made, with what that came to."""
        state, refusal = refused.state, refused.refusal
        if state is None or not state.profile.preempts or pauses.CODE in refusal.codes:
            return refusal
        never = state.demand.preemption_policy == "Never"
        return replace(refusal, preemption="never" if never else "tried")

    def events_for(self, refused: NotPlaced) -> frozenset[str]:
        """What may make evicting others enough that is not enough yet, whatever else the pod waits for."""
        state = refused.state
        if state is None or not self.preemption.may_help(refused):
            return frozenset()
        return frozenset((events.FREE, events.DEVICES)) if state.needs_devices else frozenset((events.FREE,))

    def assume(self, pending: QueuedPod, info: NodeInfo, profile: Profile, now: float) -> None:
        """Count what a pod whose status names the node is promised there, if it can have anything there."""
        try:
            state = self._cycle.state(pending, profile, now)
        except NotPlaced:
            return
        leaving = self.preemption.under_way(state, info.name)
        placement = leaving.placement if leaving is not None else self._cycle.try_on(state, info)
        if isinstance(placement, Placement):
            self.nominator.make(pending, placement)
        elif self._would_with_rested(state, info):
            self.keep(pending, info.name)

    def _would_with_rested(self, state: CycleState, info: NodeInfo) -> bool:
        """Whether the node has devices for the pod, and they failed a short while ago."""
        if not len(self._rests):
            return False
        with self._books.trial():
            self._rests.lift(self._rests.steps)
            return isinstance(self._cycle.try_on(state, info), Placement)

    def evict(self, eviction: Eviction, pod: Pod, profile: Profile, now: float) -> None:
        evicted = 0
        self._binder.part([placed.pod.uid for placed in eviction.victims], now)
        for placed in eviction.victims:
            victim = placed.pod
            if (promised := self.nominator.get(victim.uid)) is not None:
                # It had only been promised the room.
                self.give_up(promised.pending, now)
                continue
            self.preemption.evict(victim.uid, pod.uid)
            binding = self._binder.bindings.get(victim.uid)
            if binding is not None and (binding.unheard or self._binder.outbox.unsend(binding)):
                # Decided on just before, and nobody heard of it.
                self._call_off(binding.pending, now)
                self.preemption.gone(victim.uid)
                continue
            evicted += 1
            node = placed.node if placed.node in eviction.others else eviction.node
            by, why = eviction.others.get(node, pod), eviction.why.get(victim.uid, "")
            if binding is not None and binding.stage != "binding":
                self._out.append(reports.preempted_event(victim, by, node, profile.scheduler_name, now, why, kept=True))
                self._call_off(binding.pending, now)
            elif victim.metadata.deletion_timestamp is None:
                self._out.extend(reports.preempted(victim, by, node, profile.scheduler_name, now, why))
        if evicted:
            self._meter.observe("scheduler_preemption_victims", evicted)

    def _call_off(self, pending: QueuedPod, now: float) -> None:
        """The pod has not started, and is not about to: it gives back its claims and then looks for another place."""
        self._called_off.add(pending.uid)
        self._binder.pod_gone(pending.uid, now)
        self._nodes.displace(pending.uid)
        pending.blocked_until = now + INITIAL_BACKOFF
        self._queue.push(pending, now)

    def _promised_away(self, state: CycleState, claim: ResourceClaim) -> Reason | None:
        """Where everybody who uses the claim leaves, and its devices are promised: whoever began to use it now would keep it from
        being given back, and would have to leave in turn, again and again."""
        users = claim.status.reserved_for if len(self.nominator) else ()
        if not users or not all(self.preemption.leaves(user.uid) for user in users):
            return None
        allocation, priority = state.resolved.allocations[claim.uid], state.demand.priority
        for found in self.nominator.all():
            other = found.pending
            if (
                other.uid != state.pod.uid
                and other.demand.priority >= priority
                and self.nominator.takes_from(found, [allocation])
            ):
                return Reason("ClaimPromised", f"claim/{claim.key}", {"pod": other.pod.key})
        return None

    def keep(self, pending: QueuedPod, node: str) -> None:
        """The devices of the pod failed it, not the node: it tries there again first, and others do not take its room."""
        self.nominator.make(pending, Placement(None, node, Resolved()))

    # --------------------------------------------------------------------------------------------------- new openings

    def _lowest_sharing(self, placed: Placed) -> float:
        """The lowest priority among the pods that use claims which this one shared: they may be worth evicting now."""
        users = {user for _, users in self.preemption.claims(placed.pod.uid) for user in users}
        others = (other for user in users if (other := self._nodes.placed(user)) is not None)
        return min((other.demand.priority for other in others), default=inf)

    def opens_to(self, openings: Openings) -> Callable[[Group], bool]:
        """For whom evicting others may be enough now although it was not before. Found out only if somebody asks."""
        span: list[tuple[float, float]] = []

        def open_to(group: Group) -> bool:
            if not span:
                span.append(self._span(openings))
            demand = next(iter(group.members.values())).demand
            low, high = span[0]
            return low < demand.priority <= high and demand.preemption_policy != "Never"

        return open_to

    def _span(self, openings: Openings) -> tuple[float, float]:
        infos = {info.name: info for node in openings.nodes if (info := self._nodes.get(node)) is not None}
        lowest = min((placed.demand.priority for info in infos.values() for placed in info.pods.values()), default=inf)
        reached = (priority for node, priority in openings.nodes.items() if node in infos or node == EVERYTHING)
        return min(lowest, openings.lowest), max(reached, default=-inf)

    # ------------------------------------------------------------------------------------------------------ giving up

    def ended(self, outcome: Outcome, now: float) -> None:
        """A victim was deleted, or could not be: then the pod that wanted its room tries again, after a while."""
        if outcome.ok or isinstance(outcome.error, NotFound):
            return
        preemptor = self._queue.get(self.preemption.preemptor_of(outcome.write.uid))
        if preemptor is not None and preemptor.nominated:
            self.give_up(preemptor, now, failed=outcome.error)

    def bound(self, uid: str, now: float) -> None:
        """A pod was bound. If it had been called off, it does not leave by itself: who waits for that looks again."""
        if uid in self._called_off:
            self._called_off.discard(uid)
            preemptor = self._queue.get(self.preemption.preemptor_of(uid))
            if preemptor is not None and preemptor.nominated:
                self.give_up(preemptor, now)

    def node_gone(self, node: str, now: float) -> None:
        if len(self.nominator):
            for nomination in self.nominator.on(node):
                self.give_up(nomination.pending, now)

    def seen(self, old: Pod | None, pending: QueuedPod, now: float) -> None:
        """The pod changed; it is not nominated any more when somebody took the node out of its status."""
        node = pending.nominated
        if node and old is not None and old.status.nominated_node_name == node != pending.pod.status.nominated_node_name:
            self.give_up(pending, now)

    def give_up(self, pending: QueuedPod, now: float, failed: ClusterError | None = None) -> None:
        """What was promised is free for all, and the pod is decided on again."""
        self.lose(pending)
        if failed is not None:
            self._queue.fail(pending, now)
        else:
            pending.blocked_until = 0.0
            self._queue.push(pending, now)

    def lose(self, pending: QueuedPod) -> None:
        """The nomination is no longer true: others may take what was promised, and people see that; also of a pod that waited
        for its devices on that node, and was called off."""
        self.preemption.end(pending.uid)
        if pending.nominated or pending.pod.status.nominated_node_name:
            self.nominator.drop(pending.uid)
            self._out.append(reports.status_patch(pending.pod, {"nominatedNodeName": None}))

    def placed(self, pending: QueuedPod) -> None:
        """The pod that waited has its place, with what it was promised or otherwise."""
        self.nominator.drop(pending.uid)
        self.preemption.end(pending.uid)

    def forget(self, uid: str) -> None:
        """The pod was bound, or is gone."""
        self._called_off.discard(uid)
        self.preemption.end(uid)
        self.nominator.drop(uid)


def preempting(pod: Pod, node: str, victims: Iterable[str], code: str = "Preempting") -> Reason:
    """That pods are leaving so that this one has room, and which; ``code``: whether for their priority or for another reason."""
    names = sorted(victims)
    data: dict[str, str | int] = {"node": node}
    if names:
        data["victims"] = ", ".join(names[:_NAMED])
    if len(names) > _NAMED:
        data["more"] = len(names) - _NAMED
    return Reason(code, f"pod/{pod.key}", data)
