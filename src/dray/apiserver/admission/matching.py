"""Whether a policy or a binding is about a request: rules, selectors, and versions that are the same objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from dray.api.core import LabelSelector
from dray.api.selectors import Requirement, label_requirements, matches_all
from dray.apiserver.admission.request import CREATE, UPDATE, AdmissionRequest
from dray.apiserver.registry import Registry, Resource

Object = dict[str, Any]
LabelsOf = Callable[[str], Mapping[str, str]]

_EVERYTHING: Final = "*"


class Rule:
    """A line of ``resourceRules``."""

    __slots__ = ("groups", "names", "operations", "resources", "scope", "versions")

    def __init__(self, given: Object) -> None:
        self.operations = frozenset(given.get("operations") or ())
        self.groups = frozenset(given.get("apiGroups") or ())
        self.versions = frozenset(given.get("apiVersions") or ())
        self.resources = tuple(tuple(each.partition("/")[::2]) for each in given.get("resources") or ())
        self.names = frozenset(given.get("resourceNames") or ())
        self.scope = given.get("scope") or _EVERYTHING

    def matches(self, request: AdmissionRequest, resource: Resource) -> bool:
        kind = resource.kind
        return (
            _has(self.operations, request.operation)
            and _has(self.groups, kind.group)
            and _has(self.versions, kind.version)
            and any(_is(name, kind.plural) and _is(sub, request.subresource) for name, sub in self.resources)
            and (self.scope == _EVERYTHING or (self.scope == "Namespaced") == kind.namespaced)
            and (not self.names or request.name in self.names)
        )


def _has(wanted: frozenset[str], given: str) -> bool:
    return given in wanted or _EVERYTHING in wanted


def _is(wanted: str, given: str) -> bool:
    return wanted in (given, _EVERYTHING)


class Constraints:
    """``matchConstraints`` of a policy, or ``matchResources`` of a binding."""

    def __init__(self, given: Object, registry: Registry, labels_of: LabelsOf) -> None:
        self._registry, self._labels_of = registry, labels_of
        self.rules = [Rule(each) for each in given.get("resourceRules") or ()]
        self._excluded = [Rule(each) for each in given.get("excludeResourceRules") or ()]
        self._equivalent = given.get("matchPolicy") == "Equivalent"
        self._namespaces = _requirements(given.get("namespaceSelector"))
        self._objects = _requirements(given.get("objectSelector"))

    def matched(self, request: AdmissionRequest) -> Resource | None:
        """The resource by which the request is matched: its own, or the same objects in another version."""
        if not self._in_namespace(request) or not self._has_labels(request):
            return None
        if self._excluded and self._by_rules(self._excluded, request) is not None:
            return None
        return self._by_rules(self.rules, request) if self.rules else request.resource

    def _by_rules(self, rules: list[Rule], request: AdmissionRequest) -> Resource | None:
        if any(rule.matches(request, request.resource) for rule in rules):
            return request.resource
        if not self._equivalent:
            return None
        others = self._registry.views(request.resource)
        return next((other for rule in rules for other in others if rule.matches(request, other)), None)

    def _in_namespace(self, request: AdmissionRequest) -> bool:
        itself = request.resource.kind.resource == "namespaces"
        if not self._namespaces or not (request.namespace or itself):
            return True
        if itself and not request.subresource and request.operation in (CREATE, UPDATE):
            labels = _labels(request.object)
        else:
            labels = self._labels_of(request.namespace)
        return matches_all(self._namespaces, labels)

    def _has_labels(self, request: AdmissionRequest) -> bool:
        if not self._objects:
            return True
        given = [obj for obj in (request.object, request.old) if obj is not None]
        return any(matches_all(self._objects, _labels(obj)) for obj in given)


def _requirements(selector: Object | None) -> tuple[Requirement, ...]:
    return label_requirements(msgspec.convert(selector or {}, LabelSelector)) or ()


def _labels(obj: Object | None) -> Mapping[str, str]:
    return ((obj or {}).get("metadata") or {}).get("labels") or {}
