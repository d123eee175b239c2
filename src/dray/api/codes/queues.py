"""Why a pod of a queue or of a gang waits."""

from __future__ import annotations

from typing import Final

from dray.api.codes.code import DEVICES, FREE, ITSELF, NODE, Code

TABLE: Final[dict[str, Code]] = {
    "QueueMissing": Code(
        plugins=("Scheduler",),
        meaning="the queue that the pod names does not exist, or its parent does not",
        wakes=(ITSELF,),
        subject="queue",
        says="<does> not exist[ or cannot be used: {error}]",
        cure="create the queue, or name another in the label kai.scheduler/queue",
    ),
    "QueueTurn": Code(
        plugins=("Scheduler",),
        meaning="the pod's queue has not had its turn yet",
        wakes=(ITSELF,),
        subject="queue",
        says="<has> not had its turn yet",
    ),
    "QueueLimit": Code(
        plugins=("Scheduler",),
        meaning="with the pod, a queue would exceed its limit",
        wakes=(FREE, ITSELF),
        subject="queue",
        says="would exceed its limit[ of {resource}][: it holds {held} and may have {limit}, {asked} more are asked for]",
        cure="raise the queue's limit[ of {resource}], or wait until its pods end",
    ),
    "QueueQuota": Code(
        plugins=("Scheduler",),
        meaning="with the pod, what cannot be preempted would exceed a queue's quota",
        wakes=(FREE, ITSELF),
        subject="queue",
        says="would exceed its quota[ of {resource}] with pods that cannot be preempted[: {held} and {asked} more, of {limit}]",
        cure="raise the queue's quota[ of {resource}], or make the pod group preemptible",
    ),
    "QueueShare": Code(
        plugins=("Scheduler",),
        meaning="with the pod, its queue would hold more than its fair share, so it takes nothing from other queues",
        wakes=(FREE, ITSELF),
        subject="queue",
        says="would exceed its fair share[ of {resource}: it holds {held} and deserves {share}, {asked} more are asked for]",
        cure="raise the queue's quota or weight[ of {resource}], or wait until pods end",
    ),
    "QueueBehind": Code(
        plugins=("Scheduler",),
        meaning="another job is first in the pod's queue, and before what that one asks for comes who would have to leave",
        wakes=(FREE, ITSELF),
        subject="queue",
        says="takes nothing from other queues while[ {first}|| another job] is first in it and asks for more than it would get",
        cure="give that job a lower priority, let it ask for less, or raise the queue's quota or weight",
    ),
    "QueueOvertaking": Code(
        plugins=("Scheduler",),
        meaning="a job before it in the queue asks for no more and finds no room either: nobody overtakes by evicting",
        wakes=(FREE, ITSELF),
        subject="queue",
        says="evicts nobody for it while[ {first}|| another job], which asks for no more, waits before it and finds no room",
        cure="see why[ {first}|| that job] cannot start, and end it if it never will; or give the pod a higher priority",
    ),
    "MakingRoom": Code(
        plugins=("Scheduler",),
        meaning="pods are evicted or moved to make room: their queue gives back, or they are less important in the same queue",
        wakes=(FREE,),
        subject="pod",
        says="<wait> until other pods have made room[ on {node}][: {victims}][ and {more} more]",
        cure="wait until the evicted pods are gone",
    ),
    "PodGroupMissing": Code(
        plugins=("Scheduler",),
        meaning="the PodGroup that the pod names does not exist",
        wakes=(ITSELF,),
        subject="podgroup",
        says="<does> not exist",
        cure="create the PodGroup, or let the pod name none (annotation pod-group-name, spec.schedulingGroup)",
    ),
    "GpuSharing": Code(
        plugins=("Scheduler",),
        meaning="the pod asks for a part of a GPU by an annotation of KAI-Scheduler, which would not be kept to",
        wakes=(ITSELF,),
        subject="pod",
        says="<ask> for a part of a GPU by the annotation[ {annotation}], which is not supported",
        cure="ask for it with a ResourceClaim: a partition, or consumable capacity of a device; or remove the annotation",
    ),
    "TopologyMissing": Code(
        plugins=("Scheduler",),
        meaning="the topology that the pod group names does not exist, or has no such level",
        wakes=(ITSELF,),
        subject="podgroup",
        says="<name>[ topology {topology}|| a topology], which[ has no level {level}|| does not exist]",
        cure="create the Topology[ {topology}], or name another, or one of its levels, in topologyConstraint",
    ),
    "TopologyConstraint": Code(
        plugins=("Scheduler",),
        meaning="the pods that have to be in one domain of a topology do not fit into any",
        wakes=(NODE, FREE, DEVICES),
        subject="podgroup",
        says="<fit> into no domain[ of level {level}][ of the {tried} that were tried]"
        "[: {placed} of {needed} pods fit into {domain}, which comes closest, and then there is no place for {member}"
        "|| that any node is in]",
        cure="make room for all of them in one domain, or require a wider level",
        curable=True,
    ),
    "OutsideDomain": Code(
        plugins=("Scheduler",),
        meaning="the node is not in the domain of the topology that was tried for the pod's gang",
        wakes=(NODE,),
        subject="node",
        says="<is> not in the domain that was tried",
        nodes="<is> not in the domain that was tried",
    ),
    "GangIncomplete": Code(
        plugins=("Scheduler",),
        meaning="fewer pods of the gang exist than must start together",
        wakes=(ITSELF,),
        subject="podgroup",
        says="<has> too few pods to start[: {pods} of {needed}]",
        cure="create the pods that are missing, or let fewer start together (minMember, minCount, dray.dev/gang)",
    ),
    "GangBlocked": Code(
        plugins=("Scheduler",),
        meaning="not all pods of the gang fit at the same time",
        wakes=(NODE, FREE, DEVICES),
        subject="podgroup",
        says="cannot start as a whole[: {placed} of {needed} pods fit together, and then there is no place for {member}]",
        cure="make room for all pods of the gang at once, or let fewer start together (minMember, minCount, dray.dev/gang)",
        curable=True,
    ),
    "GangMemberFailed": Code(
        plugins=("Scheduler",),
        meaning="another pod of the gang could not be bound, so none is",
        wakes=(ITSELF,),
        subject="pod",
        says="<was> not bound because[ {member}|| another pod] of the same gang could not be",
    ),
}
