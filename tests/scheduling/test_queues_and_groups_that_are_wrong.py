"""Queues and pod groups that cannot be gone by: their pods wait, and are told what is wrong with which object."""

from __future__ import annotations

from typing import Any

import pytest

from dray.api import kinds
from dray.explain.why import why
from tests.scheduling.gangs import UNLIMITED, add_group, add_member, add_queue, add_single, cluster, running
from tests.scheduling.scheduling_cluster import Sim


def told(sim: Sim, name: str) -> str:
    """What the pod's condition says, which is what dray why says."""
    sim.settle(5)
    message = str(sim.condition(name)["message"])
    summary = why(sim.world, sim.world.get(kinds.PODS, f"default/{name}"), now=sim.now).summary
    assert summary.endswith(message.replace(f"pod default/{name} ", "it "))
    return message


def change_queue(sim: Sim, name: str, **spec: Any) -> None:
    known = sim.api.objects[kinds.QUEUES][name]
    sim.api.put(kinds.QUEUES, {**known, "spec": {**known["spec"], **spec}})


class TestAQueue:
    def test_with_queues_below_it_takes_no_pods_itself(self) -> None:
        sim = cluster(4)
        add_queue(sim, "research", 4)
        add_queue(sim, "speech", 2, parent="research")
        add_queue(sim, "vision", 2, parent="research")
        add_single(sim, "p", "research")
        assert told(sim, "p") == "queue research takes no pods itself because it has queues below it: speech, vision."

    def test_that_gets_one_below_it_takes_no_pods_any_more(self) -> None:
        sim = cluster(1)
        add_queue(sim, "research", 4)
        for name in ("first", "second"):
            add_single(sim, name, "research")
        sim.settle(5)
        assert "not enough nvidia.com/gpu" in sim.condition("second")["message"]
        add_queue(sim, "speech", 2, parent="research")
        assert "it has queues below it: speech" in told(sim, "second")
        sim.remove(kinds.QUEUES, "speech")
        sim.remove(kinds.PODS, "default/first")
        sim.settle(10)
        assert running(sim) == {"second"}

    def test_wants_no_share_for_pods_that_it_does_not_take(self) -> None:
        sim = cluster(4)
        add_queue(sim, "research", 0)
        add_queue(sim, "speech", 0, parent="research")
        add_queue(sim, "other", 0)
        add_single(sim, "p", "research", gpus=4)
        for index in range(4):
            add_single(sim, f"o{index}", "other")
        sim.settle(10)
        assert sim.api.objects[kinds.QUEUES]["other"]["status"]["fairShare"]["nvidia.com/gpu"] == "4"

    def test_deserves_a_share_for_pods_that_it_took_before_it_had_queues_below_it(self) -> None:
        """Else all that is below it would be above its share, and leave for others."""
        sim = cluster(8)
        add_queue(sim, "research", 0)
        for index in range(2):
            add_single(sim, f"r{index}", "research")
        sim.settle(4)
        add_queue(sim, "speech", 0, parent="research")
        add_queue(sim, "other", 0)
        for index in range(2):
            add_single(sim, f"s{index}", "speech")
        sim.settle(4)
        for index in range(8):
            add_single(sim, f"o{index}", "other")
        sim.settle(10)
        assert {"r0", "r1", "s0", "s1"} < running(sim)
        assert len(running(sim)) == 8

    def test_that_cannot_be_used_any_more_keeps_no_numbers_of_when_it_was(self) -> None:
        sim = cluster(2)
        add_queue(sim, "above", 2)
        add_queue(sim, "team", 2, parent="above")
        add_single(sim, "p", "team")
        sim.settle(10)
        assert sim.api.objects[kinds.QUEUES]["team"]["status"]["allocated"] == {"nvidia.com/gpu": "1"}
        sim.remove(kinds.QUEUES, "above")
        add_single(sim, "late", "team")
        sim.settle(10)
        status = sim.api.objects[kinds.QUEUES]["team"]["status"]
        assert (status["allocated"], status["fairShare"], status["waitingPods"]) == ({}, {}, 1)

    def test_that_goes_while_pods_wait_in_it_is_told_as_missing(self) -> None:
        sim = cluster(0)
        add_queue(sim, "team", 1)
        add_queue(sim, "other", 1)
        add_single(sim, "p", "team")
        sim.settle(5)
        assert "0/1 nodes are available" in sim.condition("p")["message"]
        sim.remove(kinds.QUEUES, "team")
        assert told(sim, "p") == "queue team does not exist."

    def test_below_itself_is_told_with_the_way_round(self) -> None:
        sim = cluster(1)
        add_queue(sim, "a", 1, parent="b")
        add_queue(sim, "b", 1, parent="c")
        add_queue(sim, "c", 1, parent="b")
        for name in ("a", "b", "c"):
            add_single(sim, f"in-{name}", name)
        assert told(sim, "in-b") == "queue b cannot be used: it is its own ancestor: b below c below b."
        assert told(sim, "in-c") == "queue c cannot be used: its parent 'b' cannot be used."
        assert told(sim, "in-a") == "queue a cannot be used: its parent 'b' cannot be used."

    @pytest.mark.parametrize("first", ["above", "team"])
    def test_below_one_that_is_wrong_too_is_told_what_is_wrong_with_itself_whichever_came_first(self, first: str) -> None:
        sim = cluster(1)
        parents = {"above": "", "team": "above"}
        for name in sorted(parents, key=lambda name: name != first):
            add_queue(sim, name, 1, parent=parents[name])
            change_queue(sim, name, reclaimMinRuntime="1 day")
        add_single(sim, "p", "team")
        problem = "reclaimMinRuntime: '1 day' is not a duration; write 30s, 1m30s or 500ms"
        assert told(sim, "p") == f"queue team cannot be used: {problem}."

    @pytest.mark.parametrize(
        ("spec", "problem"),
        [
            ({"parentQueue": "nobody"}, "parent 'nobody' does not exist"),
            ({"preemptMinRuntime": "5 minutes"}, "preemptMinRuntime: '5 minutes' is not a duration; write 30s, 1m30s or 500ms"),
            ({"reclaimMinRuntime": "1 day"}, "reclaimMinRuntime: '1 day' is not a duration; write 30s, 1m30s or 500ms"),
            (
                {"resources": {"cpu": UNLIMITED, "memory": UNLIMITED, "gpu": {**UNLIMITED, "overQuotaWeight": -2}}},
                "overQuotaWeight of gpu is -2; it cannot be negative",
            ),
            (
                {"resources": {"cpu": UNLIMITED, "memory": {**UNLIMITED, "limit": -5}, "gpu": UNLIMITED}},
                "limit of memory is -5; it cannot be negative, but for -1, which is unlimited",
            ),
        ],
    )
    def test_that_cannot_be_gone_by_says_why_until_it_is_mended(self, spec: dict[str, Any], problem: str) -> None:
        sim = cluster(1)
        add_queue(sim, "team", 1)
        good = sim.api.objects[kinds.QUEUES]["team"]["spec"]
        change_queue(sim, "team", **spec)
        add_single(sim, "p", "team")
        assert told(sim, "p") == f"queue team cannot be used: {problem}."
        change_queue(sim, "team", **{**dict.fromkeys(spec), **good})
        sim.settle(5)
        assert running(sim) == {"p"}


