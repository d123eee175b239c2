"""Pods that come and go on nodes with zones, in every way that makes it hard to say what a kubelet will give them.

Drawn from a seed: sizes that differ, pods that stop slowly, init containers, pods that go over several zones, pods that other
schedulers bind, members of gangs. Kubelets really give out zones; ``refused`` are those that they would not take, and ``astray``
the pods that they put elsewhere than was foreseen.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from dray.api.kinds import PODS
from dray.runtime.faults import NONE, Faults
from dray.runtime.virtual import Written
from tests.numa.clusters import GPU, Json, ZonedCluster, aligned_pod, zoned_node

ZONE = {"cpus": 16, "memory": "64Gi", "devices": {GPU: 4}}
SHAPES = ((4, 1), (6, 2), (10, 3), (5, 0), (14, 4))
WIDE = ((24, 6), (20, 5), (32, 8))
SLOW = Faults(event_delay=(0.01, 1.5), write_delay=(0.01, 0.8))


class Churn:
    """``of``: what there is beside plain pods: ``slow`` (they stop slowly), ``init``, ``wide``, ``strangers``."""

    def __init__(
        self,
        of: Sequence[str],
        *,
        exporter: bool,
        nodes: int = 4,
        pods: int = 400,
        seconds: float = 2400.0,
        life: float = 60.0,
        seed: int = 1,
        faults: Faults = NONE,
        after: str = "60s",
        fingerprint: bool = True,
    ) -> None:
        self._of, self._rng = of, random.Random(seed)
        how: dict[str, Any] = {"after": after, "exporter": "2s" if exporter else None}
        made = [zoned_node(f"s{number}", ZONE, ZONE, **how) for number in range(nodes // 2)]
        made += [zoned_node(f"r{number}", ZONE, ZONE, policy="restricted", **how) for number in range(nodes - nodes // 2)]
        self.cluster = cluster = ZonedCluster(*made, seed=seed, faults=faults)
        self.refusals: list[tuple[float, str, str]] = []
        self.strangers: set[str] = set()
        cluster.shell.listeners.append(self._written)
        for number in range(pods):
            self._plan(number, self._rng.uniform(0, seconds), life)
        cluster.run(seconds + 900)

    def _written(self, written: Written) -> None:
        body = written.write.body if written.host == "nodes" and written.error is None else None
        status = body.get("status", {}) if isinstance(body, dict) else {}
        if status.get("phase") == "Failed":
            self.refusals.append((self.cluster.elapsed, written.write.name, status.get("reason", "")))

    def _plan(self, number: int, at: float, life: float) -> None:
        rng, name = self._rng, f"p{number}"
        pod = self._pod(name)
        lasts = rng.expovariate(1 / life) + 20
        if "slow" in self._of and rng.random() < 0.5:
            pod["metadata"].setdefault("annotations", {})["dray.dev/stops-after"] = f"{rng.randint(2, 20)}s"
        self.cluster.at(5 + at, lambda: self._begin(pod))
        self.cluster.at(5 + at + lasts, lambda: self._end(name))

    def _pod(self, name: str) -> Json:
        rng = self._rng
        cores, gpus = rng.choice(SHAPES)
        if "wide" in self._of and rng.random() < 0.15:
            cores, gpus = rng.choice(WIDE)
        pod = aligned_pod(name, cores, gpus)
        if "init" in self._of and rng.random() < 0.3:
            first = {"cpu": str(rng.choice((2, 8, 12))), "memory": "2Gi"}
            pod["spec"]["initContainers"] = [{"name": "first", "image": "app", "resources": {"requests": first, "limits": first}}]
        if "strangers" in self._of and rng.random() < 0.15:
            pod["spec"]["schedulerName"] = "another"
        return pod

    def _begin(self, pod: Json) -> None:
        if pod["spec"].get("schedulerName") == "another":
            pod["spec"]["nodeName"] = self._rng.choice(self.cluster.nodes())
            self.strangers.add(pod["metadata"]["name"])
        self.cluster.create(pod)

    def _end(self, name: str) -> None:
        if self.cluster.get(PODS, name) is not None:
            self.cluster.delete(PODS, name)

    @property
    def bound(self) -> int:
        found = self.cluster.meter.counters
        attempts = "scheduler_schedule_attempts_total"
        return sum(count for (name, labels), count in found.items() if name == attempts and labels[0] == "scheduled")

    @property
    def refused(self) -> list[str]:
        """Pods that were decided on here, and that a kubelet would not take."""
        found = [name for _, name, reason in self.refusals if reason == "TopologyAffinityError"]
        return [name for name in found if name not in self.strangers]
