"""What ``dray why`` notes of a pod's gang, beside why the pod waits or where it is."""

from __future__ import annotations

from typing import Any

import pytest

from dray.api import kinds
from dray.explain.why import why
from dray.scheduling.config import Config, Profile
from tests.scheduling.scheduling_cluster import Sim
from tests.scheduling.test_queues_and_gangs import GPU, add_group, add_member, add_queue, cluster


def notes(sim: Sim, name: str, config: Config | None = None) -> list[str]:
    return why(sim.world, sim.world.get(kinds.PODS, f"default/{name}"), now=sim.now, config=config).notes


def runs(members: int = 2, **spec: Any) -> Sim:
    sim = cluster(4)
    add_queue(sim, "team", 4)
    add_group(sim, "train", "team", members, **spec)
    for index in range(members):
        add_member(sim, f"w{index}", "train")
    sim.settle(5)
    return sim


@pytest.mark.parametrize(
    ("spec", "then"),
    [
        ({}, "it is evicted when that has been so for 60 s"),
        ({"stalenessGracePeriod": "5m"}, "it is evicted when that has been so for 300 s"),
        ({"stalenessGracePeriod": "-1s"}, "it stays so for ever"),
    ],
)
def test_that_it_runs_without_what_it_needs_and_what_comes_of_that(spec: dict[str, Any], then: str) -> None:
    sim = runs(**spec)
    assert notes(sim, "w0") == []
    add_group(sim, "train", "team", 3, **spec)
    sim.settle(2)
    told = (
        f"pod group default/train runs with 2 of the 3 pods that it needs: unless the others start, {then} (stalenessGracePeriod)"
    )
    assert notes(sim, "w0") == [told]


def test_nothing_of_that_where_the_next_session_mends_it() -> None:
    sim = runs()
    sim.remove(kinds.PODS, "default/w0")
    add_member(sim, "w2", "train")
    assert notes(sim, "w1") == []


@pytest.mark.parametrize("core", [True, False])
def test_that_its_pods_name_different_schedulers(core: bool) -> None:
    """Each of them waits for as many as it has itself."""
    sim = cluster(4)
    add_queue(sim, "team", 4)
    add_group(sim, "train", "team", 2)
    policy = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    sim.api.put(kinds.CORE_POD_GROUPS, {"metadata": {"name": "train", "namespace": "default"}, "spec": policy})
    for name, scheduler in (("w0", "default-scheduler"), ("w1", "another")):
        if core:
            sim.add_pod(name, requests={GPU: "1"}, schedulerName=scheduler, schedulingGroup={"podGroupName": "train"})
        else:
            add_member(sim, name, "train", schedulerName=scheduler)
    sim.settle(5)
    assert "too few pods to start: 1 of 2" in sim.condition("w0")["message"]
    told = "pods of its group name different schedulers (another: 1, default-scheduler: 1): "
    told += "they start together only if one scheduler has all these names"
    assert notes(sim, "w0") == notes(sim, "w1") == [told]
    both = Config(profiles=(Profile("default-scheduler"), Profile("another")))
    assert notes(sim, "w0", both) == []
