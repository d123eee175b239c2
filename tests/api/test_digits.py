"""Whole numbers in the text of others: digits are one, everything else is none, and nothing raises."""

from __future__ import annotations

import pytest

from dray.api.digits import whole


@pytest.mark.parametrize(("text", "number"), [("0", 0), ("007", 7), ("9" * 19, 10**19 - 1)])
def test_digits_are_a_number(text: str, number: int) -> None:
    assert whole(text) == number


@pytest.mark.parametrize("text", ["", "-1", "+1", " 1", "1_0", "1.0", "²", "٣", "9" * 20, "9" * 10_000])
def test_everything_else_is_none(text: str) -> None:
    assert whole(text) is None
