"""The policies that are stored, compiled, and found by the resources that they are about.

Always true: what is answered is that of what is stored now; a policy is compiled once, when the first request matches it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Generic, TypeVar

from dray.apiserver.admission.matching import Constraints
from dray.apiserver.admission.request import AdmissionRequest
from dray.apiserver.registry import Registry, Resource
from dray.apiserver.store import Entry, Store, Table

Object = dict[str, Any]
P = TypeVar("P")

_EVERYTHING: Final = "*"


class Binding:
    def __init__(self, entry: Entry, constraints_of: Callable[[Object], Constraints]) -> None:
        self.entry = entry
        self.spec: Object = entry.object["spec"]
        self.name: str = entry.object["metadata"]["name"]
        given = self.spec.get("matchResources")
        self._constraints = constraints_of(given) if given is not None else None

    def matches(self, request: AdmissionRequest) -> bool:
        return self._constraints is None or self._constraints.matched(request) is not None


class Stored(Generic[P]):
    """A policy as it is stored, with its bindings."""

    def __init__(self, entry: Entry, constraints_of: Callable[[Object], Constraints], compile: Callable[[Object], P]) -> None:
        self.entry = entry
        self.spec: Object = entry.object["spec"]
        self.name: str = entry.object["metadata"]["name"]
        self.bindings: list[Binding] = []
        self._constraints = constraints_of(self.spec["matchConstraints"])
        self._compile = compile
        self._made: P | None = None
        self.fails = self.spec.get("failurePolicy") != "Ignore"

    @property
    def compiled(self) -> P:
        if self._made is None:
            self._made = self._compile(self.spec)
        return self._made

    @property
    def plurals(self) -> set[str]:
        return {name for rule in self._constraints.rules for name, _ in rule.resources}

    def matched(self, request: AdmissionRequest) -> Resource | None:
        return self._constraints.matched(request)


class Policies(Generic[P]):
    """Of one sort. ``compile`` makes of a policy's spec what evaluates it."""

    def __init__(self, store: Store, registry: Registry, policies: str, bindings: str, compile: Callable[[Object], P]) -> None:
        self._store, self._registry, self._compile = store, registry, compile
        self._policies, self._bindings = store.table(policies), store.table(bindings)
        self._namespaces = store.table("namespaces")
        self._state: object = None
        self._known: dict[str, Stored[P]] = {}
        self._bound: dict[str, Binding] = {}
        self._about: dict[str, list[Stored[P]]] = {}

    def about(self, plural: str) -> list[Stored[P]]:
        """Those with bindings that may be about a resource, by name."""
        if not self._policies.entries or not self._bindings.entries:
            return []
        state = (_state(self._policies), _state(self._bindings), self._store.reverted)
        if state != self._state:
            self._state = state
            self._load()
        found = self._about.get(plural)
        return found if found is not None else self._about.get(_EVERYTHING, [])

    def _load(self) -> None:
        """What has not changed since the last time stays as it was compiled."""
        known, bound = self._known, self._bound
        self._known, self._bound, self._about = {}, {}, {}
        for name, entry in self._policies.scan():
            before = known.get(name)
            same = before is not None and before.entry is entry
            found = before if before is not None and same else Stored(entry, self._constraints, self._compile)
            found.bindings = []
            self._known[name] = found
        for name, entry in self._bindings.scan():
            kept = bound.get(name)
            binding = kept if kept is not None and kept.entry is entry else Binding(entry, self._constraints)
            self._bound[name] = binding
            policy = self._known.get(binding.spec.get("policyName") or "")
            if policy is not None:
                policy.bindings.append(binding)
        self._index()

    def _index(self) -> None:
        active = [policy for policy in self._known.values() if policy.bindings]
        everywhere = [policy for policy in active if _EVERYTHING in policy.plurals]
        plurals = {plural for policy in active for plural in policy.plurals}
        for plural in plurals - {_EVERYTHING}:
            self._about[plural] = [policy for policy in active if policy in everywhere or plural in policy.plurals]
        self._about[_EVERYTHING] = everywhere

    def _constraints(self, given: Object) -> Constraints:
        return Constraints(given, self._registry, self._labels_of)

    def _labels_of(self, namespace: str) -> Mapping[str, str]:
        found = self.namespace(namespace)
        return ((found or {}).get("metadata") or {}).get("labels") or {}

    def namespace(self, name: str) -> Object | None:
        found = self._namespaces.entries.get(name)
        return found.object if found is not None else None

    def matching(self, request: AdmissionRequest) -> Iterator[tuple[Stored[P], Resource]]:
        for policy in self.about(request.resource.kind.plural):
            matched = policy.matched(request)
            if matched is not None:
                yield policy, matched


def _state(table: Table) -> tuple[int, int]:
    """Changes with every change of the table."""
    return len(table.entries), table.history[-1].revision if table.history else 0
