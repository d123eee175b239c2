"""Queues against KAI-Scheduler's measured times: the same set-ups, in process, one session each.

What is timed is one ``act`` of the scheduler over a world that it knows: collecting the pods, the session with all its actions,
and the writes that follow; in seconds of the processor, so that what else the machine does counts little. KAI's times are of its
actions alone, on a machine of the same kind (2 cores).

A second table has some of the set-ups with claims for devices instead of GPUs that nodes count.

A third is about what a busy cluster costs where little happens: one pod comes and starts, or ends, beside many that run;
as a part of the same in a small cluster, so that 1.00x says that what else runs costs nothing.

A fourth is about many jobs that make room in one session: what each of them costs, as a part of what it costs where they are few,
so that 1.00x says that neither the others nor how many may have to go costs anything. A fifth is the same for jobs for which
others move.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from benchmarks.table import Table, micros, ratio
from dray.api.kinds import PODS
from dray.api.queues import GPU_RESOURCE, QUEUE_LABEL
from dray.cluster.port import Change
from dray.simulate.settle import Settling, WorldLine

Json = dict[str, Any]
ANY = {"quota": -1, "limit": -1, "over_quota_weight": 1}


def world(nodes: int, queues: dict[str, tuple[float, float]], groups: list[Json]) -> Json:
    """``queues``: quota and weight of GPUs, all under one queue ``top``."""
    made: list[Json] = [{"name": "top", "gpu": ANY, "cpu_milli": ANY, "memory_bytes": ANY}]
    for rank, (name, (quota, weight)) in enumerate(queues.items(), 1):
        gpu = {"quota": quota, "limit": -1, "over_quota_weight": weight}
        made.append({"name": name, "parent": "top", "creation_rank": rank, "gpu": gpu, "cpu_milli": ANY, "memory_bytes": ANY})
    allocatable = {"cpu_milli": 128_000, "memory_bytes": 10**12, "gpu": 8, "pods": 110}
    listed = [{"name": f"node{index:04}", "allocatable": allocatable} for index in range(nodes)]
    return {"nodes": listed, "queues": made, "podgroups": [dict(group, creation_rank=rank) for rank, group in enumerate(groups)]}


def group(name: str, queue: str, pods: int, gpus: int, node: str = "", priority: int = 50) -> Json:
    requests = {"cpu_milli": 1000, "memory_bytes": 10**9, "gpu": gpus}
    state: Json = {"state": "Running", "node": node} if node else {}
    members = [{"name": f"{name}-{index}", "requests": requests, **state} for index in range(pods)]
    return {"name": name, "queue": queue, "priority": priority, "min_member": pods, "pods": members}


def running(nodes: int, per_node: int, gpus: int, queue: str, start: int = 0) -> list[Json]:
    made = range(nodes * per_node)
    return [group(f"r{start + index}", queue, 1, gpus, f"node{index // per_node:04}") for index in made]


def scattered() -> list[Json]:
    """6, 6, 6, 5, 5 single-GPU jobs per node repeating, the youngest on the first node."""
    nodes = [f"node{index:04}" for index in range(200) for _ in range((6, 6, 6, 5, 5)[index % 5])]
    return [group(f"r{number}", "a", 1, 1, node) for number, node in enumerate(reversed(nodes))]


def beside(per_node: int, gpus: int) -> list[Json]:
    fixed = [group(f"c{index}", "c", 1, 1, f"node{index:04}", priority=100) for index in range(500)]
    return [*fixed, *running(500, per_node, gpus, "a"), group("gang", "b", 10, 8)]


GANG = group("gang", "b", 10, 8)
CASES: dict[str, tuple[str, str, Callable[[], Json]]] = {
    "a1": ("gang of 512 on 500 empty nodes", "0.52 s", lambda: world(500, {"a": (4000, 1)}, [group("gang", "a", 512, 1)])),
    "b1": (
        "10 x 8 GPUs, nothing may be reclaimed, 500 jobs",
        "0.005 s",
        lambda: world(500, {"a": (4000, 1), "b": (0, 0)}, [*running(500, 1, 8, "a"), GANG]),
    ),
    "b2": (
        "the same, 4,000 jobs",
        "0.023 s",
        lambda: world(500, {"a": (4000, 1), "b": (0, 0)}, [*running(500, 8, 1, "a"), GANG]),
    ),
    "b3": (
        "10 x 8 GPUs reclaim 10 jobs",
        "0.76 s",
        lambda: world(500, {"a": (0, 1), "b": (80, 1)}, [*running(500, 1, 8, "a"), GANG]),
    ),
    "b4": (
        "10 x 8 GPUs reclaim 80 jobs",
        "26 s",
        lambda: world(500, {"a": (0, 1), "b": (80, 1)}, [*running(500, 8, 1, "a"), GANG]),
    ),
    "b5": (
        "10 x 8 GPUs, never fits, 7-GPU jobs",
        "0.029 s",
        lambda: world(500, {"a": (0, 1), "b": (80, 1), "c": (500, 1)}, beside(1, 7)),
    ),
    "b6": (
        "10 x 8 GPUs, never fits, 1-GPU jobs",
        "1.05 s",
        lambda: world(500, {"a": (0, 1), "b": (80, 1), "c": (500, 1)}, beside(7, 1)),
    ),
    "c1": (
        "1 GPU reclaimed of 4,000 jobs",
        "0.06 s",
        lambda: world(500, {"a": (0, 1), "b": (1, 1)}, [*running(500, 8, 1, "a"), group("one", "b", 1, 1)]),
    ),
    "d500": (
        "1,000 jobs on 500 nodes",
        "0.68 s",
        lambda: world(500, {"a": (4000, 1)}, [group(f"p{index}", "a", 1, 1) for index in range(1000)]),
    ),
    "d2000": (
        "1,000 jobs on 2,000 nodes",
        "2.8 s",
        lambda: world(2000, {"a": (4000, 1)}, [group(f"p{index}", "a", 1, 1) for index in range(1000)]),
    ),
    "e1": (
        "a whole node freed by moving 5 or 6 jobs, 200 nodes",
        "never (without a limit 0.016 s)",
        lambda: world(200, {"a": (4000, 1)}, [*scattered(), group("large", "a", 1, 8)]),
    ),
}


def with_devices(made: Json) -> Json:
    """GPUs are devices: each pod has a claim for as many as it asked its node for."""
    claims: list[Json] = []

    def claimed(pod: Json) -> Json:
        requests = dict(pod["requests"])
        if not (count := requests.pop("gpu")):
            return pod
        claims.append({"name": pod["name"], "deviceClassName": GPU_RESOURCE, "count": count})
        return {**pod, "requests": requests, "resource_claims": [pod["name"]]}

    groups = [{**each, "pods": [claimed(pod) for pod in each["pods"]]} for each in made["podgroups"]]
    counts = {node["name"]: node["allocatable"]["gpu"] for node in made["nodes"]}
    slices = [{"nodeName": name, "DeviceClassName": GPU_RESOURCE, "Count": count} for name, count in counts.items()]
    devices = {"device_classes": [GPU_RESOURCE], "resource_slices": slices, "resource_claims": claims}
    return {**made, "podgroups": groups, "dra": devices}


def measure(made: Json) -> tuple[float, int, int, int]:
    settling = Settling(msgspec.convert(made, WorldLine))
    settling.scheduler.workloads.know()
    for node in made["nodes"]:
        # What a node has is known before the session in which it is asked for.
        settling.scheduler.engine.inventory.view(node["name"])
    started = time.process_time()
    writes = settling.scheduler.act(settling.now)
    took = time.process_time() - started
    binds = sum(write.subresource == "binding" for write in writes)
    evictions = sum(write.verb == "delete" for write in writes)
    promised = sum(len(plan.seats) for plan in settling.plans())
    return took, binds, evictions, promised


def queues(quick: bool) -> Table:
    """Of a quick run only the smallest set-ups, once."""
    table = Table(
        "One session for queues: the same set-ups as measured with KAI-Scheduler",
        ("set-up", "bound", "evicted", "promised", "Dray", "KAI"),
    )
    for name in ("b1", "e1") if quick else CASES:
        told, kai, make = CASES[name]
        took, binds, evictions, promised = min(measure(make()) for _ in range(1 if quick else 3))
        table.add(told, str(binds), str(evictions), str(promised), f"{took:.3f} s", kai)
    return table


def queues_devices(quick: bool) -> Table:
    table = Table(
        "One session for queues whose pods have claims for devices",
        ("set-up", "evicted", "promised", "Dray", "GPUs of nodes", "ratio"),
    )
    for name in ("b1",) if quick else ("a1", "b1", "b2", "b3", "b4", "b5", "b6", "c1", "e1"):
        told, _, make = CASES[name]
        often = range(1 if quick else 3)
        plain, claims = min(measure(make()) for _ in often), min(measure(with_devices(make())) for _ in often)
        took, _, evictions, promised = claims
        table.add(told, str(evictions), str(promised), f"{took:.3f} s", f"{plain[0]:.3f} s", ratio(took, plain[0]))
    return table


# Nodes, pods that run on each (of one GPU; eight would fit), and pods of a gang.
BUSY: dict[str, tuple[int, int, int]] = {
    "20 pods on 4 nodes": (4, 5, 1),
    "250 pods on 50 nodes": (50, 5, 1),
    "2,500 pods on 500 nodes": (500, 5, 1),
    "10,000 pods on 2,000 nodes": (2000, 5, 1),
    "2,000 gangs of five on 2,000 nodes": (2000, 5, 5),
}


def gangs(nodes: int, per_node: int, size: int) -> list[Json]:
    places = [f"node{index:04}" for index in range(nodes) for _ in range(per_node)]
    made = [group(f"g{first}", "a", size, 1) for first in range(0, len(places), size)]
    for number, pod in enumerate(pod for each in made for pod in each["pods"]):
        pod.update(state="Running", node=places[number])
    return made


class Busy:
    """A cluster in which most of what was to happen has happened."""

    def __init__(self, nodes: int, per_node: int, size: int) -> None:
        made = world(nodes, {"a": (4000, 1), "b": (100, 1)}, gangs(nodes, per_node, size))
        self.settling = Settling(msgspec.convert(made, WorldLine))
        self.settling.round()
        self._version = 0

    def times(self, often: int) -> Iterator[tuple[float, float]]:
        """How long it takes from a change until all that follows is decided, where a pod comes and where it ends."""
        for number in range(often):
            made = self._pod(f"one-{number}")
            yield self._timed(made), self._timed(made, gone=True)

    def _timed(self, pod: Json, *, gone: bool = False) -> float:
        settling = self.settling
        settling.now += 1.0
        started = time.process_time()
        for change in self._changes(pod, gone):
            settling.scheduler.observe(change, settling.now)
        writes = settling.scheduler.act(settling.now)
        took = time.process_time() - started
        for write in writes:
            if write.subresource == "binding":
                pod["spec"]["nodeName"] = write.body["target"]["name"]
                pod["status"] = {"phase": "Running"}
                for change in self._changes(pod, gone):
                    settling.scheduler.observe(change, settling.now)
        assert gone or "nodeName" in pod["spec"], "the pod fits"
        return took

    def _changes(self, pod: Json, gone: bool) -> list[Change]:
        self._version += 1
        pod["metadata"]["resourceVersion"] = str(10**9 + self._version)
        encoded = msgspec.json.encode(pod)
        return self.settling.world.remove(PODS, encoded) if gone else self.settling.world.put(PODS, encoded)

    def _pod(self, name: str) -> Json:
        amounts = {"cpu": "1", "memory": "1000000000", "nvidia.com/gpu": "1"}
        container = {"name": "main", "resources": {"requests": amounts, "limits": {"nvidia.com/gpu": "1"}}}
        scheduler = next(iter(self.settling.scheduler.config.by_name))
        about = {"name": name, "namespace": "default", "uid": f"uid-{name}", "labels": {QUEUE_LABEL: "b"}, "annotations": {}}
        spec = {"schedulerName": scheduler, "containers": [container]}
        return {"metadata": about, "spec": spec, "status": {"phase": "Pending"}}


def busy(quick: bool) -> Table:
    columns = ("running", "one pod comes and starts", "against the first", "one pod ends", "against the first")
    table = Table("One pod in a busy cluster with queues", columns)
    first: tuple[float, float] | None = None
    for told, sizes in list(BUSY.items())[: 1 if quick else None]:
        measured = list(Busy(*sizes).times(3 if quick else 40))
        comes, ends = (min(column) for column in zip(*measured))
        first = first or (comes, ends)
        cells = ((micros(each * 1e6), ratio(each, base)) for each, base in zip((comes, ends), first))
        table.add(told, *(cell for pair in cells for cell in pair))
    table.notes.append("The least of 40 times, in seconds of one processor: the change is seen, and all that follows is decided.")
    return table


# Jobs that preempt one GPU each, nodes of which each has eight jobs of one GPU that may have to go, and jobs of another queue
# that come first and fit nowhere.
CROWDED: dict[str, tuple[int, int, int]] = {
    "25 jobs, 800 may go": (25, 100, 0),
    "100 jobs, 800 may go": (100, 100, 0),
    "100 jobs, 3,200 may go": (100, 400, 0),
    "100 jobs behind 300 of another queue, 800 may go": (100, 100, 300),
}


def crowd(jobs: int, nodes: int, before: int) -> Json:
    gpus = 8 * nodes
    low = [dict(each, priority=40) for each in running(nodes, 8, 1, "a")]
    first = [group(f"first{index}", "b", 1, 16, priority=60) for index in range(before)]
    return world(
        nodes, {"a": (gpus - 8, 1), "b": (8, 1)}, [*low, *first, *(group(f"p{i}", "a", 1, 1, priority=60) for i in range(jobs))]
    )


def crowded(quick: bool) -> Table:
    table = Table("Many jobs that preempt in one session", ("jobs", "evicted", "session", "for each job", "against the first"))
    first: float | None = None
    for told, (jobs, nodes, before) in list(CROWDED.items())[: 1 if quick else None]:
        took, _, evictions, _ = min(measure(crowd(jobs, nodes, before)) for _ in range(1 if quick else 3))
        first = first or took / jobs
        table.add(told, str(evictions), f"{took:.3f} s", micros(took / jobs * 1e6), ratio(took / jobs, first))
    return table


# Jobs of four GPUs, and nodes of which each has seven jobs of one GPU: for each job three of them move.
MOVING: dict[str, tuple[int, int]] = {
    "25 jobs, 250 nodes": (25, 250),
    "25 jobs, 1,000 nodes": (25, 1000),
    "100 jobs, 1,000 nodes": (100, 1000),
}


def moving(quick: bool) -> Table:
    columns = (
        "jobs",
        "moved",
        "GPUs of nodes",
        "for each job",
        "against the first",
        "claims",
        "for each job",
        "against the first",
    )
    table = Table("Many jobs for which others move in one session", columns)
    first: tuple[float, ...] = ()
    for told, (jobs, nodes) in list(MOVING.items())[: 1 if quick else None]:
        waiting = [group(f"w{number}", "a", 1, 4) for number in range(jobs)]
        made = world(nodes, {"a": (8 * nodes, 1)}, [*running(nodes, 7, 1, "a"), *waiting])
        took = [min(measure(each) for _ in range(1 if quick else 2)) for each in (made, with_devices(made))]
        costs = tuple(each[0] / jobs for each in took)
        first = first or costs
        cells = ((f"{each * jobs:.3f} s", micros(each * 1e6), ratio(each, base)) for each, base in zip(costs, first))
        table.add(told, str(took[0][2]), *(cell for three in cells for cell in three))
    return table


TABLES = {
    "queues": queues,
    "queues-devices": queues_devices,
    "queues-busy": busy,
    "queues-crowded": crowded,
    "queues-moving": moving,
}
