"""What there is to know of zones is found out once: next to no work where no node has any, little for each pod where some do."""

from __future__ import annotations

import cProfile
import pstats
from pathlib import Path

import pytest
from scheduling_cluster import Sim
from zoned import add_zoned, aligned

from dray.numa import evaluate
from dray.numa.account import Held, ZoneAccount
from dray.numa.evaluate import Plan, Verdict
from dray.numa.layout import State
from dray.numa.tally import Tallies, Usage
from tests.numa.building import layout

PODS = 40


def calls(sim: Sim, pods: int) -> dict[str, float]:
    """Calls for each pod by module of the zones, when so many equal pods come."""
    for number in range(pods):
        sim.add_pod(f"p{number}", **aligned(1))
    profile = cProfile.Profile()
    profile.runcall(sim.settle)
    assert all(sim.node_of(f"p{number}") for number in range(pods))
    found: dict[str, float] = {}
    for (file, _, _), (count, *_) in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]
        path = Path(file)
        if path.parent.name == "numa" or path.name in ("numa.py", "zones.py", "zone_devices.py"):
            found[path.stem] = found.get(path.stem, 0) + count / pods
    return found


def test_where_no_node_has_zones_a_pod_costs_a_call_or_two(sim: Sim) -> None:
    for number in range(4):
        sim.add_node(f"n{number}", cpu="64", memory="64Gi")
    found = calls(sim, PODS)
    # What the pod says of zones is read, and that its node has none.
    assert sum(found.values()) < 6, found
    assert "evaluate" not in found
    assert "tally" not in found


def test_a_kubelet_is_predicted_once_for_each_state_and_not_for_each_pod_or_node(
    sim: Sim, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[State] = []
    real = evaluate.evaluate

    def watched(state: State, plan: Plan) -> Verdict:
        asked.append(state)
        return real(state, plan)

    monkeypatch.setattr(evaluate, "evaluate", watched)
    for number in range(PODS):
        add_zoned(sim, f"n{number}", {"cpu": 4}, {"cpu": 4})
    found = calls(sim, PODS)
    assert len(asked) <= 9  # a node has at most eight such pods
    assert found["evaluate"] < 4, found


def test_a_node_that_is_only_thought_of_is_not_answered_for_as_the_real_one(sim: Sim) -> None:
    add_zoned(sim, "n1", {"cpu": 4}, {"cpu": 4})
    for number in range(2):
        sim.add_pod(f"small{number}", **aligned(3, priority=1))
    sim.settle()
    sim.add_pod("large", **aligned(4, priority=100))
    sim.settle(30)
    # It was refused the node as it is, and got it without one of the others.
    assert sim.node_of("large") == "n1"


class TestTallies:
    NODE = layout({"cpu": 4, "memory": 100}, {"cpu": 4, "memory": 100}, policy="restricted", scope="pod")

    def held(self, node: str, place: int = 0, **more: str) -> Held:
        return Held(node, Usage(((place, (("cpu", 1000), ("memory", 10))),)), (), **more)  # type: ignore[arg-type]

    def test_nodes_share_one_where_they_have_the_same_taken_and_are_as_sure_of_it(self) -> None:
        account, all_ = ZoneAccount(), Tallies()
        for node in "abc":
            account.open(node, all_.empty(self.NODE))
        empty = account.tallies["a"]
        assert empty is account.tallies["b"]
        account.post("1", self.held("a"))
        account.post("2", self.held("b"))
        account.post("3", self.held("c", sure="starting"))
        assert account.tallies["a"] is account.tallies["b"]
        assert account.tallies["a"] is not account.tallies["c"]
        account.post("1", None)
        assert account.tallies["a"] is empty

    def test_a_node_without_zones_has_none(self) -> None:
        account = ZoneAccount()
        account.open("a", Tallies().empty(self.NODE))
        account.post("1", self.held("a"))
        account.close("a")
        assert "a" not in account.tallies
        assert account.entry("1") is None
