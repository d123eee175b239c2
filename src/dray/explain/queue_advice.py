"""What would help a pod that its queue stands against: changes of queues, and of what makes a node do, each tried in a session.

What makes a node do helps a pod of a queue only where it is the pod's turn then. Always true: of a change that was tried and
does not make the pod start nothing is advised, or it is told what stands against it then.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from dray.api.core import Pod
from dray.api.kinds import POD_GROUPS, PODS, QUEUES
from dray.api.queues import (
    GPU,
    MEMORY_UNIT,
    POD_GROUP_ANNOTATION,
    PREEMPTIBILITIES,
    PREEMPTIBILITY_LABEL,
    RESOURCES_ANNOTATION,
    PodGroup,
    Queue,
    QueueResources,
)
from dray.api.reason import Reason
from dray.api.words import message
from dray.cluster.world import World
from dray.explain.fix import Fix, label
from dray.explain.owners import owner_of
from dray.explain.supposed import AGAIN, Changed, Supposed, Then, with_pods
from dray.scheduling.placing.refusal import Refusal
from dray.scheduling.workloads.jobs import Job, told

Json = dict[str, Any]

# What is raised where a queue stands against a pod because of it.
RAISED: Final = {"QueueLimit": "limit", "QueueQuota": "quota", "QueueShare": "quota"}
# Ranks of what only time brings, and of a change that takes more besides; whatever else was tried is before them.
_LATER: Final = 7
_NOT_ENOUGH: Final = 8
_UNITS: Final = {"cpu": 1.0, "memory": float(MEMORY_UNIT), GPU: 1.0}
_MOST_RAISED: Final = 6
_MOST_NAMED: Final = 3
_MOST_NOTED: Final = 2


class Entry(NamedTuple):
    """Where an amount of a queue stands; ``field``: ``quota`` or ``limit``."""

    queue: str
    resource: str
    field: str


def if_in_turn(fix: Fix) -> Fix:
    """Told of a change with which a node would do, where it was not found out whose turn it is then."""
    return msgspec.structs.replace(fix, when=f"{fix.when}, if it is its turn then") if fix.nodes else fix


def in_order(of_queue: Sequence[Fix], others: Sequence[Fix]) -> list[Fix]:
    """What would do first, of the queue before of the nodes; then what has to be waited for, and last what would not do alone."""
    return sorted([*of_queue, *others], key=lambda fix: max(fix.rank, _LATER - 1))


class QueueAdvisor:
    def __init__(self, world: World, pod: Pod, supposed: Supposed) -> None:
        self._world, self._pod, self._supposed = world, pod, supposed
        self._now = supposed.then({})
        job = self._now.job
        self._members = [each.pod for each in self._now.session.members.next(job)] if job is not None else []

    # ------------------------------------------------------------------------------------------------ what nodes lack

    def kept(self, fixes: Sequence[Fix]) -> tuple[list[Fix], list[str]]:
        """Those of the changes with which a node would do that make the pod start; and of some others why not."""
        kept: list[Fix] = []
        notes: list[str] = []
        for fix in fixes:
            if not fix.changed:
                kept.append(fix)
            elif self._supposed.sessions.left <= 0:
                kept.append(if_in_turn(fix))
            elif (instead := self._instead(self._supposed.then(fix.changed), fix.changed)) is None:
                kept.append(fix)
            elif len(notes) < _MOST_NOTED:
                notes.append(f"it would not do to {fix.text}: {instead}")
        return kept, notes

    def _instead(self, then: Then, changed: Changed) -> str | None:
        """What comes of it instead of the pod's start. Whoever starts of the same owner in its place is as good as it."""
        if then.starts([self._pod]):
            return None
        waiting = {pod.uid for pod in then.waiting}
        started = [pod for pod in self._now.waiting if pod.uid not in waiting]
        owner = self._pod.metadata.controller
        if owner is not None and any(pod.metadata.controller == owner for pod in started):
            return None
        if started:
            named = ", ".join(sorted(pod.key for pod in started)[:_MOST_NAMED])
            more = f" and {len(started) - _MOST_NAMED} more" if len(started) > _MOST_NAMED else ""
            return f"it is the turn of {named}{more} before"
        again = [pod for pod in changed.get(PODS, {}).values() if pod is not None and pod.uid.startswith(AGAIN)]
        if back := sorted({owner_of(self._world, pod) for pod in again if pod.uid not in waiting}):
            return f"it is the turn of what {' and '.join(back)} makes again"
        return _said(_refusal(then)) or "it does not start then either"

    # ---------------------------------------------------------------------------------------------- limits and quotas

    def fixes(self) -> list[Fix]:
        """For a pod that a limit, a quota or the share of a queue keeps waiting."""
        reason, job = _of_queue(self._now), self._now.job
        if reason is None or job is None:
            return []
        found = [*self._raised(), *(self._preemptible(job) if reason.code == "QueueQuota" else ())]
        entry = _entry(reason)
        amounts = self._amounts(self._now, entry)
        if reason.code == "QueueLimit" and amounts.bound < amounts.asked:
            if amounts.bound > amounts.held:
                most = told(entry.resource, amounts.bound - amounts.held)
                found.append(Fix(f"ask for at most {most} {entry.resource}", tried=False, rank=3))
        elif amounts.held or reason.code == "QueueShare":
            whose = "other queues" if reason.code == "QueueShare" else f"queue {entry.queue}"
            found.append(Fix(f"wait until pods of {whose} end", rank=_LATER))
        return found

    def _raised(self) -> list[Fix]:
        """As much more of each queue as it takes, beginning with what stands against the pod now."""
        entries: dict[Entry, float] = {}
        then = self._now
        for _ in range(_MOST_RAISED):
            reason = _of_queue(then)
            if reason is None or self._supposed.sessions.left <= 0 or (entries and self._helps(then)):
                break
            entry = _entry(reason)
            more = {entry: self._amounts(then, entry).then}
            if more[entry] <= entries.get(entry, -1.0):
                more = self._above(then, entry, entries) if reason.code == "QueueShare" else {}
            if not more:
                break
            entries |= more
            then = self._supposed.then(self._with(entries))
        if not entries:
            return []
        order = ", ".join(
            f"raise the {entry.field} of {entry.resource} of queue {entry.queue} to {told(entry.resource, amount)}"
            for entry, amount in entries.items()
        )
        command = "\n".join(_patching("queue", name, patch) for name, patch in self._patches(entries).items())
        return [Fix(f"{order} {self._then(then)}", command, rank=2 if self._helps(then) else _NOT_ENOUGH)]

    def _helps(self, then: Then) -> bool:
        """Whether all that are to start together do, or room is made for them; of pods that start alone, one of the owner's."""
        planned = then.job is not None and then.job.key in then.session.plans
        return planned or then.starts(self._members) or (len(self._members) == 1 and self._instead(then, {}) is None)

    def _then(self, then: Then) -> str:
        who = f"all {len(self._members)} pods start together" if len(self._members) > 1 else "it starts"
        if not self._helps(then):
            return f"(that alone would not do: {self._besides(then) or 'it waits then, too'})"
        plan = then.session.plans.get(then.job.key) if then.job is not None else None
        leaving = sorted(placed.pod.key for step in plan.evicted for placed in step.pods) if plan is not None else []
        more = f" and {len(leaving) - _MOST_NAMED} more" if len(leaving) > _MOST_NAMED else ""
        when = f" when {', '.join(leaving[:_MOST_NAMED])}{more} {'have' if len(leaving) > 1 else 'has'} left" if leaving else ""
        return f"(then {who}{when})"

    def _besides(self, then: Then) -> str:
        """What stands against it then. What did before and does still is told already, where there is something else."""
        refusal, before = _refusal(then), _refusal(self._now)
        if refusal is None or before is None:
            return _said(refusal)
        known = {message([counted], before.nodes) for counted in before.reasons}
        new = tuple(counted for counted in refusal.reasons if message([counted], refusal.nodes) not in known)
        return _said(msgspec.structs.replace(refusal, reasons=new) if new else refusal)

    def _preemptible(self, job: Job) -> list[Fix]:
        """What may be preempted is not held to the quota."""
        wanted = PREEMPTIBILITIES[0]
        name = self._pod.metadata.annotations.get(POD_GROUP_ANNOTATION)
        if name and POD_GROUPS in self._world.kinds:
            key = f"{self._pod.metadata.namespace}/{name}"
            group: PodGroup | None = self._world.get(POD_GROUPS, key)
            if group is None:
                return []
            spec = msgspec.structs.replace(group.spec, preemptibility=wanted)
            changed: Changed = {POD_GROUPS: {key: msgspec.structs.replace(group, spec=spec)}}
            command = _patching("podgroup", name, {"spec": {"preemptibility": wanted}}, self._pod.metadata.namespace)
            text = f"let podgroup {key} be preempted"
        else:
            changed = with_pods(_labelled(pod, PREEMPTIBILITY_LABEL, wanted) for pod in job.pods.values())
            command = "\n".join(label(pod, f"{PREEMPTIBILITY_LABEL}={wanted}") for pod in self._members)
            text = "let it be preempted, by the label of its pods"
        if self._supposed.sessions.left <= 0:
            return []
        then = self._supposed.then(changed)
        return [Fix(f"{text} {self._then(then)}", command, rank=3)] if self._helps(then) else []

    # -------------------------------------------------------------------------------------------------------- amounts

    def _amounts(self, then: Then, entry: Entry) -> _Amounts:
        """What a queue holds of what stands against the pod, and what is asked for."""
        assert then.job is not None
        standing = then.session.standings[entry.queue]
        fixed = not then.job.preemptible and entry.field == "quota" and _code(then) == "QueueQuota"
        held = (standing.fixed if fixed else standing.allocated).get(entry.resource, 0.0)
        asking = then.session.asking
        asked = asking.least(then.job).get(entry.resource, 0.0) or asking.noted(then.job).get(entry.resource, 0.0)
        return _Amounts(held, asked, getattr(standing.queue.of(entry.resource), entry.field))

    def _above(self, then: Then, entry: Entry, known: Mapping[Entry, float]) -> dict[Entry, float]:
        """The queues above one whose share does not follow its quota: theirs is less than what they would hold then."""
        found: dict[Entry, float] = {}
        queue: Queue | None = self._world.get(QUEUES, entry.queue)
        seen = {entry.queue}
        while queue is not None and queue.spec.parent_queue and queue.spec.parent_queue not in seen:
            name = queue.spec.parent_queue
            seen.add(name)
            above = Entry(name, entry.resource, entry.field)
            amounts = self._amounts(then, above)
            if above not in known and 0 <= amounts.bound < amounts.then:
                found[above] = amounts.then
            queue = self._world.get(QUEUES, name)
        return found

    def _with(self, entries: Mapping[Entry, float]) -> Changed:
        queues: dict[str, Queue] = {}
        for entry, amount in entries.items():
            queue: Queue = queues.get(entry.queue) or self._world.all(QUEUES)[entry.queue]
            queues[entry.queue] = _with_amount(queue, entry, amount)
        return {QUEUES: queues}

    def _patches(self, entries: Mapping[Entry, float]) -> dict[str, Json]:
        changed, patches = self._with(entries)[QUEUES], dict[str, Json]()
        for entry, amount in entries.items():
            patch = patches.setdefault(entry.queue, {})
            if entry.resource in _UNITS:
                resources = patch.setdefault("spec", {}).setdefault("resources", {})
                resources.setdefault(entry.resource, {})[entry.field] = _written(entry.resource, amount)
            else:
                text = changed[entry.queue].metadata.annotations[RESOURCES_ANNOTATION]
                patch["metadata"] = {"annotations": {RESOURCES_ANNOTATION: text}}
        return patches


