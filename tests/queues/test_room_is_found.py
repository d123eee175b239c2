"""Whoever waits could not have had room: every few victims that its queue may ask for are tried, by counting.

What a queue may take back, and whose turn it is then, are the rules of the session itself; that there is room when they left is
counted here, without it. Not asked of those who are told that they would overtake another, and of pods beyond the minimum of a
gang, whom nobody is preempted for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import msgspec
import pytest

from dray.api.queues import GPU_RESOURCE
from dray.queues.order import at_most
from dray.scheduling.waiting.queue import QueuedPod
from dray.scheduling.workloads.jobs import Job
from dray.scheduling.workloads.room import Plan, Step
from dray.simulate.settle import Settling, WorldLine
from tests.queues.random_clusters import cluster

MOST_STEPS = 24
TOGETHER = 3
Amounts = dict[str, int]


class Settled:
    def __init__(self, world: dict[str, Any]) -> None:
        self._settling = Settling(msgspec.convert(world, WorldLine))
        assert self._settling.settle().settled
        workloads = self._settling.scheduler.workloads
        assert workloads.last_session is not None
        self._told = workloads.last_session.turns.overtaking
        self.session = workloads.survey(self._settling.now)
        self._tree = self.session.tree
        self._free: dict[str, Amounts] = {}
        for node in world["nodes"]:
            given = node["allocatable"]
            self._free[node["name"]] = {"cpu": given["cpu_milli"], GPU_RESOURCE: given["gpu"]}
        for group in world["podgroups"]:
            for pod in group["pods"]:
                if node := self._settling.pod(pod["name"])["spec"].get("nodeName"):
                    self._free[node]["cpu"] -= pod["requests"]["cpu_milli"]
                    self._free[node][GPU_RESOURCE] -= pod["requests"]["gpu"]

    def missed(self) -> Iterator[str]:
        """Jobs that wait, and the victims that would have made room."""
        for action in ("reclaim", "preempt"):
            for job in self.session.waiting:
                members = self.session.members.next(job)
                if not members or job.key in self._told or (action == "preempt" and self.session.members.active(job)):
                    continue
                self.session.asking.note(job, members)
                if self.session.taking.may_ask(job, action):
                    found = next(self._enough(job, members, action), None)
                    if found is not None:
                        yield f"{action} {job.key}: {[placed.pod.metadata.name for step in found for placed in step.pods]}"

    def _enough(self, job: Job, members: Sequence[QueuedPod], action: str) -> Iterator[Sequence[Step]]:
        steps = self.session.taking.steps(self.session.taking.candidates(job, action), MOST_STEPS)
        for count in range(1, TOGETHER + 1):
            for chosen in combinations(range(len(steps)), count):
                gone = [steps[index] for index in chosen]
                enough = _in_turn(steps, chosen) and self._fit(members, gone) and self._allowed(job, gone)
                if enough and self.session.taking.allows(job, Plan([], gone, []), action):
                    yield gone

    def _fit(self, members: Sequence[QueuedPod], gone: Sequence[Step]) -> bool:
        """Pods of a job are alike here, so that it is enough to count."""
        asked = dict(members[0].demand.requests)
        freed = [(placed.node, dict(placed.demand.requests)) for step in gone for placed in step.pods]
        places = 0
        for node, free in self._free.items():
            more = [requests for name, requests in freed if name == node]
            room = {name: value + sum(each.get(name, 0) for each in more) for name, value in free.items()}
            places += min(room[name] // asked[name] for name in room if asked.get(name))
        return places >= len(members)

    def _allowed(self, job: Job, gone: Sequence[Step]) -> bool:
        """By the limits of its queues, and by their quotas if it cannot be preempted."""
        asked = self.session.asking.noted(job).get("gpu", 0.0)
        for queue in self._tree.upwards(job.queue) if asked else ():
            entitled, standing = queue.of("gpu"), self.session.standings[queue.name]
            below = [step for step in gone if queue in self._tree.upwards(step.job.queue)]
            freed = sum(dict(placed.demand.requests).get(GPU_RESOURCE, 0) for step in below for placed in step.pods)
            fixed = asked + standing.fixed.get("gpu", 0.0)
            within = at_most(standing.allocated["gpu"] - freed + asked, entitled.limit)
            if not within or not (job.preemptible or at_most(fixed, entitled.quota)):
                return False
        return True


def _in_turn(steps: Sequence[Step], chosen: Sequence[int]) -> bool:
    """Whether each gang loses its surplus before its core."""
    return all(earlier in chosen for index in chosen for earlier in range(index) if steps[earlier].job is steps[index].job)


def test_in_some_clusters() -> None:
    assert [(seed, found) for seed in (*range(60), 1597) for found in Settled(cluster(seed)).missed()] == []


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 2000, 400))
def test_in_many_clusters(first: int) -> None:
    assert [(seed, found) for seed in range(first, first + 400) for found in Settled(cluster(seed)).missed()] == []
