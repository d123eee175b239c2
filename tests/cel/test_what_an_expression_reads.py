"""An expression knows what it can read of a device; devices that look the same to it get the same answer."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dray.api.resource import Device, DeviceAttribute, DeviceCapacity
from dray.cel import DeviceView, EvaluationError, compile

READS: list[tuple[str, set[tuple[str, ...]] | None]] = [
    ("true", set()),
    ('device.driver == "a"', {("driver",)}),
    ("device.allowMultipleAllocations", {("allowMultipleAllocations",)}),
    ('device.attributes["d"].model == "x"', {("attributes", "d", "model")}),
    ('device.attributes["d"]["model"] == "x"', {("attributes", "d", "model")}),
    ('device.attributes["d"].?model.orValue("") == "x"', {("attributes", "d", "model")}),
    ('device.attributes[?"d"].?model.hasValue()', {("attributes", "d", "model")}),
    ('has(device.attributes["d"].model)', {("attributes", "d", "model")}),
    ('"d" in device.attributes', {("attributes", "d")}),
    ('"model" in device.attributes["d"]', {("attributes", "d", "model")}),
    ('device.attributes["d"].exists(k, k == "model")', {("attributes", "d")}),
    ('device.attributes["d"].lanes.exists(n, n > 1)', {("attributes", "d", "lanes")}),
    ("device.attributes.size() > 1", {("attributes",)}),
    ("device.attributes.exists(d, m, m.size() > 1)", {("attributes",)}),
    ("device.attributes[device.driver].x == 1", {("attributes",), ("driver",)}),
    ('cel.bind(d, device.attributes["d"], d.a == 1 || d.b == 2)', {("attributes", "d", "a"), ("attributes", "d", "b")}),
    ('cel.bind(d, device, d.driver == "x")', {("driver",)}),
    ('[1].exists(device, device == 1) && .device.driver == "x"', {("driver",)}),
    ('device.capacity["d"].memory.isGreaterThan(quantity("1"))', {("capacity", "d", "memory")}),
    ("[device].size() == 1", None),
]


@pytest.mark.parametrize(("expression", "paths"), READS)
def test_reads(expression: str, paths: set[tuple[str, ...]] | None) -> None:
    assert compile(expression).reads == paths


def view(**attributes: DeviceAttribute) -> DeviceView:
    return DeviceView.of("d", Device(attributes=attributes))


def test_what_is_not_read_does_not_tell_devices_apart() -> None:
    reads = compile('device.attributes["d"].model == "x"').reads
    same = view(model=DeviceAttribute(string="x"), serial=DeviceAttribute(string="1"))
    also = view(model=DeviceAttribute(string="x"), serial=DeviceAttribute(string="2"))
    assert same.projection(reads) == also.projection(reads)
    assert same.projection(None) != also.projection(None)


def test_values_of_different_types_are_told_apart() -> None:
    reads = frozenset({("attributes", "d", "a")})
    values = [
        DeviceAttribute(int_=1),
        DeviceAttribute(bool_=True),
        DeviceAttribute(string="1.0.0"),
        DeviceAttribute(version="1.0.0"),
        DeviceAttribute(version="1.0.0+b"),
        DeviceAttribute(ints=(1,)),
        DeviceAttribute(bools=(True,)),
        DeviceAttribute(strings=()),
    ]
    views = [view(a=value) for value in values] + [view()]
    assert len({v.projection(reads) for v in views}) == len(views)


def test_a_device_that_cannot_be_evaluated_looks_like_no_other() -> None:
    reads: frozenset[tuple[str, ...]] = frozenset()
    assert view(a=DeviceAttribute()).projection(reads) != view().projection(reads)


def test_bare_and_qualified_names_are_the_same_attribute() -> None:
    reads = frozenset({("attributes", "d", "a")})
    bare = DeviceView.of("d", Device(attributes={"a": DeviceAttribute(int_=1)}))
    qualified = DeviceView.of("d", Device(attributes={"d/a": DeviceAttribute(int_=1)}))
    assert bare.projection(reads) == qualified.projection(reads)


ATTRIBUTES = st.sampled_from(
    [
        DeviceAttribute(int_=1),
        DeviceAttribute(int_=2),
        DeviceAttribute(bool_=True),
        DeviceAttribute(string="a"),
        DeviceAttribute(version="1.0.0"),
        DeviceAttribute(ints=(1, 2)),
        DeviceAttribute(strings=("a",)),
    ]
)
DEVICES = st.builds(
    lambda attributes, capacity, shared: Device(attributes=attributes, capacity=capacity, allow_multiple_allocations=shared),
    st.dictionaries(st.sampled_from(["a", "b", "e/a", "e/b"]), ATTRIBUTES),
    st.dictionaries(st.sampled_from(["m", "e/m"]), st.sampled_from([DeviceCapacity(value="1"), DeviceCapacity(value="2Gi")])),
    st.sampled_from([None, True, False]),
)
EXPRESSIONS = [
    'device.attributes["d"].a == 1',
    '"e" in device.attributes',
    'device.attributes["d"].?a.orValue(0) == device.attributes["e"].?a.orValue(0)',
    'device.attributes["e"].exists(k, k == "a")',
    'device.attributes["d"].a.includes(1) || device.allowMultipleAllocations',
    'cel.bind(e, device.attributes["e"], e.a > 1 && has(e.b))',
    'device.capacity["d"].m.isGreaterThan(quantity("1Gi"))',
    "device.attributes.all(d, m, m.size() == 1)",
]


def answer(expression: str, of: DeviceView) -> Any:
    try:
        return compile(expression).matches(of)
    except EvaluationError as error:
        return error.message


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(EXPRESSIONS), DEVICES, DEVICES)
def test_equal_projections_mean_equal_answers(expression: str, one: Device, other: Device) -> None:
    reads = compile(expression).reads
    first, second = DeviceView.of("d", one), DeviceView.of("d", other)
    if first.projection(reads) == second.projection(reads):
        assert answer(expression, first) == answer(expression, second)
