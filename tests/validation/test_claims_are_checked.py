"""ResourceClaims, templates and classes: limits, variants, references, expressions."""

from __future__ import annotations

import pytest

R0 = "spec.devices.requests[0]"
SUB = {"name": "s", "deviceClassName": "c"}


def named(*names):
    return [{"name": name, "exactly": {"deviceClassName": "c"}} for name in names]


def cel(*expressions):
    return [{"cel": {"expression": expression}} for expression in expressions]


def opaque(**more):
    return {"opaque": {"driver": "d.example.com", "parameters": {}}, **more}


def test_32_requests_are_accepted_and_33_refused(api, claim):
    assert api.create("resourceclaims", claim(*named(*(f"r{i}" for i in range(32))))) == []
    assert api.create("resourceclaims", claim(*named(*(f"r{i}" for i in range(33))))) == ["spec.devices.requests"]


@pytest.mark.parametrize(
    ("field", "limit", "item"),
    [("constraints", 32, {"matchAttribute": "a.b/c"}), ("config", 32, opaque())],
)
def test_lists_of_a_claim_are_limited(api, claim, field, limit, item):
    assert api.create("resourceclaims", claim(**{field: [item] * limit})) == []
    assert api.create("resourceclaims", claim(**{field: [item] * (limit + 1)})) == [f"spec.devices.{field}"]


def test_32_selectors_are_accepted_and_33_refused(api, exactly):
    assert api.create("resourceclaims", exactly(selectors=cel(*["true"] * 32))) == []
    assert api.create("resourceclaims", exactly(selectors=cel(*["true"] * 33))) == [f"{R0}.exactly.selectors"]


def test_8_alternatives_are_accepted_and_9_refused(api, claim):
    def alternatives(count):
        return {"name": "r", "firstAvailable": [{**SUB, "name": f"s{i}"} for i in range(count)]}

    assert api.create("resourceclaims", claim(alternatives(8))) == []
    assert api.create("resourceclaims", claim(alternatives(9))) == [f"{R0}.firstAvailable"]


def test_a_request_has_exactly_one_variant(api, claim):
    assert api.create("resourceclaims", claim({"name": "r"})) == [R0]
    both = {"name": "r", "exactly": {"deviceClassName": "c"}, "firstAvailable": [SUB]}
    assert api.create("resourceclaims", claim(both)) == [R0]


def test_an_empty_claim_is_accepted(api):
    assert api.create("resourceclaims", {"metadata": {"name": "c"}, "spec": {}}) == []


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"deviceClassName": ""}, "deviceClassName"),
        ({"deviceClassName": "A_b"}, "deviceClassName"),
        ({"allocationMode": "Most"}, "allocationMode"),
        ({"allocationMode": "All", "count": 1}, "count"),
        ({"count": -1}, "count"),
        ({"selectors": [{}]}, "selectors[0].cel"),
        ({"selectors": cel("")}, "selectors[0].cel.expression"),
        ({"selectors": cel("device.driver ==")}, "selectors[0].cel.expression"),
        ({"selectors": cel("device.driver")}, "selectors[0].cel.expression"),
        ({"selectors": cel("gadget.driver == 'x'")}, "selectors[0].cel.expression"),
        ({"selectors": cel("true" + " " * 10_240)}, "selectors[0].cel.expression"),
        ({"selectors": cel("[1,2,3,4,5,6,7,8,9,10].all(a, " * 8 + "true" + ")" * 8)}, "selectors[0].cel.expression"),
        ({"tolerations": [{"key": "a", "operator": "Like"}]}, "tolerations[0].operator"),
        ({"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]}, "tolerations[0].value"),
        ({"tolerations": [{"key": "a", "operator": "Exists", "effect": "PreferNoSchedule"}]}, "tolerations[0].effect"),
        ({"tolerations": [{"key": "a b", "operator": "Exists"}]}, "tolerations[0].key"),
        ({"tolerations": [{"key": "a"}, {"value": "b"}]}, "tolerations[1].operator"),
        ({"tolerations": [{"key": f"k{n}", "operator": "Exists"} for n in range(17)]}, "tolerations"),
        ({"tolerations": [{"key": "a", "value": "b c"}]}, "tolerations[0].value"),
    ],
)
def test_what_is_wrong_with_a_request_is_named(api, exactly, fields, path):
    assert api.create("resourceclaims", exactly(**fields)) == [f"{R0}.exactly.{path}"]


def test_16_tolerations_are_accepted_for_each_alternative(api, claim, exactly):
    def tolerating(count):
        return [{"key": f"k{n}", "operator": "Exists"} for n in range(count)]

    def alternatives(*counts):
        return {"name": "r", "firstAvailable": [{**SUB, "name": f"s{n}", "tolerations": tolerating(n)} for n in counts]}

    assert api.create("resourceclaims", exactly(tolerations=tolerating(16))) == []
    assert api.create("resourceclaims", claim(alternatives(15, 16))) == []
    assert api.create("resourceclaims", claim(alternatives(16, 17))) == [f"{R0}.firstAvailable[1].tolerations"]


@pytest.mark.parametrize("mode", ["ExactCount", "All"])
def test_known_modes_are_accepted(api, exactly, mode):
    assert api.create("resourceclaims", exactly(allocationMode=mode)) == []


@pytest.mark.parametrize("reference", ["r", "r/s"])
def test_constraints_refer_to_requests_and_alternatives(api, claim, reference):
    request = {"name": "r", "firstAvailable": [SUB]}
    constraint = {"requests": [reference], "matchAttribute": "a.b/c"}
    assert api.create("resourceclaims", claim(request, constraints=[constraint])) == []


