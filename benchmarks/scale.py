"""How large a laptop cluster may be: many simulated nodes and pods in one ``dray up``, with everything that it does for them."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.table import Table, mebibytes
from tests.real.upstream.client import Client
from tests.real.upstream.embedded import dray_up
from tests.real.upstream.process import Program

DEPLOYMENTS = "apis/apps/v1/namespaces/default/deployments"
PODS = "api/v1/namespaces/default/pods"
SEEN_SECONDS = 30.0


def scale(quick: bool) -> Table:
    nodes, deployments, replicas = (10, 2, 20) if quick else (1000, 20, 1000)
    pods = deployments * replicas
    table = Table(f"{nodes:,} nodes and {pods:,} pods in one process", ("what", "processor time", "memory", "time"))
    with (
        tempfile.TemporaryDirectory() as folder,
        dray_up(Path(folder), without="", arguments=("--nodes", str(nodes))) as server,
    ):
        run = _Run(table, server.programs[0])
        client = Client(server.kubeconfig)
        run.waits("idle, nodes only", 5.0 if quick else SEEN_SECONDS)
        run.until(f"until {pods:,} pods run", lambda: create(client, deployments, replicas), lambda: ready(client) == pods)
        run.waits("idle, all pods running", 5.0 if quick else SEEN_SECONDS)
        run.until("list of all pods", lambda: client.call("GET", PODS), lambda: True)
        run.until("until all are deleted", lambda: client.call("DELETE", DEPLOYMENTS), lambda: left(client) == 0)
    return table


class _Run:
    def __init__(self, table: Table, program: Program) -> None:
        self._table, self._program = table, program

    def until(self, what: str, begin: Callable[[], object], done: Callable[[], bool]) -> None:
        used, began = self._program.cpu_seconds(), time.monotonic()
        begin()
        while not done():
            time.sleep(0.5)
        self._row(what, f"{self._program.cpu_seconds() - used:.1f} s", f"{time.monotonic() - began:.1f} s")

    def waits(self, what: str, seconds: float) -> None:
        used = self._program.cpu_seconds()
        time.sleep(seconds)
        self._row(what, f"{(self._program.cpu_seconds() - used) / seconds:.1%} of a core", "")

    def _row(self, what: str, used: str, took: str) -> None:
        self._table.add(what, used, mebibytes(self._program.memory_bytes()), took)


def create(client: Client, deployments: int, replicas: int, first: int = 0) -> None:
    resources = {"requests": {"cpu": "100m", "memory": "64Mi"}}
    pod = {"containers": [{"name": "c", "image": "registry.example/app:1", "resources": resources}]}
    for number in range(first, first + deployments):
        labels = {"app": f"d{number}"}
        template = {"metadata": {"labels": labels}, "spec": pod}
        spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
        client.call("POST", DEPLOYMENTS, {"metadata": {"name": f"d{number}"}, "spec": spec})


def ready(client: Client) -> int:
    return sum(each["status"].get("readyReplicas", 0) for each in client.call("GET", DEPLOYMENTS)["items"])


def left(client: Client) -> int:
    found = client.call("GET", f"{PODS}?limit=1")
    return len(found["items"]) + int(found["metadata"].get("remainingItemCount", 0))


TABLES = {"scale": scale}
