"""RBAC decides as Kubernetes does, and words its refusals as Kubernetes does."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dray.api.access import PolicyRule
from dray.apiserver.api import Api, Request, Target, _verb
from dray.apiserver.authentication.users import AUTHENTICATED, VIEWER, User
from dray.apiserver.authorization.attributes import Attributes, attributes_of
from dray.apiserver.authorization.rights import Grant, Rights
from dray.apiserver.errors import ApiError
from dray.apiserver.server import Core
from tests.apiserver.access.conftest import BOB, RBAC, Policed, rule, user
from tests.apiserver.conftest import CLAIMS, CONFIG_MAPS, PODS, config_map, pod


class TestARoleInANamespace:
    def test_grants_there_and_nowhere_else(self, cluster: Policed) -> None:
        cluster.role("reader", rule("get list", "configmaps"))
        cluster.bind("reader", user())
        cluster.post(CONFIG_MAPS, config_map())
        assert cluster.call("GET", f"{CONFIG_MAPS}/cm", user=BOB)["metadata"]["name"] == "cm"
        assert cluster.refused("DELETE", f"{CONFIG_MAPS}/cm", BOB) == (
            'configmaps "cm" is forbidden: User "bob" cannot delete resource "configmaps" in API group "" '
            'in the namespace "default"'
        )
        assert cluster.refused("GET", "/api/v1/namespaces/kube-system/configmaps", BOB).endswith('in the namespace "kube-system"')
        assert cluster.refused("GET", "/api/v1/configmaps", BOB) == (
            'configmaps is forbidden: User "bob" cannot list resource "configmaps" in API group "" at the cluster scope'
        )

    def test_names_single_objects(self, cluster: Policed) -> None:
        cluster.role("one", rule("get watch", "configmaps", resourceNames=["mine"]))
        cluster.bind("one", user())
        for name in ("mine", "other"):
            cluster.post(CONFIG_MAPS, config_map(name))
        cluster.call("GET", f"{CONFIG_MAPS}/mine", user=BOB)
        cluster.refused("GET", f"{CONFIG_MAPS}/other", BOB)
        cluster.refused("GET", f"{CONFIG_MAPS}?watch=1", BOB)

    def test_a_list_of_one_name_is_about_that_object(self, cluster: Policed) -> None:
        cluster.role("one", rule("list", "configmaps", resourceNames=["mine"]))
        cluster.bind("one", user())
        listed = cluster.call("GET", f"{CONFIG_MAPS}?fieldSelector=metadata.name=mine", user=BOB)
        assert listed["items"] == []
        cluster.refused("GET", CONFIG_MAPS, BOB)
        cluster.refused("GET", f"{CONFIG_MAPS}?fieldSelector=metadata.name!=mine", BOB)
        cluster.refused("GET", f"{CONFIG_MAPS}?fieldSelector=metadata.name=mine&watch=1", BOB)

    def test_of_a_subresource_is_not_one_of_the_object(self, cluster: Policed) -> None:
        cluster.role("status", rule("get patch", "pods/status"))
        cluster.bind("status", user())
        cluster.post(PODS, pod())
        cluster.call("GET", f"{PODS}/p/status", user=BOB)
        assert 'cannot get resource "pods" ' in cluster.refused("GET", f"{PODS}/p", BOB)
        assert 'cannot create resource "pods/binding"' in cluster.refused("POST", f"{PODS}/p/binding", BOB, {})

    def test_is_gone_with_its_binding(self, cluster: Policed) -> None:
        cluster.role("reader", rule("list", "configmaps"))
        cluster.bind("reader", user())
        cluster.call("GET", CONFIG_MAPS, user=BOB)
        cluster.delete(f"{RBAC}/namespaces/default/rolebindings/reader")
        cluster.refused("GET", CONFIG_MAPS, BOB)

    def test_changes_with_its_rules(self, cluster: Policed) -> None:
        cluster.role("reader", rule("list", "configmaps"))
        cluster.bind("reader", user())
        cluster.call("GET", CONFIG_MAPS, user=BOB)
        cluster.patch(f"{RBAC}/namespaces/default/roles/reader", {"rules": [rule("list", "secrets")]})
        cluster.refused("GET", CONFIG_MAPS, BOB)
        cluster.call("GET", "/api/v1/namespaces/default/secrets", user=BOB)


class TestAClusterRole:
    def test_holds_everywhere_when_bound_everywhere(self, cluster: Policed) -> None:
        cluster.role("nodes", rule("list", "nodes"), namespace="")
        cluster.bind("nodes", {"kind": "Group", "name": "ops"}, namespace="")
        ops = User("eve", ("ops", AUTHENTICATED))
        cluster.call("GET", "/api/v1/nodes", user=ops)
        cluster.refused("GET", "/api/v1/nodes", BOB)

    def test_holds_in_one_namespace_when_bound_there(self, cluster: Policed) -> None:
        cluster.bind("cluster-admin", user(), kind="ClusterRole", name="boss")
        cluster.call("POST", CONFIG_MAPS, config_map(), user=BOB)
        assert cluster.refused("GET", "/api/v1/nodes", BOB).endswith("at the cluster scope")

    def test_names_paths(self, cluster: Policed) -> None:
        assert cluster.refused("GET", "/metrics/x", BOB) == 'forbidden: User "bob" cannot get path "/metrics/x"'
        cluster.role("paths", {"verbs": ["get"], "nonResourceURLs": ["/metrics/*"]}, namespace="")
        cluster.bind("paths", user(), namespace="")
        cluster.call("GET", "/metrics/x", user=BOB, code=404)

    def test_that_is_missing_is_told(self, cluster: Policed) -> None:
        cluster.bind("nobody-made-it", user(), namespace="")
        assert cluster.refused("GET", PODS, BOB).endswith(
            ': RBAC: clusterrole.rbac.authorization.k8s.io "nobody-made-it" not found'
        )

    def test_of_a_service_account(self, cluster: Policed) -> None:
        cluster.role("reader", rule("list", "configmaps"))
        cluster.bind("reader", {"kind": "ServiceAccount", "name": "robot", "namespace": "default"})
        cluster.call("GET", CONFIG_MAPS, user=User("system:serviceaccount:default:robot"))
        cluster.refused("GET", CONFIG_MAPS, User("system:serviceaccount:other:robot"))


class TestWhatEveryoneMay:
    def test_whoever_is_authenticated_discovers_and_asks_about_themselves(self, cluster: Policed) -> None:
        for path in ("/api", "/apis", "/version", "/openapi/v3", "/healthz"):
            cluster.ask("GET", path, user=BOB)
            assert cluster.ask("GET", path, user=BOB).code == 200  # type: ignore[union-attr]
        whoami = cluster.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", {}, user=BOB)
        assert whoami["status"]["userInfo"] == {"username": "bob", "groups": [AUTHENTICATED]}

    def test_a_viewer_reads_all_but_secrets_and_writes_nothing(self, cluster: Policed) -> None:
        for path in (PODS, CLAIMS, "/api/v1/nodes", "/apis/resource.k8s.io/v1/resourceslices", f"{RBAC}/clusterroles"):
            cluster.call("GET", path, user=VIEWER)
        cluster.refused("GET", "/api/v1/namespaces/default/secrets", VIEWER)
        cluster.refused("POST", CONFIG_MAPS, VIEWER, config_map())
        cluster.refused("POST", "/api/v1/namespaces/default/serviceaccounts/default/token", VIEWER, {})

    def test_a_put_that_creates_needs_the_right_to_create(self, cluster: Policed) -> None:
        leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
        cluster.role("updater", rule("update get", "leases", "coordination.k8s.io"))
        cluster.bind("updater", user())
        assert 'cannot create resource "leases"' in cluster.refused("PUT", f"{leases}/x", BOB, {"metadata": {"name": "x"}})


words = st.sampled_from(["a", "b", "*", "a/s", "*/s", "b/s", ""])
lists = st.lists(words, max_size=3).map(tuple)
urls = st.lists(st.sampled_from(["/a", "/a/*", "/a/b", "*", "/*"]), max_size=2).map(tuple)
rules = st.builds(PolicyRule, lists, lists, lists, lists, urls)
wanted = st.builds(
    Attributes,
    verb=st.sampled_from(["a", "b", ""]),
    group=st.sampled_from(["a", "b", ""]),
    resource=st.sampled_from(["a", "b"]),
    subresource=st.sampled_from(["", "s"]),
    name=st.sampled_from(["a", "b", ""]),
    path=st.sampled_from([None, None, "/a", "/a/b", "/c"]),
)


def allows(found: PolicyRule, asked: Attributes) -> bool:
    """As the specification says it, rule by rule."""
    if "*" not in found.verbs and asked.verb not in found.verbs:
        return False
    if asked.path is not None:
        return any(u == asked.path or (u.endswith("*") and asked.path.startswith(u.rstrip("*"))) for u in found.non_resource_urls)
    resources = {"*", asked.combined} | ({f"*/{asked.subresource}"} if asked.subresource else set())
    return (
        bool({"*", asked.group} & set(found.api_groups))
        and bool(resources & set(found.resources))
        and (not found.resource_names or asked.name in found.resource_names)
    )


@given(st.lists(rules, max_size=4), wanted)
@settings(max_examples=300, deadline=None)
def test_the_index_answers_as_looking_at_every_rule_does(found: list[PolicyRule], asked: Attributes) -> None:
    rights = Rights([(Grant(each), str(index)) for index, each in enumerate(found)])
    assert (rights.source(asked) is not None) == any(allows(each, asked) for each in found)


@pytest.mark.parametrize(
    ("kind", "body", "field"),
    [
        ("roles", {"rules": [{"verbs": [], "apiGroups": [""], "resources": ["pods"]}]}, "rules[0].verbs"),
        ("roles", {"rules": [{"verbs": ["get"], "nonResourceURLs": ["/x"]}]}, "rules[0].nonResourceURLs"),
        ("roles", {"rules": [{"verbs": ["get"], "resources": ["pods"]}]}, "rules[0].apiGroups"),
        ("rolebindings", {"roleRef": {"kind": "Pod", "name": "x"}}, "roleRef.kind"),
        (
            "rolebindings",
            {"roleRef": {"kind": "Role", "name": "x"}, "subjects": [{"kind": "Robot", "name": "x"}]},
            "subjects[0].kind",
        ),
    ],
)
def test_a_bad_object_is_refused_and_the_field_named(cluster: Policed, kind: str, body: dict[str, object], field: str) -> None:
    made = {"metadata": {"name": "x"}, **body}
    found = cluster.post(f"{RBAC}/namespaces/default/{kind}", made, code=422)
    assert [cause["field"] for cause in found["details"]["causes"]] == [field]


def test_the_role_of_a_binding_cannot_change(cluster: Policed) -> None:
    cluster.role("a", rule("get", "pods"))
    cluster.bind("a", user())
    change = {"roleRef": {"kind": "Role", "name": "b"}}
    found = cluster.patch(f"{RBAC}/namespaces/default/rolebindings/a", change, code=422)
    assert "roleRef" in found["message"]
    assert "field is immutable" in found["message"]


def test_what_is_remembered_of_users_is_bounded(cluster: Policed) -> None:
    policy = cluster.core.policy
    for number in range(10_000):
        policy.allowed(User(f"user-{number}"), Attributes("get", "", "pods", namespace=f"n{number}"))
    assert len(policy._rights) <= 4096


METHODS = ("DELETE", "GET", "PATCH", "POST", "PUT")
segments = st.sampled_from(["namespaces", "default", "pods", "nodes", "deployments", "p", "status", "finalize", "", ".."])
roots = st.sampled_from([["api", "v1"], ["apis", "apps", "v1"], ["api"], []])
paths = st.tuples(roots, st.lists(segments, max_size=6)).map(lambda parts: [*parts[0], *parts[1]])


@given(st.sampled_from(METHODS), paths, st.sampled_from(["", "true", "1", "yes"]))
@settings(max_examples=400, deadline=None)
def test_what_is_authorized_is_what_is_done(method: str, parts: list[str], watch: str) -> None:
    """Whatever resource, name and verb the API finds in a path, authorization was asked about the same."""
    api = CORE.api
    request = Request(method, "/" + "/".join(parts), {"watch": watch} if watch else {}, user=User("x", ("system:masters",)))
    split = request.path.strip("/").split("/")
    asked = attributes_of(method, request.path, split, request.query)
    routed = None
    if split[0] == "api" and len(split) > 2:
        routed = found(api, "", split[1], split[2:])
    elif split[0] == "apis" and len(split) > 3:
        routed = found(api, split[1], split[2], split[3:])
    if routed is None:
        return
    kind = routed.resource.kind
    assert (asked.group, asked.resource, asked.subresource, asked.name) == (
        kind.group,
        kind.plural,
        routed.subresource,
        routed.name,
    )
    assert asked.namespace == (routed.namespace or (routed.name if kind.plural == "namespaces" else ""))
    try:
        verb = _verb(request, routed)
    except ApiError:
        return
    assert asked.verb == verb


def found(api: Api, group: str, version: str, rest: list[str]) -> Target | None:
    try:
        return api._target(group, version, rest)
    except ApiError:
        return None


CORE = Core()
