"""What an annotation says of a device is what its driver publishes: taints that come and go, devices that leave and return."""

from __future__ import annotations

from typing import Any

import pytest

from dray.api.gates import Gates
from dray.api.kinds import EVENTS, RESOURCE_SLICES
from dray.nodes.faults import DeviceFaults
from dray.runtime.faults import NONE, Crash, Faults
from tests.simulated import Place

OTHER = {"key": "example.com/other", "value": "x", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}


def begin(pools: int = 1, faults: Faults = NONE, seed: int = 0, gates: Gates | None = None, **device: Any) -> Place:
    """A pool of two devices in each of its slices: ``gpu-0`` and ``gpu-1`` in ``slice-0``, and so on."""
    place = Place(seed, faults, gates)
    place.start("drivers", DeviceFaults.kinds, lambda world: [DeviceFaults(world)])
    for number in range(pools):
        spec = {
            "driver": "gpu.example.com",
            "nodeName": "n",
            "pool": {"name": "n", "generation": 1, "resourceSliceCount": pools},
            "devices": [{"name": f"gpu-{2 * number + each}", "attributes": {"n": {"int": each}}, **device} for each in range(2)],
        }
        labels = {"dray.dev/simulated": "true"}
        place.create(RESOURCE_SLICES, {"metadata": {"name": f"slice-{number}", "labels": labels}, "spec": spec})
    place.shell.run(1)
    return place


def annotate(place: Place, text: str | None, device: str = "gpu-1", slice_: str = "slice-0") -> None:
    place.patch(RESOURCE_SLICES, slice_, {"metadata": {"annotations": {f"fault.dray.dev/{device}": text}}})


def devices(place: Place, slice_: str = "slice-0") -> dict[str, dict[str, Any]]:
    found = place.get(RESOURCE_SLICES, slice_)
    assert found is not None
    return {device["name"]: device for device in found["spec"].get("devices", [])}


def generations(place: Place) -> list[int]:
    return [each["spec"]["pool"]["generation"] for each in place.all(RESOURCE_SLICES)]


@pytest.mark.parametrize(
    ("text", "effect", "value"),
    [
        ("XID 79: fell off the bus", "NoExecute", "XID-79-fell-off-the-bus"),
        ("NoSchedule ECC errors", "NoSchedule", "ECC-errors"),
        ("None", "None", "the-device-is-unhealthy"),
    ],
)
def test_a_fault_is_a_taint_that_goes_with_it(text: str, effect: str, value: str) -> None:
    place = begin(taints=[OTHER])
    annotate(place, text)
    place.shell.run(10)
    first, taint = devices(place)["gpu-1"]["taints"]
    assert (first, taint["key"], taint["effect"], taint["value"]) == (OTHER, "dray.dev/unhealthy", effect, value)
    assert taint["timeAdded"]
    assert devices(place)["gpu-0"]["taints"] == [OTHER]
    annotate(place, None)
    place.shell.run(20)
    assert devices(place)["gpu-1"]["taints"] == [OTHER]
    assert generations(place) == [1]


def test_a_fault_may_be_said_on_any_slice_of_the_pool() -> None:
    place = begin(2)
    annotate(place, "hot", device="gpu-3", slice_="slice-0")
    place.shell.run(10)
    assert [taint["value"] for taint in devices(place, "slice-1")["gpu-3"]["taints"]] == ["hot"]


def test_a_fault_of_a_device_that_is_not_there_is_told() -> None:
    place = begin(2)
    annotate(place, "hot", device="gpu-9")
    place.shell.run(10)
    (event,) = place.all(EVENTS)
    assert (event["reason"], event["message"]) == (
        "UnknownDevice",
        "annotation fault.dray.dev/gpu-9: the pool has no device gpu-9",
    )


def test_an_unplugged_device_leaves_the_pool_and_comes_back_as_it_was() -> None:
    place = begin(3)
    before = devices(place)["gpu-1"]
    annotate(place, "unplugged")
    place.shell.run(10)
    assert list(devices(place)) == ["gpu-0"]
    assert generations(place) == [2, 2, 2]
    annotate(place, None)
    place.shell.run(20)
    assert devices(place)["gpu-1"] == before
    assert generations(place) == [3, 3, 3]


def test_the_last_device_of_a_slice_can_leave_and_come_back() -> None:
    place = begin()
    annotate(place, "unplugged", "gpu-0")
    annotate(place, "unplugged", "gpu-1")
    place.shell.run(10)
    assert devices(place) == {}
    annotate(place, None, "gpu-0")
    place.shell.run(20)
    assert list(devices(place)) == ["gpu-0"]


@pytest.mark.parametrize("seed", range(5))
def test_a_driver_that_is_killed_meanwhile_leaves_no_pool_incomplete(seed: int) -> None:
    faults = Faults(conflict=0.2, lost_answer=0.2, crash_per_write=0.3, until=30.0, crashes=(Crash(5.0, "drivers"),))
    place = begin(4, faults, seed)
    annotate(place, "unplugged")
    place.shell.run(15)
    annotate(place, None)
    place.shell.run(120)
    assert len(set(generations(place))) == 1
    assert sorted(devices(place)) == ["gpu-0", "gpu-1"]


def test_a_server_that_drops_taints_is_not_asked_again_and_again() -> None:
    place = begin(gates=Gates.dray().updated({"DRADeviceTaints": False}))
    before = place.get(RESOURCE_SLICES, "slice-0")
    annotate(place, "NoSchedule too hot")
    place.shell.run(50)
    after = place.get(RESOURCE_SLICES, "slice-0")
    assert before is not None
    assert after is not None
    assert "taints" not in devices(place)["gpu-1"]
    assert after["metadata"]["generation"] - before["metadata"]["generation"] <= 1
