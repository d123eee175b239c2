"""Simulated nodes and their hardware on a real kube-apiserver: what is published is accepted, faults are published and cleared,
and pods that the real kube-scheduler binds run and end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from dray.nodes.hardware import CATALOGUE, hardware
from tests.real.upstream.client import Client, eventually
from tests.real.upstream.control_plane import control_plane
from tests.real.upstream.dray import dray_part
from tests.real.upstream.manifests import claim, pod
from tests.real.upstream.process import Program
from tests.real.upstream.scheduler import kube_scheduler

EVERYTHING = [f"{name}:4" for name in CATALOGUE]


@pytest.fixture(scope="module")
def nodes(upstream: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Client, Program]]:
    """One of everything in the catalogue, times four."""
    folder: Path = tmp_path_factory.mktemp("hardware")
    with ExitStack() as stack:
        server = stack.enter_context(control_plane(folder / "control-plane"))
        stack.enter_context(kube_scheduler(server.kubeconfig, folder))
        wanted = [word for request in EVERYTHING for word in ("--hardware", request)]
        program = stack.enter_context(dray_part("nodes", server.kubeconfig, folder, "--no-taint", *wanted))
        yield Client(server.kubeconfig), program


def devices(client: Client, slice_: str) -> dict[str, dict[str, Any]]:
    found: list[dict[str, Any]] = client.get("ResourceSlice", slice_)["spec"].get("devices", [])
    return {device["name"]: device for device in found}


def test_the_whole_catalogue_is_accepted_as_it_is(nodes: tuple[Client, Program]) -> None:
    client, _ = nodes
    made = hardware(EVERYTHING)
    eventually(lambda: len(client.list("Node")) == len(made.nodes), "every node registers")
    published = {each["metadata"]["name"]: each["spec"] for each in client.list("ResourceSlice")}
    for each in made.objects:
        if each["kind"] == "ResourceSlice":
            kept = published[each["metadata"]["name"]]
            assert len(kept.get("devices", [])) == len(each["spec"].get("devices", []))
            assert kept["pool"] == each["spec"]["pool"]
    assert all({c["type"]: c["status"] for c in n["status"]["conditions"]}["Ready"] == "True" for n in client.list("Node"))


def test_a_pod_gets_a_partition_runs_and_is_told_when_it_gets_ill(nodes: tuple[Client, Program]) -> None:
    client, program = nodes
    client.create(claim("part", class_name="mig-3g.dray.dev"))
    client.create(pod("p", "part"))
    program.wait_until(lambda: client.get("Pod", "p")["status"].get("phase") == "Running")
    (result,) = client.get("ResourceClaim", "part")["status"]["allocation"]["devices"]["results"]
    slice_ = {"kind": "ResourceSlice", "metadata": {"name": f"{result['pool']}-mig.dray.dev-devices"}}
    name, fault = slice_["metadata"]["name"], f"fault.dray.dev/{result['device']}"  # type: ignore[index]
    client.patch(slice_, {"metadata": {"annotations": {fault: "NoSchedule XID 79"}}})
    program.wait_until(lambda: bool(devices(client, name)[result["device"]].get("taints")))
    (taint,) = devices(client, name)[result["device"]]["taints"]
    assert (taint["key"], taint["value"], taint["effect"]) == ("dray.dev/unhealthy", "XID-79", "NoSchedule")

    def health() -> str:
        (container,) = client.get("Pod", "p")["status"]["containerStatuses"]
        return str(container["allocatedResourcesStatus"][0]["resources"][0]["health"])

    program.wait_until(lambda: health() == "Unhealthy")
    client.patch(slice_, {"metadata": {"annotations": {fault: None}}})
    program.wait_until(lambda: not devices(client, name)[result["device"]].get("taints"))
    program.wait_until(lambda: health() == "Healthy")
    client.call("DELETE", "api/v1/namespaces/default/pods/p")
    program.wait_until(lambda: not client.list("Pod"))


def test_a_device_is_unplugged_and_plugged_in_again(nodes: tuple[Client, Program]) -> None:
    client, program = nodes
    name = "gpu8-0-gpu.dray.dev"
    slice_ = {"kind": "ResourceSlice", "metadata": {"name": name}}
    before = devices(client, name)
    client.patch(slice_, {"metadata": {"annotations": {"fault.dray.dev/gpu-5": "unplugged"}}})
    program.wait_until(lambda: "gpu-5" not in devices(client, name))
    assert client.get("ResourceSlice", name)["spec"]["pool"]["generation"] == 2
    client.patch(slice_, {"metadata": {"annotations": {"fault.dray.dev/gpu-5": None}}})
    program.wait_until(lambda: devices(client, name) == before)
