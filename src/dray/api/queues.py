"""``scheduling.run.ai``: Queue (v2) and PodGroup (v2alpha2), as KAI-Scheduler defines them, and the names that tie pods to them.

Amounts of a queue are in the units of its kind: cpu in milli-cores, memory in 10^6 bytes, GPUs in devices; negative is
unlimited. What else a queue is entitled to (device classes, counters, extended resources) stands in an annotation as JSON of the
same shape, because the kind has no field for it.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from dray.api.meta import Int64, Object, Struct
from dray.api.quantity import NANO, Quantity

GROUP: Final = "scheduling.run.ai"
TOPOLOGY_GROUP: Final = "kai.scheduler"
QUEUE_LABEL: Final = "kai.scheduler/queue"
POD_GROUP_ANNOTATION: Final = "pod-group-name"
SUBGROUP_LABEL: Final = "kai.scheduler/subgroup-name"
TASK_PRIORITY_LABEL: Final = "kai.scheduler/task-priority"
# Of a pod: a part of a GPU, as KAI-Scheduler shares GPUs. Dray does that through claims only.
SHARING_ANNOTATIONS: Final = ("gpu-fraction", "gpu-memory", "gpu-fraction-num-devices")
DEFAULT_QUEUE: Final = "default-queue"
# Of a queue: what it is entitled to beyond cpu, memory and GPUs.
RESOURCES_ANNOTATION: Final = "dray.dev/resources"
# Of a pod: how many pods of its owner start together, where there is no PodGroup.
GANG_ANNOTATION: Final = "dray.dev/gang"
# Labels of pods that several owners make for one: the Jobs of a JobSet, the leader and the workers of a group.
JOB_SET_LABEL: Final = "jobset.sigs.k8s.io/jobset-name"
LEADER_WORKER_SET_LABEL: Final = "leaderworkerset.sigs.k8s.io/name"
LEADER_WORKER_GROUP_LABEL: Final = "leaderworkerset.sigs.k8s.io/group-index"
# Of such a pod, as KAI-Scheduler reads them of its owner: in one domain of which level of which topology it is with the others.
TOPOLOGY_ANNOTATION: Final = "kai.scheduler/topology"
REQUIRED_LEVEL_ANNOTATION: Final = "kai.scheduler/topology-required-placement"
PREFERRED_LEVEL_ANNOTATION: Final = "kai.scheduler/topology-preferred-placement"
# Of a pod group: since when it lacks pods that it needs.
STALE_ANNOTATION: Final = "kai.scheduler/stale-podgroup-timestamp"
LAST_START_ANNOTATION: Final = "kai.scheduler/last-start-timestamp"

MEMORY_UNIT: Final = 1_000_000
_DURATION: Final = re.compile(r"(-?\d+(?:\.\d+)?)(ms|h|m|s)")
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


class QueueResource(Struct):
    quota: float = 0.0
    limit: float = 0.0
    over_quota_weight: float = 0.0


class QueueResources(Struct):
    cpu: QueueResource = msgspec.field(default_factory=QueueResource)
    memory: QueueResource = msgspec.field(default_factory=QueueResource)
    gpu: QueueResource = msgspec.field(default_factory=QueueResource)


class _Further(Struct):
    """As a ``QueueResource``, with quantities: ``40Gi``."""

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
        return {
            name: QueueResource(_amount(each.quota), _amount(each.limit), each.over_quota_weight) for name, each in found.items()
        }
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


def seconds(duration: str | None) -> float | None:
    """``1h30m`` in seconds; None where nothing, or nothing that can be read, is given."""
    found = _DURATION.findall(duration or "")
    if not found or "".join(number + unit for number, unit in found) != duration:
        return None
    return sum(float(number) * _SECONDS[unit] for number, unit in found)
