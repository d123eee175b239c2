"""Who moved for others comes back: the nodes that were found for it are remembered until its pods are made again.

Always true: it is a preference, known to nobody else; what is forgotten costs a place, never a promise.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from dray.scheduling.workloads.jobs import Job
from dray.scheduling.workloads.room import Plan

# How long it is remembered, in seconds: pods have to be gone, and made again.
REMEMBERED: Final = 300.0


class Return(NamedTuple):
    nodes: list[str]
    until: float


class Returns:
    def __init__(self) -> None:
        self._jobs: dict[str, Return] = {}

    def note(self, plan: Plan, now: float) -> None:
        for step, nodes in plan.moved:
            known = self._jobs.get(step.job.key)
            self._jobs[step.job.key] = Return([*(known.nodes if known else ()), *nodes.values()], now + REMEMBERED)

    def expire(self, now: float) -> None:
        self._jobs = {key: each for key, each in self._jobs.items() if now < each.until}

    def __contains__(self, job: Job) -> bool:
        return job.key in self._jobs

    def pop(self, job: Job) -> list[str]:
        return self._jobs.pop(job.key).nodes
