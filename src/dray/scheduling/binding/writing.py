"""What a binding writes, and what it asks of claims before it goes on."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from dray.api.core import Pod, PodExtendedResourceClaimStatus
from dray.api.kinds import NODES, PODS, RESOURCE_CLAIMS
from dray.api.meta import decode
from dray.api.reason import Reason
from dray.api.resource import ResourceClaim
from dray.api.selectors import node_selector_matches
from dray.cluster.port import ClusterError, Conflict, NotFound, Write
from dray.cluster.world import World
from dray.scheduling.binding.intents import same_allocation
from dray.scheduling.shape.claims import reserved_for
from dray.scheduling.shape.extended import Special

# So much is told of an error: the name of an object, which may have 253 characters, and what stood against it.
TOLD_MAX: Final = 600


def creation(special: Special, pod: Pod) -> Write:
    return Write("create", RESOURCE_CLAIMS, pod.metadata.namespace, "", special.body(pod), about=pod.key)


def usable(world: World, claim: ResourceClaim, node_name: str, uid: str) -> bool:
    """Whether the claim has devices that the node can use, and has them for this pod."""
    allocation = claim.status.allocation
    if allocation is None or not reserved_for(claim, uid):
        return False
    node = world.get(NODES, node_name)
    return allocation.node_selector is None or node is None or node_selector_matches(allocation.node_selector, node)


def still(world: World, held: ResourceClaim, uid: str) -> ResourceClaim | None:
    """The claim as it is now, unless somebody took from the pod what it waits for."""
    claim: ResourceClaim | None = world.get(RESOURCE_CLAIMS, held.key)
    if claim is None or claim.uid != held.uid or claim.metadata.deletion_timestamp is not None:
        return None
    before, now = held.status.allocation, claim.status.allocation
    if before is None or now is None or not same_allocation(before, now):
        return None
    return claim if reserved_for(claim, uid) else None


def pod_status(pod: Pod, status: dict[str, Any], version: str = "", *, goes_on: bool = False) -> Write:
    metadata, body = pod.metadata, {"status": status}
    return Write(
        "patch",
        PODS,
        metadata.namespace,
        metadata.name,
        body,
        "status",
        uid=pod.uid,
        resource_version=version,
        about=pod.key,
        goes_on=goes_on,
    )


def with_answer(pod: Pod, version: str, answer: dict[str, Any]) -> Pod:
    """The pod as the API has it since a write of its status on this version: only what was written is read, where nothing else
    can have changed."""
    if pod.metadata.resource_version != version:
        return decode(Pod, answer)
    known = answer.get("status", {}).get("extendedResourceClaimStatus")
    named = decode(PodExtendedResourceClaimStatus, known) if known is not None else None
    metadata = replace(pod.metadata, resource_version=answer["metadata"]["resourceVersion"])
    return replace(pod, metadata=metadata, status=replace(pod.status, extended_resource_claim_status=named))


def write_failed(error: ClusterError | None) -> Reason | None:
    """None where deciding again is all there is to say."""
    if error is None or isinstance(error, Conflict | NotFound):
        return None
    return Reason("WriteFailed", "", {"error": str(error)[:TOLD_MAX]})
