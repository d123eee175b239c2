"""Room that is made for a gang while people change its queue or its pod group: it does not start as it may not any more."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dray.api import kinds
from tests.scheduling.gangs import add_group, add_member, add_queue, add_single, cluster, running
from tests.scheduling.scheduling_cluster import Sim
from tests.scheduling.test_making_room_for_gangs import deletions

Change = Callable[[Sim], object]


def leaving() -> Sim:
    """Two pods of one queue leave for a gang of two of another, and take their time."""
    sim = cluster(2)
    add_queue(sim, "lender", 0)
    add_queue(sim, "team", 2)
    for index in range(2):
        add_single(sim, f"v{index}", "lender")
    sim.settle(4)
    for index in range(2):
        known = sim.pod(f"v{index}")
        sim.api.put(kinds.PODS, known | {"metadata": known["metadata"] | {"finalizers": ["example.com/slow"]}})
    add_group(sim, "train", "team", 2)
    for index in range(2):
        add_member(sim, f"w{index}", "train")
    sim.settle(3)
    assert deletions(sim) == ["v0", "v1"]
    assert [sim.pod(name)["status"]["nominatedNodeName"] for name in ("w0", "w1")] == ["n0", "n0"]
    return sim


def gone(sim: Sim) -> None:
    for index in range(2):
        del sim.api.objects[kinds.PODS][f"default/v{index}"]
    sim.settle(5)


def is_in_another_queue(sim: Sim) -> None:
    add_queue(sim, "other", 0, limit=0)
    add_group(sim, "train", "other", 2)


def has_a_queue_above_with_less(sim: Sim) -> None:
    add_queue(sim, "above", 0, limit=1)
    add_queue(sim, "team", 2, parent="above")


def may_not_be_preempted_and_has_no_quota(sim: Sim) -> None:
    add_queue(sim, "team", 0)
    add_group(sim, "train", "team", 2, preemptibility="non-preemptible")


def needs_one_more_that_comes(sim: Sim) -> None:
    add_group(sim, "train", "team", 3)
    add_member(sim, "w2", "train")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda sim: add_group(sim, "train", "team", 3), "podgroup default/train has too few pods to start: 2 of 3."),
        (needs_one_more_that_comes, "podgroup default/train cannot start as a whole: 2 of 3 pods fit together"),
        (lambda sim: add_queue(sim, "team", 2, limit=1), "queue team would exceed its limit of gpu"),
        (has_a_queue_above_with_less, "queue above would exceed its limit of gpu"),
        (is_in_another_queue, "queue other would exceed its limit of gpu"),
        (may_not_be_preempted_and_has_no_quota, "queue team would exceed its quota of gpu with pods that cannot be preempted"),
        (lambda sim: sim.remove(kinds.QUEUES, "team"), "queue team does not exist."),
        (lambda sim: add_queue(sim, "below", 1, parent="team"), "queue team takes no pods itself"),
        (lambda sim: sim.remove(kinds.POD_GROUPS, "default/train"), "podgroup default/train does not exist."),
        (lambda sim: add_group(sim, "train", "team", 2, preemptionDelay="soon"), "podgroup default/train cannot be used"),
        (
            lambda sim: add_group(sim, "train", "team", 2, topologyConstraint={"topology": "t", "requiredTopologyLevel": "rack"}),
            "podgroup default/train names topology t, which does not exist",
        ),
    ],
)
def test_it_does_not_start_and_is_told_why(change: Change, told: str) -> None:
    sim = leaving()
    change(sim)
    sim.settle(2)
    gone(sim)
    assert running(sim) == set()
    assert told in sim.condition("w0")["message"]
    assert not sim.pod("w0")["status"].get("nominatedNodeName")


def test_who_is_no_more_in_its_way_then_is_as_free_as_others() -> None:
    """What was promised is nobody's any more."""
    sim = leaving()
    add_queue(sim, "team", 2, limit=0)
    add_single(sim, "o", "lender")
    gone(sim)
    assert running(sim) == {"o"}


@pytest.mark.parametrize(
    "change",
    [lambda sim: add_group(sim, "train", "team", 1), lambda sim: add_queue(sim, "team", 0, limit=2)],
)
def test_what_it_has_room_for_still_starts(change: Change) -> None:
    sim = leaving()
    change(sim)
    sim.settle(2)
    gone(sim)
    assert running(sim) == {"w0", "w1"}
    assert deletions(sim) == ["v0", "v1"]
