"""`dray controllers --only quota` as its Deployment starts it, beside somebody who counts as kube-controller-manager does."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.test_on_servers import DEPLOY, as_account, kubectl
from tests.quota.room import GPU_DEVICES, GPU_EXPLICIT, pod
from tests.real.upstream.binaries import binary
from tests.real.upstream.control_plane import Server

pytestmark = pytest.mark.real
COMPONENT = DEPLOY / "components/quota"


def made(server: Server, *objects: dict[str, Any]) -> None:
    command = [str(binary("kubectl")), "--kubeconfig", str(server.kubeconfig), "apply", "-f", "-"]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
    subprocess.run(command, input=text, text=True, check=True, capture_output=True, timeout=60)


def used(server: Server) -> dict[str, str]:
    found: dict[str, str] = json.loads(kubectl(server, "get", "quota", "q", "-n", "default", "-o", "json"))["status"]["used"]
    return found


def test_devices_of_a_device_plugin_are_charged_to_their_class_with_exactly_its_rights(server: Server, tmp_path: Path) -> None:
    made(server, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "dray-system"}})
    kubectl(server, "apply", "-n", "dray-system", "-f", str(COMPONENT / "quota-rbac.yaml"))
    hard = {GPU_EXPLICIT: "4", GPU_DEVICES: "4", "pods": "9"}
    made(
        server,
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": "gpu"},
            "spec": {"extendedResourceName": "example.com/gpu"},
        },
        {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q", "namespace": "default"}, "spec": {"hard": hard}},
    )
    counted = json.dumps({"status": {"hard": hard, "used": dict.fromkeys(hard, "0")}})
    kubectl(server, "patch", "quota", "q", "-n", "default", "--subresource=status", "--type=merge", "-p", counted)
    (deployment,) = (d for d in yaml.safe_load_all((COMPONENT / "quota.yaml").read_text()) if d["kind"] == "Deployment")
    arguments = [a for a in deployment["spec"]["template"]["spec"]["containers"][0]["args"] if not a.startswith("--serve")]
    account = as_account(server, "dray-quota", tmp_path)
    log = (tmp_path / "log").open("w")
    running = subprocess.Popen([sys.executable, "-m", "dray", *arguments, "--kubeconfig", str(account)], stderr=log)
    try:
        plugin = pod("with-plugin", limits={"example.com/gpu": "1"}, nodeName="anywhere")
        made(server, {"apiVersion": "v1", "kind": "Pod", **plugin})
        end = time.monotonic() + 30
        while used(server) != {GPU_EXPLICIT: "1", GPU_DEVICES: "1", "pods": "1"}:
            assert running.poll() is None, (tmp_path / "log").read_text()
            assert time.monotonic() < end, (used(server), (tmp_path / "log").read_text())
            time.sleep(0.2)
    finally:
        running.terminate()
        assert running.wait(20) == 0
        log.close()
    assert "Forbidden" not in (tmp_path / "log").read_text()
