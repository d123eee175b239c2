"""The pods of jobs as they stand: which hold something, which wait, and which are to be placed next, together.

Always true: ``Members`` answers as if nothing were tried, also in a trial; what is known of a gang is forgotten when something of
it changes for good. ``Tried`` answers as it is in the trial that is open. A job that is one pod by itself is never asked for its
gang.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from dray.books.nodes import Placed
from dray.queues.gangs import Gang, Member, State, fill, next_attempt
from dray.queues.order import Fill, job_key
from dray.scheduling.actions.preemption import Preemption
from dray.scheduling.parts import Parts
from dray.scheduling.waiting.queue import QueuedPod
from dray.scheduling.workloads.jobs import Job, gang_of


class _Known(NamedTuple):
    """``changes``: of the job, when this was so."""

    changes: int
    states: Mapping[str, State]
    gang: Gang


class Members:
    def __init__(self, parts: Parts, preemption: Preemption) -> None:
        self._books, self._nodes, self._preemption = parts.books, parts.nodes, preemption
        self._known: dict[str, _Known] = {}

    def gang(self, job: Job) -> Gang:
        return self._as_known(job).gang

    def gang_if(self, job: Job, otherwise: Mapping[str, State]) -> Gang:
        """As it would be if these of its pods stood otherwise."""
        return gang_of(job, {**self._as_known(job).states, **otherwise})

    def _as_known(self, job: Job) -> _Known:
        known = self._known.get(job.key)
        if known is None or known.changes != job.changes:
            known = self._known[job.key] = self._look(job)
        return known

    def _look(self, job: Job) -> _Known:
        states = {uid: self.state_of(job, uid) for uid in job.pods}
        return _Known(job.changes, states, gang_of(job, states))

    def state_of(self, job: Job, uid: str) -> State:
        pod = job.pods[uid]
        if pod.terminal:
            return "succeeded" if pod.status.phase == "Succeeded" else "gone"
        placed = self._placed(uid)
        if placed is not None:
            return "leaving" if placed.leaving or self._preemption.preemptor_of(uid) else "active"
        if uid in job.waiting:
            return "gated" if pod.spec.scheduling_gates else "pending"
        return "gone"

    def _placed(self, uid: str) -> Placed | None:
        found: Placed | None = self._books.settled(self._nodes, uid)
        return found

    def key(self, job: Job) -> tuple[object, ...]:
        """Where the job stands in its queue."""
        if not job.single:
            return job_key(job.priority, fill(self.gang(job)), job.created, job.uid)
        below = bool(job.waiting) and any(not pending.nominated for pending in job.waiting.values())
        return job_key(job.priority, Fill.BELOW if below else Fill.AT, job.created, job.uid)

    def is_active(self, job: Job) -> bool:
        """Whether any of its pods holds something, or is promised it."""
        return self.state_of(job, next(iter(job.pods))) == "active" if job.single else bool(self.active(job))

    def active(self, job: Job) -> list[Member]:
        """Its pods that hold something, or are promised it."""
        if job.single:
            uid = next(iter(job.pods))
            return [Member(uid)] if self.state_of(job, uid) == "active" else []
        return self.gang(job).members("active")

    def next(self, job: Job) -> list[QueuedPod]:
        """The pods to place next, together."""
        return [job.waiting[each.name] for each in next_attempt(self.gang(job)) if each.name in job.waiting]


class Tried(Members):
    """``settled`` knows of those that nothing is tried with."""

    def __init__(self, parts: Parts, preemption: Preemption, settled: Members) -> None:
        super().__init__(parts, preemption)
        self._settled = settled

    def _as_known(self, job: Job) -> _Known:
        touched = self._books.trying and any(self._books.tried(self._nodes, uid) for uid in job.pods)
        return self._look(job) if touched else self._settled._as_known(job)

    def _placed(self, uid: str) -> Placed | None:
        return self._nodes.placed(uid)
