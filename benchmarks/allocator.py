"""The allocator beside the Go allocator: the same lines, one after the other, in the same run.

Both read a line with all nodes, slices and pods and place the pods one after another, starting at the node after the last one
used. Times are per pod and leave out the reading of the input. Dray runs as ``dray allocate``.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from typing import Any

from benchmarks import scenarios
from benchmarks.allocators import Allocator, dray_allocator, upstream_allocator
from benchmarks.table import Table, mebibytes, micros, ratio

Json = dict[str, Any]
COLUMNS = ("nodes", "pods", "placed", "Go per pod", "Dray per pod", "Dray / Go")


def compare(title: str, first: str, cases: Iterable[tuple[str, Json]]) -> Table:
    """One row per case; a row in which the two placed a different number of pods says so."""
    table = Table(title, (first, *COLUMNS))
    for label, line in cases:
        go, ours = (best(start, line) for start in (lambda: upstream_allocator(pod_seconds=30), dray_allocator))
        count = len(line["pods"])
        placed = str(ours["scheduled"])
        if ours["scheduled"] != go.get("scheduled", 0):
            placed += f" (Go: {go.get('scheduled', 0)})"
        each = [answer["micros"] / count for answer in (go, ours)]
        table.add(label, str(len(line["nodes"])), str(count), placed, *map(micros, each), ratio(each[1], each[0]))
    return table


def best(start: Callable[[], Allocator], line: Json) -> Json:
    """The quickest of up to three answers, each from a new process that knows nothing; a slow one is not asked again."""
    found: Json = {}
    for _ in range(3):
        with start() as program:
            answer = program.answer(line)
        if not found or answer["micros"] < found["micros"]:
            found = answer
        if answer["micros"] > 3_000_000:
            break
    return found


def one_device(quick: bool) -> Table:
    sizes = [(100, 400)] if quick else [(100, 800), (1_000, 2_000), (5_000, 2_000)]
    cases = (("one GPU", scenarios.whole_gpus(nodes, pods)) for nodes, pods in sizes)
    return compare("Allocator: one device a pod, 8 devices a node", "claim", cases)


def same_root(quick: bool) -> Table:
    def cases() -> Iterable[tuple[str, Json]]:
        for nodes in (100,) if quick else (100, 1_000, 5_000):
            count = 100 if quick or nodes == 100 else 500
            yield "8 on one root", scenarios.same_root(nodes, count, roots=1, devices=8)
            yield "4 on one of two roots", scenarios.same_root(nodes, count, roots=2, devices=4)
            yield "8 on one of two roots: impossible", scenarios.same_root(nodes, 1, roots=2, devices=8)

    return compare("Allocator: matchAttribute, 8 devices a node", "claim", cases())


def partitions(quick: bool) -> Table:
    same_gpu = [{"requests": ["gpu"], "matchAttribute": f"{scenarios.DRIVER}/gpu"}]

    def cases() -> Iterable[tuple[str, Json]]:
        for nodes in (10,) if quick else (10, 100):
            count = 50 if quick else 500
            yield "one 1g10", scenarios.partitions(nodes, min(count, nodes * 50), scenarios.profile("1g10"))
            yield "any partition", scenarios.partitions(nodes, min(count, nodes * 50), {})
            both = scenarios.profile("3g40") | {"count": 2}
            yield "two 3g40 of one GPU", scenarios.partitions(nodes, min(count, nodes * 8), both, constraints=same_gpu)

    return compare("Allocator: 224 partitions a node with shared counters", "claim", cases())


def groups(quick: bool) -> Table:
    sizes = [(10, 100)] if quick else [(100, 500), (1_000, 500)]
    cases = (("mig and vgpu in turn", scenarios.groups(nodes, pods)) for nodes, pods in sizes)
    return compare("Allocator: compatibility groups, 64 devices a node", "claim", cases)


def shares(quick: bool) -> Table:
    sizes = [(10, 100)] if quick else [(100, 500), (1_000, 500)]
    cases = (("18Gi of 80Gi in 10Gi steps", scenarios.shares(nodes, pods)) for nodes, pods in sizes)
    return compare("Allocator: consumable capacity, 8 devices a node", "claim", cases)


def full(quick: bool) -> Table:
    sizes = [100] if quick else [100, 1_000, 5_000]
    cases = (("one GPU, none free", scenarios.full_cluster(nodes)) for nodes in sizes)
    return compare("Allocator: a pod that fits nowhere on a full cluster", "claim", cases)


def load(quick: bool) -> Table:
    """Reading slices, and the memory that they take. For Go: decoding alone, as its allocator keeps no index."""
    nodes = 500 if quick else 5_000
    line = scenarios.whole_gpus(nodes, 1)
    with upstream_allocator(memory=True) as upstream:
        go = upstream.answer(line)
    ours = measure_load(line)
    table = Table(f"Allocator: {nodes} slices with {nodes * 8} devices", ("what", "Go", "Dray", "Dray / Go"))
    table.add("load", micros(go["loadMicros"]), micros(ours["micros"]), ratio(ours["micros"], go["loadMicros"]))
    table.add("memory", mebibytes(go["heapBytes"]), mebibytes(ours["bytes"]), ratio(ours["bytes"], go["heapBytes"]))
    table.notes.append("Go: JSON decoded into objects. Dray: JSON decoded and indexed, ready to allocate.")
    return table


def measure_load(line: Json) -> Json:
    """Decodes and indexes the slices in a fresh Python process."""
    raw = "\n".join(json.dumps(s) for s in line["slices"])
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.load"], input=raw, capture_output=True, text=True, timeout=300, check=True
    )
    found: Json = json.loads(done.stdout)
    return found


TABLES: dict[str, Callable[[bool], Table]] = {
    "allocator-one": one_device,
    "allocator-root": same_root,
    "allocator-partitions": partitions,
    "allocator-groups": groups,
    "allocator-shares": shares,
    "allocator-full": full,
    "allocator-load": load,
}
