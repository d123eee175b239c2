"""The cluster as it might be: what the scheduler's session makes of a pod there.

A change is told by the objects as they would be. Always true: what is found out is what a session decides on the world with the
change and everything else as it is, so others whose turn it is before have what they would take; the number of such sessions is
bounded, by how large the cluster is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from dray.api.core import Node, Pod, PodStatus
from dray.api.gates import Gates
from dray.api.kinds import NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES, Kind
from dray.api.resource import ResourceClaim, ResourceClaimStatus, ResourceSlice
from dray.cluster.world import World
from dray.devices.changes import Change, changed_claim
from dray.explain.failures import FailedBinding
from dray.explain.held import hold
from dray.explain.owners import comes_again
from dray.nodes.attaching import FROM
from dray.scheduling.config import Config
from dray.scheduling.kinds import KINDS
from dray.scheduling.plugins.node import UNSCHEDULABLE_TAINT
from dray.scheduling.scheduler import Scheduler
from dray.scheduling.shape.extended import is_special
from dray.scheduling.workloads.jobs import Job
from dray.scheduling.workloads.session import Session

# Sessions on changed worlds; in large clusters, where each costs more, fewer.
_MOST_SESSIONS: Final = 60
_FEWEST_SESSIONS: Final = 8
_NODES_IN_ALL: Final = 20_000
_HOST: Final = "kubernetes.io/hostname"
# What the uids of pods and claims begin with that would be made in the place of others.
AGAIN: Final = "again-"

Changed = Mapping[Kind, Mapping[str, Any]]
"""Objects as they would be, by kind and key; None for those that would not be there."""


class Sessions:
    """How many may be held in all, and are left."""

    def __init__(self, world: World) -> None:
        nodes = len(world.all(NODES)) if NODES in world.kinds else 0
        self.left = self.most = max(_FEWEST_SESSIONS, min(_MOST_SESSIONS, _NODES_IN_ALL // max(nodes, 1)))


class Then(NamedTuple):
    """A session that was held on a changed world; ``job``: the pod's, where it is of one there."""

    scheduler: Scheduler
    session: Session
    job: Job | None

    def starts(self, pods: Iterable[Pod]) -> bool:
        """Whether all of these, which are of the job, have their places, and nobody has to go for them."""
        job = self.job
        return job is not None and job.key not in self.session.plans and not any(pod.uid in job.waiting for pod in pods)

    @property
    def waiting(self) -> Iterator[Pod]:
        """Who waits after the session."""
        return (job.pods[uid] for job in self.scheduler.workloads.jobs for uid in job.waiting)


class Supposed:
    """``sessions``: those that may still be held; several may share them."""

    def __init__(
        self,
        world: World,
        pod: Pod,
        config: Config,
        gates: Gates | None,
        now: float,
        failures: Sequence[FailedBinding],
        sessions: Sessions | None = None,
    ) -> None:
        self._world, self._pod, self._config, self._gates, self._now = world, pod, config, gates, now
        self._failures = failures
        self.sessions = sessions or Sessions(world)

    def then(self, changed: Changed) -> Then:
        self.sessions.left -= 1
        objects: dict[Kind, Mapping[str, Any]] = {
            kind: self._world.all(kind) if kind in self._world.kinds else {} for kind in KINDS
        }
        for kind, those in changed.items():
            after = {**objects[kind], **those}
            objects[kind] = {key: each for key, each in after.items() if each is not None}
        scheduler, session, _ = hold(World.of(objects), self._config, self._gates, self._now, self._failures)
        return Then(scheduler, session, scheduler.workloads.jobs.of(self._pod.uid))


# --------------------------------------------------------------------------------------------------------------- changes


def with_pods(pods: Iterable[Pod]) -> Changed:
    return {PODS: {pod.key: pod for pod in pods}}


def with_nodes(nodes: Iterable[Node]) -> Changed:
    return {NODES: {node.metadata.name: node for node in nodes}}


def uncordoned(node: Node) -> Node:
    taints = tuple(taint for taint in node.spec.taints if taint.key != UNSCHEDULABLE_TAINT.key)
    return msgspec.structs.replace(node, spec=msgspec.structs.replace(node.spec, unschedulable=False, taints=taints))


def untainted(node: Node, taint: Mapping[str, Any]) -> Node:
    left = tuple(each for each in node.spec.taints if (each.key, each.effect) != (taint["key"], taint["effect"]))
    return msgspec.structs.replace(node, spec=msgspec.structs.replace(node.spec, taints=left))


