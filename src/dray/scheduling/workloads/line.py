"""The line of jobs: whose turn it is, by queue and then within the queue; for victims the same from the other end.

Always true: a queue is compared by its next job, a queue of queues by the best of those below it; what was compared is looked at
again only for queues whose use, or whose next job, changed.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from typing import Any, Final

from dray.queues.order import Contender, Place, Standing, compare_places, place_of, plus
from dray.queues.tree import Amounts, Tree
from dray.scheduling.workloads.jobs import Job

Key = tuple[Any, ...]
_ORDER: Final = itemgetter(0, 1)


class Line:
    """``key`` sorts the jobs of a queue, the next one first; ``asks`` is what the next step of a job asks of its queue, of a
    victim what it has: a queue that loses something is compared by what it has left then."""

    def __init__(
        self,
        tree: Tree,
        standings: Mapping[str, Standing],
        total: Amounts,
        key: Callable[[Job], Key],
        asks: Callable[[Job], Amounts],
        *,
        last_first: bool = False,
    ) -> None:
        self._tree, self._standings, self._total = tree, standings, total
        self._key, self._asks, self._last_first = key, asks, last_first
        self._jobs: dict[str, list[tuple[Key, str, Job]]] = {}
        # By queue: what was taken already (of victims), and its place and standing as last compared.
        self._taken: dict[str, Amounts] = {}
        self._places: dict[str, tuple[Place, Standing, str]] = {}

    def add(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            self._jobs.setdefault(job.queue, []).append((self._key(job), job.key, job))
        for each in self._jobs.values():
            each.sort(key=_ORDER, reverse=not self._last_first)

    def push(self, job: Job, key: Key | None = None) -> None:
        """Once more, where it belongs now, or with this key would."""
        sign = 1 if self._last_first else -1
        entry = (self._key(job) if key is None else key, job.key, job)
        insort(self._jobs.setdefault(job.queue, []), entry, key=lambda e: _Ordered(e[:2], sign))
        self.changed([job.queue])

    def drop(self, job: Job) -> None:
        """It waits no more."""
        self._jobs[job.queue] = [entry for entry in self._jobs.get(job.queue, ()) if entry[2] is not job]
        self.changed([job.queue])

    def compared_by(self, standings: Mapping[str, Standing], asks: Callable[[Job], Amounts]) -> Line:
        """The same jobs, of queues that stand otherwise and with what is asked for otherwise."""
        other = Line(self._tree, standings, self._total, self._key, asks, last_first=self._last_first)
        other._jobs = {queue: list(jobs) for queue, jobs in self._jobs.items()}
        return other

    def pop(self) -> Job | None:
        leaf = self._best("")
        if leaf is None:
            return None
        _, _, job = self._jobs[leaf].pop()
        self.changed([leaf])
        return job

    def head(self, queue: str) -> Job | None:
        """The job that its queue is compared by."""
        jobs = self._jobs.get(queue)
        return jobs[-1][2] if jobs else None

    def take(self, queue: str, amounts: Amounts) -> None:
        """Victims of the queue that count as gone."""
        for each in self._tree.upwards(queue):
            known = self._taken.get(each.name, {})
            names = {**known, **amounts}
            self._taken[each.name] = {name: known.get(name, 0.0) + amounts.get(name, 0.0) for name in names}
            self._places.pop(each.name, None)

    def changed(self, queues: Iterable[str]) -> None:
        for name in queues:
            if name in self._tree.queues:
                for each in self._tree.upwards(name):
                    self._places.pop(each.name, None)

    # --------------------------------------------------------------------------------------------------------- inside

    def _best(self, parent: str) -> str | None:
        """The leaf whose turn it is, below this queue."""
        best: tuple[Place, Standing, str] | None = None
        for queue in self._tree.children.get(parent, ()):
            place = self._place(queue.name)
            if place is None:
                continue
            if best is None or self._ahead(place, best):
                best = place
        return best[2] if best is not None else None

    def _ahead(self, one: tuple[Place, Standing, str], other: tuple[Place, Standing, str]) -> bool:
        order = compare_places(one[:2], other[:2], self._total)
        return order > 0 if self._last_first else order < 0

    def _place(self, name: str) -> tuple[Place, Standing, str] | None:
        known = self._places.get(name)
        if known is not None:
            return known
        leaf = name if self._tree.is_leaf(name) else self._best(name)
        if leaf is None or not self._jobs.get(leaf):
            return None
        standing = self._standings[name]
        amounts, taken = self._asks(self._jobs[leaf][-1][2]), self._taken.get(name, {})
        contender = Contender(standing, {}, plus(taken, amounts)) if self._last_first else Contender(standing, amounts, taken)
        found = self._places[name] = (place_of(contender, self._total), standing, leaf)
        return found


class _Ordered:
    __slots__ = ("key", "sign")

    def __init__(self, key: tuple[Key, str], sign: int) -> None:
        self.key, self.sign = key, sign

    def __lt__(self, other: _Ordered) -> bool:
        return self.key < other.key if self.sign > 0 else other.key < self.key
