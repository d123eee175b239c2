"""The roles that every cluster has: made at the first start, completed at the next, kept as administrators changed them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from dray.api.access import AggregationRule, ClusterRole, PolicyRule
from dray.api.core import LabelSelector
from dray.api.kinds import CLUSTER_ROLES, ROLE_BINDINGS, ROLES
from dray.api.meta import ObjectMeta
from dray.apiserver.authentication.users import AUTHENTICATED, User
from dray.apiserver.authorization.attributes import Attributes
from dray.apiserver.authorization.bootstrap import defaults
from dray.apiserver.embedded import Embedded
from dray.apiserver.server import ApiServer
from dray.cluster.port import Change, Write
from dray.cluster.world import World
from dray.controllers.aggregation import RoleAggregation, gathered
from tests.apiserver.access.conftest import RBAC, Policed, rule, user

VIEW = f"{RBAC}/clusterroles/system:aggregate-to-view"


def may(cluster: Policed, role: str, verb: str, resource: str, group: str = "", subresource: str = "") -> bool:
    cluster.core.policy.rights(User("x"), "")
    rules = cluster.core.policy.rules_of("ClusterRole", "", role)
    assert rules is not None, role
    name = f"{role}-{verb}-{resource}".replace(":", "-")
    cluster.bind(role, user("tester"), namespace="", name=name)
    allowed, _ = cluster.core.policy.allowed(User("tester"), Attributes(verb, group, resource, subresource))
    cluster.delete(f"{RBAC}/clusterrolebindings/{name}")
    return allowed


def test_view_edit_and_admin_have_what_they_gather(cluster: Policed) -> None:
    assert may(cluster, "view", "list", "pods")
    assert may(cluster, "view", "list", "resourceclaims", "resource.k8s.io")
    assert not may(cluster, "view", "get", "secrets")
    assert not may(cluster, "view", "create", "pods")
    assert may(cluster, "edit", "create", "pods")
    assert may(cluster, "edit", "get", "secrets")
    assert not may(cluster, "edit", "create", "roles", "rbac.authorization.k8s.io")
    assert may(cluster, "admin", "create", "roles", "rbac.authorization.k8s.io")
    assert may(cluster, "system:kube-scheduler", "patch", "resourceclaims", "resource.k8s.io", "binding")
    assert not may(cluster, "edit", "update", "resourceclaims", "resource.k8s.io", "status")


def test_what_was_taken_away_comes_back_and_what_was_added_stays(cluster: Policed) -> None:
    before = cluster.get(VIEW)["rules"]
    added = rule("get", "widgets", "example.com")
    cluster.patch(VIEW, {"rules": [*before[1:], added]})
    cluster.core.furnish_access()
    after = cluster.get(VIEW)["rules"]
    assert added in after
    assert not_covered(before, after) == []


def not_covered(wanted: list[Any], owned: list[Any]) -> list[Any]:
    from dray.apiserver.authorization.covering import missing

    return missing(*(msgspec.convert(each, list[PolicyRule]) for each in (owned, wanted)))


def test_a_default_that_wants_to_be_left_alone_is(cluster: Policed) -> None:
    off = {"annotations": {"rbac.authorization.kubernetes.io/autoupdate": "false"}}
    cluster.patch(VIEW, {"metadata": off, "rules": []})
    cluster.core.furnish_access()
    assert cluster.get(VIEW)["rules"] == []


def test_starting_again_writes_nothing(cluster: Policed) -> None:
    before = cluster.core.store.revision
    cluster.core.furnish_access()
    assert cluster.core.store.revision == before


def test_every_binding_names_a_role_that_is_there() -> None:
    made = defaults()
    roles = {
        (obj["metadata"].get("namespace", ""), obj["metadata"]["name"]) for kind, obj in made if kind in (CLUSTER_ROLES, ROLES)
    }
    bound = {
        (obj["metadata"].get("namespace", "") if obj["roleRef"]["kind"] == "Role" else "", obj["roleRef"]["name"])
        for _, obj in made
        if "roleRef" in obj
    }
    assert bound <= roles
    assert len(made) == len({(kind.kind, obj["metadata"].get("namespace"), obj["metadata"]["name"]) for kind, obj in made})


async def test_roles_and_what_they_grant_survive_a_restart(tmp_path: Path) -> None:
    server = ApiServer(tmp_path)
    await server.start()
    port = Embedded(server)
    metadata = {"metadata": {"name": "reader"}}
    await port.write(Write("create", ROLES, "default", body=metadata | {"rules": [rule("list", "pods")]}))
    binding = {"roleRef": {"kind": "Role", "name": "reader"}, "subjects": [user()]}
    await port.write(Write("create", ROLE_BINDINGS, "default", body=metadata | binding))
    token = server.core.api._accounts._signer.signed({"x": 1})
    await server.stop()

    again = ApiServer(tmp_path)
    await again.start()
    allowed, _ = again.core.policy.allowed(User("bob", (AUTHENTICATED,)), Attributes("list", "", "pods", namespace="default"))
    assert allowed
    assert again.core.api._accounts._signer.verified(token) == {"x": 1}
    await again.stop()


def role(name: str, labels: dict[str, str], *verbs: str, gathers: str = "") -> ClusterRole:
    rules = tuple(PolicyRule((verb,), ("",), ("pods",)) for verb in verbs)
    rule = AggregationRule((LabelSelector(match_labels={gathers: "yes"}),)) if gathers else None
    return ClusterRole(metadata=ObjectMeta(name=name, uid=name, labels=labels), rules=rules, aggregation_rule=rule)


class TestGathering:
    def test_takes_each_rule_once_in_the_order_of_names(self) -> None:
        roles = [role("b", {"x": "yes"}, "get", "list"), role("a", {"x": "yes"}, "list"), role("c", {"x": "no"}, "watch")]
        found = gathered(role("all", {"x": "yes"}, "old", gathers="x"), roles)
        assert [each.verbs for each in found] == [("list",), ("get",)]

    def test_follows_the_roles_that_it_selects(self) -> None:
        world = World(RoleAggregation.kinds)
        controller = RoleAggregation(world)
        objects = world._objects[CLUSTER_ROLES]
        objects["all"] = role("all", {}, gathers="x")
        objects["a"] = role("a", {"x": "yes"}, "get")
        controller.observe(Change(CLUSTER_ROLES, None, objects["a"]), 0.0)
        (write,) = controller.act(0.0)
        assert (write.name, write.body["rules"]) == ("all", [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}])
        objects["all"].rules = objects["a"].rules
        assert controller.decide("all", 1.0) == []
