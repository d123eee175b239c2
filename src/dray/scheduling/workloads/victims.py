"""Who may have to leave for a job, and in which order.

Always true: a gang loses its surplus pod by pod before its core goes as a whole; a pod for which others are leaving already is
no victim, unless nobody has heard of that yet.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from dray.books.nodes import Nodes, Placed
from dray.queues.gangs import Gang, Member, fill, next_victims, surplus
from dray.queues.order import job_key
from dray.scheduling.workloads.asked import Amounts
from dray.scheduling.workloads.jobs import BESIDE, Job, Jobs
from dray.scheduling.workloads.line import Line
from dray.scheduling.workloads.ranked import Ranked
from dray.scheduling.workloads.room import Step
from dray.scheduling.workloads.use import QueueUse

if TYPE_CHECKING:
    from dray.scheduling.workloads.session import Session
    from dray.scheduling.workloads.taking import Taking


class Victims:
    def __init__(self, session: Session, taking: Taking, jobs: Jobs, nodes: Nodes, use: QueueUse) -> None:
        self._session, self._taking, self._jobs, self._nodes, self._use = session, taking, jobs, nodes, use
        self._members = session.members
        self._running = Ranked(jobs.log, jobs, self._members.is_active, self._members.key)

    def in_order(self, candidates: Sequence[Job], protected: Callable[[Job], bool]) -> Iterator[Step]:
        """Jobs of the queue that is served last first, in it the job that is served last; surplus pods one by one."""
        gone: dict[str, set[str]] = {}
        # And who uses claims of theirs, which are free when they go, too.
        all_gone, sharing = set[str](), dict[str, set[str]]()

        def left(job: Job) -> Gang:
            taken = gone.get(job.key)
            return self._members.gang_if(job, dict.fromkeys(taken, "leaving")) if taken else self._members.gang(job)

        def key(job: Job) -> tuple[object, ...]:
            if job.key not in gone:
                return self._members.key(job)
            return job_key(job.priority, fill(left(job)), job.created, job.uid)

        def step(job: Job) -> list[Member]:
            if job.single:
                return [] if protected(job) or job.key in gone else [Member(next(iter(job.pods)))]
            gang = left(job)
            spare = surplus(gang, sharing.get(job.key, ()))[:1]
            return spare if spare or protected(job) else next_victims(gang)

        def loses(job: Job) -> Amounts:
            taken = gone.get(job.key, ())
            placed = (self._nodes.placed(each.name) for each in self._members.active(job) if each.name not in taken)
            return self._use.freed((each for each in placed if each is not None), all_gone)

        line = Line(self._session.tree, self._session.standings.frozen(), self._session.total, key, loses, last_first=True)
        allowed = {job.key for job in candidates}
        ranked = self._running.of({job.queue for job in candidates})
        line.fill({queue: [entry for entry in entries if entry[1] in allowed] for queue, entries in ranked.items()})
        # Pods of no job are on no list.
        outside = (each for each in candidates if each.queue == BESIDE and self._jobs.by_key(each.key) is not each)
        for each in filter(self._members.is_active, outside):
            line.push(each)
        while (job := line.pop()) is not None:
            pods = [self._nodes.placed(each.name) for each in step(job)]
            placed = tuple(each for each in pods if each is not None and self._may_go(job, each))
            if not placed or len(placed) < len(pods):
                continue
            uids = {each.pod.uid for each in placed}
            gone.setdefault(job.key, set()).update(uids)
            found = Step(job, placed, job.root.is_leaf and not job.single and bool(left(job).members("active")))
            line.take(job.queue, self._use.freed(found.pods, all_gone))
            all_gone |= uids
            if not job.single:
                sharing.setdefault(job.key, set()).update(self._use.sharers(found.pods))
            yield found
            if not job.single and left(job).members("active"):
                line.push(job)

    def _may_go(self, job: Job, placed: Placed) -> bool:
        """A pod for which others are leaving already, or have left, keeps its promise; one of a plan of this session may lose
        it."""
        if placed.standing == "shown":
            return True
        had_promise = placed.standing == "promised" or bool(placed.pod.status.nominated_node_name)
        if not had_promise or job.key in self._session.plans:
            return True
        self._session.spared_starting |= placed.standing != "promised"
        return False

    def on(self, node: str, allowed: Collection[str]) -> list[Step]:
        """Jobs with pods on the node, those that are served last first, as far as they are to go for it."""
        info = self._nodes.get(node)
        uids = info.pods if info is not None else ()
        jobs = {job.key: job for uid in uids if (job := self._taking.job_of(uid)) is not None}
        found: list[Step] = []
        for job in sorted((job for key, job in jobs.items() if key in allowed), key=self._members.key, reverse=True):
            found.extend(self._steps(job, node))
        return found

    def _steps(self, job: Job, node: str) -> Iterator[Step]:
        if job.single:
            uid = next(iter(job.pods))
            placed = self._nodes.placed(uid)
            if placed is not None and self._session.tried.state_of(job, uid) == "active" and self._may_go(job, placed):
                yield Step(job, (placed,))
            return
        # Who has to go already for another member is not there any more.
        gang = self._session.tried.gang(job)
        placed_of = {
            each.name: placed for each in gang.members("active") if (placed := self._nodes.placed(each.name)) is not None
        }
        fixed = {uid for uid, placed in placed_of.items() if not self._may_go(job, placed)}
        here = {uid for uid, placed in placed_of.items() if placed.node == node} - fixed
        spare = [each.name for each in surplus(gang, among=here)]
        yield from (Step(job, (placed_of[uid],), job.root.is_leaf) for uid in spare if uid in here)
        core = tuple(placed for uid, placed in placed_of.items() if uid not in spare)
        if not fixed and not here.issubset(spare):
            # Where the core of a gang goes, its surplus goes too, wherever it is.
            yield from (Step(job, (placed_of[uid],), job.root.is_leaf) for uid in spare if uid not in here and uid in placed_of)
            yield Step(job, core)
