"""Plans of one session made anew, all together: a job finds room beside the others after all, or fewer have to go for them.

Always true: nothing of a session's plans is written before its end, so that changing them costs nobody anything. Whoever had a
plan has one afterwards, and each is allowed by the rules of its action, one after the other as they were made; else everything is
as it was. Nobody's disruption budget is broken for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from dray.scheduling.waiting.queue import QueuedPod
from dray.scheduling.workloads.jobs import CPU, MEMORY, Job
from dray.scheduling.workloads.room import Plan, Room, Step, Wanted, in_order
from dray.scheduling.workloads.taking import Taking
from dray.scheduling.workloads.together import Scope, Together

if TYPE_CHECKING:
    from dray.scheduling.workloads.session import Action, Session

# Pods that are seated together, steps of victims that are looked at for them, and how often in a session that is tried in vain;
# of more victims than these it is not asked whether fewer would do.
MOST_MEMBERS: Final = 32
MOST_VICTIMS: Final = 16
MOST_STEPS: Final = 48
MOST_TRIES: Final = 4


class Entry(NamedTuple):
    """A job whose plan is made anew; ``plan``: the one that it had; ``more``: it looks for room besides that."""

    job: Job
    members: list[QueuedPod]
    action: Action
    plan: Plan | None
    more: bool = False


class Joint:
    def __init__(self, session: Session, taking: Taking, room: Room, together: Together) -> None:
        self._session, self._taking, self._room = session, taking, room
        self._weights = together.weights
        self._tries = MOST_TRIES

    def includes(self, job: Job, members: list[QueuedPod], action: Action) -> bool:
        """Whether the job, which finds no room by itself, has a plan now: those who have one already sit elsewhere, or others go
        for them."""
        if not self._session.plans or self._tries <= 0 or self._seats() + len(members) > MOST_MEMBERS:
            return False
        if job.root.constrained or not self._taking.candidates(job, action):
            return False
        known = self._session.plans.get(job.key)
        had = [seat.pending for seat in known.seats] if known is not None else []
        others = (each for each in self._planned() if each.job is not job)
        entries = [*others, Entry(job, [*had, *members], action, known, more=True)]
        found = self._anew(entries, lambda: self._taking.candidates(job, action), lambda plan: True)
        self._tries -= not found
        return found

    def spares(self) -> None:
        """Who has to go for the plans of the session, where fewer do for all of them: of the same queues and priorities, nobody
        instead of others of lower priority, and so that queues have no less of their shares then, and no less runs."""
        if not 0 < self._seats() <= MOST_MEMBERS:
            return
        entries = self._planned()
        before = list(self._session.plans.values())
        kinds = {(step.job.queue, step.job.priority) for plan in before for step in plan.evicted}

        def better(plan: Plan) -> bool:
            return self._spares_more(plan, before) and self._worth([plan], entries) >= self._worth(before, entries)

        if kinds and 1 < sum(len(plan.victims) for plan in before) <= MOST_VICTIMS:
            self._anew(entries, lambda: self._taking.alike(kinds), better)

    def loses(self, job: Job, plan: Plan) -> bool:
        """Whether less runs with the plan than without it, also with those that find room in what is left over."""
        lost = sum(self._weights.placed(step.pods)[0] for step in plan.evicted)
        if lost <= sum(self._weights.waiting(seat.pending)[0] for seat in plan.seats):
            return False
        own = [Entry(job, [], "preempt", plan)]
        return self._worth([plan], own, grow=False)[1] < self._worth([], own, grow=False)[1]

    # ---------------------------------------------------------------------------------------------------------- inside

    def _lost(self, plans: Sequence[Plan]) -> int:
        return self._weights.placed(placed for plan in plans for step in plan.evicted for placed in step.pods)[0]

    def _spares_more(self, plan: Plan, before: Sequence[Plan]) -> bool:
        """Whether fewer go, or as many with less, and no more than before of any priority and above it."""
        old, new = [priority for each in before for priority in _priorities(each)], _priorities(plan)
        less = (len(new), self._lost([plan])) < (len(old), self._lost(before))
        return less and all(_at_least(new, level) <= _at_least(old, level) for level in new)

    def _seats(self) -> int:
        return sum(len(plan.seats) for plan in self._session.plans.values())

    def _planned(self) -> list[Entry]:
        jobs = {job.key: job for job in self._session.waiting}
        return [
            Entry(jobs[key], [seat.pending for seat in plan.seats], self._session.made_by[key], plan)
            for key, plan in self._session.plans.items()
        ]

    def _anew(self, entries: Sequence[Entry], victims: Callable[[], Sequence[Job]], better: Callable[[Plan], bool]) -> bool:
        """Whether the plans of all are replaced by others, in which of these jobs may go, too."""
        for each in entries:
            if each.plan is not None:
                self._session.withdraw(each.job)
            self._session.asking.note(each.job, each.members)
        plan = self._find(entries, self._steps(entries, victims()))
        if plan is not None and better(plan) and self._replaced(entries, plan):
            return True
        for each in entries:
            if each.plan is not None:
                self._session.plan(each.job, each.plan, each.action)
        return False

    def _steps(self, entries: Sequence[Entry], victims: Sequence[Job]) -> list[Step]:
        """In their order those who may go, then those who were to go or to move and would have to be among them. One of a gang
        that was to move may find no place now: then it does not go without the others."""
        own = {each.job.key for each in entries}
        steps = self._taking.steps([job for job in victims if job.key not in own], MOST_STEPS)
        known = {placed.pod.uid for step in steps for placed in step.pods}
        plans = [each.plan for each in entries if each.plan is not None]
        moved = self._taking.steps([step.job for plan in plans for step, _ in plan.moved], MOST_STEPS)
        for step in (*(step for plan in plans for step in plan.evicted), *moved):
            if known.isdisjoint(_uids(step)):
                steps.append(step)
                known |= _uids(step)
        return steps

    def _find(self, entries: Sequence[Entry], steps: Sequence[Step]) -> Plan | None:
        allowance = self._taking.allowance()
        wanted = Wanted(
            [pending for each in entries for pending in each.members],
            lambda: all(self._session.denials.within(each.job) for each in entries),
            lambda plan: True,
            lambda plan: allowance.broken(plan.victims),
            self._session.comes_back,
            scope=self._scope(entries),
        )
        plan = self._room.jointly(wanted, steps)
        return plan if plan is not None and not wanted.breaks(plan) else None

    def _scope(self, entries: Sequence[Entry]) -> Scope:
        """Who has to be near to others of its gang stays in the domain that was found for it."""
        found: dict[str, frozenset[str]] = {}
        for each in entries:
            where = {seat.pending.uid: seat.placement.node for seat in each.plan.seats} if each.plan is not None else {}
            found |= self._session.nearness.around(each.job, where)
        return found

    def _worth(self, plans: Sequence[Plan], entries: Sequence[Entry], *, grow: bool = True) -> tuple[float, ...]:
        """What is had when all of these have come true, with those that find room in what is left over then: how much of what
        they deserve the queues have, and how much more runs."""
        own = [each.job for each in entries]
        evicted = sorted((step for plan in plans for step in plan.evicted), key=lambda step: self._session.members.key(step.job))

        def then(comes_back: Callable[[Step], bool]) -> tuple[list[QueuedPod], list[Step], float]:
            started = self._session.could_start(own, grow=grow)
            back = [step for step in evicted if not step.job.root.constrained and comes_back(step)]
            gone = [step for step in evicted if step not in back or not self._session.comes_back(step.job)]
            return started, gone, self._due()

        started, gone, due = self._room.supposing(plans, then)
        come = list(map(self._weights.waiting, (*started, *(seat.pending for plan in plans for seat in plan.seats))))
        lost = self._weights.placed(placed for step in gone for placed in step.pods)
        return (due, *(sum(each[column] for each in come) - lost[column] for column in (0, 1)))

    def _due(self) -> float:
        """How much of their shares the queues have, of what there is least of: each resource as a part of all there is."""
        session = self._session
        leaves = [standing for name, standing in session.standings.items() if session.tree.is_leaf(name)]
        scarce = [(name, amount) for name, amount in session.total.items() if amount and name not in (CPU, MEMORY)]
        parts = (
            min(each.allocated.get(name, 0.0), each.fair_share.get(name, 0.0)) / amount
            for each in leaves
            for name, amount in scarce
        )
        # Sums of the same parts are the same in whichever order.
        return round(sum(parts), 9)

    def _replaced(self, entries: Sequence[Entry], plan: Plan) -> bool:
        """Each gets its part of the plan, where that is allowed; else none of them."""
        left, done = list(plan.evicted), list[Job]()
        for each in entries:
            part = self._part(each, entries, plan, left)
            action = "reclaim" if part.evicted and each.action == "consolidation" else each.action
            if not self._taking.allows(each.job, part, action):
                break
            self._session.plan(each.job, part, action, plan.victims)
            done.append(each.job)
            left = [step for step in left if step not in part.evicted]
        if len(done) == len(entries) and not left:
            return True
        for job in done:
            self._session.withdraw(job)
        return False

    def _part(self, entry: Entry, entries: Sequence[Entry], plan: Plan, left: Sequence[Step]) -> Plan:
        """What of the plan is one job's: its seats, and those who leave for it."""
        own = {pending.uid for pending in entry.members}
        seats = in_order([seat for seat in plan.seats if seat.pending.uid in own], self._scope([entry]))
        asks = bool(left) and entry.action != "allocate"
        allowed = {job.key for job in self._taking.candidates(entry.job, entry.action)} if asks else set[str]()
        evicted = [step for step in left if step.job.key in allowed and entry in _for_whom(step, entries)]
        moved = [each for each in plan.moved if entry is _moves_for(each[0], entries)]
        places = {uid: plan.places[uid] for _, nodes in moved for uid in nodes}
        return Plan(seats, evicted, moved, places)


def _for_whom(step: Step, entries: Sequence[Entry]) -> Sequence[Entry]:
    """Who was to be evicted for a job goes for it; who goes besides, for the one that looks for more, or else for any that may
    ask for it."""
    known = [each for each in entries if each.plan is not None and any(_same(step, other) for other in each.plan.evicted)]
    return known or [each for each in entries if each.more] or entries


def _moves_for(step: Step, entries: Sequence[Entry]) -> Entry:
    """Who was to go for a job moves for it; else for the last."""
    known = (each for each in entries if each.plan is not None and _uids(step) & {p.pod.uid for p in each.plan.victims})
    return next(known, entries[-1])


def _priorities(plan: Plan) -> list[int]:
    """Of its victims: those of their jobs, which their pods need not have."""
    steps = (*plan.evicted, *(step for step, _ in plan.moved))
    return [step.job.priority for step in steps for _ in step.pods]


def _at_least(priorities: Sequence[int], level: int) -> int:
    return sum(each >= level for each in priorities)


def _same(one: Step, other: Step) -> bool:
    return bool(_uids(one) & _uids(other))


def _uids(step: Step) -> set[str]:
    return {placed.pod.uid for placed in step.pods}
