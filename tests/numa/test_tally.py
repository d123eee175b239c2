"""The account of one node's zones: charged and credited exactly, restored by undoing, equal content one state."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.books.journal import Account, Books
from dray.numa.account import Held, ZoneAccount
from dray.numa.available import reconstructed
from dray.numa.demand import Demand, demand
from dray.numa.evaluate import Evaluators
from dray.numa.layout import Layout, State
from dray.numa.refused import REMEMBERED, Refusals
from dray.numa.tally import Tallies, Usage
from tests.numa.building import GPU, layout, pod


def held(usage: Usage | None) -> Held | None:
    return Held("n", usage, Demand()) if usage is not None else None


class Node:
    """A node that pods are placed on as a scheduler would within one cycle."""

    def __init__(self, *zones: dict[str, Any], policy: str = "single-numa-node", scope: str = "pod") -> None:
        self.evaluators = Evaluators()
        self.layout: Layout = self.evaluators.layouts(layout(*zones, policy=policy, scope=scope))
        self.account = ZoneAccount()
        self.account.open("n", Tallies(self.evaluators.states).empty(self.layout))

    @property
    def state(self) -> State:
        return self.account.tallies["n"].state

    def post(self, name: str, usage: Usage | None) -> Usage | None:
        """What it had before."""
        before = self.account.post(name, held(usage))
        return before.usage if before is not None else None

    def place(self, name: str, **needs: int) -> tuple[int, ...] | None:
        """The zones that the pod was given, None when it does not fit."""
        verdict = self.evaluators.admit(self.state, demand(pod(needs)))
        if not verdict.admit:
            return None
        self.post(name, Usage(verdict.placement))
        return tuple(place for place, _ in verdict.placement)

    def free(self, resource: str = "cpu") -> tuple[int, ...]:
        row = self.state.free[self.layout.resources.index(resource)]
        return tuple(value // 1000 for value in row) if resource == "cpu" else row


class TestWithinACycle:
    def test_s01_and_s04_two_zones_of_4_take_two_of_three_pods(self) -> None:
        node = Node({"cpu": 4}, {"cpu": 4})
        assert [node.place("a", cpu=3), node.place("b", cpu=3), node.place("c", cpu=2)] == [(0,), (1,), None]
        assert node.free() == (1, 1)

    def test_s02_what_is_undone_is_free_again_exactly(self) -> None:
        node = Node({"cpu": 4})
        node.place("a", cpu=3)
        assert node.place("b", cpu=3) is None
        node.post("a", None)
        assert node.free() == (4,)
        assert node.place("b", cpu=3) == (0,)

    def test_s03_and_s13_what_is_recorded_is_charged_and_credited_whatever_would_be_predicted(self) -> None:
        node = Node({"cpu": 4}, {"cpu": 4})
        node.post("a", Usage(((1, (("cpu", 3000),)),)))
        assert node.free() == (4, 1)
        node.post("a", None)
        assert node.free() == (4, 4)

    def test_s11_a_new_split_over_the_same_zones_replaces_the_old_one_and_undo_brings_it_back(self) -> None:
        node = Node({"gpu": 4}, {"gpu": 4}, policy="restricted")
        old = Usage(((0, ((GPU, 2),)), (1, ((GPU, 2),))))
        node.post("a", old)
        before = node.post("a", Usage(((0, ((GPU, 3),)), (1, ((GPU, 1),)))))
        assert node.free(GPU) == (1, 3)
        assert before == old
        node.post("a", before)
        assert node.free(GPU) == (2, 2)

    def test_s14_a_pod_that_is_being_deleted_is_charged_until_it_is_gone(self) -> None:
        node = Node({"gpu": 4}, {"gpu": 4})
        node.place("releasing", gpu=2)
        node.post("running", Usage(((1, ((GPU, 2),)),)))
        assert node.place("wide", gpu=4) is None
        node.post("releasing", None)
        assert node.place("wide", gpu=4) == (0,)

    def test_s23_and_s24_a_gang_fits_or_leaves_no_trace(self) -> None:
        node = Node({"gpu": 4}, {"gpu": 4})
        assert [node.place(f"m{i}", gpu=2) for i in range(3)] == [(0,), (0,), (1,)]
        assert node.free(GPU) == (0, 2)
        again = Node({"gpu": 4}, {"gpu": 4})
        assert [again.place(f"m{i}", gpu=2) for i in range(5)][-1] is None
        for number in range(4):
            again.post(f"m{number}", None)
        assert again.free(GPU) == (4, 4)

    def test_who_is_in_the_way(self) -> None:
        node = Node({"cpu": 4}, {"cpu": 4})
        node.place("a", cpu=3)
        node.place("b", cpu=3)
        assert [uid for uid, held in node.account.on("n").items() if held.usage.has(0b01, "cpu".__eq__)] == ["a"]
        assert [uid for uid, held in node.account.on("n").items() if held.usage.has(0b11, "cpu".__eq__)] == ["a", "b"]
        assert not [uid for uid, held in node.account.on("n").items() if held.usage.has(0b11, "memory".__eq__)]

    def test_more_taken_than_there_is_comes_back_in_full(self) -> None:
        node = Node({"cpu": 4})
        node.post("a", Usage(((0, (("cpu", 9000),)),)))
        assert node.free() == (0,)
        node.post("b", Usage(((0, (("cpu", 1000),)),)))
        node.post("a", None)
        assert node.free() == (3,)


TWO = layout({"cpu": 4, "memory": 100}, {"cpu": 4, "memory": 100}, policy="restricted", scope="pod")
AMOUNTS = st.dictionaries(st.sampled_from(["cpu", "memory", "other"]), st.integers(1, 60), min_size=1).map(
    lambda found: tuple(sorted(found.items()))
)
PLACEMENTS = st.dictionaries(st.integers(0, 1), AMOUNTS).map(lambda found: tuple(sorted(found.items())))
GROUPS = st.one_of(st.just(()), st.integers(1, 120).map(lambda size: ((0b11, (("memory", size),)),)))
USAGES = st.builds(Usage, PLACEMENTS, GROUPS)
STEPS = st.lists(st.tuples(st.sampled_from("abcde"), st.one_of(st.none(), USAGES)), max_size=20)


def two() -> ZoneAccount:
    account = ZoneAccount()
    account.open("n", Tallies().empty(TWO))
    return account


@given(STEPS)
def test_the_account_is_what_a_new_count_gives_and_every_step_can_be_undone(steps: list[tuple[str, Usage | None]]) -> None:
    account = two()
    taken: dict[str, Usage] = {}
    undo = []
    tallies = []
    for holder, usage in steps:
        tallies.append(account.tallies["n"])
        undo.append((holder, account.post(holder, held(usage))))
        taken.pop(holder, None)
        if usage is not None:
            taken[holder] = usage
        assert account.tallies["n"].state == reconstructed(TWO, taken.values())
    for (holder, before), tally in zip(reversed(undo), reversed(tallies)):
        account.post(holder, before)
        assert account.tallies["n"] is tally


@given(st.lists(USAGES, max_size=6), st.sets(st.integers(0, 5)))
def test_what_the_zones_would_be_without_some_of_the_pods(usages: list[Usage], present: set[int]) -> None:
    account = two()
    for number, usage in enumerate(usages):
        account.post(str(number), held(usage))
    left = [usage for number, usage in enumerate(usages) if number in present]
    assert account.state_without("n", map(str, present)) == reconstructed(TWO, left)


def test_a_trial_in_the_books_that_is_not_kept_leaves_no_trace() -> None:
    books, zones = Books(), two()
    account: Account = zones
    books.post(account, "a", held(Usage(((0, (("cpu", 1000),)),))))
    before = zones.tallies["n"]
    with books.trial():
        books.post(account, "a", None)
        books.post(account, "b", held(Usage(((1, (("memory", 50),)),), ((0b11, (("memory", 70),)),))))
        assert zones.tallies["n"].state != before.state
    assert zones.tallies["n"] is before
    assert zones.entry("b") is None


def test_equal_content_is_one_tally_whatever_happened_before() -> None:
    tallies = Tallies()
    one, other = Usage(((0, (("cpu", 1000),)),)), Usage(((1, (("cpu", 2000),)),))
    empty = tallies.empty(TWO)
    assert empty.plus(one).plus(other) is empty.plus(other).plus(one)
    assert empty.plus(one).minus(one) is empty
    assert empty.plus(one, "not sure") is not empty.plus(one)
    assert empty.plus(one, "not sure").state is empty.plus(one).state


def test_no_more_contents_are_remembered_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dray.numa.tally._KNOWN", 8)
    monkeypatch.setattr("dray.numa.tally._STEPS", 4)
    tallies = Tallies()
    tally, taken = tallies.empty(TWO), []
    for number in range(40):
        usage = Usage(((0, (("cpu", number + 1),)),))
        taken.append(usage)
        tally = tally.plus(usage)
        for other in range(10):
            tally.plus(Usage(((1, (("cpu", other + 1),)),)))
        assert tally.state == reconstructed(TWO, taken)
        assert len(tallies._known) <= 8
        assert len(tally._more) <= 4


class TestWhatAKubeletRefused:
    def test_is_not_tried_again_until_something_changes(self) -> None:
        node, refusals = Node({"cpu": 4}, {"cpu": 4}), Refusals()
        asked = demand(pod({"cpu": 3}))
        refusals.note("n1", asked, node.state, "TopologyAffinityError")
        assert refusals.reason("n1", asked, node.state) == "TopologyAffinityError"
        assert refusals.reason("n2", asked, node.state) is None
        assert refusals.reason("n1", demand(pod({"cpu": 2})), node.state) is None
        node.place("a", cpu=1)
        assert refusals.reason("n1", asked, node.state) is None

    def test_is_remembered_within_bounds(self) -> None:
        node, refusals = Node({"cpu": 4}), Refusals()
        asked = demand(pod({"cpu": 3}))
        for number in range(REMEMBERED + 5):
            refusals.note(f"n{number}", asked, node.state, "TopologyAffinityError")
        assert refusals.reason("n0", asked, node.state) is None
        assert refusals.reason(f"n{REMEMBERED}", asked, node.state)
        refusals.forget(f"n{REMEMBERED}")
        assert refusals.reason(f"n{REMEMBERED}", asked, node.state) is None
