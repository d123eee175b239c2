"""Why a pod of a queue or of a gang waits."""

from __future__ import annotations

from typing import Final

from dray.api.codes.code import DEVICES, FREE, ITSELF, NODE, Code

TABLE: Final[dict[str, Code]] = {
    "QueueMissing": Code(
        plugins=("Scheduler",),
        meaning="the queue that the pod names does not exist",
        wakes=(ITSELF,),
        subject="queue",
        says="<does> not exist",
        cure="create the queue, or name another (label kai.scheduler/queue, queue of the pod group)",
    ),
    "QueueInvalid": Code(
        plugins=("Scheduler",),
        meaning="the queue that the pod names is invalid: something in it cannot be read, or it is not part of a tree of queues",
        wakes=(ITSELF,),
        subject="queue",
        says="cannot be used[: {error}]",
        cure="mend the queue, or name another (label kai.scheduler/queue, queue of the pod group)",
    ),
    "QueueHasChildren": Code(
        plugins=("Scheduler",),
        meaning="the queue that the pod names has child queues, so it takes no pods itself",
        wakes=(ITSELF,),
        subject="queue",
        says="<take> no pods itself because it has queues below it[: {children}]",
        cure="name one of the queues below it (label kai.scheduler/queue, queue of the pod group)",
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
        meaning="with the pod, a queue would exceed its quota with pods that cannot be preempted",
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
    "QueueNothingLent": Code(
        plugins=("Scheduler",),
        meaning="with the pod, its queue would stay within its share, but other queues hold too little above theirs "
        "that may be taken",
        wakes=(FREE, ITSELF),
        subject="queue",
        says="cannot take back enough[ of {resource}: it holds {held} and deserves {share}, {asked} more are asked for,"
        " {free} are free, and other queues hold {lent}]",
        cure="wait until pods of other queues end, or give those queues lower quotas",
    ),
    "QueueMinRuntime": Code(
        plugins=("Scheduler",),
        meaning="pods that may have to leave for the pod have not run for the minimum runtime of their queue yet",
        wakes=(FREE, ITSELF),
        subject="queue",
        says="<keep> its pods until they have run for[ {seconds} s|| its min-runtime][: the first of them at {until}]",
        cure="wait until then, or lower reclaimMinRuntime or preemptMinRuntime of that queue",
    ),
    "QueueBehind": Code(
        plugins=("Scheduler",),
        meaning="another job is first in the pod's queue, and asks for so much that the pods which would have to "
        "leave are due before it",
        wakes=(FREE, ITSELF),
        subject="queue",
        says="takes nothing from other queues while[ {first}|| another job] is first in it and asks for more than it would get",
        cure="give that job a lower priority, let it ask for less, or raise the queue's quota or weight",
    ),
    "QueueOvertaking": Code(
        plugins=("Scheduler",),
        meaning="an earlier job in the queue asks for no more and finds no room either, and no job overtakes another by evicting",
        wakes=(FREE, ITSELF),
        subject="queue",
        says="evicts nobody for it while[ {first}|| another job], which asks for no more, waits before it and finds no room",
        cure="see why[ {first}|| that job] cannot start, and end it if it never will; or give the pod a higher priority",
    ),
    "MakingRoom": Code(
        plugins=("Scheduler",),
        meaning="pods are evicted or moved to make room: their queue gives back, or they have lower priority in the same queue",
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
    "PodGroupInvalid": Code(
        plugins=("Scheduler",),
        meaning="the PodGroup that the pod names is invalid",
        wakes=(ITSELF,),
        subject="podgroup",
        says="cannot be used[: {error}]",
        cure="mend the PodGroup",
    ),
    "SubGroupMissing": Code(
        plugins=("Scheduler",),
        meaning="the pod names no sub-group of its pod group, or names one that has no pods of its own",
        wakes=(ITSELF,),
        subject="pod",
        says="<name>[ {subgroup}|| nothing] in the label kai.scheduler/subgroup-name, and has to name[ {has}|| a sub-group]"
        " of its pod group",
        cure="correct the label kai.scheduler/subgroup-name of the pod, or add the sub-group to the pod group",
    ),
    "PodSaysUnreadable": Code(
        plugins=("Scheduler",),
        meaning="an annotation or label of the pod, about how it starts or whether it may be preempted, cannot be read",
        wakes=(ITSELF,),
        subject="pod",
        says="<has>[ the {sort} {said}|| an annotation], which cannot be gone by[: it has to be {wanted}]",
        cure="write[ {example}] where the pod is made (its owner's template), or on the pods themselves; or remove it",
    ),
    "GpuSharing": Code(
        plugins=("Scheduler",),
        meaning="the pod asks for a part of a GPU with an annotation of KAI-Scheduler, which Dray does not support",
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
        meaning="the pods that have to be in one domain of a topology fit into none",
        wakes=(NODE, FREE, DEVICES),
        subject="podgroup",
        says="<fit> into no domain[ of level {level}][ of the {tried} that were tried]"
        "[: {placed} of {needed} pods fit into {domain}, which comes closest, and then there is no place for {member}"
        "|| that any node is in]",
        cure="make room for all of them in one domain, or require a wider level; a node that lacks the label of the level,"
        " or of one above it, is in no domain",
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
        says="<has> too few pods to start[ sub-group {part}][: {pods} of {needed}]",
        cure="create the pods that are missing, or let fewer start together (minMember, minSubGroup, minCount, dray.dev/gang)",
    ),
    "GangBlocked": Code(
        plugins=("Scheduler",),
        meaning="not all pods of the gang fit at the same time",
        wakes=(NODE, FREE, DEVICES),
        subject="podgroup",
        says="cannot start as a whole[: {placed} of {needed} pods fit together, and then there is no place for {member}]",
        cure="make room for all pods of the gang at once, or let fewer start together (minMember, minSubGroup, minCount,"
        " dray.dev/gang)",
        curable=True,
    ),
    "GangNext": Code(
        plugins=("Scheduler",),
        meaning="another pod of the gang, with other requirements, has to be placed before this one",
        wakes=(NODE, FREE, DEVICES),
        subject="podgroup",
        says="<is> to place[ {member}|| another of its pods] next, for which there is no place",
        cure="make room for the pod that is next, or give those that need less a higher kai.scheduler/task-priority",
        curable=True,
    ),
    "GangMemberFailed": Code(
        plugins=("Scheduler",),
        meaning="another pod of the gang could not be bound, so none of them is",
        wakes=(ITSELF,),
        subject="pod",
        says="<was> not bound because[ {member}|| another pod] of the same gang could not be",
    ),
}
