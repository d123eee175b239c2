"""How well a node's devices fit a pod, beyond fitting at all. Which strategy is used is part of the profile.

``Upstream``: the rank in prioritized lists, nothing else; among equals the first node that fits.
``Ready`` (the default): after that, nodes where no device has to be made ready first.
``Packing``: after that, nodes whose devices are used most, so that whole nodes stay free for pods that need many; and within
a node the devices that waste least (``dray.devices.packing``), instead of the first that fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from dray.api.resource import ResourceClaim
from dray.devices import Devices, DeviceScore, Order, Verdict
from dray.scheduling.config import Profile

STRATEGIES: Final = ("Upstream", "Ready", "Packing")


class NodeScore(msgspec.Struct, frozen=True):
    """A node's score, taken apart: ``rank`` outweighs ``ready``, ``ready`` outweighs ``used``."""

    node: str
    total: int
    # Of the alternatives of prioritized lists, as upstream counts it.
    rank: int
    # No device has to be made ready first.
    ready: bool
    # How many percent of the node's devices are in use.
    used: int
    devices: tuple[DeviceScore, ...]

    def text(self) -> str:
        """The score in words, a line for the node and one for each device."""
        ready = "all ready" if self.ready else "some must be made ready first"
        first = f"{self.node}: rank {self.rank}, {ready}, {self.used}% of the devices in use before"
        return "\n".join([first, *(f"  {device.text()}" for device in self.devices)])


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

    def order(self, profile: Profile) -> Order:
        """Which of a node's devices are taken."""
        return "packing" if profile.device_scoring == "Packing" else "first"

    def score(self, verdict: Verdict, node: str, profile: Profile) -> int:
        """Rank outweighs readiness, readiness outweighs packing: what the user wants first comes first."""
        if profile.device_scoring == "Upstream":
            return verdict.score
        ready = _is_ready(verdict)
        packed = self._percent_used(node) if profile.device_scoring == "Packing" else 0
        return (verdict.score * 2 + ready) * 101 + packed

    def breakdown(self, claims: Sequence[ResourceClaim], node: str, profile: Profile) -> NodeScore | None:
        """What the score of a node for these claims is made of, as things are now; None where they do not fit."""
        order = self.order(profile)
        verdict = self._engine.allocate(node, claims, order)
        if not verdict.ok:
            return None
        devices = self._engine.scores(node, claims, order)
        total = self.score(verdict, node, profile)
        return NodeScore(node, total, verdict.score, _is_ready(verdict), self._percent_used(node), devices)

    def _percent_used(self, node: str) -> int:
        view = self._engine.inventory.view(node)
        if view is None or not view.layout.width:
            return 0
        return 100 * (view.taken() | view.shared()).bit_count() // view.layout.width


def _is_ready(verdict: Verdict) -> bool:
    return not any(r.binding_conditions for result in verdict.results for r in result.devices.results)
