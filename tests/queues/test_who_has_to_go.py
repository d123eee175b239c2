"""Who has to go for others, who moves, and that who moves has its new place."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dray.simulate.settle import Settling, WorldLine
from tests.queues.random_clusters import cluster as random_cluster

Json = dict[str, Any]
ANY: Json = {"quota": -1, "limit": -1, "over_quota_weight": 1}


def queue(name: str, quota: float, limit: float = -1, weight: float = 1) -> Json:
    return {"name": name, "gpu": {"quota": quota, "limit": limit, "over_quota_weight": weight}, "cpu_milli": ANY}


def job(name: str, queue: str, gpus: int, *nodes: str, count: int = 0, least: int | None = None, priority: int = 50) -> Json:
    """On these nodes, or waiting with so many pods."""
    states: list[Json] = [{"state": "Running", "node": node} for node in nodes] or [{}] * count
    pods = [{"name": f"{name}-{index}", "requests": {"gpu": gpus}, **state} for index, state in enumerate(states)]
    least = len(pods) if least is None else least
    return {"name": name, "queue": queue, "priority": priority, "min_member": least, "pods": pods}


class Cluster:
    """Older jobs come first."""

    def __init__(self, nodes: dict[str, int], queues: list[Json], jobs: list[Json]) -> None:
        allocatable = {"cpu_milli": 64_000, "memory_bytes": 10**12, "pods": 110}
        listed = [{"name": name, "allocatable": {**allocatable, "gpu": gpus}} for name, gpus in nodes.items()]
        ranked = [dict(each, creation_rank=rank) for rank, each in enumerate(jobs)]
        self.settling = Settling(msgspec.convert({"nodes": listed, "queues": queues, "podgroups": ranked}, WorldLine), None)
        self.jobs = jobs

    def settle(self) -> dict[str, int]:
        """How many pods of each job run in the end."""
        assert self.settling.settle().settled
        return {each["name"]: len(self.nodes(each["name"])) for each in self.jobs}

    def nodes(self, name: str) -> list[str]:
        pods = next(each["pods"] for each in self.jobs if each["name"] == name)
        found = [self.settling.pod(pod["name"])["spec"].get("nodeName", "") for pod in pods]
        return sorted(node for node in found if node)

    @property
    def evicted(self) -> set[str]:
        return set(self.settling.evicted)


def test_who_is_first_to_go_stays_where_another_has_to_go_anyhow() -> None:
    """The young ones are one GPU each, on other nodes; only the old gang makes room for all, and then for all of it."""
    jobs = [
        job("old", "lent", 4, "n0", "n1"),
        job("young", "lent", 1, "n2"),
        job("younger", "lent", 1, "n3"),
        job("due", "owner", 1, count=4),
    ]
    cluster = Cluster({"n0": 4, "n1": 4, "n2": 1, "n3": 1}, [queue("lent", 0), queue("owner", 4)], jobs)
    assert cluster.settle() == {"old": 0, "young": 1, "younger": 1, "due": 4}
    assert cluster.evicted == {"old-0", "old-1"}


def test_who_moves_has_its_new_place_before_who_has_waited_longer() -> None:
    """Half of the gang makes way, for a place that is large enough for an older job of the same queue, too."""
    jobs = [
        job("older", "keep", 2, count=1),
        job("gang", "keep", 1, "n0", "n1"),
        job("large", "lent", 2, "n0", "n1"),
        job("due", "owner", 4, count=1),
    ]
    queues = [queue("keep", 0, weight=2), queue("lent", 0), queue("owner", 4)]
    cluster = Cluster({"n0": 4, "n1": 3}, queues, jobs)
    assert cluster.settle() == {"older": 0, "gang": 2, "large": 0, "due": 1}
    assert cluster.nodes("gang") == ["n1", "n1"]
    assert cluster.evicted == {"gang-0", "large-0", "large-1"}


def test_nobody_moves_who_could_not_start_again_for_the_limit_of_its_queue() -> None:
    """The queue has more than its limit since that was lowered: evicted, its pod would wait."""
    jobs = [job("small", "lowered", 1, "n0"), job("large", "lowered", 4, "n1"), job("due", "other", 4, count=1)]
    for limit, evicted in ((2, set[str]()), (6, {"small-0"})):
        queues = [queue("lowered", 6, limit=limit), queue("other", 0, weight=0)]
        cluster = Cluster({"n0": 4, "n1": 6}, queues, jobs)
        assert cluster.settle()["due"] == len(evicted)
        assert cluster.evicted == evicted


def test_who_is_beyond_the_limit_of_its_queue_goes_though_it_would_come_first() -> None:
    """Evicted, it cannot take back what it had."""
    for limit, running in ((1, {"held": 0, "due": 2}), (3, {"held": 3, "due": 0})):
        jobs = [job("held", "lowered", 1, "n0", "n0", "n0"), job("due", "other", 1, count=2)]
        cluster = Cluster({"n0": 3}, [queue("lowered", 3, limit=limit), queue("other", 0)], jobs)
        assert cluster.settle() == running


def test_rather_than_that_a_gang_is_preempted_one_pod_moves() -> None:
    """For the urgent job, which cannot be preempted itself, there is room enough, on two nodes."""
    jobs = [
        job("small", "other", 1, "n0"),
        job("smaller", "other", 1, "n1"),
        job("gang", "own", 1, "n2", "n2"),
        job("urgent", "own", 2, count=1, priority=125),
    ]
    cluster = Cluster({"n0": 2, "n1": 2, "n2": 2}, [queue("other", 2), queue("own", 4)], jobs)
    assert cluster.settle() == {"small": 1, "smaller": 1, "gang": 2, "urgent": 1}
    assert len(cluster.evicted & {"small-0", "smaller-0"}) == len(cluster.evicted) == 1


def test_one_gang_goes_for_two_jobs_rather_than_somebody_for_each() -> None:
    """One after the other, the first would drive out the single pod, and the second all three pods of a gang."""
    jobs = [
        job("old", "lent", 2, "n0", "n1"),
        job("three", "lent", 1, "n2", "n2", "n2"),
        job("single", "lent", 2, "n3"),
        job("due", "owner", 2, count=1),
        job("also", "other", 1, count=1),
    ]
    queues = [queue("lent", 0), queue("owner", 2), queue("other", 1)]
    cluster = Cluster({"n0": 2, "n1": 2, "n2": 3, "n3": 2}, queues, jobs)
    assert cluster.settle() == {"old": 0, "three": 3, "single": 1, "due": 1, "also": 1}
    assert cluster.evicted == {"old-0", "old-1"}


def test_fewer_do_not_go_where_less_would_run_then() -> None:
    """The large pod alone would make room for both jobs, and a GPU would be left over."""
    jobs = [
        job("large", "lent", 4, "n0"),
        *(job(f"small{index}", "lent", 1, "n1") for index in range(3)),
        job("due", "owner", 1, count=2),
        job("also", "other", 1, count=1),
    ]
    cluster = Cluster({"n0": 4, "n1": 3}, [queue("lent", 0), queue("owner", 2), queue("other", 1)], jobs)
    assert cluster.settle() == {"large": 1, "small0": 0, "small1": 0, "small2": 0, "due": 2, "also": 1}


def test_a_job_finds_room_after_all_where_the_one_before_it_sits_elsewhere() -> None:
    """By itself, the first drives out the youngest, and sits in the only place that is large enough for the next."""
    jobs = [
        job("ones", "lent", 1, "n1", "n2"),
        job("large", "lent", 4, "n0"),
        job("first", "owner", 1, count=2),
        job("second", "owner", 4, count=1),
    ]
    cluster = Cluster({"n0": 4, "n1": 1, "n2": 1}, [queue("lent", 0), queue("owner", 6)], jobs)
    assert cluster.settle() == {"ones": 0, "large": 0, "first": 2, "second": 1}
    assert cluster.nodes("first") == ["n1", "n2"]
    assert len(cluster.evicted) == 3


def test_a_small_job_does_not_drive_out_a_large_gang_only_because_that_is_younger() -> None:
    jobs = [job("pair", "own", 2, "n0"), job("gang", "own", 4, "n1", "n2", "n3"), job("urgent", "own", 1, count=1, priority=75)]
    cluster = Cluster({"n0": 2, "n1": 4, "n2": 4, "n3": 4}, [queue("own", 14)], jobs)
    assert cluster.settle() == {"pair": 0, "gang": 3, "urgent": 1}


def test_nobody_goes_instead_of_more_of_lower_priority() -> None:
    """The two pods of priority 60 would be enough, and fewer than one of them with the gang of priority 40."""
    jobs = [
        job("small", "own", 1, "n0", priority=60),
        job("large", "own", 2, "n1", priority=60),
        job("low", "own", 1, "n2", "n2", priority=40),
        job("urgent", "own", 1, count=3, priority=75),
    ]
    cluster = Cluster({"n0": 1, "n1": 2, "n2": 2}, [queue("own", 5)], jobs)
    settled = cluster.settle()
    assert (settled["low"], settled["urgent"]) == (0, 3)
    assert settled["small"] + settled["large"] == 1


def test_what_is_left_over_goes_to_who_grows_before_somebody_from_whom_it_would_be_taken_back() -> None:
    """The second pod of who grows asks for room in the next session only; what its first one leaves over is for it."""
    jobs = [
        job("gang", "lent", 1, "n0", "n0"),
        job("grows", "owner", 1, count=2, least=1),
        job("other", "poor", 1, count=1, priority=60),
        job("large", "poor", 8, count=1),
    ]
    cluster = Cluster({"n0": 2}, [queue("lent", 0, weight=0), queue("owner", 2), queue("poor", 0, weight=0)], jobs)
    assert cluster.settle() == {"gang": 0, "grows": 2, "other": 0, "large": 0}
    assert cluster.evicted == {"gang-0", "gang-1"}


def test_what_is_left_over_goes_to_who_may_not_ask_for_room_but_comes_first() -> None:
    """The old one has what is due to its queue, and takes from nobody; the other would have to give it back."""
    jobs = [
        job("gang", "lent", 1, "n0", "n0", "n0"),
        job("due", "owner", 2, count=1, priority=75),
        job("old", "owner", 1, count=1),
        job("other", "poor", 1, count=1, priority=60),
        job("large", "poor", 8, count=1),
    ]
    cluster = Cluster({"n0": 3}, [queue("lent", 0, weight=0), queue("owner", 2), queue("poor", 0, weight=0)], jobs)
    assert cluster.settle() == {"gang": 0, "due": 1, "old": 1, "other": 0, "large": 0}
    assert cluster.evicted == {"gang-0", "gang-1", "gang-2"}


def test_who_is_due_its_share_takes_it_where_the_queue_above_is_beyond_its_limit() -> None:
    """Of the department's two GPUs one is due to ``owner``; ``lent`` has eight, and keeps what is left within the limit."""
    jobs = [
        job("large", "lent", 4, "n0", priority=75),
        job("small", "lent", 2, "n1"),
        job("old", "lent", 1, "n1"),
        job("young", "lent", 1, "n0"),
        job("due", "owner", 1, count=1),
    ]
    above = {"parent": "department"}
    queues = [queue("department", -1, limit=2), queue("lent", 0) | above, queue("owner", 1) | above]
    cluster = Cluster({"n0": 8, "n1": 4}, queues, jobs)
    assert cluster.settle() == {"large": 0, "small": 0, "old": 1, "young": 0, "due": 1}


