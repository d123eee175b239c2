"""A demand under a profile, compiled: the checks a node must pass and the scores that rank those that do.

Only what depends on one node at a time is here; what depends on other nodes' pods (spreading, pod affinity) is
asked for each pod in ``cycle``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from dray.api.core import NodeSelector
from dray.api.selectors import node_selector_matches
from dray.books.demand import Demand
from dray.books.nodes import NodeInfo
from dray.scheduling.config import Profile
from dray.scheduling.plugins import images, resources
from dray.scheduling.plugins import node as placement
from dray.scheduling.plugins.base import Check, Measure, Normalize, Reasons, Score, because
from dray.scheduling.plugins.images import SharedBy
from dray.scheduling.plugins.resources import DevicesOf, OffersDevices

Judged = tuple[Reasons | None, int, int]
"""Why the node's devices will not do; else their rank, still to be normalized, and hundredths of points for the rest."""
DeviceJudge = Callable[[NodeInfo], Judged]
UNJUDGED: Judged = (None, 0, 0)

Examined = tuple[Reasons | None, int, tuple[int, ...]]
"""Why not; else the final part of the score and the parts that are still to be normalized."""
VolumeChecks = Callable[[Demand, str], Check | None]
"""The check that a volume plugin makes for a demand."""


class Facts:
    """What plans ask about the cluster beyond the node at hand."""

    __slots__ = ("devices_of", "offers_devices", "shared_by", "state_of", "volumes")

    def __init__(
        self,
        offers_devices: OffersDevices,
        devices_of: DevicesOf,
        shared_by: SharedBy,
        volumes: VolumeChecks,
        state_of: Callable[[NodeInfo], int],
    ) -> None:
        self.offers_devices = offers_devices
        self.devices_of = devices_of
        self.shared_by = shared_by
        self.volumes = volumes
        self.state_of = state_of


class Plan:
    """``refuses`` says why a node will not do; ``fixed`` and ``raw`` are its scores, final and still to be normalized.

    ``selectors`` are those of claims that are allocated already, ``node_feature`` what their devices need of a node, ``also``
    what this pod needs besides. ``devices``, where set, judges and scores the devices of each node as it is examined; else only
    the node that is about to be picked is asked for its devices."""

    __slots__ = (
        "_named",
        "_seen",
        "_state_of",
        "checks",
        "demand",
        "devices",
        "fixed_scores",
        "names",
        "node_scores",
        "profile",
        "raw_scores",
        "scores",
    )

    def __init__(
        self,
        demand: Demand,
        profile: Profile,
        facts: Facts,
        selectors: Sequence[NodeSelector] = (),
        devices: DeviceJudge | None = None,
        node_feature: str = "",
        also: Sequence[Check] = (),
    ) -> None:
        self.demand = demand
        self.profile = profile
        self.devices = devices
        named = placement.node_names(demand) if "NodeAffinity" in profile.filters else None
        self.names = _both(named, _names(selectors))
        self._named = named
        made = (_check(name, demand, profile, facts) for name in profile.filters)
        pinned = [*also, _elsewhere(selectors)] if selectors else [*also]
        if node_feature:
            pinned.append(_declares(node_feature))
        self.checks: tuple[Check, ...] = (*pinned, *(check for check in made if check is not None))
        counted = [(name, weight) for name, weight in profile.scores if name not in _pulls_apart(profile, devices)]
        made_scores = (_score(name, weight, demand, profile, facts) for name, weight in counted)
        self.scores = tuple(score for score in made_scores if score is not None)
        self.fixed_scores = tuple((score.measure, score.weight) for score in self.scores if score.normalize == "none")
        self.node_scores = tuple(score for score in self.scores if score.normalize != "none")
        self.raw_scores = self.node_scores
        if devices is not None:
            self.raw_scores = (
                *self.node_scores,
                Score("DynamicResources", dict(profile.scores).get("DynamicResources", 0), _none, "max"),
            )

        # Nodes in the same state are one, unless something here tells them apart by their labels or their devices.
        self._state_of = facts.state_of
        affinity = demand.affinity.node_affinity is not None or bool(demand.node_selector) or bool(demand.volumes)
        added = profile.added_affinity.required is not None or bool(profile.added_affinity.preferred)
        counted_devices = resources.from_devices(demand, (*profile.fit.resources, *profile.balanced), facts.offers_devices)
        self._seen: dict[int, Examined] | None = None if affinity or added or pinned or counted_devices else {}

    def left_out(self, known: Callable[[str], bool], total: int) -> list[tuple[Reasons, int]]:
        """Why nodes are not looked at at all, and how many: the pod names others, or its claims are allocated elsewhere."""
        if self.names is None:
            return []
        named = sum(map(known, self._named)) if self._named is not None else total
        left = sum(map(known, self.names))
        return [(_OTHER_NAME, total - named), (_ELSEWHERE, named - left)]

    def examine(self, info: NodeInfo) -> Examined:
        """Why the node will not do; else its scores."""
        if self._seen is None:
            return self._examine(info)
        state = info.state or self._state_of(info)
        found = self._seen.get(state)
        if found is None:
            found = self._seen[state] = self._examine(info)
        return found

    def _examine(self, info: NodeInfo) -> Examined:
        reasons = self.refuses(info)
        return (reasons, 0, ()) if reasons is not None else (None, self.fixed(info), self.raw(info))

    def refuses(self, info: NodeInfo) -> Reasons | None:
        for check in self.checks:
            reasons = check(info)
            if reasons is not None:
                return reasons
        return None

    def fixed(self, info: NodeInfo) -> int:
        total = 0
        for measure, weight in self.fixed_scores:
            total += measure(info) * weight
        return total

    def raw(self, info: NodeInfo) -> tuple[int, ...]:
        return tuple(score.measure(info) for score in self.node_scores)


