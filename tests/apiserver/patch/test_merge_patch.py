"""Merge patches (RFC 7386)."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.api import kinds
from dray.apiserver import schema
from dray.apiserver.patch import MERGE, PatchError, apply_patch, merge_patch

JSON = st.recursive(
    st.booleans() | st.integers(-5, 5) | st.text("ab", max_size=2),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text("abc", max_size=1), children, max_size=3),
    max_leaves=10,
)
OBJECTS = st.dictionaries(st.text("abc", max_size=1), JSON, max_size=4)


def difference(old, new):
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    made = dict.fromkeys(old.keys() - new.keys())
    return made | {
        key: difference(old[key], value) if isinstance(old.get(key), dict) and isinstance(value, dict) else value
        for key, value in new.items()
        if key not in old or old[key] != value or type(old[key]) is not type(value)
    }


@pytest.mark.parametrize(
    ("current", "patch", "expected"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_examples_of_the_standard(current, patch, expected):
    assert merge_patch(current, patch) == expected


@given(OBJECTS, OBJECTS)
def test_the_difference_of_two_objects_leads_from_one_to_the_other(old, new):
    before = copy.deepcopy(old)
    assert merge_patch(old, difference(old, new)) == new
    assert old == before


def test_a_patch_of_an_object_is_an_object():
    with pytest.raises(PatchError) as refusal:
        apply_patch(MERGE, {}, [1], kinds.PODS, schema.load())
    assert refusal.value.code == 400


def test_an_unknown_type_of_patch_is_refused():
    with pytest.raises(PatchError) as refusal:
        apply_patch("text/plain", {}, {}, kinds.PODS, schema.load())
    assert (refusal.value.code, refusal.value.reason) == (415, "UnsupportedMediaType")
