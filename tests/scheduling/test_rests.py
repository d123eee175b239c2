"""Devices that rest after a failure, and what is taken of them all the same."""

from __future__ import annotations

from typing import Any

import pytest
from scheduling_cluster import Sim

from dray.api.gates import Gates
from dray.api.meta import decode
from dray.api.resource import AllocationResult, DeviceKey
from dray.devices import Devices
from dray.scheduling.binding.rests import Rests


def test_a_device_of_which_a_pod_takes_two_shares_is_let_go_of_once() -> None:
    rests = Rests(Devices(Gates.dray()), 60.0)
    rests.rest(DeviceKey("d", "p", "memory"), 0.0)
    share = {"request": "r", "driver": "d", "pool": "p", "device": "memory"}
    results = [{**share, "shareID": name} for name in ("one", "two")]
    rests.taken(rests.holds([decode(AllocationResult, {"devices": {"results": results}})]))
    assert len(rests) == 0


class TestAPoolThatReachesAllNodes:
    """Every look for a place goes over all nodes; what rests is looked at in few of them, however much rests."""

    DEVICES = 30

    @pytest.fixture
    def looks(self, sim: Sim, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """A fabric of which all devices rest, the last ones longest; which pod was looked for a place for, each time."""
        sim.add_class()
        sim.add_node("n1")
        sim.add_node("n2")
        sim.add_slice("", self.DEVICES, pool="fabric")
        sim.settle()
        for number in reversed(range(self.DEVICES)):
            sim.scheduler.parts.rests.rest(DeviceKey("gpu.example.com", "fabric", f"gpu-{number}"), sim.now)
        seen: list[str] = []
        among = sim.scheduler.cycle.among

        def counted(state: Any, *more: Any) -> Any:
            seen.append(state.pod.metadata.name)
            return among(state, *more)

        monkeypatch.setattr(sim.scheduler.cycle, "among", counted)
        return seen

    def ask(self, sim: Sim, count: int) -> None:
        sim.add_claim("c", count=count)
        sim.add_pod("p", claims=["c"])
        sim.settle(1)

    def test_a_pod_that_nothing_of_it_would_help_costs_one_look(self, sim: Sim, looks: list[str]) -> None:
        self.ask(sim, self.DEVICES + 1)
        assert (sim.node_of("p"), looks) == ("", ["p"])

    @pytest.mark.parametrize("count", [1, 2, 7, 16, 17, 25])
    def test_a_pod_takes_those_that_rest_longest_after_few_looks(self, sim: Sim, looks: list[str], count: int) -> None:
        self.ask(sim, count)
        assert sim.node_of("p")
        assert len(looks) <= 6
        if count <= 16:  # beyond, all are one choice
            assert set(sim.devices_of("c")) == {f"fabric/gpu-{self.DEVICES - 1 - number}" for number in range(count)}
