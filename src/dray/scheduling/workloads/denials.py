"""Why a job may not start, or does not: limits and quotas of its queues, and what its pods are told.

Always true: what is told has the numbers that decided. A job that fits nowhere although others hold what it lacks is told why
nothing of that is taken back.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from dray.api.codes import CURABLE
from dray.api.core import Pod
from dray.api.reason import Reason
from dray.api.times import format_time
from dray.queues.gangs import Gang, Part, next_part
from dray.queues.order import at_most
from dray.queues.reclaim import Denial, Reclaimer, may_reclaim, may_start
from dray.queues.tree import Tree
from dray.scheduling.placing.refusal import Refusal
from dray.scheduling.placing.state import NotPlaced
from dray.scheduling.waiting.queue import QueuedPod
from dray.scheduling.workloads.asked import Amounts
from dray.scheduling.workloads.asking import Asking
from dray.scheduling.workloads.grouping import leaf_of
from dray.scheduling.workloads.jobs import BESIDE, CPU, MEMORY, Job, Jobs, not_done, told
from dray.scheduling.workloads.members import Members
from dray.scheduling.workloads.nearness import Nearness
from dray.scheduling.workloads.together import Blocked, Seat
from dray.scheduling.workloads.use import QueueUse, Standings


class Missing(NamedTuple):
    """Why a job is not placed: what its pods are told, and what was refused on nodes where that was it. ``closest``: of a gang
    the members that had places together when one had none."""

    refusal: Refusal
    refused: NotPlaced | None = None
    closest: tuple[Seat, ...] = ()


class Young(NamedTuple):
    """A job of ``queue`` has run for ``seconds``, as long as it is safe, at ``until``."""

    until: float
    queue: str
    seconds: float


def barred(jobs: Jobs, nearness: Nearness, job: Job, starting: Iterable[str]) -> Refusal | None:
    """Why nothing of the job is placed, whatever there is room for; ``starting``: its pods that are to be."""
    if job.missing:
        return Refusal.of("PodGroupMissing", job.group)
    return jobs.unusable(job.queue) or not_done(job, starting) or nearness.wrong(job)


class Denials:
    def __init__(self, tree: Tree, standings: Standings, total: Amounts, use: QueueUse, members: Members, asking: Asking) -> None:
        self._tree, self._standings, self._total = tree, standings, total
        self._use, self._members, self._asking = use, members, asking
        # By job, how often it had changed, and leaf: what its pods there are told of the part that lacks pods.
        self._lacking: dict[tuple[str, int, str], Missing] = {}

    def reclaimer(self, job: Job, request: Amounts) -> Reclaimer:
        return Reclaimer(job.queue, request, job.preemptible)

    # ------------------------------------------------------------------------------------------------ limits and quotas

    def of_start(self, job: Job) -> Denial | None:
        """What stands against the job even if it takes the least that it can."""
        return may_start(self.reclaimer(job, self._asking.least(job)), self._tree, self._standings)

    def quota_allows(self, job: Job) -> bool:
        denied = self.of_start(job)
        return denied is None or denied.rule == "limit"

    def within(self, job: Job) -> bool:
        """Whether the queues of the job keep to their limits, and to their quotas with what cannot be preempted."""
        return self.exceeded(job) is None

    def exceeded(self, job: Job) -> Denial | None:
        names = self._asking.touched(job)
        for queue in self._tree.upwards(job.queue):
            held, fixed = self._use.allocated[queue.name], self._use.fixed[queue.name]
            for name in names:
                own = queue.of(name)
                if not at_most(held.get(name, 0.0), own.limit):
                    return Denial("limit", queue.name, name)
                if not job.preemptible and own.binds and not at_most(fixed.get(name, 0.0), own.quota):
                    return Denial("quota of what cannot be preempted", queue.name, name)
        return None

    def beyond(self, job: Job) -> bool:
        """Whether a queue is above its limit as it is: priority alone is no reason to evict others until it is not. Whoever is
        below its share has one."""
        return any(
            amount > 0 and not at_most(self._use.allocated[queue.name].get(name, 0.0), queue.of(name).limit)
            for queue in self._tree.upwards(job.queue)
            for name, amount in self._asking.noted(job).items()
        )

    # ---------------------------------------------------------------------------------------------------- what is told

    def incomplete(self, job: Job) -> Refusal:
        """Its pods do not suffice for anything; one that is in no part of it may be the one that lacks."""
        gang = self._members.gang(job)
        for pod in job.in_turn():
            if leaf_of(pod, job.subgroups) not in gang.leaves:
                return _in_no_part(job, gang, pod)
        return _incomplete(job, gang, gang.root)

    def of_pod(self, job: Job, pod: Pod, missing: Missing | None) -> Missing | None:
        """What is told to one of the pods of a job: that it is in no part of it, or which part lacks pods."""
        if not job.subgroups or job.wrong:
            return missing
        gang, leaf = self._members.gang(job), leaf_of(pod, job.subgroups)
        if leaf not in gang.leaves:
            return Missing(_in_no_part(job, gang, pod))
        if missing is not None and "GangIncomplete" in missing.refusal.codes:
            known = job.key, job.changes, leaf
            if known not in self._lacking:
                self._lacking[known] = Missing(_incomplete(job, gang, next_part(gang, leaf)))
            return self._lacking[known]
        return missing

    def blocked(self, job: Job, members: Sequence[QueuedPod], found: Blocked) -> Missing:
        refusal = found.refused.refusal
        data: dict[str, str | int] = {"member": found.pending.pod.key, "placed": found.placed, "needed": len(members)}
        if found.level:
            tried: dict[str, str | int] = {"tried": found.tried} if found.tried else {}
            data = {"level": found.level, **tried, **({**data, "domain": found.domain} if found.domain else {})}
            refusal = Refusal(((Reason("TopologyConstraint", job.group, data), 0), *refusal.reasons), refusal.nodes)
        elif len(members) > 1:
            refusal = Refusal(((Reason("GangBlocked", job.group, data), 0), *refusal.reasons), refusal.nodes)
        elif any(not _asks_for_the_same(each, found.pending) for each in job.waiting.values()):
            # They are all told the same, and what nodes lack is what this one needs.
            following: dict[str, str | int] = {"member": found.pending.pod.key, "placed": 0}
            refusal = Refusal(((Reason("GangNext", job.group, following), 0), *refusal.reasons), refusal.nodes)
        return Missing(refusal, found.refused, found.seats)

    def alike(self, job: Job, members: Sequence[QueuedPod], missing: Missing) -> Missing:
        """What another job was told that asks for the same, told of this one."""
        known = missing.refusal
        reasons = tuple((_of(job, members, reason), count) for reason, count in known.reasons)
        return Missing(msgspec.structs.replace(known, reasons=reasons), missing.refused)

    def denied(self, job: Job, denied: Denial) -> Refusal:
        standing, limit = self._standings[denied.queue], denied.rule == "limit"
        entitled = standing.queue.of(denied.resource)
        held = (standing.allocated if limit else standing.fixed).get(denied.resource, 0.0)
        data = self._numbers(job, denied.resource, held) | {
            "limit": told(denied.resource, entitled.limit if limit else entitled.quota)
        }
        return Refusal.of("QueueLimit" if limit else "QueueQuota", f"queue/{denied.queue}", **data)

    def with_share(self, job: Job, missing: Missing, first: Job | None, overtaken: Job | None) -> Missing:
        """No node has room; where others have what is missing, why nothing of it is taken. ``first``: for whose sake it was not
        the job's turn; ``overtaken``: whom it would overtake."""
        if job.queue == BESIDE:
            return missing
        if overtaken is not None and overtaken.waiting:
            return _because(missing, "QueueOvertaking", job.queue, first=overtaken.in_turn()[0].key)
        denied = may_reclaim(self.reclaimer(job, self._asking.next_of(job)), self._standings)
        if denied is None and first is not None and first.waiting:
            return _because(missing, "QueueBehind", job.queue, first=first.in_turn()[0].key)
        if denied is None and _would_help(missing.refusal) and (lent := self._too_little_lent(job)) is not None:
            return _because(missing, "QueueNothingLent", job.queue, **lent)
        if denied is None or denied.rule != "fair share of the reclaimer" or not self._others_hold(job, denied.resource):
            return missing
        standing = self._standings[job.queue]
        data = self._numbers(job, denied.resource, standing.allocated.get(denied.resource, 0.0))
        share = told(denied.resource, standing.fair_share.get(denied.resource, 0.0))
        return _because(missing, "QueueShare", job.queue, **data, share=share)

    def with_age(self, missing: Missing, young: Young | None) -> Missing:
        """Besides, from when on somebody may have to leave for the job."""
        if young is None or not (_would_help(missing.refusal) or "QueueLimit" in missing.refusal.codes):
            return missing
        until = format_time(math.ceil(young.until))
        return _because(missing, "QueueMinRuntime", young.queue, seconds=f"{young.seconds:g}", until=until)

    def _too_little_lent(self, job: Job) -> dict[str, str] | None:
        """Of a resource of which the queue of the job deserves what that asks for: what is free, though not where it is needed,
        and what others have above their shares. Devices before cpu and memory, of which enough may be free beside devices that
        no queue counts."""
        devices = any(_asks_for_devices(pending) for pending in self._members.next(job))
        standing, asked = self._standings[job.queue], self._asking.least(job)
        for name in sorted(asked, key=lambda name: (name in (CPU, MEMORY), name)):
            free = max(0.0, self._total.get(name, 0.0) - self._held_in_all(name))
            if not asked[name] or not standing.queue.of(name).binds or not self._others_hold(job, name):
                continue
            if devices and name in (CPU, MEMORY) and asked[name] <= free:
                continue
            others = [self._standings[each] for each in self._tree.queues if each != job.queue and self._tree.is_leaf(each)]
            above = sum(max(0.0, each.allocated.get(name, 0.0) - each.fair_share.get(name, 0.0)) for each in others)
            lent = f"{told(name, above)} above their shares" if above else "no more than their shares"
            share = told(name, standing.fair_share.get(name, 0.0))
            numbers = self._numbers(job, name, standing.allocated.get(name, 0.0))
            return {**numbers, "share": share, "free": told(name, free), "lent": lent}
        return None

    def _numbers(self, job: Job, name: str, held: float) -> dict[str, str]:
        asked = self._asking.least(job).get(name, 0.0) or self._asking.noted(job).get(name, 0.0)
        return {"resource": name, "held": told(name, held), "asked": told(name, asked)}

    def _others_hold(self, job: Job, resource: str) -> bool:
        return self._held_in_all(resource) > self._standings[job.queue].allocated.get(resource, 0.0)

    def _held_in_all(self, resource: str) -> float:
        return sum(self._standings[queue.name].allocated.get(resource, 0.0) for queue in self._tree.children.get("", ()))


