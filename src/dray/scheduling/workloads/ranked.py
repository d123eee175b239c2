"""The jobs of each queue in their order, kept as they change: those that wait, for whose turn it is, and those that run, for who
has to go; and which jobs there are of some kind.

Always true: what is answered is as if all jobs of these queues were looked at when it is asked; what that costs, after the
first time, grows with how many jobs changed since, which is read from what is noted of them.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from dray.books.changes import ChangeLog
from dray.scheduling.workloads.jobs import Job

Key = tuple[Any, ...]
# Where the job belongs, its own key, and itself: no two are compared further than that.
Entry = tuple[Key, str, Job]


class Ranked:
    """``everybody``: all jobs that it may be about, the same for as long as this is used; ``belongs``: whether one is there, as
    things are; ``key`` sorts those of a queue, the one that is served first in front."""

    def __init__(
        self, log: ChangeLog, everybody: Iterable[Job], belongs: Callable[[Job], bool], key: Callable[[Job], Key]
    ) -> None:
        self._log, self._everybody, self._belongs, self._key = log, everybody, belongs, key
        # All of them by their own key, and those of each queue: found out when it is first asked.
        self._jobs: dict[str, Job] = {}
        self._members: dict[str, list[Job]] = {}
        # By queue that was asked for its jobs that are there, in their order, and where each of them stands by its own key.
        self._ranked: dict[str, list[Entry]] = {}
        self._entries: dict[str, Entry] = {}
        # How far what is noted of jobs was read.
        self._seen = log.position

    def all(self) -> Mapping[str, Sequence[Entry]]:
        """By queue its jobs, to read and not to keep."""
        self._know()
        return self.of(self._members)

    def of(self, queues: Iterable[str]) -> Mapping[str, Sequence[Entry]]:
        """The same for these queues alone."""
        self._know()
        self._catch_up()
        return {queue: self._ranked[queue] if queue in self._ranked else self._rank(queue) for queue in queues}

    def _know(self) -> None:
        if not self._jobs:
            self._jobs = {job.key: job for job in self._everybody}
            for job in self._jobs.values():
                self._members.setdefault(job.queue, []).append(job)

    def _rank(self, queue: str) -> list[Entry]:
        found = [(self._key(job), job.key, job) for job in self._members.get(queue, ()) if self._belongs(job)]
        self._entries |= {entry[1]: entry for entry in found}
        ranked = self._ranked[queue] = sorted(found, key=lambda entry: entry[:2])
        return ranked

    def _catch_up(self) -> None:
        changed, self._seen = self._log.since(self._seen), self._log.position
        if changed is None:
            self._ranked, self._entries = {}, {}
            return
        for job in (self._jobs[key] for key in changed if key in self._jobs):
            if job.queue in self._ranked:
                self._again(job, self._ranked[job.queue])

    def _again(self, job: Job, ranked: list[Entry]) -> None:
        known = self._entries.pop(job.key, None)
        if known is not None:
            del ranked[bisect_left(ranked, known)]
        if self._belongs(job):
            entry = self._entries[job.key] = self._key(job), job.key, job
            insort(ranked, entry)


class Those:
    """Keys of the jobs among these of which something holds; equal sets are the same one."""

    def __init__(self, log: ChangeLog, everybody: Iterable[Job], holds: Callable[[Job], bool]) -> None:
        self._log, self._everybody, self._holds = log, everybody, holds
        self._jobs: dict[str, Job] = {}
        self._keys: frozenset[str] | None = None
        self._seen = log.position

    def keys(self) -> frozenset[str]:
        changed, self._seen = self._log.since(self._seen), self._log.position
        if self._keys is None or changed is None:
            self._jobs = {job.key: job for job in self._everybody}
            self._keys = frozenset(key for key, job in self._jobs.items() if self._holds(job))
        elif moved := {key for key in changed if key in self._jobs and self._holds(self._jobs[key]) is not (key in self._keys)}:
            self._keys ^= moved
        return self._keys
