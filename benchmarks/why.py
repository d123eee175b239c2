"""How long ``dray why`` takes on a large snapshot: nodes with eight devices each, three quarters of them in use.

``python -m benchmarks.why [NODES]``; prints one line of JSON for each question, in seconds of one processor, without reading.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.plan import snapshot
from dray.api.kinds import PODS
from dray.api.resource import ResourceClaim
from dray.explain.snapshot import Snapshot, from_files, without_collecting
from dray.explain.tree import tree
from dray.explain.why import why
from dray.testing import pod

# Devices of one node that a pod asks for, by name of the pod: two are free, eight are there.
ASKED = {"fits": 2, "waits": 8, "impossible": 9}


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


def main() -> None:
    nodes = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    found = cluster(nodes)
    for name in ASKED:
        asked = found.world.get(PODS, f"default/{name}")
        started = time.process_time()
        answer = why(found.world, asked, now=time.time())
        tree(answer, wide=False)
        print(json.dumps({"pod": name, "verdict": answer.verdict, "seconds": round(time.process_time() - started, 2)}))


if __name__ == "__main__":
    main()
