"""Times are written as Kubernetes writes them, wherever a number of seconds in an object leads."""

from __future__ import annotations

from math import inf

import pytest

from dray.api.times import format_micro_time, format_time, parse_time


@pytest.mark.parametrize("seconds", [0.0, 1_234_567_890.0, -1e9])
def test_what_is_written_is_read_again(seconds: float) -> None:
    assert parse_time(format_time(seconds)) == parse_time(format_micro_time(seconds)) == seconds


@pytest.mark.parametrize("beyond", [2.0**63, inf])
def test_a_time_that_nobody_can_write_is_the_last_or_the_first_that_can_be(beyond: float) -> None:
    assert format_time(beyond) == "9999-12-31T23:59:59Z"
    assert format_time(-beyond) == "0001-01-01T00:00:00Z"
    assert format_micro_time(beyond) == "9999-12-31T23:59:59.000000Z"
