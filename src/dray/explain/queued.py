"""What comes of a pod that waits in a queue or in a gang: the scheduler's own session, held for nobody.

Always true: what is told is what a session decides on the cluster as it is, with its reasons; so it says the same as the pod's
condition. Nothing is changed by asking.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Final

import msgspec

from dray.api.core import Pod
from dray.api.gates import Gates
from dray.api.kinds import CORE_POD_GROUPS, POD_GROUPS, PODS, QUEUES
from dray.api.queues import POD_GROUP_ANNOTATION
from dray.books.nodes import Placed
from dray.cluster.world import World
from dray.explain import held
from dray.explain.emptied import never
from dray.explain.evicting import Victim, WouldEvict, devices_of
from dray.explain.failures import FailedBinding
from dray.explain.fix import Fix
from dray.explain.gang_advice import GangAdvisor
from dray.explain.queue_advice import QueueAdvisor, if_in_turn
from dray.explain.queues import of_queues
from dray.explain.supposed import Sessions, Supposed
from dray.queues.gangs import broken, members_of
from dray.queues.order import Standing
from dray.scheduling.config import Config, Profile
from dray.scheduling.placing.refusal import Refusal
from dray.scheduling.workloads.grouping import starts_with_others
from dray.scheduling.workloads.jobs import BESIDE, Job, told
from dray.scheduling.workloads.room import Plan
from dray.scheduling.workloads.session import Session

# Of so many gangs it is found out whether they could ever start; each costs a look at the whole cluster.
_MOST_PROOFS: Final = 32
# And of so many what would help, which costs many sessions.
_MOST_ADVISED: Final = 4


class Held(msgspec.Struct, rename="camel"):
    """What a queue has of one resource, deserves and may have, as people write it."""

    resource: str
    held: str
    fair_share: str
    quota: str
    limit: str


class Seated(msgspec.Struct):
    """A member of a gang, and the node that it would have."""

    pod: str
    node: str


class Queued(msgspec.Struct, rename="camel", omit_defaults=True):
    """Where the pod waits. ``group``: with which others, if any; ``needs``: how many of them start together; ``closest``: where
    the most of them would be that fit together, if not all of these do."""

    queue: str
    group: str = ""
    needs: int = 1
    of: list[Held] = []
    closest: list[Seated] = []

    def told(self) -> str:
        """In a sentence, or nothing where there is neither queue nor gang."""
        place = f" in queue {self.queue}" if self.queue else ""
        together = f", of which {self.needs} start together" if self.needs > 1 else ""
        gang = f" with pod group {self.group}{together}" if self.group else ""
        return f"It waits{place}{gang}." if place or gang else ""


class Outlook(msgspec.Struct):
    """``refusal``: why it gets nothing; ``evicts``: who would leave for it; neither: it starts, on ``node`` if that is known.
    ``others``: those that it starts together with; ``step``: how many pods of its gang are to be placed at once."""

    place: Queued
    node: str = ""
    refusal: Refusal | None = None
    evicts: WouldEvict | None = None
    others: list[Pod] = []
    step: int = 1


class Outlooks:
    """What comes of pods that wait: one session for all that are asked about, held when the first of them is."""

    def __init__(
        self, world: World, now: float, config: Config | None, gates: Gates | None, failures: Sequence[FailedBinding]
    ) -> None:
        self._world, self._now, self._config, self._gates, self._failures = world, now, config, gates, failures
        self._held: dict[tuple[str, ...], held.Held] = {}
        self._never: dict[str, Refusal | None] = {}
        self._advice: dict[str, list[Fix]] = {}
        # By group: how many of its pods name which scheduler.
        self._names: dict[str, Counter[str]] = {}
        # For all pods that start alone, and for what queues say.
        self._sessions = Sessions(world)
        self._any = any(kind in world.kinds and world.all(kind) for kind in (QUEUES, POD_GROUPS, CORE_POD_GROUPS))

    def of(self, pod: Pod) -> Outlook | None:
        """None for a pod that no queue and no gang has to do with."""
        if not self._any and not starts_with_others(pod, self._world.kinds):
            return None
        scheduler, session, before = self._session(pod.spec.scheduler_name)
        job = scheduler.workloads.jobs.of(pod.uid)
        if job is None:
            return None
        if (refusal := scheduler.workloads.jobs.unusable(job.queue)) is not None:
            # Who may not be scheduled yet is told that, whatever its queue is like.
            return Outlook(Queued(job.queue), refusal=refusal if pod.uid in job.waiting else None)
        return _of_session(self._world, pod, session, job, before)

    def notes(self, pod: Pod) -> list[str]:
        """What is to be known of the gang of the pod, whether that runs or waits."""
        return list(filter(None, (self._broken(pod), self._of_several(pod))))

    def _broken(self, pod: Pod) -> str:
        """That a gang runs, at least in part, without what it needs, and what the next session does not mend."""
        if not pod.spec.node_name or (not self._any and not starts_with_others(pod, self._world.kinds)):
            return ""
        scheduler, session, _ = self._session(pod.spec.scheduler_name)
        job = scheduler.workloads.jobs.of(pod.uid)
        if job is None or job.single or job.wrong:
            return ""
        gang = session.members.gang(job)
        part = next((each for each in broken(gang) if pod.uid in {one.name for one in members_of(gang, each, "active")}), None)
        if part is None:
            return ""
        grace = scheduler.config.queues.staleness_grace if job.grace is None else job.grace
        lacking = f"{f'sub-group {part.name} of ' if part.name else ''}pod group {job.name}"
        runs = f"{lacking} runs with {len(members_of(gang, part, 'active'))} of the {part.least} pods that it needs"
        then = "stays so for ever" if grace < 0 else f"is evicted when that has been so for {grace:g} s"
        return f"{runs}: unless the others start, it {then} (stalenessGracePeriod)"

    def _of_several(self, pod: Pod) -> str:
        """That pods of one group name several schedulers: each of them counts only its own."""
        group = _group_of(pod)
        if not group:
            return ""
        if group not in self._names:
            pods = (each for each in self._world.all(PODS).values() if not each.terminal and _group_of(each) == group)
            self._names[group] = Counter(each.spec.scheduler_name for each in pods)
        names = self._names[group]
        if len(names) < 2 or (self._config is not None and names.keys() <= self._config.by_name.keys()):
            return ""
        told = ", ".join(f"{name}: {count}" for name, count in sorted(names.items()))
        return (
            f"pods of its group name different schedulers ({told}): they start together only if one scheduler has all these names"
        )

    def never(self, pod: Pod) -> Refusal | None:
        """Why the gang of the pod would not start on the empty cluster either, where that is proven."""
        scheduler, _, _ = self._session(pod.spec.scheduler_name)
        job = scheduler.workloads.jobs.of(pod.uid)
        if job is None or (job.key not in self._never and len(self._never) >= _MOST_PROOFS):
            return None
        if job.key not in self._never:
            self._never[job.key] = never(self._world, job, now=self._now, config=scheduler.config, gates=self._gates)
        return self._never[job.key]

    def advice(self, pod: Pod) -> list[Fix]:
        """What would help the gang of the pod, tried for all that start together."""
        scheduler, _, _ = self._session(pod.spec.scheduler_name)
        job = scheduler.workloads.jobs.of(pod.uid)
        if job is None or (job.key not in self._advice and len(self._advice) >= _MOST_ADVISED):
            return []
        if job.key not in self._advice:
            advisor = GangAdvisor(self._world, pod, scheduler.config, self._gates, self._now, self._failures)
            self._advice[job.key] = advisor.fixes()
        return self._advice[job.key]

    def in_turn(self, pod: Pod, fixes: Sequence[Fix]) -> tuple[list[Fix], list[str]]:
        """Those of the changes that make a node do for the pod with which its queue starts it, and of others why not."""
        advisor = self._advisor(pod)
        if advisor is None:
            return [if_in_turn(fix) for fix in fixes], []
        return advisor.kept(fixes)

    def of_queue(self, pod: Pod) -> list[Fix] | None:
        """What would help against limits, quotas and shares; None where that is not found out any more."""
        advisor = self._advisor(pod)
        return advisor.fixes() if advisor is not None else None

    def _advisor(self, pod: Pod) -> QueueAdvisor | None:
        # One session tells how it is, and one what comes of a change.
        if self._sessions.left < 2:
            return None
        scheduler, _, _ = self._session(pod.spec.scheduler_name)
        supposed = Supposed(self._world, pod, scheduler.config, self._gates, self._now, self._failures, self._sessions)
        return QueueAdvisor(self._world, pod, supposed)

    def _session(self, name: str) -> held.Held:
        """The scheduler's settings; where they are unknown, the defaults for this pod and all that queues have to do with."""
        shared = self._config or self._shared
        config = shared if self._config or name in shared.by_name else Config(profiles=(Profile(scheduler_name=name),))
        key = tuple(config.by_name)
        if key not in self._held:
            self._held[key] = held.hold(self._world, config, self._gates, self._now, self._failures)
        return self._held[key]

    @cached_property
    def _shared(self) -> Config:
        return of_queues(self._world)


