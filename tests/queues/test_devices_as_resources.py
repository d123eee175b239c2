"""It makes no difference whether GPUs are a resource of nodes or devices that claims ask for: the same clusters, both ways."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest

from dray.api.queues import GPU_RESOURCE
from dray.simulate.settle import Settled, Settling, WorldLine
from tests.queues.random_clusters import cluster

Json = dict[str, Any]
MANY = 300


def with_devices(world: Json) -> Json:
    """The same, with a claim for each pod that has GPUs."""
    claims, groups = list[Json](), list[Json]()
    for group in world["podgroups"]:
        pods = []
        for pod in group["pods"]:
            if count := pod["requests"]["gpu"]:
                claims.append({"name": pod["name"], "deviceClassName": GPU_RESOURCE, "count": count})
                pod = {**pod, "resource_claims": [pod["name"]]}
            pods.append(pod)
        groups.append({**group, "pods": pods})
    counts = {node["name"]: node["allocatable"]["gpu"] for node in world["nodes"]}
    slices = [{"nodeName": name, "DeviceClassName": GPU_RESOURCE, "Count": count} for name, count in counts.items()]
    devices = {"device_classes": [GPU_RESOURCE], "resource_slices": slices, "resource_claims": claims}
    return {**world, "podgroups": groups, "dra": devices}


def settled(world: Json) -> Settled:
    found = Settling(msgspec.convert(world, WorldLine)).settle()
    assert found.settled
    return found


def gpus(world: Json, found: Settled) -> Counter[str]:
    """By queue."""
    held = Counter[str]()
    for group in world["podgroups"]:
        running = [pod for pod in group["pods"] if found.pods[pod["name"]]["state"] == "Running"]
        held[group["queue"]] += sum(pod["requests"]["gpu"] for pod in running)
    return held


def outcomes(seed: int) -> list[tuple[Counter[str], int]]:
    """Of the resource and of devices: what each queue has in the end, and how many were evicted on the way."""
    world = cluster(seed)
    return [(gpus(world, found), found.evictions) for found in map(settled, (world, with_devices(world)))]


@pytest.mark.parametrize(
    ("seed", "what"),
    [
        (6, "a pod without claims moves though others that ask for the same have some"),
        (62, "nobody overtakes by evicting"),
        (118, "a gang starts where one pod moves for each of two members"),
        (131, "who was to start and is moved at once starts where it moves to"),
        (134, "of a gang only who has to go goes, and nobody to the node where it is"),
        (272, "those that need many devices sit first"),
    ],
)
def test_in_this_cluster(seed: int, what: str) -> None:
    resource, devices = outcomes(seed)
    assert devices == resource, what


def test_a_gang_starts_where_one_pod_moves_for_each_of_two_members() -> None:
    """Also where that is asked of cpu alone, and others were taken out in vain before."""
    found = settled(cluster(118))
    assert {found.pods[f"wait02-{index}"]["state"] for index in range(6)} == {"Running"}


@pytest.mark.slow
def test_in_most_clusters_the_same_and_in_all_of_them_no_less() -> None:
    """Where several places are as good, devices and amounts may choose differently, and what follows differs then."""
    found = [outcomes(seed) for seed in range(MANY)]
    assert sum(resource == devices for resource, devices in found) >= 0.95 * MANY
    assert sum(devices[0].total() for _, devices in found) >= sum(resource[0].total() for resource, _ in found)
    assert sum(devices[1] for _, devices in found) <= 1.05 * sum(resource[1] for resource, _ in found)