class TestAPodGroup:
    @pytest.mark.parametrize(
        ("spec", "problem"),
        [
            ({"stalenessGracePeriod": "forever"}, "stalenessGracePeriod: 'forever' is not a duration; write 30s, 1m30s or 500ms"),
            ({"preemptionDelay": "2 days"}, "preemptionDelay: '2 days' is not a duration; write 30s, 1m30s or 500ms"),
            ({"minMember": -2}, "minMember is -2; it cannot be negative"),
            ({"subGroups": [{"name": "a", "minMember": -1}]}, "minMember of sub-group a is -1; it cannot be negative"),
            ({"subGroups": [{"name": "a", "minMember": 1}] * 2}, "sub-group a is given twice"),
            ({"subGroups": [{"name": "a", "parent": "b"}]}, "sub-group a names the parent b, which does not exist"),
            (
                {"subGroups": [{"name": "z"}, {"name": "a", "parent": "b"}, {"name": "b", "parent": "a"}]},
                "sub-group a is below itself",
            ),
        ],
    )
    def test_that_cannot_be_gone_by_says_why_until_it_is_mended(self, spec: dict[str, Any], problem: str) -> None:
        sim = cluster(4)
        add_queue(sim, "team", 4)
        add_group(sim, "train", "team", 1, **spec)
        add_member(sim, "p", "train", labels={"kai.scheduler/subgroup-name": "a"})
        assert told(sim, "p") == f"podgroup default/train cannot be used: {problem}."
        add_group(sim, "train", "team", 1)
        sim.settle(5)
        assert running(sim) == {"p"}

    def test_that_goes_leaves_its_pods_to_the_queue_of_the_oldest_whichever_was_seen_first(self) -> None:
        sim = cluster(4)
        for name in ("team", "other"):
            add_queue(sim, name, 2)
        add_group(sim, "train", "team", 1)
        for name in ("w1", "w0"):  # of the same second
            add_member(sim, name, "train", labels={"kai.scheduler/queue": "other"})
        sim.settle(5)
        sim.remove(kinds.POD_GROUPS, "default/train")
        sim.settle(1)  # which holds what is counted against what pods hold
        held = {name: sim.scheduler.workloads.use.allocated[name]["gpu"] for name in ("team", "other")}
        assert held == {"team": 0, "other": 2}

    def test_for_ever_is_a_negative_duration(self) -> None:
        sim = cluster(1)
        add_queue(sim, "team", 4)
        add_group(sim, "train", "team", 1, stalenessGracePeriod="-1s")
        add_member(sim, "p", "train")
        sim.settle(5)
        assert running(sim) == {"p"}


