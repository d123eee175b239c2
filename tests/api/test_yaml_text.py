"""YAML that is nested without end is refused, where the C loader would end the process; so is what is no value."""

from __future__ import annotations

import pytest
import yaml

from dray.api.yaml_text import DEPTH_MAX, document, refuse_deep_nesting
from dray.apiserver.errors import ApiError
from dray.apiserver.yaml_bodies import read_yaml

# What its tag, or its form, makes a number that it is not.
WRONG = ["!!int x", "!!float x", "!!bool x", "0x_", "-0b_"]
DEEP = ["[" * 100_000, "{a: " * 100_000, "- " * 100_000 + "a", "? " * 100_000 + "a"]


@pytest.mark.parametrize("text", DEEP)
def test_what_is_nested_too_deeply_is_refused(text: str) -> None:
    with pytest.raises(yaml.YAMLError):
        refuse_deep_nesting(text)


@pytest.mark.parametrize("text", DEEP)
def test_a_request_cannot_end_the_server_with_it(text: str) -> None:
    with pytest.raises(ApiError, match="error parsing YAML"):
        read_yaml(text.encode())


def test_many_brackets_beside_each_other_are_not_deep() -> None:
    refuse_deep_nesting("a: [" + "{b: [c]}, " * (DEPTH_MAX * 5) + "]")


@pytest.mark.parametrize("text", WRONG)
def test_a_value_that_is_none_is_told_with_its_place(text: str) -> None:
    with pytest.raises(yaml.YAMLError, match="is no ") as raised:
        document(f"ok: 1\na: {text}\n")
    assert "line 2, column 4" in str(raised.value)


@pytest.mark.parametrize("text", WRONG)
def test_a_request_with_one_is_a_mistake_of_who_sent_it(text: str) -> None:
    with pytest.raises(ApiError, match="error parsing YAML") as raised:
        read_yaml(f"a: {text}".encode())
    assert raised.value.code == 400


@pytest.mark.parametrize("text", ["2026-01-02", "2026-1-2", "2026-99-99", "2026-01-02T03:04:05Z"])
def test_times_stay_as_they_are_written(text: str) -> None:
    assert document(f"a: {text}") == {"a": text}
    assert document(f"a: !!timestamp {text}") == {"a": text}
    assert read_yaml(f"a: {text}".encode()) == ({"a": text}, [])
