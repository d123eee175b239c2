"""Nobody is evicted for what buys nothing: for one who overtakes, a surplus that costs more than it brings, or a second time."""

from __future__ import annotations

import msgspec
import pytest

from dray.simulate.settle import Settling, WorldLine
from tests.queues.random_clusters import cluster as random_cluster
from tests.queues.test_who_has_to_go import Cluster, Json, job, queue


def growing(name: str, queue: str, gpus: int, node: str, *, more: int, priority: int) -> Json:
    """One pod runs, and so many wait that it does not need."""
    found = job(name, queue, gpus, node, least=1, priority=priority)
    found["pods"] += [{"name": f"{name}-{index}", "requests": {"gpu": gpus}} for index in range(1, more + 1)]
    return found


def test_who_asks_for_no_less_than_one_before_it_that_finds_no_room_evicts_nobody() -> None:
    """The first may not start for the quota; who asks for less does not take what is to be its own."""
    for gpus, evicted in ((2, set[str]()), (3, set[str]()), (1, {"low-0"})):
        jobs = [
            job("low", "own", 3, "n0"),
            job("first", "own", 2, count=1, priority=125),
            job("behind", "own", gpus, count=1, priority=60),
        ]
        cluster = Cluster({"n0": 3}, [queue("own", 1)], jobs)
        cluster.settle()
        assert cluster.evicted == evicted, gpus


def test_who_asks_for_fewer_or_more_pods_than_one_that_finds_no_room_is_not_behind_it() -> None:
    jobs = [
        job("low", "own", 1, "n0", "n0"),
        job("first", "own", 1, count=1, priority=125),
        job("other", "own", 1, count=2, priority=60),
    ]
    cluster = Cluster({"n0": 2}, [queue("own", 0)], jobs)
    assert cluster.settle() == {"low": 0, "first": 0, "other": 2}


def test_the_queue_that_has_most_left_without_its_next_victim_loses_it() -> None:
    """The one has twice its share, and nothing without its only job; the other has a little less than that, and gives one pod."""
    queues = [queue("one", 1, weight=0), queue("other", 3, weight=0), queue("owner", 2, weight=0)]
    jobs = [
        job("whole", "one", 2, "n0"),
        *(job(f"part{index}", "other", 1, "n0") for index in range(5)),
        job("due", "owner", 1, count=1),
    ]
    cluster = Cluster({"n0": 7}, queues, jobs)
    cluster.settle()
    assert cluster.evicted == {"part4-0"}


def test_one_moves_from_a_full_node_rather_than_all_from_an_emptier_one() -> None:
    jobs = [
        job("left", "own", 1, "few"),
        job("right", "own", 1, "few"),
        job("small", "own", 1, "many"),
        job("large", "own", 2, "many"),
        job("larger", "own", 2, "many"),
        job("fixed", "own", 1, "n2", priority=125),
        job("also", "own", 1, "n3", priority=125),
        job("new", "own", 2, count=1),
    ]
    cluster = Cluster({"few": 2, "many": 6, "n2": 2, "n3": 2}, [queue("own", -1)], jobs)
    assert cluster.settle()["new"] == 1
    assert cluster.evicted == {"small-0"}


def test_nobody_goes_instead_of_a_gang_whose_place_is_enough_for_two_that_are_due() -> None:
    """The single pod alone would do for the first of them; the gang would have to go for the second, and it would come back."""
    queues = [queue("lent", 1, weight=0), queue("owner", 1), queue("other", 0)]
    jobs = [
        job("single", "lent", 1, "n0"),
        job("gang", "lent", 1, "n1", "n2", "n3", "n4"),
        job("due", "owner", 1, count=1),
        job("also", "other", 1, count=1),
    ]
    cluster = Cluster({f"n{index}": 1 for index in range(5)}, queues, jobs)
    assert cluster.settle() == {"single": 1, "gang": 0, "due": 1, "also": 1}
    assert "single-0" not in cluster.evicted


