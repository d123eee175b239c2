"""Which pods a selector of pods means, and on which nodes and in which topology domains they are, counted as pods come and go.

Always true: a counter agrees with what is placed; equal terms share one counter, so a pod that comes costs one match per
distinct term of its namespace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from dray.api.core import LabelSelector, Pod, PodAffinityTerm
from dray.api.selectors import Requirement, SelectorError, label_requirements, matches_all

Namespaces = frozenset[str] | None
"""None: every namespace."""
Requirements = tuple[Requirement, ...]
NodeLabels = Callable[[str], Mapping[str, str]]

NOTHING: Final = Requirement("", "In", ())
"""Matches no pod."""


class Term:
    """Pods of some namespaces with some labels; where ``staying``, only those that are not being deleted."""

    __slots__ = ("namespaces", "requirements", "staying")

    def __init__(self, namespaces: Namespaces, requirements: Requirements, *, staying: bool = False) -> None:
        self.namespaces = namespaces
        self.requirements = requirements
        self.staying = staying

    @property
    def key(self) -> tuple[Namespaces, Requirements, bool]:
        return self.namespaces, self.requirements, self.staying

    def matches(self, pod: Pod) -> bool:
        if self.namespaces is not None and pod.metadata.namespace not in self.namespaces:
            return False
        if self.staying and pod.metadata.deletion_timestamp is not None:
            return False
        try:
            return matches_all(self.requirements, pod.metadata.labels)
        except SelectorError:
            return False


class Counter:
    """How many pods are counted, by node and by domain of each topology key that was asked for. ``stamp`` is the same for
    the same counts on nodes with the same labels, whatever was counted in between."""

    __slots__ = ("_by_key", "_labels", "_relabelled", "by_node", "stamp")

    def __init__(self, labels: NodeLabels) -> None:
        self._labels = labels
        self.by_node: dict[str, int] = {}
        self._by_key: dict[str, dict[str, int]] = {}
        self._relabelled = 0
        self.stamp = 0

    def add(self, node: str, by: int) -> None:
        before = self.by_node.get(node, 0)
        _add(self.by_node, node, by)
        self.stamp ^= hash((node, before)) ^ hash((node, before + by))
        for key, domains in self._by_key.items():
            value = self._labels(node).get(key)
            if value is not None:
                _add(domains, value, by)

    def domains(self, key: str) -> dict[str, int]:
        """Counts by the value of a node label; domains without any are absent."""
        found = self._by_key.get(key)
        if found is None:
            found = self._by_key[key] = {}
            for node, count in self.by_node.items():
                value = self._labels(node).get(key)
                if value is not None:
                    _add(found, value, count)
        return found

    def relabelled(self) -> None:
        """Labels of nodes changed."""
        self._by_key.clear()
        self._relabelled += 1
        self.stamp ^= hash(("", self._relabelled))


def _add(counts: dict[str, int], key: str, by: int) -> None:
    count = counts.get(key, 0) + by
    if count:
        counts[key] = count
    else:
        counts.pop(key, None)


# -------------------------------------------------------------------------------------------------------- making terms


def affinity_term(term: PodAffinityTerm, pod: Pod, namespaces_like: Callable[[LabelSelector], Iterable[str]]) -> Term:
    """A pod affinity term as its pod means it."""
    requirements = label_requirements(term.label_selector)
    if requirements is None:
        return Term(frozenset({pod.metadata.namespace}), (NOTHING,))
    requirements = with_label_keys(requirements, pod, term.match_label_keys, term.mismatch_label_keys)
    return Term(_namespaces(term, pod, namespaces_like), requirements)


def _namespaces(term: PodAffinityTerm, pod: Pod, like: Callable[[LabelSelector], Iterable[str]]) -> Namespaces:
    selector = term.namespace_selector
    if selector is None:
        return frozenset(term.namespaces or (pod.metadata.namespace,))
    if not selector.match_labels and not selector.match_expressions:
        return None
    return frozenset(term.namespaces) | frozenset(like(selector))


def with_label_keys(requirements: Requirements, pod: Pod, same: tuple[str, ...], different: tuple[str, ...] = ()) -> Requirements:
    """``matchLabelKeys`` and ``mismatchLabelKeys``: what the pod itself carries, as requirements."""
    labels = pod.metadata.labels
    added = [Requirement(key, "In", (labels[key],)) for key in same if key in labels]
    added += [Requirement(key, "NotIn", (labels[key],)) for key in different if key in labels]
    # An API server adds them to the selector when the pod is made; they are not added twice.
    return (*requirements, *(requirement for requirement in added if requirement not in requirements))


def together(terms: list[Term]) -> Term:
    """Pods that match all terms at once."""
    namespaces: Namespaces = None
    requirements: Requirements = ()
    for term in terms:
        if term.namespaces is not None:
            namespaces = term.namespaces if namespaces is None else namespaces & term.namespaces
        requirements = (*requirements, *term.requirements)
    return Term(namespaces, requirements)
