"""A pod's own limit on the zones that it may span."""

from __future__ import annotations

import pytest

from dray.numa.demand import demand
from dray.numa.evaluate import Evaluators
from dray.numa.intent import HEAL, KAI_SPAN, RESOURCES, SPAN, Intent, IntentError, intent, missed, refusal
from dray.numa.layout import State
from tests.numa.building import GPU, NIC, pod, state


def said(**annotations: str) -> Intent | None:
    names = {"span": SPAN, "kai": KAI_SPAN, "resources": RESOURCES, "heal": HEAL}
    return intent(pod({"cpu": 1}, metadata={"annotations": {names[key]: value for key, value in annotations.items()}}))


def refused(limit: Intent, node: State, *containers: dict[str, object]) -> int | None:
    """How many zones it would need at least, or None when it may go there."""
    found = refusal(limit, node, demand(pod(*containers)), Evaluators(), "n1")
    return None if found is None else found.data["needed"]


class TestWhatAPodSays:
    def test_nothing_is_no_limit(self) -> None:
        assert said() is None

    def test_both_annotations_are_understood_and_the_narrower_counts(self) -> None:
        assert said(kai="2") == Intent(2)
        assert said(span="1", kai="2") == Intent(1)
        assert said(span="1", resources=f"{GPU}, {NIC}", heal="true") == Intent(1, frozenset({GPU, NIC}), True)

    @pytest.mark.parametrize("text", ["0", "-1", "two", "1.5", "", "²", "9" * 30])
    def test_a_limit_that_is_none_is_an_error_that_names_it(self, text: str) -> None:
        with pytest.raises(IntentError, match=f"{KAI_SPAN}.*is not a positive whole number"):
            said(kai=text)

    def test_what_means_nothing_is_an_error(self) -> None:
        with pytest.raises(IntentError, match="means nothing without"):
            said(resources=GPU)
        with pytest.raises(IntentError, match="names no resource"):
            said(span="1", resources=" , ")
        with pytest.raises(IntentError, match='neither "true" nor "false"'):
            said(span="1", heal="yes")


FOUR = tuple({"gpu": 1, "cpu": 8} for _ in range(4))


class TestWhereItMayGo:
    def test_s29_it_narrows_what_the_kubelet_would_admit(self) -> None:
        node = state({"gpu": 4}, {"gpu": 4}, policy="restricted", scope="pod")
        assert refused(Intent(1), node, {"gpu": 6}) == 2
        assert refused(Intent(2), node, {"gpu": 6}) is None

    def test_s30_best_effort_is_refused_only_where_it_is_certain(self) -> None:
        node = state(*FOUR, policy="best-effort", scope="pod")
        assert refused(Intent(2), node, {"gpu": 3}) == 3
        assert refused(Intent(3), node, {"gpu": 3}) is None

    def test_containers_count_together(self) -> None:
        node = state(*FOUR, policy="best-effort")
        assert refused(Intent(1), node, {"gpu": 1}, {"gpu": 1}) == 2

    def test_only_the_named_resources_count(self) -> None:
        node = state(*FOUR, policy="best-effort", scope="pod")
        assert refused(Intent(1), node, {"gpu": 1, "cpu": 12}) == 2
        assert refused(Intent(1, frozenset({GPU})), node, {"gpu": 1, "cpu": 12}) is None

    def test_a_kubelet_that_aligns_nothing_is_trusted_with_one_thing_only(self) -> None:
        node = state(*FOUR, policy="none", scope="pod")
        assert refused(Intent(1, frozenset({GPU})), node, {"gpu": 1}) is None
        assert refused(Intent(1), node, {"gpu": 1, "cpu": 1}) == 4
        assert refused(Intent(4), node, {"gpu": 4, "cpu": 12}) is None

    def test_one_zone_only_is_never_narrowed(self) -> None:
        node = state({"gpu": 4}, {"gpu": 4}, policy="single-numa-node", scope="pod")
        assert refused(Intent(1), node, {"gpu": 6}) is None

    @pytest.mark.parametrize("policy", ["single-numa-node", "restricted"])
    @pytest.mark.parametrize("resources", [None, frozenset({GPU})])
    def test_containers_that_are_aligned_one_by_one_may_be_in_one_zone_each(
        self, policy: str, resources: frozenset[str] | None
    ) -> None:
        """Both GPUs are free in each zone; but the cores of the second container are not, and its GPU goes with them."""
        node = state({"gpu": 2, "cpu": 4}, {"gpu": 2, "cpu": 4}, policy=policy)
        assert refused(Intent(1, resources), node, {"gpu": 1, "cpu": 3}, {"gpu": 1, "cpu": 3}) == 2
        assert refused(Intent(1, resources), node, {"gpu": 1, "cpu": 2}, {"gpu": 1, "cpu": 2}) is None


def test_what_was_observed_tells_whether_it_was_missed() -> None:
    placed = ((0, (("cpu", 1000), (GPU, 1))), (1, (("cpu", 1000),)))
    assert missed(Intent(1), placed) == 1
    assert missed(Intent(2), placed) == 0
    assert missed(Intent(1, frozenset({GPU})), placed) == 0