_OTHER_NAME: Final = because("NodeSelectorMismatch")
_ELSEWHERE: Final = because("ClaimElsewhere")


def _pulls_apart(profile: Profile, devices: DeviceJudge | None) -> tuple[str, ...]:
    """Spreading by cpu and memory would undo the packing of devices, for the pods that need devices."""
    packs = devices is not None and profile.device_scoring == "Packing"
    return ("NodeResourcesFit",) if packs and profile.fit.strategy == "LeastAllocated" else ()


def _none(_: NodeInfo) -> int:
    return 0


def _names(selectors: Sequence[NodeSelector]) -> frozenset[str] | None:
    """The nodes that the allocations of claims leave, where they name nodes."""
    found: frozenset[str] | None = None
    for selector in selectors:
        found = _both(found, placement.names_in(selector))
    return found


def _both(a: frozenset[str] | None, b: frozenset[str] | None) -> frozenset[str] | None:
    if a is None or b is None:
        return b if a is None else a
    return a & b


def _elsewhere(selectors: Sequence[NodeSelector]) -> Check:
    return lambda info: None if all(node_selector_matches(selector, info.node) for selector in selectors) else _ELSEWHERE


def _declares(feature: str) -> Check:
    refusal = because("NodeOperationsUnsupported")
    return lambda info: None if feature in info.node.status.declared_features else refusal


def _check(name: str, demand: Demand, profile: Profile, facts: Facts) -> Check | None:
    match name:
        case "NodeUnschedulable":
            return placement.unschedulable(demand)
        case "TaintToleration":
            return placement.taints(demand)
        case "NodeAffinity":
            return placement.node_affinity(demand, profile.added_affinity.required)
        case "NodePorts":
            return placement.ports(demand)
        case "NodeResourcesFit":
            return resources.fit(demand, profile.fit, facts.offers_devices)
        case "VolumeRestrictions" | "NodeVolumeLimits" | "VolumeBinding" | "VolumeZone":
            return facts.volumes(demand, name) if demand.volumes else None
        case _:
            return None


def _score(name: str, weight: int, demand: Demand, profile: Profile, facts: Facts) -> Score | None:
    devices = (facts.offers_devices, facts.devices_of)
    made: dict[str, tuple[Callable[[], Measure | None], Normalize]] = {
        "TaintToleration": (partial(placement.intolerable_preferences, demand), "reverse"),
        "NodeAffinity": (partial(placement.preferred_affinity, demand, profile.added_affinity.preferred), "max"),
        "NodeResourcesFit": (partial(resources.allocation_score, demand, profile.fit, *devices), "none"),
        "NodeResourcesBalancedAllocation": (partial(resources.balance_score, demand, profile.balanced, *devices), "none"),
        "ImageLocality": (partial(images.image_locality, demand, facts.shared_by), "none"),
    }
    if name not in made:
        return None
    make, normalize = made[name]
    measure = make()
    return None if measure is None else Score(name, weight, measure, normalize)
