"""Whatever happens in whatever order: no device has two owners, nothing leaks, and what can be scheduled is."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest
from scheduling_cluster import Sim

from dray.api import kinds
from dray.cluster.port import ClusterError, Conflict, Unreachable, Write

NODES = 4
DEVICES = 3


def build(seed: int) -> tuple[Sim, random.Random]:
    rng = random.Random(seed)
    sim = Sim()
    sim.add_class("gpu", extended="example.com/gpu")
    for index in range(NODES):
        sim.add_node(f"n{index}", cpu="4")
        sim.add_slice(f"n{index}", DEVICES)
    return sim, rng


def add_work(sim: Sim, rng: random.Random, serial: int) -> None:
    name = f"w{serial}"
    match rng.randrange(4):
        case 0:
            sim.add_pod(name, requests={"cpu": "500m"})
        case 1:
            sim.add_claim(name, count=rng.choice((1, 2)))
            sim.add_pod(name, claims=[name], requests={"cpu": "100m"})
        case 2:
            sim.add_claim(name)
            for part in ("a", "b"):
                sim.add_pod(f"{name}{part}", claims=[name])
        case _:
            resources = {"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}}
            sim.add_pod(name, containers=[{"name": "m", "resources": resources}])


def remove_work(sim: Sim, rng: random.Random) -> None:
    pods = list(sim.api.objects[kinds.PODS])
    if pods:
        sim.remove(kinds.PODS, rng.choice(pods))


def collect(sim: Sim) -> None:
    """What the claims controller does: pods that are gone are no consumers, and unused claims are deallocated."""
    alive = {pod["metadata"]["uid"] for pod in sim.api.objects[kinds.PODS].values()}
    for claim in list(sim.api.objects[kinds.RESOURCE_CLAIMS].values()):
        claim = copy.deepcopy(claim)
        reserved = claim["status"].get("reservedFor") or []
        kept = [consumer for consumer in reserved if consumer["uid"] in alive]
        owners = [owner["uid"] for owner in claim["metadata"].get("ownerReferences", [])]
        if owners and not set(owners) & alive:
            claim["metadata"]["finalizers"] = []
            sim.api.objects[kinds.RESOURCE_CLAIMS][f"default/{claim['metadata']['name']}"] = claim
            sim.remove(kinds.RESOURCE_CLAIMS, f"default/{claim['metadata']['name']}")
        elif len(kept) != len(reserved):
            claim["status"] = {**claim["status"], "reservedFor": kept} if kept else {}
            sim.api.put(kinds.RESOURCE_CLAIMS, claim)


def check(sim: Sim) -> None:
    doubles = {device: claims for device, claims in sim.holders().items() if len(claims) > 1}
    assert not doubles
    used: dict[str, int] = {}
    for pod in sim.api.objects[kinds.PODS].values():
        node = pod["spec"].get("nodeName")
        if not node:
            continue
        cpu = pod["spec"]["containers"][0]["resources"].get("requests", {}).get("cpu", "0m")
        used[node] = used.get(node, 0) + int(cpu.removesuffix("m"))
        for entry in pod["spec"].get("resourceClaims", []):
            claim = sim.claim(entry["resourceClaimName"])
            assert pod["metadata"]["uid"] in [consumer["uid"] for consumer in claim["status"]["reservedFor"]]
            assert {result["pool"] for result in claim["status"]["allocation"]["devices"]["results"]} == {node}
        if "example.com/gpu" in pod["spec"]["containers"][0]["resources"].get("requests", {}):
            check_special(sim, pod)
    assert all(amount <= 4000 for amount in used.values())


def check_special(sim: Sim, pod: dict[str, Any]) -> None:
    """A bound pod has exactly the claim that its status names, allocated on its node."""
    claim = sim.claim(pod["status"]["extendedResourceClaimStatus"]["resourceClaimName"])
    assert [owner["uid"] for owner in claim["metadata"]["ownerReferences"]] == [pod["metadata"]["uid"]]
    assert {result["pool"] for result in claim["status"]["allocation"]["devices"]["results"]} == {pod["spec"]["nodeName"]}


def drain(sim: Sim, rng: random.Random) -> None:
    """Everything goes: then everything is free again."""
    for key in list(sim.api.objects[kinds.PODS]):
        sim.remove(kinds.PODS, key)
    for _ in range(3):
        sim.settle(30)
        collect(sim)
    sim.settle(30)
    assert sim.holders() == {}
    for index in range(NODES * DEVICES):
        sim.add_claim(f"last{index}")
        sim.add_pod(f"last{index}", claims=[f"last{index}"])
    sim.settle(30)
    assert all(sim.node_of(f"last{index}") for index in range(NODES * DEVICES))
    assert len(sim.holders()) == NODES * DEVICES


def faulty(rng: random.Random, sim: Sim, rate: float) -> Any:
    def fault(write: Write) -> ClusterError | None:
        if write.kind is kinds.EVENTS or rng.random() > rate:
            return None
        chosen = rng.randrange(3)
        if chosen == 0:
            return Conflict(409, "Conflict", "someone was faster")
        if chosen == 1:
            try:
                sim.api.write(write)
            except ClusterError:
                pass
        return Unreachable("no answer")

    return fault


@pytest.mark.parametrize("seed", range(12))
def test_random_work(seed: int) -> None:
    sim, rng = build(seed)
    for serial in range(40):
        (add_work if rng.random() < 0.7 else lambda sim, rng, _: remove_work(sim, rng))(sim, rng, serial)
        if rng.random() < 0.5:
            sim.settle(rng.choice((0, 3)))
            check(sim)
        if rng.random() < 0.3:
            collect(sim)
    sim.settle(30)
    check(sim)
    drain(sim, rng)


@pytest.mark.parametrize("seed", range(12))
def test_random_work_with_faults_and_restarts(seed: int) -> None:
    sim, rng = build(seed)
    sim.fault = faulty(rng, sim, 0.2)
    for serial in range(40):
        (add_work if rng.random() < 0.7 else lambda sim, rng, _: remove_work(sim, rng))(sim, rng, serial)
        for _ in range(rng.randrange(4)):
            sim.step()
        check(sim)
        if rng.random() < 0.15:
            sim.start()
        if rng.random() < 0.3:
            collect(sim)
        sim.now += rng.choice((0.0, 0.5, 2.0))
    sim.fault = None
    # A conflict that was made up is resolved by the next event of that object.
    for claim in list(sim.api.objects[kinds.RESOURCE_CLAIMS].values()):
        sim.api.put(kinds.RESOURCE_CLAIMS, claim)
    sim.settle(60)
    check(sim)
    drain(sim, rng)


@pytest.mark.parametrize("error", [Conflict(409, "Conflict", ""), Unreachable("gone")])
@pytest.mark.parametrize("broken", range(6))
def test_each_write_may_fail_once(broken: int, error: ClusterError) -> None:
    sim, _ = build(0)
    seen = {"writes": 0}

    def fault(write: Write) -> ClusterError | None:
        if write.kind is kinds.EVENTS:
            return None
        seen["writes"] += 1
        return error if seen["writes"] == broken + 1 else None

    sim.fault = fault
    sim.add_claim("own")
    resources = {"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}}
    sim.add_pod("p", claims=["own"], containers=[{"name": "m", "resources": resources}])
    sim.settle(60)
    assert seen["writes"] > broken
    assert sim.node_of("p") != ""
    check(sim)
    assert len(sim.holders()) == 2
    assert len(sim.api.objects[kinds.RESOURCE_CLAIMS]) == 2


def test_an_api_server_that_is_gone_for_a_minute_changes_nothing() -> None:
    sim, rng = build(1)
    for serial in range(12):
        add_work(sim, rng, serial)
    sim.fault = lambda write: Unreachable("gone")
    sim.settle(60)
    assert sim.holders() == {}
    sim.fault = None
    sim.settle(30)
    check(sim)
    drain(sim, rng)


class Gap:
    """Watches that are silent for a while; then the kind is listed again, at once or much later."""

    def __init__(self, sim: Sim) -> None:
        self._sim = sim
        self._silent: set[kinds.Kind] = set()
        self._watch = sim._watch
        sim.api.watchers[:] = [self._hear]

    def _hear(self, kind: kinds.Kind, obj: dict[str, Any], gone: bool) -> None:
        if kind not in self._silent:
            self._watch(kind, obj, gone)

    def opens(self, *silent: kinds.Kind) -> None:
        self._silent.update(silent)

    def closes(self) -> None:
        for kind in sorted(self._silent, key=lambda kind: kind.resource):
            raws = [copy.deepcopy(obj) for obj in self._sim.api.objects[kind].values()]
            for change in self._sim.world.replace(kind, raws, str(self._sim.api.version)):
                self._sim.scheduler.observe(change, self._sim.now)
        self._silent.clear()


@pytest.mark.parametrize("seed", range(12))
def test_random_work_with_gaps_in_the_watch(seed: int) -> None:
    """Whatever happened unseen, what a decision meets at the API is refused there and decided again."""
    sim, rng = build(seed)
    gap = Gap(sim)
    for serial in range(40):
        if rng.random() < 0.2:
            gap.opens(rng.choice((kinds.PODS, kinds.RESOURCE_CLAIMS, kinds.NODES, kinds.RESOURCE_SLICES)))
        (add_work if rng.random() < 0.7 else lambda sim, rng, _: remove_work(sim, rng))(sim, rng, serial)
        for _ in range(rng.randrange(4)):
            sim.step()
        if rng.random() < 0.3:
            collect(sim)
        if rng.random() < 0.2:
            gap.closes()
        sim.now += rng.choice((0.0, 0.5, 2.0))
        assert not {device: claims for device, claims in sim.holders().items() if len(claims) > 1}
    gap.closes()
    sim.settle(60)
    check(sim)
    drain(sim, rng)


@pytest.mark.parametrize("queue", ["", "team"])
def test_who_cannot_be_tried_at_all_keeps_no_devices_of_an_earlier_attempt(queue: str) -> None:
    """Two claims were allocated, and one was given back; before it is allocated again its class is deleted."""
    sim = Sim()
    sim.add_node("n0")
    sim.add_class()
    sim.add_slice("n0", 2)
    spec = {"resources": {key: {"quota": -1, "limit": -1, "overQuotaWeight": 1} for key in ("cpu", "memory", "gpu")}}
    sim.api.put(kinds.QUEUES, {"metadata": {"name": "team"}, "spec": spec})
    result = {"request": "req", "driver": "gpu.example.com", "pool": "n0", "device": "gpu-0"}
    sim.add_claim("kept", status={"allocation": {"devices": {"results": [result]}}})
    sim.add_claim("open", cls="gone")
    sim.add_pod("p", claims=["kept", "open"], labels={"kai.scheduler/queue": queue} if queue else {})
    sim.settle(5)
    assert "device class that does not exist" in sim.condition("p")["message"]
    assert not sim.claim("kept").get("status", {}).get("allocation")
