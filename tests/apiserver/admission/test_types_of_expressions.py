"""``status.typeChecking``: warnings about expressions that do not fit the objects that a policy is about."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.admission.cases import RULE, check, only, rule
from tests.apiserver.admission.test_what_policies_may_not_do import POLICIES, policy
from tests.apiserver.conftest import Cluster

DEPLOYMENTS = [rule("deployments", "apps")]


def checked(cluster: Cluster, spec: Any) -> list[tuple[str, str]]:
    cluster.post(POLICIES, policy(spec))
    status = cluster.get(f"{POLICIES}/p")["status"]
    assert status["observedGeneration"] == 1
    return [(each["fieldRef"], each["warning"]) for each in status["typeChecking"].get("expressionWarnings", ())]


def test_expressions_that_fit_are_not_warned_of(cluster: Cluster) -> None:
    assert checked(cluster, only(check("object.spec.replicas > 1"), rules=DEPLOYMENTS)) == []


def test_whoever_confuses_types_is_told_where(cluster: Cluster) -> None:
    """As upstream's e2e spec has it."""
    confused = check("object.spec.replicas > '1'", messageExpression="'wants replicas > 1, got ' + object.spec.replicas")
    first, second = checked(cluster, only(confused, rules=DEPLOYMENTS))
    assert first[0] == "spec.validations[0].expression"
    assert first[1].split("\n") == [
        "apps/v1, Kind=Deployment: ERROR: <input>:1:22: found no matching overload for '_>_' applied to '(int, string)'",
        " | object.spec.replicas > '1'",
        " | .....................^",
        "",
    ]
    assert second[0] == "spec.validations[0].messageExpression"
    assert "found no matching overload for '_+_' applied to '(string, int)'" in second[1]


def test_each_kind_is_looked_at(cluster: Cluster) -> None:
    rules = [rule("deployments,statefulsets", "apps"), RULE]
    [(_, warning)] = checked(cluster, only(check("object.spec.replicas > 1 && has(object.spec.minReadySeconds)"), rules=rules))
    assert warning.startswith("/v1, Kind=ConfigMap: ERROR: <input>:1:7: undefined field 'spec'")
    assert "Deployment" not in warning


@pytest.mark.parametrize(
    "expression",
    [
        "object.metadata.labels['a'] == 'b' && object.metadata.creationTimestamp < timestamp('2030-01-01T00:00:00Z')",
        "object.spec.containers.all(c, quantity(c.resources.limits['cpu']).isLessThan(quantity('1')))",
        "object.spec.?nodeName.orValue('') == ''",
        "params.data.x == object.metadata.name",
        "variables.names.all(n, n.startsWith('a'))",
    ],
)
def test_what_people_write_of_pods_fits(cluster: Cluster, expression: str) -> None:
    variables = [{"name": "names", "expression": "object.spec.containers.map(c, c.name)"}]
    kind = {"apiVersion": "v1", "kind": "ConfigMap"}
    assert checked(cluster, only(check(expression), rules=[rule("pods")], variables=variables, paramKind=kind)) == []


def test_rules_with_wildcards_say_nothing_of_types(cluster: Cluster) -> None:
    assert checked(cluster, only(check("object.nothing == 1"), rules=[rule("*", "*", "*")])) == []


def test_custom_resources_are_looked_at(cluster: Cluster) -> None:
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"most": {"type": "integer"}}}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": "limits", "singular": "limit", "kind": "Limit", "listKind": "LimitList"}
    spec = {"group": "example.com", "scope": "Cluster", "names": names, "versions": [version]}
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    cluster.post(definitions, {"metadata": {"name": "limits.example.com"}, "spec": spec})
    wrong = check("object.spec.most == 'x'")
    [(_, warning)] = checked(cluster, only(wrong, rules=[rule("limits", "example.com")]))
    assert warning.startswith("example.com/v1, Kind=Limit: ERROR: <input>:1:18: found no matching overload for '_==_'")


def test_a_change_is_checked_anew(cluster: Cluster) -> None:
    assert checked(cluster, only(check("object.spec.replicas > 1"), rules=DEPLOYMENTS)) == []
    cluster.patch(f"{POLICIES}/p", {"spec": {"validations": [check("object.spec.nothing == 1")]}})
    status = cluster.get(f"{POLICIES}/p")["status"]
    assert status["observedGeneration"] == 2
    assert "undefined field 'nothing'" in status["typeChecking"]["expressionWarnings"][0]["warning"]


def test_types_are_checked_in_the_write_itself(cluster: Cluster) -> None:
    """Who creates a policy and goes on with the version of the answer meets no conflict."""
    made = cluster.post(POLICIES, policy(only(check("object.spec.nothing == 1"), rules=DEPLOYMENTS)))
    assert made["status"]["observedGeneration"] == 1
    assert made["status"]["typeChecking"]["expressionWarnings"]
    made["spec"]["validations"] = [check("object.spec.replicas == 1")]
    changed = cluster.put(f"{POLICIES}/p", made)
    assert changed["status"] == {"observedGeneration": 2, "typeChecking": {}}
    changed["metadata"]["labels"] = {"a": "b"}
    assert cluster.put(f"{POLICIES}/p", changed)["metadata"]["generation"] == 2


@pytest.mark.parametrize("spec", [{}, {"validations": [{}]}, {"variables": [{}], "matchConstraints": {"resourceRules": [{}]}}])
def test_what_is_not_a_policy_is_refused_all_the_same(cluster: Cluster, spec: Any) -> None:
    cluster.post(POLICIES, {"metadata": {"name": "p"}, "spec": spec}, code=422)
