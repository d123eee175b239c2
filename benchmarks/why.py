"""How long ``dray why`` takes on a large snapshot: nodes with eight devices each, three quarters of them in use."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.plan import snapshot
from benchmarks.table import Table
from dray.api.kinds import PODS
from dray.api.resource import ResourceClaim
from dray.explain.snapshot import Snapshot, from_files, without_collecting
from dray.explain.tree import tree
from dray.explain.why import why
from dray.testing import pod

# Devices of one node that a pod asks for, by name of the pod: two are free, eight are there.
ASKED = {"fits": 2, "waits": 8, "impossible": 9}
TOLD = {"fits": "fits", "waits": "waits for what is in use", "impossible": "would not fit on an empty cluster either"}


def waiting(name: str, count: int) -> list[dict[str, Any]]:
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}
    about = {"name": name, "namespace": "default", "uid": f"claim-{name}"}
    spec = {"devices": {"requests": [{"name": "devices", "exactly": exactly}]}}
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": ResourceClaim.__name__, "metadata": about, "spec": spec}
    return [claim, pod(name, claims=[name], requests={"cpu": "1"}, schedulerName="default-scheduler")]


def cluster(nodes: int) -> Snapshot:
    with tempfile.TemporaryDirectory() as folder:
        now, asked = Path(folder) / "now.json", Path(folder) / "asked.json"
        snapshot(nodes, now)
        items = [each for name, count in ASKED.items() for each in waiting(name, count)]
        asked.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
        with without_collecting():
            return from_files([now, asked])


def whys(quick: bool) -> Table:
    nodes = 20 if quick else 5_000
    found = cluster(nodes)
    table = Table(f"`dray why` on a snapshot of {nodes:,} nodes with eight devices each", ("a pod that", "verdict", "takes"))
    for name, told in TOLD.items():
        asked = found.world.get(PODS, f"default/{name}")
        started = time.process_time()
        answer = why(found.world, asked, now=time.time())
        tree(answer, wide=False)
        table.add(told, answer.verdict, f"{time.process_time() - started:.2f} s")
    table.notes.append("Seconds of one processor, without reading the file.")
    return table


TABLES = {"why": whys}