def test_who_moves_is_not_evicted_again_where_it_would_be_preempted() -> None:
    """Its new place goes to the pod of higher priority at once, which would drive it out from there."""
    jobs = [
        job("single", "own", 2, "n0"),
        job("gang", "own", 2, "n0", "n1", "n2"),
        job("fixed", "own", 2, "n1", priority=125),
        job("also", "own", 2, "n2", priority=125),
        job("urgent", "own", 4, count=1, priority=125),
        job("above", "own", 2, count=2, least=1, priority=60),
    ]
    cluster = Cluster({"n0": 4, "n1": 4, "n2": 4}, [queue("own", -1)], jobs)
    assert cluster.settle() == {"single": 0, "gang": 0, "fixed": 1, "also": 1, "urgent": 1, "above": 2}
    assert cluster.settling.evicted["single-0"] == 1


def test_a_surplus_evicts_nobody_where_less_would_run_then() -> None:
    """Unless others who wait take what it leaves over."""
    grows, large = growing("grows", "own", 1, "n0", more=1, priority=75), job("large", "own", 4, "n0")
    cluster = Cluster({"n0": 5}, [queue("own", 0)], [grows, large])
    assert cluster.settle() == {"grows": 1, "large": 1}
    assert cluster.evicted == set()
    cluster = Cluster({"n0": 5}, [queue("own", 0)], [grows, large, job("rest", "own", 3, count=1)])
    assert cluster.settle() == {"grows": 2, "large": 0, "rest": 1}


def test_one_that_is_to_start_and_to_move_in_one_session_starts_where_it_moves_to() -> None:
    """It was seen nowhere yet; and nobody has to be waited for, so that the other starts at once."""
    jobs = [
        job("cores", "own", 0, "many", priority=125),
        job("small", "own", 1, count=1, priority=75),
        job("large", "own", 1, count=1),
    ]
    for each, cores in zip(jobs, (60_000, 1_000, 64_000), strict=True):
        each["pods"][0]["requests"]["cpu_milli"] = cores
    cluster = Cluster({"few": 1, "many": 2}, [queue("own", 9)], jobs)
    assert cluster.settle() == {"cores": 1, "small": 1, "large": 1}
    assert cluster.evicted == set()


@pytest.mark.parametrize("seed", [83, 201, 804, 867])
def test_nobody_of_a_gang_is_evicted_that_was_to_start_and_to_leave_in_one_session(seed: int) -> None:
    """None of it runs anywhere yet: that one does not start is no reason to delete the others."""
    settling = Settling(msgspec.convert(random_cluster(seed), WorldLine))
    pods = [pod["name"] for group in random_cluster(seed)["podgroups"] for pod in group["pods"]]
    for _ in range(12):
        running = {name for name in pods if settling.pod(name)["spec"].get("nodeName")}
        before = dict(settling.evicted)
        settling.round()
        assert {name for name, times in settling.evicted.items() if times > before.get(name, 0)} <= running
        settling.between()


@pytest.mark.parametrize(("quota", "evicted"), [(4, set[str]()), (0, {"large-0"})])
def test_for_a_job_without_gpus_no_queue_goes_below_its_share_of_them(quota: int, evicted: set[str]) -> None:
    """The queue has more cores than its share; what it has of GPUs is its own, or lent."""
    queues = [queue("lent", quota, weight=0), queue("owner", 0)]
    queues[0]["cpu_milli"] = {"quota": 40_000, "limit": -1, "over_quota_weight": 0}
    jobs = [job("large", "lent", 4, "n0"), job("due", "owner", 0, count=1)]
    for each, cores in zip(jobs, (60_000, 50_000), strict=True):
        each["pods"][0]["requests"]["cpu_milli"] = cores
    cluster = Cluster({"n0": 4}, queues, jobs)
    cluster.settle()
    assert cluster.evicted == evicted


def test_what_its_quota_covers_a_job_without_gpus_gets_all_the_same() -> None:
    """Else a queue that owns cores would wait for ever for those that GPU jobs have."""
    queues = [queue("lent", 4, weight=0), queue("owner", 0)]
    queues[0]["cpu_milli"] = {"quota": 40_000, "limit": -1, "over_quota_weight": 0}
    queues[1]["cpu_milli"] = {"quota": 60_000, "limit": -1, "over_quota_weight": 0}
    jobs = [job("large", "lent", 4, "n0"), job("due", "owner", 0, count=1)]
    for each, cores in zip(jobs, (60_000, 50_000), strict=True):
        each["pods"][0]["requests"]["cpu_milli"] = cores
    cluster = Cluster({"n0": 4}, queues, jobs)
    cluster.settle()
    assert cluster.evicted == {"large-0"}
