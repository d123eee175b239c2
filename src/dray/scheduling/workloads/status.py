"""What people see of a queue: what it deserves, holds, asks for, and how many of its pods wait; as KAI-Scheduler's status has it.

``fairShare`` and ``waitingPods`` are Dray's own. Always true: a status is written only when it says something new, and not for
all sessions of a busy moment but for the last; a queue that is not used has nothing, and no numbers of when it was.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from dray.api.kinds import QUEUES
from dray.api.queues import GPU, GPU_RESOURCE, Queue
from dray.cluster.port import Write
from dray.cluster.world import World
from dray.scheduling.workloads.asked import Amounts
from dray.scheduling.workloads.jobs import Jobs, told
from dray.scheduling.workloads.session import Session
from dray.scheduling.workloads.use import QueueUse

# Between two writes of statuses, in seconds.
PAUSE: Final = 5.0


def amounts(found: Amounts) -> dict[str, str]:
    """As a list of resources; what is nothing is left out."""
    named = {GPU_RESOURCE if name == GPU else name: value for name, value in found.items() if value}
    return {name: told(name, value) for name, value in named.items()}


def statuses(session: Session, use: QueueUse, jobs: Jobs) -> dict[str, dict[str, Any]]:
    """Of every queue, by name."""
    tree = session.tree
    requested = {name: dict(use.allocated[name]) for name in tree.queues}
    for job in session.waiting:
        asked = session.asking.of(pending for pending in job.waiting.values() if not pending.nominated)
        for queue in tree.upwards(job.queue):
            for resource, value in asked.items():
                requested[queue.name][resource] = requested[queue.name].get(resource, 0.0) + value
    waiting = waiting_in(jobs)
    unused = {name: {**_EMPTY, "waitingPods": waiting[name]} for name in jobs.wrong}
    return unused | {
        name: {
            "allocated": amounts(use.allocated[name]),
            "allocatedNonPreemptible": amounts(use.fixed[name]),
            "requested": amounts(requested[name]),
            "fairShare": amounts(session.shares[name]),
            "waitingPods": waiting[name],
            "childQueues": sorted(queue.name for queue in tree.children.get(name, ())),
        }
        for name in tree.queues
    }


def waiting_in(jobs: Jobs) -> Counter[str]:
    """How many pods wait in each queue and all below it, also where they wait in vain."""
    tree, found = jobs.tree, Counter[str]()
    for job in jobs.with_waiting():
        names = [queue.name for queue in tree.upwards(job.queue)] if job.queue in tree.queues else [job.queue]
        found.update(dict.fromkeys(names, len(job.waiting)))
    return found


def news(session: Session, use: QueueUse, jobs: Jobs, world: World) -> list[Write]:
    """The statuses that are not what they were."""
    found: list[Write] = []
    for name, wanted in statuses(session, use, jobs).items():
        queue: Queue | None = world.get(QUEUES, name)
        if queue is None or all(queue.status.get(field, _EMPTY[field]) == value for field, value in wanted.items()):
            continue
        # What is not named any more has to be taken away by name.
        for field, value in wanted.items():
            before = queue.status.get(field)
            if isinstance(before, dict) and isinstance(value, dict):
                wanted[field] = {**dict.fromkeys(before), **value}
        found.append(Write("patch", QUEUES, "", name, {"status": wanted}, "status", uid=queue.uid, about=name))
    return found


_EMPTY: Final[dict[str, Any]] = {
    "allocated": {},
    "allocatedNonPreemptible": {},
    "requested": {},
    "fairShare": {},
    "waitingPods": 0,
    "childQueues": [],
}
