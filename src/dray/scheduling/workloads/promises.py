"""Room that is made for jobs of queues: what each was promised, until it starts there or the plan turns out not to work any more.

Always true: nobody is evicted but for a gang that has its whole plan. Its members hold what they were promised until they are
bound; a plan that cannot come true any more, or that queues and groups do not allow any more, is dropped as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import msgspec

from dray.books.nodes import Placed
from dray.cluster.port import Write
from dray.queues.gangs import is_whole
from dray.scheduling.actions.preemption import Eviction
from dray.scheduling.actions.preemptor import Preemptor, preempting
from dray.scheduling.config import Profile
from dray.scheduling.parts import Parts
from dray.scheduling.placing.refusal import Refusal
from dray.scheduling.telling import reports
from dray.scheduling.telling.reports import Reports
from dray.scheduling.waiting.queue import QueuedPod
from dray.scheduling.workloads.asking import Asking
from dray.scheduling.workloads.denials import Denials, barred
from dray.scheduling.workloads.grouping import leaf_of
from dray.scheduling.workloads.jobs import Job, Jobs
from dray.scheduling.workloads.members import Members
from dray.scheduling.workloads.nearness import Nearness
from dray.scheduling.workloads.returns import Returns
from dray.scheduling.workloads.room import Plan
from dray.scheduling.workloads.together import Seat, Together
from dray.scheduling.workloads.use import QueueUse, Standings

# After how many seconds is looked again where no event says that something changed.
LOOK_AGAIN: Final = 10.0
TOPIC: Final = "queues"


class Wait(msgspec.Struct):
    """``awaited``: who has to leave first; ``idle_since``: since when none of them is about to."""

    plan: Plan
    awaited: set[str]
    idle_since: float | None = None


class Promises:
    """``start``: begins to bind a job at these seats; ``together``: where members of a gang are placed, at this time."""

    def __init__(
        self,
        parts: Parts,
        preemptor: Preemptor,
        reports: Reports,
        profiles: Mapping[str, Profile],
        jobs: Jobs,
        use: QueueUse,
        start: Callable[[Job, Sequence[Seat]], None],
        together: Callable[[float], Together],
        out: list[Write],
    ) -> None:
        self._parts, self._preemptor, self._reports, self._profiles = parts, preemptor, reports, profiles
        self._jobs, self._use, self._start, self._together, self._out = jobs, use, start, together, out
        # By job: what it was promised, and who has to leave before.
        self.waits: dict[str, Wait] = {}
        self.returns = Returns()

    def holds(self, job: Job, pending: QueuedPod) -> bool:
        wait = self.waits.get(job.key)
        return wait is not None and any(seat.pending is pending for seat in wait.plan.seats)

    def make(self, job: Job, plan: Plan, awaited: Sequence[Placed]) -> None:
        """The members hold what they will have, and the victims count as leaving; written at the end of the session."""
        first = plan.seats[0].pending
        for victim in plan.victims:
            self._preemptor.preemption.evict(victim.pod.uid, first.uid)
            # Who moves comes back, to the same queue.
            if victim.pod.uid not in plan.places:
                self._use.look_again(victim)
        for pending, placement in plan.seats:
            self._preemptor.nominator.make(pending, placement)
        self.waits[job.key] = Wait(plan, {placed.pod.uid for placed in awaited})

    def withdraw(self, job: Job) -> None:
        """The plan is off, and nobody heard of it."""
        wait = self.waits.pop(job.key)
        for pending, _ in wait.plan.seats:
            self._preemptor.placed(pending)
        self._recount(wait)

    def write(self, made_by: Mapping[str, str], now: float) -> None:
        """``made_by``: the jobs for which room was made in this session, and by which action."""
        made = [(job, self.waits[key], made_by[key]) for key in made_by if (job := self._jobs.by_key(key)) is not None]
        for job, wait, action in made:
            plan = wait.plan
            first, victims = plan.seats[0], plan.victims
            profile = self._profiles[first.pending.demand.scheduler_name]
            others = {seat.placement.node: seat.pending.pod for seat in reversed(plan.seats)}
            eviction = Eviction(first.placement, victims, why=_why(job, plan, action), others=others)
            self._preemptor.evict(eviction, first.pending.pod, profile, now)
            for seat in plan.seats if victims else ():
                seat.pending.made_room = True
            for step in (*plan.evicted, *(step for step, _ in plan.moved)):
                step.job.evicted_at = now
            self.returns.note(plan, now)
        for job, wait, _ in made:
            if not any(map(self._still_there, wait.awaited)) and self._starts(job, wait, now):
                continue
            for pod, node in ((seat.pending.pod, seat.placement.node) for seat in wait.plan.seats):
                if node != pod.status.nominated_node_name:
                    self._out.append(reports.status_patch(pod, {"nominatedNodeName": node}))
            self._tell(job, wait.plan, now)

    def _starts(self, job: Job, wait: Wait, now: float) -> bool:
        """Whether the job starts now, where it was promised room or on nodes as good."""
        seats = self._on_their_nodes(job, [seat.pending for seat in wait.plan.seats], now)
        if seats is not None:
            del self.waits[job.key]
            self._start(job, seats)
        return seats is not None

    def _tell(self, job: Job, plan: Plan, now: float) -> None:
        """Who leaves for the job, of those that are not gone yet."""
        names = [placed.pod.key for placed in plan.victims if self._still_there(placed.pod.uid)]
        for pending, placement in plan.seats:
            waits = Refusal(((preempting(pending.pod, placement.node, names, "MakingRoom"), 0),))
            self._parts.queue.refuse(pending, ("job", job.key), waits, frozenset({TOPIC}), now)
            self._reports.tell(pending, waits, now, clear_nominated=False)

    def resume(self, now: float) -> None:
        """Jobs for which room was made start as soon as it is free; a plan that does not work any more is dropped."""
        for key, wait in list(self.waits.items()):
            job = self._jobs.by_key(key)
            members = [seat.pending for seat in wait.plan.seats]
            if job is None or any(job.waiting.get(each.uid) is not each or not each.nominated for each in members):
                self._drop(key, job)
                continue
            if not self._is_allowed(job, members, now):
                self._drop(key, job)
                continue
            if self._starts(job, wait, now):
                continue
            if self._comes_true(wait, now):
                self._tell(job, wait.plan, now)
            else:
                self._drop(key, job)

    def _is_allowed(self, job: Job, promised: Sequence[QueuedPod], now: float) -> bool:
        """Whether the job still has its minimum with these, in a queue that has it start: while others leave for it, people
        change queues and pod groups."""
        members, tree = self._members(), self._jobs.tree
        gang = members.gang(job)
        if not job.single and not all(is_whole(gang, leaf_of(each.pod, job.subgroups)) for each in promised):
            return False
        with self._lifted(promised):
            nearness = Nearness(self._parts, self._together(now), members)
            if barred(self._jobs, nearness, job, [each.uid for each in promised]) is not None:
                return False
            asking = Asking(self._jobs, self._use, members)
            asking.note(job, promised)
            # Shares say nothing of who may start.
            standings = Standings(tree, self._use, {name: {} for name in tree.queues})
            return Denials(tree, standings, {}, self._use, members, asking).of_start(job) is None

    def _members(self) -> Members:
        return Members(self._parts, self._preemptor.preemption)

    @contextmanager
    def _lifted(self, promised: Iterable[QueuedPod]) -> Iterator[None]:
        """As long as this lasts, they are promised nothing."""
        with self._parts.books.trial():
            for pending in promised:
                nomination = self._preemptor.nominator.get(pending.uid)
                if nomination is not None:
                    self._preemptor.nominator.lift(nomination)
            yield

    def _comes_true(self, wait: Wait, now: float) -> bool:
        """Whether somebody leaves who is waited for. Who was called off, or could not be deleted, may stay after all; but what
        was sent shows only after a while."""
        if any(self._preemptor.preemption.leaves(uid) for uid in wait.awaited):
            wait.idle_since = None
            return True
        if wait.idle_since is None:
            wait.idle_since = now
        return now < wait.idle_since + LOOK_AGAIN and any(self._still_there(uid) for uid in wait.awaited)

    def _still_there(self, uid: str) -> bool:
        """Whether the pod, or what was reserved for it, is not gone yet."""
        return self._parts.nodes.placed(uid) is not None or bool(self._preemptor.preemption.preemptor_of(uid))

    def _drop(self, key: str, job: Job | None) -> None:
        wait = self.waits.pop(key)
        for pending, _ in wait.plan.seats:
            if job is not None and job.waiting.get(pending.uid) is pending:
                self._preemptor.lose(pending)
        self._recount(wait)

    def _recount(self, wait: Wait) -> None:
        for uid in sorted(victim.pod.uid for victim in wait.plan.victims):
            if (placed := self._parts.nodes.counted(uid)) is not None:
                self._use.look_again(placed)

    def _on_their_nodes(self, job: Job, promised: Sequence[QueuedPod], now: float) -> list[Seat] | None:
        """Or on others as good, near to those as the job says."""
        with self._lifted(promised):
            together = self._together(now)
            together.headroom.begin(promised)
            nearness = Nearness(self._parts, together, self._members())
            table = together.table(nearness.around(job, {each.uid: each.nominated for each in promised}))
            for pending in promised:
                if not table.sits(pending, pending.nominated):
                    return None
            return list(table.seats.values())


def _why(job: Job, plan: Plan, action: str) -> dict[str, str]:
    """Why each victim has to go, by uid, where it is not for its priority alone."""
    found: dict[str, str] = {}
    for step, nodes in (*((step, dict[str, str]()) for step in plan.evicted), *plan.moved):
        for uid in (placed.pod.uid for placed in step.pods):
            if action == "consolidation":
                whom = job.name if job.key != f"pod/{job.first.uid}" else job.first.key
                found[uid] = f"moving to node {nodes[uid]}, to make room for {whom}"
                continue
            words = reports.FOR_PRIORITY
            if action == "reclaim" or (action == "preempt" and uid not in nodes and step.job.queue != job.queue):
                words = f"queue {job.queue} takes back its share from queue {step.job.queue}"
            if action == "turn":
                words = f"queue {step.job.queue} has to give it up, and it is the turn of queue {job.queue}"
            found[uid] = f"{words}; there is another place on node {nodes[uid]}" if uid in nodes else words
    return found
