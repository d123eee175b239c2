"""The merge of hints is the kubelet's: upstream's cases, the rows of the behaviour notes, a walk over all combinations."""

from __future__ import annotations

import itertools
import json
from functools import cache
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.api.topology import Policy
from dray.cli.numa import _merged
from dray.numa.hints import Hint, TooManyHints, better, merge
from dray.numa.masks import apart
from tests.numa.spec import VECTORS, needs_vectors

Json = dict[str, Any]


@cache
def upstream(*kinds: str) -> dict[str, Json]:
    found = {path.stem: json.loads(path.read_bytes()) for path in sorted(VECTORS.glob("*.json"))}
    return {name: case for name, case in found.items() if case["kind"] in kinds}


def ask(case: Json) -> Json:
    answer: Json = json.loads(msgspec.json.encode(_merged(json.dumps(case).encode())))
    return answer


@needs_vectors
class TestUpstreamCases:
    def test_all_are_here(self) -> None:
        assert len(upstream("merge", "admit", "compare")) == 179

    @pytest.mark.parametrize("name", upstream("merge"))
    def test_merge(self, name: str) -> None:
        case = upstream("merge")[name]
        answer = ask(case)
        assert answer["hint"] == case["expectedHint"]
        assert answer["admit"] == case["expectedAdmit"]

    @pytest.mark.parametrize("name", upstream("admit"))
    def test_admit(self, name: str) -> None:
        case = upstream("admit")[name]
        assert ask(case)["admit"] == case["expectedAdmit"]

    @pytest.mark.parametrize("name", upstream("compare"))
    def test_compare(self, name: str) -> None:
        case = upstream("compare")[name]
        current = None if case["current"] is None else hint(*(case["current"]["numaNodes"] or ()), p=case["current"]["preferred"])
        candidate = hint(*(case["candidate"]["numaNodes"] or ()), p=case["candidate"]["preferred"])
        chosen = better(current, candidate, case["bestNonPreferredAffinityCount"])
        assert ("candidate" if chosen else "current") == case["expected"]


def hint(*zones: int, p: bool = True) -> Hint:
    return Hint(sum(1 << zone for zone in zones), p)


def p(*zones: int) -> Hint:
    return hint(*zones)


def n(*zones: int) -> Hint:
    return hint(*zones, p=False)


BOTH = 0b11
FAR = [[10, 30, 30, 12], [30, 10, 20, 30], [30, 20, 10, 30], [12, 30, 30, 10]]


class TestRowsOfTheNotes:
    """Each named by its row; two zones unless there are more."""

    @pytest.mark.parametrize(
        ("row", "lists", "policy", "expected", "admit"),
        [
            ("H01", [[p(0)], [p(0)]], "restricted", p(0), True),
            ("H02", [None, [p(0)]], "restricted", p(0), True),
            ("H03", [[p(0), p(1)], [p(0)]], "restricted", p(0), True),
            ("H04", [[p(0)], [p(1)]], "restricted", n(0, 1), False),
            ("H05", [[p(0)], [p(1)]], "best-effort", n(0, 1), True),
            ("H06", [[p(0)], [p(1)]], "single-numa-node", Hint(None, False), False),
            ("H07", [[p(0)], [n(0)]], "restricted", n(0), False),
            ("H08", [[p(0)], [p(0, 1)]], "restricted", n(0), False),
            ("H09", [[p(0, 1), n(0), n(1)], [p(0, 1), n(0), n(1)]], "restricted", p(0, 1), True),
            ("H09b", [[p(1), n(0, 1)], [p(0), p(1), n(0, 1)]], "restricted", p(1), True),
            ("H10", [[]], "restricted", n(0, 1), False),
            ("H10", [[]], "best-effort", n(0, 1), True),
            ("H11", [None, [p(0, 1)]], "restricted", p(0, 1), True),
            ("H15", [[p(0), n(0, 1)], [p(1), n(0, 1)]], "best-effort", n(0), True),
            ("H16", [[p(0, 1)], [p(0), p(1), n(0, 1)]], "best-effort", n(0, 1), True),
            ("H17", [[p(0, 1)], [p(0), p(1)]], "best-effort", n(0), True),
        ],
    )
    def test_two_zones(self, row: str, lists: list[Any], policy: Policy, expected: Hint, admit: bool) -> None:
        provided = [None if hints is None else {row: hints} for hints in lists]
        assert merge(policy, BOTH, provided) == (expected, admit)

    def test_h12_and_h13_four_zones_take_the_lowest_or_the_nearest(self) -> None:
        provided = [{"a": [p(0, 3), p(1, 2)]}, {"b": [p(0, 3), p(1, 2)]}]
        assert merge("restricted", 0b1111, provided) == (p(1, 2), True)
        assert merge("restricted", 0b1111, provided, FAR) == (p(0, 3), True)

    def test_h14_one_zone_only_does_not_look_at_distances(self) -> None:
        provided = [{"a": [p(0, 3), p(1, 2)]}]
        assert merge("single-numa-node", 0b1111, provided, FAR) == (Hint(None, False), False)

    def test_h18_a_machine_of_one_zone_has_no_affinity_to_store(self) -> None:
        assert merge("single-numa-node", 0b1, [{"a": [p(0)]}, {"b": [p(0)]}]) == (Hint(None, True), True)


