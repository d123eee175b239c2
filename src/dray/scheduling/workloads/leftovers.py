"""What an earlier attempt left to the pods of a job that does not start: claims that are allocated, or were made for extended
resources, and that nobody uses.

Always true: a claim that another pod has, or is about to have, is none of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from dray.api.core import Pod
from dray.api.kinds import RESOURCE_CLAIMS
from dray.api.resource import ResourceClaim
from dray.cluster.world import World
from dray.scheduling.binding.claims import ClaimWriter
from dray.scheduling.binding.intents import Intents
from dray.scheduling.shape.claims import claim_keys
from dray.scheduling.workloads.jobs import Job


def left_over(job: Job, world: World, claims: ClaimWriter) -> Iterator[tuple[ResourceClaim, Pod]]:
    """Given back, they are others' to have, and the job's to get where it fits. Pods that are promised a node keep theirs."""
    for pod in (pending.pod for pending in job.waiting.values() if not pending.nominated):
        for claim in (*_allocated(pod, world, claims.intents), *claims.made_for(pod.uid)):
            users = {consumer.uid for consumer in claim.status.reserved_for} | claims.intents.joining(claim)
            if users <= job.waiting.keys():
                yield claim, pod


def _allocated(pod: Pod, world: World, intents: Intents) -> Iterator[ResourceClaim]:
    for key in claim_keys(pod) if pod.spec.resource_claims else ():
        claim: ResourceClaim | None = world.get(RESOURCE_CLAIMS, key)
        if claim is not None and claim.status.allocation is not None and not intents.clearing(key):
            yield claim
