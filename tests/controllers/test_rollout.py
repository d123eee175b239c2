"""The arithmetic of rollouts keeps its two promises at every step, whatever the pods do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.controllers.rollout import Sized, bound, limits, next_sizes


@pytest.mark.parametrize(
    ("desired", "surge", "unavailable", "expected"),
    [
        (10, None, None, (3, 2)),
        (1, None, None, (1, 0)),
        (4, "0%", "0%", (0, 1)),
        (3, 1, 0, (1, 0)),
        (2, 0, 5, (0, 2)),
    ],
)
def test_percentages_round_up_for_surge_and_down_for_unavailable(
    desired: int, surge: int | str | None, unavailable: int | str | None, expected: tuple[int, int]
) -> None:
    assert limits(desired, surge, unavailable) == expected


def test_a_number_is_itself() -> None:
    assert (bound(3, "0", 10, up=True), bound("30%", "0", 10, up=True), bound("25%", "0", 10, up=False)) == (3, 3, 2)


sizes = st.integers(0, 12)


@given(st.integers(0, 12), sizes, sizes, st.lists(st.tuples(sizes, sizes), max_size=3), st.integers(0, 4), st.integers(0, 4))
def test_a_step_stays_within_surge_and_unavailable(
    desired: int, replicas: int, available: int, old: list[tuple[int, int]], surge: int, unavailable: int
) -> None:
    new = Sized("new", replicas, min(available, replicas))
    others = [Sized(f"old-{n}", size, min(up, size)) for n, (size, up) in enumerate(old)]
    before = new.replicas + sum(each.replicas for each in others)
    up_before = new.available + sum(each.available for each in others)
    after = next_sizes(desired, surge, unavailable, new, others)
    total = sum(after.get(each.key, each.replicas) for each in (new, *others))
    assert total <= max(before, desired + surge)
    still_up = min(new.available, after["new"]) + sum(min(e.available, after.get(e.key, e.replicas)) for e in others)
    assert still_up >= min(up_before, desired - unavailable, desired)


@given(st.integers(1, 12), st.integers(0, 3), st.integers(0, 3), st.integers(0, 12))
def test_a_rollout_whose_pods_become_available_ends(desired: int, surge: int, unavailable: int, start: int) -> None:
    if surge == 0 and unavailable == 0:
        unavailable = 1
    new, old = 0, start
    for _ in range(100):
        after = next_sizes(desired, surge, min(unavailable, desired), Sized("new", new, new), [Sized("old", old, old)])
        new, old = after["new"], after.get("old", old)
    assert (new, old) == (desired, 0)
