"""One session of queues: jobs in the order of their queues; allocate, then consolidate, reclaim and preempt for who is left.

Always true: fair shares are those of the moment when the session began, what queues hold is what they hold now. A job is placed
as far as its next step goes (its minimum, or one more), or it is refused with a reason. What is decided is handed to
``Decisions`` or promised, and counts at once; nothing else leaves a session.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import Final, Protocol

from dray.api.core import Pod
from dray.api.times import parse_time
from dray.books.nodes import Placed
from dray.queues.gangs import Part, State, broken, is_running, is_stale, members_of, parts_of, stale_until
from dray.scheduling.actions.preemption import Preemption
from dray.scheduling.config import QueueSettings
from dray.scheduling.parts import Parts
from dray.scheduling.placing.cycle import Cycle
from dray.scheduling.placing.refusal import Refusal
from dray.scheduling.waiting.queue import QueuedPod
from dray.scheduling.workloads.asked import Amounts, add
from dray.scheduling.workloads.asking import Asking
from dray.scheduling.workloads.denials import Denials, Missing, barred
from dray.scheduling.workloads.grouping import leaf_of
from dray.scheduling.workloads.jobs import Job, Jobs
from dray.scheduling.workloads.joint import Joint
from dray.scheduling.workloads.line import Line
from dray.scheduling.workloads.members import Members, Tried
from dray.scheduling.workloads.nearness import Nearness
from dray.scheduling.workloads.overtaking import Overtaking
from dray.scheduling.workloads.promises import Promises
from dray.scheduling.workloads.returns import Returns
from dray.scheduling.workloads.room import Plan, Room, Step, Wanted
from dray.scheduling.workloads.taking import Taking
from dray.scheduling.workloads.together import Seat, Together
from dray.scheduling.workloads.turns import Done, Turns
from dray.scheduling.workloads.use import QueueUse, Standings, shares_of

# One of those of the settings, or "turn": what others leave for somebody is given to who comes before that one.
Action = str
# A pod that was to be gone this long ago, in seconds, does not count as making room.
STUCK_AFTER: Final = 120.0
# How often room is looked for that takes from no other plan.
MOST_WITHDRAWN: Final = 3
# How often in a session a job that has a plan is asked what else it may have.
MOST_GROWTHS: Final = 32
# Of how many that come before a job it is asked whether they have what others leave over.
MOST_BEFORE: Final = 8


class Decisions(Protocol):
    """What a session decides, made to count at once."""

    def start(self, job: Job, seats: Sequence[Seat]) -> None: ...

    def evict_stale(self, job: Job, part: Part, pods: Sequence[Placed]) -> None: ...

    def may_start_more(self) -> bool: ...


class Session:
    def __init__(
        self,
        parts: Parts,
        cycle: Cycle,
        preemption: Preemption,
        jobs: Jobs,
        use: QueueUse,
        together: Together,
        decisions: Decisions,
        promises: Promises,
        now: float,
        settings: QueueSettings,
    ) -> None:
        self._parts, self._preemption, self._jobs, self._use = parts, preemption, jobs, use
        self.together, self._decisions, self._promises, self.now, self._settings = together, decisions, promises, now, settings
        self.tree = jobs.tree
        jobs.devices.look_again()
        self.members = Members(parts, preemption)
        self.tried = Tried(parts, preemption, self.members)
        self.asking = Asking(jobs, use, self.members)
        self.waiting = [job for job in jobs.with_waiting() if jobs.unusable(job.queue) is None]
        self.total = self.asking.capacity(parts.nodes)
        self.shares = shares_of(self.total, self.tree, use, self._pending())
        self.standings = Standings(self.tree, use, self.shares)
        self.denials = Denials(self.tree, self.standings, self.total, use, self.members, self.asking)
        self.nearness = Nearness(parts, together, self.tried)
        self._room = Room(parts, cycle, preemption, together, self.nearness, now)
        self._room.leaving = self._leaving()
        self.turns = Turns(self, jobs, use)
        self.taking = Taking(self, parts, jobs, use, together, self._room, settings)
        self._joint = Joint(self, self.taking, self._room, together)
        self.missing: dict[str, Missing] = {}
        self.done = Done(jobs.log)
        # Whom room is made for in this session, and by which action: nothing of it is written before the end.
        self.plans: dict[str, Plan] = {}
        self.made_by: dict[str, Action] = {}
        self.returns = Returns()
        self._growths = MOST_GROWTHS
        self.cut = False
        # Whether somebody was no victim only because it is about to start.
        self.spared_starting = False

    def _pending(self) -> dict[str, Amounts]:
        """By queue, what its jobs wait for."""
        found: dict[str, Amounts] = {}
        for job in self.waiting:
            wanted = [p for p in job.waiting.values() if not p.pod.spec.scheduling_gates and not p.nominated]
            add(found.setdefault(job.queue, {}), self.asking.of(wanted))
        return found

    def _leaving(self) -> list[Placed]:
        """Pods that are deleted or being evicted, whose room is about to be free."""
        found = self._parts.nodes.leaving()
        for uid in self._preemption.evicted():
            if (placed := self._parts.nodes.placed(uid)) is not None and not placed.leaving:
                found.append(placed)
        return [placed for placed in found if not self._is_stuck(placed)]

    def _is_stuck(self, placed: Placed) -> bool:
        """Whether it should have been gone long ago."""
        stamp = placed.pod.metadata.deletion_timestamp
        return stamp is not None and self.now >= parse_time(stamp) + STUCK_AFTER

    def _line(self, jobs: Collection[Job]) -> Line:
        line = Line(self.tree, self.standings, self.total, self.members.key, self.asking.next_of)
        line.add(jobs)
        return line

    # -------------------------------------------------------------------------------------------------------- the actions

    def run(self) -> None:
        actions: dict[Action, Callable[[], None]] = {
            "allocate": self._allocate,
            "consolidation": lambda: self._for_each("consolidation", self.taking.consolidate),
            "reclaim": lambda: self._for_each("reclaim", self.taking.reclaim),
            "preempt": lambda: self._for_each("preempt", self.taking.preempt),
            "stalegangeviction": self._evict_stale,
        }
        for action in self._settings.actions:
            if not self.cut:
                actions[action]()
        self._joint.spares()
        for key in self.plans:
            self.missing.pop(key, None)
        for job in self.waiting:
            missing = self.missing.get(job.key)
            if missing is not None and missing.refused is not None:
                behind, overtaken = self.turns.behind.get(job.key), self.turns.overtaking.get(job.key)
                missing = self.missing[job.key] = self.denials.with_share(job, missing, behind, overtaken)
            # Of a job that was not looked at, as it lacks pods or may not start, nobody knows what it asks for.
            if missing is not None and self.taking.young and self.asking.noted(job):
                self.missing[job.key] = self.denials.with_age(missing, self.taking.next_of_age(job))

    def _ready(self) -> list[Job]:
        """Jobs that have something to place, and may."""
        found = []
        for job in self.waiting:
            if job.key in self.done:
                continue
            if (refusal := self.barred(job)) is not None:
                self.missing[job.key] = Missing(refusal)
            elif not self.members.next(job):
                self.missing[job.key] = Missing(self.denials.incomplete(job))
            else:
                found.append(job)
        return found

    def barred(self, job: Job, starting: Iterable[str] | None = None) -> Refusal | None:
        """``starting``: its pods that are to be placed, or those that wait."""
        return barred(self._jobs, self.nearness, job, job.waiting if starting is None else starting)

    def told(self, job: Job, pod: Pod) -> Missing | None:
        """Why nothing comes of one of its pods that waits, if so."""
        missing = self.missing.get(job.key)
        return missing if self._jobs.unusable(job.queue) is not None else self.denials.of_pod(job, pod, missing)

    def comes_back(self, job: Job) -> bool:
        """Whether a job that runs may start again elsewhere, if it has room there as things stand in a trial."""
        return self.is_made_again(job) and self._use.within_limits(job)

    def is_made_again(self, job: Job) -> bool:
        """Whether somebody makes its pods again when they are gone, and such as may start. What they said when they started may
        have been changed since, and counts then."""
        return all(pod.metadata.controller for pod in job.pods.values()) and self.barred(job, job.pods) is None

    # ------------------------------------------------------------------------------------------------------------ allocate

    def _allocate(self) -> None:
        ready = self._ready()
        line, failed = self._line(ready), dict[Hashable, Missing]()
        for job in sorted((each for each in ready if each in self.returns), key=self.members.key):
            gang = self.members.gang(job)
            if not gang.members("leaving"):
                if job.preemptible and not is_stale(gang):
                    self._serve_above(job, ready, line, failed)
                self._return(job, line)
        while (first := line.pop()) is not None:
            if not self._decisions.may_start_more():
                self.cut = True
                return
            self._serve(first, line, failed)

    def _serve(self, job: Job, line: Line, failed: dict[Hashable, Missing]) -> bool:
        """Whether the job starts, as far as its next step goes; else it is promised what others leave, or told why not."""
        members = self.members.next(job)
        if not members:
            return False
        self.asking.note(job, members)
        if (denied := self.denials.of_start(job)) is not None:
            self.missing[job.key] = Missing(self.denials.denied(job, denied))
            return False
        likeness = self._likeness(job, members)
        if likeness in failed:
            self.missing[job.key] = self.denials.alike(job, members, failed[likeness])
            return False
        found = self._find(job, members)
        if not isinstance(found, Missing):
            self._started(job, found, line)
            return True
        if (plan := self.when_they_left(job, members)) is not None:
            self.plan(job, plan, "allocate")
        else:
            failed[likeness] = self.missing[job.key] = found
        return False

    def _serve_above(self, job: Job, ready: Sequence[Job], line: Line, failed: dict[Hashable, Missing]) -> None:
        """Who would preempt a job that comes back is served before it: else that would be evicted a second time."""
        above = [each for each in ready if each.queue == job.queue and each.priority > job.priority]
        for first in sorted(above, key=self.members.key):
            starts = True
            while starts and first.key not in self.done:
                line.drop(first)
                starts = self._serve(first, line, failed)

    def _return(self, job: Job, line: Line) -> None:
        """Who moved for others has the places that were found for it, before anybody else is served."""
        nodes = self.returns.pop(job)
        while 0 < len(members := self.members.next(job)) <= len(nodes):
            self.asking.note(job, members)
            self.together.headroom.begin(members)
            if self.denials.of_start(job) is not None or (seats := self._near(job, members, nodes)) is None:
                return
            nodes = nodes[len(members) :]
            line.drop(job)
            self._started(job, seats, line)

    def _near(self, job: Job, members: Sequence[QueuedPod], nodes: Sequence[str]) -> list[Seat] | None:
        """Where these have to be near to each other, in a domain with room, which need not be the one that was found for them."""
        if not job.root.constrained:
            return self.together.near(members, nodes)
        found = self._find(job, members)
        return None if isinstance(found, Missing) else found

    def could_start(self, planned: Sequence[Job], *, grow: bool) -> list[QueuedPod]:
        """Who would find room as things stand in a trial, which has it then: the next pods of all jobs but these, for whom room
        is planned; ``grow``: of all jobs, again and again."""
        found, failed = list[QueuedPod](), set[Hashable]()
        out = set() if grow else {job.key for job in planned}
        following = self.tried.next
        line = Line(self.tree, self.standings, self.total, self.tried.key, lambda job: self.asking.step(following(job)))
        free = (each for each in self.waiting if each.key not in self.done and each.key not in out)
        line.add(each for each in free if self.barred(each) is None and following(each))
        while (job := line.pop()) is not None:
            members = following(job)
            likeness = self._likeness(job, members)
            self.asking.note(job, members)
            if likeness in failed or self.denials.of_start(job) is not None:
                continue
            self.together.headroom.begin(members)
            if not isinstance(self.nearness.find(job, members), list):
                failed.add(likeness)
                continue
            found += members
            if grow and following(job):
                line.push(job)
        return found

    def when_they_left(self, job: Job, members: Sequence[QueuedPod]) -> Plan | None:
        """Pods that are leaving anyhow make enough room: nobody else has to go."""
        if not self._room.leaving or self._preemption.made_for_others(members):
            return None
        wanted = Wanted(members, lambda: self.denials.within(job), lambda plan: True, lambda plan: 0, self.comes_back)
        scopes = self.nearness.scopes(job, members, self._room.leaving)
        plans = (self._room.in_order(wanted._replace(scope=scope), ()) for scope in scopes)
        return next((plan for plan in plans if plan is not None), None)

    def _started(self, job: Job, seats: Sequence[Seat], line: Line) -> None:
        self._decisions.start(job, seats)
        self.missing.pop(job.key, None)
        if job.waiting and self.members.next(job):
            line.push(job)

    def _find(self, job: Job, members: Sequence[QueuedPod]) -> list[Seat] | Missing:
        """Places for the members; nothing is posted."""
        self.together.headroom.begin(members)
        with self._parts.books.trial():
            found = self.nearness.find(job, members)
            certain = not isinstance(found, list) or self.asking.is_certain(job)
            exceeded = None if certain else self.denials.exceeded(job)
        if exceeded is not None:
            return Missing(self.denials.denied(job, exceeded))
        return found if isinstance(found, list) else self.denials.blocked(job, members, found)

    # -------------------------------------------------------------------------------------------------------- making room

    def _for_each(self, action: Action, find: Callable[[Job, list[QueuedPod]], Plan | None]) -> None:
        jobs = [job for job in self._ready() if not self._delayed(job)]
        line = self._line(jobs)
        failed, overtaking = set[Hashable](), Overtaking(self._parts)
        # By queue and priority: whether there is anybody to evict at all.
        victims: dict[tuple[str, int], bool] = {}
        while (job := line.pop()) is not None:
            members = self.members.next(job)
            likeness = (job.queue, job.priority, job.preemptible, self._likeness(job, members))
            if not members or likeness in failed or self._preemption.made_for_others(members):
                continue
            self.asking.note(job, members)
            if not self.taking.may_ask(job, action) or self.together.wait_for_claims(members):
                continue
            if action != "consolidation" and (first := overtaking.behind(job)) is not None:
                kind = job.queue, job.priority
                if kind not in victims:
                    victims[kind] = bool(self.taking.candidates(job, action))
                if victims[kind]:
                    self.turns.overtaking[job.key] = first
                continue
            plan = self._settled(job, find)
            if plan is not None and action == "preempt" and self.members.active(job) and self._joint.loses(job, plan):
                # A surplus that costs more than it brings.
                plan = None
            if plan is not None and not plan.victims and self._others_first(job):
                continue
            if plan is not None and plan.evicted and self._growths > 0 and self._given(job, plan):
                # The job looks for room again.
                self._growths -= 1
                line.push(job)
            elif plan is not None:
                self._more(job, plan, action)
            elif action != "reclaim" or not self._joint.includes(job, members, action):
                failed.add(likeness)
                overtaking.failed(job)
                continue
            if action == "reclaim" and job.key not in self.done and self._growths > 0:
                self._growths -= 1
                line.push(job)

    def _more(self, job: Job, plan: Plan, action: Action) -> None:
        """Room is made for the job so, besides what it is promised already: a gang grows pod by pod."""
        known = self.plans.get(job.key)
        if known is not None:
            action = action if plan.evicted or not known.evicted else self.made_by[job.key]
            plan = known.with_more(plan)
            self.withdraw(job)
        self.plan(job, plan, action)

    def _others_first(self, job: Job) -> bool:
        """Whether what others leave over goes to somebody before the job: who grows beyond what it is promised, may not ask for
        room, or has to go and comes back. It is not the job's then, for they would take it back; in the next session it is
        theirs."""
        tried = set[Hashable]()
        evicted = [step for plan in self.plans.values() for step in plan.evicted]
        for first, lost in self.turns.before(job, evicted, self.standings):
            if lost:
                if self._fits_again(first, lost):
                    return True
                continue
            members = self.members.next(first)
            likeness = self._likeness(first, members)
            if likeness in tried or not self._may_start(first, members):
                continue
            if self.when_they_left(first, members) is not None:
                return True
            tried.add(likeness)
            if len(tried) >= MOST_BEFORE:
                break
        return False

    def _given(self, job: Job, plan: Plan) -> bool:
        """Whether what those leave who go for the job is somebody's who comes before it, and before them: it is given to that one
        then, who may not ask for room or found none."""
        tried, standings = set[Hashable](), self.standings.frozen()
        for first, lost in self.turns.before(job, plan.evicted, self.turns.without(plan.evicted, standings)):
            if lost or len(tried) >= MOST_BEFORE:
                break
            members = self.members.next(first)
            likeness = self._likeness(first, members)
            if likeness in tried or first.key in self.plans or not self._may_start(first, members):
                continue
            tried.add(likeness)
            seats = self._instead(first, members, plan)
            if seats is not None and not self.taking.wastes(first, given := plan._replace(seats=seats), standings):
                self.plan(first, given, "turn")
                return True
        return False

    def _instead(self, job: Job, members: Sequence[QueuedPod], plan: Plan) -> list[Seat] | None:
        """Places for these in what others leave by the plan, and nobody else has."""
        self.together.headroom.begin(members)
        found = self._room.supposing([plan._replace(seats=[])], lambda _: self.nearness.find(job, members))
        return found if isinstance(found, list) else None

    def _may_start(self, job: Job, members: Sequence[QueuedPod]) -> bool:
        self.asking.note(job, members)
        return self.barred(job) is None and self.denials.of_start(job) is None

    def _fits_again(self, job: Job, lost: Sequence[Step]) -> bool:
        """Whether there is room again for what a job loses last, without which it does not start again."""
        if job.root.constrained:
            return False
        return self._room.supposing((), lambda fits_again: fits_again(lost[-1]) and self.comes_back(job))

    def _settled(self, job: Job, find: Callable[[Job, list[QueuedPod]], Plan | None]) -> Plan | None:
        """A plan that takes from no other plan of this session: those are withdrawn, and it is looked for again. If there is none
        then, they hold after all."""
        withdrawn: list[tuple[Job, Plan, Action]] = []
        for _ in range(MOST_WITHDRAWN):
            plan = find(job, self.members.next(job))
            if plan is None:
                break
            steps = [*plan.evicted, *(step for step, _ in plan.moved)]
            taken = {step.job.key: step.job for step in steps if step.job.key in self.plans}
            if not taken:
                return plan
            for key, other in taken.items():
                withdrawn.append((other, self.plans[key], self.made_by[key]))
                self.withdraw(other)
        for other, known, action in withdrawn:
            self.plan(other, known, action)
        return None

    def plan(self, job: Job, plan: Plan, action: Action, going: Sequence[Placed] = ()) -> None:
        """Room is made for the job so. ``going``: who leaves besides, for others whose plans are made with it."""
        nodes = {seat.placement.node for seat in plan.seats}
        leaving = {placed.pod.uid: placed for placed in (*self._room.leaving, *going) if placed.node in nodes}
        leaving |= {placed.pod.uid: placed for placed in plan.victims}
        self._promises.make(job, plan, list(leaving.values()))
        self.plans[job.key], self.made_by[job.key] = plan, action
        if not self.members.next(job):
            self.done.add(job.key)
        self._room.planned(plan)
        for step in plan.evicted if self._room.places else ():
            if not self._goes_on(step.job):
                self._room.give_up(step.job.pods)

    def _goes_on(self, job: Job) -> bool:
        """Whether a job that loses some of its pods has its minimum with those that stay and those that move."""
        if job.single:
            return False
        moving: dict[str, State] = {uid: "active" for uid in job.pods if uid in self._room.places}
        return is_running(job.root, self.members.gang_if(job, moving))

    def withdraw(self, job: Job) -> None:
        plan = self.plans.pop(job.key)
        self._promises.withdraw(job)
        self.done.discard(job.key)
        self._room.withdrawn(plan)

    def _likeness(self, job: Job, members: Sequence[QueuedPod]) -> Hashable:
        """Jobs that ask for the same find the same. A gang with claims is like no other, nor are pods that have to be near to
        others that have their places; of claims, what is left of the queue decides between their alternatives."""
        if job.root.constrained:
            kinds = ((leaf_of(p.pod, job.subgroups), self.together.alike(p), bool(p.pod.spec.resource_claims)) for p in members)
            asked = tuple(sorted(kinds))
            alone = self.tried.active(job) or any(p.pod.spec.resource_claims for p in members)
            return asked, job.root, job.key if alone else ""
        if len(members) == 1 and members[0].pod.spec.resource_claims:
            return job.queue, self.together.likeness(members[0])
        return tuple(sorted((self.together.alike(p), p.uid if p.pod.spec.resource_claims else "") for p in members))

    def _delayed(self, job: Job) -> bool:
        since = max(job.created, job.evicted_at or 0.0)
        if any(self.now < pending.evicts_from for pending in job.waiting.values()):
            return True
        return job.delay > 0 and self.now < since + job.delay

    # ---------------------------------------------------------------------------------------------------------- stale gangs

    def _evict_stale(self) -> None:
        for job in self._jobs.take_stirred():
            if job.single:
                job.stale = {}
            else:
                self._evict_if_stale(job)
            if job.stale:
                self._jobs.stirred[job.key] = job

    def _evict_if_stale(self, job: Job) -> None:
        gang = self.members.gang(job)
        found = {part.name: part for part in broken(gang)}
        known = [part.name for part in parts_of(gang.root) if part.name in job.stale and self._may_break(job, part)]
        job.stale = {name: job.stale.get(name, self.now) for name in (*found, *known)}
        grace = self._settings.staleness_grace if job.grace is None else job.grace
        for name, part in found.items():
            until = stale_until(job.stale[name], grace)
            if until is not None and self.now >= until:
                active = [self._parts.nodes.placed(each.name) for each in members_of(gang, part, "active")]
                self._decisions.evict_stale(job, part, [placed for placed in active if placed is not None])

    def _may_break(self, job: Job, part: Part) -> bool:
        """Who is still to be bound may yet fail, again and again: that mends nothing."""
        active = members_of(self.members.gang(job), part, "active")
        return not all(job.pods[each.name].spec.node_name for each in active)