class _Amounts(NamedTuple):
    """``bound``: the quota or the limit."""

    held: float
    asked: float
    bound: float

    @property
    def then(self) -> float:
        return self.held + self.asked


def _patching(kind: str, name: str, patch: Json, namespace: str = "") -> str:
    where = f" -n {namespace}" if namespace else ""
    body = shlex.quote(msgspec.json.encode(patch).decode())
    return f"kubectl patch {kind}s.scheduling.run.ai {name}{where} --type merge -p {body}"


def _refusal(then: Then) -> Refusal | None:
    missing = then.session.missing.get(then.job.key) if then.job is not None else None
    return missing.refusal if missing is not None else None


def _said(refusal: Refusal | None) -> str:
    return message(refusal.reasons, refusal.nodes).rstrip(".") if refusal is not None else ""


def _of_queue(then: Then) -> Reason | None:
    refusal = _refusal(then)
    return next((reason for reason, _ in refusal.reasons if reason.code in RAISED), None) if refusal is not None else None


def _code(then: Then) -> str:
    reason = _of_queue(then)
    return reason.code if reason is not None else ""


def _entry(reason: Reason) -> Entry:
    return Entry(reason.object.partition("/")[2], str(reason.data.get("resource")), RAISED[reason.code])


def _written(resource: str, amount: float) -> int:
    """In the unit of the field; a part of one is one more."""
    return math.ceil(amount / _UNITS.get(resource, 1.0))


def _with_amount(queue: Queue, entry: Entry, amount: float) -> Queue:
    written = _written(entry.resource, amount)
    if entry.resource not in _UNITS:
        annotations = queue.metadata.annotations
        further: dict[str, Json] = msgspec.json.decode(annotations.get(RESOURCES_ANNOTATION) or "{}")
        further[entry.resource] = {**further.get(entry.resource, {}), entry.field: written}
        text = msgspec.json.encode(further).decode()
        metadata = msgspec.structs.replace(queue.metadata, annotations={**annotations, RESOURCES_ANNOTATION: text})
        return msgspec.structs.replace(queue, metadata=metadata)
    resources = queue.spec.resources or QueueResources()
    own = msgspec.structs.replace(getattr(resources, entry.resource), **{entry.field: float(written)})
    resources = msgspec.structs.replace(resources, **{entry.resource: own})
    return msgspec.structs.replace(queue, spec=msgspec.structs.replace(queue.spec, resources=resources))


def _labelled(pod: Pod, name: str, value: str) -> Pod:
    metadata = msgspec.structs.replace(pod.metadata, labels={**pod.metadata.labels, name: value})
    return msgspec.structs.replace(pod, metadata=metadata)
