"""A gang with zones starts if there is any way to place all of its members: every node for each, in every order, by trial.

The kubelets are simulated ones, written apart from what predicts them. Who is bound comes to them in that order, and is never
refused.
"""

from __future__ import annotations

import copy
import itertools
import random
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest

from dray.api import kinds
from dray.api.core import Pod
from dray.api.meta import decode
from dray.nodes.machine import MachineZone
from dray.nodes.topology import Config, Rejection, Topology
from dray.numa.observe import as_annotations, observe
from dray.numa.podresources import PodResources
from tests.scheduling.scheduling_cluster import Sim, pod

GPU = "nvidia.com/gpu"
Json = dict[str, Any]


def _container(name: str, cpu: int, gpu: int) -> Json:
    amounts = {"cpu": str(cpu), "memory": "1Mi"} | ({GPU: str(gpu)} if gpu else {})
    return {"name": name, "image": "app", "resources": {"requests": amounts, "limits": amounts}}


class Small:
    """A random cluster in which a gang waits; ``fits`` if there is any way at all."""

    def __init__(self, seed: int) -> None:
        self._pick = pick = random.Random(seed)
        self.kubelets = {f"n{number}": self._kubelet() for number in range(pick.randint(1, 3))}
        self.old = {name: self._fill(name) for name in self.kubelets}
        self.members = [self._pod(f"m{number}") for number in range(pick.randint(2, 4))]

    def _kubelet(self) -> Topology:
        pick = self._pick
        zones = [MachineZone(number, cpus=pick.randint(2, 6), devices={GPU: pick.choice((0, 1, 2, 3))}) for number in range(2)]
        policy, scope = pick.choice(("single-numa-node", "restricted")), pick.choice(("container", "pod"))
        return Topology(zones, Config(policy, scope, memory_manager="None", split="lowest"))  # type: ignore[arg-type]

    def _pod(self, name: str, **more: Any) -> Json:
        pick = self._pick
        made = [
            _container(f"c{index}", pick.randint(1, 4), pick.choice((0, 0, 1, 2))) for index in range(pick.choice((1, 1, 1, 2)))
        ]
        return pod(name, containers=made, **more)

    def _fill(self, node: str) -> list[Json]:
        """Pods that are there, after others that were and are gone."""
        kubelet, there = self.kubelets[node], list[Json]()
        for number in range(self._pick.randint(0, 3)):
            made = self._pod(f"{node}-old-{number}", node_name=node, phase="Running")
            made["metadata"]["uid"] = made["metadata"]["name"]
            if isinstance(kubelet.admit(decode(Pod, made)), Rejection):
                continue
            if self._pick.random() < 0.5:
                kubelet.release(made["metadata"]["uid"])
                continue
            there.append(made)
        for made in there:
            said = PodResources(made["metadata"]["name"], "default", kubelet.containers(made["metadata"]["uid"]))
            annotations = as_annotations(observe(said, kubelet.zone_of_cpus()))
            made["metadata"]["annotations"] = {name: text for name, text in annotations.items() if text}
            made["status"]["startTime"] = "2026-01-01T00:00:00Z"
        return there

    # ----------------------------------------------------------------------------------------------------------- made real

    def sim(self) -> Sim:
        sim = Sim()
        for name, kubelet in self.kubelets.items():
            total = {"cpu": sum(zone.cpus for zone in kubelet.zones), GPU: sum(zone.devices[GPU] for zone in kubelet.zones)}
            sim.add_node(name, cpu=str(total["cpu"]), resources={GPU: str(total[GPU])})
            sim.api.put(kinds.NODE_RESOURCE_TOPOLOGIES, kubelet.topology(name))
            for made in self.old[name]:
                sim.api.put(kinds.PODS, made)
        sim.settle(1)
        policy = {"schedulingPolicy": {"gang": {"minCount": len(self.members)}}}
        sim.api.put(kinds.CORE_POD_GROUPS, {"metadata": {"name": "gang", "namespace": "default"}, "spec": policy})
        for made in self.members:
            made["spec"]["schedulingGroup"] = {"podGroupName": "gang"}
            sim.api.put(kinds.PODS, made)
        return sim

    # ------------------------------------------------------------------------------------------------------------- counted

    def fits(self) -> bool:
        pods = [decode(Pod, {**made, "metadata": {**made["metadata"], "uid": made["metadata"]["name"]}}) for made in self.members]

        @cache
        def takes(node: str, these: tuple[int, ...]) -> bool:
            return any(_takes(self.kubelets[node], [pods[index] for index in order]) for order in itertools.permutations(these))

        for nodes in itertools.product(self.kubelets, repeat=len(pods)):
            on = {node: tuple(index for index, where in enumerate(nodes) if where == node) for node in self.kubelets}
            if all(takes(node, these) for node, these in on.items() if these):
                return True
        return False


def _takes(kubelet: Topology, pods: Sequence[Pod]) -> bool:
    tried = copy.deepcopy(kubelet)
    return not any(isinstance(tried.admit(each), Rejection) for each in pods)


def run(small: Small, sim: Sim) -> set[str]:
    """Let the gang start, and kubelets admit whoever is bound, in that order; answers who runs."""
    admitted: set[str] = set()
    for _ in range(12):
        before = len(sim.log)
        sim.settle(2)
        for write in sim.log[before:]:
            name = write.name
            if write.subresource != "binding" or name in admitted:
                continue
            found = sim.pod(name)
            answer = small.kubelets[found["spec"]["nodeName"]].admit(decode(Pod, found))
            assert not isinstance(answer, Rejection), (name, answer)
            admitted.add(name)
            found["status"] |= {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}
            sim.api.put(kinds.PODS, found)
    return admitted


def starts_if_it_can(seed: int) -> bool:
    small = Small(seed)
    fits = small.fits()
    started = run(small, small.sim())
    assert started == ({made["metadata"]["name"] for made in small.members} if fits else set()), (seed, fits, started)
    return bool(started)


def test_in_some_clusters() -> None:
    started = sum(map(starts_if_it_can, range(60)))
    assert 10 < started < 55


@pytest.mark.parametrize("seed", [2243, 2842])
def test_in_whichever_order(seed: int) -> None:
    """They fit neither with the most devices first nor with the most CPUs first."""
    assert starts_if_it_can(seed)
