"""How fast Dray decides when nothing else takes time: API server, scheduler and virtual time in one process, no network.

``decisions a second`` counts the scheduler's own work (seeing changes and deciding), ``pods a second`` the whole simulation with
its API server, both by processor time, since nothing here waits. The last column compares with pods that need no devices,
measured in the same run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from benchmarks.scheduler import SCENARIOS, Scenario, objects, small
from benchmarks.table import Table, ratio
from dray.api.gates import Gates
from dray.api.kinds import DEVICE_CLASSES, NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from dray.cluster.port import Decider, Event, Write
from dray.cluster.world import World
from dray.runtime.inprocess import InProcess
from dray.runtime.virtual import Clock, Virtual, Written
from dray.scheduling.kinds import KINDS
from dray.scheduling.scheduler import Scheduler

KIND_OF = {
    "Node": NODES,
    "Pod": PODS,
    "DeviceClass": DEVICE_CLASSES,
    "ResourceClaim": RESOURCE_CLAIMS,
    "ResourceSlice": RESOURCE_SLICES,
}


class Timed:
    """A decider, and the time that it takes."""

    def __init__(self, decider: Decider) -> None:
        self.decider, self.name, self.kinds = decider, decider.name, decider.kinds
        self.seconds = 0.0

    def observe(self, event: Event, now: float) -> None:
        began = time.process_time()
        self.decider.observe(event, now)
        self.seconds += time.process_time() - began

    def act(self, now: float) -> list[Write]:
        began = time.process_time()
        writes = self.decider.act(now)
        self.seconds += time.process_time() - began
        return writes

    def wake(self) -> float | None:
        return self.decider.wake()


def decisions(quick: bool) -> Table:
    columns = ("scenario", "bound", "pods a second", "decisions a second", "against no devices")
    table = Table("Scheduler in process, on virtual time", columns)
    base = 0.0
    for scenario in _scenarios(quick):
        bound, seconds, deciding = simulate(scenario)
        rate = bound / deciding
        base = base or rate
        table.add(scenario.label, f"{bound} of {scenario.pods}", f"{bound / seconds:.0f}", f"{rate:.0f}", ratio(rate, base))
    return table


def _scenarios(quick: bool) -> Iterable[Scenario]:
    if quick:
        return (small(SCENARIOS[name]) for name in reversed(SCENARIOS))
    full = replace(SCENARIOS["scheduler-large"], label="10,000 pods, one device each, 5,000 nodes", pods=10_000)
    return (*(replace(SCENARIOS[name], pods=500) for name in reversed(SCENARIOS)), full)


def simulate(scenario: Scenario) -> tuple[int, float, float]:
    """Pods bound, seconds that it took, and those of them that the scheduler used."""
    clock = Clock()
    core = InProcess(clock, gates=Gates.dray())
    for write in writes(objects(scenario, "default-scheduler")):
        core.write(write)
    virtual = Virtual(core, clock)
    timed: list[Timed] = []

    def deciders(world: World) -> list[Decider]:
        timed.append(Timed(Scheduler(world)))
        return list(timed)

    bound = 0

    def count(written: Written) -> None:
        nonlocal bound
        bound += written.write.subresource == "binding" and written.error is None

    virtual.listeners.append(count)
    began = time.process_time()
    virtual.start("scheduler", KINDS, deciders)
    virtual.run_until(lambda: bound == scenario.pods, limit=120)
    return bound, time.process_time() - began, timed[0].seconds


def writes(stages: Iterable[list[dict[str, Any]]]) -> Iterable[Write]:
    for manifest in (m for stage in stages for m in stage):
        kind, meta = KIND_OF[manifest["kind"]], manifest["metadata"]
        where = {"namespace": meta.get("namespace", ""), "name": meta["name"]}
        yield Write("create", kind, body=manifest, **where)
        if "status" in manifest:
            yield Write("patch", kind, body={"status": manifest["status"]}, subresource="status", **where)


TABLES: dict[str, Callable[[bool], Table]] = {"decisions": decisions}
