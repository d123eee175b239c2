"""A driver and an exporter that others wrote (upstream's kubeletplugin library and pod resources client) work with a simulated
node, on ``dray up`` and on a real kube-apiserver with the real kube-scheduler."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.real.upstream.binaries import Unavailable, driver
from tests.real.upstream.client import Client
from tests.real.upstream.control_plane import control_plane
from tests.real.upstream.dray import dray_part
from tests.real.upstream.embedded import dray_up
from tests.real.upstream.manifests import claim, device_class, pod
from tests.real.upstream.process import Program
from tests.real.upstream.scheduler import kube_scheduler

DRIVER = "gpu.tests.example.com"
NODE = "plain-0"


class Site:
    """A cluster with one simulated node whose sockets are in ``root``."""

    def __init__(self, kubeconfig: Path, root: Path, folder: Path) -> None:
        self.client, self.kubeconfig, self.root, self.folder = Client(kubeconfig), kubeconfig, root, folder

    @contextmanager
    def driver(self, version: str = "") -> Iterator[Program]:
        """The driver, registered."""
        (self.root / "health").write_text("Healthy")
        argv = [driver(), "serve", self.kubeconfig, NODE, self.root, *([version] if version else [])]
        with Program("driver", argv, self.folder / "driver.log") as program:
            program.wait_until(lambda: "registered" in program.text())
            yield program

    def exported(self, *pod: str) -> subprocess.CompletedProcess[str]:
        argv = [driver(), "exports", self.root / "pod-resources/kubelet.sock", *pod]
        return subprocess.run(argv, capture_output=True, text=True, timeout=30)

    def slices(self) -> list[dict[str, Any]]:
        return [each for each in self.client.list("ResourceSlice") if each["spec"]["driver"] == DRIVER]

    def calls(self, program: Program) -> list[str]:
        return [line for line in program.text().splitlines() if line.startswith(("prepare", "unprepare"))]

    def phase(self, name: str) -> str:
        return str(self.client.get("Pod", name)["status"].get("phase"))

    def end(self, name: str) -> None:
        """Delete a pod as kubectl does: its kubelet has the last word."""
        self.client.call("DELETE", f"api/v1/namespaces/default/pods/{name}")

    def gone(self, name: str) -> bool:
        return all(each["metadata"]["name"] != name for each in self.client.list("Pod"))


@pytest.fixture(params=["embedded", "real"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    try:
        driver()
    except Unavailable as missing:
        pytest.skip(str(missing))
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dray", dir="/tmp")))
        sockets = ["--nodes", "1", "--kubelet-root", f"{NODE}={root}"]
        if request.param == "embedded":
            server = stack.enter_context(dray_up(tmp_path / "up", without="", arguments=sockets))
        else:
            request.getfixturevalue("upstream")
            server = stack.enter_context(control_plane(tmp_path / "control-plane"))
            stack.enter_context(kube_scheduler(server.kubeconfig, tmp_path))
            stack.enter_context(dray_part("nodes", server.kubeconfig, tmp_path, "--no-taint", *sockets))
        made = Site(server.kubeconfig, root, tmp_path)
        made.client.create(device_class("gpu", DRIVER))
        yield made


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_a_driver_registers_publishes_prepares_and_unprepares(site: Site, version: str) -> None:
    with site.driver(version) as program:
        assert "registered true" in program.text()
        program.wait_until(lambda: [len(each["spec"]["devices"]) for each in site.slices()] == [2])
        site.client.create(claim("mine"))
        site.client.create(pod("p", "mine"))
        program.wait_until(lambda: site.phase("p") == "Running")
        assert site.calls(program) == ["prepare mine"]
        uid = site.client.get("ResourceClaim", "mine")["metadata"]["uid"]
        shown = site.client.get("Pod", "p")
        (status,) = shown["status"]["containerStatuses"]
        (resource,) = status["allocatedResourcesStatus"][0]["resources"]
        assert resource["resourceID"].startswith(f"tests.example.com/gpu={uid}-gpu-")
        assert shown["metadata"]["annotations"]["dray.dev/cdi-devices"] == f"main={resource['resourceID']}"
        site.end("p")
        program.wait_until(lambda: site.gone("p"))
        assert site.calls(program) == ["prepare mine", "unprepare mine"]


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_the_health_that_a_driver_streams_is_in_the_pod(site: Site, version: str) -> None:
    def health() -> tuple[str, str]:
        (status,) = site.client.get("Pod", "p")["status"]["containerStatuses"]
        (resource,) = status["allocatedResourcesStatus"][0]["resources"]
        return resource["health"], resource.get("message", "")

    with site.driver(version) as program:
        site.client.create(claim("mine"))
        site.client.create(pod("p", "mine"))
        program.wait_until(lambda: site.phase("p") == "Running")
        program.wait_until(lambda: health() == ("Healthy", ""))
        (site.root / "health").write_text("Unhealthy XID 79")
        program.wait_until(lambda: health() == ("Unhealthy", "XID 79"))


def test_an_exporter_reads_who_has_which_device(site: Site) -> None:
    with site.driver() as program:
        site.client.create(claim("mine", count=2))
        site.client.create(pod("p", "mine"))
        site.client.create(pod("q"))
        program.wait_until(lambda: {site.phase("p"), site.phase("q")} == {"Running"})
        told = json.loads(site.exported().stdout)["list"]["pod_resources"]
        (container,) = next(each for each in told if each["name"] == "p")["containers"]
        (dynamic,) = container["dynamic_resources"]
        assert (dynamic["claim_name"], dynamic["claim_namespace"]) == ("mine", "default")
        devices = [(each["driver_name"], each["pool_name"], each["device_name"]) for each in dynamic["claim_resources"]]
        assert devices == [(DRIVER, NODE, "gpu-0"), (DRIVER, NODE, "gpu-1")]
        assert json.loads(site.exported("default", "q").stdout)["get"]["pod_resources"]["name"] == "q"
        assert "pod none in namespace default not found" in site.exported("default", "none").stderr


def test_a_claim_that_the_driver_refuses_keeps_the_pod_waiting_with_the_driver_s_words(site: Site) -> None:
    with site.driver() as program:
        bad = claim("bad")
        bad["metadata"]["annotations"] = {"tests.example.com/prepare": "fail"}
        site.client.create(bad)
        site.client.create(pod("p", "bad"))

        def told() -> bool:
            notes = [event.get("message") or event.get("note") or "" for event in site.client.list("Event")]
            return any("NodePrepareResources failed for ResourceClaim bad: " in note for note in notes)

        program.wait_until(told)
        assert site.phase("p") == "Pending"
        site.client.patch(bad, {"metadata": {"annotations": {"tests.example.com/prepare": None}}})
        program.wait_until(lambda: site.phase("p") == "Running")


def test_a_driver_that_restarts_finds_its_claims_and_lets_them_go(site: Site) -> None:
    site.client.create(claim("mine"))
    with site.driver() as program:
        site.client.create(pod("p", "mine"))
        program.wait_until(lambda: site.phase("p") == "Running")
        program.stop(gentle=True)
    site.end("p")
    with site.driver() as program:
        program.wait_until(lambda: site.gone("p"))
        assert site.calls(program) == ["unprepare mine"]
        program.wait_until(lambda: [len(each["spec"]["devices"]) for each in site.slices()] == [2])
