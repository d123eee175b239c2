"""What clients learn about defined kinds: discovery in both forms, and OpenAPI in both versions."""

from __future__ import annotations

import copy

from dray.apiserver.api import Answer
from tests.apiserver.conftest import Cluster, Json
from tests.apiserver.custom.conftest import DEFINITIONS, define, definition, fields, number

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


def described() -> Json:
    spec = fields(size=number(description="How large it is.")) | {"description": "What is wanted."}
    made = definition(spec=spec, subresources={"status": {}})
    made["spec"]["names"] |= {"shortNames": ["wd"], "categories": ["all"]}
    return made


def test_discovery_has_the_kind_from_the_moment_it_is_served(cluster: Cluster) -> None:
    cluster.call("GET", "/apis/example.com/v1", code=404)
    define(cluster, described())
    found = cluster.get("/apis/example.com/v1")["resources"]
    assert [each["name"] for each in found] == ["widgets", "widgets/status"]
    assert (found[0]["shortNames"], found[0]["categories"], found[0]["singularName"]) == (["wd"], ["all"], "widget")
    assert found[0]["storageVersionHash"]
    assert "example.com" in [group["name"] for group in cluster.get("/apis")["groups"]]
    cluster.delete(f"{DEFINITIONS}/widgets.example.com")
    assert "example.com" not in [group["name"] for group in cluster.get("/apis")["groups"]]


def test_aggregated_discovery_has_it_too_and_a_new_tag(cluster: Cluster) -> None:
    before = cluster.ask("GET", "/apis", accept=AGGREGATED)
    define(cluster, described())
    after = cluster.ask("GET", "/apis", accept=AGGREGATED)
    assert isinstance(before, Answer)
    assert isinstance(after, Answer)
    assert dict(before.headers)["ETag"] != dict(after.headers)["ETag"]
    groups = cluster.call("GET", "/apis", accept=AGGREGATED)["items"]
    found = next(group for group in groups if group["metadata"]["name"] == "example.com")["versions"][0]["resources"][0]
    assert (found["resource"], found["subresources"][0]["subresource"]) == ("widgets", "status")


def test_openapi_v3_explains_every_field(cluster: Cluster) -> None:
    define(cluster, described())
    document = cluster.get("/openapi/v3/apis/example.com/v1")
    schema = document["components"]["schemas"]["com.example.v1.Widget"]
    assert schema["x-kubernetes-group-version-kind"] == [{"group": "example.com", "kind": "Widget", "version": "v1"}]
    assert schema["properties"]["spec"]["properties"]["size"]["description"] == "How large it is."
    assert schema["properties"]["metadata"]["allOf"][0]["$ref"].endswith("ObjectMeta")
    assert "/apis/example.com/v1/namespaces/{namespace}/widgets/{name}/status" in document["paths"]
    patch = document["paths"]["/apis/example.com/v1/namespaces/{namespace}/widgets/{name}"]["patch"]
    assert "application/strategic-merge-patch+json" not in patch["requestBody"]["content"]


def test_the_index_has_a_new_address_when_a_schema_changes(cluster: Cluster) -> None:
    made = described()
    define(cluster, made)
    before = cluster.get("/openapi/v3")["paths"]
    changed = copy.deepcopy(made["spec"])
    changed["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["color"] = {"type": "string"}
    cluster.patch(f"{DEFINITIONS}/widgets.example.com", {"spec": changed})
    after = cluster.get("/openapi/v3")["paths"]
    assert before["apis/example.com/v1"] != after["apis/example.com/v1"]
    assert before["api/v1"] == after["api/v1"]
    schema = cluster.get("/openapi/v3/apis/example.com/v1")["components"]["schemas"]["com.example.v1.Widget"]
    assert "color" in schema["properties"]["spec"]["properties"]


def test_openapi_v2_has_all_kinds_in_one_document(cluster: Cluster) -> None:
    define(cluster, described())
    document = cluster.get("/openapi/v2")
    assert document["swagger"] == "2.0"
    widget, pod = (document["definitions"][name] for name in ("com.example.v1.Widget", "io.k8s.api.core.v1.Pod"))
    assert widget["properties"]["metadata"]["$ref"] == "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
    assert pod["properties"]["spec"]["$ref"] == "#/definitions/io.k8s.api.core.v1.PodSpec"
    cluster.delete(f"{DEFINITIONS}/widgets.example.com")
    assert "com.example.v1.Widget" not in cluster.get("/openapi/v2")["definitions"]


def test_openapi_v2_is_served_in_protobuf_to_go_clients(cluster: Cluster) -> None:
    define(cluster, described())
    accept = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
    answer = cluster.ask("GET", "/openapi/v2", accept=accept)
    assert isinstance(answer, Answer)
    assert "protobuf" in answer.content_type
    for known in (b"com.example.v1.Widget", b"How large it is.", b"x-kubernetes-group-version-kind"):
        assert known in answer.body
