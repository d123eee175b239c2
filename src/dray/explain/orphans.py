"""Claims, who uses them, and those that hold something for nobody.

A claim is an orphan when nothing that exists needs what it holds: it is reserved for pods that are gone or have ended, it is
allocated and no pod uses it, its pod is gone, or it is being deleted and only a finalizer keeps it. Always true: a claim is never
called unused while a pod that exists, and has not ended, is in its reservations or is on a node and names it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from dray.api.consumers import claims_of, is_pod
from dray.api.core import Pod
from dray.api.kinds import PODS, RESOURCE_CLAIMS
from dray.api.resource import DeviceKey, ResourceClaim
from dray.api.times import parse_time
from dray.cluster.world import World

# What is younger may be on its way.
YOUNG_SECONDS: Final = 60.0


class ClaimRow(msgspec.Struct, rename="camel"):
    """One claim as people see it. ``orphan`` says why nobody needs it; empty where somebody may."""

    namespace: str
    name: str
    state: str
    devices: list[str]
    users: list[str]
    owner: str
    age_seconds: float | None
    finalizers: list[str]
    orphan: str = ""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class Usage(msgspec.Struct, rename="camel"):
    """Who uses a claim, and what shows that nobody else does."""

    using: list[str]
    proof: list[str]
    owner_gone: bool


def usage(claim: ResourceClaim, pods: Iterable[Pod]) -> Usage:
    """From the pods of the claim's namespace: all of them, where it is to be a proof."""
    by_uid = {pod.uid: pod for pod in pods}
    by_name = {pod.metadata.name for pod in by_uid.values()}
    using, proof = [], []
    for user in claim.status.reserved_for:
        pod = by_uid.get(user.uid)
        if not is_pod(user):
            using.append(f"{user.resource} {user.name}, of which only its controller knows")
        elif pod is None:
            other = " (a later pod has its name)" if user.name in by_name else ""
            proof.append(f"pod {user.name} ({user.uid}) does not exist{other}")
        elif pod.terminal:
            proof.append(f"pod {user.name} has ended ({pod.status.phase})")
        else:
            using.append(_told(pod))
    reserved = {user.uid for user in claim.status.reserved_for}
    for pod in by_uid.values():
        if pod.uid not in reserved and claim.key in claims_of(pod):
            if pod.spec.node_name and not pod.terminal:
                using.append(_told(pod))
            else:
                ended = f"has ended ({pod.status.phase})" if pod.terminal else "waits and has no node"
                proof.append(f"pod {pod.metadata.name} names the claim, and {ended}")
    if not claim.status.reserved_for:
        proof.append("the claim is reserved for nobody")
    proof.append(f"of {len(by_uid)} pods in namespace {claim.metadata.namespace} none on a node uses it")
    return Usage(using, proof, _owner_gone(claim, by_uid))


def claim_rows(world: World, now: float) -> list[ClaimRow]:
    """Every claim, by namespace and name."""
    naming: dict[str, list[Pod]] = {}
    for pod in world.all(PODS).values():
        for key in claims_of(pod):
            naming.setdefault(key, []).append(pod)
    claims: list[ResourceClaim] = [claim for _, claim in sorted(world.all(RESOURCE_CLAIMS).items())]
    by_uid = {pod.uid: pod for pod in world.all(PODS).values()}
    return [_row(claim, _nearby(claim, naming, by_uid), now) for claim in claims]


def _nearby(claim: ResourceClaim, naming: dict[str, list[Pod]], by_uid: dict[str, Pod]) -> list[Pod]:
    """The pods that can have to do with a claim."""
    owner = claim.metadata.controller
    uids = [user.uid for user in claim.status.reserved_for] + ([owner.uid] if owner is not None else [])
    found = {pod.uid: pod for pod in naming.get(claim.key, ())}
    return list((found | {uid: by_uid[uid] for uid in uids if uid in by_uid}).values())


def _row(claim: ResourceClaim, pods: list[Pod], now: float) -> ClaimRow:
    results = claim.status.allocation.devices.results if claim.status.allocation is not None else ()
    owner = claim.metadata.controller
    age = _age(claim.metadata.creation_timestamp, now)
    return ClaimRow(
        claim.metadata.namespace,
        claim.metadata.name,
        _state(claim),
        [str(DeviceKey.of(result)) for result in results],
        [user.name for user in claim.status.reserved_for],
        f"{owner.kind}/{owner.name}" if owner is not None else "",
        age,
        list(claim.metadata.finalizers),
        _orphan(claim, usage(claim, pods), age, now),
    )


def _state(claim: ResourceClaim) -> str:
    if claim.metadata.deletion_timestamp is not None:
        return "deleting"
    if claim.status.allocation is None:
        return "pending"
    return "in use" if claim.status.reserved_for else "allocated"


def _orphan(claim: ResourceClaim, found: Usage, age: float | None, now: float) -> str:
    """Why nobody needs the claim, or nothing."""
    if found.using or (age is not None and age < YOUNG_SECONDS):
        return ""
    if claim.metadata.deletion_timestamp is not None:
        held = ", ".join(claim.metadata.finalizers) or "nothing"
        late = _age(claim.metadata.deletion_timestamp, now)
        return f"is being deleted, and only {held} keeps it" if late is None or late >= YOUNG_SECONDS else ""
    if claim.status.reserved_for:
        return (
            "is reserved for " + ("a pod that is" if len(claim.status.reserved_for) == 1 else "pods that are") + " gone or ended"
        )
    if found.owner_gone:
        owner = claim.metadata.controller
        return f"was made for pod {owner.name if owner else ''}, which is gone or has ended"
    if claim.status.allocation is not None:
        return "is allocated, and no pod uses it"
    return ""


def _owner_gone(claim: ResourceClaim, by_uid: dict[str, Pod]) -> bool:
    owner = claim.metadata.controller
    if owner is None or owner.kind != "Pod":
        return False
    pod = by_uid.get(owner.uid)
    return pod is None or pod.terminal


def _told(pod: Pod) -> str:
    where = f" on node {pod.spec.node_name}" if pod.spec.node_name else " without a node yet"
    return f"pod {pod.metadata.name}{where} ({pod.status.phase or 'Pending'})"


def _age(time: str | None, now: float) -> float | None:
    try:
        return round(now - parse_time(time), 1) if time else None
    except ValueError:
        return None
