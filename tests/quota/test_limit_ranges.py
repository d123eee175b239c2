"""LimitRanges fill in what pods leave out and refuse what is out of bounds, in Kubernetes' words."""

from __future__ import annotations

from typing import Any

import pytest

from tests.quota.room import LIMIT_RANGES, PODS, VOLUMES, Room, pod


@pytest.fixture
def room() -> Room:
    return Room()


def limited(room: Room, *items: dict[str, Any]) -> None:
    room.post(LIMIT_RANGES, {"metadata": {"name": "limits"}, "spec": {"limits": list(items)}})


def test_containers_get_the_defaults_that_they_leave_out(room: Room) -> None:
    limited(room, {"type": "Container", "default": {"cpu": "500m", "memory": "1Gi"}, "defaultRequest": {"cpu": "100m"}})
    given = pod(requests={"memory": "512Mi"})
    given["spec"]["initContainers"] = [{"name": "i", "image": "i"}]
    made = room.post(PODS, given)
    assert made["spec"]["containers"][0]["resources"] == {
        "requests": {"cpu": "100m", "memory": "512Mi"},
        "limits": {"cpu": "500m", "memory": "1Gi"},
    }
    assert made["spec"]["initContainers"][0]["resources"]["requests"] == {"cpu": "100m", "memory": "1Gi"}
    assert made["status"]["qosClass"] == "Burstable"
    assert made["metadata"]["annotations"]["kubernetes.io/limit-ranger"] == (
        "LimitRanger plugin set: cpu request for container c; cpu, memory limit for container c; "
        "cpu, memory request for init container i; cpu, memory limit for init container i"
    )


def test_a_pod_that_says_everything_is_left_as_it_is(room: Room) -> None:
    limited(room, {"type": "Container", "default": {"cpu": "500m"}})
    made = room.post(PODS, pod(requests={"cpu": "1"}, limits={"cpu": "1"}))
    assert "annotations" not in made["metadata"]
    assert made["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}


@pytest.mark.parametrize(
    ("item", "given", "message"),
    [
        (
            {"min": {"cpu": "1"}},
            pod(requests={"cpu": "500m"}, limits={"cpu": "2"}),
            "minimum cpu usage per Container is 1, but request is 500m",
        ),
        ({"max": {"cpu": "1"}}, pod(limits={"cpu": "2"}), "maximum cpu usage per Container is 1, but limit is 2"),
        (
            {"maxLimitRequestRatio": {"cpu": "2"}},
            pod(requests={"cpu": "1"}, limits={"cpu": "3"}),
            "cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000",
        ),
        (
            {"maxLimitRequestRatio": {"cpu": "2"}},
            pod(requests={"cpu": "1"}),
            "cpu max limit to request ratio per Container is 2, but no limit is specified or limit is 0",
        ),
    ],
)
def test_a_container_out_of_bounds_is_refused(room: Room, item: dict[str, Any], given: dict[str, Any], message: str) -> None:
    limited(room, {"type": "Container", **item})
    assert room.refused(PODS, given) == f'pods "p" is forbidden: {message}'


def test_a_pod_is_judged_by_its_sum(room: Room) -> None:
    limited(room, {"type": "Pod", "max": {"cpu": "3"}, "min": {"memory": "1Gi"}})
    given = pod()
    resources = {"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"cpu": "2"}}
    given["spec"]["containers"] = [{"name": name, "image": "i", "resources": resources} for name in "ab"]
    assert room.refused(PODS, given).endswith("maximum cpu usage per Pod is 3, but limit is 4")
    assert room.refused(PODS, pod()) == (
        'pods "p" is forbidden: [minimum memory usage per Pod is 1Gi.  No request is specified, '
        "maximum cpu usage per Pod is 3.  No limit is specified]"
    )


def test_volume_claims_have_bounds_when_they_are_made_and_when_they_grow(room: Room) -> None:
    limited(room, {"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "10Gi"}})

    def volume(storage: str) -> dict[str, Any]:
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": storage}}}
        return {"metadata": {"name": "v"}, "spec": spec}

    assert room.refused(VOLUMES, volume("512Mi")).endswith(
        "minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 512Mi"
    )
    assert room.refused(VOLUMES, volume("11Gi")).endswith(
        "maximum storage usage per PersistentVolumeClaim is 10Gi, but request is 11Gi"
    )
    room.post(VOLUMES, volume("5Gi"))
    grown = {"spec": {"resources": {"requests": {"storage": "11Gi"}}}}
    assert "maximum storage usage" in room.patch(f"{VOLUMES}/v", grown, code=403)["message"]
    room.patch(f"{VOLUMES}/v", {"metadata": {"labels": {"a": "b"}}})


def test_defaults_count_for_the_quota(room: Room) -> None:
    limited(room, {"type": "Container", "defaultRequest": {"cpu": "300m"}})
    room.quota(**{"requests.cpu": "500m"})
    room.post(PODS, pod("a"))
    assert room.used() == {"requests.cpu": "300m"}
    assert "requested: requests.cpu=300m" in room.refused(PODS, pod("b"))


def test_limit_ranges_that_make_no_sense_are_refused(room: Room) -> None:
    def wrong(*items: dict[str, Any]) -> str:
        found: str = room.post(LIMIT_RANGES, {"metadata": {"name": "x"}, "spec": {"limits": list(items)}}, code=422)["message"]
        return found

    assert "min value 2 is greater than max value 1" in wrong({"type": "Pod", "min": {"cpu": "2"}, "max": {"cpu": "1"}})
    assert "may not be specified when `type` is 'Pod'" in wrong({"type": "Pod", "default": {"cpu": "2"}})
    assert "Duplicate value" in wrong({"type": "Pod", "max": {"cpu": "2"}}, {"type": "Pod", "max": {"cpu": "2"}})
    assert "either minimum or maximum storage value is required" in wrong({"type": "PersistentVolumeClaim"})
    assert "ratio 500m is less than 1" in wrong({"type": "Container", "maxLimitRequestRatio": {"cpu": "500m"}})
    both = {"type": "Container", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "2"}}
    assert "default request value 2 is greater than default limit value 1" in wrong(both)
