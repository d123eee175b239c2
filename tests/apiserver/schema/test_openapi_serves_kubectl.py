"""The OpenAPI documents: what kubectl looks for in them."""

from __future__ import annotations

import json

import pytest

from dray.apiserver import schema
from dray.apiserver.catalog import CATALOG

SCHEMAS = schema.load()


def document(group, version="v1"):
    own = [resource for resource in CATALOG.resources if (resource.kind.group, resource.kind.version) == (group, version)]
    return SCHEMAS.openapi_v3(own, version="v1.37.1")


@pytest.fixture(scope="module")
def devices():
    return document("resource.k8s.io")


@pytest.fixture(scope="module")
def apps():
    return document("apps")


def references(value):
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for child in value.values():
            yield from references(child)
    elif isinstance(value, list):
        for child in value:
            yield from references(child)


@pytest.mark.parametrize("group", sorted({(r.kind.group, r.kind.version) for r in CATALOG.resources}))
def test_documents_are_complete_json(group):
    made = document(*group)
    known = {f"#/components/schemas/{name}" for name in made["components"]["schemas"]}
    assert set(references(made)) <= known
    assert json.loads(json.dumps(made)) == made


def test_a_kind_is_found_by_its_name(devices):
    found = [gvk for each in devices["components"]["schemas"].values() for gvk in each.get("x-kubernetes-group-version-kind", [])]
    for kind in ("ResourceClaim", "ResourceClaimList", "ResourceSlice", "DeviceClass", "DeviceTaintRule"):
        assert {"group": "resource.k8s.io", "version": "v1", "kind": kind} in found


def test_patch_says_that_the_server_validates_fields(apps):
    patch = apps["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"]
    assert patch["x-kubernetes-group-version-kind"] == {"group": "apps", "version": "v1", "kind": "Deployment"}
    assert ("fieldValidation", "query") in [(parameter["name"], parameter["in"]) for parameter in patch["parameters"]]
    assert "application/strategic-merge-patch+json" in patch["requestBody"]["content"]
    assert "application/apply-patch+yaml" in patch["requestBody"]["content"]


def test_lists_say_how_they_merge(apps):
    containers = apps["components"]["schemas"]["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"]
    assert containers["x-kubernetes-patch-merge-key"] == "name"
    assert containers["x-kubernetes-patch-strategy"] == "merge"
    assert containers["x-kubernetes-list-type"] == "map"
    assert containers["x-kubernetes-list-map-keys"] == ["name"]


def test_required_fields_and_known_values_are_named(devices):
    taint = devices["components"]["schemas"]["io.k8s.api.resource.v1.DeviceTaint"]
    assert taint["required"] == ["effect", "key"]
    assert taint["properties"]["effect"]["enum"] == ["NoExecute", "NoSchedule", "None"]
    assert taint["properties"]["effect"]["description"]


def test_only_verbs_that_are_served_have_operations(devices):
    assert set(devices["paths"]["/apis/resource.k8s.io/v1/resourceslices/{name}"]) == {"get", "put", "patch", "delete"}
    assert "/apis/resource.k8s.io/v1/resourceslices/{name}/status" not in devices["paths"]
    status = devices["paths"]["/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}/status"]
    assert set(status) == {"get", "put", "patch"}


def test_scale_takes_its_own_kind(apps):
    scale = apps["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale"]
    assert scale["put"]["x-kubernetes-group-version-kind"] == {"group": "autoscaling", "version": "v1", "kind": "Scale"}
