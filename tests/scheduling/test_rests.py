"""Devices that rest after a failure, and what is taken of them all the same."""

from __future__ import annotations

from dray.api.gates import Gates
from dray.api.meta import decode
from dray.api.resource import AllocationResult
from dray.devices import Devices
from dray.scheduling.binding.conditions import Device
from dray.scheduling.binding.rests import Rests


def test_a_device_of_which_a_pod_takes_two_shares_is_let_go_of_once() -> None:
    rests = Rests(Devices(Gates.dray()), 60.0)
    rests.rest(Device("d", "p", "memory"), 0.0)
    share = {"request": "r", "driver": "d", "pool": "p", "device": "memory"}
    results = [{**share, "shareID": name} for name in ("one", "two")]
    rests.taken(rests.holds([decode(AllocationResult, {"devices": {"results": results}})]))
    assert len(rests) == 0
