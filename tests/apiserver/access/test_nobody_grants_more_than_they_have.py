"""Roles and bindings need the rights that they give, or the verbs escalate and bind."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dray.api.access import PolicyRule
from dray.apiserver.authentication.users import AUTHENTICATED, User
from dray.apiserver.authorization import covering
from dray.apiserver.authorization.covering import TooManyRights, missing
from tests.apiserver.access.conftest import BOB, RBAC, Policed, rule, user

ROLES = f"{RBAC}/namespaces/default/roles"
BINDINGS = f"{RBAC}/namespaces/default/rolebindings"


@pytest.fixture
def cluster() -> Policed:
    """Bob writes roles and bindings in his namespace, and reads pods."""
    made = Policed()
    made.role("writer", rule("create patch", "roles rolebindings", "rbac.authorization.k8s.io"), rule("get list", "pods"))
    made.bind("writer", user())
    made.bind("writer", user(), namespace="", name="nowhere")
    return made


def test_a_role_with_the_rights_of_its_writer_is_accepted(cluster: Policed) -> None:
    cluster.role("pods", rule("get", "pods"), user=BOB)


def test_a_role_with_more_is_refused_with_what_is_missing(cluster: Policed) -> None:
    rules = [rule("get delete watch", "pods"), rule("get", "secrets", resourceNames=["x"])]
    assert cluster.refused("POST", ROLES, BOB, {"metadata": {"name": "more"}, "rules": rules}) == (
        'roles.rbac.authorization.k8s.io "more" is forbidden: user "bob" (groups=["system:authenticated"]) '
        "is attempting to grant RBAC permissions not currently held:\n"
        '{APIGroups:[""], Resources:["pods"], Verbs:["delete" "watch"]}\n'
        '{APIGroups:[""], Resources:["secrets"], ResourceNames:["x"], Verbs:["get"]}; resolution errors: '
        '[clusterrole.rbac.authorization.k8s.io "writer" not found]'
    )


def test_an_update_counts_too_but_for_owners_and_finalizers(cluster: Policed) -> None:
    cluster.role("strong", rule("*", "secrets"))
    cluster.patch(f"{ROLES}/strong", {"metadata": {"labels": {"a": "b"}}}, user=BOB, code=403)
    cluster.patch(f"{ROLES}/strong", {"metadata": {"finalizers": ["example.com/x"]}}, user=BOB)


def test_who_may_escalate_may_write_any_role(cluster: Policed) -> None:
    cluster.role("climber", rule("create escalate", "clusterroles", "rbac.authorization.k8s.io"), namespace="")
    cluster.bind("climber", {"kind": "User", "name": "kim"}, namespace="")
    cluster.role("any", rule("*", "*", "*"), namespace="", user=User("kim", (AUTHENTICATED,)))


def test_a_binding_needs_the_rights_of_its_role_or_bind(cluster: Policed) -> None:
    cluster.role("strong", rule("*", "secrets"))
    reference = {"roleRef": {"kind": "Role", "name": "strong"}, "subjects": [user("eve")]}
    said = cluster.refused("POST", BINDINGS, BOB, {"metadata": {"name": "b"}, **reference})
    assert said.startswith('rolebindings.rbac.authorization.k8s.io "b" is forbidden: user "bob"')
    cluster.role("binder", rule("bind", "roles", "rbac.authorization.k8s.io", resourceNames=["strong"]))
    cluster.bind("binder", user())
    cluster.bind("strong", user("eve"), name="b", user=BOB)


def test_a_binding_to_a_role_that_nobody_made_is_not_found(cluster: Policed) -> None:
    body = {"metadata": {"name": "b"}, "roleRef": {"kind": "Role", "name": "none"}}
    assert cluster.post(BINDINGS, body, user=BOB, code=404)["details"]["name"] == "none"


def test_gathering_needs_everything(cluster: Policed) -> None:
    cluster.role("gatherer", rule("create", "clusterroles", "rbac.authorization.k8s.io"), namespace="")
    cluster.bind("gatherer", {"kind": "User", "name": "kim"}, namespace="")
    body = {"metadata": {"name": "all"}, "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}}
    said = cluster.refused("POST", f"{RBAC}/clusterroles", User("kim", (AUTHENTICATED,)), body)
    assert said.endswith("must have cluster-admin privileges to use the aggregationRule")


def test_rules_that_multiply_out_cost_a_bounded_amount(cluster: Policed) -> None:
    many = " ".join(f"r{number}" for number in range(3000))
    body = {"metadata": {"name": "huge"}, "rules": [rule(many, many, many, resourceNames=many.split())]}
    assert "split them" in cluster.refused("POST", ROLES, BOB, body)


def test_the_bound_is_on_comparisons() -> None:
    names = tuple(f"n{number}" for number in range(1001))
    with pytest.raises(TooManyRights):
        missing([PolicyRule(("a",))], [PolicyRule(names, names, ("pods",))])
    assert len(covering.described(missing([], [PolicyRule(("get",), ("",), names)])).splitlines()) == 1001


words = st.lists(st.sampled_from(["a", "b", "*", "c/s", "*/s"]), min_size=1, max_size=3).map(tuple)
names = st.lists(st.sampled_from(["x", "y"]), max_size=2).map(tuple)
rules = st.builds(PolicyRule, words, words, words, names)


def covers(owner: PolicyRule, verb: str, group: str, resource: str, name: str) -> bool:
    by_resource = {"*", resource} | ({"*/" + resource.partition("/")[2]} if "/" in resource else set())
    return (
        bool({"*", verb} & set(owner.verbs))
        and bool({"*", group} & set(owner.api_groups))
        and bool(by_resource & set(owner.resources))
        and (not owner.resource_names or name in owner.resource_names)
    )


@given(st.lists(rules, max_size=3), rules)
@settings(max_examples=300, deadline=None)
def test_what_is_missing_is_what_no_single_owned_rule_covers(owned: list[PolicyRule], wanted: PolicyRule) -> None:
    singles = [
        (verb, group, resource, name)
        for group in wanted.api_groups
        for resource in wanted.resources
        for verb in wanted.verbs
        for name in wanted.resource_names or ("",)
        if not any(covers(owner, verb, group, resource, name) for owner in owned)
    ]
    found = missing(owned, [wanted])
    assert [(r.verbs[0], r.api_groups[0], r.resources[0], (r.resource_names or ("",))[0]) for r in found] == singles