def _group_of(pod: Pod) -> str:
    core = pod.spec.scheduling_group.pod_group_name if pod.spec.scheduling_group is not None else ""
    if named := pod.metadata.annotations.get(POD_GROUP_ANNOTATION):
        return f"{pod.metadata.namespace}/{named}"
    return f"{pod.metadata.namespace}={core}" if core else ""


def _of_session(world: World, pod: Pod, session: Session, job: Job, before: Mapping[str, Standing]) -> Outlook:
    place, plan = _place(session, job, pod, before), session.plans.get(job.key)
    if plan is not None and any(seat.pending.uid == pod.uid for seat in plan.seats):
        node = next(seat.placement.node for seat in plan.seats if seat.pending.uid == pod.uid)
        return Outlook(place, node, evicts=WouldEvict(node, _victims(world, plan), _why(session, job, plan, before)))
    missing = session.told(job, pod) if pod.uid in job.waiting else None
    if missing is not None:
        place.closest = [Seated(seat.pending.pod.key, seat.placement.node) for seat in missing.closest]
    others = [other for uid, other in job.pods.items() if uid != pod.uid] if place.needs > 1 else []
    step = len(session.members.next(job)) if missing is not None else 1
    return Outlook(place, refusal=missing.refusal if missing is not None else None, others=others, step=step)