@pytest.mark.parametrize(
    ("labels", "said"), [({"kai.scheduler/subgroup-name": "workers"}, "names workers"), ({}, "names nothing")]
)
def test_a_pod_in_no_sub_group_of_its_group_is_told_which_there_are(labels: dict[str, str], said: str) -> None:
    sim = cluster(4)
    add_queue(sim, "team", 4)
    parts = [{"name": "leader", "minMember": 1}, {"name": "worker", "minMember": 1}]
    add_group(sim, "train", "team", 1, subGroups=parts)
    add_member(sim, "p0", "train", labels={"kai.scheduler/subgroup-name": "leader"})
    add_member(sim, "p1", "train", labels=labels)
    expected = f"{said} in the label kai.scheduler/subgroup-name, and has to name leader or worker of its pod group."
    assert told(sim, "p0") == told(sim, "p1") == f"pod default/p1 {expected}"
    changed = sim.pod("p1")
    changed["metadata"]["labels"] = {"kai.scheduler/subgroup-name": "worker"}
    sim.api.put(kinds.PODS, changed)
    sim.settle(5)
    assert running(sim) == {"p0", "p1"}


def test_who_is_named_of_a_gang_is_the_same_whoever_came_first() -> None:
    """What pods are told does not change because the scheduler was started again, or is asked by others."""
    said = set()
    for order in ((0, 1), (1, 0)):
        sim = cluster(4)
        add_queue(sim, "team", 4)
        add_group(sim, "train", "team", 2, subGroups=[{"name": "a", "minMember": 1}, {"name": "b", "minMember": 1}])
        for index in order:
            add_member(sim, f"w{index}", "train")
            sim.settle(2)
        said.add(told(sim, "w0"))
    assert len(said) == 1
    assert "pod default/w0" in said.pop()


def of_parts(sim: Sim, pods: dict[str, str], **spec: Any) -> None:
    """A gang of which two sub-groups with two pods each are enough, of three, and pods in these."""
    parts = [{"name": f"r{part}", "minMember": 2} for part in range(3)]
    add_group(sim, "replicas", "team", 0, minSubGroup=2, subGroups=parts, **spec)
    for name, part in pods.items():
        add_member(sim, name, "replicas", labels={"kai.scheduler/subgroup-name": part} if part else {})


ENOUGH = {"p0": "r0", "p1": "r0", "p2": "r1", "p3": "r1"}


def test_each_pod_in_no_sub_group_is_told_what_it_says_itself_whatever_stands_against_the_others() -> None:
    sim = cluster(8)
    add_queue(sim, "team", 8, limit=5)
    of_parts(sim, {**ENOUGH, "p4": "r2", "p5": "r2", "stray": "", "typo": "r3"})
    assert "would exceed its limit" in told(sim, "p4")
    assert told(sim, "stray").startswith("pod default/stray names nothing in the label")
    assert told(sim, "typo").startswith("pod default/typo names r3 in the label")


def test_of_a_gang_that_runs_the_part_that_lacks_pods_is_named() -> None:
    sim = cluster(8)
    add_queue(sim, "team", 8)
    of_parts(sim, {**ENOUGH, "p4": "r2"})
    assert told(sim, "p4") == "podgroup default/replicas has too few pods to start sub-group r2: 1 of 2."
    assert running(sim) == {*ENOUGH}


class TestNobodyMovesWhoCouldNotComeBack:
    """Who is evicted so that it starts elsewhere would wait there, because of its queue or its group."""

    def crowded(self) -> Sim:
        """Two nodes, each half full with a job of team: to free one, either moves."""
        sim = cluster(4, 4)
        add_queue(sim, "team", 8)
        add_queue(sim, "other", 8)
        for index in range(2):
            add_group(sim, f"g{index}", "team", 1)
            add_member(sim, f"s{index}", f"g{index}", 2, again=True)
        sim.settle(3)
        assert len({sim.node_of(f"s{index}") for index in range(2)}) == 2
        return sim

    def stays(self, sim: Sim) -> bool:
        add_single(sim, "large", "other", 4)
        sim.settle(5)
        return running(sim) == {"s0", "s1"}

    def test_else_it_moves(self) -> None:
        assert not self.stays(self.crowded())

    def test_where_its_queue_is_gone(self) -> None:
        sim = self.crowded()
        sim.remove(kinds.QUEUES, "team")
        assert self.stays(sim)

    def test_where_its_queue_got_one_below_it(self) -> None:
        sim = self.crowded()
        add_queue(sim, "below", 1, parent="team")
        assert self.stays(sim)

    def test_where_its_group_is_gone(self) -> None:
        sim = self.crowded()
        for index in range(2):
            sim.remove(kinds.POD_GROUPS, f"default/g{index}")
        assert self.stays(sim)
