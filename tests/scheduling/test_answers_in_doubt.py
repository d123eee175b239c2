"""What was sent may come true although its answer says otherwise, or never comes: until that is known, nobody else gets it."""

from __future__ import annotations

from typing import Any

import pytest
from scheduling_cluster import Sim

from dray.api import kinds
from dray.cluster.port import ClusterError, Conflict, Forbidden, Refused, Unreachable, Write

DOUBTFUL = [
    Refused(500, "InternalError", "etcdserver: request timed out"),
    Refused(504, "Timeout", "request did not complete within the allotted timeout"),
    Conflict(409, "Conflict", "the object has been modified"),
    Unreachable("no answer"),
]


def of(error: ClusterError) -> str:
    return str(error).partition(":")[0]


class Doubted:
    """Answers writes like one with an error, the first of them or all; the first is kept and may be carried out later."""

    def __init__(self, sim: Sim, error: ClusterError, *, once: bool = True, **like: Any) -> None:
        self.sim, self.error, self.once, self.like = sim, error, once, like
        self.kept: Write | None = None
        sim.fault = self

    def __call__(self, write: Write) -> ClusterError | None:
        like = all(getattr(write, name) == value for name, value in self.like.items())
        if not like or (self.once and self.kept is not None):
            return None
        self.kept = self.kept or write
        return self.error

    def arrive(self) -> None:
        assert self.kept is not None
        self.sim.api.write(self.kept)


@pytest.fixture
def one_device(sim: Sim) -> Sim:
    sim.add_class()
    sim.add_node("n1")
    sim.add_slice("n1", 1)
    return sim


def abandoned(sim: Sim, error: ClusterError) -> Doubted:
    """The only device is written for the claim ``a`` with this answer; then its pod goes, and ``b`` wants the device."""
    sim.add_claim("a", metadata={"finalizers": ["resource.kubernetes.io/delete-protection"]})
    sim.add_claim("b")
    sim.add_pod("a", claims=["a"])
    doubted = Doubted(sim, error, kind=kinds.RESOURCE_CLAIMS, subresource="status")
    while doubted.kept is None:
        sim.step()
    sim.remove(kinds.PODS, "default/a")
    sim.add_pod("b", claims=["b"])
    sim.settle(5)
    return doubted


@pytest.mark.parametrize("error", DOUBTFUL, ids=of)
def test_a_device_that_may_have_been_given_away_is_nobody_elses(one_device: Sim, error: ClusterError) -> None:
    doubted = abandoned(one_device, error)
    assert one_device.devices_of("b") == []
    doubted.arrive()
    assert one_device.holders() == {"n1/gpu-0": ["a"]}
    one_device.settle(5)
    assert one_device.holders() == {"n1/gpu-0": ["b"]}, "whoever was to have it is gone"
    assert one_device.node_of("b") == "n1"


@pytest.mark.parametrize("error", DOUBTFUL, ids=of)
def test_it_is_given_to_others_when_it_cannot_come_true_any_more(one_device: Sim, error: ClusterError) -> None:
    abandoned(one_device, error)
    one_device.settle(70)
    assert one_device.holders() == {"n1/gpu-0": ["b"]}
    assert one_device.node_of("b") == "n1"


def test_what_was_refused_for_certain_is_free_at_once(one_device: Sim) -> None:
    abandoned(one_device, Forbidden(403, "Forbidden", "no"))
    assert one_device.holders() == {"n1/gpu-0": ["b"]}


@pytest.mark.parametrize("error", DOUBTFUL, ids=of)
def test_a_pod_that_may_be_bound_keeps_its_place_and_its_devices(one_device: Sim, error: ClusterError) -> None:
    one_device.add_node("n2")
    one_device.add_slice("n2", 1)
    one_device.add_claim("a")
    one_device.add_pod("a", claims=["a"])
    doubted = Doubted(one_device, error, once=False, subresource="binding")
    one_device.settle(2)
    (device,) = one_device.devices_of("a")
    one_device.settle(20)
    doubted.arrive()
    one_device.fault = None
    one_device.settle(5)
    assert one_device.node_of("a") == device.partition("/")[0]
    claim, pod = one_device.claim("a"), one_device.pod("a")
    assert one_device.devices_of("a") == [device]
    assert [user["uid"] for user in claim["status"]["reservedFor"]] == [pod["metadata"]["uid"]]


def test_a_pod_that_the_server_fails_to_bind_is_told_so(one_device: Sim) -> None:
    one_device.add_pod("a")
    Doubted(one_device, DOUBTFUL[0], once=False, subresource="binding")
    one_device.settle(30)
    assert "etcdserver: request timed out" in one_device.condition("a")["message"]
    assert len(one_device.events("FailedScheduling")) == 1
    one_device.fault = None
    one_device.settle(60)
    assert one_device.node_of("a") == "n1"


def test_a_reason_that_is_told_too_late_does_not_stay(sim: Sim) -> None:
    sim.add_node("n1", unschedulable=True)
    doubted = Doubted(sim, Unreachable("no answer"), kind=kinds.PODS, subresource="status")
    sim.add_pod("a", requests={"cpu": "100"})
    sim.settle(1)
    sim.api.put(kinds.NODES, sim.api.objects[kinds.NODES]["n1"] | {"spec": {}})
    sim.settle(10)
    assert "cpu" in sim.condition("a")["message"]
    doubted.arrive()
    assert "cordoned" in sim.condition("a")["message"]
    sim.settle(10)
    assert "cpu" in sim.condition("a")["message"]


@pytest.mark.parametrize(
    "like", [{"subresource": "binding"}, {"kind": kinds.RESOURCE_CLAIMS, "subresource": "status"}], ids=["bindings", "claims"]
)
def test_a_server_that_fails_for_a_day_is_asked_once_a_minute(one_device: Sim, like: dict[str, Any]) -> None:
    one_device.add_claim("a")
    one_device.add_pod("a", claims=["a"])
    doubted = Doubted(one_device, Refused(500, "InternalError", "etcdserver: no leader"), once=False, **like)
    for _ in range(20):
        one_device.settle(3_600)
    doubted.like = {"verb": "none"}
    one_device.settle(120)
    assert one_device.node_of("a") == "n1"


def test_a_claim_that_was_given_back_without_an_answer_is_not_relied_on(sim: Sim) -> None:
    """The write that takes the reservation back may come true later, also when the pod has been bound with the claim."""
    sim.add_class()
    sim.add_node("n1")
    sim.add_slice("n1", 1)
    sim.add_claim("c")
    sim.add_pod("p", claims=["c"])

    def fault(write: Write) -> ClusterError | None:
        if write.subresource == "binding":
            return Forbidden(403, "Forbidden", "no")
        gives_back = write.kind is kinds.RESOURCE_CLAIMS and (write.body or {}).get("status") == {"reservedFor": []}
        return Unreachable("nobody answers") if gives_back else None

    sim.fault = fault
    sim.settle(0.5)
    assert sim.claim("c")["status"]["reservedFor"], "the write is not there, and may yet be"
    sim.fault = None
    sim.settle(30)
    assert sim.node_of("p") == ""
    sim.settle(60)
    assert sim.node_of("p") == "n1"
