"""What labels of a pod say in KAI-Scheduler's words where it has no PodGroup: its queue, its priority there, and whether it may
be preempted."""

from __future__ import annotations

from dray.api import kinds
from tests.scheduling.gangs import add_queue, add_single, cluster, running
from tests.scheduling.scheduling_cluster import Sim


def add_class(sim: Sim, name: str, value: int) -> None:
    sim.api.put(kinds.PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})


def relabel(sim: Sim, name: str, **labels: str) -> None:
    changed = sim.pod(name)
    changed["metadata"]["labels"] = {**changed["metadata"].get("labels", {}), **labels}
    sim.api.put(kinds.PODS, changed)


def add_labelled(sim: Sim, name: str, **labels: str) -> None:
    add_single(sim, name, "team")
    relabel(sim, name, **labels)


def with_classes() -> Sim:
    sim = cluster(1)
    add_queue(sim, "team", 1, limit=1)
    for name, value in (("train", 50), ("build", 100)):
        add_class(sim, name, value)
    return sim


def test_a_pod_of_a_higher_class_preempts_in_its_queue() -> None:
    sim = with_classes()
    add_labelled(sim, "train", priorityClassName="train")
    sim.settle(5)
    add_labelled(sim, "build", priorityClassName="build")
    sim.settle(10)
    assert running(sim) == {"build"}


def test_a_class_that_comes_later_counts_from_then_on() -> None:
    sim = cluster(1)
    add_queue(sim, "team", 1, limit=1)
    add_labelled(sim, "low")
    sim.settle(5)
    add_labelled(sim, "high", priorityClassName="build")
    sim.settle(10)
    assert running(sim) == {"low"}
    add_class(sim, "build", 100)
    sim.settle(10)
    assert running(sim) == {"high"}


def test_who_says_so_is_not_preempted() -> None:
    sim = with_classes()
    add_labelled(sim, "train", **{"priorityClassName": "train", "kai.scheduler/preemptibility": "non-preemptible"})
    sim.settle(5)
    add_labelled(sim, "build", priorityClassName="build")
    sim.settle(10)
    assert running(sim) == {"train"}


def test_what_cannot_be_preempted_stays_within_the_quota_of_its_queue() -> None:
    sim = cluster(2)
    add_queue(sim, "team", 1)
    add_class(sim, "build", 100)
    for name in ("b0", "b1"):
        add_labelled(sim, name, priorityClassName="build")
    sim.settle(5)
    assert len(running(sim)) == 1
    [waits] = {"b0", "b1"} - running(sim)
    assert "would exceed its quota of gpu with pods that cannot be preempted" in sim.condition(waits)["message"]
    relabel(sim, waits, **{"kai.scheduler/preemptibility": "preemptible"})
    sim.settle(5)
    assert running(sim) == {"b0", "b1"}


def test_a_pod_that_named_the_wrong_queue_goes_to_another_when_its_label_says_so() -> None:
    sim = cluster(1)
    add_queue(sim, "team", 1)
    add_single(sim, "p", "taem")
    sim.settle(5)
    assert "queue taem does not exist" in sim.condition("p")["message"]
    relabel(sim, "p", **{"kai.scheduler/queue": "team"})
    sim.settle(5)
    assert running(sim) == {"p"}


def test_the_labels_mean_nothing_to_pods_of_no_queue() -> None:
    """Their priority is their own: labels of that name are anybody's."""
    sim = cluster(1)
    add_class(sim, "build", 100)
    sim.add_pod("first", requests={"nvidia.com/gpu": "1"})
    sim.settle(5)
    sim.add_pod("second", requests={"nvidia.com/gpu": "1"}, labels={"priorityClassName": "build"})
    sim.settle(10)
    assert running(sim) == {"first"}
