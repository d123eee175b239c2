"""The catalogue makes objects that the API accepts, the same ones each time, and the fabric attaches its devices."""

from __future__ import annotations

from typing import Any

import pytest

from dray.api.durations import seconds
from dray.api.kinds import DEVICE_CLASSES, NODES, RESOURCE_CLAIMS, RESOURCE_SLICES
from dray.nodes.fabric import Fabric
from dray.nodes.hardware import ATTACH_FAILED, ATTACHED, CATALOGUE, UnknownHardware, describe, hardware
from tests.simulated import Place

KINDS = {"DeviceClass": DEVICE_CLASSES, "ResourceSlice": RESOURCE_SLICES, "Node": NODES}


@pytest.mark.parametrize("name", CATALOGUE)
def test_everything_in_the_catalogue_is_accepted_by_the_api(name: str) -> None:
    place = Place()
    made = hardware([f"{name}:3"])
    for manifest in (*made.nodes, *made.objects):
        place.create(KINDS[manifest["kind"]], manifest)
    assert len(place.all(NODES)) == 3
    assert describe(name).endswith(".")


def test_every_pool_is_complete() -> None:
    pools: dict[tuple[str, str], list[int]] = {}
    for each in hardware([f"{name}:200" for name in CATALOGUE]).objects:
        if each["kind"] == "ResourceSlice":
            pool = each["spec"]["pool"]
            pools.setdefault((each["spec"]["driver"], pool["name"]), []).append(pool["resourceSliceCount"])
    assert all(counts == [len(counts)] * len(counts) for counts in pools.values())
    assert len(pools) == 3 * 200 + 1


def test_gpus_are_spread_over_two_zones_and_four_roots() -> None:
    (slice_,) = [each for each in hardware(["gpu8"]).objects if each["kind"] == "ResourceSlice"]
    attributes = [device["attributes"] for device in slice_["spec"]["devices"]]
    assert [a["numaNode"]["int"] for a in attributes] == [0] * 4 + [1] * 4
    assert len({a["resource.kubernetes.io/pcieRoot"]["string"] for a in attributes}) == 4


def test_the_same_request_makes_the_same_objects_and_classes_once() -> None:
    assert hardware(["gpu8:2", "mig"]) == hardware(["gpu8:2", "mig"])
    twice = hardware(["mig", "mig"]).objects
    assert len({each["metadata"]["name"] for each in twice}) == len(twice)


@pytest.mark.parametrize(
    ("request_", "words"),
    [("gpu9", "there is no hardware 'gpu9'; the catalogue has"), ("gpu8:none", "must be a number"), ("gpu8:0", "from 1 to")],
)
def test_a_wrong_request_says_what_there_is(request_: str, words: str) -> None:
    with pytest.raises(UnknownHardware, match=words):
        hardware([request_])


# -------------------------------------------------------------------------------------------------------------- fabric


def attach(place: Place, name: str, **annotations: str) -> None:
    """A claim with one fabric device allocated."""
    request = {"name": "gpu", "exactly": {"deviceClassName": "fabric-gpu.dray.dev"}}
    keyed = {f"fabric.dray.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    place.create(
        RESOURCE_CLAIMS, {"metadata": {"name": name, "annotations": keyed}, "spec": {"devices": {"requests": [request]}}}
    )
    result = {
        "request": "gpu", "driver": "fabric.dray.dev", "pool": "fabric-one", "device": f"gpu-{name}",
        "bindingConditions": [ATTACHED], "bindingFailureConditions": [ATTACH_FAILED],
    }  # fmt: skip
    place.patch(RESOURCE_CLAIMS, name, {"status": {"allocation": {"devices": {"results": [result]}}}}, subresource="status")


def conditions(place: Place, name: str) -> list[str]:
    found = place.get(RESOURCE_CLAIMS, name)
    assert found is not None
    devices: list[dict[str, Any]] = found["status"].get("devices", [])
    return [c["type"] for device in devices for c in device.get("conditions", []) if c["status"] == "True"]


@pytest.fixture
def place() -> Place:
    made = Place()
    made.start("fabric", (RESOURCE_CLAIMS,), lambda world: [Fabric(world)])
    return made


def test_a_device_is_attached_after_a_while(place: Place) -> None:
    attach(place, "a")
    place.shell.run(2)
    assert conditions(place, "a") == []
    place.shell.run(5)
    assert conditions(place, "a") == [ATTACHED]


def test_an_attach_can_fail_take_long_or_never_be_answered(place: Place) -> None:
    attach(place, "a", attach="fail")
    attach(place, "b", attach="silence")
    attach(place, "c", attach_seconds="1m")
    place.shell.run(30)
    assert [conditions(place, name) for name in "abc"] == [[ATTACH_FAILED], [], []]
    place.shell.run(70)
    assert conditions(place, "c") == [ATTACHED]


def test_the_node_is_read_from_the_claim(place: Place) -> None:
    attach(place, "a")
    claim = place.get(RESOURCE_CLAIMS, "a")
    assert claim is not None
    allocation = claim["status"]["allocation"]
    place.patch(RESOURCE_CLAIMS, "a", {"status": {"allocation": None}}, subresource="status")
    field = {"key": "metadata.name", "operator": "In", "values": ["fabric-0"]}
    allocation["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    place.patch(RESOURCE_CLAIMS, "a", {"status": {"allocation": allocation}}, subresource="status")
    place.shell.run(10)
    told = place.get(RESOURCE_CLAIMS, "a")["status"]["devices"][0]["conditions"][0]  # type: ignore[index]
    assert told["message"] == "the device is attached to node fabric-0"


def test_what_others_report_of_the_device_stays(place: Place) -> None:
    attach(place, "a")
    other = {"type": "Cooled", "status": "True", "reason": "Fan", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    entry = {"driver": "fabric.dray.dev", "pool": "fabric-one", "device": "gpu-a", "conditions": [other], "data": {"rack": 7}}
    place.patch(RESOURCE_CLAIMS, "a", {"status": {"devices": [entry]}}, subresource="status")
    place.shell.run(10)
    assert conditions(place, "a") == ["Cooled", ATTACHED]
    assert place.get(RESOURCE_CLAIMS, "a")["status"]["devices"][0]["data"] == {"rack": 7}  # type: ignore[index]


@pytest.mark.parametrize(("text", "expected"), [("30s", 30.0), ("1m30s", 90.0), ("500ms", 0.5), ("2", 2.0), ("1.5h", 5400.0)])
def test_durations_are_read_as_people_write_them(text: str, expected: float) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize("text", ["", "soon", "-1s", "1x", "s", "1s 2"])
def test_other_texts_are_no_durations(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        seconds(text)
