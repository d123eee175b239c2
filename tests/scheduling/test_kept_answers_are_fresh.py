"""After random changes, what is kept about nodes for a pod is what a fresh look at them says; and no node is refused for its
devices that would do."""

from __future__ import annotations

import random
from typing import Any

import pytest
from scheduling_cluster import Sim, node

from dray.api import kinds
from dray.api.core import Pod
from dray.api.meta import decode
from dray.scheduling.placing.plan import Plan
from dray.scheduling.waiting.queue import QueuedPod

MIB = 1024 * 1024
SHAPES: tuple[dict[str, Any], ...] = (
    {"requests": {"cpu": "1"}},
    {"requests": {"cpu": "2"}, "ports": [{"containerPort": 80, "hostPort": 8080}]},
    {"requests": {"cpu": "1"}, "image": "big:1"},
    {"requests": {"example.com/gpu": "1"}},
    {"requests": {"example.com/gpu": "2", "cpu": "1"}},
)


def container(shape: dict[str, Any]) -> dict[str, Any]:
    requests = shape["requests"]
    limits = {name: count for name, count in requests.items() if "/" in name}
    resources = {"requests": requests, "limits": limits}
    return {"name": "main", "image": shape.get("image", "app"), "resources": resources, "ports": shape.get("ports", [])}


def change(sim: Sim, rng: random.Random, serial: int) -> None:
    names = [f"n{number}" for number in range(4)]
    name = rng.choice(names)
    what = rng.choice(("pod", "pod", "pod", "end", "node", "gone", "slice", "no slice", "image", "class", "settle"))
    if what == "pod":
        sim.add_pod(f"p{serial}", containers=[container(rng.choice(SHAPES))], priority=rng.choice((0, 0, 5)))
    elif what == "end" and (pods := sorted(sim.api.objects[kinds.PODS])):
        sim.remove(kinds.PODS, rng.choice(pods))
    elif what in ("node", "image"):
        made = node(name, cpu=rng.choice(("2", "4")), unschedulable=rng.random() < 0.2)
        if what == "image":
            made["status"]["images"] = [{"names": ["big:1"], "sizeBytes": 900 * MIB}]
        if name in sim.api.objects[kinds.NODES]:
            made["metadata"]["uid"] = sim.api.objects[kinds.NODES][name]["metadata"]["uid"]
        sim.api.put(kinds.NODES, made)
    elif what == "gone" and name in sim.api.objects[kinds.NODES]:
        sim.remove(kinds.NODES, name)
    elif what == "slice" and f"{name}-gpu.example.com" not in sim.api.objects[kinds.RESOURCE_SLICES]:
        sim.add_slice(name, rng.randrange(1, 4))
    elif what == "no slice" and f"{name}-gpu.example.com" in sim.api.objects[kinds.RESOURCE_SLICES]:
        sim.remove(kinds.RESOURCE_SLICES, f"{name}-gpu.example.com")
    elif what == "settle":
        sim.settle(rng.choice((0, 1, 2)))


def check(sim: Sim, probes: list[Pod]) -> None:
    scheduler = sim.scheduler
    cycle = scheduler.cycle
    for probe in probes:
        state = cycle.state(QueuedPod(probe, scheduler.demands.of(probe), sim.now), scheduler.config.profiles[0], sim.now)
        candidates = cycle.candidates(state)
        fresh = Plan(state, cycle.plugins, scheduler.nodes.state_of, cycle.devices.of_claims(state))
        for name, entry in candidates._entries.items():
            info = scheduler.nodes.get(name)
            assert info is not None, name
            reasons, fixed, raw = fresh.examine(info)
            assert entry.reasons == reasons, (probe.key, name)
            if reasons is None:
                assert (entry.fixed, entry.raw[: len(raw)]) == (fixed, raw), (probe.key, name)
                if entry.devices is not None:
                    assert fresh.judged(info)[0] is not None, (probe.key, name)


@pytest.mark.parametrize("seed", range(60))
def test_after_any_changes(seed: int) -> None:
    rng = random.Random(seed)
    sim = Sim()
    sim.add_class("gpu", extended="example.com/gpu")
    probes = []
    for number, shape in enumerate(SHAPES):
        metadata = {"name": f"probe{number}", "namespace": "default", "uid": f"probe{number}"}
        probes.append(decode(Pod, {"metadata": metadata, "spec": {"containers": [container(shape)]}}))
    for serial in range(40):
        change(sim, rng, serial)
        if rng.random() < 0.4:
            sim.settle(0)
            check(sim, probes)
    sim.settle(3)
    check(sim, probes)
