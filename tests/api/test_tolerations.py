"""Taints and tolerations of devices: the one rule, against the sentences of the API."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.api.resource import DeviceTaint, DeviceTaintSelector, DeviceToleration
from dray.api.times import format_time
from dray.api.tolerations import (
    FOREVER,
    blocks,
    evicts,
    refused_taint,
    selects,
    tolerated_seconds,
    tolerates,
)

WORDS = st.sampled_from(["", "a", "b"])
EFFECTS = st.sampled_from(["None", "NoSchedule", "NoExecute", "SomethingNew"])
TAINTS = st.builds(DeviceTaint, st.sampled_from(["a", "b"]), WORDS, EFFECTS)
OPERATORS = st.sampled_from(["", "Equal", "Exists", "NotYetKnown"])
SECONDS = st.one_of(st.none(), st.integers(-10, 100))
TOLERATIONS = st.builds(DeviceToleration, WORDS, OPERATORS, WORDS, st.sampled_from(["", "NoSchedule", "NoExecute"]), SECONDS)


@given(TOLERATIONS, TAINTS)
def test_a_toleration_matches_by_key_operator_value_and_effect(toleration: DeviceToleration, taint: DeviceTaint) -> None:
    by_key = toleration.key in ("", taint.key)
    by_value = toleration.operator == "Exists" or (toleration.operator in ("", "Equal") and toleration.value == taint.value)
    by_effect = toleration.effect in ("", taint.effect)
    assert tolerates(toleration, taint) == (by_key and by_value and by_effect)


@given(st.lists(TAINTS, max_size=4), st.lists(TOLERATIONS, max_size=4))
def test_each_taint_that_blocks_must_be_tolerated(taints: list[DeviceTaint], tolerations: list[DeviceToleration]) -> None:
    left = [t for t in taints if t.effect in ("NoSchedule", "NoExecute") and not any(tolerates(each, t) for each in tolerations)]
    refused = refused_taint(taints, tolerations, 0)
    assert (refused and refused[0]) == (left[0] if left else None)


@given(TAINTS, st.lists(TOLERATIONS, max_size=4))
def test_the_shortest_time_counts_unless_one_is_for_ever(taint: DeviceTaint, tolerations: list[DeviceToleration]) -> None:
    times = [
        FOREVER if each.effect != "NoExecute" or each.toleration_seconds is None else max(0, each.toleration_seconds)
        for each in tolerations
        if tolerates(each, taint)
    ]
    expected = 0 if not times else FOREVER if FOREVER in times else min(times)
    assert tolerated_seconds(taint, tolerations) == expected


@pytest.mark.parametrize(
    ("effect", "blocking", "evicting"),
    [
        ("None", False, False),
        ("NoSchedule", True, False),
        ("NoExecute", True, True),
        ("PreferNoSchedule", False, False),
        ("", False, False),
    ],
)
def test_an_effect_that_is_not_known_is_none(effect: str, blocking: bool, evicting: bool) -> None:
    taint = DeviceTaint("a", "", effect)
    assert (blocks(taint), evicts(taint)) == (blocking, evicting)


def test_a_selector_matches_what_it_names_nothing_without_one_and_everything_when_empty() -> None:
    assert not selects(None, "d", "p", "g")
    for driver, pool, device in product((None, "d", "x"), (None, "p", "x"), (None, "g", "x")):
        assert selects(DeviceTaintSelector(driver, pool, device), "d", "p", "g") == ("x" not in (driver, pool, device))


@given(st.lists(TAINTS, max_size=4), st.lists(TOLERATIONS, max_size=4), st.integers(0, 120))
def test_what_is_let_in_is_not_due_to_leave_and_what_is_kept_out_would_be(
    taints: list[DeviceTaint], tolerations: list[DeviceToleration], now: int
) -> None:
    added = [DeviceTaint(each.key, each.value, each.effect, format_time(0)) for each in taints]
    leaves = any(evicts(each) and tolerated_seconds(each, tolerations) <= now for each in added)
    kept_out = refused_taint(added, tolerations, now) is not None
    unmatched = any(blocks(each) and not any(tolerates(known, each) for known in tolerations) for each in added)
    assert kept_out == (leaves or unmatched)


def test_a_reason_says_until_when_a_taint_was_tolerated() -> None:
    taint, known = DeviceTaint("a", "", "NoExecute", format_time(100)), [DeviceToleration("a", "Exists", "", "NoExecute", 60)]
    assert refused_taint([taint], known, 159) is None
    refused = refused_taint([taint], known, 160)
    assert refused is not None
    assert refused[1]["until"] == "1970-01-01T00:02:40Z"
