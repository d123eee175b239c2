"""Queues and gangs while pods come and go, writes fail and schedulers restart: nothing double, nothing half, nothing in vain."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from dray.api import kinds
from dray.cluster.port import ClusterError, Refused, Unreachable, Write
from tests.scheduling.scheduling_cluster import pod
from tests.scheduling.test_queues_and_gangs import GPU, add_group, add_queue, cluster

QUEUES = ("a", "b", "c")


class Churn:
    """One seeded run: steps of random events, then calm, in which everything has to come to rest."""

    def __init__(self, seed: int) -> None:
        self.pick = random.Random(seed)
        self.sim = cluster(*(self.pick.choice((2, 4, 8)) for _ in range(self.pick.randint(2, 4))))
        for name in QUEUES:
            add_queue(self.sim, name, self.pick.randint(0, 4))
        self.needed: dict[str, int] = {}
        self.made = 0
        self.failing = 0.0
        self.evicted_for: dict[str, str] = {}
        self.sim.fault = self._fault

    def _fault(self, write: Write) -> ClusterError | None:
        if write.kind is kinds.PODS and write.verb == "delete" and write.about != write.key:
            self.evicted_for[write.key] = write.about
        if self.pick.random() >= self.failing:
            return None
        return self.pick.choice((Unreachable("gone"), Refused(500, "InternalError", "no")))

    def step(self) -> None:
        what = self.pick.choices(("add", "end", "delete", "restart", "wait"), (6, 2, 1, 1, 4))[0]
        pods = sorted(self.sim.api.objects[kinds.PODS])
        if what == "add":
            self._add()
        elif what == "end" and pods:
            self._end(self.pick.choice(pods))
        elif what == "delete" and pods:
            self.sim.remove(kinds.PODS, self.pick.choice(pods))
        elif what == "restart":
            self.sim.restart()
        self.sim.settle(self.pick.choice((0.5, 1.5, 3.0)))

    def _add(self) -> None:
        self.made += 1
        name, members = f"g{self.made}", self.pick.choice((1, 1, 2, 3))
        self.needed[name] = members
        preemptibility = self.pick.choice(("preemptible", "preemptible", "non-preemptible"))
        add_group(self.sim, name, self.pick.choice(QUEUES), members, preemptibility=preemptibility, stalenessGracePeriod="20s")
        gpus, priority = self.pick.randint(1, 2), self.pick.choice((0, 10, 50))
        for index in range(members + self.pick.choice((0, 0, 1))):
            made = pod(f"{name}-{index}", requests={GPU: str(gpus)}, priority=priority)
            made["metadata"]["annotations"] = {"pod-group-name": name}
            self.sim.api.put(kinds.PODS, made)

    def _end(self, key: str) -> None:
        found = self.sim.api.objects[kinds.PODS][key]
        if found["spec"].get("nodeName"):
            found["status"] = {**found.get("status", {}), "phase": "Succeeded"}
            self.sim.api.put(kinds.PODS, found)

    # -------------------------------------------------------------------------------------------------------- judging

    def running(self) -> list[dict[str, Any]]:
        pods = self.sim.api.objects[kinds.PODS].values()
        return [p for p in pods if p["spec"].get("nodeName") and p.get("status", {}).get("phase") not in ("Succeeded", "Failed")]

    def check_nodes(self) -> None:
        used: Counter[str] = Counter()
        for found in self.running():
            used[found["spec"]["nodeName"]] += int(found["spec"]["containers"][0]["resources"]["requests"][GPU])
        for name, node in self.sim.api.objects[kinds.NODES].items():
            assert used[name] <= int(node["status"]["allocatable"][GPU]), name

    def check_gangs(self) -> None:
        """At rest, and long after the grace of broken gangs: each runs as a whole or not at all, unless parts of it ended."""
        counts: Counter[str] = Counter()
        ended = set()
        for found in self.sim.api.objects[kinds.PODS].values():
            group = found["metadata"]["annotations"]["pod-group-name"]
            if found.get("status", {}).get("phase") == "Succeeded":
                ended.add(group)
            counts[group] += bool(found["spec"].get("nodeName"))
        for group, count in counts.items():
            assert count == 0 or count >= self.needed[group] or group in ended, group


def run(seed: int) -> None:
    churn = Churn(seed)
    for number in range(25):
        churn.failing = 0.15 if number % 3 == 0 else 0.0
        churn.step()
        churn.check_nodes()
    churn.failing = 0.0
    churn.evicted_for.clear()
    churn.sim.settle(120)
    churn.check_nodes()
    churn.check_gangs()
    before = sorted((p["metadata"]["uid"], p["spec"]["nodeName"]) for p in churn.running())
    churn.evicted_for.clear()
    churn.sim.settle(60)
    assert churn.evicted_for == {}, "queues evict each other in turn"
    assert before == sorted((p["metadata"]["uid"], p["spec"]["nodeName"]) for p in churn.running())


@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_double_half_or_in_turn(seed: int) -> None:
    run(seed)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_nothing_is_double_half_or_in_turn_in_a_thousand_runs(block: int) -> None:
    for seed in range(block * 50, block * 50 + 50):
        run(1000 + seed)


def test_who_is_evicted_for_is_bound() -> None:
    """Without faults every eviction is followed by the bind that it was for."""
    evictions = 0
    for seed in range(6):
        churn = Churn(100 + seed)
        for _ in range(15):
            churn._add()
            churn.sim.settle(churn.pick.choice((1.5, 3.0)))
        churn.sim.settle(60)
        bound = {f"default/{p['metadata']['name']}" for p in churn.running()}
        replaced = set(churn.evicted_for)
        assert {by for by in churn.evicted_for.values() if by not in bound and by not in replaced} == set()
        evictions += len(replaced)
    assert evictions > 10
