"""The examples of docs/testing.md are run as they stand there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.docs.pages import ROOT, blocks

PAGE = ROOT / "docs/testing.md"


def examples() -> list[Callable[..., None]]:
    """The tests of the page; what a later block uses is made by an earlier one."""
    names: dict[str, Any] = {"__name__": "page"}
    for block in blocks(PAGE):
        if block.language == "python":
            exec(compile(block.text, block.where, "exec"), names)
    return [value for name, value in names.items() if name.startswith("test_")]


@pytest.mark.parametrize("example", examples(), ids=lambda example: example.__name__)
def test_every_example_holds(example: Callable[..., None]) -> None:
    marks = getattr(example, "pytestmark", [])
    for seed in marks[0].args[1] if marks else (None,):
        example() if seed is None else example(seed)


def test_there_are_examples() -> None:
    assert len(examples()) == 3
