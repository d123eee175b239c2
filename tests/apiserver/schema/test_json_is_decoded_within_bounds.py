"""Bytes from clients: JSON or a clear refusal, and repeated fields are found."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.apiserver.schema import DecodeError, decode_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
)


@given(VALUES)
def test_json_comes_back_as_it_was(value):
    assert decode_json(json.dumps(value).encode()) == (value, [])


def test_repeated_fields_are_named_and_the_last_counts():
    body = b'{"data": {"a": 1, "a": 2}, "items": [{"x": 1}, {"x": 1, "x": 3}]}'
    assert decode_json(body) == ({"data": {"a": 2}, "items": [{"x": 1}, {"x": 3}]}, ["data.a", "items[1].x"])


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"a": }',
        b"[1,]",
        b"NaN",
        b'{"a": Infinity}',
        b"\xff",
        b"{} {}",
        b"1" * 500,
        b"[" * 300 + b"]" * 300,
        b"[" * 100_000,
        b'{"a":' * 300 + b"1" + b"}" * 300,
    ],
)
def test_what_is_not_json_or_too_deep_is_refused(body):
    with pytest.raises(DecodeError):
        decode_json(body)


def test_200_levels_are_accepted_and_201_refused():
    assert decode_json(b"[" * 200 + b"]" * 200)[1] == []
    with pytest.raises(DecodeError, match="exceeded max depth"):
        decode_json(b"[" * 201 + b"]" * 201)


def test_a_wide_body_is_not_deep():
    body = json.dumps([{"a": [1]} for _ in range(1000)]).encode()
    assert len(decode_json(body)[0]) == 1000


@given(st.binary(max_size=64))
def test_any_bytes_give_a_value_or_a_refusal(body):
    with contextlib.suppress(DecodeError):
        value, repeated = decode_json(body)
        assert json.loads(body.decode("utf-8", "dray.each_byte")) == value
        assert repeated == []


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'"a\xff\xfeb"', "a\ufffd\ufffdb"),
        (b'"\xe2\x82"', "\ufffd\ufffd"),
        (rb'"\ud800"', "\ufffd"),
        (rb'"x\udc00A"', "x\ufffdA"),
        (rb'"\ud83d\ude00"', "\U0001f600"),
        (rb'"\\ud800"', r"\ud800"),
    ],
)
def test_text_that_is_no_unicode_is_read_as_go_reads_it(body: bytes, text: str) -> None:
    assert decode_json(body) == (text, [])


@pytest.mark.parametrize("body", [b"1e999", b"[-1e400]", b"\xef\xbb\xbf{}", "{}".encode("utf-16")])
def test_what_go_cannot_hold_is_refused(body: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_json(body)
