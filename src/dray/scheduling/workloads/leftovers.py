"""What an earlier attempt left to the pods of a job that does not start: claims that are allocated, and that nobody uses.

Always true: a claim that another pod has, or is about to have, is none of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from dray.api.kinds import RESOURCE_CLAIMS
from dray.api.resource import ResourceClaim
from dray.cluster.world import World
from dray.scheduling.binding.intents import Intents
from dray.scheduling.shape.claims import claim_keys
from dray.scheduling.workloads.jobs import Job


def left_over(job: Job, world: World, intents: Intents) -> Iterator[ResourceClaim]:
    """Given back, they are others' to have, and the job's to get where it fits. Pods that are promised a node keep theirs."""
    for pending in job.waiting.values():
        for key in claim_keys(pending.pod) if pending.pod.spec.resource_claims and not pending.nominated else ():
            claim: ResourceClaim | None = world.get(RESOURCE_CLAIMS, key)
            if claim is None or claim.status.allocation is None or intents.clearing(key):
                continue
            if {consumer.uid for consumer in claim.status.reserved_for} | intents.joining(claim) <= job.waiting.keys():
                yield claim
