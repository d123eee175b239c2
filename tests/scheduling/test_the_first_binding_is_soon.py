"""Many pods wait and nothing is being written: the first of them do not wait for decisions about all the others."""

from __future__ import annotations

import pytest
from scheduling_cluster import Sim

from dray.api import kinds
from dray.cluster.port import Write
from dray.scheduling.config import Config


def crowd(sim: Sim, pods: int) -> Sim:
    sim.add_node("n", pods=str(pods))
    for number in range(pods):
        sim.add_pod(f"p{number}")
    return sim


def decided(sim: Sim) -> int:
    """By one call of ``act`` of which nothing is answered yet."""
    before = sim.scheduler.binder.in_flight
    sim.scheduler.act(sim.now)
    return sim.scheduler.binder.in_flight - before


def test_what_is_under_way_begins_small_and_doubles(sim: Sim) -> None:
    crowd(sim, 400)
    assert [decided(sim) for _ in range(6)] == [32, 32, 64, 128, 0, 0]


def test_no_more_is_under_way_than_the_configuration_says() -> None:
    sim = crowd(Sim(Config(in_flight=40)), 100)
    assert [decided(sim) for _ in range(3)] == [32, 8, 0]


def test_pods_that_fit_nowhere_do_not_count(sim: Sim) -> None:
    for number in range(100):
        sim.add_pod(f"large{number}", requests={"cpu": str(1000 + number)})
    crowd(sim, 100)
    assert decided(sim) == 32


@pytest.mark.parametrize("finalizer", [False, True])
def test_all_writes_for_a_pod_but_the_first_go_on_with_it(sim: Sim, finalizer: bool) -> None:
    sim.add_class()
    sim.add_node("n")
    sim.add_slice("n", 1)
    sim.add_claim("c", metadata={"finalizers": ["resource.kubernetes.io/delete-protection"]} if finalizer else {})
    sim.add_pod("p", claims=["c"])
    sim.settle()
    assert told(sim.log) == [
        *([] if finalizer else [("resourceclaims", "", False)]),
        ("resourceclaims", "status", not finalizer),
        ("pods", "binding", True),
    ]


def test_the_claim_for_extended_resources_is_what_its_pod_begins_with(sim: Sim) -> None:
    sim.add_class("gpu", extended="example.com/gpu")
    sim.add_node("n")
    sim.add_slice("n", 1)
    amounts = {"example.com/gpu": "1"}
    sim.add_pod("p", containers=[{"name": "main", "resources": {"requests": amounts, "limits": amounts}}])
    sim.settle()
    first, *others = told(sim.log)
    assert first == ("resourceclaims", "", False)
    assert {(plural, subresource) for plural, subresource, _ in others} == {
        ("resourceclaims", "status"),
        ("pods", "status"),
        ("pods", "binding"),
    }
    assert all(goes_on for _, _, goes_on in others)


def test_a_pod_without_devices_has_one_write_which_goes_on_with_nothing(sim: Sim) -> None:
    sim.add_node("n")
    sim.add_pod("p")
    sim.settle()
    assert told(sim.log) == [("pods", "binding", False)]


def told(writes: list[Write]) -> list[tuple[str, str, bool]]:
    return [(write.kind.plural, write.subresource, write.goes_on) for write in writes if write.kind is not kinds.EVENTS]