def _in_no_part(job: Job, gang: Gang, pod: Pod) -> Refusal:
    named = leaf_of(pod, job.subgroups)
    said = {"subgroup": named} if named else {}
    return Refusal.of("SubGroupMissing", f"pod/{pod.key}", **said, has=" or ".join(sorted(gang.leaves)))


def _incomplete(job: Job, gang: Gang, part: Part) -> Refusal:
    named = {"part": part.name} if part.name else {}
    pods = max(0, part.least - gang.lacks(part))
    return Refusal.of("GangIncomplete", job.group, **named, pods=pods, needed=part.least)


def _would_help(refusal: Refusal) -> bool:
    """That others leave."""
    return not CURABLE.isdisjoint(refusal.codes)


def _asks_for_devices(pending: QueuedPod) -> bool:
    return bool(pending.pod.spec.resource_claims) or any("/" in name for name, _ in pending.demand.requests)


def _asks_for_the_same(one: QueuedPod, other: QueuedPod) -> bool:
    same = one.demand.requests == other.demand.requests and _claims(one) == _claims(other)
    return one is other or same


def _claims(pending: QueuedPod) -> list[str]:
    return sorted(
        each.resource_claim_template_name or each.resource_claim_name or "" for each in pending.pod.spec.resource_claims
    )


def _of(job: Job, members: Sequence[QueuedPod], reason: Reason) -> Reason:
    if "member" not in reason.data:
        return reason
    first = min(int(reason.data["placed"]), len(members) - 1)
    return Reason(reason.code, job.group, {**reason.data, "member": members[first].pod.key})


def _because(missing: Missing, code: str, queue: str, **data: str) -> Missing:
    """Besides, for the sake of a queue."""
    known = missing.refusal
    reasons = (*known.reasons, (Reason(code, f"queue/{queue}", {**data}), 0))
    return missing._replace(refusal=msgspec.structs.replace(known, reasons=reasons))
