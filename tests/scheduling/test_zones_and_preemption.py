"""Making room by zones: who is evicted leaves a slot that can be used, and a trial that is given up leaves no trace."""

from __future__ import annotations

from scheduling_cluster import Sim
from zoned import add_zoned, aligned, observe, record, started

from dray.api import kinds

CPU4 = {"cpu": 4}


def full(sim: Sim) -> None:
    """Zone 0 has a pod with three cores, zone 1 two with two cores each, which are more important."""
    add_zoned(sim, "n1", CPU4, CPU4)
    for name, cores, zone in (("a", 3, "zone0"), ("b", 2, "zone1"), ("c", 2, "zone1")):
        sim.add_pod(name, **aligned(cores), node_name="n1", phase="Running", priority=0 if name == "a" else 5)
        observe(sim, name, **{zone: {"cpu": str(cores)}})
        started(sim, name)


def deleted(sim: Sim) -> list[str]:
    return [write.name for write in sim.log if write.verb == "delete" and write.kind is kinds.PODS]


def test_the_victim_is_the_one_whose_zone_does() -> None:
    sim = Sim()
    full(sim)
    sim.add_pod("urgent", **aligned(4), priority=10)
    sim.settle(30)
    assert deleted(sim) == ["a"], "the four cores of b and c are no better, although one core of a is spare"
    assert record(sim, "urgent") == {"node-0": {"cpu": "4"}}


def test_one_is_evicted_where_it_would_take_two_of_another_zone_although_he_is_older() -> None:
    sim = Sim()
    add_zoned(sim, "n1", CPU4, CPU4)
    for name, cores, zone in (("a", 3, "zone0"), ("b", 2, "zone1"), ("c", 2, "zone1")):
        sim.add_pod(name, **aligned(cores), node_name="n1", phase="Running")
        observe(sim, name, **{zone: {"cpu": str(cores)}})
        started(sim, name)
    sim.add_pod("urgent", **aligned(4), priority=10)
    sim.settle(30)
    assert deleted(sim) == ["a"]
    assert record(sim, "urgent") == {"node-0": {"cpu": "4"}}


def test_nobody_is_evicted_where_no_zone_would_ever_do() -> None:
    sim = Sim()
    full(sim)
    sim.add_pod("urgent", **aligned(5), priority=10)
    sim.settle(30)
    assert deleted(sim) == []
    assert sim.node_of("urgent") == ""


def test_nobody_is_evicted_of_whom_it_is_not_known_where_he_is() -> None:
    """Its room would be nobody's: evicting it would free no zone that is known."""
    sim = Sim()
    add_zoned(sim, "n1", CPU4)
    sim.add_pod("known", **aligned(3), node_name="n1", phase="Running", priority=20)
    observe(sim, "known", zone0={"cpu": "3"})
    sim.add_pod("foreign", **aligned(1), node_name="n1", phase="Running")
    sim.add_pod("urgent", **aligned(2), priority=10)
    sim.settle(60)
    assert deleted(sim) == []


def test_a_slot_that_is_being_freed_is_kept_for_the_pod_it_is_freed_for() -> None:
    sim = Sim()
    full(sim)
    sim.api._stop = lambda write: None  # type: ignore[method-assign]
    sim.add_pod("urgent", **aligned(4), priority=10)
    sim.settle(5)
    assert sim.pod("urgent")["status"]["nominatedNodeName"] == "n1"
    sim.add_pod("late", **aligned(1))
    sim.settle(30)
    assert sim.node_of("late") == ""
    sim.api._server.uproot(kinds.PODS, "default/a")
    sim.settle(30)
    assert record(sim, "urgent") == {"node-0": {"cpu": "4"}}
    assert deleted(sim) == ["a"], "nobody else is evicted while the victim leaves"


def test_looking_for_victims_changes_nothing_in_the_books() -> None:
    sim = Sim()
    full(sim)
    sim.settle()
    account = sim.scheduler.parts.zones
    before = (dict(account.holders()), account.tallies["n1"])
    sim.add_pod("urgent", **aligned(4), priority=10, preemptionPolicy="Never")
    sim.add_pod("impossible", **aligned(5), priority=10)
    sim.settle()
    assert (dict(account.holders()), account.tallies["n1"]) == before


def test_a_pod_that_is_being_deleted_counts_until_it_is_gone() -> None:
    sim = Sim()
    full(sim)
    sim.api._stop = lambda write: None  # type: ignore[method-assign]
    sim.remove(kinds.PODS, "default/a")
    sim.add_pod("p", **aligned(2))
    sim.settle(20)
    assert sim.node_of("p") == ""
    sim.api._server.uproot(kinds.PODS, "default/a")
    sim.settle(20)
    assert record(sim, "p") == {"node-0": {"cpu": "2"}}
