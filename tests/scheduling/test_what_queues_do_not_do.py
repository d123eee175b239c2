"""What KAI-Scheduler's manifests can ask for and Dray does not do: nobody is started as if it had not been asked."""

from __future__ import annotations

import pytest

from dray.api import kinds
from dray.explain.why import why
from tests.scheduling.gangs import add_queue, cluster, running
from tests.scheduling.scheduling_cluster import Sim, pod


def add_sharing(sim: Sim, name: str, queue: str, annotation: str, value: str) -> None:
    made = pod(name, labels={"kai.scheduler/queue": queue} if queue else {})
    made["metadata"]["annotations"] = {annotation: value}
    sim.api.put(kinds.PODS, made)


@pytest.mark.parametrize(
    ("annotation", "value"), [("gpu-fraction", "0.5"), ("gpu-memory", "2000"), ("gpu-fraction-num-devices", "2")]
)
def test_a_part_of_a_gpu_by_annotation_is_refused_by_name(annotation: str, value: str) -> None:
    sim = cluster(2)
    add_queue(sim, "team", 2)
    add_sharing(sim, "half", "team", annotation, value)
    sim.settle(5)
    assert running(sim) == set()
    assert f"by the annotation {annotation}: {value}, which is not supported" in sim.condition("half")["message"]
    told = why(sim.world, sim.world.get(kinds.PODS, "default/half"), now=sim.now)
    assert "GpuSharing" in {reason.code for reason in told.reasons}


def test_the_annotation_means_nothing_to_pods_of_no_queue() -> None:
    sim = cluster(2)
    add_sharing(sim, "half", "", "gpu-fraction", "0.5")
    sim.settle(5)
    assert running(sim) == {"half"}


def test_without_the_annotation_it_starts() -> None:
    sim = cluster(2)
    add_queue(sim, "team", 2)
    add_sharing(sim, "half", "team", "gpu-fraction", "0.5")
    sim.settle(5)
    changed = sim.pod("half")
    changed["metadata"]["annotations"] = {}
    sim.api.put(kinds.PODS, changed)
    sim.settle(5)
    assert running(sim) == {"half"}
