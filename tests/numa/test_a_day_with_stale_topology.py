"""Two hundred nodes under churn for a day, with topology objects that are a minute old: how often kubelets refuse."""

from __future__ import annotations

import random

import pytest

from dray.api.kinds import PODS
from tests.numa.clusters import GPU, ZonedCluster, aligned_pod, zoned_node

ZONE = {"cpus": 16, "memory": "64Gi", "devices": {GPU: 4}}
SHAPES = ((4, 1), (6, 2), (10, 3), (5, 0), (14, 4))


class Day:
    """``hours`` with so many pods; each lasts for a while, ``life`` seconds on average, and is then taken away."""

    def __init__(self, nodes: int, hours: float, pods: int, life: float, *, reconstruct: bool = True, seed: int = 1) -> None:
        half = nodes // 2
        made = [zoned_node(f"s{n}", ZONE, ZONE) for n in range(half)]
        made += [zoned_node(f"r{n}", ZONE, ZONE, policy="restricted") for n in range(nodes - half)]
        self.cluster = cluster = ZonedCluster(*made, reconstruct=reconstruct, seed=seed)
        rng = random.Random(seed)
        for number in range(pods):
            self._plan(rng, number, rng.uniform(0, hours * 3600), life)
        cluster.run(hours * 3600 + 600)

    def _plan(self, rng: random.Random, number: int, at: float, life: float) -> None:
        cores, gpus = rng.choice(SHAPES)
        name, lasts = f"p{number}", rng.expovariate(1 / life) + 30
        self.cluster.at(5 + at, lambda: self.cluster.create(aligned_pod(name, cores, gpus)) and None)
        self.cluster.at(5 + at + lasts, lambda: self._end(name))

    def _end(self, name: str) -> None:
        if self.cluster.get(PODS, name) is not None:
            self.cluster.delete(PODS, name)

    @property
    def bound(self) -> int:
        found = self.cluster.meter.counters
        attempts = "scheduler_schedule_attempts_total"
        return sum(count for (name, labels), count in found.items() if name == attempts and labels[0] == "scheduled")


def test_half_an_hour_on_four_nodes_without_a_refusal() -> None:
    day = Day(4, 0.5, 60, 180.0)
    assert day.cluster.refused == 0
    assert day.bound > 40


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_day_on_two_hundred_nodes_without_a_refusal() -> None:
    day = Day(200, 24.0, 20_000, 2400.0)
    assert day.cluster.refused == 0
    assert day.bound > 15_000


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_without_reconstruction_the_rate_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    day = Day(50, 6.0, 1_250, 2400.0, reconstruct=False)
    rate = day.cluster.refused / day.bound
    with capsys.disabled():
        print(f"\nwithout reconstruction kubelets refused {day.cluster.refused} of {day.bound} pods ({rate:.2%})")
    assert rate < 0.05
