"""Pods whose init containers need more than their containers, on virtual time: what kubelets keep and what they give back."""

from __future__ import annotations

from typing import Any

import pytest

from dray.api.kinds import PODS
from dray.numa.placement import INIT_MEMORY_PREDICTED
from tests.numa.clusters import GPU, ZonedCluster, aligned_pod, zoned_node

Json = dict[str, Any]
ZONE = {"cpus": 8, "memory": "8Gi", "devices": {GPU: 4}}


def initialised_pod(name: str, init: Json, **more: Any) -> Json:
    """One core and 1Gi, after an init container with this; it takes a minute to get there."""
    made = aligned_pod(name, 1, memory="1Gi", annotations={"dray.dev/starts-after": "60s"}, **more)
    amounts = {"cpu": "1", "memory": "1Gi", **init}
    made["spec"]["initContainers"] = [{"name": "init", "image": "i", "resources": {"requests": amounts, "limits": amounts}}]
    return made


def cluster(*zones: Json, **more: Any) -> ZonedCluster:
    return ZonedCluster(zoned_node("n1", *(zones or (ZONE,)), **more))


@pytest.mark.parametrize("exporter", ["2s", None])
class TestWhileTheFirstPodIsInItsInitContainers:
    def test_memory_is_given_to_nobody_else_and_then_it_is(self, exporter: str | None) -> None:
        zones = cluster(exporter=exporter)
        zones.create(initialised_pod("first", {"memory": "7Gi"}))
        zones.run(30)
        zones.create(aligned_pod("second", 1, memory="4Gi"))
        zones.run(20)
        assert zones.phase("first") == "Pending"
        assert (zones.node_of("first"), zones.node_of("second")) == ("n1", "")
        zones.run(60)
        assert (zones.phase("first"), zones.phase("second")) == ("Running", "Running")
        assert zones.refused == 0

    def test_what_is_left_of_it_is_given_to_others_at_once(self, exporter: str | None) -> None:
        zones = cluster(exporter=exporter)
        zones.create(initialised_pod("first", {"memory": "5Gi"}))
        zones.run(20)
        zones.create(aligned_pod("second", 1, memory="3Gi"))
        zones.run(20)
        assert (zones.phase("first"), zones.phase("second")) == ("Pending", "Running")
        assert zones.refused == 0

    def test_a_scheduler_that_starts_again_knows_what_they_have(self, exporter: str | None) -> None:
        zones = cluster(exporter=exporter)
        zones.create(initialised_pod("first", {"memory": "7Gi"}))
        zones.run(20)
        zones.crash("scheduler")
        zones.create(aligned_pod("second", 1, memory="4Gi"))
        zones.run(20)
        assert (zones.phase("first"), zones.node_of("second")) == ("Pending", "")
        zones.run(60)
        assert zones.phase("second") == "Running"
        assert zones.refused == 0


@pytest.mark.parametrize(
    ("init", "other", "large", "small"), [({"cpu": "6"}, (5, 0), (4, 0), (2, 0)), ({GPU: "3"}, (1, 3), (1, 2), (1, 1))]
)
def test_cpus_and_devices_of_init_containers_are_free_when_the_pod_is_gone(
    init: Json, other: tuple[int, int], large: tuple[int, int], small: tuple[int, int]
) -> None:
    """Over both zones there is enough for the large pod all the time."""
    zones = cluster(ZONE, ZONE)
    zones.create(initialised_pod("first", init))
    zones.run(90)
    zones.create(aligned_pod("other", *other))
    zones.run(20)
    assert [zones.phase(name) for name in ("first", "other")] == ["Running", "Running"]
    zones.create(aligned_pod("large", *large))
    zones.run(30)
    assert zones.node_of("large") == ""
    zones.create(aligned_pod("small", *small))
    zones.run(30)
    assert [zones.phase(name) for name in ("large", "small")] == ["Pending", "Running"]
    zones.delete(PODS, "first")
    zones.run(60)
    assert zones.phase("large") == "Running"
    assert zones.refused == 0


def test_a_pod_without_such_init_containers_carries_no_record_of_them() -> None:
    zones = cluster()
    zones.create(initialised_pod("first", {}), initialised_pod("second", {"memory": "2Gi"}))
    zones.run(20)
    noted = {pod["metadata"]["name"]: pod["metadata"]["annotations"].get(INIT_MEMORY_PREDICTED) for pod in zones.all(PODS)}
    assert noted == {"first": None, "second": '[{"memoryNodes":["node-0"],"amount":{"memory":"1073741824"}}]'}


def test_cpus_that_no_container_after_them_could_use_count_where_they_are() -> None:
    """The container fills the first zone before it takes from the second what its init container left there: the pod keeps seven
    cores, although it never needs more than five at one time."""
    empty, gpus = {"cpus": 4, "memory": "64Gi"}, {"cpus": 4, "memory": "64Gi", "devices": {GPU: 1}}
    zones = cluster(empty, gpus, policy="restricted", scope="container", memoryManagerPolicy="None")
    first = aligned_pod("first", 5, annotations={"dray.dev/starts-after": "10s"})
    amounts = {"cpu": "3", "memory": "1Mi", GPU: "1"}
    first["spec"]["initContainers"] = [{"name": "init", "image": "i", "resources": {"requests": amounts, "limits": amounts}}]
    zones.create(first)
    zones.run(90)
    assert zones.phase("first") == "Running"
    zones.create(aligned_pod("second", 2), aligned_pod("third", 1))
    zones.run(60)
    assert [zones.phase(name) for name in ("second", "third")] == ["Pending", "Running"]
    assert zones.refused == 0
