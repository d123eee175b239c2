"""Policies that are wrong are refused when they are written; policies never lock anybody out, and cost nothing where they are
not about what is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from dray.api.kinds import CONFIG_MAPS as CONFIG_MAP_KIND
from dray.apiserver.admission.policies import Stored
from dray.apiserver.api import Answer, Request
from dray.apiserver.authentication.users import ADMIN
from dray.apiserver.operations import WriteOptions
from dray.apiserver.server import ApiServer
from tests.apiserver.admission.cases import RULE, Json, check, only, rule
from tests.apiserver.admission.changes import apply, changes, of, patch
from tests.apiserver.conftest import CONFIG_MAPS, Cluster, config_map

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
POLICIES = f"{ADMISSION}/validatingadmissionpolicies"
BINDINGS = f"{ADMISSION}/validatingadmissionpolicybindings"
MUTATING = f"{ADMISSION}/mutatingadmissionpolicies"
MUTATING_BINDINGS = f"{ADMISSION}/mutatingadmissionpolicybindings"
FALSE = only(check("false", message="no"))


def policy(spec: Json, name: str = "p") -> Json:
    return {"metadata": {"name": name}, "spec": spec}


def binding(name: str = "p", **more: Any) -> Json:
    return {"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"], **more}}


def hold(cluster: Cluster, spec: Json, name: str = "p", **more: Any) -> None:
    cluster.post(POLICIES, policy(spec, name))
    cluster.post(BINDINGS, binding(name, **more))


WRONG: dict[str, tuple[str, Json, dict[str, str]]] = {
    "nothing to say": (
        POLICIES,
        policy({"matchConstraints": {"resourceRules": [RULE]}}),
        {
            "spec.validations": "Required value: validations or auditAnnotations must contain at least one item",
            "spec.auditAnnotations": "Required value: validations or auditAnnotations must contain at least one item",
        },
    ),
    "about nothing": (POLICIES, policy({"validations": [check("true")]}), {"spec.matchConstraints": "Required value"}),
    "without rules": (
        POLICIES,
        policy({"matchConstraints": {}, "validations": [check("true")]}),
        {"spec.matchConstraints.resourceRules": "Required value"},
    ),
    "an unknown name": (
        POLICIES,
        policy(only(check("obj.x == 1"))),
        {
            "spec.validations[0].expression": 'Invalid value: "obj.x == 1": compilation failed: ERROR: <input>:1:1: '
            "undeclared reference to 'obj' (in container '')\n | obj.x == 1\n | ^"
        },
    ),
    "no verdict": (
        POLICIES,
        policy(only(check("object.x"))),
        {"spec.validations[0].expression": 'Invalid value: "object.x": must evaluate to bool but got dyn'},
    ),
    "a message that is none": (
        POLICIES,
        policy(only(check("true", messageExpression="1"))),
        {"spec.validations[0].messageExpression": 'Invalid value: "1": must evaluate to string but got int'},
    ),
    "a message of lines": (
        POLICIES,
        policy(only(check("true", message="a\nb"))),
        {"spec.validations[0].message": 'Invalid value: "a\\nb": must not contain line breaks'},
    ),
    "an unknown reason": (
        POLICIES,
        policy(only(check("true", reason="Conflict"))),
        {
            "spec.validations[0].reason": 'Unsupported value: "Conflict": supported values: "Forbidden", "Invalid", '
            '"RequestEntityTooLarge"'
        },
    ),
    "a variable that comes later": (
        POLICIES,
        policy(
            only(
                check("variables.a"),
                variables=[{"name": "a", "expression": "variables.b"}, {"name": "b", "expression": "true"}],
            )
        ),
        {
            "spec.variables[0].expression": 'Invalid value: "variables.b": compilation failed: ERROR: <input>:1:10: '
            "undefined field 'b'\n | variables.b\n | .........^",
            "spec.validations[0].expression": 'Invalid value: "variables.a": must evaluate to bool but got dyn',
        },
    ),
    "a variable with a name that is none": (
        POLICIES,
        policy(only(check("true"), variables=[{"name": "for", "expression": "1"}])),
        {"spec.variables[0].name": 'Invalid value: "for": must be a valid CEL identifier'},
    ),
    "a condition with variables": (
        POLICIES,
        policy(
            only(
                check("true"),
                variables=[{"name": "a", "expression": "1"}],
                matchConditions=[{"name": "c", "expression": "variables.a == 1"}],
            )
        ),
        {
            "spec.matchConditions[0].expression": 'Invalid value: "variables.a == 1": compilation failed: ERROR: '
            "<input>:1:1: undeclared reference to 'variables' (in container '')\n | variables.a == 1\n | ^"
        },
    ),
    "params of nobody": (
        POLICIES,
        policy(only(check("params.x == 1"))),
        {
            "spec.validations[0].expression": 'Invalid value: "params.x == 1": compilation failed: ERROR: <input>:1:1: '
            "undeclared reference to 'params' (in container '')\n | params.x == 1\n | ^"
        },
    ),
    "rights in a message": (
        POLICIES,
        policy(only(check("true", messageExpression="authorizer.path('/').check('get').reason()"))),
        {
            "spec.validations[0].messageExpression": "Invalid value: \"authorizer.path('/').check('get').reason()\": "
            "compilation failed: ERROR: <input>:1:1: undeclared reference to 'authorizer' (in container '')\n"
            " | authorizer.path('/').check('get').reason()\n | ^"
        },
    ),
    "an annotation of a number": (
        POLICIES,
        policy({"matchConstraints": {"resourceRules": [RULE]}, "auditAnnotations": [{"key": "k", "valueExpression": "1"}]}),
        {
            "spec.auditAnnotations[0].valueExpression": 'Invalid value: "1": must evaluate to one of [string null_type] '
            "but got int"
        },
    ),
    "all and one": (
        POLICIES,
        policy(only(check("true"), rules=[rule("*,pods")])),
        {
            "spec.matchConstraints.resourceRules[0].resources": 'Invalid value: ["*","pods"]: if \'*\' is present, must not '
            "specify other resources without subresources"
        },
    ),
    "to deny and to warn": (
        BINDINGS,
        binding(validationActions=["Deny", "Warn"]),
        {
            "spec.validationActions": 'Invalid value: ["Deny","Warn"]: must not contain both Deny and Warn (repeating the same '
            "validation failure information in the API response and headers serves no purpose)"
        },
    ),
    "nothing to do": (
        BINDINGS,
        binding(validationActions=None),
        {"spec.validationActions": "Required value"},
    ),
    "no policy": (BINDINGS, binding(policyName=None), {"spec.policyName": "Required value"}),
    "no param at all": (
        BINDINGS,
        binding(paramRef={"parameterNotFoundAction": "Deny"}),
        {"spec.paramRef": "Required value: one of name or selector must be specified"},
    ),
    "a param that may be missing": (
        BINDINGS,
        binding(paramRef={"name": "x"}),
        {"spec.paramRef.parameterNotFoundAction": "Required value"},
    ),
    "nothing to change": (
        MUTATING,
        policy({"matchConstraints": {"resourceRules": of("pods")}}),
        {
            "spec.mutations": "Required value: mutations must contain at least one item",
            "spec.reinvocationPolicy": "Required value",
        },
    ),
    "changes of nothing": (
        MUTATING,
        policy({"mutations": [apply("Object{}")], "reinvocationPolicy": "Always"}),
        {
            "spec.matchConstraints": "Required value",
            "spec.reinvocationPolicy": 'Unsupported value: "Always": supported values: "IfNeeded", "Never"',
        },
    ),
    "changes of what goes": (
        MUTATING,
        policy(changes(apply("Object{}"), rules=[rule(operations=["DELETE"])])),
        {
            "spec.matchConstraints.resourceRules.operations": 'Unsupported value: "DELETE": supported values: "*", "CONNECT", '
            '"CREATE", "UPDATE"'
        },
    ),
    "bound to what goes": (
        MUTATING_BINDINGS,
        {
            "metadata": {"name": "p"},
            "spec": {"policyName": "p", "matchResources": {"resourceRules": [rule(operations=["DELETE"])]}},
        },
        {
            "spec.matchResources.resourceRules.operations": 'Unsupported value: "DELETE": supported values: "*", "CONNECT", '
            '"CREATE", "UPDATE"'
        },
    ),
    "a change of no sort": (
        MUTATING,
        policy(changes({}, {"patchType": "Merge"}, {"patchType": "JSONPatch"}, {"patchType": "ApplyConfiguration"})),
        {
            "spec.mutations[0].patchType": "Required value",
            "spec.mutations[1].patchType": 'Unsupported value: "Merge": supported values: "ApplyConfiguration", "JSONPatch"',
            "spec.mutations[2].jsonPatch": "Required value: must be specified when patchType is JSONPatch",
            "spec.mutations[3].applyConfiguration": "Required value: must be specified when patchType is ApplyConfiguration",
        },
    ),
    "a change of two sorts": (
        MUTATING,
        policy(changes(apply("Object{}") | {"jsonPatch": {"expression": "[]"}}, patch(" "))),
        {
            "spec.mutations[0].jsonPatch": 'Invalid value: "{jsonPatch}": must not be specified when patchType is '
            "ApplyConfiguration",
            "spec.mutations[1].jsonPatch.expression": "Required value",
        },
    ),
    "no object": (
        MUTATING,
        policy(changes(apply("object"), patch("[]"), patch("Object{}"), apply("Object.spec{}"))),
        {
            "spec.mutations[0].applyConfiguration.expression": 'Invalid value: "object": must evaluate to Object but got dyn',
            "spec.mutations[1].jsonPatch.expression": 'Invalid value: "[]": must evaluate to list(JSONPatch) but got list(dyn)',
            "spec.mutations[2].jsonPatch.expression": 'Invalid value: "Object{}": must evaluate to list(JSONPatch) but got '
            "Object",
            "spec.mutations[3].applyConfiguration.expression": 'Invalid value: "Object.spec{}": must evaluate to Object but got '
            "Object.spec",
        },
    ),
    "an object of an unknown type": (
        MUTATING,
        policy(changes(apply("Obj{}"))),
        {
            "spec.mutations[0].applyConfiguration.expression": 'Invalid value: "Obj{}": compilation failed: ERROR: <input>:1:4: '
            "undeclared reference to 'Obj' (in container '')\n | Obj{}\n | ...^"
        },
    ),
    "an operation that is a number": (
        MUTATING,
        policy(changes(patch("[JSONPatch{op: 1}]"))),
        {
            "spec.mutations[0].jsonPatch.expression": 'Invalid value: "[JSONPatch{op: 1}]": compilation failed: ERROR: '
            "<input>:1:14: expected type of field 'op' is 'string' but provided type is 'int'\n | [JSONPatch{op: 1}]\n"
            " | .............^"
        },
    ),
    "an object in a variable": (
        MUTATING,
        policy(changes(apply("Object{}"), variables=[{"name": "a", "expression": "Object{}"}])),
        {
            "spec.variables[0].expression": 'Invalid value: "Object{}": compilation failed: ERROR: <input>:1:7: undeclared '
            "reference to 'Object' (in container '')\n | Object{}\n | ......^"
        },
    ),
    "an object in a verdict": (
        POLICIES,
        policy(only(check("Object{} == object"))),
        {
            "spec.validations[0].expression": 'Invalid value: "Object{} == object": compilation failed: ERROR: <input>:1:7: '
            "undeclared reference to 'Object' (in container '')\n | Object{} == object\n | ......^"
        },
    ),
    "a binding to nothing": (MUTATING_BINDINGS, {"metadata": {"name": "p"}, "spec": {}}, {"spec.policyName": "Required value"}),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_with_a_policy_is_told(cluster: Cluster, what: str) -> None:
    path, body, expected = WRONG[what]
    refused = cluster.post(path, body, code=422)
    assert {cause["field"]: cause["message"] for cause in refused["details"]["causes"]} == expected


def test_nobody_can_lock_themselves_out(cluster: Cluster) -> None:
    hold(cluster, only(check("false"), rules=[rule("*", "*", "*")]))
    cluster.post(CONFIG_MAPS, config_map(), code=422)
    cluster.delete(f"{BINDINGS}/p")
    cluster.post(CONFIG_MAPS, config_map())


def test_the_cluster_itself_is_not_asked(cluster: Cluster) -> None:
    hold(cluster, FALSE)
    operations = cluster.core.operations
    operations.create(operations.registry.of(CONFIG_MAP_KIND), "default", config_map(), WriteOptions())


def test_a_policy_holds_when_it_is_bound_and_until_it_is_gone(cluster: Cluster) -> None:
    cluster.post(POLICIES, policy(FALSE))
    cluster.post(f"{CONFIG_MAPS}?dryRun=All", config_map())
    cluster.post(BINDINGS, binding())
    cluster.post(CONFIG_MAPS, config_map(), code=422)
    cluster.patch(f"{POLICIES}/p", {"spec": {"validations": [check("true")]}})
    cluster.post(f"{CONFIG_MAPS}?dryRun=All", config_map())
    cluster.patch(f"{POLICIES}/p", {"spec": {"validations": [check("false")]}})
    cluster.post(CONFIG_MAPS, config_map(), code=422)
    cluster.delete(f"{POLICIES}/p")
    cluster.post(CONFIG_MAPS, config_map())


def test_a_policy_is_compiled_once_and_asked_only_about_what_it_is_for(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    matched = Stored.matched
    monkeypatch.setattr(Stored, "matched", lambda self, request: asked.append(self.name) or matched(self, request))
    hold(cluster, FALSE, "maps")
    hold(cluster, only(check("false"), rules=[rule("secrets")]), "secrets")
    gate = cluster.core.operations.admission.gate
    assert gate is not None
    cluster.post(CONFIG_MAPS, config_map(), code=422)
    [stored] = gate._validating.about("configmaps")
    compiled = stored.compiled
    cluster.post(CONFIG_MAPS, config_map(), code=422)
    hold(cluster, FALSE, "more")
    assert asked == ["maps", "maps"]
    assert stored in gate._validating.about("configmaps")
    assert stored.compiled is compiled


def test_a_refusal_comes_with_the_warnings_of_other_policies(cluster: Cluster) -> None:
    hold(cluster, only(check("false", message="careful")), "a", validationActions=["Warn"])
    hold(cluster, FALSE, "b")
    answer = cluster.ask("POST", CONFIG_MAPS, config_map())
    assert isinstance(answer, Answer)
    assert answer.code == 422
    assert [value for name, value in answer.headers if name == "Warning" and "careful" in value]


def test_params_may_be_custom_resources(cluster: Cluster) -> None:
    schema = {"type": "object", "properties": {"most": {"type": "integer"}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": "limits", "singular": "limit", "kind": "Limit", "listKind": "LimitList"}
    spec = {"group": "example.com", "scope": "Cluster", "names": names, "versions": [version]}
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    cluster.post(definitions, {"metadata": {"name": "limits.example.com"}, "spec": spec})
    limit = {"apiVersion": "example.com/v1", "kind": "Limit", "metadata": {"name": "x"}, "most": 0}
    cluster.post("/apis/example.com/v1/limits", limit)
    kind = {"apiVersion": "example.com/v1", "kind": "Limit"}
    reference = {"name": "x", "parameterNotFoundAction": "Deny"}
    hold(cluster, only(check("object.data.size() <= params.most"), paramKind=kind), paramRef=reference)
    cluster.post(CONFIG_MAPS, config_map(), code=422)
    cluster.patch("/apis/example.com/v1/limits/x", {"most": 1})
    cluster.post(CONFIG_MAPS, config_map())


async def test_policies_hold_after_a_restart(tmp_path: Path) -> None:
    written = ((POLICIES, policy(FALSE), 201), (BINDINGS, binding(), 201), (CONFIG_MAPS, config_map(), 422))
    for asked in (written, written[-1:]):
        server = ApiServer(tmp_path)
        await server.start()
        for path, body, code in asked:
            answer = server.handle(Request("POST", path, body=msgspec.json.encode(body), user=ADMIN))
            assert isinstance(answer, Answer)
            assert answer.code == code
        await server.stop()
