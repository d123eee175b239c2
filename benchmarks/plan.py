"""How long a plan takes on a large snapshot: nodes with eight devices each, three quarters of them in use."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.table import Table
from dray.explain.plan import Changes, plan
from dray.explain.snapshot import from_files, without_collecting
from dray.testing import claim_template, device_class, node_with_devices, pod

Plain = dict[str, Any]
DRIVER = "gpu.example.com"


def held(number: int, node: str) -> tuple[Plain, Plain]:
    """A pod that runs with two devices, and its claim."""
    name = f"p{number}"
    first = number % 3 * 2
    results = [{"request": "devices", "driver": DRIVER, "pool": node, "device": f"dev-{first + n}"} for n in (0, 1)]
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2}
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": _kept(name, finalizers=["resource.kubernetes.io/delete-protection"]),
        "spec": {"devices": {"requests": [{"name": "devices", "exactly": exactly}]}},
        "status": {
            "allocation": {"devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": terms}},
            "reservedFor": [{"resource": "pods", "name": name, "uid": f"uid-{name}"}],
        },
    }
    made = pod(name, claims=[name], requests={"cpu": "2", "memory": "4Gi"}, nodeName=node, schedulerName="default-scheduler")
    made["metadata"] |= _kept(name)
    made["status"] = {"phase": "Running"}
    return claim, made


def _kept(name: str, **more: Any) -> Plain:
    stamp = "2026-01-01T00:00:00Z"
    return {
        "name": name,
        "namespace": "default",
        "uid": f"uid-{name}",
        "resourceVersion": "5",
        "creationTimestamp": stamp,
        **more,
    }


def snapshot(nodes: int, file: Path) -> None:
    items: list[Plain] = [device_class("gpu")]
    for number in range(nodes):
        name = f"node-{number:05}"
        for each in node_with_devices(name, 8, cpu="64", memory="256Gi"):
            each["metadata"] |= {"uid": f"uid-{each['kind']}-{name}", "resourceVersion": "3"}
            items.append(each)
        for place in range(3):
            items.extend(held(number * 3 + place, name))
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))


def plans(quick: bool) -> Table:
    nodes, pods = (20, 5) if quick else (5_000, 100)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "now.json"
        snapshot(nodes, file)
        started = time.process_time()
        with without_collecting():
            found = from_files([file])
        read = time.process_time() - started
        size = file.stat().st_size
    gang = [claim_template("two", count=2), *(pod(f"new-{n}", template="two", requests={"cpu": "1"}) for n in range(pods))]
    questions = {
        f"{pods} pods with two devices each": Changes([("benchmark", body) for body in gang]),
        "a node is drained": Changes(drain=["node-00000"]),
    }
    table = Table(f"Plans on a snapshot of {nodes:,} nodes with eight devices each", ("question", "takes", "pods", "placed"))
    for name, changes in questions.items():
        started = time.process_time()
        told = plan(found, changes, now=found.newest or 0.0)
        seconds = time.process_time() - started
        table.add(name, f"{seconds:.2f} s", str(len(told.pods)), str(sum(each.verdict == "placed" for each in told.pods)))
    table.notes.append(
        f"{len(found.objects):,} objects, {size / 1e6:.1f} MB, are read in {read:.2f} s. Seconds of one processor."
    )
    return table


TABLES = {"plan": plans}
