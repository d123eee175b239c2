"""What each reason says and what cures it: one row per code, filled with the reason's data.

A text is a verb phrase about its subject (``node``, ``device``, ``claim`` …). ``{key}`` is a datum of the reason; a part in
``[ ]`` is left out when a datum in it is missing (``||`` gives another wording for then), so a reason may carry few data or
many. Verbs in ``< >`` agree with the number of subjects. ``nodes`` is the phrase when several nodes are counted, where it
differs; ``cure`` is the smallest change that helps, as an order.
"""

from __future__ import annotations

from typing import Final

import msgspec


class Text(msgspec.Struct, frozen=True):
    subject: str
    says: str
    cure: str = ""
    nodes: str = ""


_TAINT: Final = " {{{key}[={value}][:{effect}]}}"

# What else than being in use keeps devices of a request from it, in a word or two after their number.
BESIDES: Final = {
    "DeviceTainted": "tainted",
    "CountersExhausted": "out of counters",
    "CapacityExhausted": "out of capacity",
    "CapacityMissing": "without the capacity",
    "CapacityPolicy": "not shared this way",
    "GroupIncompatible": "incompatible with devices in use",
    "DeviceCoolingDown": "at rest after a failure",
    "AttributeMissing": "without the attribute of a constraint",
    "FeatureOff": "of a feature that is off",
    "BindingConditionsOff": "with binding conditions, which are off",
    "NodeOperationsUnsupported": "with operations that the node lacks",
}