def _place(session: Session, job: Job, pod: Pod, before: Mapping[str, Standing]) -> Queued:
    asked = session.asking.by_pod(pod.uid)
    standing = before[job.queue]
    of = [
        Held(
            name,
            told(name, standing.allocated.get(name, 0.0)),
            told(name, standing.fair_share.get(name, 0.0)),
            told(name, standing.queue.of(name).quota),
            told(name, standing.queue.of(name).limit),
        )
        for name in sorted(asked)
        if asked[name] and job.queue != BESIDE
    ]
    needs = 1 if job.single else job.root.least
    return Queued("" if job.queue == BESIDE else job.queue, "" if job.single else job.name, needs, of)


# ------------------------------------------------------------------------------------------------------------ a plan in words


def _victims(world: World, plan: Plan) -> list[Victim]:
    evicted = [(step, dict[str, str]()) for step in plan.evicted]
    return [
        _victim(world, placed, step.job.queue, nodes.get(placed.pod.uid, ""))
        for step, nodes in (*evicted, *plan.moved)
        for placed in step.pods
    ]


def _victim(world: World, placed: Placed, queue: str, to: str) -> Victim:
    named = "" if queue == BESIDE else queue
    return Victim(placed.pod.key, placed.node, placed.demand.priority, devices_of(world, placed), named, to)


def _why(session: Session, job: Job, plan: Plan, before: Mapping[str, Standing]) -> str:
    """Why these and no others, as the action that chose them judges."""
    if not plan.victims:
        return "pods that are leaving anyhow leave enough"
    below = f"below priority {job.priority}{'' if job.queue == BESIDE else ' in the same queue'}"
    if any(step.job.queue != job.queue for step in plan.evicted):
        # It has a part of its pods by taking back its share.
        below = f"{_reclaims(session, job, plan, before)}; or {below}"
    reason = {
        "consolidation": "there is enough in all but not in one place, and whoever moves has another place",
        "reclaim": _reclaims(session, job, plan, before),
        "turn": f"they have to leave for another job, and it is the turn of queue {job.queue} before that",
        "preempt": below,
    }[session.made_by[job.key]]
    if session.made_by[job.key] != "consolidation" and plan.moved:
        reason += "; those that move have another place"
    broken = session.taking.breaks(plan)
    budgets = "no disruption budget is broken"
    if broken:
        budgets = f"a disruption budget is broken for {broken} of them, which cannot be avoided"
    whom = "the pod does" if len(plan.seats) == 1 else f"the {len(plan.seats)} pods that start together do"
    return f"{reason}; {budgets}, and {whom} not fit beside any of those that leave"


def _reclaims(session: Session, job: Job, plan: Plan, before: Mapping[str, Standing]) -> str:
    asked = [name for name, value in session.asking.noted(job).items() if value]
    own = before[job.queue]
    # What decides is what is asked for and others have above their share; of several, what is not cpu or memory.
    losing = [before[name] for name in sorted({step.job.queue for step in plan.evicted or [step for step, _ in plan.moved]})]
    over = [name for name in asked if any(each.allocated.get(name, 0.0) > each.fair_share.get(name, 0.0) for each in losing)]
    if not asked:
        return "none of the queues counts what it asks for"
    name = (over or asked)[-1]

    def held(standing: Standing) -> str:
        amounts = standing.allocated.get(name, 0.0), standing.fair_share.get(name, 0.0)
        return f"queue {standing.queue.name} holds {told(name, amounts[0])} {name} and deserves {told(name, amounts[1])}"

    return f"{held(own)}, {', '.join(map(held, losing))}"
