"""Devices count the same by every name and whichever way they were asked for (KEP-5004)."""

from __future__ import annotations

from typing import Any

import pytest

from dray.api.meta import decode
from dray.api.resource import ResourceClaim
from dray.quota.devices import of_claim
from tests.quota.room import (
    CLAIMS,
    CLASSES,
    GPU_DEVICES,
    GPU_EXPLICIT,
    GPU_IMPLICIT,
    GPU_NAMES,
    PODS,
    Room,
    claim,
    exactly,
    pod,
    special,
)


@pytest.fixture
def room() -> Room:
    made = Room()
    made.map_gpus()
    made.quota(**dict.fromkeys(GPU_NAMES, 40))
    return made


def gpus(room: Room) -> int:
    """What every name of the class shows; they must agree."""
    used = room.used()
    assert len({used.get(name, "0") for name in GPU_NAMES}) == 1, used
    return int(used.get(GPU_DEVICES, "0"))


@pytest.mark.parametrize(
    ("requests", "devices"),
    [
        ([exactly(5)], 5),
        ([exactly()], 1),
        ([exactly(allocationMode="All")], 32),
        ([exactly(2, name="a"), exactly(1, name="b")], 3),
        ([exactly(3, adminAccess=True)], 3),
        ([{"name": "r", "firstAvailable": [{"name": "a", "deviceClassName": "gpu", "count": n} for n in (2,)]}], 2),
    ],
)
def test_a_claim_is_charged_for_what_it_asks(room: Room, requests: list[dict[str, Any]], devices: int) -> None:
    room.patch("/api/v1/namespaces/default", {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}})
    room.post(CLAIMS, claim("c", *requests))
    assert gpus(room) == devices


def test_of_alternatives_the_largest_of_each_class_counts(room: Room) -> None:
    tpu = "tpu.deviceclass.resource.k8s.io/devices"
    room.quota("tpus", **{tpu: 40})
    alternatives = [
        {"name": "a", "deviceClassName": "gpu", "count": 2},
        {"name": "b", "deviceClassName": "gpu", "count": 1},
        {"name": "c", "deviceClassName": "tpu", "allocationMode": "All"},
    ]
    room.post(CLAIMS, claim("c", {"name": "r", "firstAvailable": alternatives}))
    assert gpus(room) == 2
    assert room.used("tpus") == {tpu: "32"}


def test_a_mode_of_the_future_is_not_counted() -> None:
    unknown = decode(ResourceClaim, claim("c", exactly(3, allocationMode="Sometimes"), {"name": "later", "someday": {}}))
    assert of_claim(unknown) == {}


def test_a_claim_beyond_the_quota_is_refused_by_each_name(room: Room) -> None:
    for name in GPU_NAMES:
        tight = Room()
        tight.map_gpus()
        tight.quota(**{name: 3})
        tight.post(CLAIMS, claim("one", exactly(2)))
        message = tight.refused(CLAIMS, claim("two", exactly(2)))
        assert message.endswith(f"exceeded quota: q, requested: {name}=2, used: {name}=2, limited: {name}=3")
        tight.post(CLAIMS, claim("three", exactly(1)))


@pytest.mark.parametrize("asked", ["example.com/gpu", "deviceclass.resource.kubernetes.io/gpu"])
def test_a_pod_is_charged_for_its_extended_resources_before_any_claim_exists(room: Room, asked: str) -> None:
    room.post(PODS, pod(limits={asked: "2"}))
    assert gpus(room) == 2


def test_the_claim_that_provides_a_pods_devices_is_not_charged_again(room: Room) -> None:
    owner = room.post(PODS, pod(limits={"example.com/gpu": "2"}))
    room.post(CLAIMS, special("made", owner, exactly(2)))
    assert gpus(room) == 2


def test_both_spellings_in_one_pod_add_up_and_its_claim_adds_nothing(room: Room) -> None:
    asked = {"example.com/gpu": "1", "deviceclass.resource.kubernetes.io/gpu": "1"}
    owner = room.post(PODS, pod(limits=asked))
    room.post(CLAIMS, special("made", owner, exactly(1, name="a"), exactly(1, name="b")))
    assert gpus(room) == 2


