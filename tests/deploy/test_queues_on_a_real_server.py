"""`dray scheduler` with exactly the rights of its manifests on a real kube-apiserver: queues, gangs and reclaim."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dray.apiserver.custom import shipped
from tests.deploy.test_on_servers import DEPLOY, as_account, kubectl
from tests.deploy.test_quota_on_a_real_server import made
from tests.real.upstream.control_plane import Server
from tests.real.upstream.process import Program

pytestmark = pytest.mark.real
GPU = "nvidia.com/gpu"
ANY = {"quota": -1, "limit": -1, "overQuotaWeight": 1}


def queue(name: str, gpus: int) -> dict[str, Any]:
    resources = {"cpu": ANY, "memory": ANY, "gpu": {"quota": gpus, "limit": -1, "overQuotaWeight": 1}}
    return {
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"resources": resources},
    }


def pod(name: str, queue: str = "", group: str = "") -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, "namespace": "default"}
    if queue:
        metadata["labels"] = {"kai.scheduler/queue": queue}
    if group:
        metadata["annotations"] = {"pod-group-name": group}
    resources = {"requests": {GPU: "1"}, "limits": {GPU: "1"}}
    containers = [{"name": "c", "image": "i", "resources": resources}]
    spec = {"schedulerName": "dray", "terminationGracePeriodSeconds": 0, "containers": containers}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def running(server: Server) -> set[str]:
    pods = json.loads(kubectl(server, "get", "pods", "-n", "default", "-o", "json"))["items"]
    return {found["metadata"]["name"] for found in pods if found["spec"].get("nodeName")}


def eventually(holds: Callable[[], bool], log: Program) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end, log.text()[-3000:]
        time.sleep(0.2)


def test_queues_gangs_and_reclaim_with_exactly_the_rights_of_the_scheduler(server: Server, tmp_path: Path) -> None:
    made(server, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "dray-system"}})
    kubectl(server, "apply", "-n", "dray-system", "-f", str(DEPLOY / "base/scheduler-rbac.yaml"))
    for name in ("queues.scheduling.run.ai", "podgroups.scheduling.run.ai", "topologies.kai.scheduler"):
        made(server, shipped.definition(*shipped.source(name)))
        kubectl(server, "wait", "--for=condition=Established", f"crd/{name}", "--timeout=30s")
    add_node(server, "n0", "r0")
    made(server, queue("a", 0), queue("b", 4))
    argv: list[str | Path] = [Path(sys.executable).with_name("dray"), "scheduler"]
    argv += ["--kubeconfig", as_account(server, "dray-scheduler", tmp_path)]
    with Program("dray scheduler", argv, tmp_path / "scheduler.log") as program:
        made(server, pod("a0", "a"), pod("a1", "a"))
        eventually(lambda: running(server) == {"a0", "a1"}, program)
        group = {
            "apiVersion": "scheduling.run.ai/v2alpha2",
            "kind": "PodGroup",
            "metadata": {"name": "train", "namespace": "default"},
            "spec": {"queue": "b", "minMember": 2, "preemptibility": "non-preemptible"},
        }
        made(server, group, pod("w0", group="train"))
        time.sleep(3)
        assert running(server) == {"a0", "a1"}, "nothing is evicted for a gang that is not complete"
        made(server, pod("w1", group="train"))
        eventually(lambda: running(server) == {"w0", "w1"}, program)
        eventually(lambda: told(server, "b").get("allocated") == {GPU: "2"}, program)
        levels = {"levels": [{"nodeLabel": "rack"}]}
        made(server, {"apiVersion": "kai.scheduler/v1alpha1", "kind": "Topology", "metadata": {"name": "t"}, "spec": levels})
        near = {"topologyConstraint": {"topology": "t", "requiredTopologyLevel": "rack"}}
        made(server, group | {"metadata": {"name": "near", "namespace": "default"}, "spec": {**group["spec"], **near}})
        kubectl(server, "delete", "pod", "w0", "--grace-period=0", "--force")
        made(server, pod("x0", group="near"), pod("x1", group="near"))
        add_node(server, "n1", "r1", gpus=1)
        time.sleep(3)
        assert running(server) == {"w1"}, "two racks have room for one each"
        add_node(server, "n2", "r1", gpus=1)
        eventually(lambda: running(server) == {"w1", "x0", "x1"}, program)
        assert "forbidden" not in program.text().lower()


def add_node(server: Server, name: str, rack: str, gpus: int = 2) -> None:
    made(server, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"rack": rack}}})
    offers = {"cpu": "64", "memory": "256Gi", "pods": "110", GPU: str(gpus)}
    status = {"status": {"capacity": offers, "allocatable": offers}}
    kubectl(server, "patch", "node", name, "--subresource=status", "--type=merge", "-p", json.dumps(status))


def told(server: Server, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(kubectl(server, "get", "queues.scheduling.run.ai", name, "-o", "json"))
    return dict(found.get("status", {}))