def test_a_plan_that_another_would_take_from_in_vain_holds() -> None:
    """``large`` could preempt ``small``, but only on the place that is made for it; without that it finds none."""
    jobs = [
        job("large", "owner", 4, count=1, priority=60),
        job("own", "owner", 1, "n0"),
        job("small", "owner", 2, count=1),
        job("taken", "lent", 2, "n0"),
    ]
    cluster = Cluster({"n0": 4}, [queue("owner", -1), queue("lent", 0)], jobs)
    cluster.settling.round()
    assert [seat.pending.pod.metadata.name for plan in cluster.settling.plans() for seat in plan.seats] == ["small-0"]
    assert cluster.evicted == {"taken-0"}
    cluster.settling.between()
    assert cluster.settle() == {"large": 1, "own": 0, "small": 0, "taken": 0}


@pytest.mark.parametrize(("seed", "evictions"), [(804, 4), (969, 7)])
def test_who_moves_has_its_place_also_where_others_of_its_gang_are_evicted(seed: int, evictions: int) -> None:
    """Of a gang that loses its surplus the rest moves: where that is given to others, it takes from yet others, or waits."""
    settling = Settling(msgspec.convert(random_cluster(seed), WorldLine))
    assert settling.settle().evictions == evictions
    assert set(settling.evicted.values()) == {1}


