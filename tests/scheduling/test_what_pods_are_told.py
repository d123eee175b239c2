"""People are told why a pod waits, as soon as it is known, but not every few seconds something else."""

from __future__ import annotations

import re
from typing import Any

import pytest
from scheduling_cluster import Sim

from dray.api import kinds
from dray.api.codes import CODES
from dray.api.core import Pod
from dray.api.meta import decode
from dray.books.demand import Demands
from dray.scheduling.placing.refusal import Refusal
from dray.scheduling.telling.reports import Reports
from dray.scheduling.waiting.queue import Queue, QueuedPod


def told(sim: Sim, name: str = "p") -> list[str]:
    """Everything that the pod's condition was made to say, in order."""
    writes = (write for write in sim.log if write.kind is kinds.PODS and write.name == name and write.subresource == "status")
    conditions = (each for write in writes for each in (write.body or {})["status"].get("conditions", ()))
    return [condition["message"] for condition in conditions]


class TestReasonsThatChangeToAndFro:
    """A pod is too large for the only node, which is cordoned and opened again and again."""

    @pytest.fixture
    def refused(self, sim: Sim) -> Sim:
        sim.add_node("n1")
        sim.add_pod("p", requests={"cpu": "100"})
        sim.settle()
        assert "not enough cpu" in sim.condition("p")["message"]
        return sim

    def toggle(self, sim: Sim, times: int) -> None:
        for number in range(times):
            sim.add_node("n1", unschedulable=number % 2 == 0)
            sim.settle(4)

    def test_are_told_at_once_at_first(self, refused: Sim) -> None:
        self.toggle(refused, 3)
        assert len(told(refused)) == 4
        assert "is cordoned" in refused.condition("p")["message"]

    def test_are_told_more_and_more_seldom(self, refused: Sim) -> None:
        self.toggle(refused, 150)
        assert len(told(refused)) < 35

    def test_are_told_in_the_end_when_they_last(self, refused: Sim) -> None:
        self.toggle(refused, 61)
        refused.settle(30)
        assert "is cordoned" in refused.condition("p")["message"]
        self.toggle(refused, 60)
        refused.settle(30)
        assert "not enough cpu" in refused.condition("p")["message"]

    def test_are_told_at_once_again_after_a_while(self, refused: Sim) -> None:
        self.toggle(refused, 61)
        refused.settle(100)
        refused.add_node("n1")
        refused.settle()
        assert "not enough cpu" in refused.condition("p")["message"]


class TestWhatPassesByItself:
    """A claim that is being allocated or given back: it is there in a moment, whenever in the life of a pod that happens."""

    @pytest.fixture
    def pending(self) -> QueuedPod:
        body: dict[str, Any] = {"metadata": {"name": "p", "namespace": "default", "uid": "p"}, "spec": {"containers": []}}
        pod = decode(Pod, body)
        return QueuedPod(pod, Demands().of(pod), 0.0)

    @pytest.fixture
    def queue(self, pending: QueuedPod) -> Queue:
        queue = Queue()
        queue.push(pending, 0.0)
        return queue

    def refuse(self, queue: Queue, reports: Reports, pending: QueuedPod, code: str, now: float) -> None:
        refusal = Refusal.of(code, "claim/default/c")
        queue.refuse(pending, code, refusal, frozenset(), now)
        reports.refused(pending, refusal, now)

    def test_is_not_told(self, queue: Queue, pending: QueuedPod) -> None:
        reports = Reports(queue)
        self.refuse(queue, reports, pending, "ClaimInFlight", 100.0)
        assert reports.writes(100.0) == []
        self.refuse(queue, reports, pending, "ClaimDeleting", 102.0)
        assert [write.verb for write in reports.writes(102.0)] == ["patch", "create"]

    def test_is_told_when_it_lasts(self, queue: Queue, pending: QueuedPod) -> None:
        reports = Reports(queue)
        for now in (100.0, 102.0, 104.0):
            self.refuse(queue, reports, pending, "ClaimInFlight", now)
        assert reports.next_due() == 105.0
        reports.tell_late(105.0)
        assert [write.verb for write in reports.writes(105.0)] == ["patch", "create"]
        assert reports.next_due() is None


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("GangBlocked", "member"),
        ("TopologyConstraint", "domain"),
        ("TopologyMissing", "level"),
        ("SubGroupMissing", "has"),
        ("QueueInvalid", "error"),
        ("QueueHasChildren", "children"),
        ("QueueOvertaking", "first"),
        ("QueueBehind", "first"),
        ("ClaimCrossed", "other"),
    ],
)
def test_a_reason_that_names_something_else_than_before_is_another_one(code: str, name: str) -> None:
    """Who was in the way may run by now: to be told of it any longer would send people the wrong way."""
    assert name in {part.strip("{}") for part in re.findall(r"{\w+}", CODES[code].says)}
    before = Refusal.of(code, "queue/team", **{name: "default/a"}, needed=1)
    assert before.says_the_same(Refusal.of(code, "queue/team", **{name: "default/a"}, needed=2))
    assert not before.says_the_same(Refusal.of(code, "queue/team", **{name: "default/b"}, needed=1))


def test_a_node_counts_once_although_several_claims_lack_the_same_there() -> None:
    sim = Sim()
    sim.add_class()
    for name in ("n0", "n1"):
        sim.add_node(name)
    for name in ("one", "two"):
        sim.add_claim(name)
    sim.add_pod("p", claims=["one", "two"])
    sim.settle(5)
    assert sim.condition("p")["message"].startswith(
        "0/2 nodes are available: 2 nodes have no device of class gpu for request req."
    )
