"""The part of the scheduler that looks after queues and gangs: it collects their pods, and decides on all of them in sessions.

Always true: a pod of a queue is decided on in a session and nowhere else; between sessions it waits, promised room, or is being
bound. A session runs when something changed, at most once an interval. Without queues nothing here runs and nothing is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from typing import Any, Final

from dray.api.core import Pod
from dray.api.kinds import (
    CORE_POD_GROUPS,
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    NODES,
    POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
    QUEUES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    TOPOLOGIES,
    Kind,
)
from dray.api.queues import OF_QUEUES
from dray.books.journal import Delta
from dray.books.nodes import Placed
from dray.cluster.port import Change, Write
from dray.devices.ledger import PoolKey
from dray.queues.gangs import Part as GangPart
from dray.scheduling.actions.preemptor import Preemptor
from dray.scheduling.config import Profile, QueueSettings
from dray.scheduling.parts import Parts
from dray.scheduling.placing.cycle import Cycle
from dray.scheduling.placing.refusal import Refusal
from dray.scheduling.placing.state import CycleState, NotPlaced
from dray.scheduling.telling import reports
from dray.scheduling.telling.reports import Reports
from dray.scheduling.waiting import events
from dray.scheduling.waiting.hints import same_node
from dray.scheduling.waiting.queue import QueuedPod
from dray.scheduling.workloads.denials import Missing
from dray.scheduling.workloads.grouping import CORE
from dray.scheduling.workloads.headroom import Headroom
from dray.scheduling.workloads.jobs import Job, Jobs
from dray.scheduling.workloads.leftovers import left_over
from dray.scheduling.workloads.members import Members
from dray.scheduling.workloads.promises import LOOK_AGAIN, TOPIC, Promises
from dray.scheduling.workloads.session import Session
from dray.scheduling.workloads.status import PAUSE, news
from dray.scheduling.workloads.together import Seat, Together
from dray.scheduling.workloads.use import QueueUse

INTERVAL: Final = 1.0
# What a session may change its mind for.
_NEWS: Final = frozenset({events.FREE, events.NODE, events.DEVICES, events.CLASSES, events.VOLUMES})


Take = Callable[[Sequence[Seat], float], None]


class Workloads:
    def __init__(
        self,
        parts: Parts,
        cycle: Cycle,
        preemptor: Preemptor,
        reports: Reports,
        profiles: Mapping[str, Profile],
        take: Take,
        settings: QueueSettings,
    ) -> None:
        self._parts, self._cycle, self._preemptor, self._reports = parts, cycle, preemptor, reports
        self._profiles, self._take, self._settings = profiles, take, settings
        self.jobs = Jobs(parts.world, parts.engine, parts.classes if parts.gates("DRAExtendedResource") else None)
        self.use = QueueUse(self.jobs, preemptor.preemption.preemptor_of)
        preemptor.preemption.over, preemptor.preemption.noted = self._look_again_at, self.jobs.stir
        self._headroom = Headroom(self.jobs, self.use, parts.nodes, cycle.needs)
        self._stale_queues = True
        # Pools that were published anew, since the pods with their devices were counted; None: other things of devices changed.
        self._published: set[PoolKey | None] = set()
        self.listening = False
        self._dirty = False
        self._last: float | None = None
        self._again: float | None = None
        self._reported = -PAUSE
        self._now = 0.0
        self._out: list[Write] = []
        self.promises = Promises(parts, preemptor, reports, profiles, self.jobs, self.use, self.start, self._together, self._out)
        self.last_session: Session | None = None
        self._handlers: dict[Kind, Callable[[Change], None]] = {
            PODS: self._pod,
            RESOURCE_CLAIMS: self._claim,
            RESOURCE_SLICES: self._slice,
            DEVICE_CLASSES: self._devices_changed,
            DEVICE_TAINT_RULES: self._devices_changed,
            NODES: self._node,
            QUEUES: self._queue,
            POD_GROUPS: self._group,
            CORE_POD_GROUPS: self._group,
            TOPOLOGIES: self._settings_changed,
            PRIORITY_CLASSES: self._settings_changed,
        }

    # --------------------------------------------------------------------------------------------------------- observing

    def observe(self, change: Change) -> None:
        handler = self._handlers.get(change.kind)
        if handler is not None:
            handler(change)

    def _queue(self, change: Change) -> None:
        self._look()
        if not _same(change.old, change.new):
            self.jobs.forget_tree()
            self._stale_queues = self._dirty = True

    def _settings_changed(self, change: Change) -> None:
        """What pod groups and labels of pods name may be there now, or say something else."""
        self._stale_queues = self._dirty = True

    def _look(self) -> None:
        before = self.jobs.active
        self.jobs.look()
        if before and not self.jobs.active:
            # The last one went: those that waited for sessions are pods like any others.
            self._parts.wakeups.event(TOPIC)

    def _pod(self, change: Change) -> None:
        old: Any = change.old
        new: Any = change.new
        if self.jobs.notice(old, new):
            self._look()
            self._stale_queues = True
        if old is not None and new is not None and _labels(old) != _labels(new):
            self._stale_queues = self._dirty = True
        if new is None or (old is not None and old.uid != new.uid):
            # Also where it was the last that had to do with gangs: there may be such again.
            self._gone(old)
        if not self.jobs.active:
            return
        if new is not None and new.spec.scheduler_name in self._profiles:
            if not self.listening:
                # Before the first pod this is nothing, and nothing has to be worked out again for those that follow.
                self.know()
            job = self._put(new)
            started = old is not None and not old.spec.node_name and bool(new.spec.node_name)
            if started and self.last_session is not None and self.last_session.spared_starting:
                self._dirty = True
            if job is not None and (new.terminal or (old is not None and old.metadata.annotations != new.metadata.annotations)):
                self._dirty = True

    def _put(self, pod: Pod) -> Job | None:
        """The pod's job. Whoever is in none any more is a pod like any others, also while it waits for a session."""
        known, job = self.jobs.of(pod.uid), self.jobs.put(pod)
        if known is not None and job is None:
            self._parts.wakeups.event(TOPIC)
        return job

    def _claim(self, change: Change) -> None:
        """What a claim was given is known exactly now, or is given back: whoever uses it holds something else. A claim that comes
        or goes is asked for by whoever names it."""
        if not self.listening:
            return
        old: Any = change.old
        new: Any = change.new
        same = old is not None and new is not None and old.uid == new.uid
        self._dirty = self._dirty or not same
        if same and old.status.allocation == new.status.allocation:
            return
        # A pod may have been seen before the claim that it names, and a claim may have been made anew under its name.
        users = (self.use.users(each) for each in (old, new) if each is not None)
        for uid in sorted(set[str]().union(*users)):
            self._look_again_at(uid)

    def _slice(self, change: Change) -> None:
        """What devices take of counters is known from their slices, which may come after the claims that have them."""
        for each in (change.old, change.new) if not _same_spec(change) else ():
            if each is not None:
                found: Any = each
                self._published.add((found.spec.driver, found.spec.pool.name))

    def _node(self, change: Change) -> None:
        """Labels say which devices a node has."""
        old, new = change.old, change.new
        if old is None or new is None or old.metadata.labels != new.metadata.labels:
            self._published.add(None)
        elif not same_node(old, new):
            self.jobs.devices.changed()

    def _devices_changed(self, change: Change) -> None:
        if not _same_spec(change):
            self._published.add(None)

    def counted(self, change: Change) -> None:
        """A pod counts as it is now: one whose status names another claim for its extended resources than before has another."""
        old: Any = change.old
        new: Any = change.new
        if old is not None and new is not None:
            before, now = old.status.extended_resource_claim_status, new.status.extended_resource_claim_status
            if before != now or (now is not None and bool(new.spec.node_name) != bool(old.spec.node_name)):
                self._look_again_at(new.uid)

    def _look_again_at(self, uid: str) -> None:
        """What the pod counts for may be something else than before."""
        if self.listening and (placed := self._parts.nodes.counted(uid)) is not None:
            self.use.look_again(placed)

    def _posted(self, delta: Delta) -> None:
        """Of whoever is on another node for good, or on none any more, something is to be looked at anew."""
        for account, uid, _, _ in delta:
            if account is self._parts.nodes:
                self.jobs.stir(uid)

    def _gone(self, pod: Pod) -> None:
        if self.jobs.remove(pod.uid) is not None:
            self._dirty = True

    def _group(self, change: Change) -> None:
        """A pod group came, changed or went: its job is another, perhaps in another queue."""
        self._look()
        if _same(change.old, change.new):
            return
        self._dirty = True
        if not self.listening:
            self._stale_queues = True
            return
        found = change.object
        core = change.kind is CORE_POD_GROUPS
        job = self.jobs.group_changed(f"{found.metadata.namespace}{CORE}{found.metadata.name}" if core else found.key)
        pods = list(job.pods.values()) if job is not None else []
        for pod in pods:
            self._put(pod)
        # Only now it is known in which queue they all are: where no group says so, the oldest of them does.
        for pod in pods:
            self._look_again_at(pod.uid)

    def know(self) -> None:
        """Whose pods are whose is worked out anew if queues changed, what they hold if devices did; a session begins with it."""
        published = self._published
        if published:
            self._published = set()
            self.jobs.devices.look_again()
            self.jobs.devices.changed()
        if self.jobs.shifted:
            self.jobs.shifted, self._stale_queues = False, True
        if not self._stale_queues:
            self._count_again(published)
            return
        self._stale_queues = False
        if not self.listening and self.jobs.active:
            self.listening = True
            self._parts.nodes.listeners.append(self.use)
            self._parts.books.subscribe(self._posted)
        known = list(self.jobs)
        for pod in self._parts.world.all(PODS).values() if self.jobs.active else ():
            if pod.spec.scheduler_name in self._profiles:
                self.jobs.put(pod)
        for job in known:
            # Pods may have been seen before the group that they name; who is new was described just now.
            self.jobs.group_changed(job.key)
        if self.listening:
            self.use.rebuild(self._parts.nodes.all_counted())

    def _count_again(self, published: Collection[PoolKey | None]) -> None:
        """Pods with devices of these pools, or with claims of which it can only be guessed what they get."""
        charges = self._parts.engine.charges
        for uid, claims in self.use.with_claims() if published and self.listening else ():
            had = [charges(claim) for claim in claims]
            if not all(had) or any((each.device.driver, each.device.pool) in published for each in chain(*had)):
                self._look_again_at(uid)

    def members(self) -> Members:
        """The pods of all jobs as they stand now."""
        return Members(self._parts, self._preemptor.preemption)

    def counted_again(self) -> dict[str, object]:
        """What queues hold, counted from scratch. Nothing where it is about to be counted anew anyway, and while pods are being
        evicted, of whom some come back to their queue."""
        if (
            self._stale_queues
            or self.jobs.shifted
            or self._published
            or not self.listening
            or self._preemptor.preemption.evicting
        ):
            return {}
        again = QueueUse(self.jobs, self._preemptor.preemption.preemptor_of)
        again.rebuild(self._parts.nodes.all_counted())
        return again.snapshot()

    # -------------------------------------------------------------------------------------------------------- collecting

    def collect(self, pending: QueuedPod, now: float) -> bool:
        """Whether the pod is one of a queue: then a session decides on it."""
        if not self.jobs.active:
            return False
        self.know()
        job = self.jobs.put(pending.pod)
        if job is None or pending.pod.spec.scheduling_gates:
            return False
        self.jobs.wait(job, pending)
        self._dirty = True
        if pending.nominated and not self.promises.holds(job, pending):
            # Its room was kept after its devices failed; from now on it is placed like any other, there first.
            self._preemptor.lose(pending)
        known = pending.refusal or Refusal.of("QueueTurn", f"queue/{job.queue}")
        self._parts.queue.refuse(pending, _together_with(job, pending), known, frozenset({TOPIC}), now)
        return True

    def happened(self, news: Mapping[str, None], now: float) -> None:
        if self._dirty or not news or not len(self.jobs):
            return
        if _NEWS.isdisjoint(news):
            # Nobody starts for it, but who waits may be told something else.
            self._again = now + LOOK_AGAIN if self._again is None else min(self._again, now + LOOK_AGAIN)
        else:
            self._dirty = True

    def next_due(self) -> float | None:
        if not self.jobs.active:
            return None
        due = self._again
        if self._dirty:
            at = 0.0 if self._last is None else self._last + INTERVAL
            due = at if due is None else min(at, due)
        return due

    def writes(self) -> list[Write]:
        out = self._out.copy()
        self._out.clear()
        return out

    # ----------------------------------------------------------------------------------------------------------- deciding

    def run(self, now: float) -> None:
        """A session, if one is due."""
        due = self.next_due()
        if due is None or now < due or not self.may_start_more():
            return
        self.know()
        self._dirty, self._last, self._now, self._again = False, now, now, None
        self._prune()
        # Trials of a session read candidates; nobody else's do, so nobody else pays for that.
        self._parts.books.follower = self._parts.wakeups.follow
        try:
            self._decide(now)
        finally:
            self._parts.books.follower = None

    def survey(self, now: float) -> Session:
        """What a session begins with: shares, use and who waits. Nothing is decided."""
        self.know()
        for pending in self._parts.queue:
            if (job := self.jobs.put(pending.pod)) is not None and not pending.pod.spec.scheduling_gates:
                self.jobs.wait(job, pending)
        return self._session(self._together(now), now)

    def _together(self, now: float) -> Together:
        return Together(self._parts, self._cycle, self._profiles, self._headroom, now)

    def rehearse(self, session: Session) -> None:
        """The session is run and counts, but nobody is told: of a scheduler that nobody runs."""
        self._now = session.now
        self._parts.books.follower = self._parts.wakeups.follow
        try:
            session.run()
        finally:
            self._parts.books.follower = None

    @contextmanager
    def stuck(self, session: Session, members: Sequence[QueuedPod]) -> Iterator[CycleState | None]:
        """What the first member needs that has no place when those before it have theirs, which they have as long as this
        lasts; None where all find one. Of a scheduler that nobody runs."""
        self._parts.books.follower = self._parts.wakeups.follow
        try:
            with self._parts.books.trial():
                session.together.headroom.begin(members)
                table = session.together.table()
                stuck = next((pending for pending in members if table.seat(pending) is not None), None)
                state = None
                with suppress(NotPlaced):
                    state = table.state(stuck) if stuck is not None else None
                yield state
        finally:
            self._parts.books.follower = None

    def _session(self, together: Together, now: float) -> Session:
        return Session(
            self._parts,
            self._cycle,
            self._preemptor.preemption,
            self.jobs,
            self.use,
            together,
            self,
            self.promises,
            now,
            self._settings,
        )

    def _decide(self, now: float) -> None:
        self.promises.resume(now)
        session = self.last_session = self._session(self._together(now), now)
        session.done.update(self.promises.waits)
        self.promises.returns.expire(now)
        session.returns = self.promises.returns
        session.run()
        self.promises.write({key: session.made_by[key] for key in session.plans}, now)
        if session.cut:
            self._dirty, self._last = True, None
        # Jobs that no session decides on, because of their queues, are told as well.
        unusable = {job.key: self.jobs.unusable(job.queue) for job in self.jobs.with_waiting()}
        session.missing |= {key: Missing(refusal) for key, refusal in unusable.items() if refusal is not None}
        # Where a job has its next step, pods of no part of it have none.
        in_parts = (job.key for job in self.jobs.with_waiting() if job.subgroups)
        for job in map(self.jobs.by_key, dict.fromkeys((*session.missing, *in_parts))):
            if job is not None:
                self._refuse(session, job, now)
        self._look_again_later(session, now)
        self._report(session, now)

    def _report(self, session: Session, now: float) -> None:
        """What became of the queues, now or in a while."""
        if now >= self._reported + PAUSE:
            self._reported = now
            self._out.extend(news(session, self.use, self.jobs, self._parts.world))
        elif self._again is None or self._again > self._reported + PAUSE:
            self._again = self._reported + PAUSE

    def _prune(self) -> None:
        """Pods that are placed, gone or being bound wait no more."""
        for job in self.jobs.with_waiting():
            for uid in [uid for uid in job.waiting if self._parts.queue.get(uid) is not job.waiting[uid]]:
                self.jobs.waits_no_more(job, uid)

    def _look_again_later(self, session: Session, now: float) -> None:
        """Stale gangs and delays end without any event, and so may what is waited for."""
        times = []
        for job in self.jobs.stirred.values():
            grace = self._settings.staleness_grace if job.grace is None else job.grace
            times += [since + grace for since in job.stale.values() if grace >= 0]
        for job in self.jobs.with_waiting():
            if job.delay > 0 and (until := max(job.created, job.evicted_at or 0.0) + job.delay) > now:
                times.append(until)
        times += session.taking.protected_until()
        if self.promises.waits:
            times.append(now + LOOK_AGAIN)
        # What is due already was just done; if it came to nothing, it is done again.
        self._again = min((at if at > now else now + LOOK_AGAIN for at in times), default=None)

    def may_start_more(self) -> bool:
        return self._parts.binder.in_flight < self._parts.config.in_flight

    def start(self, job: Job, seats: Sequence[Seat]) -> None:
        for seat in seats:
            self.jobs.waits_no_more(job, seat.pending.uid)
        job.last_start = self._now
        self._take(seats, self._now)

    def evict_stale(self, job: Job, part: GangPart, pods: Sequence[Placed]) -> None:
        for placed in pods:
            if placed.pod.metadata.deletion_timestamp is None:
                profile = placed.demand.scheduler_name
                self._out.extend(reports.stale(placed.pod, job.name, part.name, profile, self._now))

    # ----------------------------------------------------------------------------------------------------------- refusing

    def _refuse(self, session: Session, job: Job, now: float) -> None:
        for pending in list(job.waiting.values()):
            if not pending.nominated and (told := session.told(job, pending.pod)) is not None:
                self._wait(job, pending, told, now)
        missing = session.missing.get(job.key)
        if missing is None:
            return
        refused = missing.refused
        # While one of their claims is just being given back, no node was looked at: with another device all may be well.
        if refused is None or refused.state is not None or refused.free_claims:
            for claim, pod in left_over(job, self._parts.world, self._parts.claims):
                self._parts.claims.give_back(claim, pod)
        for device in refused.failed if refused is not None else ():
            self._parts.rests.rest(device, now)

    def _wait(self, job: Job, pending: QueuedPod, missing: Missing, now: float) -> None:
        self._preemptor.lose(pending)
        self._parts.queue.refuse(pending, _together_with(job, pending), missing.refusal, frozenset({TOPIC}), now)
        self._reports.refused(pending, missing.refusal, now)


def _together_with(job: Job, pending: QueuedPod) -> Hashable:
    """Equal for pods that are told the same; in a gang of parts some lack pods, and some pods are in none."""
    return "job", job.key, pending.uid if job.subgroups else ""


def _labels(pod: Pod) -> list[str | None]:
    """Those that say something of its place in a queue."""
    return [pod.metadata.labels.get(name) for name in OF_QUEUES]


def _same_spec(change: Change) -> bool:
    old: Any = change.old
    new: Any = change.new
    return old is not None and new is not None and bool(old.spec == new.spec)


def _same(old: Any, new: Any) -> bool:
    """Whether nothing of a queue or a pod group changed but its status."""
    if old is None or new is None:
        return False
    return bool(old.spec == new.spec and old.metadata.annotations == new.metadata.annotations and old.uid == new.uid)
