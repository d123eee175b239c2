"""The embedded API server beside a real kube-apiserver with etcd: the same client, the same objects, in the same run.

Both keep every acknowledged write on disk (etcd syncs, ``dray up`` with a data folder). Each server has the machine to itself
while it is measured, apart from the client. Processor times are shown too, because they say the same on a busy machine.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.table import Table, mebibytes
from benchmarks.wire import MERGE, Wire, over_all, wires
from tests.real.upstream import manifests
from tests.real.upstream.control_plane import Server, control_plane
from tests.real.upstream.embedded import dray_up

CONNECTIONS = 32
WATCHERS = 10
PODS = "api/v1/namespaces/default/pods"


@dataclass
class Measured:
    ready: float = 0
    ready_cpu: float = 0
    creates: float = 0
    create_cpu: float = 0
    updates: float = 0
    update_cpu: float = 0
    listed: float = 0
    list_bytes: int = 0
    watch_p50: float = 0
    watch_p99: float = 0
    memory_idle: int = 0
    memory_full: int = 0


def api_server(quick: bool) -> Table:
    """Everything about the API server; one start of each server."""
    count = 500 if quick else 10_000
    with tempfile.TemporaryDirectory(prefix="dray-bench-") as folder:
        real = measure(lambda n: control_plane(Path(folder) / f"real-{n}", durable=True), count, quick)
        ours = measure(lambda n: dray_up(Path(folder) / f"dray-{n}", durable=True), count, quick)
    table = Table(f"API server: {count} pods", ("what", "kube-apiserver + etcd", "dray up", "Dray / real"))
    for row in rows(real, ours, count):
        table.add(*row)
    table.notes.append(f"{CONNECTIONS} connections; watch latency from sending a write to the last of {WATCHERS} watchers.")
    return table


def rows(real: Measured, ours: Measured, count: int) -> Iterator[tuple[str, str, str, str]]:
    def row(what: str, form: Callable[[float], str], get: Callable[[Measured], float]) -> tuple[str, str, str, str]:
        return what, form(get(real)), form(get(ours)), f"{get(ours) / get(real):.2f}x" if get(real) else "-"

    yield row("start to ready", "{:.2f} s".format, lambda m: m.ready)
    yield row("processor time to ready", "{:.2f} s".format, lambda m: m.ready_cpu)
    yield row("creates a second", "{:.0f}".format, lambda m: m.creates)
    yield row("processor time of a create", "{:.2f} ms".format, lambda m: m.create_cpu * 1000)
    yield row("status updates a second", "{:.0f}".format, lambda m: m.updates)
    yield row("processor time of a status update", "{:.2f} ms".format, lambda m: m.update_cpu * 1000)
    yield row("watch latency p50", "{:.1f} ms".format, lambda m: m.watch_p50 * 1000)
    yield row("watch latency p99", "{:.1f} ms".format, lambda m: m.watch_p99 * 1000)
    yield row(f"list of {count} pods", "{:.3f} s".format, lambda m: m.listed)
    yield row("size of that list", lambda b: f"{b / 1e6:.1f} MB", lambda m: m.list_bytes)
    yield row("memory when idle", mebibytes, lambda m: m.memory_idle)
    yield row(f"memory that {count} pods add", mebibytes, lambda m: m.memory_full - m.memory_idle)


def measure(start: Callable[[int], AbstractContextManager[Server]], count: int, quick: bool) -> Measured:
    """Starts a new server three times for the time to ready, and measures the rest on the last."""
    ready = []
    for number in range(0 if quick else 2):
        with start(number) as server:
            ready.append(server.seconds_to_ready)
    with start(2) as server:
        found = uvloop.run(_measure(server, count, quick))
        found.ready = statistics.median([*ready, server.seconds_to_ready])
    return found


async def _measure(server: Server, count: int, quick: bool) -> Measured:
    found = Measured(memory_idle=server.memory_bytes(), ready_cpu=server.cpu_seconds())
    async with wires(server.kubeconfig, CONNECTIONS) as connections:
        await _warm(connections)
        found.creates, found.create_cpu = await _rate(server, connections, [create(i) for i in range(count)])
        updates = [update(i) for i in range(count if quick else count // 2)]
        found.updates, found.update_cpu = await _rate(server, connections, updates)
        found.listed, found.list_bytes = await _list(connections[0])
    found.watch_p50, found.watch_p99 = await _watch_latency(server, seconds=2 if quick else 10)
    found.memory_full = server.memory_bytes()
    return found


async def _warm(connections: list[Wire]) -> None:
    await over_all(connections, range(100), lambda wire, i: wire.call("GET", f"{PODS}?limit=1"))


# A request as it goes over the wire: method, path, body and content type. Made before the clock starts.
Prepared = tuple[str, str, bytes, str]


async def _rate(server: Server, connections: list[Wire], jobs: list[Prepared]) -> tuple[float, float]:
    """Jobs a second, and the server's processor time for one."""
    began, used = time.perf_counter(), server.cpu_seconds()
    await over_all(connections, jobs, lambda wire, job: wire.call(*job))
    return len(jobs) / (time.perf_counter() - began), (server.cpu_seconds() - used) / len(jobs)


