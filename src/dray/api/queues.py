"""``scheduling.run.ai``: Queue (v2) and PodGroup (v2alpha2), as KAI-Scheduler defines them, and the names that tie pods to them.

Amounts of a queue are in the units of its kind: cpu in milli-cores, memory in 10^6 bytes, GPUs in devices; -1 is
unlimited. What else a queue is entitled to (device classes, counters, extended resources) stands in an annotation as JSON of the
same shape, because the kind has no field for it.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from dray.api import durations
from dray.api.meta import Int64, Object, Struct
from dray.api.quantity import NANO, Quantity

GROUP: Final = "scheduling.run.ai"
TOPOLOGY_GROUP: Final = "kai.scheduler"
QUEUE_LABEL: Final = "kai.scheduler/queue"
POD_GROUP_ANNOTATION: Final = "pod-group-name"
SUBGROUP_LABEL: Final = "kai.scheduler/subgroup-name"
TASK_PRIORITY_LABEL: Final = "kai.scheduler/task-priority"
# Of a pod that waits in a queue without a PodGroup: which PriorityClass counts there, and whether it may be preempted.
PRIORITY_LABEL: Final = "priorityClassName"
PREEMPTIBILITY_LABEL: Final = "kai.scheduler/preemptibility"
PREEMPTIBILITIES: Final = ("preemptible", "non-preemptible")
OF_QUEUES: Final = (QUEUE_LABEL, SUBGROUP_LABEL, TASK_PRIORITY_LABEL, PRIORITY_LABEL, PREEMPTIBILITY_LABEL)
# Of a pod: a part of a GPU, as KAI-Scheduler shares GPUs. Dray does that through claims only.
SHARING_ANNOTATIONS: Final = ("gpu-fraction", "gpu-memory", "gpu-fraction-num-devices")
DEFAULT_QUEUE: Final = "default-queue"
# Of a queue: what it is entitled to beyond cpu, memory and GPUs.
RESOURCES_ANNOTATION: Final = "dray.dev/resources"
# Of a pod: how many pods of its owner start together, where there is no PodGroup.
GANG_ANNOTATION: Final = "dray.dev/gang"
# Labels of pods that several owners make for one: the Jobs of a JobSet, the leader and the workers of a group.
JOB_SET_LABEL: Final = "jobset.sigs.k8s.io/jobset-name"
JOB_SET_UID_LABEL: Final = "jobset.sigs.k8s.io/jobset-uid"
JOB_SET_ATTEMPT_LABEL: Final = "jobset.sigs.k8s.io/restart-attempt"
LEADER_WORKER_SET_LABEL: Final = "leaderworkerset.sigs.k8s.io/name"
LEADER_WORKER_GROUP_LABEL: Final = "leaderworkerset.sigs.k8s.io/group-index"
LEADER_WORKER_REVISION_LABEL: Final = "leaderworkerset.sigs.k8s.io/template-revision-hash"
# Of such a pod, as KAI-Scheduler reads them of its owner: in one domain of which level of which topology it is with the others.
TOPOLOGY_ANNOTATION: Final = "kai.scheduler/topology"
REQUIRED_LEVEL_ANNOTATION: Final = "kai.scheduler/topology-required-placement"
PREFERRED_LEVEL_ANNOTATION: Final = "kai.scheduler/topology-preferred-placement"
OF_GANGS: Final = (GANG_ANNOTATION, TOPOLOGY_ANNOTATION, REQUIRED_LEVEL_ANNOTATION, PREFERRED_LEVEL_ANNOTATION)
# Of a pod group: since when it lacks pods that it needs.
STALE_ANNOTATION: Final = "kai.scheduler/stale-podgroup-timestamp"
LAST_START_ANNOTATION: Final = "kai.scheduler/last-start-timestamp"

MEMORY_UNIT: Final = 1_000_000

# The class of NVIDIA's driver, and the resource of its device plugin, count as GPUs in a queue.
GPU: Final = "gpu"
GPU_CLASS: Final = "gpu.nvidia.com"
GPU_RESOURCE: Final = "nvidia.com/gpu"
CLASS_PREFIX: Final = "deviceclass/"
_GPUS: Final = (CLASS_PREFIX + GPU_CLASS, GPU_RESOURCE)


class QueueResource(Struct):
    quota: float = 0.0
    limit: float = 0.0
    over_quota_weight: float = 0.0


class QueueResources(Struct):
    cpu: QueueResource = msgspec.field(default_factory=QueueResource)
    memory: QueueResource = msgspec.field(default_factory=QueueResource)
    gpu: QueueResource = msgspec.field(default_factory=QueueResource)


class _Further(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """As a ``QueueResource``, with quantities: ``40Gi``. What is misspelt is a mistake: a limit is never taken for none."""

    quota: float | str = 0.0
    limit: float | str = -1.0
    over_quota_weight: float = 1.0


# What a queue can be entitled to beyond cpu, memory and GPUs.
_FURTHER: Final = re.compile(r"deviceclass/[^/]+|counter/[^/]+/[^/]+|capacity/[^/]+/.+|(?!(?:counter|capacity)/)[^/]+/[^/]+")


def entitlements(text: str) -> dict[str, QueueResource]:
    """What the annotation of a queue says; raises ``ValueError`` with what is wrong with it."""
    try:
        found = msgspec.json.decode(text, type=dict[str, _Further])
        for name in found:
            if not _FURTHER.fullmatch(name):
                raise ValueError(
                    f"{name!r} is none of deviceclass/NAME, counter/DRIVER/NAME, capacity/DRIVER/NAME, or an extended resource"
                )
            if name in _GPUS:
                raise ValueError(f"{name} counts as gpu, which stands in spec.resources")
        given = {
            name: QueueResource(_amount(each.quota), _amount(each.limit), each.over_quota_weight) for name, each in found.items()
        }
        if problem := next(filter(None, (_no_amounts(name, each) for name, each in given.items())), ""):
            raise ValueError(problem)
        return given
    except ValueError as error:
        raise ValueError(f'annotation {RESOURCES_ANNOTATION}: {error}; write {{"counter/DRIVER/NAME": {{"quota": 2}}}}') from None


def _amount(value: float | str) -> float:
    return Quantity.parse(value).nanos / NANO if isinstance(value, str) else value


class QueueSpec(Struct):
    display_name: str = ""
    parent_queue: str = ""
    priority: Int64 | None = None
    preempt_min_runtime: str | None = None
    reclaim_min_runtime: str | None = None
    resources: QueueResources | None = None


class Queue(Object):
    spec: QueueSpec = msgspec.field(default_factory=QueueSpec)
    status: dict[str, object] = {}


class TopologyLevel(Struct):
    node_label: str = ""


class TopologySpec(Struct):
    """Node labels, the outermost first."""

    levels: tuple[TopologyLevel, ...] = ()


class Topology(Object):
    spec: TopologySpec = msgspec.field(default_factory=TopologySpec)


class TopologyConstraint(Struct):
    """Pods that belong together are to be in one domain of a level of a ``Topology``."""

    topology: str = ""
    required_topology_level: str = ""
    preferred_topology_level: str = ""


class SubGroup(Struct):
    name: str = ""
    topology_constraint: TopologyConstraint | None = None
    parent: str | None = None
    min_member: Int64 | None = None
    min_sub_group: Int64 | None = None


class PodGroupSpec(Struct):
    queue: str = ""
    min_member: Int64 = 0
    min_sub_group: Int64 | None = None
    priority_class_name: str = ""
    preemptibility: str = ""
    sub_groups: tuple[SubGroup, ...] = ()
    staleness_grace_period: str | None = None
    preemption_delay: str | None = None
    topology_constraint: TopologyConstraint | None = None


class PodGroup(Object):
    spec: PodGroupSpec = msgspec.field(default_factory=PodGroupSpec)
    status: dict[str, object] = {}


class GangPolicy(Struct):
    min_count: Int64 = 1


class SchedulingPolicy(Struct):
    gang: GangPolicy | None = None


class KeyConstraint(Struct):
    """All pods on nodes with the same value of this label."""

    key: str = ""


class SchedulingConstraints(Struct):
    topology: tuple[KeyConstraint, ...] = ()


class CorePodGroupSpec(Struct):
    scheduling_policy: SchedulingPolicy = msgspec.field(default_factory=SchedulingPolicy)
    scheduling_constraints: SchedulingConstraints | None = None
    priority: Int64 | None = None


class CorePodGroup(Object):
    """Kubernetes' own: ``scheduling.k8s.io``."""

    spec: CorePodGroupSpec = msgspec.field(default_factory=CorePodGroupSpec)


