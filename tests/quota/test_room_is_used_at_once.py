"""What a quota refused is tried again when there is room, long before a back-off would end."""

from __future__ import annotations

from typing import Any

import pytest

from dray.api.kinds import EVENTS, PODS, REPLICA_SETS, RESOURCE_CLAIMS, RESOURCE_QUOTAS
from dray.testing import VirtualCluster, claim_template, device_class, node_with_devices, pod

Plain = dict[str, Any]
LABELS = {"app": "w"}
TEMPLATE: Plain = {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
ONCE: Plain = {**TEMPLATE, "spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}
SELECTOR = {"selector": {"matchLabels": LABELS}}


def quota(**hard: str) -> Plain:
    named = {name.replace("__", "/").replace("_", "."): amount for name, amount in hard.items()}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": named}}


WORKLOADS: list[Plain] = [
    {"kind": "ReplicaSet", "apiVersion": "apps/v1", "spec": {"replicas": 4, "template": TEMPLATE, **SELECTOR}},
    {"kind": "Deployment", "apiVersion": "apps/v1", "spec": {"replicas": 4, "template": TEMPLATE, **SELECTOR}},
    {
        "kind": "StatefulSet",
        "apiVersion": "apps/v1",
        "spec": {"replicas": 4, "template": TEMPLATE, "serviceName": "w", "podManagementPolicy": "Parallel", **SELECTOR},
    },
    {"kind": "Job", "apiVersion": "batch/v1", "spec": {"parallelism": 4, "completions": 4, "template": ONCE}},
]


@pytest.fixture
def cluster() -> VirtualCluster:
    made = VirtualCluster()
    made.start_all()
    made.create(device_class("gpu"), *node_with_devices("n1", 8), claim_template("one"))
    return made


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload["kind"])
@pytest.mark.parametrize("how", ["more is allowed", "a pod goes", "the quota goes"])
def test_pods_that_were_refused_are_made_when_there_is_room(cluster: VirtualCluster, workload: Plain, how: str) -> None:
    cluster.create(quota(pods="3"), pod("other"))
    cluster.run(5)
    cluster.create({**workload, "metadata": {"name": "w", "namespace": "default"}})
    cluster.run(1000)
    assert len(cluster.all(PODS)) == 3
    if how == "more is allowed":
        cluster.patch(RESOURCE_QUOTAS, "q", {"spec": {"hard": {"pods": "4"}}})
    elif how == "the quota goes":
        cluster.delete(RESOURCE_QUOTAS, "q")
    else:
        cluster.delete(PODS, "other", gracePeriodSeconds=0)
    cluster.run(2)
    assert len(cluster.all(PODS, app="w")) == (4 if how == "the quota goes" else 3)


def test_replica_sets_of_a_deployment_too(cluster: VirtualCluster) -> None:
    cluster.create(quota(count__replicasets_apps="0"))
    cluster.create({**WORKLOADS[1], "metadata": {"name": "w", "namespace": "default"}})
    cluster.run(1000)
    assert cluster.all(REPLICA_SETS) == []
    cluster.patch(RESOURCE_QUOTAS, "q", {"spec": {"hard": {"count/replicasets.apps": "1"}}})
    cluster.run(2)
    assert len(cluster.all(REPLICA_SETS)) == 1


def test_claims_from_templates_too(cluster: VirtualCluster) -> None:
    cluster.create(quota(gpu_deviceclass_resource_k8s_io__devices="1"))
    cluster.create(pod("a", template="one"), pod("b", template="one"))
    cluster.run(1000)
    assert len(cluster.all(RESOURCE_CLAIMS)) == 1
    cluster.patch(RESOURCE_QUOTAS, "q", {"spec": {"hard": {"gpu.deviceclass.resource.k8s.io/devices": "2"}}})
    cluster.run(2)
    assert len(cluster.all(RESOURCE_CLAIMS)) == 2


def test_room_in_another_namespace_or_for_less_changes_nothing(cluster: VirtualCluster) -> None:
    elsewhere = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "elsewhere"}}
    other = quota(pods="1")
    other["metadata"]["namespace"] = "elsewhere"
    cluster.create(elsewhere, quota(pods="1"), other)
    cluster.create({**WORKLOADS[0], "metadata": {"name": "w", "namespace": "default"}})
    cluster.run(1000)
    refused = len(tried(cluster))
    assert refused < 60  # it rests longer and longer
    cluster.patch(RESOURCE_QUOTAS, "q", {"spec": {"hard": {"pods": "9"}}}, namespace="elsewhere")
    cluster.patch(RESOURCE_QUOTAS, "q", {"spec": {"hard": {"pods": "0"}}})
    cluster.run(2)
    assert len(tried(cluster)) == refused


def tried(cluster: VirtualCluster) -> list[Plain]:
    """What was told of creates that failed."""
    return [event for event in cluster.all(EVENTS) if event.get("reason") == "FailedCreate"]
