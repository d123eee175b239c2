"""The claims of a pod, also the one for its extended resources that its status does not name yet.

A scheduler tells the status last where devices must be made ready: meanwhile the pod has a nominated node, and the claim is
found by its owner.
"""

from __future__ import annotations

from collections.abc import Iterator

from dray.api.consumers import claims_of
from dray.api.core import Pod
from dray.api.kinds import RESOURCE_CLAIMS
from dray.api.resource import ResourceClaim
from dray.cluster.world import World
from dray.scheduling.shape.extended import owner_uid


def claims_in(world: World, pod: Pod) -> Iterator[ResourceClaim]:
    """Those that exist, as the pod names them."""
    for key in claims_of(pod):
        claim: ResourceClaim | None = world.get(RESOURCE_CLAIMS, key)
        if claim is not None:
            yield claim
    status = pod.status
    if status.nominated_node_name and status.extended_resource_claim_status is None and not pod.spec.node_name:
        yield from (claim for claim in world.all(RESOURCE_CLAIMS).values() if pod.uid in owner_uid(claim))
