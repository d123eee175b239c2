"""Random machines and pods for a simulated kubelet and the evaluator to agree on."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from dray.api.core import Pod
from dray.api.meta import decode
from dray.api.topology import NodeResourceTopology
from dray.nodes.machine import MachineZone
from dray.nodes.topology import Config, Topology
from dray.numa.available import occupant, reconstructed
from dray.numa.demand import Demand, demand, is_memory
from dray.numa.evaluate import Verdict
from dray.numa.layout import Layout, State, layout_of, published_state
from dray.numa.observe import as_annotations, observe
from dray.numa.placement import INIT_MEMORY_PREDICTED, PREDICTED, encode, encode_passing
from dray.numa.tally import Usage

GPU, NIC, PAGES = "nvidia.com/gpu", "example.com/nic", "hugepages-1Gi"
Json = dict[str, Any]


def machine(rng: random.Random, *, policies: tuple[str, ...], split: str) -> Topology:
    count = rng.choice((1, 2, 2, 2, 3, 4, 4))
    alike = rng.random() < 0.6
    shape = _zone(rng, 0)
    zones = [_zone(rng, number) if not alike else MachineZone(number, *_fields(shape)) for number in range(count)]
    config = Config(
        policy=rng.choice(policies),  # type: ignore[arg-type]
        scope=rng.choice(("container", "pod")),
        cpu_manager=rng.choice(("static", "static", "static", "none")),
        memory_manager=rng.choice(("Static", "Static", "None")),
        prefer_closest=rng.random() < 0.3,
        split=split,  # type: ignore[arg-type]
    )
    distances = None
    if rng.random() < 0.6:
        distances = [[10 if a == b else rng.choice((11, 12, 20, 32)) for b in range(count)] for a in range(count)]
    return Topology(zones, config, distances)


def _fields(zone: MachineZone) -> tuple[Any, ...]:
    return zone.cpus, zone.reserved_cpus, zone.memory, zone.reserved_memory, zone.devices, zone.unhealthy


def _zone(rng: random.Random, number: int) -> MachineZone:
    cpus = rng.choice((0, 2, 4, 6, 8)) if rng.random() < 0.2 else rng.choice((4, 6, 8))
    devices = {GPU: rng.choice((0, 1, 2, 4))} if rng.random() < 0.9 else {}
    if rng.random() < 0.4:
        devices[NIC] = rng.choice((0, 1, 2))
    memory = {"memory": rng.choice((8, 16, 20))}
    if rng.random() < 0.4:
        memory[PAGES] = rng.choice((0, 4, 8))
    return MachineZone(
        number,
        cpus,
        min(cpus, rng.choice((0, 0, 1, 2))),
        memory,
        {"memory": rng.choice((0, 0, 2))},
        devices,
        {GPU: rng.choice((0, 0, 0, 1))} if devices.get(GPU) else {},
    )


def initialised_pod(rng: random.Random, name: str) -> Pod:
    """A pod whose init containers need more than the rest."""
    apps = [_sized(rng, f"app-{i}", (1, 1, 2), (1, 2, 4), (0, 0, 1)) for i in range(rng.randint(1, 2))]
    before = [_sized(rng, f"init-{i}", (1, 2, 3, 4), (2, 4, 8, 12, 20), (0, 1, 2)) for i in range(rng.randint(1, 3))]
    for container in before[:-1]:
        if rng.random() < 0.2:
            container["restartPolicy"] = "Always"
    raw = {
        "metadata": {"name": name, "namespace": "ns", "uid": name},
        "spec": {"initContainers": before, "containers": apps},
        "status": {"qosClass": "Guaranteed"},
    }
    return decode(Pod, raw)


def _sized(rng: random.Random, name: str, cpus: tuple[int, ...], memory: tuple[int, ...], gpus: tuple[int, ...]) -> Json:
    amounts = {"cpu": str(rng.choice(cpus)), "memory": str(rng.choice(memory)), GPU: str(rng.choice(gpus))}
    if rng.random() < 0.2:
        amounts["cpu"] = "500m"
    if rng.random() < 0.2:
        amounts[PAGES] = str(rng.choice((1, 2)))
    return {"name": name, "resources": {"requests": amounts, "limits": amounts}}


def pod(rng: random.Random, name: str, *, containers: int = 3, inits: bool = True) -> Pod:
    guaranteed = rng.random() < 0.8
    apps = [_container(rng, f"app-{i}", guaranteed) for i in range(rng.randint(1, containers))]
    before = [_container(rng, f"init-{i}", guaranteed) for i in range(rng.choice((0, 0, 0, 1, 2)) if inits else 0)]
    for container in before:
        if rng.random() < 0.4:
            container["restartPolicy"] = "Always"
    raw = {
        "metadata": {"name": name, "namespace": "ns", "uid": name},
        "spec": {"initContainers": before, "containers": apps},
        "status": {"qosClass": "Guaranteed" if guaranteed else "Burstable"},
    }
    return decode(Pod, raw)


def _container(rng: random.Random, name: str, guaranteed: bool) -> Json:
    amounts: Json = {
        "cpu": rng.choice(("1", "2", "3", "4", "5", "6", "8", "9", "12", "500m")),
        "memory": str(rng.choice((1, 2, 4, 8, 12, 20))),
    }
    if rng.random() < 0.5:
        amounts[GPU] = str(rng.choice((0, 1, 1, 2, 3, 4, 6)))
    if rng.random() < 0.2:
        amounts[NIC] = str(rng.choice((1, 2)))
    if guaranteed and rng.random() < 0.2:
        amounts[PAGES] = str(rng.choice((1, 2, 6)))
    return {"name": name, "resources": {"requests": amounts, "limits": amounts}}


class Watched:
    """A simulated kubelet as a scheduler sees it: through its published topology and its pods' records."""

    def __init__(self, kubelet: Topology) -> None:
        self.kubelet = kubelet
        found = layout_of(decode(NodeResourceTopology, kubelet.topology("n1")))
        assert found is not None
        self.layout: Layout = found
        self.pods: dict[str, tuple[Pod, Demand]] = {}

    def state(self) -> State:
        listed = {each.name: each for each in self.kubelet.podresources().pod_resources}
        return reconstructed(self.layout, [self._usage(name, listed) for name in self.pods])

    def _usage(self, name: str, listed: Json) -> Usage:
        known, asked = self.pods[name]
        seen = as_annotations(observe(listed[name], self.kubelet.zone_of_cpus()))
        known.metadata.annotations.update({key: value for key, value in seen.items() if value is not None})
        return occupant(known, asked, self.layout).usage

    def memory(self) -> Counter[tuple[int, str]]:
        """What the kubelet has left of memory and huge pages, by zone."""
        free = published_state(self.layout, decode(NodeResourceTopology, self.kubelet.topology("n1"))).free
        rows = [(name, row) for name, row in zip(self.layout.resources, free) if is_memory(name)]
        return Counter({(place, name): value for name, row in rows for place, value in enumerate(row)})

    def bonds_broken(self) -> bool:
        """A Memory Manager that serves a whole pod from one zone does not check whether that zone is bound to others, and then
        forgets the bond: how its zones are bound no longer follows from who has what."""
        memory = self.kubelet._memory
        held = [block.zones for blocks in memory.given.values() for block in blocks]
        return any(zones != memory.cells[zone].group for zones in held for zone in zones)

    def admitted(self, pod: Pod, verdict: Verdict) -> None:
        """The kubelet has taken the pod, whose init containers run now."""
        if verdict.placement:
            pod.metadata.annotations[PREDICTED] = encode(verdict.placement, self.layout)
        if verdict.passing:
            pod.metadata.annotations[INIT_MEMORY_PREDICTED] = encode_passing(verdict.passing, self.layout)
        self.pods[pod.metadata.name] = (pod, demand(pod))

    def initialising(self) -> list[str]:
        return sorted(name for name, (pod, _) in self.pods.items() if pod.status.phase != "Running")

    def passing(self, name: str) -> bool:
        """Whether its init containers have memory that no container after them has."""
        return INIT_MEMORY_PREDICTED in self.pods[name][0].metadata.annotations

    def start(self, name: str) -> None:
        """The pod's init containers are done."""
        pod, _ = self.pods[name]
        self.kubelet.started(pod)
        pod.status.phase = "Running"

    def leave(self, name: str) -> None:
        self.kubelet.remove(self.pods.pop(name)[0])
