"""YAML that is nested without end is refused, where the C loader would end the process."""

from __future__ import annotations

import pytest
import yaml

from dray.api.nesting import DEPTH_MAX, refuse_deep_nesting
from dray.apiserver.errors import ApiError
from dray.apiserver.yaml_bodies import read_yaml

DEEP = ["[" * 100_000, "{a: " * 100_000, "- " * 100_000 + "a", "? " * 100_000 + "a"]


@pytest.mark.parametrize("text", DEEP)
def test_what_is_nested_too_deeply_is_refused(text: str) -> None:
    with pytest.raises((RecursionError, yaml.YAMLError)):
        refuse_deep_nesting(text)


@pytest.mark.parametrize("text", DEEP)
def test_a_request_cannot_end_the_server_with_it(text: str) -> None:
    with pytest.raises(ApiError, match="error parsing YAML"):
        read_yaml(text.encode())


def test_many_brackets_beside_each_other_are_not_deep() -> None:
    refuse_deep_nesting("a: [" + "{b: [c]}, " * (DEPTH_MAX * 5) + "]")
