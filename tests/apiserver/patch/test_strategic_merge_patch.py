"""Strategic merge patches: lists merge by key, and directives say more."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.api import kinds
from dray.api.kinds import Kind
from dray.apiserver import schema
from dray.apiserver.patch import STRATEGIC, PatchError, apply_patch

SCHEMAS = schema.load()
POD = {
    "metadata": {"finalizers": ["a", "b"], "labels": {"x": "1"}},
    "spec": {
        "containers": [
            {"name": "c", "image": "i:1", "args": ["1", "2"]},
            {"name": "d", "image": "j", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]},
        ],
        "tolerations": [{"key": "t"}],
    },
}


def patched(patch, current=POD, kind=kinds.PODS):
    before = copy.deepcopy(current)
    made = apply_patch(STRATEGIC, current, patch, kind, SCHEMAS)
    assert current == before, "the stored object was changed"
    return made


def containers(patch, **more):
    return patched({"spec": {"containers": patch, **more}})["spec"]["containers"]


def test_elements_are_merged_by_their_key():
    first, second = containers([{"name": "c", "image": "i:2"}])
    assert first == {"name": "c", "image": "i:2", "args": ["1", "2"]}
    assert second == POD["spec"]["containers"][1]


def test_new_elements_come_where_the_patch_has_them():
    assert [each["name"] for each in containers([{"name": "z"}, {"name": "c"}])] == ["z", "c", "d"]
    assert [each["name"] for each in containers([{"name": "c"}, {"name": "z"}])] == ["c", "z", "d"]


def test_lists_without_a_key_are_replaced():
    assert containers([{"name": "c", "args": ["3"]}])[0]["args"] == ["3"]
    assert patched({"spec": {"tolerations": [{"key": "u"}]}})["spec"]["tolerations"] == [{"key": "u"}]


def test_null_removes():
    assert "labels" not in patched({"metadata": {"labels": None}})["metadata"]
    assert patched({"metadata": {"labels": {"x": None, "y": "2"}}})["metadata"]["labels"] == {"y": "2"}


def test_delete_removes_an_element_at_any_depth():
    made = containers([{"name": "c", "$patch": "delete"}, {"name": "d", "env": [{"name": "A", "$patch": "delete"}]}])
    assert made == [{"name": "d", "image": "j", "env": [{"name": "B", "value": "2"}]}]


def test_delete_of_what_is_not_there_does_nothing():
    assert containers([{"name": "nope", "$patch": "delete"}]) == POD["spec"]["containers"]


def test_replace_takes_the_list_as_it_is():
    assert containers([{"$patch": "replace"}, {"name": "n", "image": "k"}]) == [{"name": "n", "image": "k"}]


def test_replace_takes_the_object_as_it_is():
    assert patched({"metadata": {"$patch": "replace", "labels": {"y": "2"}}})["metadata"] == {"labels": {"y": "2"}}


def test_merge_is_what_happens_anyway():
    assert patched({"metadata": {"$patch": "merge", "labels": {"y": "2"}}})["metadata"]["labels"] == {"x": "1", "y": "2"}


def test_primitive_lists_are_united_and_deleted_from():
    assert patched({"metadata": {"finalizers": ["b", "c"]}})["metadata"]["finalizers"] == ["a", "b", "c"]
    made = patched({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["c"]}})
    assert made["metadata"]["finalizers"] == ["c", "b"]


def test_retained_keys_are_all_that_stays():
    deployment = {"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}}
    patch = {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}
    assert patched(patch, deployment, kinds.DEPLOYMENTS)["spec"]["strategy"] == {"type": "Recreate"}


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        (["d", "c"], ["d", "c"]),
        (["d"], ["c", "d"]),
        (["z", "d", "c"], ["z", "d", "c"]),
        (["c", "z"], ["c", "z", "d"]),
    ],
)
def test_elements_are_ordered_as_asked_and_others_stay_where_they_were(order, expected):
    added = [{"name": "z"}] if "z" in order else []
    patch = {"spec": {"$setElementOrder/containers": [{"name": name} for name in order], "containers": added}}
    assert [each["name"] for each in patched(patch)["spec"]["containers"]] == expected


def test_order_alone_is_enough():
    patch = {"spec": {"$setElementOrder/containers": [{"name": "d"}, {"name": "c"}]}}
    assert [each["name"] for each in patched(patch)["spec"]["containers"]] == ["d", "c"]


def test_conditions_merge_by_type():
    status = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}
    made = patched(
        {"status": {"conditions": [{"type": "Ready", "status": "False"}, {"type": "PodScheduled", "status": "True"}]}},
        {"status": status},
    )
    assert [(each["type"], each["status"]) for each in made["status"]["conditions"]] == [
        ("Ready", "False"),
        ("PodScheduled", "True"),
    ]


def test_directives_and_nulls_are_never_stored():
    made = patched(
        {"spec": {"volumes": [{"name": "v", "$retainKeys": ["name"]}], "affinity": {"nodeAffinity": None}}}, {"spec": {}}
    )
    assert made == {"spec": {"volumes": [{"name": "v"}], "affinity": {}}}


@pytest.mark.parametrize(
    "patch",
    [
        {"spec": {"containers": [{"image": "no key"}]}},
        {"spec": {"containers": ["text"]}},
        {"spec": {"$patch": "frobnicate"}},
        {"spec": {"$strange": 1}},
        {"spec": {"$retainKeys": ["a"], "hostNetwork": True}},
        {"spec": {"$retainKeys": "a"}},
        {"metadata": {"$deleteFromPrimitiveList/finalizers": [{}]}},
        {"spec": {"$setElementOrder/containers": "c"}},
    ],
)
def test_patches_that_make_no_sense_are_refused(patch):
    with pytest.raises(PatchError) as refusal:
        patched(patch)
    assert refusal.value.code in (400, 422)


def test_kinds_that_are_not_declared_have_no_strategy():
    with pytest.raises(PatchError) as refusal:
        patched({}, {}, Kind("example.com", "v1", "widgets", "Widget", True))
    assert refusal.value.code == 415


@pytest.mark.timeout(20)
def test_long_lists_are_merged_in_linear_time():
    many = [{"name": f"c{index}"} for index in range(20_000)]
    made = patched({"spec": {"containers": [{**each, "image": "i"} for each in many]}}, {"spec": {"containers": many}})
    assert len(made["spec"]["containers"]) == 20_000


NAMES = st.lists(st.sampled_from("abcde"), unique=True, max_size=5)
ENV = NAMES.flatmap(
    lambda names: st.tuples(*(st.fixed_dictionaries({"name": st.just(n), "value": st.sampled_from("12")}) for n in names))
)
CONTAINERS = NAMES.flatmap(
    lambda names: st.tuples(
        *(
            st.fixed_dictionaries(
                {"name": st.just(n), "image": st.sampled_from("ij"), "env": ENV.map(list)}, optional={"tty": st.just(True)}
            )
            for n in names
        )
    )
).map(list)
FINALIZERS = st.lists(st.sampled_from("abc"), unique=True)


def by_name(items):
    return {item["name"]: item for item in items}


def list_difference(old, new):
    """What kubectl makes of two lists that merge by name: changes, deletions, and the order."""
    before, after = by_name(old), by_name(new)
    changes = [{"name": name, "$patch": "delete"} for name in before.keys() - after.keys()]
    for name, item in after.items():
        changes.append(item if name not in before else {"name": name, **map_difference(before[name], item)})
    return changes, [{"name": item["name"]} for item in new]


def map_difference(old, new):
    made = dict.fromkeys(old.keys() - new.keys())
    for key, value in new.items():
        if key == "env":
            made["env"], made["$setElementOrder/env"] = list_difference(old.get("env", []), value)
        elif old.get(key) != value:
            made[key] = value
    return made


@given(CONTAINERS, CONTAINERS, FINALIZERS, FINALIZERS)
def test_the_difference_of_two_pods_leads_from_one_to_the_other(old, new, had, wanted):
    changes, order = list_difference(old, new)
    patch = {
        "spec": {"containers": changes, "$setElementOrder/containers": order},
        "metadata": {
            "finalizers": wanted,
            "$deleteFromPrimitiveList/finalizers": [value for value in had if value not in wanted],
            "$setElementOrder/finalizers": wanted,
        },
    }
    made = patched(patch, {"spec": {"containers": old}, "metadata": {"finalizers": had}})
    assert made == {"spec": {"containers": new}, "metadata": {"finalizers": wanted}}
