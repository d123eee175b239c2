"""The account of one node's zones: charged and credited exactly, restored by undoing, equal content one state."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dray.books import Account, Books
from dray.numa.available import reconstructed
from dray.numa.demand import demand
from dray.numa.evaluate import Evaluators
from dray.numa.layout import Layout
from dray.numa.refused import REMEMBERED, Refusals
from dray.numa.tally import Tally, Usage
from tests.numa.building import GPU, layout, pod


class Node:
    """A node that pods are placed on as a scheduler would within one cycle."""

    def __init__(self, *zones: dict[str, Any], policy: str = "single-numa-node", scope: str = "pod") -> None:
        self.evaluators = Evaluators()
        self.layout: Layout = self.evaluators.layouts(layout(*zones, policy=policy, scope=scope))
        self.tally = Tally(self.layout, self.evaluators.states)

    def place(self, name: str, **needs: int) -> tuple[int, ...] | None:
        """The zones that the pod was given, None when it does not fit."""
        verdict = self.evaluators.admit(self.tally.state(), demand(pod(needs)))
        if not verdict.admit:
            return None
        self.tally.post(name, Usage(verdict.placement))
        return tuple(place for place, _ in verdict.placement)

    def free(self, resource: str = "cpu") -> tuple[int, ...]:
        row = self.tally.state().free[self.layout.resources.index(resource)]
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
        node.tally.post("a", None)
        assert node.free() == (4,)
        assert node.place("b", cpu=3) == (0,)

    def test_s03_and_s13_what_is_recorded_is_charged_and_credited_whatever_would_be_predicted(self) -> None:
        node = Node({"cpu": 4}, {"cpu": 4})
        node.tally.post("a", Usage(((1, (("cpu", 3000),)),)))
        assert node.free() == (4, 1)
        node.tally.post("a", None)
        assert node.free() == (4, 4)

    def test_s11_a_new_split_over_the_same_zones_replaces_the_old_one_and_undo_brings_it_back(self) -> None:
        node = Node({"gpu": 4}, {"gpu": 4}, policy="restricted")
        old = Usage(((0, ((GPU, 2),)), (1, ((GPU, 2),))))
        node.tally.post("a", old)
        before = node.tally.post("a", Usage(((0, ((GPU, 3),)), (1, ((GPU, 1),)))))
        assert node.free(GPU) == (1, 3)
        assert before == old
        node.tally.post("a", before)
        assert node.free(GPU) == (2, 2)

    def test_s14_a_pod_that_is_being_deleted_is_charged_until_it_is_gone(self) -> None:
        node = Node({"gpu": 4}, {"gpu": 4})
        node.place("releasing", gpu=2)
        node.tally.post("running", Usage(((1, ((GPU, 2),)),)))
        assert node.place("wide", gpu=4) is None
        node.tally.post("releasing", None)
        assert node.place("wide", gpu=4) == (0,)

    def test_s23_and_s24_a_gang_fits_or_leaves_no_trace(self) -> None:
        node = Node({"gpu": 4}, {"gpu": 4})
        assert [node.place(f"m{i}", gpu=2) for i in range(3)] == [(0,), (0,), (1,)]
        assert node.free(GPU) == (0, 2)
        again = Node({"gpu": 4}, {"gpu": 4})
        assert [again.place(f"m{i}", gpu=2) for i in range(5)][-1] is None
        for number in range(4):
            again.tally.post(f"m{number}", None)
        assert again.free(GPU) == (4, 4)

    def test_who_is_in_the_way(self) -> None:
        node = Node({"cpu": 4}, {"cpu": 4})
        node.place("a", cpu=3)
        node.place("b", cpu=3)
        assert node.tally.holders(0b01) == ["a"]
        assert node.tally.holders(0b11) == ["a", "b"]

    def test_more_taken_than_there_is_comes_back_in_full(self) -> None:
        node = Node({"cpu": 4})
        node.tally.post("a", Usage(((0, (("cpu", 9000),)),)))
        assert node.free() == (0,)
        node.tally.post("b", Usage(((0, (("cpu", 1000),)),)))
        node.tally.post("a", None)
        assert node.free() == (3,)


TWO = layout({"cpu": 4, "memory": 100}, {"cpu": 4, "memory": 100}, policy="restricted", scope="pod")
AMOUNTS = st.dictionaries(st.sampled_from(["cpu", "memory", "other"]), st.integers(1, 60), min_size=1).map(
    lambda found: tuple(sorted(found.items()))
)
PLACEMENTS = st.dictionaries(st.integers(0, 1), AMOUNTS).map(lambda found: tuple(sorted(found.items())))
GROUPS = st.one_of(st.just(()), st.integers(1, 120).map(lambda size: ((0b11, (("memory", size),)),)))
USAGES = st.builds(Usage, PLACEMENTS, GROUPS)
STEPS = st.lists(st.tuples(st.sampled_from("abcde"), st.one_of(st.none(), USAGES)), max_size=20)


@given(STEPS)
def test_the_account_is_what_a_new_count_gives_and_every_step_can_be_undone(steps: list[tuple[str, Usage | None]]) -> None:
    tally = Tally(TWO)
    held: dict[str, Usage] = {}
    undo = []
    states = []
    for holder, usage in steps:
        states.append(tally.state())
        undo.append((holder, tally.post(holder, usage)))
        held.pop(holder, None)
        if usage is not None:
            held[holder] = usage
        assert tally.state() == reconstructed(TWO, held.values())
    for (holder, before), state in zip(reversed(undo), reversed(states)):
        tally.post(holder, before)
        assert tally.state() == state


def test_a_trial_in_the_books_that_is_not_kept_leaves_no_trace() -> None:
    books, tally = Books(), Tally(TWO)
    account: Account = tally
    books.post(account, "a", Usage(((0, (("cpu", 1000),)),)))
    before = tally.state()
    with books.trial():
        books.post(account, "a", None)
        books.post(account, "b", Usage(((1, (("memory", 50),)),), ((0b11, (("memory", 70),)),)))
        assert tally.state() != before
    assert tally.state() == before
    assert tally.entry("b") is None


def test_equal_content_is_one_state() -> None:
    evaluators = Evaluators()
    first, second = (Tally(TWO, evaluators.states) for _ in range(2))
    for tally, order in ((first, ("a", "b")), (second, ("b", "a"))):
        for name in order:
            tally.post(name, Usage(((0, (("cpu", 1000),)),)))
    assert first.state() is second.state()


class TestWhatAKubeletRefused:
    def test_is_not_tried_again_until_something_changes(self) -> None:
        node, refusals = Node({"cpu": 4}, {"cpu": 4}), Refusals()
        asked = demand(pod({"cpu": 3}))
        refusals.note("n1", asked, node.tally.state(), "TopologyAffinityError")
        assert refusals.reason("n1", asked, node.tally.state()) == "TopologyAffinityError"
        assert refusals.reason("n2", asked, node.tally.state()) is None
        assert refusals.reason("n1", demand(pod({"cpu": 2})), node.tally.state()) is None
        node.place("a", cpu=1)
        assert refusals.reason("n1", asked, node.tally.state()) is None

    def test_is_remembered_within_bounds(self) -> None:
        node, refusals = Node({"cpu": 4}), Refusals()
        asked = demand(pod({"cpu": 3}))
        for number in range(REMEMBERED + 5):
            refusals.note(f"n{number}", asked, node.tally.state(), "TopologyAffinityError")
        assert refusals.reason("n0", asked, node.tally.state()) is None
        assert refusals.reason(f"n{REMEMBERED}", asked, node.tally.state())
        refusals.forget(f"n{REMEMBERED}")
        assert refusals.reason(f"n{REMEMBERED}", asked, node.tally.state()) is None
