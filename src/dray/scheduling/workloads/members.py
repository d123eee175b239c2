"""The pods of jobs as they stand now: which hold something, which wait, and which are to be placed next, together.

Always true: what is known of a gang is forgotten when something of it changes; a job that is one pod by itself is never asked for
its gang.
"""

from __future__ import annotations

from dray.books.nodes import Nodes
from dray.queues.gangs import Gang, Member, State, fill, next_attempt
from dray.queues.order import Fill, job_key
from dray.scheduling.actions.preemption import Preemption
from dray.scheduling.waiting.queue import QueuedPod
from dray.scheduling.workloads.jobs import Job, gang_of


class Members:
    def __init__(self, nodes: Nodes, preemption: Preemption) -> None:
        self._nodes, self._preemption = nodes, preemption
        self.states: dict[str, dict[str, State]] = {}
        self._gangs: dict[str, Gang] = {}

    def state_of(self, job: Job, uid: str) -> State:
        pod = job.pods[uid]
        if pod.terminal:
            return "succeeded" if pod.status.phase == "Succeeded" else "gone"
        placed = self._nodes.placed(uid)
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

    def changed(self, job: Job) -> None:
        self._gangs.pop(job.key, None)

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
