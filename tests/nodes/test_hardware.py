"""The catalogue makes objects that the API accepts, the same ones each time, and the fabric attaches its devices."""

from __future__ import annotations

from typing import Any

import pytest

from dray.api.durations import seconds
from dray.api.kinds import DEVICE_CLASSES, NODES, RESOURCE_CLAIMS, RESOURCE_SLICES
from dray.nodes.fabric import Fabric
from dray.nodes.hardware import ATTACH_FAILED, ATTACHED, CATALOGUE, UnknownHardware, describe, hardware
from tests.simulated import Place

MADE = 4  # a multiple of what comes in blocks
KINDS = {"DeviceClass": DEVICE_CLASSES, "ResourceSlice": RESOURCE_SLICES, "Node": NODES}


@pytest.mark.parametrize("name", CATALOGUE)
def test_everything_in_the_catalogue_is_accepted_by_the_api(name: str) -> None:
    place = Place()
    made = hardware([f"{name}:{MADE}"])
    for manifest in (*made.nodes, *made.objects):
        place.create(KINDS[manifest["kind"]], manifest)
    assert len(place.all(NODES)) == MADE
    assert describe(name).endswith(".")


def test_every_pool_is_complete_and_every_counter_is_known() -> None:
    pools: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for each in hardware([f"{name}:40" for name in CATALOGUE]).objects:
        if each["kind"] == "ResourceSlice":
            pools.setdefault((each["spec"]["driver"], each["spec"]["pool"]["name"]), []).append(each["spec"])
    for slices in pools.values():
        assert [spec["pool"]["resourceSliceCount"] for spec in slices] == [len(slices)] * len(slices)
        known = {each["name"]: each["counters"].keys() for spec in slices for each in spec.get("sharedCounters", [])}
        used = [each for spec in slices for d in spec.get("devices", []) for each in d.get("consumesCounters", [])]
        assert all(each["counters"].keys() <= known[each["counterSet"]] for each in used)
        names = [device["name"] for spec in slices for device in spec.get("devices", [])]
        assert len(set(names)) == len(names)


def test_everything_that_is_made_says_that_it_is_simulated() -> None:
    made = hardware([f"{name}:4" for name in CATALOGUE])
    slices = [each for each in made.objects if each["kind"] == "ResourceSlice"]
    assert all(each["metadata"]["labels"]["dray.dev/simulated"] == "true" for each in (*made.nodes, *slices))


def test_a_gpu_of_the_catalogue_can_be_cut_as_the_real_one_can() -> None:
    """Seven 1g partitions, or two 3g, or one 7g, or the whole: by counters alone."""
    devices = {
        device["name"]: device
        for each in hardware(["h100-8"]).objects
        if each["spec"].get("driver") == "gpu.nvidia.com"
        for device in each["spec"].get("devices", [])
    }
    slices = {
        name: {key for key in device["consumesCounters"][0]["counters"] if key.startswith("memory-slice")}
        for name, device in devices.items()
        if name.startswith("gpu-0")
    }
    assert len(slices) == 1 + 7 + 4 + 3 + 2 + 1 + 1
    assert slices["gpu-0"] == slices["gpu-0-mig-0-0-8"] == {f"memory-slice-{n}" for n in range(8)}
    assert slices["gpu-0-mig-9-0-4"] & slices["gpu-0-mig-9-4-4"] == set()
    assert slices["gpu-0-mig-5-0-4"] == slices["gpu-0-mig-9-0-4"]
    assert devices["gpu-3-mig-19-6-1"]["attributes"]["profile"] == {"string": "1g.10gb"}


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
    [
        ("gpu9", "unknown hardware 'gpu9'; the catalogue has"),
        ("gpu8:none", "must be a number"),
        ("gpu8:²", "must be a number"),
        ("gpu8:0", "from 1 to"),
    ],
)
def test_a_wrong_request_says_what_there_is(request_: str, words: str) -> None:
    with pytest.raises(UnknownHardware, match=words):
        hardware([request_])


# -------------------------------------------------------------------------------------------------------------- fabric


def attach(place: Place, name: str, *, driver: str = "fabric.dray.dev", **annotations: str) -> None:
    """A claim with one fabric device allocated."""
    request = {"name": "gpu", "exactly": {"deviceClassName": "fabric-gpu.dray.dev"}}
    keyed = {f"fabric.dray.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    place.create(
        RESOURCE_CLAIMS, {"metadata": {"name": name, "annotations": keyed}, "spec": {"devices": {"requests": [request]}}}
    )
    result = {
        "request": "gpu", "driver": driver, "pool": "fabric-one", "device": f"gpu-{name}",
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
    made.start("fabric", Fabric.kinds, lambda world: [Fabric(world)])
    return made


def test_a_device_is_attached_after_a_while(place: Place) -> None:
    attach(place, "a")
    place.shell.run(2)
    assert conditions(place, "a") == []
    place.shell.run(5)
    assert conditions(place, "a") == [ATTACHED]


def test_what_is_said_on_the_pool_holds_for_its_devices_unless_the_claim_says_otherwise(place: Place) -> None:
    (slice_,) = [each for each in hardware(["fabric"]).objects if each["kind"] == "ResourceSlice"]
    slice_["metadata"]["annotations"] = {"fabric.dray.dev/attach-seconds": "1m", "fabric.dray.dev/failure-percent": "50"}
    place.create(RESOURCE_SLICES, slice_)
    attach(place, "quick", attach_seconds="1s", attach="succeed")
    names = [f"c{number}" for number in range(40)]
    for name in names:
        attach(place, name)
    place.shell.run(30)
    assert [conditions(place, name) for name in ("quick", "c0")] == [[ATTACHED], []]
    place.shell.run(90)
    failed = [name for name in names if conditions(place, name) == [ATTACH_FAILED]]
    assert 8 <= len(failed) <= 32
    assert all(conditions(place, name) == [ATTACHED] for name in names if name not in failed)


def test_devices_of_every_simulated_driver_are_attached_and_those_of_others_are_not(place: Place) -> None:
    for name, labels in (("ours", {"dray.dev/simulated": "true"}), ("theirs", {})):
        pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": f"{name}.example.com", "allNodes": True, "pool": pool, "devices": [{"name": "d"}]}
        place.create(RESOURCE_SLICES, {"metadata": {"name": name, "labels": labels}, "spec": spec})
        attach(place, name, driver=f"{name}.example.com")
    place.shell.run(10)
    assert [conditions(place, name) for name in ("ours", "theirs")] == [[ATTACHED], []]


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
