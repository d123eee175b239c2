"""How long a plan takes on a large snapshot: nodes with eight devices each, three quarters of them in use.

``python -m benchmarks.plan [NODES]``; prints one line of JSON for each question, in seconds of one processor.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

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


def main() -> None:
    nodes = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "now.json"
        snapshot(nodes, file)
        started = time.process_time()
        with without_collecting():
            found = from_files([file])
        read = time.process_time() - started
        size = file.stat().st_size
    gang = [claim_template("two", count=2), *(pod(f"new-{n}", template="two", requests={"cpu": "1"}) for n in range(100))]
    questions = {
        "100 pods": Changes([("benchmark", body) for body in gang]),
        "drain": Changes(drain=["node-00000"]),
    }
    for name, changes in questions.items():
        started = time.process_time()
        told = plan(found, changes, now=found.newest or 0.0)
        seconds = time.process_time() - started
        placed = sum(each.verdict == "placed" for each in told.pods)
        line = {"question": name, "nodes": nodes, "objects": len(found.objects), "megabytes": round(size / 1e6, 1)}
        print(json.dumps({**line, "read": round(read, 2), "plan": round(seconds, 2), "pods": len(told.pods), "placed": placed}))


if __name__ == "__main__":
    main()
