"""How well a node's devices fit a pod, beyond fitting at all. Which strategy is used is part of the profile.

``Upstream``: the rank in prioritized lists, nothing else; among equals the first node that fits.
``Ready`` (the default): after that, nodes where no device has to be made ready first.
``Packing``: after that, nodes whose devices are used most, so that whole nodes stay free for pods that need many.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dray.api.resource import ResourceClaim
from dray.devices import Devices, Verdict
from dray.scheduling.config import Profile

STRATEGIES: Final = ("Upstream", "Ready", "Packing")


class DeviceScorer:
    """``binding_conditions`` counts published devices that have them: while none has, all are ready."""

    def __init__(self, engine: Devices) -> None:
        self._engine = engine
        self.binding_conditions = 0

    def wanted(self, claims: Sequence[ResourceClaim], profile: Profile) -> bool:
        """Whether nodes can differ at all; else their devices are not compared."""
        if any(request.first_available for claim in claims for request in claim.spec.devices.requests):
            return True
        return profile.device_scoring == "Packing" or (profile.device_scoring == "Ready" and self.binding_conditions > 0)

    def score(self, verdict: Verdict, node: str, profile: Profile) -> int:
        """Rank outweighs readiness, readiness outweighs packing: what the user wants first comes first."""
        if profile.device_scoring == "Upstream":
            return verdict.score
        ready = not any(r.binding_conditions for result in verdict.results for r in result.devices.results)
        packed = self._percent_used(node) if profile.device_scoring == "Packing" else 0
        return (verdict.score * 2 + ready) * 101 + packed

    def _percent_used(self, node: str) -> int:
        view = self._engine.inventory.view(node)
        if view is None or not view.layout.width:
            return 0
        return 100 * (view.taken() | view.shared()).bit_count() // view.layout.width
