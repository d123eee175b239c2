"""Over random clusters, with what earlier attempts left: ``why`` and the scheduler agree on verdict, node and devices."""

from __future__ import annotations

import random
from typing import Any

import pytest

from dray.api import kinds
from dray.api.core import Pod
from dray.api.kinds import PODS
from dray.cluster.port import ClusterError, Unreachable, Write
from dray.explain.why import why
from dray.scheduling.ask import Ask
from dray.scheduling.placing.state import NotPlaced, Placement
from dray.scheduling.scheduler import Scheduler
from tests.scheduling.scheduling_cluster import Sim


def build(rng: random.Random) -> Sim:
    sim = Sim()
    sim.add_class("gpu", extended="example.com/gpu")
    for number in range(rng.randrange(1, 4)):
        sim.add_node(f"n{number}", cpu=str(rng.choice((2, 4, 8))))
        if rng.random() < 0.8:
            sim.add_slice(f"n{number}", rng.randrange(1, 4))
    return sim


def work(sim: Sim, rng: random.Random, serial: int) -> None:
    name = f"p{serial}"
    kind = rng.choice(("plain", "extended", "claim", "shared"))
    requests: dict[str, Any] = {"cpu": str(rng.choice((1, 2, 4)))}
    extra: dict[str, Any] = {"priority": rng.choice((0, 0, 10, 20))}
    if kind == "extended":
        requests["example.com/gpu"] = str(rng.randrange(1, 3))
    elif kind == "claim":
        sim.add_claim(f"c{serial}")
        extra["claims"] = [f"c{serial}"]
    elif kind == "shared":
        if "default/shared" not in sim.api.objects[kinds.RESOURCE_CLAIMS]:
            sim.add_claim("shared")
        extra["claims"] = ["shared"]
    resources = {"requests": requests, "limits": {name: count for name, count in requests.items() if "/" in name}}
    sim.add_pod(name, containers=[{"name": "main", "image": "app", "resources": resources}], **extra)


def faulty(rng: random.Random) -> Any:
    def fault(write: Write) -> ClusterError | None:
        return Unreachable("no answer") if write.kind is not kinds.EVENTS and rng.random() < 0.15 else None

    return fault


def first_decision(sim: Sim) -> tuple[Pod, Placement | None] | None:
    """What a scheduler that starts now decides first."""
    scheduler = Scheduler(sim.world, sim.config, sim.gates)
    found: list[tuple[Pod, Placement | None]] = []
    decide, nothing = scheduler.preemptor.decide, NotPlaced

    def watched(pending: Any, profile: Any, now: float) -> Placement:
        try:
            placement = decide(pending, profile, now)
        except nothing:
            found.append((pending.pod, None))
            raise
        found.append((pending.pod, placement))
        return placement

    scheduler.preemptor.decide = watched  # type: ignore[method-assign]
    scheduler.act(sim.now)
    return found[0] if found else None


def devices(placement: Placement) -> list[str]:
    results = [*placement.results, *([placement.special.allocation] if placement.special is not None else [])]
    return sorted(f"{d.pool}/{d.device}" for result in results for d in result.devices.results)


@pytest.mark.parametrize("start", range(0, 400, 20))
def test_on_verdict_node_and_devices(start: int) -> None:
    agree(range(start, start + 20))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_over_thousands_of_clusters() -> None:
    agree(range(1_000, 5_000))


def agree(seeds: range) -> None:
    compared = 0
    for seed in seeds:
        rng = random.Random(seed)
        sim = build(rng)
        for serial in range(rng.randrange(3, 9)):
            work(sim, rng, serial)
            if rng.random() < 0.5:
                sim.fault = faulty(rng) if rng.random() < 0.5 else None
                sim.settle(rng.choice((0, 1, 3)))
            if rng.random() < 0.15:
                sim.remove(PODS, rng.choice(sorted(sim.api.objects[PODS])))
        sim.fault = None
        decision = first_decision(sim)
        if decision is None:
            continue
        compared += 1
        pod, placement = decision
        told = why(sim.world, pod, now=sim.now, config=sim.config, gates=sim.gates)
        ask = Ask(Scheduler(sim.world, sim.config, sim.gates), sim.now)
        each_by_itself(ask, pod)
        if placement is None:
            assert not told.fits, (seed, pod.key, told.summary)
            assert told.verdict in ("unschedulable", "impossible", "waiting"), (seed, pod.key, told.summary)
        else:
            assert told.fits or told.awaited, (seed, pod.key, told.summary)
            if told.fits:
                would = ask.would(ask.state(pod))
                assert would is not None
                assert told.choice is not None
                assert (told.choice.node, would.node) == (placement.node, placement.node), (seed, pod.key)
                assert devices(would) == devices(placement), (seed, pod.key)
    assert compared


def each_by_itself(ask: Ask, pod: Pod) -> None:
    """What nodes answer together is what each answers when nobody else is asked."""
    try:
        state = ask.state(pod)
    except NotPlaced:
        return
    cycle, engine = ask.scheduler.cycle, ask.scheduler.engine
    for answer in ask.answers(state):
        info = ask.scheduler.nodes.get(answer.node)
        assert info is not None
        assert bool(answer.reasons) != isinstance(ask.on(state, info), Placement)
        if answer.reasons and state.needs_devices and cycle.checks(state)(info) is None:
            assert answer.devices == engine.explain(answer.node, cycle.devices.claims_on(state, info)[0])
        else:
            assert answer.devices is None


def test_a_pod_whose_own_special_claim_is_allocated_fits_where_it_is() -> None:
    sim = Sim()
    sim.add_class("gpu", extended="example.com/gpu")
    sim.add_node("n1")
    sim.add_slice("n1", 1)

    def no_bind(write: Write) -> ClusterError | None:
        return Unreachable("no answer") if write.subresource == "binding" else None

    sim.fault = no_bind
    resources = {"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}}
    sim.add_pod("p", containers=[{"name": "main", "image": "app", "resources": resources}])
    sim.settle(3)
    (claim,) = sim.api.objects[kinds.RESOURCE_CLAIMS].values()
    assert claim["status"]["allocation"]
    pod: Pod | None = sim.world.get(PODS, "default/p")
    assert pod is not None
    told = why(sim.world, pod, now=sim.now)
    assert (told.verdict, told.fits) == ("waiting", ["n1"])
    assert not any("release claim" in fix for fix in told.fixes)


def test_what_a_pod_has_that_waits_for_its_devices_counts_for_pods_of_higher_priority_too() -> None:
    """They may drive it out, if that helps; until then it is on the node."""
    sim = Sim()
    sim.add_class()
    sim.add_node("n0", cpu="64")
    sim.add_slice("", 3, pool="fabric", bindsToNode=True, bindingConditions=["ready"], bindingFailureConditions=["failed"])
    for name, devices, cpu, priority in (("highest", 2, "1", 2000), ("waits", 1, "60", 0), ("high", 2, "8", 1000)):
        sim.add_claim(name, count=devices)
        sim.add_pod(name, claims=[name], requests={"cpu": cpu}, priority=priority)
        sim.settle(2)
    assert sim.preparing() == ["default/highest", "default/waits"]
    found = why(sim.world, sim.world.get(kinds.PODS, "default/high"), now=sim.now)
    assert "not enough cpu" in sim.condition("high")["message"]
    assert [reason.code for reason in found.nodes[0].reasons] == ["ResourcesInsufficient"], found.summary
