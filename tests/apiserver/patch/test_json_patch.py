"""JSON patches (RFC 6902): every operation, all or nothing."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.apiserver.patch import MAX_OPERATIONS, PatchError, json_patch

DOCUMENT = {"data": {"a": "1", "b/c": "2"}, "list": ["x", "y"], "deep": {"er": {"k": 1}}}


def op(name, path, **more):
    return {"op": name, "path": path, **more}


@pytest.mark.parametrize(
    ("operations", "path", "expected"),
    [
        ([op("add", "/data/n", value="v")], ("data", "n"), "v"),
        ([op("add", "/data/a", value="v")], ("data", "a"), "v"),
        ([op("add", "/list/-", value="z")], ("list",), ["x", "y", "z"]),
        ([op("add", "/list/0", value="z")], ("list",), ["z", "x", "y"]),
        ([op("add", "/list/2", value="z")], ("list",), ["x", "y", "z"]),
        ([op("remove", "/list/0")], ("list",), ["y"]),
        ([op("remove", "/data/a")], ("data",), {"b/c": "2"}),
        ([op("replace", "/data/b~1c", value=None)], ("data", "b/c"), None),
        ([op("replace", "/list/1", value="z")], ("list",), ["x", "z"]),
        ([op("move", "/list/-", **{"from": "/data/a"})], ("list",), ["x", "y", "1"]),
        ([op("copy", "/data/n", **{"from": "/deep/er"})], ("data", "n"), {"k": 1}),
        ([op("test", "/data/a", value="1"), op("replace", "/data/a", value="2")], ("data", "a"), "2"),
        ([op("add", "/data/n", value={}), op("add", "/data/n/m", value=1)], ("data", "n"), {"m": 1}),
    ],
)
def test_operations(operations, path, expected):
    assert _at(json_patch(DOCUMENT, operations), path) == expected


@pytest.mark.parametrize(
    ("operation", "path", "expected"),
    [
        (op("replace", "/data/n", value="v"), ("data", "n"), "v"),
        (op("add", "/data/n"), ("data", "n"), None),
        (op("copy", "/data/n", **{"from": "/data/nope"}), ("data", "n"), None),
        (op("add", "/list/01", value="z"), ("list",), ["x", "z", "y"]),
        (op("add", "/list/-1", value="z"), ("list",), ["x", "y", "z"]),
        (op("remove", "/list/-1"), ("list",), ["x"]),
        (op("replace", "/list/-2", value="z"), ("list",), ["z", "y"]),
    ],
)
def test_what_kube_apiserver_does_beyond_the_standard(operation, path, expected):
    assert _at(json_patch(DOCUMENT, [operation]), path) == expected


def _at(found, path):
    for part in path:
        found = found[part]
    return found


@pytest.mark.parametrize(
    "operation",
    [
        op("remove", "/data/nope"),
        op("remove", "/data/nope/deeper"),
        op("remove", "/list/2"),
        op("remove", "/list/-9"),
        op("replace", "/nope/deeper", value=1),
        op("copy", "/data/n", **{"from": "/nope/deeper"}),
        op("replace", "/list/-", value=1),
        op("add", "/nope/deeper", value=1),
        op("add", "/list/3", value=1),
        op("add", "/list/x", value=1),
        op("add", "/data/a/b", value=1),
        op("test", "/data/a", value=1),
        op("test", "/deep/er/k", value=True),
        op("test", "/data/nope", value="1"),
        op("move", "/deep/er/k/x", **{"from": "/deep/er"}),
        op("copy", "/data/n"),
        op("frob", "/data/a"),
        op("remove", ""),
        op("add", "data", value=1),
        {"op": "add"},
        "add",
    ],
)
def test_what_does_not_apply_is_refused_and_changes_nothing(operation):
    before = copy.deepcopy(DOCUMENT)
    with pytest.raises(PatchError) as refusal:
        json_patch(DOCUMENT, [op("replace", "/data/a", value="changed"), operation])
    assert refusal.value.code in (400, 422)
    assert before == DOCUMENT


def test_a_patch_is_a_list():
    with pytest.raises(PatchError) as refusal:
        json_patch(DOCUMENT, {"op": "add"})
    assert (refusal.value.code, refusal.value.reason) == (400, "BadRequest")


def test_too_many_operations_are_refused():
    assert json_patch(DOCUMENT, [op("test", "/data/a", value="1")] * MAX_OPERATIONS) == DOCUMENT
    with pytest.raises(PatchError) as refusal:
        json_patch(DOCUMENT, [op("test", "/data/a", value="1")] * (MAX_OPERATIONS + 1))
    assert refusal.value.code == 413


@pytest.mark.timeout(20)
def test_copies_of_copies_are_bounded():
    double = [op("copy", f"/data/x{index}", **{"from": "/data"}) for index in range(60)]
    with pytest.raises(PatchError) as refusal:
        json_patch(DOCUMENT, double)
    assert refusal.value.code == 413


JSON = st.recursive(
    st.booleans() | st.integers(-5, 5) | st.text("ab~/", max_size=2),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text("ab~/", max_size=2), children, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text("ab~/", max_size=2), JSON, max_size=4)


def pointer(path):
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in path)


def difference(old, new, path=()):
    """A plain way to get from one document to the other."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in old.keys() - new.keys():
            yield op("remove", pointer((*path, key)))
        for key, value in new.items():
            if key not in old:
                yield op("add", pointer((*path, key)), value=value)
            else:
                yield from difference(old[key], value, (*path, key))
    elif old != new or type(old) is not type(new):
        yield op("replace", pointer(path), value=new)


@given(OBJECTS, OBJECTS)
def test_the_difference_of_two_objects_leads_from_one_to_the_other(old, new):
    before = copy.deepcopy(old)
    assert json_patch(old, list(difference(old, new))) == new
    assert old == before


REFUSED = {
    'add operation does not apply: doc is missing path: "/no/x": missing value': op("add", "/no/x", value=1),
    'add operation does not apply: doc is missing path: "": missing value': op("add", "", value={}),
    'remove operation does not apply: doc is missing path: "": missing value': op("remove", ""),
    "error in remove for path: '/data/x': Unable to remove nonexistent key: x: missing value": op("remove", "/data/x"),
    "error in add for path: '/list/3': Unable to access invalid index: 3: invalid index referenced": op(
        "add", "/list/3", value=1
    ),
    "replace operation does not apply: doc is missing path: /no/x: missing value": op("replace", "/no/x", value=1),
    "copy operation does not apply: doc is missing from path: /no/x: missing value": op("copy", "/data/x", **{"from": "/no/x"}),
    "Unexpected kind: foo": op("foo", "/data"),
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_does_not_apply_is_told_in_upstreams_words(words):
    """A whole object can be replaced, but nothing can be added in its place."""
    with pytest.raises(PatchError) as refused:
        json_patch(DOCUMENT, [REFUSED[words]])
    assert refused.value.message == words
