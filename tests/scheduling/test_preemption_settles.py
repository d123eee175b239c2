"""Whatever is preempted by whom in whatever order: nobody has a device twice, no promise outlives its pod, and in the end no
pod waits for something that a pod of lower priority has."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest
from scheduling_cluster import Sim

from dray.api import kinds
from dray.cluster.port import ClusterError, Conflict, Refused, Unreachable, Write

NODES, DEVICES, FABRIC = 3, 2, 2
PRIORITIES = (0, 1, 5, 10)


def build(seed: int) -> tuple[Sim, random.Random]:
    rng = random.Random(seed)
    sim = Sim()
    sim.add_class()
    sim.add_class("fabric", driver="fabric.example.com")
    for index in range(NODES):
        sim.add_node(f"n{index}", cpu="4")
        sim.add_slice(f"n{index}", DEVICES)
    sim.add_slice("", FABRIC, driver="fabric.example.com", pool="fabric")
    return sim, rng


def add_work(sim: Sim, rng: random.Random, serial: int) -> None:
    name, priority = f"w{serial}", rng.choice(PRIORITIES)
    where: dict[str, Any] = {}
    if rng.random() < 0.3:
        where["nodeSelector"] = {"kubernetes.io/hostname": f"n{rng.randrange(NODES)}"}
    match rng.randrange(6):
        case 0:
            sim.add_pod(name, requests={"cpu": str(rng.choice((1, 2)))}, priority=priority, **where)
        case 1:
            sim.add_claim(name, count=2)
            sim.add_pod(name, claims=[name], priority=priority, **where)
        case 2:
            sim.add_claim(name)
            for part in ("a", "b"):
                sim.add_pod(f"{name}{part}", claims=[name], priority=rng.choice(PRIORITIES))
        case 3:
            sim.add_claim(name, cls="fabric")
            sim.add_pod(name, claims=[name], priority=priority, requests={"cpu": "1"}, **where)
        case 4:
            sim.add_claim(name, cls="fabric", count=FABRIC)
            sim.add_pod(name, claims=[name], priority=priority)
        case _:
            sim.add_claim(name)
            sim.add_pod(name, claims=[name], priority=priority, **where)
    if rng.random() < 0.4 and f"default/{name}" in sim.api.objects[kinds.PODS]:
        found = sim.pod(name)
        found["metadata"]["finalizers"] = ["graceful"]
        sim.api.put(kinds.PODS, found)


def end_leaving(sim: Sim) -> None:
    """Kubelets: pods that were deleted end at last."""
    for key, pod in list(sim.api.objects[kinds.PODS].items()):
        if pod["metadata"].get("deletionTimestamp"):
            del sim.api.objects[kinds.PODS][key]


def collect(sim: Sim) -> None:
    """The claims controller: pods that are gone are no users, and unused claims are deallocated."""
    alive = {pod["metadata"]["uid"] for pod in sim.api.objects[kinds.PODS].values()}
    for claim in list(sim.api.objects[kinds.RESOURCE_CLAIMS].values()):
        claim = copy.deepcopy(claim)
        users = claim["status"].get("reservedFor") or []
        kept = [user for user in users if user["uid"] in alive]
        if len(kept) != len(users):
            claim["status"] = {**claim["status"], "reservedFor": kept} if kept else {}
            sim.api.put(kinds.RESOURCE_CLAIMS, claim)


def check(sim: Sim) -> None:
    taken: dict[str, str] = {}
    for claim in sim.api.objects[kinds.RESOURCE_CLAIMS].values():
        for result in (claim["status"].get("allocation") or {}).get("devices", {}).get("results", []):
            device = f"{result['driver']}/{result['pool']}/{result['device']}"
            assert device not in taken, f"{device} is held twice"
            taken[device] = claim["metadata"]["name"]
    scheduler = sim.scheduler
    assert scheduler.validate() == []
    waiting = {pending.uid for pending in scheduler.queue}
    assert set(scheduler.preemptor.preemption._evicted.values()) <= waiting


def settle(sim: Sim) -> None:
    for _ in range(12):
        sim.settle(30)
        end_leaving(sim)
        collect(sim)
    sim.settle(30)


def nobody_starves(sim: Sim) -> None:
    """A pod that asks for one thing only does not wait while a pod of lower priority, alone with its claim, has that thing."""
    pods = list(sim.api.objects[kinds.PODS].values())
    users: dict[str, list[dict[str, Any]]] = {}
    for pod in pods:
        for entry in pod["spec"].get("resourceClaims", []):
            users.setdefault(entry["resourceClaimName"], []).append(pod)
    for pod in pods:
        wanted = [entry["resourceClaimName"] for entry in pod["spec"].get("resourceClaims", [])]
        simple = wanted and len(users[wanted[0]]) == 1 and not pod["spec"].get("nodeSelector")
        if pod["spec"].get("nodeName") or not simple or pod["spec"]["containers"][0]["resources"].get("requests"):
            continue
        asked = sim.claim(wanted[0])["spec"]["devices"]["requests"][0]["exactly"]
        if asked["count"] != 1:
            continue
        for name, holders in users.items():
            (result, *_) = (sim.claim(name)["status"].get("allocation") or {}).get("devices", {}).get("results", []) or [None]
            if result is not None and result["driver"].startswith(asked["deviceClassName"]):
                assert any(holder["spec"]["priority"] >= pod["spec"]["priority"] for holder in holders), (
                    f"{pod['metadata']['name']} waits for what {name} has"
                )


def nobody_is_overlooked(sim: Sim) -> None:
    """The sweep finds no pod that an event should have woken."""
    sim.settle(2 * sim.scheduler.config.sweep_interval)
    assert ("dray_missed_wakeups_total", ()) not in sim.meter.counters


def drain(sim: Sim) -> None:
    """Everything goes: then nothing is held, by a claim or by a promise, and nobody is thought to be leaving."""
    for key in list(sim.api.objects[kinds.PODS]):
        del sim.api.objects[kinds.PODS][key]
    settle(sim)
    scheduler = sim.scheduler
    assert scheduler.engine.ledger.snapshot() == {}
    assert scheduler.engine.ledger._entries == {}
    assert len(scheduler.preemptor.nominator) == 0
    assert scheduler.preemptor.nominator._by_claim == {}
    assert scheduler.preemptor.preemption._evicted == scheduler.preemptor.preemption._victims == {}
    assert not any(info.pods for info in scheduler.nodes)


@pytest.mark.parametrize("seed", [*range(25), 337, 516, 563, 655])
def test_random_priorities(seed: int) -> None:
    sim, rng = build(seed)
    for serial in range(30):
        add_work(sim, rng, serial)
        if rng.random() < 0.4:
            sim.settle(rng.choice((0, 1, 5)))
            check(sim)
        for happens in (end_leaving, collect):
            if rng.random() < 0.3:
                happens(sim)
        if rng.random() < 0.1:
            pods = sorted(sim.api.objects[kinds.PODS])
            sim.remove(kinds.PODS, rng.choice(pods))
    settle(sim)
    check(sim)
    nobody_starves(sim)
    assert not sim.scheduler.preemptor.preemption._evicted
    nobody_is_overlooked(sim)
    drain(sim)


@pytest.mark.parametrize("seed", [*range(25), 214, 443])
def test_random_priorities_with_faults_and_restarts(seed: int) -> None:
    sim, rng = build(seed)

    def fault(write: Write) -> ClusterError | None:
        if write.kind is kinds.EVENTS or rng.random() > 0.15:
            return None
        match rng.randrange(4):
            case 0:
                return Conflict(409, "Conflict", "someone was faster")
            case 1:
                return Refused(429, "TooManyRequests", "not now")
            case 2:
                try:
                    sim.api.write(write)
                except ClusterError:
                    pass
        return Unreachable("no answer")

    sim.fault = fault
    for serial in range(30):
        add_work(sim, rng, serial)
        for _ in range(rng.randrange(4)):
            sim.step()
        check(sim)
        for happens in (end_leaving, collect, Sim.start):
            if rng.random() < 0.15:
                happens(sim)
        if rng.random() < 0.05:
            name = f"n{rng.randrange(NODES)}"
            node = sim.api.objects[kinds.NODES][name]
            sim.remove(kinds.NODES, name)
            sim.step()
            del node["metadata"]["uid"]
            sim.api.put(kinds.NODES, node)
        sim.now += rng.choice((0.0, 0.5, 3.0))
    sim.fault = None
    for claim in list(sim.api.objects[kinds.RESOURCE_CLAIMS].values()):
        sim.api.put(kinds.RESOURCE_CLAIMS, claim)
    settle(sim)
    check(sim)
    nobody_starves(sim)
    drain(sim)
