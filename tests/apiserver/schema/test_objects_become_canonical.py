"""What is stored of an object: what its kind declares, in canonical form."""

from __future__ import annotations

import pytest

from dray.api import kinds
from dray.api.kinds import Kind
from dray.apiserver import schema

SCHEMAS = schema.load()
CONFIG_MAPS = Kind("", "v1", "configmaps", "ConfigMap", True)
SECRETS = Kind("", "v1", "secrets", "Secret", True)


def pod(**spec):
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}], **spec}}


def stored(kind, obj):
    made, problems = SCHEMAS.normalise(kind, obj)
    assert problems == []
    return made


def wrong(kind, obj):
    return SCHEMAS.normalise(kind, obj)[1]


def test_quantities_are_canonical():
    requests = {"cpu": 0.5, "memory": "1024Mi", "example.com/x": "1000", "example.com/y": "1e3"}
    made = stored(kinds.PODS, pod(containers=[{"name": "c", "resources": {"requests": requests}}]))
    expected = {"cpu": "500m", "memory": "1Gi", "example.com/x": "1k", "example.com/y": "1e3"}
    assert made["spec"]["containers"][0]["resources"]["requests"] == expected


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("2026-01-02T03:04:05.123456Z", "2026-01-02T03:04:05.123456Z"),
        ("2026-01-02T04:04:05+01:00", "2026-01-02T03:04:05.000000Z"),
    ],
)
def test_times_are_in_utc_with_the_precision_of_their_field(given, kept):
    lease = {"metadata": {"name": "l"}, "spec": {"renewTime": given}}
    assert stored(kinds.LEASES, lease)["spec"]["renewTime"] == kept
    rule = {"metadata": {"name": "r"}, "spec": {"taint": {"key": "k", "effect": "None", "timeAdded": given}}}
    assert stored(kinds.DEVICE_TAINT_RULES, rule)["spec"]["taint"]["timeAdded"] == "2026-01-02T03:04:05Z"


def test_null_in_a_map_of_lists_is_an_empty_list():
    """Go writes it for a list that it never made."""
    groups = {"a": ["mig"], "b": None}
    result = {"request": "r", "driver": "d", "pool": "p", "device": "d", "compatibilityGroups": groups}
    claim = {"metadata": {"name": "c"}, "spec": {}, "status": {"allocation": {"devices": {"results": [result]}}}}
    made = stored(kinds.RESOURCE_CLAIMS, claim)
    assert made["status"]["allocation"]["devices"]["results"][0]["compatibilityGroups"] == {"a": ["mig"], "b": []}


def test_null_is_the_same_as_absent():
    assert "hostNetwork" not in stored(kinds.PODS, pod(hostNetwork=None))["spec"]


def test_empty_fields_are_left_out_where_zero_means_absent():
    made = stored(kinds.PODS, pod(hostNetwork=False, nodeSelector={}, tolerations=[], nodeName=""))
    assert set(made["spec"]) == {"containers"}


def test_zero_is_kept_where_it_differs_from_absent():
    assert stored(kinds.PODS, pod(terminationGracePeriodSeconds=0))["spec"]["terminationGracePeriodSeconds"] == 0
    attributes = {"a": {"int": 0}, "b": {"bool": False}, "c": {"string": ""}}
    slice_ = {"metadata": {"name": "s"}, "spec": {"devices": [{"name": "d", "attributes": attributes}]}}
    assert stored(kinds.RESOURCE_SLICES, slice_)["spec"]["devices"][0]["attributes"] == attributes


def test_what_go_always_writes_is_there():
    made = stored(kinds.DEPLOYMENTS, {"metadata": {"name": "d"}, "spec": {}})
    assert made["spec"] == {"strategy": {}, "template": {"metadata": {}, "spec": {"containers": None}}}
    assert made["status"] == {}
    assert stored(kinds.PODS, pod())["spec"]["containers"] == [{"name": "c", "resources": {}}]


def test_opaque_parameters_are_kept_as_they_are():
    parameters = {"a": None, "b": {}, "c": [1.5, "0.50", {"d": False}]}
    config = [{"opaque": {"driver": "d", "parameters": parameters}}]
    made = stored(kinds.DEVICE_CLASSES, {"metadata": {"name": "c"}, "spec": {"config": config}})
    assert made["spec"]["config"][0]["opaque"]["parameters"] == parameters


def test_the_object_given_is_not_changed():
    obj = pod(hostNetwork=None, unknown=1)
    SCHEMAS.normalise(kinds.PODS, obj)
    assert obj == pod(hostNetwork=None, unknown=1)


def test_unknown_fields_are_dropped_and_named_with_their_path():
    obj = pod(containers=[{"name": "c", "imagee": "x"}], replicaz=1)
    made, problems = SCHEMAS.normalise(kinds.PODS, obj)
    assert made == stored(kinds.PODS, pod())
    assert [problem.message for problem in problems] == [
        'unknown field "spec.containers[0].imagee"',
        'unknown field "spec.replicaz"',
    ]
    assert {problem.category for problem in problems} == {"unknown field"}


