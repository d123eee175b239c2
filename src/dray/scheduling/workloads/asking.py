"""What jobs ask of their queues in a session, and what there is for queues in all.

Always true: what one pod asks for is worked out once a session; what a job asks for is as it was when the job was last noted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dray.api.queues import GPU, GPU_RESOURCE
from dray.books.nodes import Nodes
from dray.scheduling.waiting.queue import QueuedPod
from dray.scheduling.workloads.asked import Amounts, Asked, together
from dray.scheduling.workloads.jobs import CPU, MEMORY, NATIVE, Job, Jobs
from dray.scheduling.workloads.members import Members
from dray.scheduling.workloads.together import Seat
from dray.scheduling.workloads.use import QueueUse


class Asking:
    def __init__(self, jobs: Jobs, use: QueueUse, members: Members) -> None:
        self._jobs, self._use, self._members = jobs, use, members
        self._asked: dict[str, Asked] = {}
        self._noted: dict[str, Amounts] = {}
        # The least and the most that jobs may take, where that is not certain.
        self._between: dict[str, tuple[Amounts, Amounts]] = {}

    def capacity(self, nodes: Nodes) -> Amounts:
        """What the nodes that take pods have for queues: without what pods of no queue hold there. Nothing is less than none:
        where more is held than there is, none is left."""
        names = (*NATIVE, *self._jobs.tree.resources)
        total = {name: float(nodes.offered.get(GPU_RESOURCE if name == GPU else name, 0)) for name in names}
        on_closed = (self._use.beside.get(name, {}) for name in sorted(nodes.closed))
        for sign, held in ((-1.0, self._use.beside_all), *((1.0, each) for each in on_closed)):
            for name, value in held.items():
                if name in total:
                    total[name] += sign * value
        for name in total:
            if name not in (CPU, MEMORY):
                total[name] += self._jobs.devices.in_all(name)
        return {name: max(0.0, value) for name, value in total.items()}

    # ------------------------------------------------------------------------------------------------------------ pods

    def of(self, pods: Iterable[QueuedPod]) -> Amounts:
        """What the pods take of their queue in all, beside what runs."""
        asked = [(each.pod, self._asks(each)) for each in pods]
        return together((each for _, each in asked), self._use.paid(asked))

    def by_pod(self, uid: str) -> Amounts:
        """What one pod that waited when the session began asks for."""
        known = self._asked.get(uid)
        return together([known]) if known is not None else {}

    def _asks(self, pending: QueuedPod) -> Asked:
        known = self._asked.get(pending.uid)
        if known is None:
            known = self._asked[pending.uid] = self._jobs.asks(pending.pod, pending.demand)
        return known

    # ------------------------------------------------------------------------------------------------------------ jobs

    def next_of(self, job: Job) -> Amounts:
        """What the next step of the job asks for."""
        return self.step(self._members.next(job))

    def step(self, pods: Iterable[QueuedPod]) -> Amounts:
        """What these pods of a job ask for."""
        return dict.fromkeys(NATIVE, 0.0) | self.of(pods)

    def note(self, job: Job, pods: Sequence[QueuedPod]) -> None:
        """These pods of the job are looked at now."""
        self._noted[job.key] = self.step(pods)
        asked = [self._asks(each) for each in pods]
        if any(each.between for each in asked):
            least, most = (each.least for each in asked), (each.most for each in asked)
            paid = self._use.paid(zip((each.pod for each in pods), asked, strict=True))
            self._between[job.key] = together(least, paid), together(most, paid)
        else:
            self._between.pop(job.key, None)

    def noted(self, job: Job) -> Amounts:
        """What was asked for when the job was last looked at."""
        return self._noted.get(job.key, {})

    def is_certain(self, job: Job) -> bool:
        return job.key not in self._between

    def least(self, job: Job) -> Amounts:
        return self._noted[job.key] if self.is_certain(job) else self._between[job.key][0]

    def touched(self, job: Job) -> list[str]:
        """The resources that the job may take something of, in the order in which denials name them."""
        most = self._noted[job.key] if self.is_certain(job) else self._between[job.key][1]
        return sorted(name for name, amount in most.items() if amount > 0)

    def taken(self, job: Job, seats: Sequence[Seat]) -> Amounts:
        """What the job takes in these places."""
        if self.is_certain(job):
            return self._noted[job.key]
        pods = [seat.placement.placed(seat.pending.pod, seat.pending.demand, "promised") for seat in seats]
        holds = [(placed.pod, self._jobs.holds(placed)) for placed in pods]
        paid = self._use.paid(holds, {placed.pod.uid for placed in pods})
        return dict.fromkeys(NATIVE, 0.0) | together((each for _, each in holds), paid)
