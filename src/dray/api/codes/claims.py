"""Why a claim will not do."""

from __future__ import annotations

from typing import Final

from dray.api.codes.code import CLASSES, DEVICES, FREE, ITSELF, NODE, TAINT, Code

TABLE: Final[dict[str, Code]] = {
    "ClaimMissing": Code(
        plugins=("DynamicResources",),
        meaning="the claim does not exist",
        wakes=(ITSELF,),
        subject="claim",
        says="<does> not exist",
        cure="create the claim[ {claim}], or correct its name in the pod",
        upstream='resourceclaim.resource.k8s.io[ "{claim}"] not found',
    ),
    "ClaimNotCreated": Code(
        plugins=("DynamicResources",),
        meaning="the claim has not been generated from its template yet",
        wakes=(ITSELF,),
        subject="claim",
        says="<is> not generated yet[ from template {template}][ (entry {claim})]",
        cure="make sure that the template[ {template}] exists and that a controller of claims runs",
        upstream="ResourceClaim not created yet",
    ),
    "TemplateMissing": Code(
        plugins=("DynamicResources",),
        meaning="the template from which a claim is to be generated does not exist",
        wakes=(ITSELF,),
        subject="pod",
        says="<use> a claim template that does not exist[: {template}][ (entry {claim})]",
        cure="create the claim template[ {template}], or correct its name in the pod",
        upstream="ResourceClaim not created yet",
    ),
    "ClaimDeleting": Code(
        plugins=("DynamicResources",),
        meaning="the claim is being deleted",
        wakes=(ITSELF,),
        subject="claim",
        says="<is> being deleted",
        cure="wait until the claim is gone, then create it again",
    ),
    "ClaimForeign": Code(
        plugins=("DynamicResources",),
        meaning="the claim belongs to another pod",
        wakes=(ITSELF,),
        subject="claim",
        says="<belong> to another pod[ ({owner})]",
        cure="use a claim of the pod's own",
    ),
    "ClaimNamed": Code(
        plugins=("DynamicResources",),
        meaning="the pod's status names a claim for extended resources, and the node would serve them without one",
        wakes=(
            NODE,
            CLASSES,
        ),
        subject="node",
        says="<has> a device plugin, and the pod's status names a claim[ ({claim})] of an attempt on a node without",
        cure="have the pod recreated: the name stays in its status, and the kubelet would look for the claim",
    ),
    "ClaimElsewhere": Code(
        plugins=("DynamicResources",),
        meaning="the claim is allocated on other nodes",
        wakes=(ITSELF,),
        subject="claim",
        says="<is> allocated on other nodes[: {nodes}]",
        cure="let the pod run where its claim[ {claim}] is allocated[ ({nodes})]",
        nodes="cannot use the devices of an already allocated claim[ {claim}][ ({nodes} can)]",
        upstream="resourceclaim not available on the node",
    ),
    "ClaimInFlight": Code(
        plugins=("DynamicResources",),
        meaning="the claim is being allocated for another pod, or is being given back",
        wakes=(ITSELF,),
        subject="claim",
        says="<is> being allocated[ for pod {pod}] or given back",
        cure="wait: the claim is being written",
    ),
    "ClaimPromised": Code(
        plugins=("DynamicResources",),
        meaning="the devices of the claim are promised to a pod of equal or higher priority, for which the pods that "
        "use the claim leave",
        wakes=(FREE, DEVICES),
        subject="claim",
        says="<is> being given back: its devices are promised[ to pod {pod}|| to another pod]",
        cure="wait until the claim is given back, or give the pod a higher priority than[ {pod}|| the other] has",
    ),
    "ClaimFull": Code(
        plugins=("DynamicResources",),
        meaning="the claim is already reserved for the maximum number of pods",
        wakes=(ITSELF,),
        subject="claim",
        says="<is> reserved for as many pods as it can be[ ({limit})]",
        cure="end a pod that uses the claim, or give this pod another claim",
    ),
    "ClaimTainted": Code(
        plugins=("DynamicResources",),
        meaning="the claim holds a device whose taint it does not tolerate",
        wakes=(DEVICES,),
        subject="claim",
        says="<hold>[ device {device}|| a device] with a taint that it does not tolerate[" + TAINT + "]"
        "[, no longer since {until}]",
        cure="have the taint[" + TAINT + "] removed[, tolerate it for longer], or let the claim be allocated again",
    ),
    "ClaimCrossed": Code(
        plugins=("DynamicResources",),
        meaning="the claim and another one together hold more than there is (a device, capacity, counters, or "
        "incompatible groups), because two schedulers allocated at the same time, or because the driver now "
        "publishes less",
        wakes=(DEVICES,),
        subject="claim",
        says="<hold>[ device {device}|| a device][ beside claim {other} on counter set {counterSet}"
        "|| that claim {other} holds, too|| that another claim holds, too]"
        "[: {capacity} needs {needed} of {total}][: {counter} needs {needed} of {total}][: offers {groups}, in use {used}]",
        cure="let one of the two claims go: dray release, or delete the pods that use it",
    ),
    "ClaimLost": Code(
        plugins=("DynamicResources",),
        meaning="the claim changed between decision and write",
        wakes=(ITSELF,),
        subject="claim",
        says="<has> changed between decision and write",
        cure="wait: the pod is decided on again",
    ),
    "ConditionsDropped": Code(
        plugins=("DynamicResources",),
        meaning="the API server does not keep the binding conditions of the allocated devices",
        wakes=(ITSELF,),
        subject="claim",
        says="<has> devices that must be ready first, and the API server drops their binding conditions",
        cure="switch on DRADeviceBindingConditions in the API server, or delete the slices of devices that have such conditions",
    ),
    "BindingPending": Code(
        plugins=("DynamicResources",),
        meaning="devices are being prepared for binding",
        wakes=(ITSELF,),
        subject="claim",
        says="<wait> for binding conditions[: {conditions}][ on device {device}][ since {since}][, until {deadline}]",
        cure="wait for the driver[ {driver}] to report[ {conditions}|| the conditions][, at the latest until {deadline}]",
    ),
    "BindingFailed": Code(
        plugins=("DynamicResources",),
        meaning="a device reported that it cannot be bound",
        wakes=(ITSELF,),
        subject="device",
        says="could not be bound[ to node {node}][ for claim {claim}][: {condition}][ ({message})]",
        cure="look at the driver[ {driver}]; another device is tried meanwhile",
    ),
    "BindingTimeout": Code(
        plugins=("DynamicResources",),
        meaning="a device did not become ready in time",
        wakes=(ITSELF,),
        subject="device",
        says="did not become ready[ within {timeout} seconds][ for node {node}][ for claim {claim}][: {condition}][ ({message})]",
        cure="look at the driver[ {driver}], or allow more time with bindingTimeout",
        upstream="device binding timeout",
    ),
}
