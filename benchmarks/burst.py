"""Many pods at once for a scheduler that runs: kube-scheduler beside ``dray scheduler``, each on a new, real kube-apiserver.

The cluster and the claims are there, the scheduler has bound a pod and rests. Then all pods are created as fast as the API
server takes them. The latency of a pod is counted from when its creation was sent until a watch shows it bound, so it holds
the time that the pod waits for its turn, and what the creations take from the scheduler by sharing the machine with it.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import uvloop

from benchmarks.scheduler import (
    DEVICES,
    LIMIT,
    SCHEDULER_OF,
    Bound,
    Json,
    Scenario,
    create,
    exactly,
    objects,
    running,
    small,
    watch,
)
from benchmarks.table import Table, ratio
from benchmarks.wire import Wire, over_all, wires
from tests.real.upstream import manifests
from tests.real.upstream.control_plane import Server, control_plane

SCENARIOS = {
    "burst-one": Scenario("one device, 500 nodes", 500, 2_000, exactly()),
    "burst-plain": Scenario("no devices, 500 nodes", 500, 2_000),
}


@dataclass
class Burst:
    """``latencies`` from the shortest to the longest, of the pods that were bound; ``created``: how long the creations took."""

    latencies: list[float]
    created: float
    cpu: float

    def at(self, part: float) -> float:
        return self.latencies[min(int(len(self.latencies) * part), len(self.latencies) - 1)]


def compare(scenario: Scenario) -> Table:
    """One row for each scheduler."""
    columns = ("scheduler", "bound", "created in", "p1", "p50", "p99", "p50 against kube-scheduler", "p99", "CPU per pod")
    table = Table(f"{scenario.pods} pods at once, from creation to binding, {DEVICES} devices a node: {scenario.label}", columns)
    base: Burst | None = None
    for scheduler in SCHEDULER_OF:
        burst = measure(scenario, scheduler)
        base = base or burst
        times = (f"{burst.created:.1f} s", *(f"{burst.at(part):.2f} s" for part in (0.01, 0.5, 0.99)))
        against = (ratio(burst.at(part), base.at(part)) for part in (0.5, 0.99))
        each = f"{burst.cpu / len(burst.latencies) * 1000:.2f} ms"
        table.add(scheduler, f"{len(burst.latencies)} of {scenario.pods}", *times, *against, each)
    return table


def measure(scenario: Scenario, scheduler: str) -> Burst:
    with tempfile.TemporaryDirectory(prefix="dray-bench-") as folder, control_plane(Path(folder)) as server:
        return uvloop.run(_measure(scenario, scheduler, server, Path(folder)))


async def _measure(scenario: Scenario, scheduler: str, server: Server, folder: Path) -> Burst:
    *there, pods = objects(scenario, SCHEDULER_OF[scheduler])
    sent: dict[str, float] = {}

    async def send(wire: Wire, pod: Json) -> None:
        sent[pod["metadata"]["name"]] = time.perf_counter()
        await create(wire, pod)

    async with wires(server.kubeconfig, 24) as connections:
        for stage in there:
            await over_all(connections, stage, create)
        with running(scheduler, server.kubeconfig, folder) as program:
            await create(connections[0], manifests.pod("first", scheduler=SCHEDULER_OF[scheduler]))
            await asyncio.wait_for(watch(server.kubeconfig, Bound(1), program), LIMIT)
            await asyncio.sleep(1)  # what the start left is done
            before, bound = program.cpu_seconds(), Bound(scenario.pods + 1)
            watching = asyncio.create_task(watch(server.kubeconfig, bound, program))
            began = time.perf_counter()
            await over_all(connections, pods, send)
            created = time.perf_counter() - began
            try:
                await asyncio.wait_for(watching, LIMIT)
            except TimeoutError:
                pass
            cpu = program.cpu_seconds() - before
    latencies = sorted(at - sent[name] for name, at in bound.at.items() if name in sent)
    if not latencies:
        raise RuntimeError(f"{scheduler} bound nothing in {LIMIT:g} s:\n{program.text()[-2000:]}")
    return Burst(latencies, created, cpu)


def _table(name: str) -> Callable[[bool], Table]:
    return lambda quick: compare(small(SCENARIOS[name]) if quick else SCENARIOS[name])


TABLES: dict[str, Callable[[bool], Table]] = {name: _table(name) for name in SCENARIOS}
