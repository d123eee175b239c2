"""Scores of nodes by their zones: the numbers of scheduler-plugins and of KAI."""

from __future__ import annotations

import pytest

from dray.numa.demand import demand
from dray.numa.evaluate import Evaluators, plan
from dray.numa.layout import State
from dray.numa.scores import (
    balanced_allocation,
    least_allocated,
    least_numa_nodes,
    most_allocated,
    nearness,
    score_of,
)
from tests.numa.building import GPU, pod, state

ONES = (1, 1)
NEAR = [[10, 12, 20, 20], [12, 10, 20, 20], [20, 20, 10, 12], [20, 20, 12, 10]]


def score(strategy: str, node: State, *containers: dict[str, object], **more: int) -> int:
    return score_of(strategy, node, plan(node.layout, demand(pod(*containers))), **more)


class TestOneZone:
    def test_x09_most_allocated(self) -> None:
        assert most_allocated((2, 20), (2, 50), ONES) == 70

    def test_x10_least_allocated(self) -> None:
        assert least_allocated((2, 20), (4, 500), ONES) == 73

    def test_x11_balanced(self) -> None:
        assert balanced_allocation((2, 20), (6, 60), ONES) == 100

    def test_x16_one_resource_is_balanced_by_itself(self) -> None:
        assert balanced_allocation((2,), (6,), (1,)) == 100

    def test_uneven_use_is_worse(self) -> None:
        assert balanced_allocation((1, 9), (10, 10), ONES) == 68

    @pytest.mark.parametrize("strategy", [least_allocated, most_allocated, balanced_allocation])
    def test_what_does_not_fit_scores_nothing(self, strategy: object) -> None:
        assert strategy((3,), (2,), (1,)) == 0  # type: ignore[operator]

    def test_weights_shift_the_mean(self) -> None:
        assert most_allocated((2, 20), (2, 50), (3, 1)) == 85


class TestAWholeNode:
    def test_the_worst_zone_that_fits_counts(self) -> None:
        node = state({"cpu": 4}, {"cpu": 8}, {"cpu": 1}, policy="single-numa-node", scope="pod")
        assert score("LeastAllocated", node, {"cpu": 2}) == 50
        assert score("MostAllocated", node, {"cpu": 2}) == 25

    def test_containers_are_averaged(self) -> None:
        node = state({"cpu": 4}, {"cpu": 4}, policy="single-numa-node")
        assert score("MostAllocated", node, {"cpu": 1}, {"cpu": 3}) == (25 + 75) // 2

    def test_a_pod_without_aligned_resources_is_welcome_everywhere(self) -> None:
        node = state({"cpu": 4}, policy="single-numa-node")
        assert score("LeastAllocated", node, {"cpu": "500m"}) == 100


class TestFewestZones:
    @pytest.mark.parametrize(("number", "plain", "nearest"), [(1, 88, 94), (2, 76, 82), (8, 4, 10)])
    def test_x12_steps(self, number: int, plain: int, nearest: int) -> None:
        flat = [[10] * 8 for _ in range(8)]
        zones = [{"cpu": 1}] * 8
        assert score("LeastNUMANodes", state(*zones, policy="restricted", scope="pod"), {"cpu": number}) == plain
        assert score("LeastNUMANodes", state(*zones, policy="restricted", scope="pod", costs=flat), {"cpu": number}) == nearest

    def test_x13_near_zones_have_half_a_step_more(self) -> None:
        node = state({"gpu": 1}, {"gpu": 1}, {"gpu": 0}, {"gpu": 0}, policy="best-effort", scope="pod", costs=NEAR)
        assert score("LeastNUMANodes", node, {"gpu": 2}) == 82

    def test_x14_far_zones_do_not(self) -> None:
        node = state({"gpu": 1}, {"gpu": 0}, {"gpu": 1}, {"gpu": 0}, policy="best-effort", scope="pod", costs=NEAR)
        assert score("LeastNUMANodes", node, {"gpu": 2}) == 76

    def test_x15_too_much_scores_nothing(self) -> None:
        node = state({"cpu": 8, "memory": "10Gi"}, {"cpu": 8, "memory": "10Gi"}, policy="restricted", scope="pod")
        assert score("LeastNUMANodes", node, {"cpu": 12}) == 76
        assert score("LeastNUMANodes", node, {"cpu": 22}) == 0

    def test_the_container_that_needs_most_decides(self) -> None:
        node = state({"cpu": 4}, {"cpu": 4}, policy="best-effort")
        assert score("LeastNUMANodes", node, {"cpu": 1}, {"cpu": 6}) == 76

    def test_zones_that_do_not_report_a_resource_are_not_counted(self) -> None:
        node = state({"cpu": 4, "gpu": 1}, {"cpu": 4}, policy="best-effort", scope="pod")
        assert least_numa_nodes(node, plan(node.layout, demand(pod({"cpu": 6, "gpu": 1})))) == 0


class TestSpanAsKaiCountsIt:
    def span_of(self, node: State, **needs: int) -> int:
        evaluators, asked = Evaluators(), demand(pod(needs))
        verdict = evaluators.predict(node, asked) if node.layout.policy == "best-effort" else evaluators.admit(node, asked)
        return 100 // verdict.span if verdict.span else 0

    def test_x01_to_x03_aligned_nodes(self) -> None:
        zones = ({"gpu": 4}, {"gpu": 4})
        assert self.span_of(state(*zones, policy="single-numa-node", scope="pod"), gpu=2) == 100
        assert self.span_of(state(*zones, policy="restricted", scope="pod"), gpu=6) == 50
        assert self.span_of(state(*zones, policy="restricted", scope="pod"), gpu=9) == 0

    def test_x04_best_effort(self) -> None:
        node = state({"gpu": 1}, {"gpu": 1}, policy="best-effort", scope="pod")
        assert (self.span_of(node, gpu=1), self.span_of(node, gpu=2)) == (100, 50)

    def test_x08_more_than_the_node_has_is_not_aligned(self) -> None:
        node = state(*[{"gpu": 1}] * 4, policy="best-effort", scope="pod")
        assert self.span_of(node, gpu=5) == 0


def test_near_zones_are_better_than_far_ones() -> None:
    node = state(*[{"gpu": 1}] * 4, policy="best-effort", costs=NEAR).layout
    assert nearness(node, 0b0011) == nearness(node, 0b1100) == 100
    assert nearness(node, 0b0101) == 100 * (10 + 10 + 12 + 12) // (10 + 10 + 20 + 20)
    assert nearness(state({GPU: 1}, policy="none").layout, 1) == 100
