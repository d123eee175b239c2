"""Schedulers on a real kube-apiserver: kube-scheduler beside ``dray scheduler``, one scenario after the other, in the same run.

Each run has a new control plane. Nodes, slices, claims and pods are there before the scheduler starts; the rate counts from
the first binding to the last, so that it leaves out the start of the program. All share two things that a cluster would not:
the machine, and its API server; so the processor time and the resident memory of the scheduler itself are shown as well.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.table import Table, ratio
from benchmarks.wire import MERGE, Wire, over_all, wires
from dray.api.resource import FINALIZER
from tests.real.upstream import manifests
from tests.real.upstream.binaries import cache
from tests.real.upstream.client import PATHS, collection
from tests.real.upstream.control_plane import Server, control_plane
from tests.real.upstream.process import Program
from tests.real.upstream.scheduler import kube_scheduler

Json = dict[str, Any]
DEVICES = 10
LIMIT = 300.0
"""Seconds after which a run ends with what was bound by then."""
SCHEDULER_OF = {"kube-scheduler": "default-scheduler", "dray": "dray"}


@dataclass(frozen=True)
class Scenario:
    """``claims`` are made for every ``pods_per_claim`` pods; ``generated``: as Dray's controller makes them from templates, with
    their finalizer from birth."""

    label: str
    nodes: int
    pods: int
    claim: Json | None = None
    constraints: tuple[Json, ...] = ()
    pods_per_claim: int = 1
    extended: bool = False
    generated: bool = False


def exactly(**more: Any) -> Json:
    return {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1, **more}


MODEL = [{"cel": {"expression": 'device.attributes["gpu.example.com"].model == "h100"'}}]
ROOT = "resource.kubernetes.io/pcieRoot"
SCENARIOS = {
    "scheduler-one": Scenario("one device, 500 nodes", 500, 2_000, exactly()),
    "scheduler-generated": Scenario("one device of a generated claim, 500 nodes", 500, 2_000, exactly(), generated=True),
    "scheduler-selector": Scenario("CEL selector, 500 nodes", 500, 2_000, exactly(selectors=MODEL)),
    "scheduler-root": Scenario("five of one PCI root, 500 nodes", 500, 800, exactly(count=5), ({"matchAttribute": ROOT},)),
    "scheduler-extended": Scenario("extended resource, 500 nodes", 500, 1_000, extended=True),
    "scheduler-shared": Scenario("five pods a claim, 500 nodes", 500, 2_000, exactly(), pods_per_claim=5),
    "scheduler-large": Scenario("one device, 5,000 nodes", 5_000, 2_000, exactly()),
    "scheduler-plain": Scenario("no devices, 500 nodes", 500, 2_000),
}


@dataclass
class Run:
    bound: int
    seconds: float
    first: float
    start_cpu: float
    cpu: float
    memory: int

    @property
    def last(self) -> float:
        return self.first + self.seconds

    @property
    def rate(self) -> float:
        return (self.bound - 1) / self.seconds if self.bound > 1 and self.seconds else 0.0


def compare(scenario: Scenario) -> Table:
    """One row for each scheduler."""
    times = ("first bound", "CPU until then", "all bound", "pods/s", "against kube-scheduler", "CPU per pod")
    columns = ("scheduler", "bound", *times, "memory")
    table = Table(f"Scheduler on a real kube-apiserver, {DEVICES} devices a node: {scenario.label}", columns)
    base = 0.0
    for scheduler in SCHEDULER_OF:
        run = measure(scenario, scheduler)
        base = base or run.rate
        begin = (f"{run.bound} of {scenario.pods}", f"{run.first:.1f} s", f"{run.start_cpu:.2f} s", f"{run.last:.1f} s")
        each = (run.cpu - run.start_cpu) / max(run.bound, 1) * 1000
        end = (f"{each:.2f} ms", f"{run.memory / 2**20:.0f} MiB")
        table.add(scheduler, *begin, f"{run.rate:.0f}", ratio(run.rate, base), *end)
    return table


def small(scenario: Scenario) -> Scenario:
    nodes = min(scenario.nodes, 20)
    return replace(scenario, label=f"{scenario.label} (quick: {nodes})", nodes=nodes, pods=40)


def measure(scenario: Scenario, scheduler: str) -> Run:
    with tempfile.TemporaryDirectory(prefix="dray-bench-") as folder, control_plane(Path(folder)) as server:
        return uvloop.run(_measure(scenario, scheduler, server, Path(folder)))


async def _measure(scenario: Scenario, scheduler: str, server: Server, folder: Path) -> Run:
    async with wires(server.kubeconfig, 24) as connections:
        for stage in objects(scenario, SCHEDULER_OF[scheduler]):
            await over_all(connections, stage, create)
    bound = Bound(scenario.pods)
    with running(scheduler, server.kubeconfig, folder) as program:
        began = time.perf_counter()
        try:
            await asyncio.wait_for(watch(server.kubeconfig, bound, program), LIMIT)
        except TimeoutError:
            pass
        if program.process.poll() is not None:
            raise RuntimeError(f"{scheduler} ended:\n{program.text()[-2000:]}")
        cpu, memory = program.cpu_seconds(), program.memory_bytes()
    if not bound.at:
        raise RuntimeError(f"{scheduler} bound nothing in {LIMIT:g} s:\n{program.text()[-2000:]}")
    first, last = min(bound.at.values()), max(bound.at.values())
    return Run(len(bound.at), last - first, first - began, bound.start_cpu, cpu, memory)


@dataclass
class Bound:
    """When each pod was bound, by name, and what the scheduler had used by the first."""

    wanted: int
    at: dict[str, float] = field(default_factory=dict)
    start_cpu: float = 0.0


async def create(wire: Wire, manifest: Json) -> None:
    path = collection(manifest)
    await wire.call("POST", path, json.dumps(manifest).encode())
    if "status" in manifest:
        body = json.dumps({"status": manifest["status"]}).encode()
        await wire.call("PATCH", f"{path}/{manifest['metadata']['name']}/status", body, MERGE)


async def watch(kubeconfig: Path, bound: Bound, program: Program) -> None:
    """Returns when every pod is bound. A server may end a watch at any time: then list and watch again."""

    def look(pod: Json) -> None:
        if pod.get("spec", {}).get("nodeName") and pod["metadata"]["name"] not in bound.at:
            if not bound.at:
                bound.start_cpu = program.cpu_seconds()
            bound.at[pod["metadata"]["name"]] = time.perf_counter()

    pods = PATHS["Pod"].format(namespace="default")
    while len(bound.at) < bound.wanted:
        async with wires(kubeconfig, 1) as (wire,):
            listed = json.loads(await wire.call("GET", pods))
            for pod in listed["items"]:
                look(pod)
            async for event in wire.events(f"{pods}?watch=1&resourceVersion={listed['metadata']['resourceVersion']}"):
                look(event["object"])
                if len(bound.at) == bound.wanted:
                    return


@contextmanager
def running(scheduler: str, kubeconfig: Path, folder: Path) -> Iterator[Program]:
    if scheduler == "kube-scheduler":
        with kube_scheduler(kubeconfig, folder, qps=5000) as program:
            yield program
        return
    argv: list[str | Path] = [Path(sys.executable).with_name("dray"), "scheduler", "--kubeconfig", kubeconfig]
    with Program("dray scheduler", argv, folder / "dray-scheduler.log", _compiled()) as program:
        yield program


def _compiled() -> dict[str, str]:
    """An environment in which Python keeps what it compiled, as an installation does, and leaves nothing in the sources. It is
    kept for the next benchmark too: the first start on a machine compiles, and says nothing about those after it."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": str(cache().with_name("compiled"))}


