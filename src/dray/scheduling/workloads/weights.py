"""How much pods take of what there is least of: devices and extended resources first, then cpu.

Always true: who is heavier is harder to place, and more is lost with it. A claim counts as what it has, or as the devices that it
asks for at least; who only looks (admin access) takes none.
"""

from __future__ import annotations

from collections.abc import Iterable

from dray.api.core import Pod
from dray.api.kinds import RESOURCE_CLAIMS
from dray.api.resource import DeviceRequest, ResourceClaim
from dray.books.demand import Demand
from dray.books.nodes import Placed
from dray.cluster.world import World
from dray.scheduling.shape.claims import claim_keys
from dray.scheduling.waiting.queue import QueuedPod

Weight = tuple[int, int]


class Weights:
    """Of one session, in which claims keep asking for the same."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._devices: dict[str, int] = {}

    def waiting(self, pending: QueuedPod) -> Weight:
        return self._of(pending.pod, pending.demand)

    def placed(self, pods: Iterable[Placed]) -> Weight:
        """Of all of these."""
        weights = [self._of(placed.pod, placed.demand) for placed in pods]
        return sum(first for first, _ in weights), sum(cpu for _, cpu in weights)

    def _of(self, pod: Pod, demand: Demand) -> Weight:
        extended, cpu = 0, 0
        for name, value in demand.requests:
            if name == "cpu":
                cpu = value
            elif "/" in name:
                extended += value
        return extended + (self._in_claims(pod) if pod.spec.resource_claims else 0), cpu

    def _in_claims(self, pod: Pod) -> int:
        known = self._devices.get(pod.uid)
        if known is None:
            claims = (self._world.get(RESOURCE_CLAIMS, key) for key in claim_keys(pod))
            known = self._devices[pod.uid] = sum(_devices(claim) for claim in claims if claim is not None)
        return known


def _devices(claim: ResourceClaim) -> int:
    if claim.status.allocation is not None:
        return sum(not result.admin_access for result in claim.status.allocation.devices.results)
    return sum(map(_asked, claim.spec.devices.requests))


def _asked(request: DeviceRequest) -> int:
    if request.exactly is not None and request.exactly.admin_access:
        return 0
    ways = [request.exactly] if request.exactly is not None else request.first_available
    return min((max(1, way.count) for way in ways), default=0)
