"""A name is suggested only where a slip of the hand makes it of the one that was written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.explain.near import nearest, slips

CLASSES = ["fabric-gpu.dray.dev", "gpu.dray.dev", "mig-1g.dray.dev", "nic.dray.dev"]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("mig-2g.dray.dev", "mig-1g.dray.dev"),
        ("gup.dray.dev", "gpu.dray.dev"),
        ("fabrik-gpus.dray.dev", "fabric-gpu.dray.dev"),
        ("gpu.dray.de", "gpu.dray.dev"),
        ("tensor.dray.dev", None),
        ("dpu-x.dray.dev", None),
        ("gpu.nvidia.com", None),
        ("", None),
    ],
)
def test_a_name_that_is_meant(written: str, meant: str | None) -> None:
    assert nearest(written, CLASSES) == meant


def test_a_name_that_only_shares_the_domain_is_not_meant() -> None:
    assert nearest("mig-7g.dray.dev", ["gpu.dray.dev", "nic.dray.dev"]) is None


def test_of_several_the_nearest_is_meant() -> None:
    assert nearest("training-set", ["training-sets-b", "training-sets"]) == "training-sets"


def counted(one: str, other: str) -> int:
    """By definition."""
    if not one or not other:
        return len(one) + len(other)
    ways = [counted(one[1:], other) + 1, counted(one, other[1:]) + 1, counted(one[1:], other[1:]) + (one[0] != other[0])]
    if one[:2] == other[:2][::-1] and len(one) > 1:
        ways.append(counted(one[2:], other[2:]) + 1)
    return min(ways)


@given(st.text("ab.", max_size=5), st.text("ab.", max_size=5), st.integers(0, 3))
def test_slips_are_counted_as_they_are_defined(one: str, other: str, most: int) -> None:
    assert slips(one, other, most) == min(counted(one, other), most + 1)
