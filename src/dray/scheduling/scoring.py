"""How well a node's devices fit a pod, beyond fitting at all.

``Upstream`` knows only the rank in prioritized lists. ``Packing`` prefers, after that, devices that need no binding
conditions, and leaves everything else to the order in which the allocator picks devices.
"""

from __future__ import annotations

from collections.abc import Sequence

from dray.api.resource import ResourceClaim
from dray.devices import Verdict
from dray.scheduling.config import Profile


class DeviceScorer:
    """``binding_conditions`` counts published devices that have them: while none has, there is nothing to prefer."""

    def __init__(self) -> None:
        self.binding_conditions = 0

    def wanted(self, claims: Sequence[ResourceClaim], profile: Profile) -> bool:
        """Whether nodes can differ at all; else their devices are not compared."""
        if any(request.first_available for claim in claims for request in claim.spec.devices.requests):
            return True
        return profile.device_scoring == "Packing" and self.binding_conditions > 0

    def score(self, verdict: Verdict, profile: Profile) -> int:
        if profile.device_scoring != "Packing":
            return verdict.score
        # Rank weighs more than readiness: what the user wants first comes first.
        ready = not any(r.binding_conditions for result in verdict.results for r in result.devices.results)
        return verdict.score * 2 + ready
