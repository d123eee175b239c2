"""Which pods belong together, as their labels, annotations, owners and groups say; and what of that cannot be gone by.

Always true: what people wrote and nobody can read is told by name, and its pods wait: better not started than started otherwise
than was asked for. Pods of an earlier life of the same owner (a JobSet's last attempt, a Job that was made anew under the same
name) are a gang of their own: they never count for the pods that come after them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Final

from dray.api import queues
from dray.api.core import Pod
from dray.api.kinds import CORE_POD_GROUPS, Kind
from dray.api.meta import OwnerReference
from dray.queues.gangs import Near, Part
from dray.scheduling.placing.refusal import Refusal

# In the key of a job that a group of Kubernetes makes.
CORE: Final = "/group/"
# Behind this, in the key of a job, is what tells apart owners that people call by the same name.
APART: Final = "#"
DEEPEST: Final = 16
# Of a value that nobody can read, so many characters are told.
_MOST_TOLD: Final = 60
_PRIORITY: Final = re.compile(r"[+-]?[0-9]{1,18}")


def starts_with_others(pod: Pod, kinds: Collection[Kind]) -> bool:
    """In a way that Kubernetes or Dray knows of itself. What names a group of KAI where nobody has one was left behind."""
    group = pod.spec.scheduling_group
    if group is None and queues.GANG_ANNOTATION not in pod.metadata.annotations:
        return False
    named = group is not None and bool(group.pod_group_name) and CORE_POD_GROUPS in kinds
    counted = queues.GANG_ANNOTATION in pod.metadata.annotations and pod.metadata.controller is not None
    return (named or counted) and not pod.terminal


def leaf_of(pod: Pod, subgroups: bool) -> str:
    """The part of its gang that the pod is in."""
    return pod.metadata.labels.get(queues.SUBGROUP_LABEL, "") if subgroups else ""


def task_priority(pod: Pod) -> int:
    """Who of a gang is first. What cannot be read is 0: nothing but an order depends on it."""
    text = pod.metadata.labels.get(queues.TASK_PRIORITY_LABEL, "")
    return int(text) if is_task_priority(text) else 0


def is_task_priority(text: str) -> bool:
    return _PRIORITY.fullmatch(text) is not None


def belongs_to(pod: Pod, owner: OwnerReference) -> str:
    """What all pods that start together have in common: their owner, or what has several owners made for it.

    The Jobs of a JobSet are made anew one by one when it starts again, so that pods of two attempts may be there at once; the
    leader of a LeaderWorkerSet's group is made anew, in a rolling update, while workers of the old revision still run."""
    labels = pod.metadata.labels
    if name := labels.get(queues.JOB_SET_LABEL):
        apart = labels.get(queues.JOB_SET_UID_LABEL, ""), labels.get(queues.JOB_SET_ATTEMPT_LABEL, "")
        return f"JobSet/{name}{APART}{'.'.join(apart)}"
    if (name := labels.get(queues.LEADER_WORKER_SET_LABEL)) and (index := labels.get(queues.LEADER_WORKER_GROUP_LABEL)):
        return f"LeaderWorkerSet/{name}-{index}{APART}{labels.get(queues.LEADER_WORKER_REVISION_LABEL, '')}"
    return f"{owner.kind}/{owner.name}{APART}{owner.uid}"


def said(pod: Pod) -> tuple[str | None, ...]:
    """The annotations that say with whom and where it starts."""
    return tuple(pod.metadata.annotations.get(name) for name in queues.OF_GANGS)


def size_of(said: Iterable[str]) -> int:
    """How many pods start together where they say these numbers: the largest, so that nothing starts too early."""
    return max((size for text in said if (size := queues.gang_size(text)) is not None), default=1)


def explicit(preemptibility: str) -> bool | None:
    return {"preemptible": True, "non-preemptible": False}.get(preemptibility.lower())


# -------------------------------------------------------------------------------------------------- what cannot be gone by


def unreadable(pod: Pod, in_queue: bool) -> Refusal | None:
    """What the pod says of its gang and of its queue that nobody can read. Its pod group, where it has one, says it instead."""
    said = pod.metadata.annotations.get(queues.GANG_ANNOTATION)
    if said is not None and queues.gang_size(said) is None:
        return _not_read(pod, "annotation", queues.GANG_ANNOTATION, said, "a whole number from 1 on", '"4"')
    label = pod.metadata.labels.get(queues.PREEMPTIBILITY_LABEL, "") if in_queue else ""
    if label and explicit(label) is None:
        return _not_read(pod, "label", queues.PREEMPTIBILITY_LABEL, label, "preemptible or non-preemptible", "preemptible")
    return None


def _not_read(pod: Pod, sort: str, name: str, said: str, wanted: str, example: str) -> Refusal:
    told = said if len(said) <= _MOST_TOLD else f"{said[:_MOST_TOLD]}…"
    data = {"sort": sort, "name": name, "said": f'{name}: "{told}"', "wanted": wanted, "example": f"{name}: {example}"}
    return Refusal.of("PodSaysUnreadable", f"pod/{pod.key}", **data)


def shared_gpu(pod: Pod) -> Refusal | None:
    """A part of a GPU, asked for in KAI-Scheduler's words."""
    for annotation in queues.SHARING_ANNOTATIONS:
        if (value := pod.metadata.annotations.get(annotation)) is not None:
            return Refusal.of("GpuSharing", f"pod/{pod.key}", annotation=f"{annotation}: {value}")
    return None


# ------------------------------------------------------------------------------------------------------- what groups say


def parts(spec: queues.PodGroupSpec) -> Part:
    """Groups that are nested deeper than anybody needs count as sets of pods, so that hostile ones cost little."""
    if not spec.sub_groups:
        return Part("", max(spec.min_member, 0) or 1, near=near(spec.topology_constraint))
    below: dict[str, list[queues.SubGroup]] = {}
    for part in spec.sub_groups:
        below.setdefault(part.parent or "", []).append(part)

    def made(part: queues.SubGroup, depth: int) -> Part:
        children = tuple(made(child, depth + 1) for child in below.get(part.name, ())) if depth < DEEPEST else ()
        minimum = part.min_sub_group if children else part.min_member or 0
        return Part(part.name, minimum, children, near(part.topology_constraint))

    return Part("", spec.min_sub_group, tuple(made(part, 1) for part in below.get("", ())), near(spec.topology_constraint))


def together(spec: queues.CorePodGroupSpec) -> bool:
    """Where one pod is enough, or any number, there is nothing to start together; they may have to be near to each other."""
    gang, constraints = spec.scheduling_policy.gang, spec.scheduling_constraints
    return (gang is not None and gang.min_count > 1) or (constraints is not None and bool(constraints.topology))


def annotated(pod: Pod) -> queues.TopologyConstraint:
    """What the annotations of a pod say that starts together with others of its owner."""
    return queues.TopologyConstraint(*(text or "" for text in said(pod)[1:]))


def near(constraint: queues.TopologyConstraint | None) -> Near | None:
    """A constraint that names no level asks for nothing."""
    if constraint is None or not (constraint.required_topology_level or constraint.preferred_topology_level):
        return None
    return Near(constraint.topology, constraint.required_topology_level, constraint.preferred_topology_level)
