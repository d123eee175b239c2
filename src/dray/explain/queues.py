"""The tree of queues with what each of them may have, deserves, holds and waits for, as the scheduler counts it."""

from __future__ import annotations

from collections import Counter

import msgspec

from dray.api import queues
from dray.api.consumers import claims_of
from dray.api.core import Pod
from dray.api.gates import Gates
from dray.api.kinds import POD_GROUPS, PODS, QUEUES, RESOURCE_CLAIMS
from dray.api.queues import GPU, GPU_RESOURCE
from dray.cluster.world import World
from dray.scheduling.ask import Ask
from dray.scheduling.config import EMBEDDED, Config, Profile
from dray.scheduling.scheduler import Scheduler
from dray.scheduling.shape.claims import reserved_for
from dray.scheduling.workloads.jobs import BESIDE, CPU, MEMORY, Jobs, told
from dray.scheduling.workloads.session import Session
from dray.scheduling.workloads.status import statuses


class QueueRow(msgspec.Struct, rename="camel"):
    """One queue; ``depth`` in the tree. Amounts by resource as people write them; unlimited is ``unlimited``."""

    name: str
    parent: str
    depth: int
    priority: int
    quota: dict[str, str]
    limit: dict[str, str]
    fair_share: dict[str, str]
    allocated: dict[str, str]
    requested: dict[str, str]
    waiting_pods: int


class QueueTree(msgspec.Struct, rename="camel"):
    queues: list[QueueRow]
    total: dict[str, str]
    # Queues that are not used, and why.
    wrong: dict[str, str]
    # Queues that do not exist, and how many pods wait in them all the same.
    missing: dict[str, int] = {}
    # And how many pods run that name them: nobody takes anything back from these.
    left: dict[str, int] = {}
    # Queues that exist and take no pods, as they are not used or have queues below them, and how many pods wait in them.
    wait_in_vain: dict[str, int] = {}


def of_queues(world: World) -> Config:
    """What to take for the configuration where nobody tells it: one scheduler has all pods that say their queue or gang, under
    whatever names they ask for it. Pods of other schedulers take room and are in no queue, not even in the default one."""
    names = sorted({pod.spec.scheduler_name for pod in world.all(PODS).values() if _says_its_queue(pod)})
    return Config(profiles=tuple(Profile(name) for name in names)) if names else EMBEDDED


def _says_its_queue(pod: Pod) -> bool:
    annotations = pod.metadata.annotations
    grouped = queues.POD_GROUP_ANNOTATION in annotations or queues.GANG_ANNOTATION in annotations
    return queues.QUEUE_LABEL in pod.metadata.labels or grouped or pod.spec.scheduling_group is not None


def survey(world: World, now: float, config: Config | None = None, gates: Gates | None = None) -> QueueTree:
    scheduler = Scheduler(world, config or of_queues(world), gates)
    jobs = scheduler.workloads.jobs
    if not jobs.active:
        return QueueTree([], {}, {})  # then the scheduler keeps no account of queues
    session = _survey(scheduler, now)
    status = statuses(session, scheduler.workloads.use, jobs)
    rows: list[QueueRow] = []

    def walk(parent: str, depth: int) -> None:
        for queue in sorted(session.tree.children.get(parent, ()), key=lambda each: each.name):
            if queue.name == BESIDE:
                continue
            found = status[queue.name]
            rows.append(
                QueueRow(
                    queue.name,
                    queue.parent,
                    depth,
                    queue.priority,
                    {name: told(name, each.quota) for name, each in sorted(queue.resources.items())},
                    {name: told(name, each.limit) for name, each in sorted(queue.resources.items())},
                    {name: told(name, value) for name, value in sorted(session.shares[queue.name].items())},
                    {name: told(name, value) for name, value in sorted(scheduler.workloads.use.allocated[queue.name].items())},
                    {GPU if name == GPU_RESOURCE else name: value for name, value in found["requested"].items()},
                    found["waitingPods"],
                )
            )
            walk(queue.name, depth + 1)

    walk("", 0)
    total = {name: told(name, value) for name, value in sorted(session.total.items())}
    missing, left = _missing(world, running=False), _missing(world, running=True)
    return QueueTree(rows, total, dict(jobs.wrong), missing, left, _in_vain(world, jobs))


def _survey(scheduler: Scheduler, now: float) -> Session:
    """What a session of a scheduler that runs begins with: pods have what they are promised, and those wait no more of which the
    claims have their devices."""
    jobs = scheduler.workloads.jobs
    scheduler.workloads.know()
    Ask(scheduler, now).count_promises()
    session = scheduler.workloads.survey(now)
    for job in jobs.with_waiting():
        coming = [pending for pending in job.waiting.values() if pending.nominated]
        with_devices = [pending for pending in coming if claims_of(pending.pod)]
        given = [pending for pending in with_devices if _has_its_devices(scheduler.world, pending.pod)]
        if given and len(given) == len(with_devices):
            for pending in coming:
                jobs.waits_no_more(job, pending.uid)
    return session


def _has_its_devices(world: World, pod: Pod) -> bool:
    claims = (world.get(RESOURCE_CLAIMS, key) for key in claims_of(pod))
    return all(claim is not None and claim.status.allocation is not None and reserved_for(claim, pod.uid) for claim in claims)


def _in_vain(world: World, jobs: Jobs) -> dict[str, int]:
    found = Counter[str]()
    for job in jobs.with_waiting():
        if world.get(QUEUES, job.queue) is not None and jobs.unusable(job.queue) is not None:
            found[job.queue] += len(job.waiting)
    return dict(sorted(found.items()))


def _missing(world: World, *, running: bool) -> dict[str, int]:
    """A name that is mistyped, or of a queue that was deleted, is in no row: who looks at queues is to see it all the same."""
    pods = (pod for pod in world.all(PODS).values() if bool(pod.spec.node_name) == running and not pod.terminal)
    named = Counter(_queue_of(world, pod) for pod in pods)
    return {name: count for name, count in sorted(named.items()) if name and world.get(QUEUES, name) is None}


def _queue_of(world: World, pod: Pod) -> str:
    group = world.get(POD_GROUPS, f"{pod.metadata.namespace}/{pod.metadata.annotations.get(queues.POD_GROUP_ANNOTATION, '')}")
    return (group.spec.queue if group is not None else "") or pod.metadata.labels.get(queues.QUEUE_LABEL, "")


def resources(tree: QueueTree) -> list[str]:
    """Those worth a column: GPUs, what queues say besides, then cpu and memory."""
    names = {name for row in tree.queues for name in (*row.quota, *row.allocated)}
    others = sorted(names - {GPU, CPU, MEMORY})
    return [name for name in (GPU, *others, CPU, MEMORY) if name in names]
