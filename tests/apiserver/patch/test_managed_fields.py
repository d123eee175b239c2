"""Who manages which field, after updates and after server-side apply."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.api import kinds
from dray.api.kinds import Kind
from dray.apiserver import schema
from dray.apiserver.field_sets import LEAF, from_wire, is_member, minus, union
from dray.apiserver.managed_fields import ManagedFields
from dray.apiserver.patch import PatchError

CONFIG_MAPS = Kind("", "v1", "configmaps", "ConfigMap", True)
MANAGED = ManagedFields(schema.load())
SCHEMAS = schema.load()


def config(data=None, **metadata):
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", **metadata}}
    return made if data is None else made | {"data": data}


def applied(current, obj, manager="one", now=0.0, kind=CONFIG_MAPS, **more):
    return MANAGED.apply(kind, current, obj, manager=manager, now=now, has_status=True, **more)


def updated(new, old, manager="me", now=0.0, kind=CONFIG_MAPS, subresource=""):
    entries = (old or {}).get("metadata", {}).get("managedFields", [])
    new = {**new, "metadata": {**new["metadata"], "managedFields": entries}}
    made = MANAGED.updated(kind, new, old, manager=manager, now=now, subresource=subresource, has_status=True)
    new["metadata"]["managedFields"] = made
    return new


def owners(obj):
    return {(e["manager"], e["operation"], e.get("subresource", "")): e["fieldsV1"] for e in obj["metadata"]["managedFields"]}


# updates


def test_who_creates_an_object_manages_what_it_set():
    made = updated(config({"k": "v"}, labels={"a": "b"}), None)
    assert made["metadata"]["managedFields"] == [
        {
            "manager": "me",
            "operation": "Update",
            "apiVersion": "v1",
            "time": "1970-01-01T00:00:00Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:data": {".": {}, "f:k": {}},
                "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
            },
        }
    ]


def test_who_changes_a_field_takes_it_over():
    made = updated(config({"a": "1", "b": "2"}), None, "maker")
    made = updated(config({"a": "1", "b": "3", "c": "4"}), made, "changer", now=60)
    assert owners(made) == {
        ("maker", "Update", ""): {"f:data": {".": {}, "f:a": {}}},
        ("changer", "Update", ""): {"f:data": {"f:b": {}, "f:c": {}}},
    }


def test_a_removed_field_has_no_manager():
    made = updated(config({"a": "1", "b": "2"}), None, "maker")
    made = updated(config({"a": "1"}), made, "remover")
    assert owners(made) == {("maker", "Update", ""): {"f:data": {".": {}, "f:a": {}}}}


def test_a_write_without_a_change_changes_no_entry():
    made = updated(config({"a": "1"}), None, "maker")
    assert updated(config({"a": "1"}), made, "other", now=60)["metadata"]["managedFields"] == made["metadata"]["managedFields"]


def test_elements_of_lists_are_managed_by_key():
    def pod(**container):
        obj = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", **container}]}}
        return SCHEMAS.normalise(kinds.PODS, obj)[0]

    made = updated(pod(image="i:1", ports=[{"containerPort": 80, "protocol": "TCP"}]), None, kind=kinds.PODS)
    fields = owners(made)["me", "Update", ""]["f:spec"]["f:containers"]['k:{"name":"c"}']
    assert fields["f:image"] == {}
    assert list(fields["f:ports"]) == [".", 'k:{"containerPort":80,"protocol":"TCP"}']


def test_status_has_managers_of_its_own():
    old = updated(
        {"metadata": {"name": "p"}, "spec": {"nodeName": "n"}, "status": {"phase": "Pending"}}, None, "maker", kind=kinds.PODS
    )
    new = {**old, "status": {"phase": "Running"}}
    made = updated(new, old, "kubelet", kind=kinds.PODS, subresource="status")
    assert owners(made) == {
        ("maker", "Update", ""): {"f:spec": {"f:nodeName": {}}},
        ("kubelet", "Update", "status"): {"f:status": {"f:phase": {}}},
    }


# apply


def test_applying_creates_an_object_and_owns_the_configuration():
    made = applied(None, config({"k": "v"}))
    assert made["data"] == {"k": "v"}
    assert owners(made) == {("one", "Apply", ""): {"f:data": {"f:k": {}}}}


def test_applying_the_same_again_changes_nothing():
    made = applied(None, config({"k": "v"}))
    assert applied(made, config({"k": "v"}), now=60) == made


def test_fields_that_are_no_longer_sent_are_removed():
    made = applied(None, config({"a": "1", "b": "2"}))
    made = applied(made, config({"c": "3"}), "two")
    made = applied(made, config({"a": "1"}), "one")
    assert made["data"] == {"a": "1", "c": "3"}


def test_fields_that_somebody_else_manages_stay():
    made = applied(None, config({"k": "v"}), "one")
    made = applied(made, config({"k": "v"}), "two")
    assert set(owners(made)) == {("one", "Apply", ""), ("two", "Apply", "")}
    made = applied(made, config({"z": "1"}), "one")
    assert made["data"] == {"k": "v", "z": "1"}


def test_a_changed_value_of_another_manager_is_a_conflict():
    made = applied(None, config({"k": "v", "z": "1"}), "one")
    with pytest.raises(PatchError) as refused:
        applied(made, config({"k": "w"}), "two")
    assert (refused.value.code, refused.value.reason) == (409, "Conflict")
    assert str(refused.value) == 'Apply failed with 1 conflict: conflict with "one": .data.k'
    assert refused.value.causes == [{"reason": "FieldManagerConflict", "message": 'conflict with "one"', "field": ".data.k"}]


def test_conflicts_are_told_by_manager_with_every_field():
    made = updated(config({"a": "1"}), None, "creator")
    made = applied(made, config({"b": "1", "c": "1"}), "one")
    with pytest.raises(PatchError) as refused:
        applied(made, config({"a": "2", "b": "2", "c": "2"}), "two")
    told = ['conflicts with "creator" using v1:', "- .data.a", 'conflicts with "one":', "- .data.b", "- .data.c"]
    assert str(refused.value) == "Apply failed with 3 conflicts: " + "\n".join(told)


def test_an_equal_value_is_shared_and_no_conflict():
    made = applied(None, config({"k": "v"}), "one")
    made = applied(made, config({"k": "v"}), "two")
    assert owners(made) == {(who, "Apply", ""): {"f:data": {"f:k": {}}} for who in ("one", "two")}


def test_a_list_element_in_a_conflict_is_named_by_its_keys():
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "app", "image": "a"}]}}
    made = applied(None, pod, "one", kind=kinds.PODS)
    other = {**pod, "spec": {"containers": [{"name": "app", "image": "b"}]}}
    with pytest.raises(PatchError, match=r'\.spec\.containers\[name="app"\]\.image'):
        applied(made, other, "two", kind=kinds.PODS)


def test_an_object_that_nobody_manages_was_written_before_the_first_apply():
    made = applied(config({"k": "v"}), config({"z": "1"}), "one")
    assert owners(made)[("before-first-apply", "Update", "")]["f:data"] == {".": {}, "f:k": {}}
    with pytest.raises(PatchError, match=r'"before-first-apply" using v1: \.data\.k'):
        applied(config({"k": "v"}), config({"k": "w"}), "one")


def test_kubectl_goes_on_with_what_it_applied_on_the_client_side():
    note = {"kubectl.kubernetes.io/last-applied-configuration": '{"data":{"k":"v"}}'}
    made = updated(config({"k": "v", "z": "1"}, annotations=note), None, "kubectl-client-side-apply")
    assert applied(made, config({"k": "w"}), "kubectl")["data"] == {"k": "w", "z": "1"}
    with pytest.raises(PatchError, match=r"\.data\.z"):
        applied(made, config({"k": "w", "z": "2"}), "kubectl")


def test_fields_are_written_in_order():
    made = updated(config({"b": "1", "a": "1"}, labels={"x": "y"}), None)
    assert list(owners(made)[("me", "Update", "")]["f:data"]) == [".", "f:a", "f:b"]


def test_with_force_a_changed_value_changes_hands():
    made = applied(None, config({"k": "v"}), "one")
    made = applied(made, config({"k": "w"}), "two", force=True)
    assert made["data"] == {"k": "w"}
    assert owners(made) == {("two", "Apply", ""): {"f:data": {"f:k": {}}}}


def test_a_manager_that_applies_nothing_more_is_forgotten():
    made = applied(None, config({"k": "v"}), "one")
    made = applied(made, config(), "one")
    assert not made.get("data")
    assert owners(made) == {}


def test_what_was_applied_by_the_client_can_be_taken_over():
    fields = {"f:data": {".": {}, "f:a": {}, "f:b": {}}}
    entry = {"manager": "one", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields}
    made = applied(config({"a": "1", "b": "2"}, managedFields=[entry]), config({"a": "x"}))
    assert made["data"] == {"a": "x"}


def test_sets_are_united():
    made = applied(None, config(finalizers=["example.com/one"]), "one")
    made = applied(made, config(finalizers=["example.com/two"]), "two")
    assert made["metadata"]["finalizers"] == ["example.com/one", "example.com/two"]
    made = applied(made, config(), "one")
    assert made["metadata"]["finalizers"] == ["example.com/two"]


def deployment(*containers):
    template = {"spec": {"containers": list(containers)}}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {"template": template}}


def test_lists_merge_by_key():
    made = applied(None, deployment({"name": "c", "image": "i:1"}), "one", kind=kinds.DEPLOYMENTS)
    made = applied(made, deployment({"name": "side", "image": "s:1"}), "two", kind=kinds.DEPLOYMENTS)
    made = applied(made, deployment({"name": "c", "image": "i:2"}), "one", kind=kinds.DEPLOYMENTS)
    found = made["spec"]["template"]["spec"]["containers"]
    assert [(each["name"], each["image"]) for each in found] == [("c", "i:2"), ("side", "s:1")]
    made = applied(made, deployment(), "two", kind=kinds.DEPLOYMENTS)
    assert [each["name"] for each in made["spec"]["template"]["spec"]["containers"]] == ["c"]


def test_atomic_lists_are_replaced():
    def slice_(*devices):
        made = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s"}}
        return made | {"spec": {"devices": [{"name": name} for name in devices]}}

    made = applied(None, slice_("a", "b"), kind=kinds.RESOURCE_SLICES)
    made = applied(made, slice_("c"), kind=kinds.RESOURCE_SLICES)
    assert [device["name"] for device in made["spec"]["devices"]] == ["c"]
    assert owners(made)["one", "Apply", ""] == {"f:spec": {"f:devices": {}}}


@pytest.mark.parametrize(
    ("obj", "manager", "words"),
    [
        (config({"k": "v"}), "", "fieldManager: Required value"),
        (config({"k": "v"}), "x" * 129, "at most 128"),
        (config(managedFields=[{"manager": "x"}]), "one", "metadata.managedFields must be nil"),
        (config() | {"dataa": {}}, "one", "dataa: field not declared in schema"),
        (config({"k": 1}), "one", "cannot unmarshal number"),
        (config() | {"kind": "Secret"}, "one", "kind"),
        ([], "one", "object"),
        (config() | {"metadata": "m"}, "one", "metadata must be objects"),
    ],
)
def test_what_cannot_be_applied_is_refused(obj, manager, words):
    with pytest.raises(PatchError, match=words):
        applied(None, obj, manager)


def test_unreadable_entries_are_ignored():
    current = config(
        {"k": "v"}, managedFields=[{"manager": "x", "operation": "Apply", "fieldsV1": 5}, "junk", {"operation": "Odd"}]
    )
    assert applied(current, config({"k": "w"}))["data"] == {"k": "w"}


# algebra


def with_plain_self(node):
    made = {key: {} if key == "." else child for key, child in node.items()}
    return {} if made == {".": {}} else made


NAMES = ["f:a", "f:b", 'k:{"n":1}']
NODES = st.recursive(
    st.just(LEAF), lambda children: st.dictionaries(st.sampled_from([*NAMES, "."]), children, min_size=1).map(with_plain_self)
)
SETS = st.dictionaries(st.sampled_from(NAMES), NODES)


def paths(fields, above=()):
    """All paths in a set, the plain way."""
    made = set()
    for key, child in fields.items():
        if key != ".":
            made |= paths(child, (*above, key)) | ({(*above, key)} if is_member(child) else set())
    return made


@given(SETS, SETS)
def test_sets_of_fields_behave_as_sets(one, other):
    assert paths(union(one, other)) == paths(one) | paths(other)
    assert paths(minus(one, other)) == paths(one) - paths(other)
    assert minus(one, one) == {}


@given(SETS)
def test_sets_are_as_on_the_wire(fields):
    assert from_wire(fields) == fields
    assert from_wire({**fields, "f:z": 1}) == {}
