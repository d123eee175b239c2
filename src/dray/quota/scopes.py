"""Which objects a quota with scopes counts. Only pods and volume claims have scopes; nothing else matches a quota with any."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from dray.api.core import PersistentVolumeClaim, Pod, PodAffinityTerm, ResourceQuotaSpec, ScopedSelectorRequirement


class Subject(msgspec.Struct, frozen=True):
    """What scopes ask of an object: the scopes that it is in, and the names of classes that selectors look at."""

    scopes: frozenset[str] = frozenset()
    priority_class: tuple[str, ...] = ()
    volume_class: tuple[str, ...] = ()
    is_pod: bool = False
    is_volume: bool = False


OTHER: Final = Subject()


def of_pod(pod: Pod) -> Subject:
    deadline = pod.spec.active_deadline_seconds
    scopes = {
        "Terminating" if deadline is not None and deadline >= 0 else "NotTerminating",
        "BestEffort" if pod.status.qos_class == "BestEffort" else "NotBestEffort",
    }
    if _crosses_namespaces(pod):
        scopes.add("CrossNamespacePodAffinity")
    named = (pod.spec.priority_class_name,) if pod.spec.priority_class_name else ()
    return Subject(frozenset(scopes), priority_class=named, is_pod=True)


def of_volume(claim: PersistentVolumeClaim) -> Subject:
    status = claim.status
    named = (
        claim.spec.volume_attributes_class_name,
        status.current_volume_attributes_class_name,
        status.modify_volume_status.target_volume_attributes_class_name if status.modify_volume_status else None,
    )
    return Subject(volume_class=tuple(filter(None, named)), is_volume=True)


def selectors(spec: ResourceQuotaSpec) -> tuple[ScopedSelectorRequirement, ...]:
    plain = tuple(ScopedSelectorRequirement(name, "Exists") for name in spec.scopes)
    return plain + (spec.scope_selector.match_expressions if spec.scope_selector is not None else ())


def matches(wanted: Iterable[ScopedSelectorRequirement], subject: Subject) -> bool:
    return all(_matches(each, subject) for each in wanted)


def _matches(wanted: ScopedSelectorRequirement, subject: Subject) -> bool:
    if wanted.scope_name == "PriorityClass" and subject.is_pod:
        return _selects(wanted, subject.priority_class)
    if wanted.scope_name == "VolumeAttributesClass" and subject.is_volume:
        return _selects(wanted, subject.volume_class)
    return wanted.scope_name in subject.scopes


def _selects(wanted: ScopedSelectorRequirement, named: tuple[str, ...]) -> bool:
    """As label selectors do: NotIn also holds where there is no name at all."""
    match wanted.operator:
        case "In":
            return any(name in wanted.values for name in named)
        case "NotIn":
            return not named or any(name not in wanted.values for name in named)
        case "Exists":
            return bool(named)
        case "DoesNotExist":
            return not named
    return False


def _crosses_namespaces(pod: Pod) -> bool:
    return any(term.namespaces or term.namespace_selector is not None for term in _affinity_terms(pod))


def _affinity_terms(pod: Pod) -> Iterable[PodAffinityTerm]:
    affinity = pod.spec.affinity
    for part in (affinity.pod_affinity, affinity.pod_anti_affinity) if affinity is not None else ():
        if part is not None:
            yield from part.required
            yield from (weighted.pod_affinity_term for weighted in part.preferred)