def create(number: int) -> Prepared:
    return "POST", PODS, json.dumps(pod(f"pod-{number:05d}")).encode(), "application/json"


def update(number: int) -> Prepared:
    status = {
        "status": {"phase": "Running", "podIP": f"10.1.{number // 250}.{number % 250}", "startTime": "2026-01-01T00:00:00Z"}
    }
    return "PATCH", f"{PODS}/pod-{number:05d}/status", json.dumps(status).encode(), MERGE


def pod(name: str) -> dict[str, Any]:
    """A pod as a workload controller makes it."""
    made = manifests.pod(name, "device")
    made["metadata"] |= {"labels": {"app": "bench", "tier": "batch"}, "annotations": {"example.com/owner": "team-a"}}
    container = made["spec"]["containers"][0]
    container |= {"env": [{"name": f"KEY_{i}", "value": f"value-{i}"} for i in range(4)]}
    return made


async def _list(wire: Wire) -> tuple[float, int]:
    """The best of three: how long the whole list takes to arrive."""
    best, size = float("inf"), 0
    for _ in range(3):
        began = time.perf_counter()
        size = len(await wire.call("GET", PODS))
        best = min(best, time.perf_counter() - began)
    return best, size


async def _watch_latency(server: Server, seconds: float) -> tuple[float, float]:
    """Writes 100 times a second while watchers look on; the time until the last watcher has seen each."""
    writes = int(seconds * 100)
    sent: dict[str, float] = {}
    seen: dict[str, float] = {}
    async with wires(server.kubeconfig, WATCHERS + 1) as (writer, *watchers):
        listed = json.loads(await writer.call("GET", "api/v1/namespaces/kube-public/configmaps"))
        path = f"api/v1/namespaces/kube-public/configmaps?watch=1&resourceVersion={listed['metadata']['resourceVersion']}"
        tasks = [asyncio.create_task(_see(wire, path, seen, writes)) for wire in watchers]
        await asyncio.sleep(0.3)
        began = time.perf_counter()
        for number in range(writes):
            name = f"beat-{number}"
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"n": str(number)}}
            sent[name] = time.perf_counter()
            await writer.call("POST", "api/v1/namespaces/kube-public/configmaps", json.dumps(body).encode())
            await asyncio.sleep(max(0.0, began + (number + 1) / 100 - time.perf_counter()))
        await asyncio.wait_for(asyncio.gather(*tasks), 30)
    late = sorted(seen[name] - sent[name] for name in sent)
    return late[len(late) // 2], late[int(len(late) * 0.99)]


async def _see(wire: Wire, path: str, seen: dict[str, float], wanted: int) -> None:
    count = 0
    async for event in wire.events(path):
        name = event["object"]["metadata"]["name"]
        if name.startswith("beat-"):
            seen[name] = max(seen.get(name, 0.0), time.perf_counter())
            count += 1
        if count == wanted:
            return


TABLES: dict[str, Callable[[bool], Table]] = {"api": api_server}
