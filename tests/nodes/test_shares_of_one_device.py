"""A claim with two shares of the same device."""

from __future__ import annotations

from dray.api.kinds import PODS
from dray.testing import VirtualCluster, assert_running, claim, device, device_class, node, pod, resource_slice


def test_its_pod_runs_and_is_told_of_the_device_once() -> None:
    cluster = VirtualCluster()
    cluster.start_all()
    card = device("nic", capacity={"bandwidth": "10"}, allowMultipleAllocations=True)
    twice = claim("c", capacity={"requests": {"bandwidth": "4"}})
    (first,) = twice["spec"]["devices"]["requests"]
    twice["spec"]["devices"]["requests"] = [first, {**first, "name": "more"}]
    cluster.create(device_class("gpu"), node("n1"), resource_slice("n1", [card]), twice, pod("p", claims=["c"]))
    cluster.run(10)
    assert_running(cluster, "p")
    status = cluster.get(PODS, "p")["status"]["containerStatuses"][0]["allocatedResourcesStatus"]  # type: ignore[index]
    assert [entry["resourceID"] for entry in status[0]["resources"]] == ["gpu.example.com/device=n1-nic"]
