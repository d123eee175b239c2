"""The declarations of kinds: complete, consistent, and quick to read."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from dray.api import kinds
from dray.api.kinds import Kind
from dray.apiserver import schema
from dray.apiserver.catalog import CATALOG
from dray.apiserver.schema import text

SCHEMAS = schema.load()
FILES = [path.stem for path in Path(schema.__file__).parent.glob("*.schema")]
STRUCTS = [struct for name in FILES for struct in text.read(name).values()]
FIELDS = [(struct, field) for struct in STRUCTS for field in struct.fields.values()]


def innermost(type_):
    while type_.item is not None:
        type_ = type_.item
    return type_


def test_every_type_that_is_mentioned_is_declared():
    for _, field in FIELDS:
        type_ = innermost(field.type)
        if type_.shape == "struct":
            assert SCHEMAS.struct(type_.name).fields is not None


def test_keys_of_lists_are_fields_of_their_elements():
    for struct, field in FIELDS:
        keys = {*field.type.list_keys, *filter(None, [field.merge_key])}
        if keys:
            assert field.type.shape == "list", f"{struct.name}.{field.name}"
            assert keys <= SCHEMAS.struct(innermost(field.type).name).fields.keys(), f"{struct.name}.{field.name}"


def test_only_lists_and_maps_are_sets_or_atomic():
    for struct, field in FIELDS:
        if field.type.list_type == "set":
            assert field.type.shape == "list", f"{struct.name}.{field.name}"


@pytest.mark.parametrize("resource", CATALOG.resources, ids=lambda resource: f"{resource.kind.api_version}-{resource.kind.kind}")
def test_every_served_kind_is_declared(resource):
    assert SCHEMAS.kind(resource.kind) is not None


def test_every_field_of_devices_has_words():
    silent = [f"{struct.name}.{field.name}" for struct, field in FIELDS if "resource.v1" in struct.package and not field.words]
    assert silent == []


def test_all_declarations_are_read_in_no_time():
    text.read.cache_clear()
    try:
        start = time.process_time()
        for name in FILES:
            text.read(name)
        assert time.process_time() - start < 0.5, "expected about 0.03 s"
    finally:
        text.read.cache_clear()


def test_an_unknown_kind_is_not_declared():
    kind = Kind("example.com", "v1", "widgets", "Widget", True)
    assert SCHEMAS.kind(kind) is None
    assert SCHEMAS.normalise(kind, {"spec": {"any": "thing"}}) == ({"spec": {"any": "thing"}}, [])


@pytest.mark.parametrize(
    ("line", "words"),
    [("type A\n  x strange\n  y string wrong", "unknown word"), ("  x string", "outside"), ("kindd A", "cannot read")],
)
def test_mistakes_in_declarations_are_found_with_their_line(line, words):
    with pytest.raises(text.SchemaError, match=rf"core.schema:\d: .*{words}"):
        text._parse("core", line)


def test_two_views_of_one_plural_differ():
    core = Kind("", "v1", "events", "Event", True)
    assert "involvedObject" in SCHEMAS.kind(core).fields
    assert "regarding" in SCHEMAS.kind(kinds.EVENTS).fields