@pytest.mark.parametrize(
    ("kind", "obj", "path", "message"),
    [
        (
            kinds.DEPLOYMENTS,
            {"spec": {"replicas": "three"}},
            "spec.replicas",
            "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            kinds.PODS,
            pod(containers=[{"ports": [{"containerPort": 1.5}]}]),
            "spec.containers[0].ports[0].containerPort",
            (
                "json: cannot unmarshal number 1.5 into Go struct field "
                "ContainerPort.spec.containers.ports.containerPort of type int32"
            ),
        ),
        (
            kinds.PODS,
            pod(priority=2**31),
            "spec.priority",
            "json: cannot unmarshal number 2147483648 into Go struct field PodSpec.spec.priority of type int32",
        ),
        (
            kinds.PODS,
            pod(containers=[{"resources": {"limits": {"cpu": "one"}}}]),
            "spec.containers[0].resources.limits.cpu",
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
    ],
)
def test_values_of_the_wrong_type_are_refused_in_the_words_of_go(kind, obj, path, message):
    (problem,) = wrong(kind, obj)
    assert (problem.path, problem.message, problem.category) == (path, message, "wrong type")


@pytest.mark.parametrize(
    "obj",
    [
        pod(containers={}),
        pod(nodeSelector=[]),
        pod(nodeSelector={"a": 1}),
        pod(hostNetwork="true"),
        pod(volumes=[1]),
        pod(activeDeadlineSeconds=True),
        {"metadata": "x"},
        {"metadata": {"creationTimestamp": "yesterday"}},
        {"metadata": {"creationTimestamp": "2026-13-01T00:00:00Z"}},
    ],
)
def test_other_wrong_types_are_refused_too(obj):
    assert [problem.category for problem in wrong(kinds.PODS, obj)] == ["wrong type"]


def test_data_of_secrets_is_base64():
    assert wrong(SECRETS, {"data": {"a": "Yg=="}}) == []
    assert wrong(SECRETS, {"data": {"a": "%"}})[0].category == "wrong type"


def test_a_number_or_a_text():
    def budget(value):
        return {"metadata": {"name": "b"}, "spec": {"minAvailable": value}}

    assert stored(kinds.POD_DISRUPTION_BUDGETS, budget("50%"))["spec"]["minAvailable"] == "50%"
    assert stored(kinds.POD_DISRUPTION_BUDGETS, budget(0))["spec"]["minAvailable"] == 0
    assert wrong(kinds.POD_DISRUPTION_BUDGETS, budget(1.5))[0].category == "wrong type"


def test_a_part_of_an_object_is_not_filled_in():
    made, problems = SCHEMAS.partial(kinds.PODS, {"metadata": {"labels": {}}, "spec": {"containers": [{"name": "c"}]}})
    assert problems == []
    assert made == {"metadata": {"labels": {}}, "spec": {"containers": [{"name": "c"}]}}


def test_compatibility_groups_of_results_are_declared():
    result = {"request": "r", "driver": "d", "pool": "p", "device": "x", "compatibilityGroups": {"set": ["a"]}}
    claim = {"metadata": {"name": "c"}, "status": {"allocation": {"devices": {"results": [result]}}}}
    made = stored(kinds.RESOURCE_CLAIMS, claim)
    assert made["status"]["allocation"]["devices"]["results"][0]["compatibilityGroups"] == {"set": ["a"]}


def test_normalising_twice_is_normalising_once():
    once = stored(kinds.PODS, pod(volumes=[{"name": "v"}], terminationGracePeriodSeconds=0))
    assert stored(kinds.PODS, once) == once


def test_what_a_change_shares_with_the_stored_object_is_taken_as_it_is():
    before = stored(kinds.PODS, pod(tolerations=[{"key": "k", "operator": "Exists"}]))
    made, problems = SCHEMAS.normalise(kinds.PODS, before | {"spec": before["spec"] | {"nodeName": "n"}}, before)
    assert problems == []
    assert made["spec"]["containers"] is before["spec"]["containers"]
    assert made == stored(kinds.PODS, before | {"spec": before["spec"] | {"nodeName": "n"}})


def test_what_a_change_brings_is_looked_at():
    before = stored(kinds.PODS, pod())
    _, problems = SCHEMAS.normalise(kinds.PODS, before | {"spec": before["spec"] | {"nodeName": 3}}, before)
    assert [problem.path for problem in problems] == ["spec.nodeName"]
    _, problems = SCHEMAS.normalise(kinds.PODS, before | {"spec": before["spec"] | {"nodName": "n"}}, before)
    assert [problem.path for problem in problems] == ["spec.nodName"]
    made, _ = SCHEMAS.normalise(kinds.PODS, before | {"spec": before["spec"] | {"containers": None}}, before)
    assert made["spec"]["containers"] is None
