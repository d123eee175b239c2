"""`dray scheduler` with exactly the rights of its manifests on a real kube-apiserver: queues, gangs and reclaim, alone and
beside kube-scheduler."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dray.apiserver.custom import shipped
from tests.deploy.test_on_servers import DEPLOY, as_account, kubectl
from tests.deploy.test_quota_on_a_real_server import made
from tests.real.upstream import manifests
from tests.real.upstream.control_plane import Server
from tests.real.upstream.process import Program
from tests.real.upstream.scheduler import kube_scheduler

pytestmark = pytest.mark.real
GPU = "nvidia.com/gpu"
ANY = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
DRAY = Path(sys.executable).with_name("dray")


def queue(name: str, gpus: int) -> dict[str, Any]:
    resources = {"cpu": ANY, "memory": ANY, "gpu": {"quota": gpus, "limit": -1, "overQuotaWeight": 1}}
    return {
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"resources": resources},
    }


def pod(name: str, queue: str = "", group: str = "", scheduler: str = "dray") -> dict[str, Any]:
    resources = {"requests": {GPU: "1"}, "limits": {GPU: "1"}}
    containers = [{"name": "c", "image": "i", "resources": resources}]
    spec = {"schedulerName": scheduler, "terminationGracePeriodSeconds": 0, "containers": containers}
    return placed_in(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}, queue, group
    )


def placed_in(pod: dict[str, Any], queue: str, group: str) -> dict[str, Any]:
    if queue:
        pod["metadata"]["labels"] = {"kai.scheduler/queue": queue}
    if group:
        pod["metadata"]["annotations"] = {"pod-group-name": group}
    return pod


def with_claim(name: str, queue: str = "", group: str = "", scheduler: str = "dray") -> list[dict[str, Any]]:
    using = manifests.pod(name, name, scheduler=scheduler, terminationGracePeriodSeconds=0)
    return [manifests.claim(name), placed_in(using, queue, group)]


def gang(name: str, queue: str, members: int) -> dict[str, Any]:
    spec = {"queue": queue, "minMember": members, "preemptibility": "non-preemptible"}
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup", "metadata": metadata, "spec": spec}


def running(server: Server) -> set[str]:
    pods = json.loads(kubectl(server, "get", "pods", "-n", "default", "-o", "json"))["items"]
    return {found["metadata"]["name"] for found in pods if found["spec"].get("nodeName")}


def eventually(holds: Callable[[], bool], log: Program) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end, log.text()[-3000:]
        time.sleep(0.2)


@contextmanager
def scheduling(server: Server, folder: Path) -> Iterator[Program]:
    """`dray scheduler` with the rights of its manifests, and no others."""
    made(server, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "dray-system"}})
    kubectl(server, "apply", "-n", "dray-system", "-f", str(DEPLOY / "base/scheduler-rbac.yaml"))
    for name in ("queues.scheduling.run.ai", "podgroups.scheduling.run.ai", "topologies.kai.scheduler"):
        made(server, shipped.definition(*shipped.source(name)))
        kubectl(server, "wait", "--for=condition=Established", f"crd/{name}", "--timeout=30s")
    argv: list[str | Path] = [DRAY, "scheduler", "--kubeconfig", as_account(server, "dray-scheduler", folder)]
    with Program("dray scheduler", argv, folder / "scheduler.log") as program:
        yield program
        assert "forbidden" not in program.text().lower()


def test_queues_gangs_and_reclaim_with_exactly_the_rights_of_the_scheduler(server: Server, tmp_path: Path) -> None:
    with scheduling(server, tmp_path) as program:
        add_node(server, "n0", "r0")
        made(server, queue("a", 0), queue("b", 4))
        made(server, pod("a0", "a"), pod("a1", "a"))
        eventually(lambda: running(server) == {"a0", "a1"}, program)
        made(server, gang("train", "b", 2), pod("w0", group="train"))
        time.sleep(3)
        assert running(server) == {"a0", "a1"}, "nothing is evicted for a gang that is not complete"
        made(server, pod("w1", group="train"))
        eventually(lambda: running(server) == {"w0", "w1"}, program)
        eventually(lambda: told(server, "b").get("allocated") == {GPU: "2"}, program)
        levels = {"levels": [{"nodeLabel": "rack"}]}
        made(server, {"apiVersion": "kai.scheduler/v1alpha1", "kind": "Topology", "metadata": {"name": "t"}, "spec": levels})
        near = gang("near", "b", 2)
        near["spec"]["topologyConstraint"] = {"topology": "t", "requiredTopologyLevel": "rack"}
        made(server, near)
        kubectl(server, "delete", "pod", "w0", "--grace-period=0", "--force")
        made(server, pod("x0", group="near"), pod("x1", group="near"))
        add_node(server, "n1", "r1", gpus=1)
        time.sleep(3)
        assert running(server) == {"w1"}, "two racks have room for one each"
        add_node(server, "n2", "r1", gpus=1)
        eventually(lambda: running(server) == {"w1", "x0", "x1"}, program)


def test_beside_kube_scheduler_queues_take_back_from_queues_and_from_nobody_else(server: Server, tmp_path: Path) -> None:
    with kube_scheduler(server.kubeconfig, tmp_path / "kube-scheduler"), scheduling(server, tmp_path) as program:
        add_node(server, "n0", "r0", gpus=4)
        made(server, queue("a", 0), queue("b", 4))
        made(server, pod("other", scheduler="default-scheduler"))
        eventually(lambda: running(server) == {"other"}, program)
        made(server, *(pod(f"a{number}", "a") for number in range(3)))
        eventually(lambda: running(server) == {"other", "a0", "a1", "a2"}, program)
        made(server, gang("large", "b", 4), *(pod(f"l{number}", group="large") for number in range(4)))
        made(server, gang("small", "b", 2), *(pod(f"s{number}", group="small") for number in range(2)))
        eventually(lambda: len(running(server)) == 4 and {"other", "s0", "s1"} < running(server), program)
        time.sleep(3)
        assert len(running(server)) == 4, "for four there is no room beside the pod of kube-scheduler: nobody leaves for them"
        kubectl(server, "delete", "pod", "other", "s0", "s1", "--grace-period=0", "--force")
        eventually(lambda: running(server) == {"l0", "l1", "l2", "l3"}, program)


def test_beside_kube_scheduler_no_device_of_a_claim_has_two_owners(server: Server, tmp_path: Path) -> None:
    # Claims of pods that are gone are given back by a controller, as kube-controller-manager has one.
    argv = [DRAY, "controllers", "--only", "claims", "--kubeconfig", server.kubeconfig]
    with (
        Program("dray controllers", argv, tmp_path / "controllers.log"),
        kube_scheduler(server.kubeconfig, tmp_path / "kube-scheduler"),
        scheduling(server, tmp_path) as program,
    ):
        made(server, manifests.device_class(), manifests.resource_slice("n0", [manifests.device(f"d{n}") for n in range(4)]))
        add_node(server, "n0", "r0", gpus=0)
        made(server, of_devices("a", 0), of_devices("b", 4))
        made(server, *with_claim("other", scheduler="default-scheduler"))
        eventually(lambda: running(server) == {"other"}, program)
        made(server, *(each for number in range(3) for each in with_claim(f"a{number}", "a")))
        eventually(lambda: running(server) == {"other", "a0", "a1", "a2"}, program)
        made(server, gang("train", "b", 3), *(each for n in range(3) for each in with_claim(f"w{n}", group="train")))
        eventually(lambda: {"w0", "w1", "w2"} < running(server), program)
        assert "other" in running(server)
        made(server, *with_claim("late", scheduler="default-scheduler"))
        time.sleep(2)
        assert running(server) == {"other", "w0", "w1", "w2"}
        subprocess.run([DRAY, "verify", "--kubeconfig", server.kubeconfig], check=True, timeout=60)


def of_devices(name: str, devices: int) -> dict[str, Any]:
    """A queue that is due so many devices of the class."""
    found = queue(name, -1)
    due = {"deviceclass/gpu": {"quota": devices}}
    found["metadata"]["annotations"] = {"dray.dev/resources": json.dumps(due)}
    return found


def add_node(server: Server, name: str, rack: str, gpus: int = 2) -> None:
    made(server, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"rack": rack}}})
    offers = {"cpu": "64", "memory": "256Gi", "pods": "110", GPU: str(gpus)}
    status = {"status": {"capacity": offers, "allocatable": offers}}
    kubectl(server, "patch", "node", name, "--subresource=status", "--type=merge", "-p", json.dumps(status))


def told(server: Server, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(kubectl(server, "get", "queues.scheduling.run.ai", name, "-o", "json"))
    return dict(found.get("status", {}))
