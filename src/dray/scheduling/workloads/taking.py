"""Room for one job: whom it may move, take back from, or preempt, and the plan in which that is enough.

Always true: a plan is found in trials that are not kept, and is allowed by the rules of its action; a disruption budget is
broken only where no plan breaks none, and never to move somebody.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Final

from dray.books.nodes import Placed
from dray.queues.order import Standing, plus
from dray.queues.reclaim import (
    Losses,
    is_candidate,
    is_guaranteed,
    is_protected,
    may_lose,
    may_reclaim,
    may_take,
    preempt_min_runtime,
    reclaim_min_runtime,
)
from dray.scheduling.config import QueueSettings
from dray.scheduling.parts import Parts
from dray.scheduling.waiting.queue import QueuedPod
from dray.scheduling.workloads.asked import Amounts
from dray.scheduling.workloads.bounds import asked_of_classes, enough_free
from dray.scheduling.workloads.budgets import Allowance, Budgets
from dray.scheduling.workloads.denials import Young
from dray.scheduling.workloads.freeing import Freeing, Needs, ToFree
from dray.scheduling.workloads.jobs import BESIDE, CPU, MEMORY, Job, Jobs, created
from dray.scheduling.workloads.ranked import Those
from dray.scheduling.workloads.room import Plan, Room, Step, Wanted
from dray.scheduling.workloads.slots import Slots
from dray.scheduling.workloads.together import NOWHERE_SPECIAL, Scope, Together
from dray.scheduling.workloads.use import QueueUse
from dray.scheduling.workloads.victims import Victims

Choose = Callable[[Iterable[Step]], Iterator[Step]]

# How often in a session it is asked in vain whether it is enough that others move.
MOST_TRIES: Final = 16
# Before the uid of a pod that is a job by itself only where others may drive it out.
_OUTSIDE: Final = "pod/"

if TYPE_CHECKING:
    from dray.scheduling.workloads.session import Session


class Taking:
    """``leaving``, of its room: pods that are leaving already."""

    def __init__(
        self, session: Session, parts: Parts, jobs: Jobs, use: QueueUse, together: Together, room: Room, settings: QueueSettings
    ) -> None:
        self._session, self._parts, self._jobs, self._use = session, parts, jobs, use
        self._together, self._room, self._settings = together, room, settings
        self._asking, self._denials = session.asking, session.denials
        self._victims = Victims(session, self, jobs, parts.nodes, use)
        self._freeing = Freeing(parts, room.preemption, jobs.log, self.job_of, self._job, session.members.key)
        # Who may be moved, if there is another place.
        self._movable = Those(jobs.log, jobs, lambda job: job.preemptible and session.is_made_again(job))
        self._budgets = Budgets(parts.world)
        self._slots = Slots(parts, room.preemption, lambda pending: together.open_claims((pending,)))
        self._tries = MOST_TRIES
        # By queue and priority: the jobs of the queue that may be preempted for such a one. Jobs stay what they are in a session.
        self._lower: dict[tuple[str, int], list[Job]] = {}
        # By whom room was looked for in vain, and how: victims that run for too short, those first that may go next.
        self.young: dict[tuple[Hashable, str], Young] = {}
        # Pods of no job, as far as somebody may drive them out.
        self._outside: dict[str, Job] = {}

    def job_of(self, uid: str) -> Job | None:
        return self._jobs.of(uid) or self._outside.get(uid)

    def _job(self, key: str) -> Job | None:
        return self._jobs.by_key(key) or self._outside.get(key.removeprefix(_OUTSIDE))

    def may_ask(self, job: Job, action: str) -> bool:
        """Whether the action is for the job at all."""
        if action == "reclaim":
            return self._may_reclaim(job, self._session.standings.frozen())
        return job.preemptible or action != "consolidation"

    # ----------------------------------------------------------------------------------------------------- consolidate

    def consolidate(self, job: Job, members: list[QueuedPod]) -> Plan | None:
        """Others make room, each of whom finds another place."""
        return self._moving(job, members)

    def _moving(self, job: Job, members: list[QueuedPod]) -> Plan | None:
        """A plan in which everybody finds another place."""
        self._together.headroom.begin(members)
        enough = enough_free(self._parts.nodes, members, self._room.leaving, self._parts.classes.offers)
        if not enough or self._denials.of_start(job) is not None or self._together.lacks_devices(members, self._room.leaving):
            return None
        # For whom room was made a moment ago has no other place, and whoever moves for itself gains nothing.
        allowed = self._movable.keys().difference(self._session.plans, (job.key,))
        allowance = self._budgets.now(self._room.leaving)

        def judge(plan: Plan) -> bool:
            return not plan.evicted and not allowance.broken(plan.victims)

        wanted = Wanted(
            members, lambda: self._denials.within(job), judge, lambda plan: 0, self._session.comes_back, all_stay=True
        )
        for scope in self._scopes(job, members, (each for each in self._jobs if each.key in allowed)):
            plan = self._by_node(wanted._replace(scope=scope), allowed, allowance.sparing)
            if plan is not None:
                return plan
        return None

    def _scopes(self, job: Job, members: Sequence[QueuedPod], candidates: Iterable[Job]) -> Iterator[Scope]:
        """The domains for the job in which room is to be made, if all of these may go; for most jobs, anywhere."""
        if not job.root.constrained:
            return iter((NOWHERE_SPECIAL,))
        going = list(candidates)
        nodes = self._to_free(frozenset(each.key for each in going), members)
        return self._session.nearness.scopes(job, members, self._gone(going), [node.name for node in nodes])

    # --------------------------------------------------------------------------------------------------------- reclaim

    def reclaim(self, job: Job, members: list[QueuedPod]) -> Plan | None:
        standings, refused = self._session.standings.frozen(), list[Plan]()
        self._together.headroom.begin(members, self._session.shares[job.queue])

        def judge(plan: Plan) -> bool:
            allowed = self._may_take(job, plan, standings)
            refused.extend(() if allowed else (plan,))
            return allowed

        candidates, protected = self._of_others(job, standings), self._too_young(job, "reclaim")
        if candidates and not self._lends(job, candidates, standings):
            plan = self._without_evicting(job, members, judge)
        else:
            plan = self._make_room(job, members, candidates, protected, judge)
            if plan is None and refused:
                plan = self._make_room(job, members, candidates, protected, judge, self._may_lose(job, standings))
        if plan is None:
            # Of a queue with no more than its share nobody leaves, however long they have run.
            losses = Losses(self._denials.reclaimer(job, self._asking.least(job)), self._session.tree, standings)
            self._note_young(job, "reclaim", (each for each in candidates if losses.take(each.queue, {}) is None))
        return plan

    def _lends(self, job: Job, candidates: Iterable[Job], standings: Mapping[str, Standing]) -> bool:
        """Whether anybody may be evicted for the job at all."""
        reclaimer = self._denials.reclaimer(job, self._asking.least(job))
        return any(may_lose(reclaimer, queue, self._session.tree, standings) for queue in {each.queue for each in candidates})

    def _without_evicting(self, job: Job, members: list[QueuedPod], judge: Callable[[Plan], bool]) -> Plan | None:
        """Room that others leave anyhow, or that is there when they move."""
        if not self._denials.quota_allows(job):
            return None
        plan = self._session.when_they_left(job, members)
        if plan is None and self._tries > 0:
            plan = self._moving(job, members)
            self._tries -= plan is None
        return plan if plan is not None and judge(plan) else None

    def _may_lose(self, job: Job, standings: Mapping[str, Standing]) -> Choose:
        """Of these steps those that their queues may lose, each after those before it. Others are worth a try only if they find
        another place; beside them, who may go is spared first."""

        def choose(steps: Iterable[Step]) -> Iterator[Step]:
            losses = Losses(self._denials.reclaimer(job, self._asking.least(job)), self._session.tree, standings)
            gone = set[str]()
            for step in steps:
                if losses.take(step.job.queue, self._use.freed(step.pods, gone)) is None:
                    gone.update(placed.pod.uid for placed in step.pods)
                    yield step

        return choose

    def _may_reclaim(self, job: Job, standings: Mapping[str, Standing]) -> bool:
        return may_reclaim(self._denials.reclaimer(job, self._asking.least(job)), standings) is None

    def _of_others(self, job: Job, standings: Mapping[str, Standing]) -> list[Job]:
        """Jobs of other queues from which it may be worth to take something back."""
        tree, reclaimer = self._session.tree, self._denials.reclaimer(job, self._asking.least(job))
        open_queues = {name for name in tree.queues if tree.is_leaf(name) and is_candidate(reclaimer, name, tree, standings)}
        return [each for each in self._jobs if each.preemptible and each.queue in open_queues]

    def _too_young(self, job: Job, action: str) -> Callable[[Job], bool]:
        """Whether a victim is protected from the job by its min-runtime."""
        now, least = self._session.now, self._min_runtime(job, action)
        return lambda victim: is_protected(now, victim.started, least(victim.queue))

    def _min_runtime(self, job: Job, action: str) -> Callable[[str], float]:
        """How long jobs of a queue are safe from the job."""
        tree, minima = self._session.tree, self._minima(action)
        if action == "preempt":
            least = preempt_min_runtime(job.queue, tree, minima)
            return lambda _: least
        return cache(lambda queue: reclaim_min_runtime(job.queue, queue, tree, minima))

    def _minima(self, action: str) -> dict[str, float]:
        """By queue; what is neither reclaim nor preempt takes from other queues, as reclaim does."""
        return self._jobs.minima("preempt_min_runtime" if action == "preempt" else "reclaim_min_runtime")

    def _note_young(self, job: Job, action: str, candidates: Iterable[Job]) -> None:
        if not self._minima(action):
            return
        least, now, active = self._min_runtime(job, action), self._session.now, self._session.members.is_active
        found = [
            Young(each.started + least(each.queue), each.queue, least(each.queue))
            for each in candidates
            if least(each.queue) and each.started is not None and now < each.started + least(each.queue) and active(each)
        ]
        if found:
            self.young[(job.queue, job.priority, job.preemptible), action] = min(found)

    def next_of_age(self, job: Job) -> Young | None:
        """Who may be made to leave for the job next, of those that were no victims of it, or of one like it, for their age."""
        kind = job.queue, job.priority, job.preemptible
        found = (self.young.get((kind, action)) for action in ("reclaim", "preempt") if self.may_ask(job, action))
        return min((each for each in found if each is not None), default=None)

    def _may_take(self, job: Job, plan: Plan, standings: Mapping[str, Standing]) -> bool:
        steps = list(plan.evicted)
        if not self._settings.consolidating_reclaim:
            steps += [step for step, _ in plan.moved]
        amounts = self._use.freed_in_turn([step.pods for step in steps])
        blocks = list(zip((step.job.queue for step in steps), amounts, strict=True))
        taken = self._asking.taken(job, plan.seats)
        taker = self._denials.reclaimer(job, taken)
        if not self._asking.is_certain(job) and may_reclaim(taker, standings) is not None:
            return False
        allowed = may_take(taker, blocks, self._session.tree, standings) is None
        if allowed and not is_guaranteed(taker, standings):
            allowed = not self.wastes(job, plan, standings)
        return allowed and self._session.turns.comes_first(job, plan.evicted, standings, taken)

    def wastes(self, job: Job, plan: Plan, standings: Mapping[str, Standing]) -> bool:
        """Whether a queue would have less than its share of devices then, of which the job takes none: nobody is the better for
        that. What a job is guaranteed by its quota it gets all the same."""
        taken = self._asking.taken(job, plan.seats)
        others = [name for name in self._session.total if name not in (CPU, MEMORY) and not taken.get(name)]
        left: dict[str, Amounts] = {}
        evicted = plan.evicted if others else ()
        for step, amounts in zip(evicted, self._use.freed_in_turn([step.pods for step in evicted]), strict=True):
            queue = step.job.queue
            left[queue] = plus(left.get(queue, standings[queue].allocated), amounts, -1.0)
        return any(
            held.get(name, 0.0) < min(standings[queue].allocated.get(name, 0.0), standings[queue].fair_share.get(name, 0.0))
            for queue, held in left.items()
            for name in others
        )

    # --------------------------------------------------------------------------------------------------------- preempt

    def preempt(self, job: Job, members: list[QueuedPod]) -> Plan | None:
        self._together.headroom.begin(members)
        candidates = self._below(job)
        if job.queue == BESIDE:
            candidates = [*candidates, *self._outsiders(job, members)]
        plan = self._make_room(job, members, candidates, self._too_young(job, "preempt"), lambda plan: True)
        if plan is None:
            self._note_young(job, "preempt", candidates)
        return plan

    def _below(self, job: Job) -> list[Job]:
        """Jobs of the same queue that may be preempted for the job."""
        if self._denials.beyond(job):
            return []
        kind = job.queue, job.priority
        if kind not in self._lower:
            queue, priority = kind
            self._lower[kind] = [
                each for each in self._jobs if each.queue == queue and each.preemptible and each.priority < priority
            ]
        return self._lower[kind]

    def _outsiders(self, job: Job, members: Sequence[QueuedPod]) -> list[Job]:
        """Pods of no queue and no gang that a gang of no queue may drive out, as a single pod may: each a job by itself."""
        found: list[Job] = []
        if not all(self._together.may_preempt(each) for each in members):
            return found
        for placed in self._parts.nodes.all_placed():
            pod, priority = placed.pod, placed.demand.priority
            if priority < job.priority and self._jobs.of(pod.uid) is None and not pod.terminal:
                each = self._outside.setdefault(pod.uid, Job(_OUTSIDE + pod.uid, BESIDE, pod))
                each.uid, each.priority, each.created, each.pods = pod.uid, priority, created(pod), {pod.uid: pod}
                found.append(each)
        return found

    # --------------------------------------------------------------------------------------------- reclaim and preempt

    def _make_room(
        self,
        job: Job,
        members: list[QueuedPod],
        candidates: list[Job],
        protected: Callable[[Job], bool],
        judge: Callable[[Plan], bool],
        choose: Choose = iter,
    ) -> Plan | None:
        if not candidates or not self._denials.quota_allows(job):
            return None
        if self._hopeless(members, candidates):
            return None
        allowance = self._budgets.now(self._room.leaving)

        def breaks(plan: Plan) -> int:
            return allowance.broken(plan.victims)

        def unbroken(plan: Plan) -> bool:
            return not breaks(plan) and judge(plan)

        wanted = Wanted(members, lambda: self._denials.within(job), unbroken, breaks, self._session.comes_back)
        plan = self._search(job, wanted, candidates, protected, lambda steps: allowance.sparing(choose(steps)))
        if plan is None and self._budgets:
            wanted = wanted._replace(judge=judge)
            plan = self._search(job, wanted, candidates, protected, lambda steps: allowance.least_harm_first(choose(steps)))
        return plan if plan is None or not plan.evicted else self._gentler(job, members, plan)

    def _gentler(self, job: Job, members: list[QueuedPod], plan: Plan) -> Plan:
        """Rather than that anybody is evicted, as many or fewer move: asked again, for others have made room since."""
        if (job.preemptible and not self._session.plans) or self._tries <= 0:
            return plan
        other = self._moving(job, members)
        self._tries -= other is None
        return other if other is not None and len(other.victims) <= len(plan.victims) else plan

    def _search(
        self,
        job: Job,
        wanted: Wanted,
        candidates: Sequence[Job],
        protected: Callable[[Job], bool],
        choose: Choose,
    ) -> Plan | None:
        """Victims in their order, then node by node; ``choose``: which of them, for the sake of budgets."""
        for scope in self._scopes(job, wanted.members, (each for each in candidates if not protected(each))):
            there = wanted._replace(scope=scope)
            plan = self._room.in_order(there, choose(self._victims.in_order(candidates, protected)))
            if plan is None or _shrinks_and_moves(plan):
                # Of a gang with more pods than it needs the one in the way may go, rather than the last and another moves.
                other = self._by_node(there, frozenset(each.key for each in candidates if not protected(each)), choose)
                plan = other if plan is None or (other is not None and len(other.victims) < len(plan.victims)) else plan
            if plan is not None:
                return plan
        return None

    def _by_node(self, wanted: Wanted, allowed: frozenset[str], choose: Choose) -> Plan | None:
        nodes = self._to_free(allowed, wanted.members)
        return self._room.by_node(wanted, nodes, lambda node: list(choose(self._victims.on(node, allowed))))

    def _to_free(self, allowed: frozenset[str], members: Sequence[QueuedPod]) -> list[ToFree]:
        """Nodes that pods may leave for the member that is hardest to place."""
        hardest = max(members, key=self._together.weights.waiting)
        devices = asked_of_classes(self._together.open_claims((hardest,)))
        needs = Needs(hardest.demand.requests, tuple(devices.items()))
        return self._freeing.nodes(allowed, needs, self._room.leaving, self._room.places)

    def _hopeless(self, members: Sequence[QueuedPod], candidates: Sequence[Job]) -> bool:
        allowed = {each.key for each in candidates}
        going = {placed.pod.uid for placed in self._room.leaving}.union(pending.uid for pending in members)

        def goes(uid: str) -> bool:
            return uid in going or ((job := self.job_of(uid)) is not None and job.key in allowed)

        if self._slots.too_few(members, goes):
            return True
        claims = any(pending.pod.spec.resource_claims for pending in members)
        return claims and self._together.lacks_devices(members, self._gone(candidates))

    def _gone(self, candidates: Sequence[Job]) -> list[Placed]:
        """Everybody who may go, or does."""
        placed = (self._parts.nodes.placed(uid) for job in candidates for uid in job.pods)
        return [*(each for each in placed if each is not None), *self._room.leaving]

    # --------------------------------------------------------------------------------------------------- plans together

    def candidates(self, job: Job, action: str) -> list[Job]:
        """Who may have to go for the job, as things stand; nobody where it may not ask for that."""
        standings = self._session.standings.frozen()
        if not self._denials.quota_allows(job):
            return []
        if action == "preempt":
            found = self._below(job)
        else:
            found = self._of_others(job, standings) if self._may_reclaim(job, standings) else []
        protected = self._too_young(job, action)
        return [each for each in found if not protected(each)]

    def alike(self, kinds: Collection[tuple[str, int]]) -> list[Job]:
        """Jobs of these queues and priorities that may be evicted at all."""
        return [each for each in self._jobs if each.preemptible and (each.queue, each.priority) in kinds]

    def steps(self, victims: Sequence[Job], most: int) -> list[Step]:
        """The first of them to go."""
        return list(islice(self._victims.in_order(victims, lambda victim: False), most))

    def allows(self, job: Job, plan: Plan, action: str) -> bool:
        """Whether the action may do this for the job; who is evicted in the plan is one of its candidates."""
        if action != "reclaim" or not (plan.evicted or plan.moved):
            return action == "preempt" or not plan.evicted
        return self._may_take(job, plan, self._session.standings.frozen())

    def allowance(self) -> Allowance:
        return self._budgets.now(self._room.leaving)

    # ------------------------------------------------------------------------------------------------- about plans

    def breaks(self, plan: Plan) -> int:
        """How many of its victims break a disruption budget, if others leave first whom earlier plans drive out."""
        own = {placed.pod.uid for placed in plan.victims}
        others: list[Placed] = [placed for placed in self._room.leaving if placed.pod.uid not in own]
        return self._budgets.now(others).broken(plan.victims)

    def protected_until(self) -> list[float]:
        """When jobs that may not be touched yet for their min-runtime may be, while somebody waits."""
        minima = {*self._jobs.minima("reclaim_min_runtime").values(), *self._jobs.minima("preempt_min_runtime").values()}
        if not minima or not self._session.missing:
            return []
        started = {job.started for job in self._jobs if job.started is not None}
        return [at for start in started for least in minima if (at := start + least) > self._session.now]


def _shrinks_and_moves(plan: Plan) -> bool:
    """Whether a job loses pods, and others of it move into their places."""
    losing = {step.job.key for step in plan.evicted}
    return any(step.job.key in losing for step, _ in plan.moved)
