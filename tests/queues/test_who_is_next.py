"""The order of queues, jobs and parts, and who may take from whom, rule by rule."""

from __future__ import annotations

from typing import Any

import pytest

from dray.queues.order import (
    Contender,
    Fill,
    Standing,
    compare_places,
    dominant_share,
    job_key,
    part_key,
    place_of,
    pod_key,
)
from dray.queues.reclaim import (
    Denial,
    Reclaimer,
    is_candidate,
    is_protected,
    may_reclaim,
    may_start,
    may_take,
    preempt_min_runtime,
    reclaim_min_runtime,
)
from dray.queues.tree import Entitlement, Queue, Tree

TOTAL = {"gpu": 10.0, "cpu": 100.0}


def standing(
    name: str, held: float = 0, fair: float = 5, quota: float = 5, limit: float = -1, fixed: float = 0, **more: Any
) -> Standing:
    entitled = {"gpu": Entitlement(quota, limit, 1), "cpu": Entitlement(50, -1, 1)}
    queue = Queue(name, resources=entitled, **more)
    return Standing(queue, {"gpu": held, "cpu": 0}, {"gpu": fair, "cpu": 50}, {"gpu": fixed})


def compare_queues(left: Contender, right: Contender, total: dict[str, float]) -> int:
    return compare_places((place_of(left, total), left.standing), (place_of(right, total), right.standing), total)


def first(left: Standing, right: Standing, job: float = 1, total: Any = None) -> str:
    asked = {"gpu": job}
    total = TOTAL if total is None else total
    result = compare_queues(Contender(left, asked), Contender(right, asked), total)
    assert compare_queues(Contender(right, asked), Contender(left, asked), total) == -result
    return left.queue.name if result < 0 else right.queue.name


class TestQueues:
    def test_who_is_over_its_share_of_everything_comes_last(self) -> None:
        only_gpus = {"gpu": 10.0}
        assert (
            first(standing("over", held=6, priority=900, quota=9), standing("under", held=4, fair=4), total=only_gpus) == "under"
        )

    def test_being_over_in_one_of_several_resources_does_not_count(self) -> None:
        assert first(standing("over", held=6, priority=900, quota=9), standing("under", held=4, fair=4, quota=9)) == "over"

    def test_who_stays_within_quota_comes_before_priority(self) -> None:
        assert first(standing("in-quota", held=4), standing("beyond", held=5, priority=900)) == "in-quota"

    def test_then_priority(self) -> None:
        assert first(standing("high", held=2, priority=200), standing("low")) == "high"

    def test_who_uses_what_it_has_no_share_of_comes_last(self) -> None:
        assert first(standing("none", fair=0, quota=0), standing("some", held=9, quota=0)) == "some"

    def test_then_the_smaller_dominant_share_with_the_job(self) -> None:
        assert first(standing("fuller", held=3), standing("emptier", held=2)) == "emptier"

    def test_then_the_smaller_dominant_share_without_it(self) -> None:
        left, right = standing("a", held=2, created=1), standing("b", held=1, created=2)
        found = compare_queues(Contender(left, {"gpu": 1}), Contender(right, {"gpu": 2}), TOTAL)
        assert found > 0

    def test_then_the_weaker_queue(self) -> None:
        assert first(standing("strong", fair=8, quota=8, created=1), standing("weak", created=2), job=0) == "weak"

    def test_then_the_older_queue(self) -> None:
        assert first(standing("old", created=1), standing("young", created=2)) == "old"

    def test_victims_taken_already_count_as_given_back(self) -> None:
        left, right = standing("a", held=9, quota=0), standing("b", held=8, quota=0)
        assert compare_queues(Contender(left), Contender(right), TOTAL) > 0
        assert compare_queues(Contender(left, {}, {"gpu": 4}), Contender(right), TOTAL) < 0

    def test_an_unlimited_share_is_measured_against_the_cluster_and_none_counts_thousandfold(self) -> None:
        assert dominant_share(standing("a", quota=-1), {"gpu": 5}, TOTAL) == 0.5
        assert dominant_share(standing("a", quota=0, fair=0), {"gpu": 5}, TOTAL) == 5000


def test_jobs_go_by_priority_then_by_what_they_lack_then_by_age() -> None:
    keys = {
        "important": job_key(200, Fill.ABOVE, 9, "x"),
        "lacking": job_key(100, Fill.BELOW, 9, "x"),
        "complete": job_key(100, Fill.AT, 1, "x"),
        "old": job_key(100, Fill.ABOVE, 1, "x"),
        "young": job_key(100, Fill.ABOVE, 2, "x"),
    }
    assert sorted(keys, key=keys.__getitem__) == ["important", "lacking", "complete", "old", "young"]


def test_pods_go_by_their_label_then_by_age_and_parts_by_what_they_lack() -> None:
    assert pod_key(5, 9, "x") < pod_key(1, 1, "x") < pod_key(1, 2, "a") < pod_key(1, 2, "b")
    assert part_key("z", 1, 2, False) < part_key("b", 2, 2, True) < part_key("a", 3, 2, True) < part_key("a", 0, 0, True)


# ----------------------------------------------------------------------------------------------------------------- reclaim


TREE = Tree([Queue("left"), Queue("right"), Queue("mine", "left"), Queue("next", "left"), Queue("far", "right")])


def standings(tree: Tree = TREE, **given: Standing) -> dict[str, Standing]:
    return {name: given.get(name) or standing(name, held=0, fair=10, quota=10) for name in tree.queues}


def placed(name: str, **more: Any) -> Standing:
    return standing(name, parent=TREE[name].parent, **more)