_SIZE: Final = re.compile(r"\s*0*([1-9][0-9]{0,8})\s*", re.ASCII)


def gang_size(text: str) -> int | None:
    """How many pods start together, as the annotation of one says; None for what is no whole number from 1 on."""
    found = _SIZE.fullmatch(text)
    return int(found[1]) if found else None


def seconds(duration: str | None) -> float | None:
    """``1h30m`` in seconds, None where nothing is given; raises ``ValueError`` for what is no duration."""
    if not duration:
        return None
    return -durations.seconds(duration[1:]) if duration.startswith("-") else durations.seconds(duration)


def queue_problem(queue: Queue) -> str:
    """What of its fields cannot be gone by, or nothing. A limit that cannot be read is never taken for none."""
    times = {"preemptMinRuntime": queue.spec.preempt_min_runtime, "reclaimMinRuntime": queue.spec.reclaim_min_runtime}
    given = queue.spec.resources or QueueResources()
    for name, each in (("cpu", given.cpu), ("memory", given.memory), (GPU, given.gpu)):
        if problem := _no_amounts(name, each):
            return problem
    return _no_durations(times)


def _no_amounts(name: str, given: QueueResource) -> str:
    if given.over_quota_weight < 0:
        return f"overQuotaWeight of {name} is {given.over_quota_weight:g}; it cannot be negative"
    for field, value in (("quota", given.quota), ("limit", given.limit)):
        if value < 0 and value != -1:
            return f"{field} of {name} is {value:g}; it cannot be negative, but for -1, which is unlimited"
    return ""


