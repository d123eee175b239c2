"""Deciding where room is being made: who waits for evicted pods to leave, who may take what was promised, and who lost it.

Always true: a pod that waits for victims holds what it is to have (``nominator``) until it is placed, gone, or
gives up; so pods of its own or of lower priority do not take what was freed for it. While it decides itself, its promise is
lifted; a pod of higher priority that fits nowhere else may take it. Without nominations nothing here costs anything.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Final, Protocol

from dray.api.core import Pod
from dray.api.reason import Reason
from dray.books.changes import EVERYTHING
from dray.books.nodes import NodeInfo, Nodes, Placed
from dray.cluster.metrics import Meter
from dray.cluster.port import ClusterError, NotFound, Outcome, Write
from dray.scheduling.actions.nominator import Nomination, Nominator
from dray.scheduling.actions.preemption import Eviction, Preemption
from dray.scheduling.binding.binder import Binder, Binding
from dray.scheduling.config import Profile
from dray.scheduling.placing.cycle import Cycle
from dray.scheduling.placing.refusal import Refusal
from dray.scheduling.placing.state import NotPlaced, Placement
from dray.scheduling.shape.claims import Resolved
from dray.scheduling.telling import reports as report
from dray.scheduling.telling.reports import Reports
from dray.scheduling.waiting import events as topics
from dray.scheduling.waiting.queue import INITIAL_BACKOFF, Group, Queue, QueuedPod

# Victims that a reason names; the rest is counted.
_NAMED: Final = 5


class Host(Protocol):
    """What making room asks of the scheduler around it."""

    def undo(self, pending: QueuedPod, reason: Reason | None, now: float) -> None: ...

    def woken(self, *topics: str) -> None: ...


class Room:
    def __init__(
        self,
        host: Host,
        queue: Queue,
        nodes: Nodes,
        cycle: Cycle,
        binder: Binder,
        nominations: Nominator,
        preemption: Preemption,
        reports: Reports,
        meter: Meter,
    ) -> None:
        self._host, self._queue, self._nodes, self._cycle, self._binder = host, queue, nodes, cycle, binder
        self.nominations, self.preemption = nominations, preemption
        self._reports, self._meter = reports, meter
        self._out: list[Write] = []
        # Victims that had not started and were not deleted, until they are bound or gone.
        self._called_off: set[str] = set()
        # What the nominated pod that is being decided on was promised.
        self._lifted: Nomination | None = None
        # Nodes on which something became free, and up to which priority that was out of reach before.
        self._opened: dict[str, float] = {}
        # The lowest priority of pods that may be worth evicting now, beside those on the opened nodes.
        self._lowest = inf

    def writes(self) -> list[Write]:
        out, self._out = self._out, []
        return out

    # ------------------------------------------------------------------------------------------------------- deciding

    def decide(self, pending: QueuedPod, profile: Profile, now: float) -> Placement:
        """Where the pod goes, with what is promised to others; raises ``NotPlaced``."""
        if pending.nominated:
            self._lift_own(pending)
        try:
            return self._cycle.decide(pending, profile, now)
        except NotPlaced as refused:
            if not len(self.nominations) or refused.wish is None or refused.shared:
                raise
            weaker = self.nominations.giving_way(refused.wish)
            placement = self._decide_without(weaker, pending, profile, now) if weaker else None
            if placement is None:
                raise
            return placement

    def _lift_own(self, pending: QueuedPod) -> None:
        self._lifted = self.nominations.drop(pending.uid)
        if self._lifted is None:
            self._nodes.displace(pending.uid)

    def _decide_without(self, weaker: list[Nomination], pending: QueuedPod, profile: Profile, now: float) -> Placement | None:
        """Where the pod goes if these are promised nothing; those that it takes something from lose their nomination."""
        for nomination in weaker:
            self.nominations.lift(nomination)
        try:
            placement = self._cycle.decide(pending, profile, now)
        except NotPlaced:
            placement = None
        for nomination in weaker:
            if placement is not None and nomination.collides(placement):
                self.give_up(nomination.pending, now)
            else:
                self.nominations.restore(nomination)
        return placement

    # ----------------------------------------------------------------------------------------------------- making room

    def make(self, pending: QueuedPod, refused: NotPlaced, profile: Profile, now: float) -> bool:
        """Whether room is being made for the pod by evicting others: then it waits for that, by itself."""
        wish = refused.wish
        if wish is None or not self.preemption.may_help(refused):
            self._lose(pending)
            return False
        node = pending.nominated or pending.pod.status.nominated_node_name
        eviction = self.preemption.under_way(wish, node) if node else None
        if eviction is None:
            self.preemption.end(pending.uid)
            self._meter.count("scheduler_preemption_attempts_total")
            eviction = self.preemption.find(wish)
            if eviction is None:
                self._lose(pending)
                return False
            self._evict(eviction, pending.pod, profile, now)
        self.nominations.make(pending, eviction.placement)
        self._wait(pending, refused, eviction, now)
        return True

    def _wait(self, pending: QueuedPod, refused: NotPlaced, eviction: Eviction, now: float) -> None:
        pod, refusal = pending.pod, refused.refusal
        reason = preempting(pod, eviction.node, [placed.pod.key for placed in eviction.victims])
        waits = Refusal(((reason, 0), *refusal.reasons), refusal.nodes)
        also = refused.topics | {topics.FREE, topics.DEVICES} if pod.spec.resource_claims else refused.topics | {topics.FREE}
        self._queue.refuse(pending, pod.uid, waits, topics.topics_of(waits) | also, now)
        if eviction.node != pod.status.nominated_node_name:
            self._out.append(report.status_patch(pod, {"nominatedNodeName": eviction.node}))
        self._reports.tell(pending, waits, now, clear_nominated=False)

    def hopes(self, refused: NotPlaced) -> frozenset[str]:
        """What may make evicting others enough that is not enough yet, whatever else the pod waits for."""
        wish = refused.wish
        if wish is None or not self.preemption.may_help(refused):
            return frozenset()
        return frozenset((topics.FREE, topics.DEVICES)) if wish.needs_devices else frozenset((topics.FREE,))

    def assume(self, pending: QueuedPod, info: NodeInfo, profile: Profile, now: float) -> None:
        """Count what a pod whose status names the node is promised there, if it can have anything there."""
        try:
            wish = self._cycle.wish(pending, profile, now)
        except NotPlaced:
            return
        leaving = self.preemption.under_way(wish, info.name)
        placement = leaving.placement if leaving is not None else self._cycle.try_on(wish, info)
        if isinstance(placement, Placement):
            self.nominations.make(pending, placement)

    def _evict(self, eviction: Eviction, pod: Pod, profile: Profile, now: float) -> None:
        evicted = 0
        for placed in eviction.victims:
            victim = placed.pod
            if (promised := self.nominations.get(victim.uid)) is not None:
                # It had only been promised the room.
                self.give_up(promised.pending, now)
                continue
            evicted += 1
            self.preemption.evict(victim.uid, pod.uid)
            binding = self._binder.get(victim.uid)
            if binding is not None and binding.stage != "binding":
                self._out.append(report.preempted_event(victim, pod, eviction.node, profile.scheduler_name, now, kept=True))
                self._call_off(binding, now)
            elif victim.metadata.deletion_timestamp is None:
                self._out.extend(report.preempted(victim, pod, eviction.node, profile.scheduler_name, now))
        if evicted:
            self._meter.observe("scheduler_preemption_victims", evicted)

    def _call_off(self, binding: Binding, now: float) -> None:
        """The pod has not started, and is not about to: it gives back its claims and then looks for another place."""
        self._called_off.add(binding.pod.uid)
        self._binder.pod_gone(binding.pod.uid)
        binding.pending.blocked_until = now + INITIAL_BACKOFF
        self._host.undo(binding.pending, None, now)

    def keep(self, pending: QueuedPod, node: str) -> None:
        """The devices of the pod failed it, not the node: it tries there again first, and others do not take its room."""
        self.nominations.make(pending, Placement(None, node, Resolved()))

    # --------------------------------------------------------------------------------------------------- new openings

    def left(self, placed: Placed, node: str) -> None:
        """A pod left its node. Who could not evict it may now have enough with the pods that are left there, or that use the
        claims which it shared."""
        self.opened(node, placed.demand.priority)
        if placed.pod.spec.resource_claims:
            users = {user for _, users in self.preemption.claims(placed.pod.uid) for user in users}
            others = (other for user in users if (other := self._nodes.placed(user)) is not None)
            self._lowest = min(self._lowest, min((other.demand.priority for other in others), default=inf))

    def opened(self, node: str, priority: float = inf) -> None:
        """Something became free on the node, or devices that many nodes can use."""
        self._opened[node] = max(priority, self._opened.get(node, priority))
        if node == EVERYTHING:
            self._lowest = -inf

    def openings(self) -> Callable[[Group], bool]:
        """For whom evicting others may be enough now although it was not before. Found out only if somebody asks."""
        opened, self._opened = self._opened, {}
        lowest, self._lowest = self._lowest, inf
        range_of: list[tuple[float, float]] = []

        def open_to(group: Group) -> bool:
            if not range_of:
                infos = {info.name: info for node in opened if (info := self._nodes.get(node)) is not None}
                priorities = (placed.demand.priority for info in infos.values() for placed in info.pods.values())
                highest = max(
                    (priority for node, priority in opened.items() if node in infos or node == EVERYTHING), default=-inf
                )
                range_of.append((min(min(priorities, default=inf), lowest), highest))
            demand = next(iter(group.members.values())).demand
            (low, high) = range_of[0]
            return low < demand.priority <= high and demand.preemption_policy != "Never"

        return open_to

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
        if len(self.nominations):
            for nomination in self.nominations.on(node):
                self.give_up(nomination.pending, now)

    def seen(self, old: Pod | None, pending: QueuedPod, now: float) -> None:
        """The pod changed; it is not nominated any more when somebody took the node out of its status."""
        node = pending.nominated
        if node and old is not None and old.status.nominated_node_name == node != pending.pod.status.nominated_node_name:
            self.give_up(pending, now)

    def give_up(self, pending: QueuedPod, now: float, failed: ClusterError | None = None) -> None:
        """What was promised is free for all, and the pod is decided on again."""
        self.nominations.drop(pending.uid)
        self._lose(pending)
        if failed is not None:
            self._queue.fail(pending, now)
        else:
            pending.blocked_until = 0.0
            self._queue.push(pending, now)

    def _lose(self, pending: QueuedPod) -> None:
        """The nomination is no longer true: others may take what was promised, and people see that."""
        self.preemption.end(pending.uid)
        if not pending.nominated:
            return
        self._promised_no_more(pending.nominated)
        pending.nominated = ""
        self._out.append(report.status_patch(pending.pod, {"nominatedNodeName": None}))

    def placed(self, pending: QueuedPod, placement: Placement) -> None:
        """The pod that waited has its place, with what it was promised or otherwise."""
        if self._lifted is None or not self._lifted.kept(placement):
            self._promised_no_more(pending.nominated)
        pending.nominated = ""
        self.preemption.end(pending.uid)

    def forget(self, uid: str) -> None:
        """The pod was bound, or is gone."""
        self._called_off.discard(uid)
        self.preemption.end(uid)
        nomination = self.nominations.drop(uid)
        if nomination is not None:
            self._promised_no_more(nomination.node)

    def _promised_no_more(self, node: str) -> None:
        """Others can have it, or those who hold it still can be evicted for others, wherever they are."""
        self.opened(node)
        self._lowest = -inf
        self._host.woken(topics.FREE, topics.DEVICES, topics.PODS)


def preempting(pod: Pod, node: str, victims: list[str]) -> Reason:
    """That pods are leaving so that this one has room, and which."""
    data: dict[str, str] = {"node": node}
    if victims:
        more = f" and {len(victims) - _NAMED} more" if len(victims) > _NAMED else ""
        data["victims"] = ", ".join(sorted(victims)[:_NAMED]) + more
    return Reason("Preempting", f"pod/{pod.key}", data)