# ------------------------------------------------------------------------------------------------------------ objects


def objects(scenario: Scenario, scheduler: str) -> Iterator[list[Json]]:
    """What is created, in stages."""
    extended = {"extendedResourceName": "example.com/gpu"} if scenario.extended else {}
    yield [manifests.device_class("gpu", **extended)]
    nodes = [f"node-{i:04d}" for i in range(scenario.nodes)]
    yield [manifests.node(n) for n in nodes]
    if scenario.claim or scenario.extended:
        yield [manifests.resource_slice(n, [device(i) for i in range(DEVICES)]) for n in nodes]
    if scenario.claim:
        yield [claim(scenario, i) for i in range(-(-scenario.pods // scenario.pods_per_claim))]
    yield [pod(scenario, i, scheduler) for i in range(scenario.pods)]


def device(number: int) -> Json:
    attributes = {"model": {"string": "h100"}, "index": {"int": number}, ROOT: {"string": f"pci0000:{number // 5:02x}"}}
    return {"name": f"gpu-{number}", "attributes": attributes, "capacity": {"memory": {"value": "80Gi"}}}


def claim(scenario: Scenario, number: int) -> Json:
    requests = [{"name": "device", "exactly": scenario.claim}]
    made = manifests.claim(f"claim-{number}", requests=requests, constraints=list(scenario.constraints))
    if scenario.generated:
        made["metadata"]["finalizers"] = [FINALIZER]
    return made


def pod(scenario: Scenario, number: int, scheduler: str) -> Json:
    claims = [f"claim-{number // scenario.pods_per_claim}"] if scenario.claim else []
    made = manifests.pod(f"pod-{number:05d}", *claims, scheduler=scheduler)
    if scenario.extended:
        resources = made["spec"]["containers"][0]["resources"]
        resources["requests"]["example.com/gpu"] = resources.setdefault("limits", {})["example.com/gpu"] = "1"
    return made


def _table(name: str) -> Callable[[bool], Table]:
    return lambda quick: compare(small(SCENARIOS[name]) if quick else SCENARIOS[name])


TABLES: dict[str, Callable[[bool], Table]] = {name: _table(name) for name in SCENARIOS}
