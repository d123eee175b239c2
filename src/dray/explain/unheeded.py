"""What a pod says of queues and gangs without any effect, although it can start.

Nobody is hurt by it, but whoever wrote it should know. What would make a pod start otherwise than was asked for is no matter of
this module: such a pod waits, with a reason.
"""

from __future__ import annotations

from collections.abc import Container, Iterator

from dray.api import queues
from dray.api.core import Pod
from dray.api.kinds import CORE_POD_GROUPS, PRIORITY_CLASSES, Kind
from dray.cluster.world import World
from dray.scheduling.workloads import grouping


def unheeded(world: World, pod: Pod, unknown: Container[Kind]) -> Iterator[str]:
    """``unknown``: kinds that could not be read."""
    annotations, labels = pod.metadata.annotations, pod.metadata.labels
    gang, core = annotations.get(queues.GANG_ANNOTATION), pod.spec.scheduling_group
    grouped = bool(annotations.get(queues.POD_GROUP_ANNOTATION))
    grouped = grouped or (core is not None and bool(core.pod_group_name) and CORE_POD_GROUPS in world.kinds)
    if gang is not None and grouped:
        yield f'the annotation {queues.GANG_ANNOTATION}: "{gang}" counts for nothing: the pod group that the pod names decides'
    elif gang is not None and pod.metadata.controller is None:
        alone = "no controller made the pod, so there are no others of the same owner"
        yield f'the annotation {queues.GANG_ANNOTATION}: "{gang}" counts for nothing: {alone}'
    text = labels.get(queues.TASK_PRIORITY_LABEL, "")
    if text and not grouping.is_task_priority(text):
        yield f'the label {queues.TASK_PRIORITY_LABEL}: "{text}" counts as 0, because it is no whole number'
    named = labels.get(queues.PRIORITY_LABEL, "")
    known = PRIORITY_CLASSES in world.kinds and PRIORITY_CLASSES not in unknown
    if named and known and labels.get(queues.QUEUE_LABEL) and not grouped and world.get(PRIORITY_CLASSES, named) is None:
        yield f"the label {queues.PRIORITY_LABEL} names PriorityClass {named}, which does not exist: its own priority counts"
    if gang is not None and annotations.get(queues.TOPOLOGY_ANNOTATION) and grouping.near(grouping.annotated(pod)) is None:
        levels = f"{queues.REQUIRED_LEVEL_ANNOTATION} or {queues.PREFERRED_LEVEL_ANNOTATION}"
        yield f"the annotation {queues.TOPOLOGY_ANNOTATION} counts for nothing without a level ({levels})"