def group_problem(spec: PodGroupSpec) -> str:
    """What of its fields cannot be gone by, or nothing."""
    times = {"stalenessGracePeriod": spec.staleness_grace_period, "preemptionDelay": spec.preemption_delay}
    for name, least in (
        ("", spec.min_member),
        *((f" of sub-group {part.name}", part.min_member or 0) for part in spec.sub_groups),
    ):
        if least < 0:
            return f"minMember{name} is {least}; it cannot be negative"
    if spec.preemptibility and spec.preemptibility.lower() not in PREEMPTIBILITIES:
        return f"preemptibility is {spec.preemptibility!r}; write {' or '.join(PREEMPTIBILITIES)}"
    return _no_tree(spec.sub_groups) or _no_durations(times)


def _no_durations(times: dict[str, str | None]) -> str:
    for field, text in times.items():
        try:
            seconds(text)
        except ValueError as error:
            return f"{field}: {error}"
    return ""


def _no_tree(groups: tuple[SubGroup, ...]) -> str:
    parents = {group.name: group.parent or "" for group in groups}
    if len(parents) < len(groups):
        names = [group.name for group in groups]
        return f"sub-group {next(name for name in names if names.count(name) > 1)} is given twice"
    for name, parent in parents.items():
        if parent and parent not in parents:
            return f"sub-group {name} names the parent {parent}, which does not exist"
    # Whoever is below the top, one level after the other; who is left goes round in a circle, or is below such.
    reached = {""}
    while level := {name for name, parent in parents.items() if parent in reached} - reached:
        reached |= level
    circling = sorted(parents.keys() - reached)
    return f"sub-group {circling[0]} is below itself" if circling else ""
