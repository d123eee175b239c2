"""From the command to the first binding: kube-scheduler beside ``dray scheduler``, in turns, on one real kube-apiserver.

The cluster is there, and a pod waits, or many do, each with a claim for a device. Each run starts the program, watches the pods,
and ends when one of them is bound; leader election is off in both. The median of the runs counts: programs that start are at the
mercy of the machine.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

from benchmarks.scheduler import SCHEDULER_OF, Json, Scenario, create, exactly, objects, running
from benchmarks.table import Table, ratio
from benchmarks.wire import MERGE, Wire, over_all, wires
from tests.real.upstream.client import collection
from tests.real.upstream.control_plane import control_plane

LIMIT = 60.0
"""Seconds after which a scheduler that bound nothing is given up."""
SIZES = {"start": (500, 1, 9), "large-start": (5_000, 1, 3), "crowded-start": (500, 2_000, 5)}
"""Nodes, pods that wait, and how often each scheduler is started."""


@dataclass
class Starts:
    """What each run of one scheduler took until the first binding: time, and processor time of its own."""

    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)


def compare(nodes: int, waiting: int, runs: int) -> Table:
    """One row for each scheduler."""
    with tempfile.TemporaryDirectory(prefix="dray-bench-") as folder, control_plane(Path(folder)) as server:
        starts = uvloop.run(_measure(nodes, waiting, runs, server.kubeconfig, Path(folder)))
    columns = ("scheduler", "first bound, median", "fastest", "slowest", "against kube-scheduler", "CPU until then")
    pods = f"{waiting} pods wait, " if waiting > 1 else ""
    table = Table(
        f"From the command to the first binding, {pods}{nodes} nodes with devices on a real kube-apiserver, {runs} runs", columns
    )
    base = statistics.median(starts["kube-scheduler"].seconds)
    for scheduler, taken in starts.items():
        middle = statistics.median(taken.seconds)
        times = (f"{value:.2f} s" for value in (middle, min(taken.seconds), max(taken.seconds)))
        table.add(scheduler, *times, ratio(middle, base), f"{statistics.median(taken.cpu):.2f} s")
    return table


async def _measure(nodes: int, waiting: int, runs: int, kubeconfig: Path, folder: Path) -> dict[str, Starts]:
    starts = {scheduler: Starts() for scheduler in SCHEDULER_OF}
    async with wires(kubeconfig, 24) as connections:
        for stage in objects(Scenario("", nodes, 0, exactly()), ""):
            await over_all(connections, stage, create)
        for scheduler in SCHEDULER_OF:  # once for nothing: programs are read from the disk, and Python compiles what it runs
            await _start(scheduler, waiting, kubeconfig, folder, connections, Starts())
        for _ in range(runs):
            for scheduler, taken in starts.items():
                await _start(scheduler, waiting, kubeconfig, folder, connections, taken)
    return starts


async def _start(scheduler: str, waiting: int, kubeconfig: Path, folder: Path, connections: list[Wire], into: Starts) -> None:
    *_, claims, pods = objects(Scenario("", 0, waiting, exactly()), SCHEDULER_OF[scheduler])
    await over_all(connections, (*claims, *pods), create)
    bound = asyncio.create_task(_bound(kubeconfig, pods[0]))
    await asyncio.sleep(0.5)  # the watch is open, and what the last run left is quiet
    began = time.perf_counter()
    with running(scheduler, kubeconfig, folder) as program:
        into.seconds.append(await asyncio.wait_for(bound, LIMIT) - began)
        into.cpu.append(program.cpu_seconds())
    await _remove_all(connections, pods[0])
    await _remove_all(connections, claims[0])


async def _bound(kubeconfig: Path, pod: Json) -> float:
    """When any of the pods has a node."""
    async with wires(kubeconfig, 1) as (wire,):
        version = json.loads(await wire.call("GET", f"{collection(pod)}?limit=1"))["metadata"]["resourceVersion"]
        async for event in wire.events(f"{collection(pod)}?watch=1&resourceVersion={version}"):
            if event["object"].get("spec", {}).get("nodeName"):
                return time.perf_counter()
    raise RuntimeError("the watch ended before a pod was bound")


async def _remove_all(connections: list[Wire], one: Json) -> None:
    """All of its kind, at once, whatever still holds them: nothing runs that would let go."""
    path = collection(one)
    await connections[0].call("DELETE", path, json.dumps({"gracePeriodSeconds": 0}).encode())
    left = json.loads(await connections[0].call("GET", path))["items"]

    async def let_go(wire: Wire, found: Json) -> None:
        await wire.call("PATCH", f"{path}/{found['metadata']['name']}", b'{"metadata":{"finalizers":null}}', MERGE)

    await over_all(connections, left, let_go)


def _table(name: str) -> Callable[[bool], Table]:
    return lambda quick: compare(20, min(SIZES[name][1], 40), 1) if quick else compare(*SIZES[name])


TABLES: dict[str, Callable[[bool], Table]] = {name: _table(name) for name in SIZES}