TEXTS: Final[dict[str, Text]] = {
    # ------------------------------------------------------------------------------------------------------ one device
    "DeviceTaken": Text(
        "device",
        "<is> allocated[ to claim {claim}]",
        "wait until[ claim {claim} lets go of the device|| the device is free], or add devices",
        nodes="<has> no free device[ of class {class}][ for request {request}]",
    ),
    "DeviceTainted": Text(
        "device",
        "<has> an untolerated taint[" + _TAINT + "]",
        "add a toleration for the taint[" + _TAINT + "] to the request, or have the taint removed",
        nodes="<has> only devices with an untolerated taint[" + _TAINT + "]",
    ),
    "DeviceNotSelected": Text(
        "device",
        "<is> not selected[ by {source}][: {expression} is false]",
        "change the selector[ {expression}][ of {source}], or add devices that it selects",
        nodes="<has> no device that the selector[ {expression}] selects",
    ),
    "DeviceOtherNode": Text(
        "device",
        "<is> not usable from this node[, only from {node}]",
        nodes="cannot reach the devices[ of pool {pool}]",
    ),
    "CountersExhausted": Text(
        "device",
        "<does> not fit into counter set[ {counterSet}][: {counter} needs {needed}, {free} left]",
        "free[ {missing} of] counter[ {counter}][ of counter set {counterSet}] by ending a pod that uses it",
        nodes="<has> shared counters used up[ (counter set {counterSet}[, {counter}: needs {needed}, {free} left])]",
    ),
    "CapacityExhausted": Text(
        "device",
        "<has> not enough capacity left[: {capacity} needs {needed}, {free} left]",
        "request less[ {capacity}], or end a pod that shares the device",
        nodes="<has> not enough device capacity left[: {capacity} needs {needed}, {free} left]",
    ),
    "CapacityMissing": Text(
        "device",
        "<has> no capacity[ {capacity}]",
        "request a capacity that the device has instead of[ {capacity}|| the missing one]",
        nodes="<has> no device with capacity[ {capacity}|| requested]",
    ),
    "CapacityPolicy": Text(
        "device",
        "<does> not allow the requested capacity[: {capacity} of {needed}][ ({policy})]",
        "request a value[ of {capacity}] that the device's policy allows[ ({policy})]",
        nodes="<has> only devices that do not allow the requested capacity[: {capacity} of {needed}]",
    ),
    "GroupIncompatible": Text(
        "device",
        "<is> incompatible with what is in use[ on counter set {counterSet}][: offers {groups}, in use {used}]",
        "end the pods that use incompatible devices[ on counter set {counterSet}], or ask for a compatible kind",
        nodes="<has> devices in use that are incompatible with the request[ (in use {used})]",
    ),
    "ConstraintViolated": Text(
        "device",
        "<does> not satisfy the constraint[ {constraint}][ on {attribute}][: {value}, needs {expected}]",
        "relax the constraint[ on {attribute}], or free devices[ that agree on {attribute}]",
        nodes="<has> no devices that satisfy the constraint[ on {attribute}]",
    ),
    "AttributeMissing": Text(
        "device",
        "<has> no attribute[ {attribute}] that a constraint needs",
        "remove the constraint[ on {attribute}], or have the driver publish the attribute",
        nodes="<has> only devices without attribute[ {attribute}] that a constraint needs",
    ),
    "BindingConditionsOff": Text(
        "device",
        "<has> binding conditions, and DRADeviceBindingConditions is off",
        "switch on the feature gate DRADeviceBindingConditions",
        nodes="<has> only devices with binding conditions, and DRADeviceBindingConditions is off",
    ),
    "FeatureOff": Text(
        "object",
        "<use> a feature that is switched off[: {feature}]",
        "switch on the feature gate[ {feature}]",
        nodes="<has> only devices that need a feature that is switched off[: {feature}]",
    ),
    "NodeOperationsUnsupported": Text(
        "device",
        "<skip> node operations[ ({operations})], and the node does not declare support for that",
        "upgrade the node's kubelet",
        nodes="<does> not declare support for devices that skip node operations",
    ),
    "DeviceCoolingDown": Text(
        "device",
        "<is> resting after a failed binding[ until {until}]",
        "wait[ until {until}]; the device failed to bind a short while ago",
        nodes="<has> only devices that failed to bind a short while ago",
    ),
    # ------------------------------------------------------------------------------------------ a request, claim or pool
    "NotEnoughDevices": Text(
        "node",
        "<has> not enough devices[ of class {class}][ for request {request}]"
        "[ (needs {needed}[, {free} free][ of {total}][; {besides}])]",
        "[add a node with {needed} devices[ of class {class}], or ask for at most {most}"
        "||free more devices[ of class {class}] on one node[ ({missing} missing)], or ask for fewer]",
    ),
    "NoDevices": Text(
        "node",
        "<has> no device[ of class {class}][ for request {request}]",
        "add a node with devices[ of class {class}], or change the request[ {request}]",
    ),
    "AllDevicesBusy": Text(
        "node",
        "<has> not all devices[ of class {class}] available[ for request {request}][ ({free} of {total} are[; {besides}])]",
        "wait until every matching device[ of class {class}] on one node is free, or ask for a count instead of All",
    ),
    "PoolIncomplete": Text(
        "node",
        "<is> served by an incomplete pool[ {pool}][ of {driver}][: {published} of {expected} slices published]",
        "wait for the driver[ {driver}] to publish the rest of the pool[ {pool}]",
    ),
    "PoolInvalid": Text(
        "node",
        "<is> served by an invalid pool[ {pool}][ of {driver}][: {detail}]",
        "have the driver[ {driver}] correct the slices of the pool[ {pool}]",
    ),
    "TooManyDevices": Text(
        "claim",
        "<ask> for more devices than one claim can hold[ (request {request})][ (needs {needed}, at most {limit})]",
        "ask for[ at most {limit}|| fewer] devices in one claim",
    ),
    "ClassMissing": Text(
        "claim",
        "<name> a device class that does not exist[: {class}][ (request {request})]",
        "create the device class[ {class}], or correct its name in the claim",
    ),
    "SelectorError": Text(
        "claim",
        "<has> a selector that fails[ on device {device}][: {error}][ in {expression}]",
        "correct the expression[ {expression}][ of {source}]",
    ),
    "InvalidRequest": Text(
        "claim",
        "cannot be satisfied as it is written[ (request {request})][: {detail}||: {error}]",
        "correct the claim[: {detail}||: {error}]",
    ),
    "SearchBudget": Text(
        "node",
        "<has> too many possible combinations of devices to decide[ in {steps} steps]",
        "simplify the claim: fewer requests with constraints, or narrower selectors",
    ),
    "NoCombination": Text(
        "node",
        "<has> devices that match each request, but no combination that satisfies all requests and constraints[ of {claim}]",
        "relax a constraint, or free more devices on one node",
    ),
    # ---------------------------------------------------------------------------------------------------------- claims
    "ClaimMissing": Text("claim", "<does> not exist", "create the claim[ {claim}], or correct its name in the pod"),
    "ClaimNotCreated": Text(
        "claim",
        "<is> not generated yet[ from template {template}][ (entry {claim})]",
        "make sure that the template[ {template}] exists and that a controller of claims runs",
    ),
    "ClaimDeleting": Text("claim", "<is> being deleted", "wait until the claim is gone, then create it again"),
    "ClaimNamed": Text(
        "node",
        "<has> a device plugin, and the pod's status names a claim[ ({claim})] of an attempt on a node without",
        "let the pod be made anew: the name stays in its status, and the kubelet would look for the claim",
    ),
    "ClaimForeign": Text("claim", "<belong> to another pod[ ({owner})]", "use a claim of the pod's own"),
    "ClaimElsewhere": Text(
        "claim",
        "<is> allocated on other nodes[: {nodes}]",
        "let the pod run where its claim[ {claim}] is allocated[ ({nodes})]",
        nodes="cannot use the devices of an already allocated claim[ {claim}][ ({nodes} can)]",
    ),
    "ClaimInFlight": Text("claim", "<is> being allocated[ for pod {pod}] or given back", "wait: the claim is being written"),
    "ClaimFull": Text(
        "claim",
        "<is> reserved for as many pods as it can be[ ({limit})]",
        "end a pod that uses the claim, or give this pod another claim",
    ),
    "ClaimTainted": Text(
        "claim",
        "<hold> a device with a taint that it does not tolerate[" + _TAINT + "]",
        "have the taint[" + _TAINT + "] removed, or let the claim be allocated anew",
    ),
    "ClaimLost": Text("claim", "<has> changed between decision and write", "wait: the pod is decided on again"),
    "BindingPending": Text(
        "claim",
        "<wait> for binding conditions[: {conditions}][ on device {device}][ since {since}][, until {deadline}]",
        "wait for the driver[ {driver}] to report[ {conditions}|| the conditions][, at the latest until {deadline}]",
    ),
    "BindingFailed": Text(
        "device",
        "could not be bound[ to node {node}][ for claim {claim}][: {condition}][ ({message})]",
        "look at the driver[ {driver}]; another device is tried meanwhile",
    ),
    "BindingTimeout": Text(
        "device",
        "did not become ready[ within {timeout} seconds][ for node {node}][ for claim {claim}][: {condition}][ ({message})]",
        "look at the driver[ {driver}], or allow more time with bindingTimeout",
    ),
    # --------------------------------------------------------------------------------------------------- pods and nodes
    "SchedulingGated": Text("pod", "<has> scheduling gates[: {gates}]", "remove the scheduling gates[ {gates}]"),
    "NodeNameMismatch": Text("node", "<is> not the node that the pod names[ ({node})]", "correct spec.nodeName"),
    "NodeUnschedulable": Text("node", "<is> cordoned", "uncordon a node"),
    "NodeSelectorMismatch": Text(
        "node",
        "<does> not match the pod's node selector or affinity[: {requirement}]",
        "change the pod's node selector or affinity, or label a node[ with {requirement}]",
    ),
    "NodeTainted": Text(
        "node",
        "<has> an untolerated taint[" + _TAINT + "]",
        "add a toleration for the taint[" + _TAINT + "] to the pod, or remove the taint from a node",
    ),
    "PortTaken": Text(
        "node",
        "<has> host port[ {port}[/{protocol}]] in use",
        "use another host port[ than {port}], or end the pod that uses it",
    ),
    "ResourcesInsufficient": Text(
        "node",
        "<has> not enough[ {resource}|| of a resource][ (needs {needed}[, {free} free][ of {total}])]",
        "[add a node with {needed}[ {resource}|| of the resource], or request at most {most}"
        "||free[ {missing}] more[ {resource}|| of the resource] on one node, or request less]",
    ),
    "ResourceUnknown": Text(
        "node",
        "<does> not offer[ {resource}|| a resource]",
        "add a node or a device class that offers[ {resource}|| the resource], or correct its name",
    ),
    "TooManyPods": Text("node", "<run> as many pods as possible[ ({limit})]", "end a pod, or add a node"),
    "TopologySpread": Text(
        "node",
        "<is> where the pod would break a topology spread constraint[ over {topologyKey}][ (skew {skew}, at most {limit})]",
        "allow a larger maxSkew[ over {topologyKey}], or make room in the other domains",
        nodes="would break a topology spread constraint[ over {topologyKey}]",
    ),
    "PodAffinity": Text(
        "node",
        "<has> no pod that this pod must be near[ (by {topologyKey})]",
        "start the pods that this pod must be near, or change its pod affinity",
    ),
    "PodAntiAffinity": Text(
        "node",
        "<has> a pod that this pod must stay away from[ ({pod})][ (by {topologyKey})]",
        "change the pod's anti-affinity, or add a node",
        nodes="<has> pods that this pod must stay away from[ (by {topologyKey})]",
    ),
    "PodAntiAffinityExisting": Text(
        "node",
        "<has> a pod that must stay away from this pod[ ({pod})][ (by {topologyKey})]",
        "change the labels of this pod or the other's anti-affinity, or add a node",
        nodes="<has> pods that must stay away from this pod[ (by {topologyKey})]",
    ),
    "VolumeClaimMissing": Text(
        "pod", "<use> a persistent volume claim that does not exist[: {claim}]", "create the volume claim[ {claim}]"
    ),
    "VolumeClaimUnbound": Text(
        "pod",
        "<use> a persistent volume claim that is not bound[: {claim}][ on node {node}]",
        "wait for the volume claim[ {claim}] to be bound, or provide a volume for it",
    ),
    "VolumeNodeAffinity": Text(
        "node",
        "cannot reach a volume of the pod[ ({volume})]",
        "let the pod run where its volume[ {volume}] can be reached",
    ),
    "VolumeTaken": Text(
        "node",
        "cannot use a volume that is in use elsewhere[ ({volume}[ by {pod}])]",
        "end the pod that uses the volume[ {volume}]",
    ),
    "VolumeLimit": Text(
        "node",
        "cannot attach more volumes[ of {driver}][ (at most {limit})]",
        "end a pod that uses volumes[ of {driver}], or add a node",
    ),
    "NoNodes": Text("cluster", "<has> no nodes", "add a node"),
    "WriteFailed": Text(
        "pod",
        "<is> held up because the API server refused a write[: {error}]",
        "wait: the write is tried again; if it goes on, look at the API server and at Dray's permissions",
    ),
    "Preempting": Text(
        "pod",
        "<wait> until pods of lower priority have made room[ on {node}][: {victims}]",
        "wait until the evicted pods are gone",
    ),
}
