"""Whose turn it is once victims are gone: with everybody who waits in the line, and the victims again where they belong.

Always true: room that somebody else would be given first is made for nobody. A queue is compared by the job that is first in it,
also where that job fits nowhere; so who waits behind a job that is too large does not evict whom that job could not. Who waits,
where and for what follows from what is noted of jobs: whoever changes them has nothing to say here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from dray.books.changes import ChangeLog
from dray.queues.gangs import fill
from dray.queues.order import Fill, Standing, at_most, job_key, plus
from dray.scheduling.workloads.asked import Amounts
from dray.scheduling.workloads.jobs import Job, Jobs
from dray.scheduling.workloads.line import Line
from dray.scheduling.workloads.ranked import Key, Ranked
from dray.scheduling.workloads.room import Step
from dray.scheduling.workloads.use import QueueUse

if TYPE_CHECKING:
    from dray.scheduling.workloads.session import Session


class Done:
    """Keys of the jobs that get nothing more in a session, noted with what else is noted of jobs."""

    def __init__(self, log: ChangeLog) -> None:
        self._log, self._keys = log, set[str]()

    def __contains__(self, key: str) -> bool:
        return key in self._keys

    def add(self, key: str) -> None:
        self._keys.add(key)
        self._log.note(key)

    def update(self, keys: Iterable[str]) -> None:
        for key in keys:
            self.add(key)

    def discard(self, key: str) -> None:
        self._keys.discard(key)
        self._log.note(key)


class Turns:
    def __init__(self, session: Session, jobs: Jobs, use: QueueUse) -> None:
        self._session, self._use = session, use
        self._waiting = Ranked(jobs.log, session.waiting, self._waits, lambda job: session.members.key(job))
        # By job: what its next step asks for, when so much of it had changed.
        self._asked: dict[str, tuple[int, Amounts]] = {}
        # By job: the one in its queue that is first, and for whose sake it was not its turn.
        self.behind: dict[str, Job] = {}
        # By job: the one before it for which no room could be made, and which it would overtake by evicting others.
        self.overtaking: dict[str, Job] = {}

    def comes_first(self, job: Job, evicted: Sequence[Step], standings: Mapping[str, Standing], taken: Amounts) -> bool:
        """Whether, without those that are evicted, the job's turn comes before theirs: else they would take it back."""
        if not evicted:
            return True
        pods = _by_job(evicted)
        freed = self._freed(pods)
        asks = {job.key: taken, **freed}
        then = self.without(evicted, standings)
        line = self._everybody(then, asks)
        for key, steps in pods.items():
            line.drop(steps[0].job)
            # Who was beyond a limit of its queues does not start again.
            if self._fits_limits(steps[0].job, freed[key], then):
                line.push(steps[0].job, self._key_without(steps))
        first = line.pop()
        while first is not None and first is not job and first.key not in pods:
            first = line.pop()
        if first is not job and (head := line.head(job.queue)) is not None and head is not job:
            self.behind[job.key] = head
        return first is job

    def before(self, job: Job, evicted: Sequence[Step], standings: Mapping[str, Standing]) -> Iterator[tuple[Job, list[Step]]]:
        """Who is served before the job, with those who grow beyond what they are promised, and those who are evicted: they wait
        for what they lose. ``standings``: without it."""
        lost = _by_job(evicted)
        freed = self._freed(lost)
        line = self._everybody(standings, freed)
        for steps in lost.values():
            line.drop(steps[0].job)
            line.push(steps[0].job, self._key_without(steps))
        while (first := line.pop()) is not None and first is not job:
            yield first, lost.get(first.key, [])

    # --------------------------------------------------------------------------------------------------------- inside

    def _everybody(self, standings: Mapping[str, Standing], asks: Mapping[str, Amounts]) -> Line:
        """Who waits, each where it belongs now, and some with what they would ask for."""
        session = self._session
        line = Line(
            session.tree, standings, session.total, session.members.key, lambda each: asks.get(each.key) or self._ask(each)
        )
        line.fill(self._waiting.all())
        return line

    def _waits(self, job: Job) -> bool:
        return job.key not in self._session.done and bool(self._session.members.next(job))

    def _ask(self, job: Job) -> Amounts:
        known = self._asked.get(job.key)
        if known is None or known[0] != job.changes or job.shares_claims:
            known = self._asked[job.key] = job.changes, self._session.asking.next_of(job)
        return known[1]

    def _freed(self, lost: Mapping[str, Sequence[Step]]) -> dict[str, Amounts]:
        """What each would ask for when all of them are gone."""
        pods = {key: [placed for step in steps for placed in step.pods] for key, steps in lost.items()}
        gone = {placed.pod.uid for each in pods.values() for placed in each}
        return {key: self._use.freed(each, gone) for key, each in pods.items()}

    def without(self, evicted: Sequence[Step], standings: Mapping[str, Standing]) -> dict[str, Standing]:
        """What queues have when these are gone."""
        held = {name: standing.allocated for name, standing in standings.items()}
        for step, amounts in zip(evicted, self._use.freed_in_turn([step.pods for step in evicted]), strict=True):
            for queue in self._session.tree.upwards(step.job.queue):
                held[queue.name] = plus(held[queue.name], amounts, -1.0)
        return {
            name: Standing(standing.queue, held[name], standing.fair_share, standing.fixed)
            for name, standing in standings.items()
        }

    def _fits_limits(self, job: Job, asked: Amounts, standings: Mapping[str, Standing]) -> bool:
        queues = [(queue, standings[queue.name].allocated) for queue in self._session.tree.upwards(job.queue)]
        return all(
            at_most(held.get(name, 0.0) + amount, queue.of(name).limit)
            for queue, held in queues
            for name, amount in asked.items()
        )

    def _key_without(self, steps: Sequence[Step]) -> Key:
        """Where the job stands in its queue when these pods are gone."""
        job = steps[0].job
        if job.single:
            return job_key(job.priority, Fill.BELOW, job.created, job.uid)
        gone = {placed.pod.uid for step in steps for placed in step.pods}
        gang = self._session.members.gang_if(job, dict.fromkeys(gone, "leaving"))
        return job_key(job.priority, fill(gang), job.created, job.uid)


def _by_job(evicted: Sequence[Step]) -> dict[str, list[Step]]:
    found: dict[str, list[Step]] = {}
    for step in evicted:
        found.setdefault(step.job.key, []).append(step)
    return found
