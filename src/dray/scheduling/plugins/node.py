"""Where a pod may be by its node's name, labels, taints and ports: four plugins of upstream's names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dray.api.core import NodeSelector, PreferredSchedulingTerm, Taint, Toleration
from dray.api.selectors import SelectorError, node_selector_matches, node_term_matches
from dray.api.tolerations import BLOCKING, tolerates
from dray.books.demand import Demand
from dray.books.nodes import NodeInfo
from dray.scheduling.plugins.base import Check, Compiled, Measure, PodShape, Reasons, because, codes_of

UNSCHEDULABLE_TAINT: Final = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


# ---------------------------------------------------------------------------------------------------- unschedulable


def unschedulable(demand: Demand) -> Check | None:
    """A cordoned node takes only pods that tolerate exactly that."""
    if tolerated(UNSCHEDULABLE_TAINT, demand.tolerations):
        return None
    refusal = because("NodeUnschedulable")
    return lambda info: refusal if info.node.spec.unschedulable else None


# --------------------------------------------------------------------------------------------------------- affinity


def node_affinity(demand: Demand, added: NodeSelector | None = None) -> Check | None:
    """``nodeSelector``, required node affinity, and affinity that the profile adds: all must match."""
    wanted = demand.node_selector
    affinity = demand.affinity.node_affinity
    required = [selector for selector in (affinity.required if affinity else None, added) if selector is not None]
    if not wanted and not required:
        return None
    refusal = because("NodeSelectorMismatch")

    def check(info: NodeInfo) -> Reasons | None:
        labels = info.node.metadata.labels
        if any(labels.get(key) != value for key, value in wanted.items()):
            return refusal
        return None if all(_matches(selector, info) for selector in required) else refusal

    return check


def _matches(selector: NodeSelector, info: NodeInfo) -> bool:
    try:
        return node_selector_matches(selector, info.node)
    except SelectorError:
        # An operator that no version knows: the API server would have refused it; it selects nothing.
        return False


def node_names(demand: Demand) -> frozenset[str] | None:
    """The only nodes that required affinity can match, where every term names them; None when any node may match."""
    affinity = demand.affinity.node_affinity
    return None if affinity is None or affinity.required is None else names_in(affinity.required)


def names_in(selector: NodeSelector) -> frozenset[str] | None:
    found: set[str] = set()
    for term in selector.node_selector_terms:
        named = [set(r.values) for r in term.match_fields if r.key == "metadata.name" and r.operator == "In"]
        if not named:
            return None
        found |= set.intersection(*named)
    return frozenset(found)


def preferred_affinity(demand: Demand, added: tuple[PreferredSchedulingTerm, ...]) -> Measure | None:
    """The sum of the weights of the preferred terms that match."""
    affinity = demand.affinity.node_affinity
    terms = (*(affinity.preferred if affinity else ()), *added)
    if not terms:
        return None

    def measure(info: NodeInfo) -> int:
        return sum(term.weight for term in terms if term.weight and _prefers(term, info))

    return measure


def _prefers(term: PreferredSchedulingTerm, info: NodeInfo) -> bool:
    # Unlike a required term, an empty preferred term matches every node.
    preference = term.preference
    if not preference.match_expressions and not preference.match_fields:
        return True
    try:
        return node_term_matches(preference, info.node)
    except SelectorError:
        return False


# ----------------------------------------------------------------------------------------------------------- taints


def taints(demand: Demand) -> Check:
    tolerations = demand.tolerations

    def check(info: NodeInfo) -> Reasons | None:
        found = info.node.spec.taints
        if not found:
            return None
        repelling = untolerated(found, tolerations)
        return (
            None
            if repelling is None
            else because("NodeTainted", key=repelling.key, value=repelling.value, effect=repelling.effect)
        )

    return check


def untolerated(found: Iterable[Taint], tolerations: tuple[Toleration, ...]) -> Taint | None:
    """The first taint that keeps pods with these tolerations away."""
    return next((taint for taint in found if taint.effect in BLOCKING and not tolerated(taint, tolerations)), None)


def tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    """As of devices, and beyond that numbers can be compared."""
    if toleration.operator not in ("Lt", "Gt"):
        return tolerates(toleration, taint)
    same = toleration.key in ("", taint.key) and toleration.effect in ("", taint.effect)
    return same and _compares(toleration, taint)


def _compares(toleration: Toleration, taint: Taint) -> bool:
    try:
        bound, value = int(toleration.value), int(taint.value)
    except ValueError:
        return False
    return value < bound if toleration.operator == "Lt" else value > bound


def intolerable_preferences(demand: Demand) -> Measure:
    """How many ``PreferNoSchedule`` taints the pod does not tolerate; fewer is better."""
    tolerations = tuple(t for t in demand.tolerations if t.effect in ("", "PreferNoSchedule"))

    def measure(info: NodeInfo) -> int:
        found = info.node.spec.taints
        if not found:
            return 0
        return sum(taint.effect == "PreferNoSchedule" and not tolerated(taint, tolerations) for taint in found)

    return measure


# ------------------------------------------------------------------------------------------------------------ ports


def ports(demand: Demand) -> Check | None:
    wanted = demand.ports
    if not wanted:
        return None

    def check(info: NodeInfo) -> Reasons | None:
        taken = next((port for port in wanted if info.ports and info.port_taken(port)), None)
        return None if taken is None else because("PortTaken", port=taken[2], protocol=taken[1])

    return check


# ---------------------------------------------------------------------------------------------------------- plugins


class NodeUnschedulable:
    name = "NodeUnschedulable"
    codes = codes_of(name)

    def compile(self, shape: PodShape) -> Compiled | None:
        check = unschedulable(shape.demand)
        return None if check is None else Compiled(check=check)


class TaintToleration:
    name = "TaintToleration"
    codes = codes_of(name)

    def compile(self, shape: PodShape) -> Compiled:
        return Compiled(check=taints(shape.demand), measure=intolerable_preferences(shape.demand), normalize="reverse")


class NodeAffinity:
    name = "NodeAffinity"
    codes = codes_of(name)

    def compile(self, shape: PodShape) -> Compiled | None:
        demand, added = shape.demand, shape.profile.added_affinity
        check, measure = node_affinity(demand, added.required), preferred_affinity(demand, added.preferred)
        if check is None and measure is None:
            return None
        return Compiled(["labels"], check=check, measure=measure, normalize="max", names=node_names(demand))


class NodePorts:
    name = "NodePorts"
    codes = codes_of(name)

    def compile(self, shape: PodShape) -> Compiled | None:
        check = ports(shape.demand)
        return None if check is None else Compiled(check=check)