def test_where_one_goes_instead_of_a_gang_it_is_one_with_whom_little_is_lost() -> None:
    """The gang is the youngest; of the others the large one is, and would leave most of its place unused."""
    jobs = [
        job("small", "lent", 1, "n0"),
        job("large", "lent", 4, "n1"),
        job("gang", "lent", 1, "n2", "n3"),
        job("due", "owner", 1, count=1),
    ]
    cluster = Cluster({"n0": 1, "n1": 4, "n2": 1, "n3": 1}, [queue("lent", 0), queue("owner", 1)], jobs)
    assert cluster.settle() == {"small": 0, "large": 1, "gang": 2, "due": 1}
    assert cluster.evicted == {"small-0"}


def test_who_grows_into_what_is_left_over_needs_nobody_else_to_go() -> None:
    """The small one would do for the first pod, and then another would have to go for the second."""
    jobs = [job("small", "lent", 1, "n0"), job("large", "lent", 2, "n1"), job("due", "owner", 1, count=2, least=1)]
    cluster = Cluster({"n0": 1, "n1": 2}, [queue("lent", 0), queue("owner", 2)], jobs)
    assert cluster.settle() == {"small": 1, "large": 0, "due": 2}
    assert cluster.evicted == {"large-0"}


def test_nobody_moves_to_the_node_where_it_is() -> None:
    """The second of the surplus moves, and the last, which is first to go, has no reason to."""
    settling = Settling(msgspec.convert(random_cluster(1188), WorldLine))
    settling.round()
    moved = [(placed, nodes) for plan in settling.plans() for step, nodes in plan.moved for placed in step.pods]
    assert [placed.pod.metadata.name for placed, nodes in moved if nodes[placed.pod.uid] == placed.node] == []
