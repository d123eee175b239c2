"""Why a pod cannot have its resources from the NUMA zones of a node."""

from __future__ import annotations

from typing import Final

from dray.api.codes.code import DEVICES, FREE, ITSELF, NODE, PODS, Code

TABLE: Final[dict[str, Code]] = {
    "ZoneTooSmall": Code(
        plugins=("NUMA",),
        meaning="a resource needs more zones than the node's policy allows, even if the zones are empty",
        wakes=(NODE,),
        subject="node",
        says="<has> zones too small for[ {needed}|| so much][ {resource}]"
        "[ (at most {total} in as many as policy {policy} allows, beside {kept} reserved or broken)"
        "|| (at most {total} in as many as policy {policy} allows)]",
        cure="request[ at most {total}|| less][ {resource}], or use a node with larger zones or another topology policy",
    ),
    "ZoneWidthsDiffer": Code(
        plugins=("NUMA",),
        meaning="the resources need different numbers of zones, which the policy restricted does not admit",
        wakes=(NODE,),
        subject="node",
        says="<require> all resources to need equally many zones[, and they need {widths}]",
        cure="change the requests so that all resources need equally many zones, or use a node with policy best-effort",
    ),
    "ZonesApart": Code(
        plugins=("NUMA",),
        meaning="no set of zones that the policy allows has enough of everything that must be aligned, even if the "
        "zones are empty",
        wakes=(NODE,),
        subject="node",
        says="<has> no zones with enough of[ {requests}|| everything] together, however empty"
        "[; zone {sole} comes nearest and lacks {lacks}||; zones {nearest} come nearest and lack {lacks}]",
        cure="request less, or use a node with these resources in the same zones, or with policy best-effort",
    ),
    "ZonesFull": Code(
        plugins=("NUMA",),
        meaning="no set of zones has enough left of everything that must be aligned",
        wakes=(FREE, NODE),
        subject="node",
        says="<has> not enough[ {resource}|| of everything] free in the same zones"
        "[ (needs {needed} within {width} of them, {free} free)]"
        "[; zone {sole} comes nearest and lacks {lacks}||; zones {nearest} come nearest and lack {lacks}][, in use by {holders}]",
        cure="[free {missing} more {resource} in the same zone||free the resources of whole zones], or request less",
        curable=True,
    ),
    "ZonesOfInit": Code(
        plugins=("NUMA",),
        meaning="the containers must use the zones that an init container uses, and do not fit there",
        wakes=(FREE, NODE),
        subject="node",
        says="<has> room only outside the zones that an init container of the pod would use",
        cure="give init containers no whole CPUs and no devices, or use a node that aligns whole pods (scope pod)",
        curable=True,
    ),
    "ZoneMemoryGroups": Code(
        plugins=("NUMA",),
        meaning="zones with room are bound to other zones, or cannot be bound together, because of memory that is "
        "already given out",
        wakes=(FREE, NODE),
        subject="node",
        says="<has> zones with room[ ({nearest})] that memory given out before binds to other zones, or keeps from being joined"
        "[: that of {holders}]",
        cure="end the pods whose memory spans zones, or those with memory in the zones to be joined",
        curable=True,
    ),
    "ZoneMemoryOfPod": Code(
        plugins=("NUMA",),
        meaning="the Memory Manager would not serve a container from the zones that the pod gets",
        wakes=(FREE, NODE),
        subject="node",
        says="<has> zones for the pod from which its Memory Manager would not serve every container",
        cure="let init containers request no more memory than the others",
        curable=True,
    ),
    "ZoneSpan": Code(
        plugins=("NUMA",),
        meaning="the pod would be spread over more zones than it allows",
        wakes=(FREE, NODE),
        subject="node",
        says="[<does> not align anything, and may spread the pod over {spread} zones"
        "||<need> at least[ {needed}] zones for the pod][, which allows {allowed}]",
        cure="allow the pod to span[ {needed}|| more] zones, or free resources in fewer zones",
        curable=True,
    ),
    "ZonesUnpublished": Code(
        plugins=("NUMA",),
        meaning="the pod limits the zones that it is spread over, and nothing says which zones the node has",
        wakes=(NODE,),
        subject="node",
        says="<does> not publish zones, and the pod limits over how many it may be spread",
        cure="have the node publish a NodeResourceTopology, or use another node",
    ),
    "ZoneIntentInvalid": Code(
        plugins=("NUMA",),
        meaning="the annotations of the pod about its zones cannot be read",
        wakes=(ITSELF,),
        subject="pod",
        says="<has> a wrong annotation[: {error}]",
        cure="correct the annotation in the pod's template",
    ),
    "ZoneDevicesApart": Code(
        plugins=("NUMA",),
        meaning="the zones of the pod's CPUs and memory have too few devices for it",
        wakes=(FREE, DEVICES, NODE),
        subject="node",
        says="<has> too few devices[ of {claim}] in the zones that have the pod's other resources[ ({mask})]",
        cure="free devices and CPUs of the same zone, or let the pod span more zones",
        curable=True,
    ),
    "ZonePlacementUnknown": Code(
        plugins=("NUMA",),
        meaning="it is not known yet in which zones a pod on the node has its resources",
        wakes=(PODS, FREE),
        subject="node",
        says="<has> a pod[ {pod}] whose zones are not known yet",
        cure="wait until the placement exporter has reported it[ {pod}]; see that the exporter runs on the node",
    ),
    "ZonesKept": Code(
        plugins=("NUMA",),
        meaning="a pod that waits for its devices or volumes would no longer fit into the zones if this one came first",
        wakes=(PODS, FREE),
        subject="node",
        says="<has> zones that are kept for a pod[ {pod}] whose devices or volumes are being made ready",
        cure="wait until that pod has started[ {pod}], or use another node",
    ),
    "ZonesLost": Code(
        plugins=("NUMA",),
        meaning="other pods took the zones of the pod while its devices or volumes were made ready",
        wakes=(FREE, PODS),
        subject="node",
        says="<has> no zones for the pod any more: others came while its devices or volumes were made ready",
        cure="wait: the pod is decided on again",
    ),
    "ZoneRefusedBefore": Code(
        plugins=("NUMA",),
        meaning="the kubelet of the node refused such a pod, and nothing has changed there since",
        wakes=(FREE, NODE),
        subject="node",
        says="refused such a pod before[ ({refused})]",
        cure="wait for pods there to end, or look at what the kubelet says",
        curable=True,
    ),
}
