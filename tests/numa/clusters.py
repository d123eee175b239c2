"""A whole cluster with zones on virtual time: API server, scheduler, simulated kubelets that really give out zones."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from dray.api.kinds import PODS
from dray.cluster.metrics import Recorder
from dray.numa.placement import OBSERVED, PREDICTED
from dray.scheduling.arguments import ZoneArgs
from dray.scheduling.config import Config, Profile
from dray.testing import VirtualCluster, builders

GPU = "nvidia.com/gpu"
Json = dict[str, Any]


def zoned_node(
    name: str,
    *zones: Json,
    policy: str = "single-numa-node",
    scope: str = "pod",
    after: str = "60s",
    exporter: str | None = "2s",
    **more: Any,
) -> Json:
    """A Node whose kubelet has these zones ({"cpus": 4, "memory": "8Gi", "devices": {...}})."""
    described: Json = {
        "topologyManager": {"policy": policy, "scope": scope},
        "zones": list(zones),
        "publish": {"after": after, "jitter": "2s"},
        "exporter": None if exporter is None else {"after": exporter, "jitter": "1s"},
        **more,
    }
    made = builders.node(name)
    total: Counter[str] = Counter()
    for zone in zones:
        total.update({"cpu": zone.get("cpus", 0), **zone.get("devices", {})})
    made["metadata"]["annotations"] = {"dray.dev/numa": json.dumps(described)}
    made["status"]["allocatable"] |= {"memory": "512Gi", **{key: str(value) for key, value in total.items()}}
    made["status"]["capacity"] = made["status"]["allocatable"]
    return made


def aligned_pod(name: str, cpu: int, gpu: int = 0, memory: str = "1Mi", **more: Any) -> Json:
    amounts = {"cpu": str(cpu), "memory": memory} | ({GPU: str(gpu)} if gpu else {})
    return builders.pod(name, requests=amounts, limits=amounts, **more)


class ZonedCluster(VirtualCluster):
    """``reconstruct`` and ``wait`` as the configuration has them."""

    def __init__(self, *nodes: Json, reconstruct: bool = True, wait: float = 10.0, seed: int = 0, **more: Any) -> None:
        args = ZoneArgs(reconstruct=reconstruct, wait=wait)
        super().__init__(config=Config((Profile(zones=args),)), seed=seed, **more)
        self.meter = Recorder()
        self.create(*nodes)
        self.start_scheduler(self.meter)
        self.start_controllers()
        self.start_nodes()
        self.run(5)

    def node_of(self, name: str) -> str:
        return str((self.get(PODS, name) or {}).get("spec", {}).get("nodeName", ""))

    def phase(self, name: str) -> str:
        return str((self.get(PODS, name) or {}).get("status", {}).get("phase", ""))

    def zones_of(self, name: str, kind: str = "") -> dict[str, Json]:
        """A pod's record, the best there is, or the one asked for."""
        annotations = ((self.get(PODS, name) or {}).get("metadata") or {}).get("annotations") or {}
        text = annotations.get(kind) if kind else annotations.get(OBSERVED) or annotations.get(PREDICTED)
        return {share["zone"]: share["amount"] for share in json.loads(text or "[]")}

    @property
    def refused(self) -> int:
        """Pods that a kubelet refused."""
        found = (labels for name, labels in self.meter.counters if name == "dray_numa_admission_refusals_total")
        return sum(self.meter.counters["dray_numa_admission_refusals_total", labels] for labels in found)
