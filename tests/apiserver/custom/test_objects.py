"""Objects of defined kinds: pruned, defaulted, checked, versioned and shown as their schema says."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from dray.apiserver.api import Answer
from tests.apiserver.conftest import Cluster, Json
from tests.apiserver.custom.conftest import DEFINITIONS, OPEN, Kind, define, definition, fields, listed, number, text

MIXED: Json = {"x-kubernetes-int-or-string": True}


def keyed(items: Json, *keys: str) -> Json:
    return listed(items, **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)})


# ------------------------------------------------------------------------------------------------------ pruning, defaults


def test_fields_that_the_schema_does_not_know_are_pruned(cluster: Cluster) -> None:
    widgets = define(cluster, definition(spec=fields(a=fields(b=number()), c=listed(fields(d=text())))))
    made = widgets.make(spec={"a": {"b": 1, "x": 2}, "c": [{"d": "e", "y": 3}], "z": 4}, other={"w": 5})
    assert made["spec"] == {"a": {"b": 1}, "c": [{"d": "e"}]}
    assert "other" not in made


def test_strict_validation_names_every_unknown_field_and_warnings_do_too(cluster: Cluster) -> None:
    widgets = define(cluster, definition(spec=fields(c=listed(fields(d=text())))))
    obj = widgets.object(spec={"c": [{"d": "e", "y": 3}], "z": 4})
    obj["metadata"]["strange"] = 1
    message = cluster.post(f"{widgets.path}?fieldValidation=Strict", obj, code=400)["message"]
    for path in ("metadata.strange", "spec.c[0].y", "spec.z"):
        assert f'unknown field "{path}"' in message
    answer = cluster.ask("POST", f"{widgets.path}?fieldValidation=Warn", obj)
    assert isinstance(answer, Answer)
    told = [value for name, value in answer.headers if name == "Warning"]
    assert len(told) == 3
    assert "spec.z" in "".join(told)


def test_repeated_fields_are_named_in_json_and_yaml(cluster: Cluster) -> None:
    widgets = define(cluster, definition(spec=OPEN))
    head = f'"apiVersion": "{widgets.api_version}", "kind": "Widget", "metadata": {{"name": "w"}}'
    body = f'{{{head}, "spec": {{"a": 1, "a": 2}}}}'.encode()
    assert 'duplicate field "spec.a"' in cluster.post(f"{widgets.path}?fieldValidation=Strict", body, code=400)["message"]
    yaml = f"apiVersion: {widgets.api_version}\nkind: Widget\nmetadata:\n  name: w\nspec:\n  a: 1\n  a: 2\n".encode()
    path = f"{widgets.path}/w?fieldManager=me&fieldValidation=Strict"
    told = cluster.call("PATCH", path, yaml, code=400, content_type="application/apply-patch+yaml")["message"]
    assert 'line 7: key "a" already set in map' in told


def test_what_is_left_open_is_kept_as_it_is(cluster: Cluster) -> None:
    widgets = define(cluster, definition(spec=OPEN | {"properties": {"known": fields(a=text())}}))
    spec = {"any": {"b": [1, {"c": None}]}, "n": 1.5, "known": {"a": "x"}}
    assert widgets.make(spec={**spec, "known": {"a": "x", "gone": 1}})["spec"] == spec


def test_maps_keep_their_keys(cluster: Cluster) -> None:
    widgets = define(cluster, definition(spec=fields(m={"type": "object", "additionalProperties": fields(a=text())})))
    made = widgets.make(spec={"m": {"x": {"a": "1", "b": "2"}}})
    assert made["spec"] == {"m": {"x": {"a": "1"}}}


def test_defaults_come_in_on_every_write_also_inside_of_defaults(cluster: Cluster) -> None:
    inner = fields(b=text(default="deep")) | {"default": {}}
    widgets = define(cluster, definition(spec=fields(mode=text(default="auto"), a=inner, l=listed(fields(n=number(default=7))))))
    assert widgets.make(spec={"l": [{}]})["spec"] == {"mode": "auto", "a": {"b": "deep"}, "l": [{"n": 7}]}
    assert widgets.patch({"spec": {"mode": None}})["spec"]["mode"] == "auto"


def test_defaults_that_came_later_are_seen_in_what_is_stored(cluster: Cluster) -> None:
    made = definition(spec=fields(a=text()))
    widgets = define(cluster, made)
    widgets.make(spec={"a": "x"})
    made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["b"] = text(default="new")
    cluster.patch(f"{DEFINITIONS}/widgets.example.com", {"spec": made["spec"]})
    assert widgets.get()["spec"] == {"a": "x", "b": "new"}
    assert cluster.get(widgets.path)["items"][0]["spec"] == {"a": "x", "b": "new"}


def test_null_is_absent_unless_it_is_allowed(cluster: Cluster) -> None:
    widgets = define(cluster, definition(spec=fields(a=text(), b=text(nullable=True), c=text(default="x"))))
    assert widgets.make(spec={"a": None, "b": None, "c": None})["spec"] == {"b": None, "c": "x"}


def test_objects_in_objects_have_what_objects_have(cluster: Cluster) -> None:
    template = {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True}
    widgets = define(cluster, definition(spec=fields(template=template)))
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"a": "b"}}, "spec": {"x": 1}}
    assert widgets.make(spec={"template": pod})["spec"]["template"] == pod
    told = widgets.refusal(spec={"template": {"metadata": {}}})
    assert "spec.template.apiVersion: Required value" in told
    assert "spec.template.kind: Required value" in told


def test_metadata_of_objects_in_objects_is_metadata_whatever_the_schema_says_of_it(cluster: Cluster) -> None:
    within = {"metadata": {"type": "object", "properties": {"name": {"type": "string"}}}, "spec": {"type": "object"}}
    template = {"type": "object", "x-kubernetes-embedded-resource": True, "properties": within}
    widgets = define(cluster, definition(spec=fields(template=template)))
    metadata = {"name": "p", "namespace": "n", "labels": {"a": "b"}, "colour": "red"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
    made = widgets.make(spec={"template": pod})["spec"]["template"]
    assert made["metadata"] == {"name": "p", "namespace": "n", "labels": {"a": "b"}}
    told = widgets.make("w2", code=400, query="?fieldValidation=Strict", spec={"template": pod})["message"]
    assert 'unknown field "spec.template.metadata.colour"' in told
    assert "namespace" not in told
    told = widgets.refusal(spec={"template": pod | {"metadata": {"labels": ["a"]}}})
    assert "spec.template.metadata: Invalid value" in told


# ------------------------------------------------------------------------------------------------------------- validation

WRONG: list[tuple[Json, Any, str]] = [
    (number(), "1", 'spec.v: Invalid value: "string": spec.v in body must be of type integer: "string"'),
    (number(), 1.5, 'must be of type integer: "number"'),
    (number(), True, 'must be of type integer: "boolean"'),
    (text(), 1, 'must be of type string: "integer"'),
    (listed(text()), {}, 'must be of type array: "object"'),
    (listed(text()), ["a", 1], 'spec.v[1] in body must be of type string: "integer"'),
    ({"type": "boolean"}, "yes", 'must be of type boolean: "string"'),
    (number(minimum=1), 0, "spec.v: Invalid value: 0: spec.v in body should be greater than or equal to 1"),
    (number(minimum=1, exclusiveMinimum=True), 1, "should be greater than 1"),
    (number(maximum=3), 4, "should be less than or equal to 3"),
    ({"type": "number", "maximum": 3, "exclusiveMaximum": True}, 3.0, "should be less than 3"),
    (number(multipleOf=5), 7, "should be a multiple of 5"),
    (number(format="int32"), 2**31, "int32"),
    (text(minLength=2), "a", "should be at least 2 chars long"),
    (text(maxLength=2), "abc", "spec.v: Too long: may not be more than 2 bytes"),
    (text(pattern="^[a-z]+$"), "A1", "spec.v in body should match '^[a-z]+$'"),
    (text(enum=["red", "blue"]), "green", 'spec.v: Unsupported value: "green": supported values: "red", "blue"'),
    (listed(text(), minItems=1), [], "should have at least 1 items"),
    (listed(text(), maxItems=1), ["a", "b"], "spec.v: Too many: 2: must have at most 1 item"),
    ({"type": "object", "additionalProperties": text(), "minProperties": 1}, {}, "should have at least 1 properties"),
    ({"type": "object", "additionalProperties": text(), "maxProperties": 1}, {"a": "1", "b": "2"}, "must have at most 1"),
    (fields(a=text()) | {"required": ["a"]}, {}, "spec.v.a: Required value"),
    (MIXED, 1.5, 'must be of type integer,string: "number"'),
    (number(allOf=[{"minimum": 1}, {"maximum": 3}]), 4, "should be less than or equal to 3"),
    (number(anyOf=[{"minimum": 5}, {"maximum": 3}]), 4, '"spec.v" must validate at least one schema (anyOf)'),
    (number(oneOf=[{"minimum": 1}, {"maximum": 3}]), 2, "must validate one and only one schema (oneOf). Found 2 valid"),
    (number(oneOf=[{"minimum": 5}, {"maximum": 3}]), 4, "Found none valid"),
    (number(**{"not": {"minimum": 3}}), 4, "must not validate the schema (not)"),
    (listed(text(), **{"x-kubernetes-list-type": "set"}), ["a", "a"], 'spec.v[1]: Duplicate value: "a"'),
    (
        keyed(fields(k=text(), n=number()) | {"required": ["k"]}, "k"),
        [{"k": "a", "n": 1}, {"k": "a", "n": 2}],
        'spec.v[1]: Duplicate value: {"k":"a"}',
    ),
]


@pytest.mark.parametrize(("schema", "value", "told"), WRONG, ids=lambda each: each[:40] if isinstance(each, str) else "")
def test_what_the_schema_does_not_allow_is_refused_with_upstreams_words(
    cluster: Cluster, schema: Json, value: Any, told: str
) -> None:
    widgets = define(cluster, definition(spec=fields(v=schema)))
    message = widgets.refusal(spec={"v": value})
    assert told in message, message


FINE: list[tuple[Json, Any]] = [
    (number(), 1.0),
    ({"type": "number"}, 1),
    (MIXED, 1),
    (MIXED, "25%"),
    ({**MIXED, "anyOf": [{"type": "integer"}, {"type": "string"}], "pattern": "^[0-9]+[KM]?$"}, "25M"),
    (number(enum=[1, 2]), 2),
    (text(format="no-such-format"), "anything"),
    (listed(number(), **{"x-kubernetes-list-type": "set"}), [1, 2]),
    (text(maxLength=2), "äö"),
]


@pytest.mark.parametrize(("schema", "value"), FINE)
def test_what_the_schema_allows_is_stored_as_it_is(cluster: Cluster, schema: Json, value: Any) -> None:
    widgets = define(cluster, definition(spec=fields(v=schema)))
    assert widgets.make(spec={"v": value})["spec"]["v"] == value


FORMATS = {
    "date-time": ("2026-01-02T03:04:05Z", "yesterday"),
    "date": ("2026-02-28", "2026-02-30"),
    "duration": ("1h30m", "soon"),
    "byte": ("aGk=", "?"),
    "uuid": ("6e12d32b-44d0-4a3c-b3d9-fb1a38b3ed59", "6e12d32b"),
    "uuid4": ("6e12d32b-44d0-4a3c-b3d9-fb1a38b3ed59", "6e12d32b-44d0-1a3c-b3d9-fb1a38b3ed59"),
    "ipv4": ("10.0.0.1", "10.0.0.256"),
    "ipv6": ("fd00::1", "10.0.0.1"),
    "cidr": ("10.0.0.0/8", "10.0.0.0"),
    "mac": ("00:11:22:33:44:55", "00:11:22"),
    "uri": ("https://example.com/a?b", "not a uri"),
    "email": ("a@example.com", "a.example.com"),
    "hostname": ("a.example.com", "-a.example.com"),
    "hexcolor": ("#ff00aa", "#ff00a"),
    "rgbcolor": ("rgb(1,2,255)", "rgb(1,2,256)"),
    "isbn": ("978-3-16-148410-0", "978-3-16-148410-1"),
    "creditcard": ("4111 1111 1111 1111", "4111 1111 1111 1112"),
    "ssn": ("111-22-3333", "111-22"),
    "bsonobjectid": ("507f1f77bcf86cd799439011", "507f"),
    "k8s-short-name": ("a-name", "A.name"),
    "k8s-long-name": ("a.name", "A.name"),
}


@pytest.mark.parametrize("format", FORMATS)
def test_formats_are_checked(cluster: Cluster, format: str) -> None:
    right, wrong = FORMATS[format]
    widgets = define(cluster, definition(spec=fields(v=text(format=format))))
    widgets.make(spec={"v": right})
    assert f"must be of type {format}" in widgets.refusal(spec={"v": wrong})


def test_a_value_that_was_there_may_stay_though_the_schema_became_stricter(cluster: Cluster) -> None:
    made = definition(spec=fields(a=text(), b=text(), l=keyed(fields(k=text(), n=number()) | {"required": ["k"]}, "k")))
    widgets = define(cluster, made)
    widgets.make(spec={"a": "long", "b": "long", "l": [{"k": "x", "n": 9}]})
    properties = made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    properties["a"]["maxLength"] = properties["b"]["maxLength"] = 2
    properties["l"]["items"]["properties"]["n"]["maximum"] = 5
    cluster.patch(f"{DEFINITIONS}/widgets.example.com", {"spec": made["spec"]})
    widgets.patch({"spec": {"b": "ok", "l": [{"k": "new", "n": 1}, {"k": "x", "n": 9}]}})
    assert "spec.a" in widgets.patch({"spec": {"a": "longer"}}, code=422)["message"]


def test_every_error_is_told_up_to_a_bound(cluster: Cluster) -> None:
    widgets = define(cluster, definition(spec=fields(l=listed(number()))))
    assert widgets.refusal(spec={"l": ["a"] * 3}).count("must be of type integer") == 3
    assert widgets.refusal(spec={"l": ["a"] * 5000}).count("must be of type integer") == 100


# ------------------------------------------------------------------------------------------------- subresources and views


def test_the_status_is_written_apart(cluster: Cluster) -> None:
    widgets = define(cluster, definition(spec=fields(size=number()), subresources={"status": {}}))
    assert "status" not in widgets.make(spec={"size": 1}, status={"phase": "x"})
    made = widgets.patch({"status": {"phase": "Ready"}, "spec": {"size": 9}}, sub="/status")
    assert (made["status"], made["spec"], made["metadata"]["generation"]) == ({"phase": "Ready"}, {"size": 1}, 1)
    made = widgets.patch({"status": {"phase": "Lost"}, "spec": {"size": 9}})
    assert (made["status"], made["spec"], made["metadata"]["generation"]) == ({"phase": "Ready"}, {"size": 9}, 2)


def test_without_the_subresource_the_status_is_a_field_like_any(cluster: Cluster) -> None:
    widgets = define(cluster, definition())
    assert widgets.make(status={"phase": "x"})["status"] == {"phase": "x"}
    assert widgets.patch({"status": {"phase": "y"}})["metadata"]["generation"] == 2
    cluster.call("GET", f"{widgets.path}/w/status", code=404)


def test_a_kind_with_replicas_is_scaled(cluster: Cluster) -> None:
    scale = {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n", "labelSelectorPath": ".status.selector"}
    widgets = define(cluster, definition(spec=fields(n=number()), subresources={"status": {}, "scale": scale}))
    widgets.make(spec={"n": 1})
    widgets.patch({"status": {"n": 1, "selector": "app=w"}}, sub="/status")
    found = cluster.get(f"{widgets.path}/w/scale")
    assert (found["spec"], found["status"]) == ({"replicas": 1}, {"replicas": 1, "selector": "app=w"})
    cluster.put(f"{widgets.path}/w/scale", found | {"spec": {"replicas": 6}})
    assert (widgets.get()["spec"]["n"], widgets.get()["metadata"]["generation"]) == (6, 2)


def test_columns_show_what_their_paths_find(cluster: Cluster) -> None:
    columns = [
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size", "description": "How large."},
        {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
        {"name": "Label", "type": "string", "jsonPath": r".metadata.labels.example\.com/tier", "priority": 1},
        {"name": "Last", "type": "string", "jsonPath": ".spec.list[-1]"},
        {"name": "When", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        {"name": "None", "type": "string", "jsonPath": ".spec.nothing"},
    ]
    spec = fields(size=number(), list=listed(text()))
    widgets = define(cluster, definition(spec=spec, additionalPrinterColumns=columns))
    obj = widgets.object(spec={"size": 3, "list": ["a", "z"]}, status={"conditions": [{"type": "Ready", "status": "True"}]})
    obj["metadata"]["labels"] = {"example.com/tier": "gold"}
    cluster.post(widgets.path, obj)
    cluster.now += 90
    table = cluster.call("GET", widgets.path, accept="application/json;as=Table;v=v1;g=meta.k8s.io")
    shown = {each["name"]: (each["type"], each["priority"]) for each in table["columnDefinitions"]}
    assert shown["Label"] == ("string", 1)
    assert table["rows"][0]["cells"] == ["w", 3, "True", "gold", "z", "90s", None]


def test_objects_are_selected_by_the_fields_that_are_selectable(cluster: Cluster) -> None:
    selectable = [{"jsonPath": ".spec.color"}, {"jsonPath": ".spec.ready"}]
    spec = fields(color=text(), ready={"type": "boolean"}, size=number())
    widgets = define(cluster, definition(spec=spec, selectableFields=selectable))
    seen = cluster.watch(f"{widgets.path}?fieldSelector=spec.color=red")
    for name, color in (("a", "red"), ("b", "blue"), ("c", "red")):
        widgets.make(name, spec={"color": color, "ready": name == "a"})
    found = cluster.get(f"{widgets.path}?fieldSelector=spec.color=red,spec.ready=true")
    assert [each["metadata"]["name"] for each in found["items"]] == ["a"]
    widgets.patch({"spec": {"color": "blue"}}, "c")
    assert [(kind, obj["metadata"]["name"]) for kind, obj in seen()] == [("ADDED", "a"), ("ADDED", "c"), ("DELETED", "c")]
    cluster.call("GET", f"{widgets.path}?fieldSelector=spec.size=1", code=400)


def test_an_update_needs_the_version_that_it_changes(cluster: Cluster) -> None:
    widgets = define(cluster, definition())
    made = widgets.make()
    bare = {**made, "metadata": {"name": "w"}}
    assert "metadata.resourceVersion" in cluster.put(f"{widgets.path}/w", bare, code=422)["message"]
    cluster.put(f"{widgets.path}/w", made)


def test_strategic_merge_patches_are_not_for_defined_kinds(cluster: Cluster) -> None:
    widgets = define(cluster, definition())
    widgets.make()
    cluster.call("PATCH", f"{widgets.path}/w", {}, code=415, content_type="application/strategic-merge-patch+json")


def test_labels_owners_and_dry_runs_work_as_on_any_kind(cluster: Cluster) -> None:
    widgets = define(cluster, definition(spec=fields(a=text(default="x"))))
    assert widgets.make(query="?dryRun=All")["metadata"]["name"] == "w"
    assert cluster.get(widgets.path)["items"] == []
    obj = widgets.object("labelled")
    obj["metadata"]["labels"] = {"a": "b"}
    cluster.post(widgets.path, obj)
    widgets.make("plain")
    assert len(cluster.get(f"{widgets.path}?labelSelector=a=b")["items"]) == 1
    cluster.delete(f"{widgets.path}?labelSelector=a=b")
    assert [each["metadata"]["name"] for each in cluster.get(widgets.path)["items"]] == ["plain"]
    assert "metadata.name" in widgets.refusal("Not_A_Name")


# --------------------------------------------------------------------------------------------------------------- versions


def two_versions() -> Json:
    made = definition(spec=fields(a=text(), b=text()), subresources={"status": {}})
    newer = copy.deepcopy(made["spec"]["versions"][0]) | {"name": "v2", "storage": False, "deprecated": True}
    newer["schema"]["openAPIV3Schema"]["properties"]["spec"] = fields(a=text(), c=text(default="new"))
    made["spec"]["versions"].append(newer)
    return made


def test_each_version_shows_an_object_as_its_schema_has_it(cluster: Cluster) -> None:
    made = two_versions()
    old = define(cluster, made)
    new = Kind(cluster, made, "v2")
    old.make(spec={"a": "1", "b": "2"})
    assert new.get()["spec"] == {"a": "1", "c": "new"}
    assert new.get()["apiVersion"] == "example.com/v2"
    seen = cluster.watch(new.path)
    assert seen()[0][1]["apiVersion"] == "example.com/v2"
    changed = new.patch({"spec": {"a": "3"}})
    assert (changed["apiVersion"], changed["spec"]) == ("example.com/v2", {"a": "3", "c": "new"})
    assert old.get()["spec"]["a"] == "3"
    assert seen()[0][1]["spec"]["a"] == "3"
    new.patch({"status": {"x": 1}}, sub="/status")
    assert old.get()["status"] == {"x": 1}
    assert new.make("other", spec={"a": "4"})["apiVersion"] == "example.com/v2"
    assert old.get("other")["apiVersion"] == "example.com/v1"


def test_what_another_version_stored_is_shown_in_the_one_that_is_asked_for(cluster: Cluster) -> None:
    made = two_versions()
    old = define(cluster, made)
    old.make("before", spec={"a": "1"})
    versions = [version | {"storage": version["name"] == "v2"} for version in made["spec"]["versions"]]
    cluster.patch(f"{DEFINITIONS}/widgets.example.com", {"spec": {"versions": versions}})
    old.make("after", spec={"a": "2"})
    assert {each["apiVersion"] for each in cluster.get(old.path)["items"]} == {"example.com/v1"}
    new = Kind(cluster, made, "v2")
    assert {each["apiVersion"] for each in cluster.get(new.path)["items"]} == {"example.com/v2"}


def test_who_uses_a_deprecated_version_is_warned(cluster: Cluster) -> None:
    made = two_versions()
    define(cluster, made)
    answer = cluster.ask("GET", Kind(cluster, made, "v2").path)
    assert isinstance(answer, Answer)
    assert any("example.com/v2 Widget is deprecated" in value for _, value in answer.headers)


def test_webhook_conversion_is_said_not_to_happen(cluster: Cluster) -> None:
    made = two_versions()
    config = {"clientConfig": {"url": "https://example.com"}, "conversionReviewVersions": ["v1"]}
    made["spec"]["conversion"] = {"strategy": "Webhook", "webhook": config}
    answer = cluster.ask("POST", DEFINITIONS, made)
    assert isinstance(answer, Answer)
    assert answer.code == 201
    assert any("webhooks are not called" in value for _, value in answer.headers)


# ------------------------------------------------------------------------------------------------------ server-side apply


def managed(obj: Json, manager: str) -> Json:
    return next(each["fieldsV1"] for each in obj["metadata"]["managedFields"] if each["manager"] == manager)


def test_lists_merge_as_their_type_says_when_they_are_applied(cluster: Cluster) -> None:
    ports = keyed(fields(name=text(), port=number(), protocol=text(default="TCP")) | {"required": ["name"]}, "name", "protocol")
    spec = fields(ports=ports, tags=listed(text(), **{"x-kubernetes-list-type": "set"}), plain=listed(text()))
    widgets = define(cluster, definition(spec=spec))
    one = widgets.object(spec={"ports": [{"name": "a", "port": 1}], "tags": ["x"], "plain": ["p"]})
    other = widgets.object(spec={"ports": [{"name": "b", "port": 2}], "tags": ["y"], "plain": ["q"]})
    widgets.apply(one, "one")
    made = widgets.apply(other, "other")
    assert [each["name"] for each in made["spec"]["ports"]] == ["a", "b"]
    assert (made["spec"]["tags"], made["spec"]["plain"]) == (["x", "y"], ["q"])
    assert list(managed(made, "other")["f:spec"]["f:ports"]) == ['k:{"name":"b","protocol":"TCP"}']
    made = widgets.apply(widgets.object(spec={"tags": ["x"]}), "one")
    assert [each["name"] for each in made["spec"]["ports"]] == ["b"]


def test_maps_merge_unless_they_are_atomic(cluster: Cluster) -> None:
    whole = {"x-kubernetes-map-type": "atomic"}
    values = {"type": "object", "additionalProperties": text()}
    spec = fields(m=values, w=values | whole, s=fields(a=text(), b=text()) | whole)
    widgets = define(cluster, definition(spec=spec))
    widgets.apply(widgets.object(spec={"m": {"a": "1"}, "w": {"a": "1"}, "s": {"a": "1"}}), "one")
    made = widgets.apply(widgets.object(spec={"m": {"b": "2"}, "w": {"b": "2"}, "s": {"b": "2"}}), "other")
    assert made["spec"] == {"m": {"a": "1", "b": "2"}, "w": {"b": "2"}, "s": {"b": "2"}}


def test_what_is_open_is_managed_member_by_member(cluster: Cluster) -> None:
    widgets = define(cluster, definition(spec=OPEN))
    widgets.apply(widgets.object(spec={"a": {"x": 1}, "l": [1]}), "one")
    made = widgets.apply(widgets.object(spec={"a": {"y": 2}}), "other")
    assert made["spec"] == {"a": {"x": 1, "y": 2}, "l": [1]}
    assert managed(made, "one")["f:spec"] == {"f:a": {".": {}, "f:x": {}}, "f:l": {}}
    made = widgets.apply(widgets.object(spec={"l": [1]}), "one")
    assert made["spec"] == {"a": {"y": 2}, "l": [1]}
    made = widgets.patch({"spec": {"l": [1, 2], "a": {"y": {"z": 3}}}})
    assert made["spec"] == {"a": {"y": {"z": 3}}, "l": [1, 2]}


def test_a_field_that_is_not_in_the_schema_cannot_be_applied(cluster: Cluster) -> None:
    widgets = define(cluster, definition(spec=fields(a=text())))
    told = widgets.apply(widgets.object(spec={"b": 1}), code=400)["message"]
    assert ".spec.b: field not declared in schema" in told


def test_a_changed_schema_changes_how_objects_are_applied(cluster: Cluster) -> None:
    made = definition(spec=fields(a=text()))
    widgets = define(cluster, made)
    widgets.apply(widgets.object(spec={"a": "x"}))
    made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["b"] = text()
    cluster.patch(f"{DEFINITIONS}/widgets.example.com", {"spec": made["spec"]})
    assert widgets.apply(widgets.object(spec={"b": "y"}))["spec"] == {"b": "y"}


def test_lists_in_maps_are_merged_by_their_keys(cluster: Cluster) -> None:
    inner = keyed(fields(k=text(), v=number()) | {"required": ["k"]}, "k")
    widgets = define(cluster, definition(spec=fields(m={"type": "object", "additionalProperties": inner})))
    widgets.apply(widgets.object(spec={"m": {"x": [{"k": "a", "v": 1}]}}), "one")
    made = widgets.apply(widgets.object(spec={"m": {"x": [{"k": "b", "v": 2}]}}), "other")
    assert made["spec"]["m"]["x"] == [{"k": "a", "v": 1}, {"k": "b", "v": 2}]
    owned = {each["manager"]: each["fieldsV1"]["f:spec"]["f:m"] for each in made["metadata"]["managedFields"]}
    element = {".": {}, "f:k": {}, "f:v": {}}
    assert owned == {
        "one": {"f:x": {".": {}, 'k:{"k":"a"}': element}},
        "other": {"f:x": {".": {}, 'k:{"k":"b"}': element}},
    }
    told = widgets.apply(widgets.object(spec={"m": {"x": [{"k": "a", "v": 3}]}}), "other", force=False, code=409)
    assert told["details"]["causes"][0]["field"] == '.spec.m.x[k="a"].v'


@pytest.mark.parametrize(
    ("there", "applied", "made"),
    [("abc", "cxa", "bcxa"), ("abcd", "dx", "abcdx"), ("abc", "xb", "axbc"), ("ab", "ba", "ba"), ("abc", "", "abc")],
)
def test_elements_of_both_come_in_the_order_of_the_configuration(cluster: Cluster, there: str, applied: str, made: str) -> None:
    """The others stay where they are among them, as structured-merge-diff has it."""
    elements = {"type": "array", "items": text(), "x-kubernetes-list-type": "set"}
    widgets = define(cluster, definition(spec=fields(s=elements)))
    widgets.apply(widgets.object(spec={"s": list(there)}), "one")
    assert widgets.apply(widgets.object(spec={"s": list(applied)}), "other")["spec"]["s"] == list(made)


def test_custom_objects_are_not_read_as_protobuf(cluster: Cluster) -> None:
    widgets = define(cluster, definition())
    told = cluster.call("POST", widgets.path, b"k8s\x00", code=415, content_type="application/vnd.kubernetes.protobuf")
    assert told["reason"] == "UnsupportedMediaType"


# ---------------------------------------------------------------------------------------------- shapes of real definitions


def test_a_definition_of_the_shape_of_a_job_queue_works(cluster: Cluster) -> None:
    """As JobSet and Kueue have it: templates in keyed lists, fields that cannot change, defaults inside of lists."""
    fixed = {"x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "field is immutable"}]}
    metadata = fields(name=text(), namespace=text(), labels={"type": "object", "additionalProperties": text()})
    template = fields(metadata=metadata, spec=OPEN) | {
        "x-kubernetes-validations": [{"rule": "!has(self.metadata.namespace) || size(self.metadata.namespace) == 0"}]
    }
    job = fields(name=text(), replicas=number(default=1, format="int32"), group=text(default="default"), template=template)
    jobs = keyed(job | {"required": ["name", "template"]}, "name") | {"maxItems": 10}
    condition = fields(type=text(), status=text(enum=["True", "False", "Unknown"])) | {"required": ["type", "status"]}
    schema = fields(
        spec=fields(jobs=jobs | fixed, suspend={"type": "boolean"}), status=fields(conditions=keyed(condition, "type"))
    )
    sets = define(cluster, definition("JobSet", schema=schema, subresources={"status": {}}))
    work = {"name": "workers", "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"image": "i"}]}}}
    made = sets.make("train", spec={"jobs": [work]})
    assert made["spec"]["jobs"] == [work | {"replicas": 1, "group": "default"}]
    sets.patch({"spec": {"suspend": True}}, "train")
    changed = {"spec": {"jobs": [work | {"replicas": 2}]}}
    assert "spec.jobs: Invalid value: field is immutable" in sets.patch(changed, "train", code=422)["message"]
    wrong = {"name": "w", "template": {"metadata": {"namespace": "other"}}}
    assert "spec.jobs[0].template" in sets.refusal("other", spec={"jobs": [wrong]})
    sets.patch({"status": {"conditions": [{"type": "Done", "status": "True"}]}}, "train", sub="/status")
    assert (
        "status.conditions[0].status"
        in sets.patch({"status": {"conditions": [{"type": "Done", "status": "Maybe"}]}}, "train", sub="/status", code=422)[
            "message"
        ]
    )
