"""Whether some rules allow everything that others allow: nobody may grant more than they have.

As upstream, the rules to be granted are broken down to single rights, each of which one owned rule must cover. Upstream
multiplies out whatever it is given; here a rule that one owned rule covers as a whole is not broken down, and what would
come to more than ``STEPS`` comparisons is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import prod
from typing import Final

from dray.api.access import PolicyRule
from dray.apiserver.authorization.attributes import quoted
from dray.apiserver.authorization.rights import ALL, covers_path

STEPS: Final = 1_000_000
_SHOWN: Final = 1000


class TooManyRights(ValueError):
    """The rules cannot be compared at a bounded cost; whoever wrote them must split them."""


def missing(owned: Sequence[PolicyRule], wanted: Iterable[PolicyRule]) -> list[PolicyRule]:
    """The single rights among ``wanted`` that ``owned`` do not have."""
    owners = [_Owned(rule) for rule in owned]
    found: list[PolicyRule] = []
    steps = 0
    for rule in wanted:
        if any(owner.covers(rule) for owner in owners):
            continue
        steps += _size(rule) * max(1, len(owners))
        if steps > STEPS:
            raise TooManyRights("the rules come to too many single rights to be compared with those held; split them")
        found.extend(single for single in _singles(rule) if not any(owner.covers(single) for owner in owners))
    return found


class _Owned:
    def __init__(self, rule: PolicyRule) -> None:
        self._verbs, self._groups = set(rule.verbs), set(rule.api_groups)
        self._resources, self._names, self._urls = set(rule.resources), set(rule.resource_names), rule.non_resource_urls

    def covers(self, rule: PolicyRule) -> bool:
        return (
            _has(self._verbs, rule.verbs)
            and _has(self._groups, rule.api_groups)
            and (ALL in self._resources or all(map(self._has_resource, rule.resources)))
            and (not self._names or (bool(rule.resource_names) and self._names.issuperset(rule.resource_names)))
            and all(any(covers_path(url, path) for url in self._urls) for path in rule.non_resource_urls)
        )

    def _has_resource(self, resource: str) -> bool:
        if resource in self._resources:
            return True
        _, slash, subresource = resource.partition("/")
        return bool(slash) and f"*/{subresource}" in self._resources


def _has(owned: set[str], wanted: Iterable[str]) -> bool:
    return ALL in owned or owned.issuperset(wanted)


def _size(rule: PolicyRule) -> int:
    resources = prod(map(len, (rule.api_groups, rule.resources, rule.verbs, rule.resource_names or ("",))))
    return resources + len(rule.non_resource_urls) * len(rule.verbs)


def _singles(rule: PolicyRule) -> Iterator[PolicyRule]:
    names: list[tuple[str, ...]] = [(name,) for name in rule.resource_names]
    for group in rule.api_groups:
        for resource in rule.resources:
            for verb in rule.verbs:
                for name in names or [()]:
                    yield PolicyRule((verb,), (group,), (resource,), name)
    for url in rule.non_resource_urls:
        for verb in rule.verbs:
            yield PolicyRule((verb,), non_resource_urls=(url,))


# ------------------------------------------------------------------------------------------------------------------ words


def described(rules: Iterable[PolicyRule]) -> str:
    """The single rights that are missing, a line for each resource, as upstream tells them."""
    lines = sorted({_compact(rule) for rule in _merged(rules)})
    left_out = [f"and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    return "\n".join([*lines[:_SHOWN], *left_out])


def _merged(rules: Iterable[PolicyRule]) -> list[PolicyRule]:
    """Rights that differ in the verb only are one."""
    verbs: dict[tuple[tuple[str, ...], ...], list[str]] = {}
    made = []
    for rule in rules:
        if rule.non_resource_urls:
            made.append(rule)
        else:
            verbs.setdefault((rule.api_groups, rule.resources, rule.resource_names), []).extend(rule.verbs)
    return made + [PolicyRule(tuple(found), *about) for about, found in verbs.items()]


def _compact(rule: PolicyRule) -> str:
    parts = (
        ("APIGroups", rule.api_groups),
        ("Resources", rule.resources),
        ("NonResourceURLs", rule.non_resource_urls),
        ("ResourceNames", rule.resource_names),
        ("Verbs", rule.verbs),
    )
    return "{" + ", ".join(f"{name}:{listed(values)}" for name, values in parts if values) + "}"


def listed(values: Iterable[str]) -> str:
    """As Go prints a list with %q."""
    return "[" + " ".join(map(quoted, values)) + "]"
