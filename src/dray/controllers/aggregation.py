"""ClusterRoles that gather the rules of others: ``admin``, ``edit``, ``view`` and whatever users aggregate.

Always true: a role with an aggregationRule has exactly the rules of the roles that it selects, each once, in the order of
their names.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from dray.api.access import ClusterRole, PolicyRule
from dray.api.kinds import CLUSTER_ROLES
from dray.api.selectors import selects
from dray.cluster.port import Change, Write
from dray.controllers.keyed import Keyed


class RoleAggregation(Keyed):
    """The decider. Keys are names of ClusterRoles that gather."""

    name = "clusterrole-aggregation"
    kinds = (CLUSTER_ROLES,)

    def concerned(self, change: Change) -> Iterable[str]:
        """Gathering roles that are or were to look at: few, while roles seldom change."""
        return [name for name, role in self.world.all(CLUSTER_ROLES).items() if role.aggregation_rule is not None]

    def decide(self, key: str, now: float) -> list[Write]:
        role: ClusterRole | None = self.world.get(CLUSTER_ROLES, key)
        if role is None or role.aggregation_rule is None:
            self.forget(key)
            return []
        rules = gathered(role, self.world.all(CLUSTER_ROLES).values())
        if rules == list(role.rules) or role.metadata.deletion_timestamp is not None:
            return []
        metadata = {"name": key, "uid": role.uid}
        return [Write("patch", CLUSTER_ROLES, name=key, body={"metadata": metadata, "rules": as_json(rules)})]


def gathered(role: ClusterRole, roles: Iterable[ClusterRole]) -> list[PolicyRule]:
    """The rules that a role with an aggregationRule has, given all roles."""
    assert role.aggregation_rule is not None
    found = sorted((other for other in roles if other.key != role.key), key=lambda other: other.key)
    rules: dict[PolicyRule, None] = {}
    for selector in role.aggregation_rule.cluster_role_selectors:
        for other in found:
            if selects(selector, other.metadata.labels):
                rules.update(dict.fromkeys(other.rules))
    return list(rules)


def as_json(rules: Iterable[PolicyRule]) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = msgspec.json.decode(msgspec.json.encode(list(rules)))
    return made