JOB = Reclaimer("mine", {"gpu": 2})


def test_a_job_starts_within_the_limits_of_all_queues_above_it() -> None:
    tree = Tree(
        [Queue("left", resources={"gpu": Entitlement(5, 8, 1)}), Queue("mine", "left", resources={"gpu": Entitlement(5, -1, 1)})]
    )
    known = {name: Standing(tree[name], {"gpu": 7}, {}, {"gpu": 4}) for name in tree.queues}
    assert may_start(JOB, tree, known) == Denial("limit", "left", "gpu")
    assert may_start(Reclaimer("mine", {"gpu": 1, "cpu": 0}), tree, known) is None
    assert may_start(Reclaimer("mine", {"gpu": 1}, preemptible=False), tree, known) is None
    fuller = {name: Standing(tree[name], {"gpu": 6}, {}, {"gpu": 5}) for name in tree.queues}
    assert may_start(Reclaimer("mine", {"gpu": 1}, preemptible=False), tree, fuller) == Denial(
        "quota of what cannot be preempted", "mine", "gpu"
    )


@pytest.mark.parametrize("order", [("cpu", "gpu"), ("gpu", "cpu")])
def test_the_same_resource_is_named_in_whatever_order_they_were_counted(order: tuple[str, str]) -> None:
    job = Reclaimer("mine", {name: {"cpu": 60.0, "gpu": 60.0}[name] for name in order}, preemptible=False)
    mine = standing("mine")
    tree, known = Tree([mine.queue]), {"mine": mine}
    assert may_start(job, tree, known) == Denial("quota of what cannot be preempted", "mine", "cpu")
    assert may_reclaim(job, known) == Denial("fair share of the reclaimer", "mine", "cpu")


def test_only_who_stays_within_its_fair_share_may_reclaim() -> None:
    assert may_reclaim(JOB, standings(mine=placed("mine", held=3))) is None
    assert may_reclaim(JOB, standings(mine=placed("mine", held=4))) == Denial("fair share of the reclaimer", "mine", "gpu")
    fixed = Reclaimer("mine", {"gpu": 2}, preemptible=False)
    assert may_reclaim(fixed, standings(mine=placed("mine", held=3, quota=4, fixed=3))) == Denial(
        "quota of what cannot be preempted", "mine", "gpu"
    )


def test_queues_are_compared_where_their_ways_part() -> None:
    assert [queue.name for queue in TREE.apart("mine", "next")] == ["mine", "next"]
    assert [queue.name for queue in TREE.apart("mine", "far")] == ["left", "right"]
    assert [queue.name for queue in TREE.apart("mine", "left")] == ["left", "left"]


def test_within_its_quota_a_job_looks_at_queues_that_are_above_theirs() -> None:
    assert is_candidate(JOB, "next", TREE, standings(next=placed("next", held=6)))
    assert is_candidate(JOB, "next", TREE, standings(next=placed("next", held=5)))
    assert not is_candidate(JOB, "next", TREE, standings(next=placed("next", held=4)))
    assert not is_candidate(JOB, "mine", TREE, standings(mine=placed("mine", held=9)))


def test_beyond_its_quota_a_job_looks_at_queues_that_are_above_their_share() -> None:
    mine = placed("mine", held=4)
    assert is_candidate(JOB, "next", TREE, standings(mine=mine, next=placed("next", held=8, fair=7)))
    assert not is_candidate(JOB, "next", TREE, standings(mine=mine, next=placed("next", held=7, fair=7)))


def test_blocks_are_taken_while_the_victim_has_more_than_its_share() -> None:
    known = standings(mine=placed("mine", quota=1), next=placed("next", held=6))
    assert may_take(JOB, [("next", {"gpu": 2})], TREE, known) is None
    assert may_take(JOB, [("next", {"gpu": 1}), ("next", {"gpu": 1})], TREE, known) == Denial("share of the victim", "next")


def test_within_its_quota_a_job_takes_from_who_is_above_its_quota_though_below_its_share() -> None:
    known = standings(mine=placed("mine", quota=2), next=placed("next", held=6, fair=9, quota=4))
    assert may_take(JOB, [("next", {"gpu": 1}), ("next", {"gpu": 1})], TREE, known) is None
    assert may_take(JOB, [("next", {"gpu": 1})] * 3, TREE, known) == Denial("share of the victim", "next")


def test_beyond_its_share_no_level_becomes_fuller_than_whom_it_takes_from() -> None:
    known = standings(
        left=placed("left", held=9, fair=10, quota=0), right=placed("right", held=8, fair=6, quota=0), far=placed("far", held=8)
    )
    assert may_take(JOB, [("far", {"gpu": 1})], TREE, known) is None
    assert may_take(JOB, [("far", {"gpu": 2})], TREE, known) == Denial("saturation of siblings", "left", "gpu")


def test_min_runtime_is_found_upwards_and_protects_from_the_last_start() -> None:
    minima = {"left": 60.0, "next": 5.0, "right": 30.0}
    assert preempt_min_runtime("next", TREE, minima) == 5.0
    assert preempt_min_runtime("mine", TREE, minima) == 60.0
    assert preempt_min_runtime("far", TREE, {}) == 0.0
    assert reclaim_min_runtime("mine", "next", TREE, minima) == 5.0
    assert reclaim_min_runtime("mine", "far", TREE, minima | {"far": 999.0}) == 30.0
    assert is_protected(100.0, 50.0, 60.0)
    assert not is_protected(111.0, 50.0, 60.0)
    assert not is_protected(100.0, None, 60.0)
