"""Plans of a session that are made anew together: for the better, or everything is as it was."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

import msgspec
import pytest

from dray.scheduling.workloads.joint import Joint
from dray.scheduling.workloads.taking import Taking
from dray.simulate.settle import Settled, Settling, WorldLine
from tests.queues.random_clusters import cluster

# Clusters in which plans of several jobs are made anew.
SEEDS = (10, 42, 66, 73, 90, 123, 170, 270, 272, 282, 296, 300, 307, 328)


def settled(seed: int) -> Settled:
    return Settling(msgspec.convert(cluster(seed), WorldLine)).settle()


def alone(monkeypatch: pytest.MonkeyPatch, seeds: Sequence[int] = SEEDS) -> dict[int, Settled]:
    """How the clusters end when each job has its plan by itself."""
    with monkeypatch.context() as patched:
        patched.setattr(Joint, "includes", lambda *_: False)
        patched.setattr(Joint, "spares", lambda *_: None)
        return {seed: settled(seed) for seed in seeds}


def test_fewer_go_and_no_less_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = alone(monkeypatch), {seed: settled(seed) for seed in SEEDS}
    assert all(after[seed].settled for seed in SEEDS)
    assert sum(each.evictions for each in after.values()) < 0.9 * sum(each.evictions for each in before.values())
    assert all(_gpus(seed, after[seed]) >= _gpus(seed, before[seed]) for seed in SEEDS)


def test_who_comes_back_in_what_is_left_over_counts_as_running(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four go for two jobs, and one of them starts again; of two who could go instead, neither would, and a GPU would be idle."""
    seed = 475
    before, after = alone(monkeypatch, [seed])[seed], settled(seed)
    assert before.evictions == after.evictions == 4
    assert _gpus(seed, after) == _gpus(seed, before) == 24


@pytest.mark.parametrize("allowed", [lambda number: False, lambda number: number % 2 == 0], ids=["no-part", "the-first-part"])
def test_where_a_part_is_not_allowed_everything_is_as_it_was(
    allowed: Callable[[int], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = count()
    before = alone(monkeypatch)
    monkeypatch.setattr(Taking, "allows", lambda *_: allowed(next(asked)))
    assert {seed: settled(seed) for seed in SEEDS} == before
    assert next(asked) >= len(SEEDS)


def _gpus(seed: int, end: Settled) -> float:
    pods = (pod for group in cluster(seed)["podgroups"] for pod in group["pods"])
    return float(sum(pod["requests"]["gpu"] for pod in pods if end.pods[pod["name"]]["state"] == "Running"))
