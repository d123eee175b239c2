"""What helps a pod that waits for something that only a person can bring: an object that does not exist, gates to be removed, or
pods to be ended that keep a claim whose devices failed.

Always true: each has a command to paste. Of an object that does not exist, a name that is nearly the same comes first; what is
made instead asks for a device class that exists.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final

import msgspec

from dray.api.class_names import ClassNames
from dray.api.core import Node, Pod
from dray.api.gates import Gates
from dray.api.kinds import (
    CORE_POD_GROUPS,
    DEVICE_CLASSES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    POD_GROUPS,
    PODS,
    QUEUES,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    TOPOLOGIES,
    Kind,
)
from dray.api.queues import POD_GROUP_ANNOTATION, QUEUE_LABEL, PodGroup
from dray.api.reason import Reason
from dray.api.requests import amounts, offered_by
from dray.api.resource import IMPLICIT_RESOURCE_PREFIX, DeviceClass, ResourceClaim
from dray.cluster.world import World
from dray.explain.fix import Fix, annotate, label, patch
from dray.scheduling.shape.extended import wanted_names
from dray.scheduling.workloads.grouping import annotated

Json = dict[str, Any]

# Reasons that say that something is not there: of which kind, and where its name stands.
_NAMING: Final[dict[str, tuple[Kind, str]]] = {
    "ClaimMissing": (RESOURCE_CLAIMS, "claim"),
    "ClassMissing": (DEVICE_CLASSES, "class"),
    "VolumeClaimMissing": (PERSISTENT_VOLUME_CLAIMS, "claim"),
    "QueueMissing": (QUEUES, "queue"),
    "PodGroupMissing": (POD_GROUPS, "group"),
    "TopologyMissing": (TOPOLOGIES, "topology"),
}
# Reasons that say that there is nothing, or too little, of something: what it would be published as.
_OF_KINDS: Final[dict[str, tuple[Kind, ...]]] = {
    "NoNodes": (NODES,),
    "NoDevices": (RESOURCE_SLICES,),
    "NotEnoughDevices": (RESOURCE_SLICES,),
    "AllDevicesBusy": (RESOURCE_SLICES,),
    "ResourceUnknown": (DEVICE_CLASSES, RESOURCE_SLICES),
}


def unless_unread(reason: Reason, pod: Pod, unknown: Mapping[Kind, str]) -> Reason:
    """What is missing from a kind that could not be read may well be there."""
    for each in _OF_KINDS.get(reason.code, ()):
        if each in unknown:
            return Reason("NotRead", f"pod/{pod.key}", {"kind": each.resource, "why": unknown[each]})
    kind, key = _NAMING.get(reason.code, (None, ""))
    if kind is POD_GROUPS and POD_GROUP_ANNOTATION not in pod.metadata.annotations:
        kind = CORE_POD_GROUPS
    if kind is None or kind not in unknown:
        return reason
    name = str(reason.data.get(key) or reason.object.partition("/")[2])
    return Reason("NotRead", f"pod/{pod.key}", {"kind": kind.resource, "name": name, "why": unknown[kind]})


def unread_of_queues(pod: Pod, unknown: Mapping[Kind, str]) -> list[Reason]:
    """The queue and the pod group that the pod names, of which nothing is known."""
    core = pod.spec.scheduling_group.pod_group_name if pod.spec.scheduling_group is not None else ""
    named = ("QueueMissing", "queue", pod.metadata.labels.get(QUEUE_LABEL))
    grouped = ("PodGroupMissing", "group", pod.metadata.annotations.get(POD_GROUP_ANNOTATION) or core)
    absent = [Reason(code, "", {key: name}) for code, key, name in (named, grouped) if name]
    return [told for reason in absent if (told := unless_unread(reason, pod, unknown)) is not reason]


def as_if_alone(pods: Iterable[Pod], unknown: Mapping[Kind, str]) -> Iterator[str]:
    """What is not known of queues and groups that pods name, so that a rehearsal takes these for nothing: who runs may have to
    leave with others then."""
    found = Counter(str(told.data["kind"]) for pod in pods if not pod.terminal for told in unread_of_queues(pod, unknown))
    whys = {kind.resource: why for kind, why in unknown.items()}
    for kind, count in found.items():
        pods_name = f"{count} pods name one, and what comes of them" if count > 1 else "a pod names one, and what comes of it"
        yield f"{whys[kind]}; {pods_name} is told as if there were none"


def untold(pod: Pod, refusals: Iterable[Sequence[Reason]], unknown: Mapping[Kind, str]) -> list[Reason]:
    """What nobody knows of a node that would do if it were there; nothing where each node has something else against the pod."""
    for reasons in refusals:
        told = [unless_unread(reason, pod, unknown) for reason in reasons]
        if all(reason.code == "NotRead" for reason in told):
            return told
    return []


def advice(world: World, pod: Pod, reasons: Sequence[Reason]) -> list[Fix]:
    """For the reasons of these that are about what is missing; none for the others."""
    return [fix for reason in reasons if is_advised(reason) for fix in _OF[reason.code](world, pod, reason)]


def is_advised(reason: Reason) -> bool:
    """Whether there is more to say than what cures such reasons in general."""
    return reason.code in _OF


def _gates(world: World, pod: Pod, reason: Reason) -> Iterator[Fix]:
    names = ", ".join(gate.name for gate in pod.spec.scheduling_gates)
    command = patch(pod, {"op": "remove", "path": "/spec/schedulingGates"})
    yield Fix(f"remove the scheduling gates {names}, or let whoever set them do so", command)


def _claim(world: World, pod: Pod, reason: Reason) -> Iterator[Fix]:
    yield from _absent(world, pod, RESOURCE_CLAIMS, reason.object.rpartition("/")[2], _requests(world))


def _template(world: World, pod: Pod, reason: Reason) -> Iterator[Fix]:
    yield from _absent(world, pod, RESOURCE_CLAIM_TEMPLATES, str(reason.data.get("template")), {"spec": _requests(world)})


def _volume(world: World, pod: Pod, reason: Reason) -> Iterator[Fix]:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    yield from _absent(world, pod, PERSISTENT_VOLUME_CLAIMS, str(reason.data.get("claim")).rpartition("/")[2], spec)


def _class(world: World, pod: Pod, reason: Reason) -> Iterator[Fix]:
    slices = world.all(RESOURCE_SLICES).values() if RESOURCE_SLICES in world.kinds else ()
    driver = min((each.spec.driver for each in slices), default="DRIVER")
    spec = {"selectors": [{"cel": {"expression": f"device.driver == '{driver}'"}}]}
    yield from _absent(world, pod, DEVICE_CLASSES, str(reason.data.get("class")), spec)


def _resource(world: World, pod: Pod, reason: Reason) -> Iterator[Fix]:
    """An extended resource that neither a node nor a class offers."""
    name = str(reason.data.get("resource"))
    classes: Sequence[DeviceClass] = list(world.all(DEVICE_CLASSES).values()) if DEVICE_CLASSES in world.kinds else ()
    implicit = {IMPLICIT_RESOURCE_PREFIX + each.metadata.name: each.metadata.name for each in classes}
    served = {each.spec.extended_resource_name: each.metadata.name for each in classes if each.spec.extended_resource_name}
    if name.startswith(IMPLICIT_RESOURCE_PREFIX) and name not in implicit:
        yield from _class(world, pod, Reason("ClassMissing", "", {"class": name.removeprefix(IMPLICIT_RESOURCE_PREFIX)}))
        return
    if serving := served.get(name) or implicit.get(name):
        yield Fix(f"switch on the feature gate DRAExtendedResource: then device class {serving} serves {name}")
        return
    offered = {each for each in offered_by(world.all(NODES).values()) if "/" in each}
    for near in get_close_matches(name, sorted(offered | served.keys()), 1, 0.85):
        yield Fix(f"ask for {near}, which there is, instead of {name}")
    if free := sorted(each.metadata.name for each in classes if not each.spec.extended_resource_name):
        change = shlex.quote(msgspec.json.encode({"spec": {"extendedResourceName": name}}).decode())
        such = nearest(name.rpartition("/")[2], free) or free[0]
        command = f"kubectl patch deviceclass {such} --type merge -p {change}"
        yield Fix(f"let a device class serve {name}, such as {such}", command)
    yield Fix(f"add a node that offers {name}")


def _queue(world: World, pod: Pod, reason: Reason) -> Iterator[Fix]:
    """A pod that names its queue itself can be told another; what makes it, and a pod group, are changed where they are."""
    name = reason.object.partition("/")[2]
    above = {each.spec.parent_queue for each in world.all(QUEUES).values()}
    near = nearest(name, [each for each in world.all(QUEUES) if each not in above])
    if near is not None:
        own = pod.metadata.labels.get(QUEUE_LABEL) == name
        where = "" if own else " in the pod group"
        told = f"name queue {near}, which exists, instead of {name}{where}{_template_too(pod) if own else ''}"
        yield Fix(told, label(pod, f"{QUEUE_LABEL}={near}") if own else "")
    anything = {"quota": 0, "limit": -1, "overQuotaWeight": 1}
    spec = {"resources": {"gpu": anything, "cpu": anything, "memory": anything}}
    yield _made(QUEUES, "", name, spec, ", with a quota as it deserves")


def _below(world: World, pod: Pod, reason: Reason) -> Iterator[Fix]:
    """A queue that has others below it takes no pods."""
    name = reason.object.partition("/")[2]
    above = {each.spec.parent_queue for each in world.all(QUEUES).values()}
    lowest = sorted(key for key in world.all(QUEUES) if key not in above and name in _over(world, key))
    own = pod.metadata.labels.get(QUEUE_LABEL) == name
    where = _template_too(pod) if own else " in the pod group"
    yield Fix(
        f"name a queue below it that has none itself ({', '.join(lowest)}){where}",
        label(pod, f"{QUEUE_LABEL}={lowest[0]}") if own and lowest else "",
    )


def _over(world: World, name: str) -> set[str]:
    """The queues above this one, also where they go round in a circle."""
    found: set[str] = set()
    while (queue := world.get(QUEUES, name)) is not None and queue.spec.parent_queue not in found:
        name = queue.spec.parent_queue
        found.add(name)
    return found


def _group(world: World, pod: Pod, reason: Reason) -> Iterator[Fix]:
    namespace, _, name = reason.object.partition("/")[2].rpartition("/")
    if POD_GROUP_ANNOTATION not in pod.metadata.annotations:
        yield from _absent(world, pod, CORE_POD_GROUPS, name, {"schedulingPolicy": {"gang": {"minCount": 1}}})
        return
    groups = world.all(POD_GROUPS).values() if POD_GROUPS in world.kinds else ()
    near = nearest(name, [each.metadata.name for each in groups if each.metadata.namespace == namespace])
    if near is not None:
        told = f"name PodGroup {near}, which exists, instead of {name}{_template_too(pod)}"
        yield Fix(told, annotate(pod, f"{POD_GROUP_ANNOTATION}={near}"))
    if others := sorted(each.metadata.namespace for each in groups if each.metadata.name == name):
        yield Fix(f"make the pod in namespace {others[0]}, where there is a PodGroup {name}, or the PodGroup in {namespace}")
    queue = pod.metadata.labels.get(QUEUE_LABEL)
    spec = {"minMember": 1, **({"queue": queue} if queue else {})}
    yield _made(POD_GROUPS, namespace, name, spec, ", with as many members as start together")
    yield Fix(f"let the pod start without a pod group{_template_too(pod)}", annotate(pod, f"{POD_GROUP_ANNOTATION}-"))


def _topology(world: World, pod: Pod, reason: Reason) -> Iterator[Fix]:
    name, level = str(reason.data.get("topology") or ""), reason.data.get("level")
    there = world.all(TOPOLOGIES) if TOPOLOGIES in world.kinds else {}
    if level is not None:
        levels = [each.node_label for each in there[name].spec.levels] if name in there else []
        yield Fix(
            f"name a level that topology {name} has in topologyConstraint instead of {level}: {', '.join(levels) or 'none'}"
        )
        return
    if (near := nearest(name, list(there))) is not None:
        yield Fix(f"name Topology {near}, which exists, instead of {name} in topologyConstraint")
    asked = [{"nodeLabel": each} for each in _levels(world, pod, reason, name)] or [{"nodeLabel": "kubernetes.io/hostname"}]
    yield _made(TOPOLOGIES, "", name, {"levels": asked}, ", with the levels that count")


def _levels(world: World, pod: Pod, reason: Reason, topology: str) -> Iterable[str]:
    """The levels that are asked for of a topology, the widest first."""
    group: PodGroup | None = world.get(POD_GROUPS, reason.object.partition("/")[2]) if POD_GROUPS in world.kinds else None
    of = [group.spec.topology_constraint, *(part.topology_constraint for part in group.spec.sub_groups)] if group else []
    said = [annotated(pod), *(each for each in of if each is not None)]
    named = [each for each in said if each.topology == topology]
    levels = [each.required_topology_level for each in named] + [each.preferred_topology_level for each in named]
    return dict.fromkeys(level for level in levels if level)


def _template_too(pod: Pod) -> str:
    """What is changed in a pod alone is as it was in the next that its owner makes."""
    owner = pod.metadata.controller
    return f", in the template of {owner.kind} {owner.name} too" if owner is not None else ""


def _failed(world: World, pod: Pod, reason: Reason) -> Iterator[Fix]:
    """A claim whose device failed after pods began to run with it: it stays as it is, and takes nobody else."""
    claim: ResourceClaim | None = world.get(RESOURCE_CLAIMS, str(reason.data.get("claim")))
    users = {user.uid for user in claim.status.reserved_for} if claim is not None else set()
    running = sorted(each.metadata.name for each in world.all(PODS).values() if each.uid in users and each.spec.node_name)
    if claim is None or not running:
        return
    where, name = pod.metadata.namespace, claim.metadata.name
    told = f"let the driver report that {reason.data.get('condition')} is over: until then claim {name} takes no further pods"
    yield Fix(told, f"kubectl get resourceclaim {name} -n {where} -o yaml")
    commands = "\n".join(f"kubectl delete pod {each} -n {where}" for each in running)
    yield Fix(
        f"end {', '.join(running)}, which run{'s' if len(running) == 1 else ''} with claim {name}: it is allocated again",
        commands,
    )


def undelivered(world: World, pod: Pod, gates: Gates) -> list[str]:
    """Extended resources of a pod on a node that nobody gave it: devices serve them, and only a scheduler makes the claim."""
    node: Node | None = world.get(NODES, pod.spec.node_name)
    if node is None or pod.status.extended_resource_claim_status is not None or not gates("DRAExtendedResource"):
        return []
    classes = ClassNames()
    for each in world.all(DEVICE_CLASSES).values() if DEVICE_CLASSES in world.kinds else ():
        classes.put(each)
    names = sorted(name for name in wanted_names(pod.spec, classes) if not amounts(node.status.allocatable).get(name))
    told = "it runs without {0}: no device plugin of node {1} offers it, and no scheduler made a claim for the pod"
    return [told.format(name, pod.spec.node_name) for name in names]


def nowhere(world: World, refusals: Sequence[Sequence[Reason]]) -> list[Reason]:
    """The resources that no node offers: of what some node says so, what is nowhere. A node that refuses for something else, such
    as a taint, says nothing of it."""
    said = {
        str(reason.data.get("resource")): reason for reasons in refusals for reason in reasons if reason.code == "ResourceUnknown"
    }
    offered = offered_by(world.all(NODES).values())
    return [reason for name, reason in said.items() if name not in offered]


_OF: Final[dict[str, Callable[[World, Pod, Reason], Iterator[Fix]]]] = {
    "SchedulingGated": _gates,
    "ClaimMissing": _claim,
    "TemplateMissing": _template,
    "VolumeClaimMissing": _volume,
    "ClassMissing": _class,
    "ResourceUnknown": _resource,
    "BindingFailed": _failed,
    "QueueMissing": _queue,
    "QueueHasChildren": _below,
    "PodGroupMissing": _group,
    "TopologyMissing": _topology,
}


def _absent(world: World, pod: Pod, kind: Kind, name: str, spec: Json) -> Iterator[Fix]:
    namespace = pod.metadata.namespace if kind.namespaced else ""
    where = f" -n {namespace}" if namespace else ""
    found = world.all(kind).values() if kind in world.kinds else ()
    names = [each.metadata.name for each in found if each.metadata.namespace == namespace]
    if (near := nearest(name, names)) is not None:
        look = f"kubectl get {kind.resource} {near}{where} -o yaml"
        yield Fix(f"name {kind.kind} {near}, which exists, instead of {name}", look)
    yield _made(kind, namespace, name, spec)


def _made(kind: Kind, namespace: str, name: str, spec: Json, how: str = "") -> Fix:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    made = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}
    # In one line: what is shown is indented, and a document that ends with a mark at the beginning of a line would not end.
    command = f"echo {shlex.quote(msgspec.json.encode(made).decode())} | kubectl apply -f -"
    return Fix(f"create {kind.kind} {namespace + '/' if namespace else ''}{name}{how}", command)


def _requests(world: World) -> Json:
    """One device of a class that there is."""
    classes = world.all(DEVICE_CLASSES).values() if DEVICE_CLASSES in world.kinds else ()
    name = min((each.metadata.name for each in classes), default="CLASS")
    return {"devices": {"requests": [{"name": "device", "exactly": {"deviceClassName": name}}]}}


def nearest(name: str, names: Sequence[str]) -> str | None:
    """The name that was probably meant: alike as a whole, and before the domain, which many names share."""
    stems = {each: each.partition(".")[0] for each in names}
    alike = get_close_matches(name.partition(".")[0], sorted(set(stems.values())), len(stems) or 1, 0.66)
    return next(iter(get_close_matches(name, sorted(each for each in names if stems[each] in alike), 1, 0.8)), None)
