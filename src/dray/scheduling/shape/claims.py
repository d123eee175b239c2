"""Which claims a pod needs, and in what state they are.

Always true: the order of claims is that of ``spec.resourceClaims``. A claim is *pinned* when it has an allocation, in the
API or decided and being written; else it is *open* and has to be allocated for this pod.
"""

from __future__ import annotations

from typing import Protocol

from dray.api.core import NodeSelector, Pod, PodResourceClaim
from dray.api.kinds import RESOURCE_CLAIMS
from dray.api.resource import RESERVED_FOR_MAX, AllocationResult, DeviceSubRequest, ResourceClaim
from dray.books.nodes import Nodes
from dray.cluster.world import World
from dray.scheduling.placing.refusal import Refusal


class Allocations(Protocol):
    """What is known of claims beyond the API: decisions that are being written."""

    def allocation_of(self, claim: ResourceClaim) -> AllocationResult | None: ...

    def consumers(self, claim: ResourceClaim) -> int: ...


class Refused(Exception):
    """The pod cannot be placed as its claims are."""

    def __init__(self, refusal: Refusal, topics: frozenset[str]) -> None:
        super().__init__(refusal)
        self.refusal = refusal
        self.topics = topics


class Resolved:
    """The claims of one pod."""

    __slots__ = ("allocations", "open", "pinned")

    def __init__(self) -> None:
        self.open: list[ResourceClaim] = []
        self.pinned: list[ResourceClaim] = []
        self.allocations: dict[str, AllocationResult] = {}

    @property
    def all(self) -> list[ResourceClaim]:
        return [*self.open, *self.pinned]

    @property
    def selectors(self) -> list[NodeSelector]:
        found = (self.allocations[claim.uid].node_selector for claim in self.pinned)
        return [selector for selector in found if selector is not None]


def claim_topic(key: str) -> str:
    return f"claim/{key}"


def pod_topic(pod: Pod) -> str:
    return f"pod/{pod.uid}"


def claim_keys(pod: Pod) -> list[str]:
    """Keys of the claims that the pod names so far; generated ones appear with its status."""
    return [f"{pod.metadata.namespace}/{name}" for entry in pod.spec.resource_claims if (name := _name(pod, entry))]


def _name(pod: Pod, entry: PodResourceClaim) -> str | None:
    """None: not created yet. Empty: the template says that no claim is needed."""
    if entry.resource_claim_name is not None:
        return entry.resource_claim_name
    for status in pod.status.resource_claim_statuses:
        if status.name == entry.name:
            return status.resource_claim_name or ""
    return None


def resolve(pod: Pod, world: World, claims: Allocations) -> Resolved:
    """The pod's claims; raises ``Refused`` for what keeps the pod from being tried at all."""
    resolved = Resolved()
    seen: set[str] = set()
    for entry in pod.spec.resource_claims:
        claim = _find(pod, entry, world)
        if claim is None or (uid := claim.metadata.uid) in seen:
            continue
        seen.add(uid)
        allocation = claims.allocation_of(claim)
        if allocation is None and claim.status.allocation is not None:
            # It is being given back. Until the API shows that, its devices are not free, and it gets no others.
            refusal = Refusal.of("ClaimInFlight", f"claim/{claim.key}")
            raise Refused(refusal, frozenset({pod_topic(pod), claim_topic(claim.key)}))
        check_room(pod, claim, claims.consumers(claim))
        if allocation is None:
            resolved.open.append(claim)
        else:
            resolved.pinned.append(claim)
            resolved.allocations[uid] = allocation
    return resolved


def _find(pod: Pod, entry: PodResourceClaim, world: World) -> ResourceClaim | None:
    name = _name(pod, entry)
    if name is None:
        refusal = Refusal.of(
            "ClaimNotCreated", f"pod/{pod.key}", claim=entry.name, template=entry.resource_claim_template_name or ""
        )
        raise Refused(refusal, frozenset({pod_topic(pod)}))
    if not name:
        return None
    key = f"{pod.metadata.namespace}/{name}"
    claim: ResourceClaim | None = world.get(RESOURCE_CLAIMS, key)
    if claim is None:
        code = "ClaimMissing"
    elif claim.metadata.deletion_timestamp is not None:
        code = "ClaimDeleting"
    elif entry.resource_claim_name is None and not owned_by(claim, pod):
        code = "ClaimForeign"
    else:
        return claim
    raise Refused(Refusal.of(code, f"claim/{key}"), frozenset({pod_topic(pod), claim_topic(key)}))


def owned_by(claim: ResourceClaim, pod: Pod) -> bool:
    owner = claim.metadata.controller
    return owner is not None and owner.uid == pod.uid


def reserved_for(claim: ResourceClaim, uid: str) -> bool:
    for consumer in claim.status.reserved_for:
        if consumer.uid == uid:
            return True
    return False


def runs_with(claim: ResourceClaim, nodes: Nodes) -> bool:
    """Whether anything uses the claim that has started: a pod on a node, or something that is no pod."""
    for consumer in claim.status.reserved_for:
        placed = nodes.placed(consumer.uid)
        if consumer.resource != "pods" or consumer.api_group or (placed is not None and placed.standing == "shown"):
            return True
    return False


def check_room(pod: Pod, claim: ResourceClaim, consumers: int) -> None:
    """Whether one more pod may use the claim; raises ``Refused``."""
    if consumers >= RESERVED_FOR_MAX and not reserved_for(claim, pod.uid):
        refusal = Refusal.of("ClaimFull", f"claim/{claim.key}", limit=RESERVED_FOR_MAX)
        raise Refused(refusal, frozenset({pod_topic(pod), claim_topic(claim.key)}))


def requests(claim: ResourceClaim) -> list[tuple[str, DeviceSubRequest]]:
    """Every request and subrequest with its full name."""
    found: list[tuple[str, DeviceSubRequest]] = []
    for request in claim.spec.devices.requests:
        if request.exactly is not None:
            found.append((request.name, request.exactly))
        found.extend((f"{request.name}/{sub.name}", sub) for sub in request.first_available)
    return found
