"""KEP-5963 beneath schedulers: a driver does not prepare what its hardware cannot do beside what is in use."""

from __future__ import annotations

import json

import pytest

from dray.api.gates import Gates
from dray.api.kinds import EVENTS, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from dray.explain.failures import not_started
from dray.nodes.exclusion import GROUPS
from dray.nodes.hardware import hardware
from dray.testing import VirtualCluster, claim, pod

OFF = Gates.dray().updated({"DRADeviceCompatibilityGroups": False})
SLICE = "mig-timeslice.dray.dev"


def started(gates: Gates) -> VirtualCluster:
    """One GPU, as its driver publishes it."""
    cluster = VirtualCluster(gates=gates)
    made = hardware(["mig"])
    cluster.create(*(each for each in made.objects if each["kind"] == "DeviceClass"))
    slices = [each for each in made.objects if each["kind"] == "ResourceSlice"]
    for each in slices:
        each["spec"]["devices"] = [d for d in each["spec"].get("devices") or () if d["name"].startswith("gpu-0-")] or None
        each["spec"] = {key: value for key, value in each["spec"].items() if value is not None}
    cluster.create(*slices)
    cluster.start_scheduler()
    cluster.start_nodes(made.nodes)
    cluster.run(5)
    return cluster


def ask(cluster: VirtualCluster, name: str, cls: str) -> None:
    cluster.create(claim(name, device_class=cls), pod(name, claims=[name]))
    cluster.run(20)


def phase(cluster: VirtualCluster, name: str) -> str:
    found = cluster.get(PODS, name)
    assert found is not None
    return str(found["status"]["phase"])


def told(cluster: VirtualCluster, reason: str) -> list[str]:
    return [event["message"] for event in cluster.all(EVENTS) if event["reason"] == reason]


def test_a_server_without_the_feature_keeps_no_groups_and_the_driver_refuses() -> None:
    cluster = started(OFF)
    assert "compatibilityGroups" not in json.dumps([each["spec"] for each in cluster.all(RESOURCE_SLICES)])
    ask(cluster, "first", "mig-1g.dray.dev")
    ask(cluster, "second", SLICE)
    second = cluster.get(PODS, "second")
    assert second is not None
    assert second["spec"]["nodeName"] == "mig-0"
    assert (phase(cluster, "first"), phase(cluster, "second")) == ("Running", "Pending")
    (why,) = set(told(cluster, "FailedPrepareDynamicResources"))
    assert "device gpu-0-timeslice-0 (timesliced) is incompatible with others of counter set gpu-0" in why
    assert "gpu-0-1g-0: partitioned" in why
    (note,) = not_started(cluster.world().all(PODS)["default/second"], cluster.all(EVENTS))
    assert note == f"Its kubelet cannot start it: {why}."
    assert not_started(cluster.world().all(PODS)["default/first"], cluster.all(EVENTS)) == []


def test_it_is_prepared_when_the_others_are_gone() -> None:
    cluster = started(OFF)
    ask(cluster, "first", "mig-1g.dray.dev")
    ask(cluster, "second", SLICE)
    cluster.delete(PODS, "first")
    cluster.run(60)
    assert phase(cluster, "second") == "Running"


def test_what_runs_is_not_refused_when_the_kubelet_starts_again() -> None:
    cluster = started(OFF)
    ask(cluster, "zz-first", "mig-1g.dray.dev")
    ask(cluster, "second", SLICE)
    cluster.crash("nodes")
    cluster.run(30)
    assert (phase(cluster, "zz-first"), phase(cluster, "second")) == ("Running", "Pending")
    cluster.delete(PODS, "zz-first")
    cluster.run(60)
    assert phase(cluster, "second") == "Running"


@pytest.mark.parametrize("order", [("mig-1g.dray.dev", SLICE), (SLICE, "mig-1g.dray.dev")])
def test_with_the_feature_the_second_waits_for_its_node_and_no_driver_is_asked(order: tuple[str, str]) -> None:
    cluster = started(Gates.dray())
    ask(cluster, "first", order[0])
    ask(cluster, "second", order[1])
    second = cluster.get(PODS, "second")
    assert second is not None
    assert "nodeName" not in second["spec"]
    assert "incompatible with devices in use" in told(cluster, "FailedScheduling")[0]
    assert told(cluster, "FailedPrepareDynamicResources") == []


def test_devices_of_one_scheme_are_prepared_beside_each_other_either_way() -> None:
    for gates in (OFF, Gates.dray()):
        cluster = started(gates)
        ask(cluster, "first", "mig-1g.dray.dev")
        ask(cluster, "second", "mig-2g.dray.dev")
        assert (phase(cluster, "first"), phase(cluster, "second")) == ("Running", "Running")


def test_one_claim_with_both_is_refused() -> None:
    cluster = started(OFF)
    both = claim("both", device_class="mig-1g.dray.dev")
    (first,) = both["spec"]["devices"]["requests"]
    exactly = {**first["exactly"], "deviceClassName": SLICE}
    both["spec"]["devices"]["requests"].append({"name": "other", "exactly": exactly})
    cluster.create(both, pod("both", claims=["both"]))
    cluster.run(20)
    assert phase(cluster, "both") == "Pending"
    assert told(cluster, "FailedPrepareDynamicResources")


def test_who_only_looks_on_is_not_refused() -> None:
    cluster = started(OFF)
    ask(cluster, "first", "mig-1g.dray.dev")
    watching = claim("second", device_class=SLICE)
    watching["spec"]["devices"]["requests"][0]["exactly"]["adminAccess"] = True
    cluster.server.plant(
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": "default", "labels": {"resource.kubernetes.io/admin-access": "true"}},
        }
    )
    cluster.create(watching, pod("second", claims=["second"]))
    cluster.run(20)
    assert phase(cluster, "second") == "Running"


def test_an_annotation_that_makes_no_sense_keeps_nobody_waiting() -> None:
    cluster = started(OFF)
    for each in cluster.all(RESOURCE_SLICES):
        cluster.patch(RESOURCE_SLICES, each["metadata"]["name"], {"metadata": {"annotations": {GROUPS: "{no"}}})
    ask(cluster, "first", "mig-1g.dray.dev")
    ask(cluster, "second", SLICE)
    assert phase(cluster, "second") == "Running"
    assert len(cluster.all(RESOURCE_CLAIMS)) == 2