def labelled(node: Node, label: str, value: str | None) -> Node:
    """With a label, or without it."""
    labels = {name: each for name, each in node.metadata.labels.items() if name != label}
    labels |= {label: value} if value is not None else {}
    return msgspec.structs.replace(node, metadata=msgspec.structs.replace(node.metadata, labels=labels))


def without(world: World, pods: Iterable[Pod]) -> Changed:
    """As if these had ended: what was reserved for them alone is nobody's. Whoever a controller makes again waits, the youngest
    of all: a controller does that at once, while the room of the old pod is not free yet."""
    gone = {pod.uid: pod for pod in pods}
    youngest = max(pod.metadata.creation_timestamp or "" for pod in world.all(PODS).values())
    again = {uid: _made_again(pod, youngest or None) for uid, pod in gone.items() if comes_again(pod)}
    claims: dict[str, ResourceClaim | None] = {}
    for claim in world.all(RESOURCE_CLAIMS).values():
        owner = claim.metadata.controller
        if owner is not None and owner.uid in again and is_special(claim):
            claims[claim.key] = None
        elif any(user.uid in gone for user in claim.status.reserved_for):
            left = tuple(user for user in claim.status.reserved_for if user.uid not in gone)
            status = msgspec.structs.replace(claim.status, reserved_for=left) if left else ResourceClaimStatus()
            claims[claim.key] = _of_the_new(msgspec.structs.replace(claim, status=status), again)
    return {PODS: {pod.key: again.get(uid) for uid, pod in gone.items()}, RESOURCE_CLAIMS: claims}


def _made_again(pod: Pod, created: str | None) -> Pod:
    """Under the old name, which stands for the new one."""
    metadata = msgspec.structs.replace(pod.metadata, uid=f"{AGAIN}{pod.uid}", creation_timestamp=created, deletion_timestamp=None)
    status = PodStatus(resource_claim_statuses=pod.status.resource_claim_statuses)
    return msgspec.structs.replace(pod, metadata=metadata, spec=msgspec.structs.replace(pod.spec, node_name=""), status=status)


def _of_the_new(claim: ResourceClaim, again: Mapping[str, Pod]) -> ResourceClaim:
    """One that was made for a pod is made anew with it."""
    owner = claim.metadata.controller
    if owner is None or owner.uid not in again:
        return claim
    owners = (msgspec.structs.replace(owner, uid=again[owner.uid].uid),)
    metadata = msgspec.structs.replace(claim.metadata, uid=f"{AGAIN}{claim.uid}", owner_references=owners)
    return msgspec.structs.replace(claim, metadata=metadata)


def claim_changed(world: World, change: Change) -> Changed:
    """With what the allocator would do with one claim; nothing where that cannot be told."""
    claim: ResourceClaim | None = world.get(RESOURCE_CLAIMS, change.claim)
    if claim is None:
        return {}
    if change.kind == "release":
        uids = {user.uid for user in claim.status.reserved_for}
        users = [pod for pod in world.all(PODS).values() if pod.uid in uids]
        freed = {claim.key: msgspec.structs.replace(claim, status=ResourceClaimStatus())}
        return without(world, users) if users else {RESOURCE_CLAIMS: freed}
    return {RESOURCE_CLAIMS: {claim.key: changed_claim(claim, change)}}


def added(world: World, node: Node, count: int) -> Changed:
    """So many nodes more that are like this one, with devices of their own."""
    name = node.metadata.name
    # What a fabric attached to the node no other node has.
    slices_there: Iterable[ResourceSlice] = world.all(RESOURCE_SLICES).values() if RESOURCE_SLICES in world.kinds else ()
    own = [each for each in slices_there if each.spec.node_name == name and FROM not in each.metadata.labels]
    made: dict[str, Node] = {}
    slices: dict[str, ResourceSlice] = {}
    for number in range(1, count + 1):
        new = f"{name}-added-{number}"
        labels = {**node.metadata.labels, **({_HOST: new} if _HOST in node.metadata.labels else {})}
        metadata = msgspec.structs.replace(node.metadata, name=new, uid=new, labels=labels)
        made[new] = msgspec.structs.replace(node, metadata=metadata)
        for each in own:
            pool = msgspec.structs.replace(each.spec.pool, name=f"{each.spec.pool.name}-added-{number}")
            called = f"{each.metadata.name}-added-{number}"
            spec = msgspec.structs.replace(each.spec, node_name=new, pool=pool)
            of_slice = msgspec.structs.replace(each.metadata, name=called, uid=called)
            slices[called] = msgspec.structs.replace(each, metadata=of_slice, spec=spec)
    return {NODES: made, RESOURCE_SLICES: slices}
