"""How well a node's devices fit a pod, beyond fitting at all. Which strategy is used is part of the profile.

``Upstream``: the rank in prioritized lists, nothing else; within a node the first devices that fit.
``Ready``: after that, nodes where no device has to be made ready first.
``Packing`` (the default): after that, nodes where the placement wastes least (``dray.devices.rating``), keeps the pod's devices
close to each other, and of whose devices most are in use; and within a node the devices that waste least
(``dray.devices.packing``).

The rank is normalized as upstream does it. The rest is points that mean the same on every node, so that they can be added up
and shown; both count with the weight of the plugin DynamicResources. Where there are prioritized lists, all points together
are less than one step of rank.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from dray.api.resource import ResourceClaim
from dray.books.nodes import NodeInfo
from dray.devices import Devices, DeviceScore, Order, Rating, Verdict
from dray.devices.packing import percent
from dray.scheduling.config import Profile
from dray.scheduling.plugins.base import Judge, Judged, Reasons

STRATEGIES: Final = ("Upstream", "Ready", "Packing")

# Points, before the weight. Readiness outweighs all the others together, waste the rest of them.
READY: Final = 110
WASTE: Final = 60
CLOSE: Final = 20
USED: Final = 30
_WHOLE: Final = 1000
# Alternatives that a prioritized list can have: one step of rank is one of so many parts.
_STEPS: Final = 8


ClaimsOn = Callable[[NodeInfo], Sequence[ResourceClaim]]
"""The claims that a node's devices would have to serve."""


class Points(NamedTuple):
    """What a node's devices add to its total, by cause, in hundredths of a point."""

    ready: int = 0
    waste: int = 0
    close: int = 0
    used: int = 0


class NodeScore(msgspec.Struct, frozen=True):
    """The devices' part of a node's score, taken apart."""

    node: str
    rating: Rating
    points: Points
    devices: tuple[DeviceScore, ...]

    def text(self) -> str:
        """In words, a line for the node and one for each device."""
        return "\n".join([f"{self.node}: {said(self.rating)}", *(f"  {device.text()}" for device in self.devices)])


class DeviceScorer:
    """``binding_conditions`` counts published devices that have them: while none has, all are ready."""

    def __init__(self, engine: Devices) -> None:
        self._engine = engine
        self.binding_conditions = 0

    def wanted(self, claims: Sequence[ResourceClaim], profile: Profile) -> bool:
        """Whether nodes can differ at all; else their devices are not compared."""
        if lists(claims):
            return True
        return profile.device_scoring == "Packing" or (profile.device_scoring == "Ready" and self.binding_conditions > 0)

    def order(self, profile: Profile) -> Order:
        """Which of a node's devices are taken."""
        return "packing" if profile.device_scoring == "Packing" else "first"

    def rate(self, node: str, claims: Sequence[ResourceClaim], profile: Profile) -> Rating | None:
        """None where the claims do not fit."""
        return self._engine.rate(node, claims, self.order(profile))

    def told(self, verdict: Verdict, profile: Profile) -> str:
        """Why these devices, where devices were compared: what the event says about a decision."""
        return said(verdict.rating) if verdict.rating is not None and profile.device_scoring == "Packing" else ""

    def judge(
        self, profile: Profile, claims: Sequence[ResourceClaim], claims_on: ClaimsOn, refusal: Callable[[Verdict], Reasons]
    ) -> Judge:
        """What nodes' devices are worth for a pod with these claims, and by node the special one; each rating is
        worked out once."""
        known: dict[Rating, Judged] = {}
        ranked = lists(claims)

        def judge(info: NodeInfo) -> Judged:
            wanted = claims_on(info)
            rating = self.rate(info.name, wanted, profile) if wanted else _UNKNOWN
            if rating is None:
                return refusal(self._engine.allocate(info.name, wanted)), 0, 0
            found = known.get(rating)
            if found is None:
                found = known[rating] = None, rating.rank, sum(points(rating, profile, ranked))
            return found

        return judge

    def points_on(self, node: str, claims: Sequence[ResourceClaim], profile: Profile) -> Points | None:
        """What a node's devices add to its total for these claims; None where they do not fit."""
        rating = self.rate(node, claims, profile) if claims else _UNKNOWN
        return points(rating, profile, lists(claims)) if rating is not None else None

    def breakdown(self, claims: Sequence[ResourceClaim], node: str, profile: Profile) -> NodeScore | None:
        """What the score of a node for these claims is made of, as things are now; None where they do not fit."""
        rating = self.rate(node, claims, profile)
        if rating is None:
            return None
        devices = self._engine.scores(node, claims, self.order(profile))
        return NodeScore(node, rating, points(rating, profile, lists(claims)), devices)


def lists(claims: Sequence[ResourceClaim]) -> int:
    """How many prioritized lists the claims have."""
    return sum(1 for claim in claims for request in claim.spec.devices.requests if request.first_available)


def points(rating: Rating, profile: Profile, ranked: int) -> Points:
    """With ``ranked`` prioritized lists."""
    strategy, weight = profile.device_scoring, 100 * profile.weight_of("DynamicResources")
    if strategy == "Upstream" or not weight:
        return Points()
    # Without lists a point is a point; with them the most that there can be is one step of rank.
    parts = _WHOLE
    if ranked:
        weight, parts = 100 * weight, _WHOLE * ranked * _STEPS * (READY + WASTE + CLOSE + USED)
    ready = weight * READY * _WHOLE * rating.ready // parts
    if strategy == "Ready":
        return Points(ready)
    return Points(
        ready,
        weight * WASTE * (_WHOLE - rating.waste) // parts,
        weight * CLOSE * (_WHOLE - rating.apart) // parts,
        weight * USED * rating.used // parts,
    )


# Of a node that gives out what is asked for without Dray's part, through a device plugin: nothing is known but that.
_UNKNOWN: Final = Rating(rank=0, ready=True, taken=_WHOLE, broken=_WHOLE, apart=0, used=0)


@lru_cache(maxsize=1024)
def said(rating: Rating) -> str:
    """A rating in words, for people."""
    parts = ["all devices ready" if rating.ready else "devices must be made ready first"]
    if rating.rank:
        parts.insert(0, f"rank {rating.rank}")
    if rating.taken or rating.broken:
        breaks = f", breaks a piece of {percent(rating.broken)}" if rating.broken > rating.taken else ""
        parts.append(f"takes {percent(rating.taken)} of the largest device{breaks}")
    if rating.apart:
        parts.append("not all on one PCI root and NUMA node")
    parts.append(f"{percent(rating.used)} of the node's devices in use before")
    return ", ".join(parts)
