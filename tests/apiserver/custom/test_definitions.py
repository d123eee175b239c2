"""Definitions: accepted or refused with reasons, served as soon as they are answered, and gone with all of their objects."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from dray.apiserver.api import Answer
from tests.apiserver.conftest import Cluster, Json
from tests.apiserver.custom.conftest import DEFINITIONS, Kind, conditions, define, definition, fields, listed, number, text


def test_a_kind_is_served_when_its_definition_is_answered(cluster: Cluster) -> None:
    made = cluster.post(DEFINITIONS, definition())
    assert conditions(made) == {
        "NamesAccepted": ("True", "NoConflicts"),
        "Established": ("True", "InitialNamesAccepted"),
    }
    assert made["spec"]["names"] == {"plural": "widgets", "kind": "Widget", "singular": "widget", "listKind": "WidgetList"}
    assert made["spec"]["conversion"] == {"strategy": "None"}
    assert made["status"]["storedVersions"] == ["v1"]
    assert cluster.get("/apis/example.com/v1/widgets")["kind"] == "WidgetList"


def test_before_its_definition_a_kind_is_not_there(cluster: Cluster) -> None:
    cluster.call("GET", "/apis/example.com/v1/widgets", code=404)


def test_names_in_use_are_not_accepted_until_they_are_free(cluster: Cluster) -> None:
    cluster.post(DEFINITIONS, definition())
    rival = definition("Gadget")
    rival["spec"]["names"]["shortNames"] = ["widget"]
    made = cluster.post(DEFINITIONS, rival)
    assert conditions(made) == {"NamesAccepted": ("False", "ShortNamesConflict"), "Established": ("False", "NotAccepted")}
    assert '"widget" is already in use' in str(made["status"]["conditions"])
    cluster.call("GET", "/apis/example.com/v1/gadgets", code=404)
    cluster.delete(f"{DEFINITIONS}/widgets.example.com")
    assert conditions(cluster.get(f"{DEFINITIONS}/gadgets.example.com"))["Established"][0] == "True"
    assert cluster.get("/apis/example.com/v1/gadgets")["items"] == []


def test_the_same_kind_in_two_groups_are_two_kinds(cluster: Cluster) -> None:
    one, other = definition(), definition()
    other["spec"]["group"], other["metadata"]["name"] = "other.example.com", "widgets.other.example.com"
    first, second = define(cluster, one), define(cluster, other)
    first.make("a")
    second.make("b")
    assert [len(cluster.get(kind.path)["items"]) for kind in (first, second)] == [1, 1]


def test_a_kind_named_as_a_built_in_one_has_none_of_its_rules(cluster: Cluster) -> None:
    pods = define(cluster, definition("Pod", spec=fields(anything=text())))
    assert pods.make("p", spec={"anything": "goes"})["spec"] == {"anything": "goes"}
    spaces = define(cluster, definition("Namespace", scope="Cluster"))
    spaces.make("default")
    cluster.delete(f"{spaces.path}/default")


def broken(change: Any) -> Json:
    made = definition(spec=fields(size=number()))
    change(made["spec"], made["spec"]["versions"][0], made["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
    return made


ROOT = "spec.versions[0].schema.openAPIV3Schema"
BROKEN = {
    "no dot in the group": (lambda s, v, o: s.update(group="example"), "spec.group"),
    "a wrong scope": (lambda s, v, o: s.update(scope="Everywhere"), 'spec.scope: Unsupported value: "Everywhere"'),
    "a kind that is no name": (lambda s, v, o: s["names"].update(kind="A b"), "spec.names.kind"),
    "no schema": (lambda s, v, o: v.pop("schema"), f"{ROOT}: Required value: schemas are required"),
    "no storage version": (lambda s, v, o: v.update(storage=False), "must have exactly one version marked as storage version"),
    "a root that is no object": (lambda s, v, o: o.update(type="string"), f"{ROOT}.type"),
    "a field without a type": (lambda s, v, o: o["properties"].update(a={}), f"{ROOT}.properties[a].type: Required value"),
    "an unknown type": (lambda s, v, o: o["properties"].update(a={"type": "text"}), f"{ROOT}.properties[a].type: Unsupported"),
    "a list without items": (lambda s, v, o: o["properties"].update(a={"type": "array"}), f"{ROOT}.properties[a].items"),
    "uniqueItems": (lambda s, v, o: o["properties"].update(a=listed(text(), uniqueItems=True)), "uniqueItems"),
    "a reference": (lambda s, v, o: o["properties"].update(a={"type": "object", "$ref": "#/x"}), "$ref is not supported"),
    "both ways to name members": (
        lambda s, v, o: o["properties"].update(a=fields(b=text()) | {"additionalProperties": text()}),
        "mutual exclusive",
    ),
    "a type in an alternative": (
        lambda s, v, o: o["properties"].update(a=text(anyOf=[{"type": "string"}])),
        f"{ROOT}.properties[a].anyOf[0].type: Forbidden: must be empty to be structural",
    ),
    "a pattern that is none": (lambda s, v, o: o["properties"].update(a=text(pattern="(")), f"{ROOT}.properties[a].pattern"),
    "keys that are no fields": (
        lambda s, v, o: o["properties"].update(
            a=listed(fields(b=text()), **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["c"]})
        ),
        f"{ROOT}.properties[a].x-kubernetes-list-map-keys",
    ),
    "keys that may be absent": (
        lambda s, v, o: o["properties"].update(
            a=listed(fields(b=text()), **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["b"]})
        ),
        "must have a default or be a required property",
    ),
    "a default of the wrong type": (
        lambda s, v, o: o["properties"].update(a=number(default="one")),
        f"{ROOT}.properties[a].default",
    ),
    "a default with unknown fields": (
        lambda s, v, o: o["properties"].update(a=fields(b=text()) | {"default": {"c": 1}}),
        "must not have unknown fields: c",
    ),
    "a column without a path": (
        lambda s, v, o: v.update(additionalPrinterColumns=[{"name": "A", "type": "string"}]),
        "spec.versions[0].additionalPrinterColumns[0].jsonPath: Required value",
    ),
    "a column of an unknown type": (
        lambda s, v, o: v.update(additionalPrinterColumns=[{"name": "A", "type": "text", "jsonPath": ".a"}]),
        "spec.versions[0].additionalPrinterColumns[0].type",
    ),
    "a scale outside of the spec": (
        lambda s, v, o: v.update(subresources={"scale": {"specReplicasPath": ".n", "statusReplicasPath": ".status.n"}}),
        "spec.versions[0].subresources.scale.specReplicasPath",
    ),
    "selectable what is not there": (
        lambda s, v, o: v.update(selectableFields=[{"jsonPath": ".spec.color"}]),
        "spec.versions[0].selectableFields[0].jsonPath",
    ),
    "restricted metadata": (
        lambda s, v, o: o["properties"].update(metadata=fields(labels={"type": "object"})),
        f"{ROOT}.properties[metadata]",
    ),
}


@pytest.mark.parametrize("why", BROKEN)
def test_a_definition_that_cannot_be_served_is_refused_by_the_field(cluster: Cluster, why: str) -> None:
    change, told = BROKEN[why]
    made = broken(change)
    made["metadata"]["name"] = f"{made['spec']['names']['plural']}.{made['spec']['group']}"
    message = cluster.post(DEFINITIONS, made, code=422)["message"]
    assert told in message, message


def test_a_column_whose_path_cannot_be_read_stays_empty_and_is_told(cluster: Cluster) -> None:
    made = definition(additionalPrinterColumns=[{"name": "A", "type": "string", "jsonPath": ".a[?"}])
    answer = cluster.ask("POST", DEFINITIONS, made)
    assert isinstance(answer, Answer)
    assert any("additionalPrinterColumns[0].jsonPath" in value for _, value in answer.headers)
    Kind(cluster, made).make()
    table = cluster.call("GET", Kind(cluster, made).path, accept="application/json;as=Table;v=v1;g=meta.k8s.io")
    assert table["rows"][0]["cells"] == ["w", None]


def test_the_name_must_be_that_of_the_kind(cluster: Cluster) -> None:
    made = definition()
    made["metadata"]["name"] = "other.example.com"
    assert "metadata.name" in cluster.post(DEFINITIONS, made, code=422)["message"]


def test_groups_of_kubernetes_need_approval(cluster: Cluster) -> None:
    made = definition()
    made["spec"]["group"], made["metadata"]["name"] = "more.k8s.io", "widgets.more.k8s.io"
    assert "api-approved.kubernetes.io" in cluster.post(DEFINITIONS, made, code=422)["message"]
    made["metadata"]["annotations"] = {"api-approved.kubernetes.io": "https://example.com/1"}
    cluster.post(DEFINITIONS, made)


def test_unknown_fields_of_a_definition_are_named(cluster: Cluster) -> None:
    made = definition(spec=fields(size=number(strange=1)))
    message = cluster.post(f"{DEFINITIONS}?fieldValidation=Strict", made, code=400)["message"]
    assert 'unknown field "spec.versions[0].schema.openAPIV3Schema.properties.spec.properties.size.strange"' in message


def test_what_identifies_a_kind_cannot_change(cluster: Cluster) -> None:
    cluster.post(DEFINITIONS, definition())
    change = {"spec": {"scope": "Cluster", "names": {"kind": "Other", "listKind": "OtherList"}}}
    message = cluster.patch(f"{DEFINITIONS}/widgets.example.com", change, code=422)["message"]
    assert "spec.scope" in message
    assert "spec.names.kind" in message


def test_a_version_that_may_be_stored_cannot_be_removed(cluster: Cluster) -> None:
    made = definition()
    made["spec"]["versions"].append(copy.deepcopy(made["spec"]["versions"][0]) | {"name": "v2", "storage": False})
    cluster.post(DEFINITIONS, made)
    newest = [made["spec"]["versions"][1] | {"storage": True}]
    change = {"spec": {"versions": newest}}
    path = f"{DEFINITIONS}/widgets.example.com"
    assert "status.storedVersions[0]" in cluster.patch(path, change, code=422)["message"]
    cluster.patch(path, {"spec": {"versions": [made["spec"]["versions"][0] | {"storage": False}, *newest]}})
    assert cluster.get(path)["status"]["storedVersions"] == ["v1", "v2"]
    cluster.patch(f"{path}/status", {"status": {"storedVersions": ["v2"]}})
    cluster.patch(path, change)
    assert cluster.call("GET", "/apis/example.com/v1/widgets", code=404)


def test_objects_go_with_their_definition(cluster: Cluster) -> None:
    widgets = define(cluster, definition())
    seen = cluster.watch(widgets.path)
    for name in ("a", "b"):
        widgets.make(name)
    cluster.delete(f"{DEFINITIONS}/widgets.example.com")
    assert [kind for kind, _ in seen()] == ["ADDED", "ADDED", "DELETED", "DELETED"]
    cluster.call("GET", f"{DEFINITIONS}/widgets.example.com", code=404)
    cluster.call("GET", widgets.path, code=404)
    again = define(cluster, definition())
    assert cluster.get(again.path)["items"] == []


def test_a_definition_waits_for_finalizers_of_its_objects(cluster: Cluster) -> None:
    widgets = define(cluster, definition())
    held = widgets.object("held")
    held["metadata"]["finalizers"] = ["example.com/hold"]
    cluster.post(widgets.path, held)
    cluster.delete(f"{DEFINITIONS}/widgets.example.com")
    leaving = cluster.get(f"{DEFINITIONS}/widgets.example.com")
    assert leaving["metadata"]["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
    assert widgets.get("held")["metadata"]["deletionTimestamp"]
    widgets.make("late", code=405)
    widgets.patch({"metadata": {"finalizers": None}}, "held")
    cluster.call("GET", f"{DEFINITIONS}/widgets.example.com", code=404)


def test_watches_end_when_what_the_definition_says_changes(cluster: Cluster) -> None:
    widgets = define(cluster, definition())
    stream: Any = cluster.ask("GET", f"{widgets.path}?watch=1")
    cluster.patch(f"{DEFINITIONS}/widgets.example.com", {"metadata": {"labels": {"a": "b"}}})
    stream.pending()
    assert not stream.ended
    cluster.patch(f"{DEFINITIONS}/widgets.example.com", {"spec": {"names": {"shortNames": ["wd"]}}})
    stream.pending()
    assert stream.ended


def test_definitions_are_watched_like_any_kind(cluster: Cluster) -> None:
    seen = cluster.watch(f"{DEFINITIONS}?resourceVersion={cluster.get(DEFINITIONS)['metadata']['resourceVersion']}")
    define(cluster, definition())
    cluster.delete(f"{DEFINITIONS}/widgets.example.com")
    assert seen()[0][0] == "ADDED"
    assert cluster.get(f"{DEFINITIONS}?labelSelector=app.kubernetes.io/managed-by=dray")["items"]


def test_what_dray_ships_is_right_and_served(cluster: Cluster) -> None:
    """It is installed without being checked, so it is checked here."""
    for item in cluster.get(DEFINITIONS)["items"]:
        fresh = {**item, "metadata": {"name": item["metadata"]["name"], "annotations": item["metadata"]["annotations"]}}
        cluster.delete(f"{DEFINITIONS}/{item['metadata']['name']}")
        fresh.pop("status")
        assert conditions(cluster.post(f"{DEFINITIONS}?fieldValidation=Strict", fresh))["Established"][0] == "True"
    topologies = {"v1alpha1", "v1alpha2"}
    assert topologies == {v["version"] for v in cluster.get("/apis/topology.node.k8s.io")["versions"]}
    zone = {"name": "node-0", "type": "Node", "resources": [{"name": "cpu", "capacity": "4", "allocatable": 4, "available": "3"}]}
    body = {"apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology", "metadata": {"name": "n"}}
    made = cluster.post("/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies", {**body, "zones": [zone]})
    assert made["zones"] == [zone]
    older = cluster.get("/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies/n")
    assert (older["apiVersion"], older["zones"]) == ("topology.node.k8s.io/v1alpha1", [zone])


def test_versions_are_preferred_by_how_stable_they_are(cluster: Cluster) -> None:
    made = definition()
    version = made["spec"]["versions"][0]
    names = ["v1alpha1", "v2", "v10beta3", "v1", "foo1", "v11alpha2", "v3beta1"]
    made["spec"]["versions"] = [copy.deepcopy(version) | {"name": name, "storage": name == "v1"} for name in names]
    cluster.post(DEFINITIONS, made)
    listed = cluster.get("/apis/example.com")
    order = ["v2", "v1", "v10beta3", "v3beta1", "v11alpha2", "v1alpha1", "foo1"]
    assert [each["version"] for each in listed["versions"]] == order
    assert listed["preferredVersion"]["version"] == "v2"


def test_a_version_that_is_not_served_is_not_there(cluster: Cluster) -> None:
    made = definition()
    made["spec"]["versions"].append(
        copy.deepcopy(made["spec"]["versions"][0]) | {"name": "v2", "storage": False, "served": False}
    )
    cluster.post(DEFINITIONS, made)
    cluster.call("GET", "/apis/example.com/v2/widgets", code=404)
    assert Kind(cluster, made).make()["apiVersion"] == "example.com/v1"