@pytest.mark.parametrize("reference", ["x", "r/x", "r/s/t"])
def test_unknown_references_are_refused(api, claim, reference):
    request = {"name": "r", "firstAvailable": [SUB]}
    constraint = {"requests": [reference], "matchAttribute": "a.b/c"}
    assert api.create("resourceclaims", claim(request, constraints=[constraint])) == ["spec.devices.constraints[0].requests[0]"]


@pytest.mark.parametrize(
    ("constraint", "path"),
    [
        ({}, ""),
        ({"matchAttribute": "c"}, ".matchAttribute"),
        ({"distinctAttribute": "c"}, ".distinctAttribute"),
        ({"requests": ["r", "r"], "matchAttribute": "a.b/c"}, ".requests[1]"),
    ],
)
def test_constraints_name_one_full_attribute(api, claim, constraint, path):
    assert api.create("resourceclaims", claim(constraints=[constraint])) == [f"spec.devices.constraints[0]{path}"]


@pytest.mark.parametrize(
    ("config", "path"),
    [
        ({}, "opaque"),
        ({"opaque": {"driver": "", "parameters": {}}}, "opaque.driver"),
        ({"opaque": {"driver": "d", "parameters": None}}, "opaque.parameters"),
        ({"opaque": {"driver": "d", "parameters": [1]}}, "opaque.parameters"),
        (opaque(requests=["x"]), "requests[0]"),
    ],
)
def test_configuration_is_an_object_for_a_driver(api, claim, config, path):
    assert api.create("resourceclaims", claim(config=[config])) == [f"spec.devices.config[0].{path}"]


def test_derived_attributes_are_used_by_a_constraint(api, exactly):
    attribute = {"name": "example.com/half", "expression": "1"}
    unused = exactly(derivedAttributes=[attribute])
    assert api.create("resourceclaims", unused) == [f"{R0}.exactly.derivedAttributes[0].name"]
    used = exactly(derivedAttributes=[attribute])
    used["spec"]["devices"]["constraints"] = [{"requests": ["r"], "matchAttribute": "example.com/half"}]
    assert api.create("resourceclaims", used) == []


def test_admin_access_needs_a_labelled_namespace(api, exactly):
    path = f"{R0}.adminAccess"
    claim = exactly(adminAccess=True)
    assert api.create("resourceclaims", claim, namespace={}) == [path]
    assert api.create("resourceclaims", claim, namespace={"resource.kubernetes.io/admin-access": "True"}) == [path]
    assert api.create("resourceclaims", claim, namespace={"resource.kubernetes.io/admin-access": "true"}) == []
    assert api.create("resourceclaims", exactly(adminAccess=False), namespace={}) == []


def test_the_spec_of_claims_and_templates_never_changes(api, exactly):
    assert api.update("resourceclaims", exactly(count=2), exactly(count=1)) == ["spec"]
    assert api.update("resourceclaims", exactly(), exactly()) == []
    old, new = ({"metadata": {"name": "t"}, "spec": {"spec": exactly(count=count)["spec"]}} for count in (1, 2))
    assert api.update("resourceclaimtemplates", new, old) == ["spec"]


def test_paths_in_a_template_are_nested(api, exactly):
    template = {"metadata": {"name": "t"}, "spec": {"metadata": {"labels": {"a b": "c"}}, "spec": exactly(count=-1)["spec"]}}
    found = api.create("resourceclaimtemplates", template)
    assert found == ["spec.metadata.labels", "spec.spec.devices.requests[0].exactly.count"]


def test_all_problems_are_reported_at_once(api, claim):
    wrong = claim({"name": "A_b", "exactly": {"deviceClassName": ""}}, {"name": "b"})
    found = api.create("resourceclaims", wrong)
    assert found == [f"{R0}.name", f"{R0}.exactly.deviceClassName", "spec.devices.requests[1]"]


@pytest.mark.parametrize(
    ("resource", "accepted"),
    [
        ("example.com/gpu", True),
        ("cpu", False),
        ("kubernetes.io/gpu", False),
        ("deviceclass.resource.kubernetes.io/x", False),
        ("requests.example.com/gpu", False),
        ("example.com/gpu/x", False),
    ],
)
def test_a_class_serves_extended_resources_only(api, resource, accepted):
    found = api.create("deviceclasses", {"metadata": {"name": "c"}, "spec": {"extendedResourceName": resource}})
    assert found == ([] if accepted else ["spec.extendedResourceName"])


@pytest.mark.parametrize(
    ("selector", "path"), [({"driver": "A_b"}, "driver"), ({"pool": "a//b"}, "pool"), ({"device": "A_b"}, "device")]
)
def test_rules_select_by_valid_names(api, selector, path):
    rule = {"metadata": {"name": "r"}, "spec": {"deviceSelector": selector, "taint": {"key": "k", "effect": "NoSchedule"}}}
    assert api.create("devicetaintrules", rule) == [f"spec.deviceSelector.{path}"]


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute", "None"])
def test_rules_have_a_known_effect(api, effect):
    rule = {"metadata": {"name": "r"}, "spec": {"deviceSelector": {}, "taint": {"key": "k", "effect": effect}}}
    assert api.create("devicetaintrules", rule) == []
    rule["spec"]["taint"]["effect"] = effect + "x"
    assert api.create("devicetaintrules", rule) == ["spec.taint.effect"]


def test_a_selector_that_is_wrong_says_where(api, exactly):
    error = api.errors("resourceclaims", exactly(selectors=cel("device.colour == 'x'")))[0]
    assert error.type == "Invalid"
    assert error.value == "device.colour == 'x'"
    assert "1:7: undefined field 'colour'" in error.message
