"""Sets of zones: the searches find what a walk over all sets finds, and end on any input."""

from __future__ import annotations

import random
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.numa.masks import BudgetSpent, apart, bits, closest, holds, joint_width, lowest, width

AMOUNTS = st.integers(0, 9)


@st.composite
def problems(draw: st.DrawFn) -> tuple[int, list[int], list[tuple[list[int], int]]]:
    zones = draw(st.integers(1, 7))
    places = draw(st.lists(st.integers(0, zones - 1), unique=True, min_size=1).map(sorted))
    rows = draw(st.lists(st.lists(AMOUNTS, min_size=zones, max_size=zones), min_size=1, max_size=3))
    number = draw(st.integers(1, len(places)))
    needs = [(row, draw(st.integers(1, max(1, sum(sorted(row)[-number:]))))) for row in rows]
    return number, places, needs


def walk(number: int, places: list[int], needs: list[tuple[list[int], int]]) -> list[int]:
    return sorted(sum(1 << place for place in chosen) for chosen in combinations(places, number) if holds(chosen, needs))


@given(problems())
def test_lowest_is_the_first_of_all_sets_that_hold_enough(problem: tuple[int, list[int], list[tuple[list[int], int]]]) -> None:
    found = walk(*problem)
    assert lowest(*problem) == (found[0] if found else None)


@given(problems(), st.randoms(use_true_random=False))
def test_closest_is_the_nearest_of_all_sets(
    problem: tuple[int, list[int], list[tuple[list[int], int]]], rng: random.Random
) -> None:
    distances = [[10 if a == b else rng.randint(11, 14) for b in range(7)] for a in range(7)]
    found = sorted(walk(*problem), key=lambda mask: (apart(mask, distances), mask))
    assert closest(*problem, distances) == (found[0] if found else None)


@given(st.lists(AMOUNTS, min_size=1, max_size=6), st.integers(1, 60))
def test_width_is_the_least_number_of_zones(row: list[int], need: int) -> None:
    fitting = [k for k in range(1, len(row) + 1) if walk(k, list(range(len(row))), [(row, need)])]
    assert width(row, need) == (fitting[0] if fitting else len(row) + 1)


@given(problems())
def test_joint_width_is_the_least_number_for_all_together(problem: tuple[int, list[int], list[tuple[list[int], int]]]) -> None:
    _, places, needs = problem
    fitting = [k for k in range(1, len(places) + 1) if walk(k, places, needs)]
    assert joint_width(needs, places) == (fitting[0] if fitting else len(places) + 1)


def test_a_search_over_64_zones_ends_with_a_set_or_says_that_it_gave_up() -> None:
    rng = random.Random(5)
    found = 0
    for _ in range(40):
        rows = [[rng.randint(0, 40) for _ in range(64)] for _ in range(3)]
        needs = [(row, sum(sorted(row)[-32:]) - 200) for row in rows]
        try:
            mask = lowest(32, range(64), needs)
        except BudgetSpent:
            continue
        if mask is not None:
            found += 1
            assert mask.bit_count() == 32
            assert holds(bits(mask), needs)
    assert found


@pytest.mark.parametrize("mask", [0, 1, 0b1010, 1 << 63])
def test_bits(mask: int) -> None:
    assert sum(1 << bit for bit in bits(mask)) == mask
