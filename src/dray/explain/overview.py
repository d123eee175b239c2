"""All pods that wait, by cause: what stands against most pods, and worst, first.

Pods that the scheduler cannot tell apart are asked about once; pods with the same answer are one cause.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from dray.api.consumers import claim_names
from dray.api.core import Pod
from dray.api.gates import Gates
from dray.api.kinds import PODS, REPLICA_SETS, RESOURCE_CLAIMS, Kind
from dray.api.queues import POD_GROUP_ANNOTATION
from dray.api.reason import Reason
from dray.cluster.world import World
from dray.explain.answer import VerdictName
from dray.explain.claimed import claims_in
from dray.explain.failures import FailedBinding
from dray.explain.fix import Fix
from dray.explain.owners import owner_of
from dray.explain.queued import Outlooks
from dray.explain.snapshot import without_collecting
from dray.explain.why import why
from dray.scheduling.ask import Ask
from dray.scheduling.config import Config
from dray.scheduling.placing.refusal import Refusal, told
from dray.scheduling.placing.state import NotPlaced
from dray.scheduling.scheduler import Scheduler
from dray.scheduling.waiting import pauses

_WORST: Final = ("impossible", "unschedulable", "waiting", "bound")
# What can be asked about, by what people write before the slash: pods, and what has pods.
ASKED: Final = {
    **dict.fromkeys(("po", "pod", "pods"), "Pod"),
    **dict.fromkeys(("claim", "claims", "resourceclaim", "resourceclaims"), "ResourceClaim"),
    **dict.fromkeys(("pg", "podgroup", "podgroups"), "PodGroup"),
    **dict.fromkeys(("deploy", "deployment", "deployments"), "Deployment"),
    **dict.fromkeys(("job", "jobs"), "Job"),
    **dict.fromkeys(("rs", "replicaset", "replicasets"), "ReplicaSet"),
    **dict.fromkeys(("sts", "statefulset", "statefulsets"), "StatefulSet"),
    **dict.fromkeys(("ds", "daemonset", "daemonsets"), "DaemonSet"),
}


class Cause(msgspec.Struct):
    """Why these pods wait. ``summary`` has no name of a pod in it; ``fixes`` are of the first of them."""

    verdict: VerdictName
    summary: str
    pods: list[str]
    reasons: list[Reason]
    fixes: list[str] = []
    advice: list[Fix] = []


def waiting(pods: Iterable[Pod]) -> list[Pod]:
    """Those that have no node and could get one, by name."""
    found = [pod for pod in pods if not pod.spec.node_name and not pod.terminal and not pod.metadata.deletion_timestamp]
    return sorted(found, key=lambda pod: pod.key)


def pods_of(world: World, kind: str, namespace: str, name: str) -> list[Pod]:
    """The pods of a workload, those of a deployment through its replica sets; of a claim those that use it, of a group those
    that start together."""
    if kind in _NAMED_BY_PODS:
        return [pod for pod in world.all(PODS).values() if _in(pod, namespace) and name in _NAMED_BY_PODS[kind](world, pod)]
    owners = {(kind, name)}
    if kind == "Deployment":
        sets = (world.all(REPLICA_SETS) if REPLICA_SETS in world.kinds else {}).values()
        owners |= {("ReplicaSet", each.metadata.name) for each in sets if _owned(each, owners) and _in(each, namespace)}
    return [pod for pod in world.all(PODS).values() if _in(pod, namespace) and _owned(pod, owners)]


def names_of(world: World, kind: str, namespace: str) -> set[str]:
    """Everything of the kind whose pods ``pods_of`` would find: what a name that finds none may have meant."""
    pods = [pod for pod in world.all(PODS).values() if _in(pod, namespace)]
    if kind in _NAMED_BY_PODS:
        return {name for pod in pods for name in _NAMED_BY_PODS[kind](world, pod) if name}
    direct = {(owner.kind, owner.name) for pod in pods for owner in pod.metadata.owner_references}
    above = {(of, name) for pod in pods for of, _, name in [owner_of(world, pod).partition("/")]}
    return {name for of, name in direct | above if of == kind}


def _claims(world: World, pod: Pod) -> list[str]:
    """Also those that do not exist; of extended resources also the one that its status does not name yet."""
    there = (claim.metadata.name for claim in claims_in(world, pod)) if RESOURCE_CLAIMS in world.kinds else ()
    return [*(name for _, name in claim_names(pod) if name), *there]


def _groups(_: World, pod: Pod) -> list[str]:
    core = pod.spec.scheduling_group
    return [pod.metadata.annotations.get(POD_GROUP_ANNOTATION, ""), core.pod_group_name or "" if core is not None else ""]


_NAMED_BY_PODS: Final[Mapping[str, Callable[[World, Pod], list[str]]]] = {"ResourceClaim": _claims, "PodGroup": _groups}


def _in(found: Pod, namespace: str) -> bool:
    return found.metadata.namespace == namespace


def _owned(found: Pod, owners: set[tuple[str, str]]) -> bool:
    return any((owner.kind, owner.name) in owners for owner in found.metadata.owner_references)


@without_collecting()
def causes(
    world: World,
    pods: Sequence[Pod],
    *,
    now: float,
    config: Config | None = None,
    gates: Gates | None = None,
    failures: Sequence[FailedBinding] = (),
    unknown: Mapping[Kind, str] | None = None,
) -> list[Cause]:
    """Why these pods wait, worst first, then what most of them wait for."""
    gates = gates or Gates.dray()
    ask = Ask(Scheduler(world, config, gates), now)
    outlooks = Outlooks(world, now, config, gates, failures)
    alike: dict[Hashable, list[Pod]] = {}
    for pod in pods:
        alike.setdefault((_key(ask, pod), _in_queue(outlooks, pod)), []).append(pod)
    found: dict[tuple[str, str], Cause] = {}
    for group in alike.values():
        answer = why(
            world,
            group[0],
            now=now,
            config=config,
            gates=gates,
            failures=failures,
            unknown=unknown or {},
            outlooks=outlooks,
        )
        said = answer.summary.removeprefix(f"pod {group[0].key} ")
        cause = found.get((answer.verdict, said))
        if cause is None:
            cause = Cause(answer.verdict, said, [], answer.reasons, answer.fixes, answer.advice)
            found[answer.verdict, said] = cause
        cause.pods += [pod.key for pod in group]
    return sorted(found.values(), key=lambda cause: (_WORST.index(cause.verdict), -len(cause.pods), cause.summary))


def _in_queue(outlooks: Outlooks, pod: Pod) -> Hashable:
    """Pods of one queue and one group that are refused for the same are alike; for whom room is made is told by itself."""
    found = outlooks.of(pod)
    if found is None:
        return None
    return pod.uid if found.evicts is not None else (found.place.queue, found.place.group, _said(found.refusal))


def _said(refusal: Refusal | None) -> Hashable:
    """What stands against the pod as such, which of its own is not in what it asks of nodes: its annotations, its pod group."""
    if refusal is None:
        return None
    own = (told(reason) for reason, count in refusal.reasons if not count)
    # Of pods that are refused for what they say, each is called by its name.
    return frozenset(said[:1] + said[2:] if str(said[1]).startswith("pod/") else said for said in own)


def _key(ask: Ask, pod: Pod) -> Hashable:
    """Equal keys, equal answers. What is under way for one pod, or refused it by name, is its own."""
    try:
        state = ask.state(pod)
    except NotPlaced:
        return pod.uid
    promised = pod.status.nominated_node_name or pod.spec.scheduling_gates or pauses.told(pod)
    own = promised or state.unusable or state.resolved.pinned
    return pod.uid if own else (state.key, state.demand.priority, pod.metadata.namespace)
