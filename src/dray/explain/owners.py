"""Whose pods are: what makes them again, and which others are of the same work."""

from __future__ import annotations

from collections.abc import Iterable

from dray.api.core import Pod
from dray.api.kinds import REPLICA_SETS
from dray.api.queues import POD_GROUP_ANNOTATION
from dray.cluster.world import World


def owner_of(world: World, pod: Pod) -> str:
    """``Deployment/web``, ``Job/train``, or nothing."""
    owner = pod.metadata.controller
    if owner is None:
        return ""
    if owner.kind == "ReplicaSet" and REPLICA_SETS in world.kinds:
        found = world.get(REPLICA_SETS, f"{pod.metadata.namespace}/{owner.name}")
        above = found.metadata.controller if found is not None else None
        owner = above or owner
    return f"{owner.kind}/{owner.name}"


def comes_again(pod: Pod) -> bool:
    """Whether somebody makes the pod again when it is deleted. One that a node runs by itself is not ended by that."""
    owner = pod.metadata.controller
    return owner is not None and owner.kind != "Node" and not pod.terminal


def made_again(world: World, pods: Iterable[Pod]) -> str:
    """Who makes pods again that are ended, to be added to their names; nothing where nobody does."""
    owners = sorted({owner for pod in pods if (owner := owner_of(world, pod))})
    return f", which {' and '.join(owners)} make{'s' if len(owners) == 1 else ''} again" if owners else ""


def siblings(pod: Pod, others: Iterable[Pod]) -> set[str]:
    """The uids of those of the same work: whoever ends one of them for the pod has won nothing, and may have broken a gang."""
    owner, group = pod.metadata.controller, pod.metadata.annotations.get(POD_GROUP_ANNOTATION)
    if owner is None and group is None:
        return set()
    return {
        other.uid
        for other in others
        if other.metadata.namespace == pod.metadata.namespace
        if (owner is not None and other.metadata.controller == owner)
        or (group is not None and other.metadata.annotations.get(POD_GROUP_ANNOTATION) == group)
    }