# ------------------------------------------------------------------------------------------------ against the walk itself


def walked(policy: Policy, zones: int, lists: list[list[Hint]], distances: list[list[int]] | None) -> tuple[Hint, bool]:
    """As the kubelet does it: every combination, one after another."""
    if policy == "single-numa-node":
        lists = [[h for h in hints if h.preferred and (h.mask is None or h.mask.bit_count() == 1)] for hints in lists]
    narrowest = [min((h.mask.bit_count() for h in hints if h.mask is not None), default=0) for hints in lists]
    target = max(narrowest, default=0)
    use = None if policy == "single-numa-node" else distances
    best: Hint | None = None
    for combination in itertools.product(*lists):
        named = [h.mask for h in combination if h.mask is not None]
        mask = zones
        for each in named:
            mask &= each
        preferred = all(h.preferred for h in combination) and len(set(named)) <= 1
        best = chosen(best, Hint(mask, preferred), target, use)
    found = best or Hint(zones, False)
    if policy == "single-numa-node" and found.mask == zones:
        found = Hint(None, found.preferred)
    return found, policy == "best-effort" or found.preferred


def chosen(current: Hint | None, candidate: Hint, target: int, distances: list[list[int]] | None) -> Hint | None:
    def fitter(one: Hint, other: Hint) -> Hint:
        def order(hint: Hint) -> tuple[int, int, int]:
            mask = hint.mask or 0
            return mask.bit_count(), 0 if distances is None else apart(mask, distances), mask

        return other if order(other) < order(one) else one

    assert candidate.mask is not None
    if not candidate.mask:
        return current
    if current is None or (candidate.preferred and not current.preferred):
        return candidate
    assert current.mask is not None
    if current.preferred:
        return fitter(current, candidate) if candidate.preferred else current
    have, get = current.mask.bit_count(), candidate.mask.bit_count()
    if have > target:
        return fitter(current, candidate)
    if have == target:
        return fitter(current, candidate) if get == target else current
    if get > target:
        return current
    if get == target or get > have:
        return candidate
    return current if get < have else fitter(current, candidate)


MASKS = st.one_of(st.none(), st.integers(1, 15))
LISTS = st.lists(st.lists(st.builds(Hint, MASKS, st.booleans()), min_size=1, max_size=5), max_size=4)
ROWS = st.lists(st.lists(st.integers(10, 14), min_size=4, max_size=4), min_size=4, max_size=4)


@given(st.sampled_from(["best-effort", "restricted", "single-numa-node"]), LISTS, st.one_of(st.none(), ROWS))
def test_the_result_is_that_of_walking_through_all_combinations(
    policy: Policy, lists: list[list[Hint]], distances: list[list[int]] | None
) -> None:
    provided = [{"r": hints} for hints in lists]
    assert merge(policy, 0b1111, provided, distances) == walked(policy, 0b1111, lists, distances)


class TestHostileHints:
    def test_thousands_of_combinations_cost_little(self) -> None:
        every = [Hint(mask, mask.bit_count() == 1) for mask in range(1, 256)]
        found, admitted = merge("restricted", 255, [{str(number): every} for number in range(3)])  # 16 million combinations
        assert (found, admitted) == (Hint(1, True), True)

    def test_more_than_any_machine_has_are_refused(self) -> None:
        zones = set(range(40))
        lists = [{"r": [n(*(zones - {zone})), n(*(zones - {zone + 1}))]} for zone in range(0, 40, 2)]
        with pytest.raises(TooManyHints):
            merge("best-effort", 2**40 - 1, lists)
