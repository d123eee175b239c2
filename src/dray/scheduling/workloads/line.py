"""The line of jobs: whose turn it is, by queue and then within the queue; for victims the same from the other end.

Always true: a queue is compared by its next job, a queue of queues by the best of those below it, as queues stand and as their
next jobs are when it is asked whose turn it is: what was compared is kept for as long as neither is otherwise, and nobody has to
say so. In its queue, a job stands where it belonged when it came.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Final, NamedTuple

from dray.books.changes import EVERYTHING
from dray.queues.order import Contender, Place, Standing, compare_places, place_of, plus
from dray.queues.tree import Amounts, Tree
from dray.scheduling.workloads.jobs import Job
from dray.scheduling.workloads.ranked import Entry, Key
from dray.scheduling.workloads.use import Standings

_ORDER: Final = itemgetter(0, 1)


class Compared(NamedTuple):
    """A queue as it was compared: by this job, the next of the leaf, when so much of it had changed. ``shares``: what it asks for
    depends on who else has its claims."""

    place: Place
    standing: Standing
    leaf: str
    job: Job
    changes: int
    shares: bool


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
        self._jobs: dict[str, list[Entry]] = {}
        # Queues that do not stand still say which of them moved.
        self._log = standings.log if isinstance(standings, Standings) else None
        self._seen = self._log.position if self._log is not None else 0
        # By queue: what was taken already (of victims), and how it was last compared.
        self._taken: dict[str, Amounts] = {}
        self._places: dict[str, Compared] = {}

    def fill(self, ranked: Mapping[str, Sequence[Entry]]) -> None:
        """With jobs that are in their order already, those that are served first in front."""
        step = 1 if self._last_first else -1
        self._jobs = {queue: list(entries[::step]) for queue, entries in ranked.items()}

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
        self._compare_again(job.queue)

    def drop(self, job: Job) -> None:
        """It waits no more."""
        self._jobs[job.queue] = [entry for entry in self._jobs.get(job.queue, ()) if entry[2] is not job]
        self._compare_again(job.queue)

    def pop(self) -> Job | None:
        self._catch_up()
        leaf = self._best("")
        if leaf is None:
            return None
        _, _, job = self._jobs[leaf].pop()
        self._compare_again(leaf)
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

    # --------------------------------------------------------------------------------------------------------- inside

    def _catch_up(self) -> None:
        """Queues that hold something else, and jobs that stand for theirs and ask for something else, are compared again."""
        if self._log is not None and self._seen != self._log.position:
            moved = self._log.since(self._seen)
            self._seen = self._log.position
            if moved is None or EVERYTHING in moved:
                self._places.clear()
            else:
                # A queue of queues moves with those below it.
                for name in moved:
                    self._places.pop(name, None)
        for known in [each for each in self._places.values() if each.shares or each.changes != each.job.changes]:
            self._compare_again(known.leaf)

    def _compare_again(self, leaf: str) -> None:
        for each in self._tree.upwards(leaf) if leaf in self._tree.queues else ():
            self._places.pop(each.name, None)

    def _best(self, parent: str) -> str | None:
        """The leaf whose turn it is, below this queue."""
        best: Compared | None = None
        for queue in self._tree.children.get(parent, ()):
            place = self._place(queue.name)
            if place is None:
                continue
            if best is None or self._ahead(place, best):
                best = place
        return best.leaf if best is not None else None

    def _ahead(self, one: Compared, other: Compared) -> bool:
        order = compare_places(one[:2], other[:2], self._total)
        return order > 0 if self._last_first else order < 0

    def _place(self, name: str) -> Compared | None:
        known = self._places.get(name)
        if known is not None:
            return known
        leaf = name if self._tree.is_leaf(name) else self._best(name)
        if leaf is None or not self._jobs.get(leaf):
            return None
        standing = self._standings[name]
        job = self._jobs[leaf][-1][2]
        amounts, taken = self._asks(job), self._taken.get(name, {})
        contender = Contender(standing, {}, plus(taken, amounts)) if self._last_first else Contender(standing, amounts, taken)
        place = place_of(contender, self._total)
        found = self._places[name] = Compared(place, standing, leaf, job, job.changes, job.shares_claims)
        return found


class _Ordered:
    __slots__ = ("key", "sign")

    def __init__(self, key: tuple[Key, str], sign: int) -> None:
        self.key, self.sign = key, sign

    def __lt__(self, other: _Ordered) -> bool:
        return self.key < other.key if self.sign > 0 else other.key < self.key
