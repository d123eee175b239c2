"""Devices of device plugins: hardware has them as capacity, pods get them one by one, and exporters are told which."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dray.api.kinds import NODES, PODS
from dray.nodes.hardware import hardware
from dray.nodes.kubelet import Kubelets
from dray.nodes.podresources import PodResources
from dray.numa import podresources as m
from dray.runtime.machines import Machines
from tests.simulated import Place

GPU = "example.com/gpu"
HARDWARE = """
apiVersion: dray.dev/v1alpha1
kind: Hardware
metadata: {name: plugged}
each:
- kind: Node
  status: {capacity: {cpu: 16, memory: 64Gi, example.com/gpu: 4, example.com/nic: 100000}, allocatable: {example.com/gpu: 3}}
"""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    file = tmp_path / "plugged.yaml"
    file.write_text(HARDWARE)
    made = Place()
    made.start("nodes", Machines.kinds, Machines(hardware([f"{file}:1"]).nodes, heartbeat=0).deciders)
    made.pass_time(1)
    return made


def resources(place: Place) -> PodResources:
    (kubelets,) = [each for each in place.shell.hosts["nodes"].deciders if isinstance(each, Kubelets)]
    return PodResources("plugged-0", kubelets)


def container(name: str, count: int, **more: Any) -> dict[str, Any]:
    return {"name": name, "image": "i", "resources": {"limits": {GPU: str(count)}}, **more}


def run(place: Place, name: str, *containers: dict[str, Any], **spec: Any) -> str:
    given = {"nodeName": "plugged-0", "containers": list(containers), **spec}
    place.create(PODS, {"metadata": {"name": name}, "spec": given})
    place.pass_time(5)
    found = place.get(PODS, name)
    assert found is not None
    return str(found["status"].get("reason") or found["status"]["phase"])


def told(place: Place) -> dict[str, dict[str, tuple[str, ...]]]:
    """Device ids by pod and container."""
    pods = resources(place).list(m.ListPodResourcesRequest()).pod_resources
    return {p.name: {c.name: c.devices[0].device_ids if c.devices else () for c in p.containers} for p in pods}


def test_each_container_gets_devices_of_its_own_and_a_pod_too_many_is_refused(place: Place) -> None:
    assert run(place, "a", container("x", 1), container("y", 1)) == "Running"
    assert run(place, "b", container("x", 1)) == "Running"
    assert run(place, "c", container("x", 1)) == f"OutOf{GPU}"
    shown = told(place)
    ids = [each for pod in shown.values() for devices in pod.values() for each in devices]
    assert (set(shown), len(ids), len(set(ids))) == ({"a", "b"}, 3, 3)


def test_an_init_container_leaves_its_devices_to_those_after_it(place: Place) -> None:
    assert run(place, "a", container("main", 2), initContainers=[container("first", 3)]) == "Running"
    assert len(told(place)["a"]["main"]) == 2


def test_what_a_pod_had_is_free_when_it_is_gone(place: Place) -> None:
    run(place, "a", container("x", 3))
    place.delete(PODS, "a", gracePeriodSeconds=0)
    place.pass_time(5)
    assert run(place, "b", container("x", 3)) == "Running"
    assert len(told(place)["b"]["x"]) == 3


def test_only_healthy_devices_can_be_allocated_and_amounts_are_no_devices(place: Place) -> None:
    (devices,) = resources(place).allocatable(m.AllocatableResourcesRequest()).devices
    assert (devices.resource_name, len(devices.device_ids)) == (GPU, 3)


def test_a_restarted_kubelet_knows_who_has_what(place: Place) -> None:
    run(place, "a", container("x", 2))
    before = told(place)
    place.shell.crash("nodes", 1.0)
    place.pass_time(10)
    assert told(place) == before
    assert run(place, "b", container("x", 2)) == f"OutOf{GPU}"


def test_a_plugin_that_brings_more_devices_takes_none_from_anybody(place: Place) -> None:
    run(place, "a", container("x", 2))
    more = {"status": {"capacity": {GPU: "8"}, "allocatable": {GPU: "8"}}}
    place.patch(NODES, "plugged-0", more, subresource="status")
    place.pass_time(1)
    assert run(place, "b", container("x", 6)) == "Running"
    shown = told(place)
    assert len({*shown["a"]["x"], *shown["b"]["x"]}) == 8
