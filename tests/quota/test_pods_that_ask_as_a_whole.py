"""Pods that ask for cpu, memory and huge pages as a whole: what they leave open is filled in, and it is what counts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.quota.room import LIMIT_RANGES, PODS, Room, pod

Json = dict[str, Any]


@pytest.fixture
def room() -> Room:
    return Room()


def whole(*containers: Json, requests: Json | None = None, limits: Json | None = None) -> Json:
    made = pod(resources={"requests": requests or {}, "limits": limits or {}})
    made["spec"]["containers"] = [{"name": f"c{n}", "image": "i", "resources": each} for n, each in enumerate(containers or [{}])]
    return made


# What is sent, and what is kept of the resources of the whole. Real servers are asked, too.
COMPLETED: list[tuple[Json, Json]] = [
    # nobody asks for any of it: up to the limit
    (whole(limits={"cpu": "2"}), {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}),
    # what the containers ask for
    (whole({"requests": {"cpu": "1"}}, limits={"cpu": "2"}), {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}),
    # of what the pod says nothing about, too; limited if every container is
    (
        whole({"limits": {"memory": "1Gi"}}, {"limits": {"memory": "512Mi"}}, requests={"cpu": "2"}),
        {"requests": {"cpu": "2", "memory": "1536Mi"}, "limits": {"memory": "1536Mi"}},
    ),
    (
        whole({"limits": {"memory": "1Gi"}}, {}, requests={"cpu": "2"}),
        {"requests": {"cpu": "2", "memory": "1Gi"}},
    ),
    # a limit is never below the request
    (
        whole({"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}, requests={"cpu": "4"}),
        {"requests": {"cpu": "4"}, "limits": {"cpu": "4"}},
    ),
    # huge pages: limits of all containers together, and requested
    (
        whole(
            {"limits": {"cpu": "1", "hugepages-2Mi": "4Mi"}},
            {"limits": {"cpu": "1", "hugepages-2Mi": "2Mi"}},
            limits={"cpu": "2"},
        ),
        {"requests": {"cpu": "2", "hugepages-2Mi": "6Mi"}, "limits": {"cpu": "2", "hugepages-2Mi": "6Mi"}},
    ),
    # what only containers can ask for is left to them
    (
        whole({"limits": {"example.com/gpu": "1", "cpu": "1"}}, limits={"cpu": "2"}),
        {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}},
    ),
]

# What is sent, and what is said of it.
REFUSED: list[tuple[Json, str]] = [
    (
        whole({"requests": {"cpu": "2"}}, limits={"cpu": "1"}),
        'spec.resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1',
    ),
    (
        whole({"requests": {"cpu": "1"}}, {"requests": {"cpu": "1"}}, requests={"cpu": "1"}),
        'spec.resources.requests[cpu]: Invalid value: "1": must be greater than or equal to aggregate container requests of 2',
    ),
    (
        whole({"requests": {"cpu": "1"}, "limits": {"cpu": "3"}}, limits={"cpu": "2"}),
        'spec.resources.containers[0][cpu].limits: Invalid value: "3": must be less than or equal to pod limits of 2',
    ),
    (
        whole(requests={"ephemeral-storage": "1Gi"}),
        (
            'spec.resources.requests[ephemeral-storage]: Unsupported value: "ephemeral-storage": '
            'supported values: "cpu", "hugepages-", "memory"'
        ),
    ),
    (
        whole(limits={"cpu": "1", "hugepages-2Mi": "3Mi"}, requests={"hugepages-2Mi": "2Mi"}),
        (
            '[spec.resources.limits[hugepages-2Mi]: Invalid value: "3Mi": 3Mi is not positive integer multiple of hugepages-2Mi, '
            'spec.resources.requests: Invalid value: "2Mi": must be equal to hugepages-2Mi limit of 3Mi]'
        ),
    ),
    (
        whole(requests={"cpu": "1", "hugepages-2Mi": "2Mi"}),
        "spec.resources.limits: Required value: Limit must be set for non overcommitable resources",
    ),
]


@pytest.mark.parametrize(("given", "expected"), COMPLETED)
def test_what_the_pod_leaves_open_follows_from_its_containers(room: Room, given: Json, expected: Json) -> None:
    made = room.post(PODS, given)["spec"]["resources"]
    assert {field: amounts for field, amounts in made.items() if amounts} == expected


def test_a_limit_range_fills_in_containers_first(room: Room) -> None:
    item = {"type": "Container", "default": {"cpu": "500m"}, "defaultRequest": {"cpu": "300m"}}
    room.post(LIMIT_RANGES, {"metadata": {"name": "limits"}, "spec": {"limits": [item]}})
    made = room.post(PODS, whole({}, {}, limits={"cpu": "2"}))
    assert made["spec"]["resources"]["requests"] == {"cpu": "600m"}
    assert made["status"]["qosClass"] == "Burstable"


@pytest.mark.parametrize(("given", "told"), REFUSED)
def test_a_pod_with_less_than_its_containers_need_is_refused(room: Room, given: Json, told: str) -> None:
    assert room.post(PODS, given, code=422)["message"] == f'Pod "p" is invalid: {told}'


def test_a_client_that_does_not_know_the_field_does_not_clear_it(room: Room) -> None:
    made = room.post(PODS, whole(limits={"cpu": "2"}))
    asked = made["spec"].pop("resources")
    made["metadata"]["labels"] = {"a": "b"}
    assert room.put(f"{PODS}/p", made)["spec"]["resources"] == asked


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (whole(limits={"cpu": "1", "memory": "1Gi"}), "Guaranteed"),
        (whole({"requests": {"cpu": "500m"}}, limits={"cpu": "1", "memory": "1Gi"}), "Burstable"),
        (whole({"limits": {"cpu": "1", "memory": "1Gi"}}), "Guaranteed"),
    ],
)
def test_quality_of_service_is_that_of_the_whole_if_it_asks(room: Room, given: Json, expected: str) -> None:
    assert room.post(PODS, given)["status"]["qosClass"] == expected


def test_quotas_count_what_the_whole_asks_for(room: Room) -> None:
    room.quota(**{"requests.cpu": "10", "limits.cpu": "10", "requests.hugepages-2Mi": "10Mi"})
    containers = {"requests": {"cpu": "1"}, "limits": {"cpu": "2", "hugepages-2Mi": "2Mi"}}
    room.post(PODS, whole(containers, containers, requests={"cpu": "3"}, limits={"cpu": "5"}))
    assert room.used() == {"requests.cpu": "3", "limits.cpu": "5", "requests.hugepages-2Mi": "4Mi"}


def test_containers_of_a_pod_that_asks_as_a_whole_need_not_say_what_a_quota_counts(room: Room) -> None:
    room.quota(**{"requests.cpu": "10", "limits.memory": "10Gi"})
    room.post(PODS, whole(requests={"cpu": "1"}))
    assert room.used() == {"requests.cpu": "1", "limits.memory": "0"}


def test_what_a_runtime_costs_is_not_judged_by_a_limit_range(room: Room) -> None:
    room.post(
        "/apis/node.k8s.io/v1/runtimeclasses", {"metadata": {"name": "r"}, "handler": "r", "overhead": {"podFixed": {"cpu": "1"}}}
    )
    room.post(LIMIT_RANGES, {"metadata": {"name": "limits"}, "spec": {"limits": [{"type": "Pod", "max": {"cpu": "2"}}]}})
    given = whole(limits={"cpu": "2"})
    given["spec"]["runtimeClassName"] = "r"
    assert room.post(PODS, given)["spec"]["overhead"] == {"cpu": "1"}


def test_a_limit_range_bounds_the_huge_pages_of_the_whole(room: Room) -> None:
    bounds = {"type": "Pod", "max": {"hugepages-2Mi": "4Mi"}}
    room.post(LIMIT_RANGES, {"metadata": {"name": "limits"}, "spec": {"limits": [bounds]}})
    of_container = {"limits": {"cpu": "1", "hugepages-2Mi": "2Mi"}}
    told = room.refused(PODS, whole(of_container, limits={"cpu": "1", "hugepages-2Mi": "6Mi"}))
    assert told.endswith("maximum hugepages-2Mi usage per Pod is 4Mi, but limit is 6Mi")
    room.post(PODS, whole(of_container, limits={"cpu": "1", "hugepages-2Mi": "4Mi"}))
