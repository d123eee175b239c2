"""The evaluator and the simulated kubelet, written apart, over random machines, pods and placements: one never admits what the
other refuses, and the other way round, except for what nobody outside the kubelet can know."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest

from dray.api.core import Pod
from dray.nodes.topology import Assignment
from dray.numa.demand import demand, is_memory
from dray.numa.evaluate import evaluate, plan, predict
from dray.numa.layout import State
from dray.numa.masks import bits
from dray.numa.placement import Placement
from tests.numa.machines import PAGES, Watched, initialised_pod, machine, pod

ALIGNING = ("single-numa-node", "restricted")
Made = Callable[[random.Random, str], Pod]


def split_matters(state: State, given: Pod) -> bool:
    """How a kubelet splits CPUs and devices over the zones of a set is its own affair. It matters for the containers after
    one that got several zones, where each is aligned by itself."""
    if state.layout.scope == "pod" or state.layout.policy != "restricted":
        return False
    widths = [{least for _, least in each.widths} for each in plan(state.layout, demand(given)).needs[:-1]]
    return any(len(each) == 1 and each != {1} for each in widths)


def days(seed: int, machines: int, *, split: str, steps: int = 12, made: Made = pod) -> Counter[str]:
    rng = random.Random(seed)
    counts: Counter[str] = Counter()
    for _ in range(machines):
        watched = Watched(machine(rng, policies=ALIGNING, split=split))
        for step in range(steps):
            if watched.pods and rng.random() < 0.25:
                watched.leave(rng.choice(sorted(watched.pods)))
            for name in watched.initialising():
                if rng.random() < 0.4:
                    watched.start(name)
            one_step(watched, made(rng, f"pod-{step}"), counts, split)
    return counts


def told(verdict: object, answer: object, state: State, given: Pod, watched: Watched) -> str:
    containers = [(c.name, c.restart_policy, c.resources.limits) for c in (*given.spec.init_containers, *given.spec.containers)]
    parts = (verdict, answer, state, containers, watched.kubelet.config, watched.kubelet.zones)
    return "\n".join(map(str, parts))


def in_memory(placed: Placement) -> Counter[tuple[int, str]]:
    return Counter({(place, name): value for place, amounts in placed for name, value in amounts if is_memory(name)})


def one_step(watched: Watched, given: Pod, counts: Counter[str], split: str) -> None:
    state = watched.state()
    verdict = evaluate(state, plan(state.layout, demand(given)))
    if {"cpu", PAGES} & set(verdict.unknown):  # a node without any is never asked: its status does not offer them
        return
    if (split == "packed" and split_matters(state, given)) or watched.bonds_broken():
        counts["unknowable"] += 1
        if isinstance(watched.kubelet.admit(given), Assignment):
            watched.kubelet.remove(given)
        return
    counts["beside init containers"] += any(watched.passing(name) for name in watched.initialising())
    answer = watched.kubelet.admit(given)
    if not verdict.handled:
        counts["not handled"] += 1
        if isinstance(answer, Assignment):
            watched.admitted(given, verdict)
        return
    admitted = isinstance(answer, Assignment)
    assert admitted == verdict.admit, told(verdict, answer, state, given, watched)
    counts["admitted" if admitted else "refused"] += 1
    if isinstance(answer, Assignment):
        masks = list(answer.affinity.values())
        if state.layout.scope == "pod" and len(state.layout.zones) > 1:
            assert all(zones in (bits(verdict.masks[0]), None) for zones in masks), told(verdict, answer, state, given, watched)
        watched.admitted(given, verdict)


@pytest.mark.parametrize("split", ["lowest", "packed"])
def test_they_agree_on_hundreds_of_machines(split: str) -> None:
    counts = days(7, 150, split=split)
    # Neither side may agree by never being asked.
    assert counts["admitted"] > 200
    assert counts["refused"] > 400
    assert counts["unknowable"] < 0.1 * counts.total()


@pytest.mark.parametrize("split", ["lowest", "packed"])
def test_they_agree_beside_init_containers_that_need_more_than_the_rest(split: str) -> None:
    """Some of the pods are in their init containers when the next one comes, others are done with them."""
    counts = days(8, 200, split=split, made=initialised_pod)
    assert counts["admitted"] > 300
    assert counts["refused"] > 300
    assert counts["beside init containers"] > 100


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("split", ["lowest", "packed"])
def test_they_agree_on_a_hundred_thousand_questions(split: str) -> None:
    counts: Counter[str] = Counter()
    seed = 1000
    while counts["admitted"] + counts["refused"] < 50_000:
        counts += days(seed, 200, split=split)
        seed += 1
    assert counts["admitted"] > 5_000


@pytest.mark.parametrize("made", [pod, initialised_pod])
def test_where_a_kubelet_never_refuses_the_zones_are_foreseen_too(made: Made) -> None:
    """Policy best-effort: the zones that the first aligned container, or the whole pod, is aligned with, and those that the
    Memory Manager goes on to where these lack memory."""
    rng = random.Random(11)
    counts: Counter[str] = Counter()
    for number in range(400):
        # Which CPUs a container leaves that its init containers had, no record says where cores are kept together.
        watched = Watched(machine(rng, policies=("best-effort",), split="packed" if made is pod and number < 150 else "lowest"))
        for step in range(8):
            given = made(rng, f"pod-{step}")
            state = watched.state()
            asked = plan(state.layout, demand(given))
            expected = predict(state, asked)
            before = watched.memory()
            answer = watched.kubelet.admit(given)
            if not isinstance(answer, Assignment) or not asked.needs:
                counts["refused or nothing to align"] += 1
                continue
            everywhere = tuple(state.layout.places)
            # Containers with nothing to align get all zones, and are not asked about.
            first = next((zones for zones in answer.affinity.values() if zones != everywhere), everywhere)
            if not watched.bonds_broken():
                assert expected.masks, told(expected, answer, state, given, watched)
                counts["foreseen" if bits(expected.masks[0]) in (first, everywhere) else "missed"] += 1
                assert bits(expected.masks[0]) in (first, everywhere), told(expected, answer, state, given, watched)
                # What one container gets of CPUs and devices decides what is left for the next; which of the zones that are bound
                # together has memory left, no record says.
                if (state.layout.scope == "pod" or len(asked.needs) == 1) and not state.groups:
                    taken = before - watched.memory()
                    counts["memory"] += bool(taken)
                    assert taken == in_memory(expected.peak), told(expected, answer, state, given, watched)
            watched.admitted(given, expected)
            watched.start(given.metadata.name)
    assert counts["foreseen"] > 200
    assert counts["memory"] > 50