def test_what_a_claim_asks_beyond_its_pod_is_charged(room: Room) -> None:
    owner = room.post(PODS, pod(limits={"example.com/gpu": "1"}))
    room.post(CLAIMS, special("made", owner, exactly(5)))
    assert gpus(room) == 5


def test_only_the_oldest_claim_of_a_pod_is_exempt(room: Room) -> None:
    owner = room.post(PODS, pod(limits={"example.com/gpu": "1"}))
    room.post(CLAIMS, special("first", owner, exactly(1)))
    room.now += 1
    room.post(CLAIMS, special("a-second", owner, exactly(1)))
    assert gpus(room) == 2


def test_the_claim_that_the_pod_names_is_the_exempt_one(room: Room) -> None:
    owner = room.post(PODS, pod(limits={"example.com/gpu": "1"}))
    room.post(CLAIMS, special("old", owner, exactly(3)))
    room.now += 1
    mapping = {"containerName": "c", "resourceName": "example.com/gpu", "requestName": "r"}
    room.patch(
        f"{PODS}/p/status",
        {"status": {"extendedResourceClaimStatus": {"resourceClaimName": "new", "requestMappings": [mapping]}}},
    )
    room.post(CLAIMS, special("new", owner, exactly(1)))
    room.post(CLAIMS, claim("another", exactly(1)))
    assert gpus(room) == 1 + 3 + 1


def test_a_claim_that_outlives_its_pod_is_charged_in_its_place(room: Room) -> None:
    owner = room.post(PODS, pod(limits={"example.com/gpu": "1"}))
    room.post(CLAIMS, special("made", owner, exactly(1)))
    room.patch(f"{PODS}/p/status", {"status": {"phase": "Succeeded"}})
    room.post(CLAIMS, claim("another", exactly(1)))
    assert gpus(room) == 2


def test_a_pod_cannot_pose_as_the_owner_of_a_claim_that_it_does_not_have(room: Room) -> None:
    owner = {"metadata": {"name": "nobody", "uid": "00000000-0000-4000-8000-000000000000"}}
    room.post(CLAIMS, special("made", owner, exactly(2)))
    assert gpus(room) == 2


def test_a_pod_on_a_node_with_a_device_plugin_is_charged_to_the_class(room: Room) -> None:
    room.post(PODS, pod(limits={"example.com/gpu": "1"}, nodeName="with-plugin"))
    assert gpus(room) == 1


def test_a_pods_own_claim_fits_where_the_pod_itself_took_the_last_of_the_quota() -> None:
    room = Room()
    room.map_gpus()
    room.quota(**dict.fromkeys(GPU_NAMES, 1))
    owner = room.post(PODS, pod(limits={"example.com/gpu": "1"}))
    room.post(CLAIMS, special("made", owner, exactly(1)))
    assert gpus(room) == 1


def test_a_name_that_no_class_serves_counts_pods_only() -> None:
    room = Room()
    room.quota(**{GPU_EXPLICIT: 5, GPU_DEVICES: 5})
    room.post(CLAIMS, claim("c", exactly(2)))
    room.post(PODS, pod(limits={"example.com/gpu": "1"}))
    assert room.used() == {GPU_EXPLICIT: "1", GPU_DEVICES: "2"}


def test_a_class_that_takes_over_a_name_takes_over_its_usage(room: Room) -> None:
    room.post(PODS, pod(limits={"example.com/gpu": "1"}))
    room.quota("new", **{"newer.deviceclass.resource.k8s.io/devices": 9})
    room.now += 1
    room.map_gpus("newer")
    room.post(CLAIMS, claim("c", exactly(1, "newer")))
    assert room.used("new") == {"newer.deviceclass.resource.k8s.io/devices": "2"}
    assert room.used() == {GPU_EXPLICIT: "2", GPU_DEVICES: "0", GPU_IMPLICIT: "0"}
    room.delete(f"{CLASSES}/newer")
    room.post(CLAIMS, claim("d", exactly(1)))
    assert gpus(room) == 2
