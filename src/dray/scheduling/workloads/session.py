"""One session of queues: jobs in the order of their queues; allocate, then consolidate, reclaim and preempt for who is left.

Always true: fair shares are those of the moment when the session began, what queues hold is what they hold now. A job is placed
as far as its next step goes (its minimum, or one more), or it is refused with a reason. What is decided is handed to
``Decisions`` and counts at once; nothing else leaves a session.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

import msgspec

from dray.api.reason import Reason
from dray.api.times import parse_time
from dray.books.nodes import Placed
from dray.queues.gangs import Gang, Member, State, fill, is_stale, next_attempt, stale_until
from dray.queues.order import Fill, at_most, job_key
from dray.queues.reclaim import (
    Denial,
    Reclaimer,
    is_candidate,
    is_protected,
    may_reclaim,
    may_start,
    may_take,
    preempt_min_runtime,
    reclaim_min_runtime,
)
from dray.scheduling.actions.preemption import Preemption
from dray.scheduling.config import QueueSettings
from dray.scheduling.parts import Parts
from dray.scheduling.placing.cycle import Cycle
from dray.scheduling.placing.refusal import Refusal
from dray.scheduling.placing.state import NotPlaced
from dray.scheduling.waiting.queue import QueuedPod
from dray.scheduling.workloads.asked import GPU, Amounts, Asked, add, together
from dray.scheduling.workloads.bounds import enough_free, hopeless
from dray.scheduling.workloads.budgets import Budgets
from dray.scheduling.workloads.jobs import BESIDE, GPU_RESOURCE, NATIVE, Job, Jobs, gang_of, told
from dray.scheduling.workloads.line import Line
from dray.scheduling.workloads.returns import Returns
from dray.scheduling.workloads.room import Plan, Room, Step, Wanted
from dray.scheduling.workloads.together import Blocked, Seat, Together
from dray.scheduling.workloads.turns import Turns
from dray.scheduling.workloads.use import QueueUse, Standings, shares_of
from dray.scheduling.workloads.victims import Victims

Action = str
# A pod that was to be gone this long ago, in seconds, does not count as making room.
STUCK_AFTER: Final = 120.0
# How often in a session it is asked in vain whether it is enough that others move.
MOST_TRIES: Final = 16


class Decisions(Protocol):
    """What a session decides, made to count at once."""

    def start(self, job: Job, seats: Sequence[Seat]) -> None: ...

    def make_room(self, job: Job, plan: Plan, awaited: Sequence[Placed]) -> None: ...

    def withdraw(self, job: Job) -> None: ...

    def evict_stale(self, job: Job, pods: Sequence[Placed]) -> None: ...

    def may_start_more(self) -> bool: ...


class Missing(NamedTuple):
    """Why a job is not placed: what its pods are told, and what was refused on nodes where that was it."""

    refusal: Refusal
    refused: NotPlaced | None = None


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
        now: float,
        settings: QueueSettings,
    ) -> None:
        self._parts, self._cycle, self._preemption = parts, cycle, preemption
        self._jobs, self._use, self._together, self._decisions, self.now = jobs, use, together, decisions, now
        self._settings = settings
        self.tree = jobs.tree
        jobs.devices.look_again()
        self.pending: dict[str, Amounts] = {}
        self._asked: dict[str, Asked] = {}
        self._requests: dict[str, Amounts] = {}
        self.states: dict[str, dict[str, State]] = {}
        self._gangs: dict[str, Gang] = {}
        self.waiting = [job for job in jobs if job.waiting and job.queue in self.tree.queues]
        for job in self.waiting:
            self._request(job)
        self.total = self._capacity()
        self.shares = shares_of(self.total, self.tree, use, self.pending)
        self.standings = Standings(self.tree, use, self.shares)
        use.changed.clear()
        self._room = Room(parts, cycle, preemption, together, now)
        self._victims = Victims(self, parts.nodes, jobs, use)
        self._turns = Turns(self, use)
        self._budgets = Budgets(parts.world)
        self.missing: dict[str, Missing] = {}
        self.done: set[str] = set()
        # Whom room is made for in this session, and by which action: nothing of it is written before the end.
        self.plans: dict[str, Plan] = {}
        self.made_by: dict[str, Action] = {}
        self.returns = Returns()
        self._tries = MOST_TRIES
        self._room.leaving = [placed for placed in parts.nodes.all_placed() if self._leaves(placed)]
        self.cut = False

    # --------------------------------------------------------------------------------------------------- what there is

    def _capacity(self) -> Amounts:
        """What the nodes have for queues: without what pods of no queue hold."""
        total: Amounts = dict.fromkeys((*NATIVE, *self.tree.resources()), 0.0)
        for info in self._parts.nodes:
            if info.node.spec.unschedulable:
                continue
            for resource, offered in info.allocatable.items():
                name = GPU if resource == GPU_RESOURCE else resource
                if name in total:
                    total[name] += offered
        self._jobs.add_devices(total)
        for name, value in self._use.beside.items():
            if name in total:
                total[name] -= value
        return total

    def _request(self, job: Job) -> None:
        wanted = [p for p in job.waiting.values() if not p.pod.spec.scheduling_gates and not p.nominated]
        add(self.pending.setdefault(job.queue, {}), self.asks(wanted))

    def asks(self, members: Iterable[QueuedPod]) -> Amounts:
        """What the members take of their queue in all, beside what runs."""
        return together(map(self._asks, members), self._use.claims)

    def asked_by(self, uid: str) -> Amounts:
        """What one pod that waited when the session began asks for."""
        known = self._asked.get(uid)
        return together([known]) if known is not None else {}

    def _asks(self, pending: QueuedPod) -> Asked:
        known = self._asked.get(pending.uid)
        if known is None:
            known = self._asked[pending.uid] = self._jobs.asks(pending.pod, pending.demand)
        return known

    # ------------------------------------------------------------------------------------------------------------ jobs

    def state_of(self, job: Job, uid: str) -> State:
        pod = job.pods[uid]
        if pod.terminal:
            return "succeeded" if pod.status.phase == "Succeeded" else "gone"
        placed = self._parts.nodes.placed(uid)
        if placed is not None:
            return "leaving" if placed.leaving or self._preemption.preemptor_of(uid) else "active"
        if uid in job.waiting:
            return "gated" if pod.spec.scheduling_gates else "pending"
        return "gone"

    def gang(self, job: Job) -> Gang:
        known = self._gangs.get(job.key)
        if known is None:
            states = {uid: self.state_of(job, uid) for uid in job.pods}
            self.states[job.key] = states
            known = self._gangs[job.key] = gang_of(job, states)
        return known

    def _changed(self, job: Job) -> None:
        self._gangs.pop(job.key, None)
        self._turns.changed(job)

    def key(self, job: Job) -> tuple[object, ...]:
        if not job.single:
            return job_key(job.priority, fill(self.gang(job)), job.created, job.uid)
        below = any(not pending.nominated for pending in job.waiting.values())
        return job_key(job.priority, Fill.BELOW if below else Fill.AT, job.created, job.uid)

    def active(self, job: Job) -> list[Member]:
        """Its pods that hold something, or are promised it."""
        if job.single:
            uid = next(iter(job.pods))
            return [Member(uid)] if self.state_of(job, uid) == "active" else []
        return self.gang(job).members("active")

    def members(self, job: Job) -> list[QueuedPod]:
        """The pods to place next, together."""
        return [job.waiting[each.name] for each in next_attempt(self.gang(job)) if each.name in job.waiting]

    def request(self, job: Job) -> Amounts:
        return dict.fromkeys(NATIVE, 0.0) | self.asks(self.members(job))

    def request_of(self, job: Job) -> Amounts:
        """What was asked for when the job was last looked at."""
        return self._requests.get(job.key, {})

    def _line(self, jobs: Collection[Job]) -> Line:
        line = Line(self.tree, self.standings, self.total, self.key, self.request)
        line.add(jobs)
        return line

    def _reclaimer(self, job: Job) -> Reclaimer:
        return Reclaimer(job.queue, self.request(job), job.preemptible)

    # -------------------------------------------------------------------------------------------------------- the actions

    def run(self) -> None:
        actions: dict[Action, Callable[[], None]] = {
            "allocate": self._allocate,
            "consolidation": lambda: self._for_each("consolidation", self._consolidate),
            "reclaim": lambda: self._for_each("reclaim", self._reclaim),
            "preempt": lambda: self._for_each("preempt", self._preempt),
            "stalegangeviction": self._evict_stale,
        }
        for action in self._settings.actions:
            if not self.cut:
                actions[action]()
        for job in self.waiting:
            missing = self.missing.get(job.key)
            if missing is not None and missing.refused is not None:
                self.missing[job.key] = self._with_share(job, missing)

    def _ready(self) -> list[Job]:
        """Jobs that have something to place, and may."""
        found = []
        for job in self.waiting:
            if job.key in self.done:
                continue
            if job.missing:
                self.missing[job.key] = Missing(Refusal.of("PodGroupMissing", f"podgroup/{job.key}"))
            elif not self.members(job):
                self.missing[job.key] = Missing(self._not_ready(job))
            else:
                found.append(job)
        return found

    def _not_ready(self, job: Job) -> Refusal:
        gang = self.gang(job)
        alive = len(gang.members("pending", "active"))
        needed = sum(leaf.needed for leaf in gang.leaves.values())
        return Refusal.of("GangIncomplete", f"podgroup/{job.key}", pods=alive, needed=needed)

    def _allocate(self) -> None:
        ready = self._ready()
        line = self._line(ready)
        for each in ready:
            if each in self.returns and not self.gang(each).members("leaving"):
                self._return(each, line)
        failed: dict[tuple[object, ...], Missing] = {}
        while (job := line.pop()) is not None:
            if not self._decisions.may_start_more():
                self.cut = True
                return
            members = self.members(job)
            if not members:
                continue
            self._requests[job.key] = self.request(job)
            if (denied := self._start_denied(job)) is not None:
                self.missing[job.key] = Missing(self._denied(job, denied))
                continue
            likeness = self._likeness(members)
            if likeness in failed:
                self.missing[job.key] = failed[likeness]
                continue
            found = self._find(job, members)
            if not isinstance(found, Missing):
                self._started(job, found, line)
            elif (plan := self._when_they_left(job, members)) is not None:
                self._planned(job, plan, line, "allocate")
            else:
                failed[likeness] = self.missing[job.key] = found

    def _return(self, job: Job, line: Line) -> None:
        """Who moved for others has the places that were found for it, before anybody else is served."""
        nodes = self.returns.pop(job)
        while 0 < len(members := self.members(job)) <= len(nodes) and self._start_denied(job) is None:
            if (seats := self._together.near(members, nodes)) is None:
                return
            nodes = nodes[len(members) :]
            line.drop(job)
            self._started(job, seats, line)

    def _when_they_left(self, job: Job, members: Sequence[QueuedPod]) -> Plan | None:
        """Pods that are leaving anyhow make enough room: nobody else has to go."""
        if not self._room.leaving:
            return None
        wanted = Wanted(members, lambda: self._within(job), lambda plan: True, lambda plan: 0, self._use.within_limits)
        return self._room.in_order(wanted, ())

    def _leaves(self, placed: Placed) -> bool:
        """Whether what the pod holds is about to be free; not of one that should have been gone long ago."""
        stamp = placed.pod.metadata.deletion_timestamp
        if stamp is not None:
            return self.now < parse_time(stamp) + STUCK_AFTER
        return bool(self._preemption.preemptor_of(placed.pod.uid))

    def _within(self, job: Job) -> bool:
        """Whether the queues of the job keep to their limits, and to their quotas with what cannot be preempted."""
        for queue in self.tree.upwards(job.queue):
            held, fixed = self._use.allocated[queue.name], self._use.fixed[queue.name]
            for name, amount in self._requests[job.key].items():
                if amount > 0 and not at_most(held.get(name, 0.0), queue.of(name).limit):
                    return False
                if amount > 0 and not job.preemptible and not at_most(fixed.get(name, 0.0), queue.of(name).quota):
                    return False
        return True

    def _likeness(self, members: Sequence[QueuedPod]) -> tuple[object, ...]:
        """Jobs that ask for the same find the same; pods with claims of their own are never alike."""
        return tuple(sorted(p.demand.id if not p.pod.spec.resource_claims else p.uid.__hash__() for p in members))

    def _started(self, job: Job, seats: Sequence[Seat], line: Line) -> None:
        self._decisions.start(job, seats)
        self.missing.pop(job.key, None)
        self._changed(job)
        line.changed(self._use.changed)
        self._use.changed.clear()
        if job.waiting and self.members(job):
            line.push(job)

    def _find(self, job: Job, members: Sequence[QueuedPod]) -> list[Seat] | Missing:
        """Places for the members; nothing is posted."""
        with self._parts.books.trial():
            found = self._together.find(members)
        return found if isinstance(found, list) else self._blocked(job, members, found)

    def _blocked(self, job: Job, members: Sequence[QueuedPod], found: Blocked) -> Missing:
        refusal = found.refused.refusal
        if len(members) > 1:
            data: dict[str, str | int] = {"member": found.pending.pod.key, "placed": found.placed, "needed": len(members)}
            refusal = Refusal(((Reason("GangBlocked", f"podgroup/{job.key}", data), 0), *refusal.reasons), refusal.nodes)
        return Missing(refusal, found.refused)

    def _denied(self, job: Job, denied: Denial) -> Refusal:
        standing, limit = self.standings[denied.queue], denied.rule == "limit"
        entitled = standing.queue.of(denied.resource)
        held = (standing.allocated if limit else standing.fixed).get(denied.resource, 0.0)
        data = self._numbers(job, denied, held) | {"limit": told(denied.resource, entitled.limit if limit else entitled.quota)}
        return Refusal.of("QueueLimit" if limit else "QueueQuota", f"queue/{denied.queue}", **data)

    def _numbers(self, job: Job, denied: Denial, held: float) -> dict[str, str]:
        asked = self._requests[job.key].get(denied.resource, 0.0)
        return {"resource": denied.resource, "held": told(denied.resource, held), "asked": told(denied.resource, asked)}

    def _with_share(self, job: Job, missing: Missing) -> Missing:
        """No node has room; where other queues have what is missing, why nothing of it is taken back."""
        if job.queue == BESIDE:
            return missing
        denied = may_reclaim(self._reclaimer(job), self.standings)
        if denied is None and (first := self._turns.behind.get(job.key)) is not None and first.waiting:
            return _because(missing, "QueueBehind", job, first=next(iter(first.waiting.values())).pod.key)
        if denied is None or denied.rule != "fair share of the reclaimer" or not self._others_hold(job, denied.resource):
            return missing
        standing = self.standings[job.queue]
        data = self._numbers(job, denied, standing.allocated.get(denied.resource, 0.0))
        share = told(denied.resource, standing.fair_share.get(denied.resource, 0.0))
        return _because(missing, "QueueShare", job, **data, share=share)

    def _others_hold(self, job: Job, resource: str) -> bool:
        above = sum(self.standings[queue.name].allocated.get(resource, 0.0) for queue in self.tree.children.get("", ()))
        return above > self.standings[job.queue].allocated.get(resource, 0.0)

    # -------------------------------------------------------------------------------------------------------- making room

    def _for_each(self, action: Action, find: Callable[[Job, list[QueuedPod]], Plan | None]) -> None:
        jobs = [job for job in self._ready() if not self._delayed(job)]
        line = self._line(jobs)
        failed: set[tuple[object, ...]] = set()
        while (job := line.pop()) is not None:
            members = self.members(job)
            likeness = (job.queue, job.priority, job.preemptible, *self._likeness(members))
            if not members or likeness in failed:
                continue
            self._requests[job.key] = self.request(job)
            plan = self._settled(job, find)
            if plan is None:
                failed.add(likeness)
            else:
                self._planned(job, plan, line, action)

    def _settled(self, job: Job, find: Callable[[Job, list[QueuedPod]], Plan | None]) -> Plan | None:
        """A plan that takes from no other plan of this session: those are withdrawn, and it is looked for again."""
        for _ in range(3):
            plan = find(job, self.members(job))
            steps = [*plan.evicted, *(step for step, _ in plan.moved)] if plan is not None else []
            taken = {step.job.key: step.job for step in steps if step.job.key in self.plans}
            if not taken:
                return plan
            for other in taken.values():
                self._withdraw(other)
        return None

    def _planned(self, job: Job, plan: Plan, line: Line, action: Action) -> None:
        awaited = plan.victims or [placed for placed in self._room.leaving if placed.node in _nodes(plan)]
        self._decisions.make_room(job, plan, awaited)
        self.plans[job.key], self.made_by[job.key] = plan, action
        self.missing.pop(job.key, None)
        self.done.add(job.key)
        for step in (*plan.evicted, *(step for step, _ in plan.moved)):
            self._changed(step.job)
        self._changed(job)
        self._room.planned(plan)
        for step in plan.evicted:
            if not self.active(step.job):
                self._room.give_up(step.job.pods)
        line.changed(self._use.changed)
        self._use.changed.clear()

    def _withdraw(self, job: Job) -> None:
        plan = self.plans.pop(job.key)
        self._decisions.withdraw(job)
        self.done.discard(job.key)
        self._room.withdrawn(plan)
        for step in (*plan.evicted, *(step for step, _ in plan.moved)):
            self._changed(step.job)
        self._changed(job)

    def _delayed(self, job: Job) -> bool:
        since = max(job.created, job.evicted_at or 0.0)
        return job.delay > 0 and self.now < since + job.delay

    def _consolidate(self, job: Job, members: list[QueuedPod]) -> Plan | None:
        return self._moving(job, members) if job.preemptible else None

    def _moving(self, job: Job, members: list[QueuedPod]) -> Plan | None:
        """A plan in which everybody finds another place."""
        enough = enough_free(self._parts.nodes, members, self._room.leaving, self._parts.classes.offers)
        if not enough or self._start_denied(job) is not None:
            return None
        allowed = {each.key for each in self._jobs if each.preemptible and each is not job and (each.single or self.gang(each))}
        allowance = self._budgets.now(self._room.leaving)

        def judge(plan: Plan) -> bool:
            return not plan.evicted and not allowance.broken(plan.victims)

        wanted = Wanted(members, lambda: self._within(job), judge, lambda plan: 0, self._use.within_limits, all_stay=True)
        return self._room.by_node(
            wanted, self._victims.nodes(allowed), lambda node: list(allowance.sparing(self._victims.on(node, allowed)))
        )

    def _start_denied(self, job: Job) -> Denial | None:
        return may_start(self._reclaimer(job), self.tree, self.standings)

    # ----------------------------------------------------------------------------------------------- reclaim and preempt

    def _reclaim(self, job: Job, members: list[QueuedPod]) -> Plan | None:
        reclaimer, standings = self._reclaimer(job), self.standings.frozen()
        if may_reclaim(reclaimer, standings) is not None:
            return None
        open_queues = {
            name for name in self.tree.queues if self.tree.is_leaf(name) and is_candidate(reclaimer, name, self.tree, standings)
        }
        candidates = [each for each in self._jobs if each.preemptible and each.queue in open_queues]
        minima = self._jobs.minima("reclaim_min_runtime")

        def protected(victim: Job) -> bool:
            return is_protected(self.now, victim.last_start, reclaim_min_runtime(job.queue, victim.queue, self.tree, minima))

        def judge(plan: Plan) -> bool:
            blocks = [(step.job.queue, self._use.freed(step.pods)) for step in plan.evicted]
            if not self._settings.consolidating_reclaim:
                blocks += [(step.job.queue, self._use.freed(step.pods)) for step, _ in plan.moved]
            allowed = may_take(reclaimer, blocks, self.tree, standings) is None
            return allowed and self._turns.comes_first(job, plan.evicted, standings)

        return self._make_room(job, members, candidates, protected, judge)

    def _preempt(self, job: Job, members: list[QueuedPod]) -> Plan | None:
        candidates = [
            each for each in self._jobs if each.queue == job.queue and each.preemptible and each.priority < job.priority
        ]
        minima = self._jobs.minima("preempt_min_runtime")
        least = preempt_min_runtime(job.queue, self.tree, minima)

        def protected(victim: Job) -> bool:
            return is_protected(self.now, victim.started, least)

        def judge(plan: Plan) -> bool:
            return True

        return self._make_room(job, members, candidates, protected, judge)

    def breaks(self, plan: Plan) -> int:
        """How many of its victims break a disruption budget, if others leave first whom earlier plans drive out."""
        own = {placed.pod.uid for placed in plan.victims}
        others = [placed for placed in self._room.leaving if placed.pod.uid not in own]
        return self._budgets.now(others).broken(plan.victims)

    def _make_room(
        self,
        job: Job,
        members: list[QueuedPod],
        candidates: list[Job],
        protected: Callable[[Job], bool],
        judge: Callable[[Plan], bool],
    ) -> Plan | None:
        if not candidates or self._beyond(job) or not self._quota_allows(job) or self._hopeless(members, candidates):
            return None
        allowance = self._budgets.now(self._room.leaving)

        def breaks(plan: Plan) -> int:
            return allowance.broken(plan.victims)

        def unbroken(plan: Plan) -> bool:
            return not breaks(plan) and judge(plan)

        wanted = Wanted(members, lambda: self._within(job), unbroken, breaks, self._use.within_limits)
        plan = self._search(wanted, candidates, protected, allowance.sparing)
        if plan is None and self._budgets:
            plan = self._search(wanted._replace(judge=judge), candidates, protected, allowance.least_harm_first)
        return plan if plan is None or not plan.evicted else self._gentler(job, members, plan)

    def _gentler(self, job: Job, members: list[QueuedPod], plan: Plan) -> Plan:
        """Rather than that anybody is evicted, as many or fewer move: asked again, for others have made room since."""
        if (job.preemptible and not self.plans) or self._tries <= 0:
            return plan
        other = self._moving(job, members)
        self._tries -= other is None
        return other if other is not None and len(other.victims) <= len(plan.victims) else plan

    def _search(
        self,
        wanted: Wanted,
        candidates: Sequence[Job],
        protected: Callable[[Job], bool],
        choose: Callable[[Iterable[Step]], Iterator[Step]],
    ) -> Plan | None:
        """Victims in their order, then node by node; ``choose``: which of them, for the sake of budgets."""
        plan = self._room.in_order(wanted, choose(self._victims.in_order(candidates, protected)))
        if plan is not None:
            return plan
        allowed = {each.key for each in candidates if not protected(each) and (each.single or self.gang(each))}
        nodes = self._victims.nodes(allowed)
        return self._room.by_node(wanted, nodes, lambda node: list(choose(self._victims.on(node, allowed))))

    def protected_until(self) -> list[float]:
        """When jobs that may not be touched yet for their min-runtime may be, while somebody waits."""
        minima = {*self._jobs.minima("reclaim_min_runtime").values(), *self._jobs.minima("preempt_min_runtime").values()}
        if not minima or not self.missing:
            return []
        started = {job.started for job in self._jobs if job.started is not None}
        return [at for start in started for least in minima if (at := start + least) > self.now]

    def _beyond(self, job: Job) -> bool:
        """Whether a queue is above its limit as it is: that is nobody's to mend by evicting others."""
        return any(
            amount > 0 and not at_most(self._use.allocated[queue.name].get(name, 0.0), queue.of(name).limit)
            for queue in self.tree.upwards(job.queue)
            for name, amount in self._requests[job.key].items()
        )

    def _hopeless(self, members: Sequence[QueuedPod], candidates: Sequence[Job]) -> bool:
        placed = (self._parts.nodes.placed(uid) for job in candidates for uid in job.pods)
        gone = [*(each for each in placed if each is not None), *self._room.leaving]
        return hopeless(self._parts.nodes, members, gone, self._parts.classes.offers)

    def _quota_allows(self, job: Job) -> bool:
        return (denied := self._start_denied(job)) is None or denied.rule == "limit"

    # ---------------------------------------------------------------------------------------------------------- stale gangs

    def _evict_stale(self) -> None:
        for job in list(self._jobs):
            if job.single:
                continue
            gang = self.gang(job)
            if not is_stale(gang):
                job.stale_since = None
                continue
            if job.stale_since is None:
                job.stale_since = self.now
            until = stale_until(job.stale_since, self._settings.staleness_grace if job.grace is None else job.grace)
            if until is not None and self.now >= until:
                active = [self._parts.nodes.placed(each.name) for each in gang.members("active")]
                self._decisions.evict_stale(job, [placed for placed in active if placed is not None])
                self._changed(job)


def _because(missing: Missing, code: str, job: Job, **data: str) -> Missing:
    """Besides, for the sake of its queue."""
    known = missing.refusal
    reasons = (*known.reasons, (Reason(code, f"queue/{job.queue}", {**data}), 0))
    return Missing(msgspec.structs.replace(known, reasons=reasons), missing.refused)


def _nodes(plan: Plan) -> set[str]:
    return {seat.placement.node for seat in plan.seats}
