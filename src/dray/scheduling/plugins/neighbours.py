"""Pods that decide about each other's nodes: pod affinity, anti-affinity and topology spread.

Always true: what is counted agrees with what is placed, decisions being written included. A pod that neither has such rules
nor is meant by the rules of others has no ``View`` and costs nothing here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol, cast

from dray.api.core import Affinity, LabelSelector, Pod, PodAffinityTerm, TopologySpreadConstraint
from dray.api.selectors import label_requirements
from dray.books.demand import Demand
from dray.books.nodes import NodeInfo, Nodes, Placed
from dray.scheduling.config import SYSTEM_SPREAD, Profile
from dray.scheduling.plugins import node as placement
from dray.scheduling.plugins.base import MAX_SCORE, Check, Compiled, PodShape, Reads, Reasons, because, codes_of
from dray.scheduling.plugins.owners import Owners
from dray.scheduling.plugins.terms import NOTHING, Counter, Requirements, Term, affinity_term, together, with_label_keys

NamespacesLike = Callable[[LabelSelector], Iterable[str]]
# Selectors whose pods are counted; those used least recently are forgotten beyond this.
_COUNTED: Final = 1024


class Rule:
    """A rule that pods already placed have about others: by topology key, with a weight (0: it is required)."""

    __slots__ = ("counter", "term", "topology_key", "weight")

    def __init__(self, term: Term, topology_key: str, weight: int, counter: Counter) -> None:
        self.term = term
        self.topology_key = topology_key
        self.weight = weight
        self.counter = counter


RuleKey = tuple[object, str, int]


class Neighbours:
    def __init__(self, nodes: Nodes, namespaces_like: NamespacesLike, owners: Owners) -> None:
        self._nodes = nodes
        self._owners = owners
        self._like = namespaces_like
        self._counted: dict[object, tuple[Term, Counter]] = {}
        # Required anti-affinity of placed pods repels; preferred terms and required affinity only attract or push.
        self._repelling: dict[RuleKey, Rule] = {}
        self._pulling: dict[RuleKey, Rule] = {}
        self._domains: dict[str, frozenset[str]] = {}
        self._node_version = 0
        # Whether a rule was made of a namespaceSelector, and whether namespaces changed since rules were counted.
        self._by_namespace = self._recount = False
        nodes.listeners.append(self)

    # ------------------------------------------------------------------------------------------------------- counting

    def came(self, placed: Placed) -> None:
        self._count(placed, placed.node, 1)

    def left(self, placed: Placed) -> None:
        self._count(placed, placed.node, -1)

    def _count(self, placed: Placed, node: str, by: int) -> None:
        pod = placed.pod
        for term, counter in self._counted.values():
            if term.matches(pod):
                counter.add(node, by)
        affinity = placed.demand.affinity
        if affinity.pod_affinity is not None or affinity.pod_anti_affinity is not None:
            self._count_rules(pod, affinity, node, by)

    def _count_rules(self, pod: Pod, affinity: Affinity, node: str, by: int) -> None:
        if self._recount:
            return
        if affinity.pod_anti_affinity is not None:
            for term in affinity.pod_anti_affinity.required:
                self._rule(self._repelling, pod, term, 0, node, by)
            for weighted in affinity.pod_anti_affinity.preferred:
                self._rule(self._pulling, pod, weighted.pod_affinity_term, -weighted.weight, node, by)
        if affinity.pod_affinity is not None:
            for term in affinity.pod_affinity.required:
                self._rule(self._pulling, pod, term, 0, node, by)
            for weighted in affinity.pod_affinity.preferred:
                self._rule(self._pulling, pod, weighted.pod_affinity_term, weighted.weight, node, by)

    def _rule(self, rules: dict[RuleKey, Rule], pod: Pod, raw: PodAffinityTerm, weight: int, node: str, by: int) -> None:
        self._by_namespace = self._by_namespace or raw.namespace_selector is not None
        term = affinity_term(raw, pod, self._like)
        key = (term.key, raw.topology_key, weight)
        rule = rules.get(key)
        if rule is None:
            rule = rules[key] = Rule(term, raw.topology_key, weight, Counter(self._labels))
        rule.counter.add(node, by)
        if not rule.counter.by_node:
            del rules[key]

    def relabelled(self) -> None:
        """Nodes came, went or changed their labels."""
        self._domains.clear()
        self._node_version += 1
        for _, counter in self._counted.values():
            counter.relabelled()
        for rule in (*self._repelling.values(), *self._pulling.values()):
            rule.counter.relabelled()

    def namespaces_changed(self) -> None:
        """A namespaceSelector may mean other namespaces now: rules of placed pods are counted anew when someone looks."""
        self._node_version += 1
        self._recount = self._recount or self._by_namespace

    def _count_again(self) -> None:
        self._recount = False
        self._repelling.clear()
        self._pulling.clear()
        for info in self._nodes:
            for placed in info.pods.values():
                self._count_rules(placed.pod, placed.demand.affinity, info.name, 1)

    def _labels(self, node: str) -> Mapping[str, str]:
        info = self._nodes.get(node)
        return info.node.metadata.labels if info is not None else {}

    def counter(self, term: Term) -> Counter:
        """Where the pods are that a term means."""
        found = self._counted.pop(term.key, None)
        if found is None:
            counter = Counter(self._labels)
            for info in self._nodes:
                count = sum(term.matches(placed.pod) for placed in info.pods.values())
                if count:
                    counter.add(info.name, count)
            found = term, counter
            if len(self._counted) >= _COUNTED:
                del self._counted[next(iter(self._counted))]
        self._counted[term.key] = found
        return found[1]

    def domains(self, key: str) -> frozenset[str]:
        """All values of a node label."""
        found = self._domains.get(key)
        if found is None:
            values = (info.node.metadata.labels.get(key) for info in self._nodes)
            found = self._domains[key] = frozenset(value for value in values if value is not None)
        return found

    # --------------------------------------------------------------------------------------------------------- viewing

    def tells_apart(self, pod: Pod, demand: Demand, profile: Profile) -> tuple[str, tuple[tuple[str, str], ...]]:
        """What pods that ask for the same have to have in common as well, so that other pods say the same of them."""
        if not self._speaks(demand, profile):
            return "", ()
        return pod.metadata.namespace, tuple(sorted(pod.metadata.labels.items()))

    def _speaks(self, demand: Demand, profile: Profile) -> bool:
        if self._recount:
            self._count_again()
        return bool(self._repelling or self._pulling or demand.tied or profile.default_spread)

    def view(self, pod: Pod, demand: Demand, profile: Profile) -> View | None:
        """What other pods say about where this pod goes; None where they say nothing."""
        if not self._speaks(demand, profile):
            return None
        affine = "InterPodAffinity" in profile.filters
        spread = demand.spread if "PodTopologySpread" in profile.filters else ()
        affinity = demand.affinity if affine else Affinity()
        repelled = [rule for rule in self._repelling.values() if rule.term.matches(pod)] if affine and self._repelling else []
        pulled = [rule for rule in self._pulling.values() if rule.term.matches(pod)] if affine and self._pulling else []
        if (
            profile.ignore_preferred_terms_of_existing_pods
            and affinity.pod_affinity is None
            and affinity.pod_anti_affinity is None
        ):
            pulled = []
        common: Requirements | None = None
        if not demand.spread and profile.default_spread and "PodTopologySpread" in profile.filters:
            common = self._owners.requirements(pod) or None
            spread = profile.default_spread if common is not None else ()
        if not spread and affinity.pod_affinity is None and affinity.pod_anti_affinity is None and not repelled and not pulled:
            return None
        view = View(self, profile)
        view.add_affinity(pod, affinity)
        view.add_rules(repelled, pulled)
        view.add_spread(pod, demand, spread, common)
        if profile.default_spread is None and not demand.spread:
            view.add_system_spread(pod, demand, self._owners.requirements(pod))
        return view

    def ranking(self, pod: Pod, demand: Demand, profile: Profile) -> View | None:
        """How the system's constraints rank nodes for a pod that nothing else ties to other pods; they refuse no node."""
        if demand.spread or profile.default_spread is not None:
            return None
        common = self._owners.requirements(pod)
        if not common or not profile.weight_of("PodTopologySpread"):
            return None
        view = View(self, profile)
        view.add_system_spread(pod, demand, common)
        return view

    def terms(self, raw: Iterable[PodAffinityTerm], pod: Pod) -> list[tuple[Term, str]]:
        return [(affinity_term(term, pod, self._like), term.topology_key) for term in raw]

    def infos(self) -> Nodes:
        return self._nodes

    @property
    def node_version(self) -> int:
        return self._node_version


