"""Looking for victims in vain leaves no trace and is refused before pods are taken out one by one."""

from __future__ import annotations

from typing import Any

import pytest
from scheduling_cluster import Sim, pod

from dray.api import kinds
from dray.books.journal import Books


def full(nodes: int, pods: int) -> Sim:
    sim = Sim()
    for number in range(nodes):
        sim.add_node(f"n{number}", cpu=str(pods), memory="1Ti", pods="200")
        for index in range(pods):
            name = f"p{number}-{index}"
            sim.api.put(kinds.PODS, pod(name, requests={"cpu": "1"}, node_name=f"n{number}", phase="Running", priority=1))
    sim.settle()
    return sim


def traces(sim: Sim) -> tuple[Any, ...]:
    scheduler = sim.scheduler
    wakeups = scheduler.parts.wakeups
    states = {info.name: scheduler.nodes.state_of(info) for info in scheduler.nodes}
    return wakeups.nodes_changed.position, wakeups.devices_freed.position, scheduler.engine.inventory.epoch, states


def test_a_pod_for_which_no_eviction_helps_moves_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    sim = full(16, 40)
    posted: list[str] = []
    post = Books.post
    before = traces(sim)
    monkeypatch.setattr(Books, "post", lambda self, *args: (posted.append(args[1]), post(self, *args))[1])
    sim.add_pod("huge", requests={"cpu": "41"}, priority=100)
    sim.settle(2)
    assert sim.node_of("huge") == ""
    assert posted == []
    assert traces(sim) == before


def test_trying_to_evict_in_vain_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose port it is can only be found out by taking pods out: everything is put back, and nobody hears of it."""
    sim = Sim()
    sim.add_class()
    sim.add_slice("", 4)
    for number in range(4):
        sim.add_node(f"n{number}")
        sim.add_claim(f"c{number}")
        sim.add_pod(f"low{number}", claims=[f"c{number}"], priority=1)
    sim.settle(5)
    before = traces(sim)
    sim.add_claim("c", count=5)
    sim.add_pod("high", claims=["c"], priority=100)
    sim.settle(2)
    assert sim.node_of("high") == ""
    assert traces(sim) == before
