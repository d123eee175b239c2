"""The account of one namespace: what each of its quotas has in use, kept as objects come, change and go.

Always true: the totals equal a count of all objects from scratch; an object counts once however often it is put; asking what a
change would cost changes nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping

import msgspec

from dray.api.core import Pod, ResourceQuotaSpec, ScopedSelectorRequirement
from dray.api.meta import Object
from dray.api.requests import add
from dray.quota import charges, scopes
from dray.quota.charges import Charge, Facts, PodFacts
from dray.quota.devices import Served
from dray.quota.names import ZERO, Amounts, only, subtract

Member = tuple[str, str]  # resource, namespace/name


class Followed(msgspec.Struct):
    """A quota whose usage is kept."""

    names: tuple[str, ...]
    selectors: tuple[ScopedSelectorRequirement, ...]
    used: Amounts

    def counts(self, charge: Charge) -> bool:
        return not self.selectors or scopes.matches(self.selectors, charge.subject)


class Account:
    """``countable`` says which names anything is charged to; ``at_once`` as in ``charges``."""

    def __init__(self, served: Served, countable: Callable[[str], bool], *, at_once: bool = True) -> None:
        self._served, self._countable, self._at_once = served, countable, at_once
        self._units: dict[str, dict[Member, Facts]] = {}
        self._where: dict[Member, str] = {}
        self._charged: dict[str, list[Charge]] = {}
        self._quotas: dict[str, Followed] = {}
        self._ends: list[tuple[float, str]] = []

    # -------------------------------------------------------------------------------------------------------- quotas

    def follow(self, quotas: Mapping[str, ResourceQuotaSpec]) -> None:
        """Keep the usage of exactly these quotas, by name."""
        for gone in [name for name in self._quotas if name not in quotas]:
            del self._quotas[gone]
        for name, spec in quotas.items():
            names = tuple(sorted(filter(self._countable, spec.hard)))
            selectors = scopes.selectors(spec)
            known = self._quotas.get(name)
            if known is None or (known.names, known.selectors) != (names, selectors):
                made = self._quotas[name] = Followed(names, selectors, dict.fromkeys(names, ZERO))
                for charged in self._charged.values():
                    _charge(made, charged)

    def used(self, quota: str) -> Amounts:
        """Every name that the quota limits and that can be counted, with what is in use of it."""
        return dict(self._quotas[quota].used)

    # ------------------------------------------------------------------------------------------------------- objects

    def put(self, resource: str, found: Object, now: float) -> None:
        member, unit = (resource, found.key), charges.unit_of(resource, found)
        before = self._where.get(member)
        if before is not None and before != unit:
            self.remove(resource, found.key, now)
        facts = charges.facts_of(resource, found)
        self._units.setdefault(unit, {})[member] = facts
        self._where[member] = unit
        if isinstance(facts, PodFacts) and facts.until is not None:
            heapq.heappush(self._ends, (facts.until, unit))
        self._charge(unit, now)

    def remove(self, resource: str, key: str, now: float) -> None:
        unit = self._where.pop((resource, key), None)
        if unit is None:
            return
        members = self._units[unit]
        del members[resource, key]
        if not members:
            del self._units[unit]
        self._charge(unit, now)

    def advance(self, now: float) -> None:
        """Pods that take longer to stop than they were given no longer count."""
        while self._ends and self._ends[0][0] < now:
            self._charge(heapq.heappop(self._ends)[1], now)

    def next_end(self) -> float | None:
        return self._ends[0][0] if self._ends else None

    def concerns(self, quota: str, pod: Pod) -> bool:
        """Whether the pod is in the quota's scopes."""
        return scopes.matches(self._quotas[quota].selectors, scopes.of_pod(pod))

    def asked(self, resource: str, found: Object, now: float) -> dict[str, Amounts]:
        """What each quota would have in use beyond today if the object were this: positive amounts only."""
        unit = charges.unit_of(resource, found)
        member = (resource, found.key)
        others = [facts for each, facts in self._units.get(unit, {}).items() if each != member]
        facts = [*others, charges.facts_of(resource, found)]
        after = charges.charges(facts, self._served, now, at_once=self._at_once)
        return {name: more for name, quota in self._quotas.items() if (more := self._difference(quota, unit, after))}

    def _difference(self, quota: Followed, unit: str, after: list[Charge]) -> Amounts:
        total: Amounts = {}
        for charge in filter(quota.counts, after):
            add(total, only(charge.amounts, quota.names))
        for charge in filter(quota.counts, self._charged.get(unit, ())):
            subtract(total, only(charge.amounts, quota.names))
        return {name: amount for name, amount in total.items() if amount > ZERO}

    def _charge(self, unit: str, now: float) -> None:
        members = self._units.get(unit)
        before = self._charged.pop(unit, [])
        after = charges.charges(members.values(), self._served, now, at_once=self._at_once) if members else []
        if after:
            self._charged[unit] = after
        if before != after:
            for quota in self._quotas.values():
                _charge(quota, after)
                _release(quota, before)


def _charge(quota: Followed, charged: Iterable[Charge]) -> None:
    for charge in filter(quota.counts, charged):
        add(quota.used, only(charge.amounts, quota.names))


def _release(quota: Followed, charged: Iterable[Charge]) -> None:
    for charge in filter(quota.counts, charged):
        subtract(quota.used, only(charge.amounts, quota.names))
