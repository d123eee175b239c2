"""Nobody grants more than they have: what roles and bindings need beyond the right to write them.

A role may be written by who has all its rights, or the verb ``escalate`` on it; a binding by who has all rights of its role, or
the verb ``bind`` on that role. Hooks of the four kinds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from dray.api.access import PolicyRule
from dray.api.kinds import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES, Kind
from dray.apiserver.authorization.attributes import Attributes, quoted
from dray.apiserver.authorization.caller import Caller
from dray.apiserver.authorization.covering import TooManyRights, described, listed
from dray.apiserver.authorization.policy import joined
from dray.apiserver.errors import forbidden, not_found
from dray.apiserver.registry import Context, Hook

Object = dict[str, Any]

_EVERYTHING: Final = (PolicyRule(("*",), ("*",), ("*",)), PolicyRule(("*",), non_resource_urls=("*",)))
_COLLECTED: Final = ("ownerReferences", "finalizers", "selfLink", "managedFields", "resourceVersion", "generation")


def _role(kind: Kind) -> Hook:
    def hook(obj: Object, old: Object | None, context: Context) -> None:
        caller = context.caller
        if caller is None or caller.user.privileged or _only_for_garbage(obj, old):
            return
        asked = caller.asked
        if caller.may(Attributes("escalate", kind.group, kind.plural, "", asked.namespace, asked.name)):
            return
        _must_have(caller, kind, obj, msgspec.convert(obj.get("rules") or [], list[PolicyRule]))
        if _aggregates(obj) or (old is not None and _aggregates(old)):
            _must_have_everything(caller, kind, obj)

    return hook


def _binding(kind: Kind) -> Hook:
    def hook(obj: Object, old: Object | None, context: Context) -> None:
        caller = context.caller
        if caller is None or caller.user.privileged or _only_for_garbage(obj, old):
            return
        reference = obj.get("roleRef") or {}
        role, name = (CLUSTER_ROLES if reference.get("kind") == "ClusterRole" else ROLES), reference.get("name", "")
        namespace = caller.asked.namespace
        if caller.may(Attributes("bind", reference.get("apiGroup", ""), role.plural, "", namespace, name)):
            return
        rules = caller.rules_of(role.kind, namespace, name)
        if rules is None:
            raise not_found(role, name)
        _must_have(caller, kind, obj, rules)

    return hook


def _must_have(caller: Caller, kind: Kind, obj: Object, rules: Iterable[PolicyRule]) -> None:
    name = obj["metadata"].get("name", "")
    try:
        lacking = caller.lacks(rules)
    except TooManyRights as error:
        raise forbidden(kind, name, str(error)) from error
    if lacking:
        who = f"user {quoted(caller.user.name)} (groups={listed(caller.user.groups)})"
        why = f"{who} is attempting to grant RBAC permissions not currently held:\n{described(lacking)}"
        if caller.problems:
            why += f"; resolution errors: [{joined(caller.problems)}]"
        raise forbidden(kind, name, why)


def _must_have_everything(caller: Caller, kind: Kind, obj: Object) -> None:
    if caller.lacks(_EVERYTHING):
        raise forbidden(kind, obj["metadata"].get("name", ""), "must have cluster-admin privileges to use the aggregationRule")


def _aggregates(role: Object) -> bool:
    return bool((role.get("aggregationRule") or {}).get("clusterRoleSelectors"))


def _only_for_garbage(obj: Object, old: Object | None) -> bool:
    """Owners and finalizers may change without the rights: somebody has to clean up."""
    return old is not None and _compared(obj) == _compared(old)


def _compared(obj: Object) -> Object:
    metadata = {field: value for field, value in obj["metadata"].items() if field not in _COLLECTED}
    return obj | {"metadata": metadata}


role: Final = _role(ROLES)
cluster_role: Final = _role(CLUSTER_ROLES)
role_binding: Final = _binding(ROLE_BINDINGS)
cluster_role_binding: Final = _binding(CLUSTER_ROLE_BINDINGS)
