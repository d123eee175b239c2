"""Amounts in tables and messages are as short as people write them."""

from __future__ import annotations

import pytest

from dray.scheduling.plugins.resources import readable


@pytest.mark.parametrize(
    ("resource", "value", "told"),
    [
        ("memory", 1_500_000_000, "1500M"),
        ("memory", 2_000_000_000, "2G"),
        ("memory", 2 * 2**30, "2Gi"),
        ("memory", 1000 * 2**10, "1000Ki"),
        ("memory", 0, "0"),
        ("hugepages-2Mi", 2**21, "2Mi"),
        ("cpu", 1500, "1500m"),
        ("example.com/gpu", 1024, "1024"),
        ("pods", 110, "110"),
    ],
)
def test_bytes_are_told_in_the_unit_that_takes_fewer_digits(resource: str, value: int, told: str) -> None:
    assert readable(resource, value) == told
