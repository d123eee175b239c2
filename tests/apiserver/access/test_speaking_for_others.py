"""Impersonation: who may, as whom, and what comes of it."""

from __future__ import annotations

from typing import Any

from dray.apiserver.authentication.users import ADMIN, AUTHENTICATED, User
from tests.apiserver.access.conftest import BOB, Policed, rule, user
from tests.apiserver.conftest import PODS, Json

WHOAMI = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


def as_(name: str, *more: tuple[str, str]) -> Any:
    return (("impersonate-user", name), *more)


def who(cluster: Policed, caller: User | None = None, **headers: Any) -> Json:
    more = {"user": caller} if caller is not None else {}
    found: Json = cluster.post(WHOAMI, {}, **more, **headers)["status"]["userInfo"]
    return found


def test_the_owner_speaks_for_anybody(cluster: Policed) -> None:
    assert who(cluster, impersonate=as_("alice")) == {"username": "alice", "groups": [AUTHENTICATED]}
    full = as_("alice", ("impersonate-group", "a"), ("impersonate-group", "b"), ("impersonate-uid", "7"))
    shown = who(cluster, impersonate=(*full, ("impersonate-extra-acme.com%2fscope", "read")))
    extra = {"acme.com/scope": ["read"]}
    assert shown == {"username": "alice", "uid": "7", "groups": ["a", "b", AUTHENTICATED], "extra": extra}


def test_a_service_account_has_its_groups(cluster: Policed) -> None:
    name = "system:serviceaccount:default:robot"
    groups = ["system:serviceaccounts", "system:serviceaccounts:default", AUTHENTICATED]
    assert who(cluster, impersonate=as_(name)) == {"username": name, "groups": groups}
    assert 'User "system:anonymous" cannot create' in cluster.refused(
        "POST", WHOAMI, ADMIN, {}, impersonate=as_("system:anonymous")
    )


def test_what_is_done_is_done_with_the_rights_of_the_other(cluster: Policed) -> None:
    assert 'User "alice" cannot list resource "pods"' in cluster.refused(
        "GET", PODS, User("x", ("system:masters",)), impersonate=as_("alice")
    )


def test_groups_without_a_user_are_refused(cluster: Policed) -> None:
    cluster.call("GET", PODS, impersonate=(("impersonate-group", "a"),), code=400)


def test_nobody_else_may_without_the_right(cluster: Policed) -> None:
    said = cluster.refused("POST", WHOAMI, BOB, {}, impersonate=as_("alice"))
    assert said == (
        'selfsubjectreviews.authentication.k8s.io is forbidden: User "bob" cannot impersonate-on:user-info:create resource '
        '"selfsubjectreviews" in API group "authentication.k8s.io" at the cluster scope'
    )


def test_the_right_to_impersonate_names_users_groups_and_extras(cluster: Policed) -> None:
    cluster.role("speaker", rule("impersonate", "users", resourceNames=["alice"]), rule("impersonate", "groups"), namespace="")
    cluster.bind("speaker", user(), namespace="")
    assert who(cluster, BOB, impersonate=as_("alice", ("impersonate-group", "g")))["groups"] == ["g", AUTHENTICATED]
    cluster.refused("POST", WHOAMI, BOB, {}, impersonate=as_("carol"))
    cluster.refused("POST", WHOAMI, BOB, {}, impersonate=as_("alice", ("impersonate-uid", "1")))
    cluster.refused("POST", WHOAMI, BOB, {}, impersonate=as_("alice", ("impersonate-extra-scope", "x")))


def test_constrained_impersonation_allows_only_what_is_named(cluster: Policed) -> None:
    cluster.role("speaker", rule("impersonate:user-info", "users", "authentication.k8s.io"), namespace="")
    cluster.role("on", rule("impersonate-on:user-info:list", "pods"), rule("get", "pods"), namespace="")
    cluster.role("lister", rule("list get", "pods"), namespace="")
    cluster.bind("speaker", user(), namespace="")
    cluster.bind("on", user(), namespace="")
    cluster.bind("lister", user("alice"), namespace="")
    cluster.call("GET", PODS, user=BOB, impersonate=as_("alice"))
    assert "impersonate-on:user-info:get" in cluster.refused("GET", f"{PODS}/p", BOB, impersonate=as_("alice"))
    masters = as_("alice", ("impersonate-group", "system:masters"))
    assert cluster.refused("GET", PODS, BOB, impersonate=masters).endswith(
        "impersonating the system:masters group is not allowed"
    )


def test_a_service_account_speaks_for_its_own_node(cluster: Policed) -> None:
    cluster.role("node", rule("impersonate:associated-node", "nodes", "authentication.k8s.io"), namespace="")
    cluster.role("on", rule("impersonate-on:associated-node:create", "selfsubjectreviews", "authentication.k8s.io"), namespace="")
    agent = "system:serviceaccount:default:agent"
    for role in ("node", "on"):
        cluster.bind(role, {"kind": "ServiceAccount", "name": "agent", "namespace": "default"}, namespace="")
    on_n1 = User(agent, (AUTHENTICATED,), "", (("authentication.kubernetes.io/node-name", ("n1",)),))
    assert who(cluster, on_n1, impersonate=as_("system:node:n1"))["groups"] == ["system:nodes", AUTHENTICATED]
    cluster.refused("POST", WHOAMI, on_n1, {}, impersonate=as_("system:node:n2"))
