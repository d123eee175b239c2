"""How long the NUMA evaluator takes for a state and a demand that it has not seen, and for one that it has.

    python -m benchmarks numa

and what the plugin NUMA costs a scheduler.

Each row is a machine and a pod. "distinct": every question is another state, so nothing is remembered; "asked again": the same
questions once more. On the machine with 64 zones no two zones are alike, so there is something to search.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import msgspec

from benchmarks.decisions import Timed
from benchmarks.table import Table, micros
from dray.api.core import Pod
from dray.api.kinds import NODE_RESOURCE_TOPOLOGIES, NODES, PODS
from dray.api.meta import decode
from dray.api.topology import NodeResourceTopology
from dray.cluster.port import Decider, Write
from dray.cluster.world import World
from dray.numa.demand import demand
from dray.numa.evaluate import Evaluators
from dray.numa.layout import State, layout_of
from dray.runtime.inprocess import InProcess
from dray.runtime.virtual import Clock, Virtual, Written
from dray.scheduling.config import FILTERS, Config, Profile
from dray.scheduling.kinds import KINDS
from dray.scheduling.scheduler import Scheduler

Json = dict[str, Any]


def topology(zones: int, policy: str, scope: str, cpus: int = 32, gpus: int = 4) -> NodeResourceTopology:
    amounts = {"cpu": cpus, "memory": 256 << 30, "nvidia.com/gpu": gpus, "example.com/nic": 2}
    resources = [
        {"name": name, "capacity": str(value), "allocatable": str(value), "available": str(value)}
        for name, value in amounts.items()
    ]
    attributes = [{"name": "topologyManagerPolicy", "value": policy}, {"name": "topologyManagerScope", "value": scope}]
    listed = [{"name": f"node-{number}", "type": "Node", "resources": resources} for number in range(zones)]
    return decode(NodeResourceTopology, {"metadata": {"name": "n"}, "attributes": attributes, "zones": listed})


def pod(*containers: Json) -> Pod:
    listed = [{"name": f"c{i}", "resources": {"requests": c, "limits": c}} for i, c in enumerate(containers)]
    return decode(Pod, {"spec": {"containers": listed}, "status": {"qosClass": "Guaranteed"}})


def states(evaluators: Evaluators, topology: NodeResourceTopology, rng: random.Random, used: float, count: int) -> list[State]:
    layout = layout_of(topology)
    assert layout is not None
    layout = evaluators.layouts(layout)

    def row(values: tuple[int, ...], unit: int) -> tuple[int, ...]:
        return tuple(value - unit * rng.randint(0, int(used * value / unit)) for value in values)

    units = {"cpu": 1000, "memory": 1 << 20}
    made = [
        State(layout, tuple(row(layout.allocatable[i], units.get(name, 1)) for i, name in enumerate(layout.resources)))
        for _ in range(count)
    ]
    return [evaluators.states(state) for state in made]


CASES: dict[str, Callable[[], tuple[NodeResourceTopology, Pod]]] = {
    "2 zones, single-numa-node, GPU + CPU + memory": lambda: (
        topology(2, "single-numa-node", "pod"),
        pod({"nvidia.com/gpu": "1", "cpu": "8", "memory": "32Gi"}),
    ),
    "2 zones, restricted, whole node": lambda: (
        topology(2, "restricted", "pod"),
        pod({"nvidia.com/gpu": "6", "cpu": "48", "memory": "400Gi"}),
    ),
    "2 zones, restricted, two containers": lambda: (
        topology(2, "restricted", "container"),
        pod({"nvidia.com/gpu": "2", "cpu": "8", "memory": "32Gi"}, {"cpu": "2", "memory": "4Gi"}),
    ),
    "8 zones, restricted, 4 of them": lambda: (
        topology(8, "restricted", "pod"),
        pod({"nvidia.com/gpu": "13", "cpu": "100", "memory": "800Gi"}),
    ),
    "64 zones, single-numa-node": lambda: (
        topology(64, "single-numa-node", "pod"),
        pod({"nvidia.com/gpu": "3", "cpu": "24", "memory": "200Gi"}),
    ),
    "64 zones, restricted, 8 of them": lambda: (
        topology(64, "restricted", "pod"),
        pod({"nvidia.com/gpu": "30", "cpu": "240", "memory": "2000Gi"}),
    ),
    "64 zones, restricted, 32 of them": lambda: (
        topology(64, "restricted", "pod"),
        pod({"nvidia.com/gpu": "126", "cpu": "1000", "memory": "8100Gi"}),
    ),
}


def measure(name: str, used: float, questions: int) -> tuple[str, ...]:
    """Median, 99th percentile and mean when asked again, in processor time, and the share that was admitted."""
    evaluators = Evaluators()
    node, given = CASES[name]()
    asked = evaluators.demands(demand(given))
    listed = states(evaluators, node, random.Random(1), used, questions)
    times, admitted = [], 0
    for state in listed:
        began = time.thread_time_ns()
        verdict = evaluators.admit(state, asked)
        times.append((time.thread_time_ns() - began) / 1000)
        admitted += verdict.admit
    began = time.thread_time_ns()
    for state in listed:
        evaluators.admit(state, asked)
    again = (time.thread_time_ns() - began) / len(listed) / 1000
    high = statistics.quantiles(times, n=100)[-1]
    return micros(statistics.median(times)), micros(high), micros(again), f"{admitted / len(listed):.0%}"


def numa(quick: bool) -> Table:
    table = Table(
        "Kubelet verdicts, one question at a time",
        ("machine and pod", "used", "distinct, median", "distinct, 99%", "asked again", "admitted"),
    )
    for name in CASES:
        for used in (0.1, 0.6):
            table.add(name, f"up to {used:.0%}", *measure(name, used, 100 if quick else 5_000))
    return table


def scheduling(quick: bool) -> Table:
    return _compared(quick, 1)


def mixed(quick: bool) -> Table:
    return _compared(quick, 4)


def _compared(quick: bool, shapes: int) -> Table:
    """The same pods on the same nodes, with the plugin NUMA and without it; by the scheduler's own processor time, after it has
    seen all objects and made its first decisions. No kubelet starts the pods, so that of several shapes each keeps the others
    from its node: the most work that there can be."""
    nodes, pods = (50, 40) if quick else (5_000, 4_000)
    told = "of one shape" if shapes == 1 else f"of {shapes} shapes"
    title = f"Scheduler in process: {nodes:,} nodes with two zones each, {pods:,} Guaranteed pods {told}"
    table = Table(title, ("plugin NUMA", "decisions a second", "against off"))
    filters = tuple(name for name in FILTERS if name != "NUMA")
    without = Profile(filters=filters, scores=tuple(pair for pair in Profile().scores if pair[0] != "NUMA"))
    runs = {False: [], True: []}  # type: dict[bool, list[tuple[int, float]]]
    for _ in range(1 if quick else 3):
        for on in (False, True):
            runs[on].append(_scheduled(nodes, pods, shapes, Config((Profile() if on else without,))))
    base = max(bound / seconds for bound, seconds in runs[False])
    for on in (False, True):
        rate = max(bound / seconds for bound, seconds in runs[on])
        table.add("on" if on else "off", f"{rate:.0f}", f"{rate / base:.0%}")
    return table


def _scheduled(nodes: int, pods: int, shapes: int, config: Config) -> tuple[int, float]:
    clock = Clock()
    core = InProcess(clock)
    amounts = {"cpu": "64", "memory": "512Gi", "nvidia.com/gpu": "8", "example.com/nic": "4", "pods": "110"}
    described = msgspec.to_builtins(topology(2, "single-numa-node", "pod"))
    for number in range(nodes):
        name = f"n{number}"
        core.write(Write("create", NODES, name=name, body={"metadata": {"name": name}}))
        status = {"allocatable": amounts, "capacity": amounts}
        core.write(Write("patch", NODES, name=name, body={"status": status}, subresource="status"))
        body = {**described, "apiVersion": NODE_RESOURCE_TOPOLOGIES.api_version, "kind": "NodeResourceTopology"}
        body["metadata"] = {"name": name}
        core.write(Write("create", NODE_RESOURCE_TOPOLOGIES, name=name, body=body))
    for number in range(pods):
        asks = {"cpu": str(2 + number % shapes * 2), "memory": "8Gi", "nvidia.com/gpu": "1"}
        container = {"name": "c", "image": "i", "resources": {"requests": asks, "limits": asks}}
        body = {"metadata": {"name": f"p{number}", "namespace": "default"}, "spec": {"containers": [container]}}
        core.write(Write("create", PODS, "default", f"p{number}", body))
    virtual = Virtual(core, clock)
    timed: list[Timed] = []

    def deciders(world: World) -> list[Decider]:
        timed.append(Timed(Scheduler(world, config)))
        return list(timed)

    bound = 0

    def count(written: Written) -> None:
        nonlocal bound
        bound += written.write.subresource == "binding" and written.error is None

    virtual.listeners.append(count)
    virtual.start("scheduler", KINDS, deciders)
    virtual.run_until(lambda: bound > 0, limit=60)
    # The first decisions come after everything was listed and read, once in the life of a scheduler.
    before, timed[0].seconds = bound, 0.0
    virtual.run_until(lambda: bound == pods, limit=300)
    return bound - before, timed[0].seconds


TABLES = {"numa-verdicts": numa, "numa-scheduling": scheduling, "numa-shapes": mixed}