class Spread:
    """One constraint, with the pods counted per domain as it counts them."""

    __slots__ = ("counts", "key", "lowest", "max_skew", "own")

    def __init__(
        self, constraint: TopologySpreadConstraint, own: bool, counts: Mapping[str, int], domains: frozenset[str]
    ) -> None:
        self.key = constraint.topology_key
        self.max_skew = constraint.max_skew
        self.own = own
        self.counts = counts
        # A domain that is not counted has no pods.
        lowest = 0 if len(counts) < len(domains) else min(counts.values(), default=0)
        too_few = constraint.min_domains is not None and len(domains) < constraint.min_domains
        self.lowest = 0 if too_few else lowest

    def breaks(self, value: str) -> bool:
        return self.counts.get(value, 0) + self.own - self.lowest > self.max_skew


class View:
    """Other pods, as one pod sees them. Holds for the moment in which it was made."""

    def __init__(self, neighbours: Neighbours, profile: Profile) -> None:
        self._neighbours = neighbours
        self._hard_weight = profile.hard_pod_affinity_weight
        self._counters: list[Counter] = []
        self._near: list[tuple[str, Mapping[str, int]]] = []
        self._first_of_its_kind = False
        self._apart: list[tuple[str, Mapping[str, int]]] = []
        self._repelled: list[Rule] = []
        self._pulls: list[tuple[str, Mapping[str, int], int]] = []
        self._spreads: list[Spread] = []
        self._soft: list[tuple[str, Mapping[str, int], int, int]] = []
        # Whether a node must have every topology key to be worth anything.
        self._all_keys = True

    # ---------------------------------------------------------------------------------------------------------- making

    def add_affinity(self, pod: Pod, affinity: Affinity) -> None:
        neighbours = self._neighbours
        if affinity.pod_affinity is not None:
            terms = neighbours.terms(affinity.pod_affinity.required, pod)
            if terms:
                everyone = together([term for term, _ in terms])
                counter = self._use(everyone)
                self._near = [(key, counter.domains(key)) for _, key in terms]
                self._first_of_its_kind = not counter.by_node and everyone.matches(pod)
            self._prefer(pod, affinity.pod_affinity.preferred, 1)
        if affinity.pod_anti_affinity is not None:
            for term, key in neighbours.terms(affinity.pod_anti_affinity.required, pod):
                self._apart.append((key, self._use(term).domains(key)))
            self._prefer(pod, affinity.pod_anti_affinity.preferred, -1)

    def _prefer(self, pod: Pod, preferred: Iterable[object], sign: int) -> None:
        for weighted in preferred:
            raw: PodAffinityTerm = weighted.pod_affinity_term  # type: ignore[attr-defined]
            weight: int = weighted.weight  # type: ignore[attr-defined]
            ((term, key),) = self._neighbours.terms([raw], pod)
            self._pulls.append((key, self._use(term).domains(key), sign * weight))

    def add_rules(self, repelled: list[Rule], pulled: list[Rule]) -> None:
        self._repelled = repelled
        self._counters.extend(rule.counter for rule in repelled)
        for rule in pulled:
            weight = rule.weight or self._hard_weight
            self._pulls.append((rule.topology_key, rule.counter.domains(rule.topology_key), weight))

    def add_system_spread(self, pod: Pod, demand: Demand, common: Requirements) -> None:
        if common:
            self._all_keys = False
            self.add_spread(pod, demand, SYSTEM_SPREAD, common)

    def add_spread(
        self,
        pod: Pod,
        demand: Demand,
        constraints: tuple[TopologySpreadConstraint, ...],
        common: Requirements | None,
    ) -> None:
        """``common`` says which pods are meant where the constraints do not."""
        hard = [constraint for constraint in constraints if constraint.when_unsatisfiable != "ScheduleAnyway"]
        keys = [constraint.topology_key for constraint in hard]
        for constraint in constraints:
            requirements = label_requirements(constraint.label_selector) if common is None else common
            wanted = (NOTHING,) if requirements is None else with_label_keys(requirements, pod, constraint.match_label_keys)
            term = Term(frozenset({pod.metadata.namespace}), wanted, staying=True)
            counter = self._use(term)
            if constraint in hard:
                counts, domains = self._eligible(constraint, demand, counter, keys)
                self._spreads.append(Spread(constraint, term.matches(pod), counts, domains))
            else:
                size = len(self._neighbours.domains(constraint.topology_key))
                self._soft.append((constraint.topology_key, counter.domains(constraint.topology_key), size, constraint.max_skew))

    def _eligible(
        self, constraint: TopologySpreadConstraint, demand: Demand, counter: Counter, keys: list[str]
    ) -> tuple[Mapping[str, int], frozenset[str]]:
        """Counts and domains over the nodes that the constraint's policies and the other constraints leave."""
        key = constraint.topology_key
        checks: list[Check] = []
        affinity = placement.node_affinity(demand) if constraint.node_affinity_policy != "Ignore" else None
        if affinity is not None:
            checks.append(affinity)
        if constraint.node_taints_policy == "Honor":
            checks.append(placement.taints(demand))
        if not checks and len(set(keys)) == 1:
            return counter.domains(key), self._neighbours.domains(key)
        counts: dict[str, int] = {}
        for info in self._neighbours.infos():
            labels = info.node.metadata.labels
            if all(each in labels for each in keys) and not any(check(info) for check in checks):
                counts[labels[key]] = counts.get(labels[key], 0) + counter.by_node.get(info.name, 0)
        return counts, frozenset(counts)

    def _use(self, term: Term) -> Counter:
        counter = self._neighbours.counter(term)
        self._counters.append(counter)
        return counter

    # ---------------------------------------------------------------------------------------------------------- asking

    @property
    def stamp(self) -> tuple[int, ...]:
        """Changes when anything that this view counted changes."""
        return (self._neighbours.node_version, *(counter.stamp for counter in self._counters))

    def breaks_spread(self, info: NodeInfo) -> Reasons | None:
        labels = info.node.metadata.labels
        for spread in self._spreads:
            value = labels.get(spread.key)
            if value is None or spread.breaks(value):
                return because("TopologySpread", topologyKey=spread.key)
        return None

    def breaks_affinity(self, info: NodeInfo) -> Reasons | None:
        labels = info.node.metadata.labels
        for key, domains in self._near:
            if labels.get(key) is None or (labels[key] not in domains and not self._first_of_its_kind):
                return because("PodAffinity", topologyKey=key)
        for key, domains in self._apart:
            if labels.get(key) in domains:
                return because("PodAntiAffinity", topologyKey=key)
        for rule in self._repelled:
            if labels.get(rule.topology_key) in rule.counter.domains(rule.topology_key):
                return because("PodAntiAffinityExisting", topologyKey=rule.topology_key)
        return None

    @property
    def spreads(self) -> bool:
        return bool(self._spreads)

    @property
    def ties(self) -> bool:
        return bool(self._near or self._apart or self._repelled)

    @property
    def pulls(self) -> bool:
        return bool(self._pulls)

    @property
    def evens(self) -> bool:
        return bool(self._soft)

    def emptiest(self, key: str, most: int) -> list[str]:
        """Domains of a topology key, those first with the fewest pods that this view spreads."""
        counts: Mapping[str, int] = next((counts for each, counts, _, _ in self._soft if each == key), {})
        return sorted(self._neighbours.domains(key), key=lambda value: (counts.get(value, 0), value))[:most]

    def pull_scores(self, infos: Sequence[NodeInfo]) -> list[int]:
        raw = []
        for info in infos:
            labels = info.node.metadata.labels
            raw.append(sum(domains.get(labels.get(key, ""), 0) * weight for key, domains, weight in self._pulls))
        low, high = min(raw), max(raw)
        return [MAX_SCORE * (value - low) // (high - low) if high > low else 0 for value in raw]

    def spread_scores(self, infos: Sequence[NodeInfo]) -> list[int]:
        """Fewer matching pods in the domain is better, weighted so that large topologies do not drown small ones."""
        raw: list[float | None] = []
        for info in infos:
            labels = info.node.metadata.labels
            if self._all_keys and any(key not in labels for key, _, _, _ in self._soft):
                raw.append(None)
                continue
            has = [soft for soft in self._soft if soft[0] in labels]
            raw.append(sum(c.get(labels[key], 0) * math.log(size + 2) + skew - 1 for key, c, size, skew in has))
        known = [round(value) for value in raw if value is not None]
        low, high = min(known, default=0), max(known, default=0)
        if high == 0:
            return [0 if value is None else MAX_SCORE for value in raw]
        return [0 if value is None else MAX_SCORE * (high + low - round(value)) // high for value in raw]


# ---------------------------------------------------------------------------------------------------------- plugins


class Viewed(PodShape, Protocol):
    """A pod with what others say of it: ``view`` where they refuse nodes, ``ranking`` where they only rank them."""

    @property
    def view(self) -> View | None: ...

    @property
    def ranking(self) -> View | None: ...


class PodTopologySpread:
    name = "PodTopologySpread"
    codes = codes_of(name)

    def compile(self, shape: PodShape) -> Compiled | None:
        seen = cast(Viewed, shape)
        view = seen.view or seen.ranking
        if view is None or not (view.spreads or view.evens):
            return None
        check = view.breaks_spread if view.spreads else None
        return Compiled(_reads(seen), check=check, compare=view.spread_scores if view.evens else None)


class InterPodAffinity:
    name = "InterPodAffinity"
    codes = codes_of(name)

    def compile(self, shape: PodShape) -> Compiled | None:
        seen = cast(Viewed, shape)
        view = seen.view
        if view is None or not (view.ties or view.pulls):
            return None
        check = view.breaks_affinity if view.ties else None
        return Compiled(_reads(seen), check=check, compare=view.pull_scores if view.pulls else None)


def _reads(shape: Viewed) -> list[Reads]:
    """A ranking is worked out when the best few are compared; it decides on no node by itself."""
    return ["labels", "pods"] if shape.view is not None else []
