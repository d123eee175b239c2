"""What a minute-old NodeResourceTopology costs, and what counting pods by their records saves: the same day on virtual time."""

from __future__ import annotations

import random

import pytest

from dray.api.core import Pod
from dray.api.meta import decode
from dray.api.topology import NodeResourceTopology
from dray.nodes.machine import MachineZone
from dray.nodes.topology import Assignment, Config, Topology
from dray.numa.available import Confidence, occupant
from dray.numa.demand import demand
from dray.numa.evaluate import Evaluators
from dray.numa.layout import State, layout_of, published_state
from dray.numa.observe import as_annotations, observe
from dray.numa.placement import PREDICTED, encode
from dray.numa.tally import Tally
from tests.numa.building import GPU, pod

PUBLISHED_EVERY, OBSERVED_AFTER, ADMITTED_AFTER = 60, 3, 1


class Day:
    """A scheduler that looks at eight nodes, binds a pod every second, and hears late of what the kubelets did."""

    def __init__(self, policy: str, *, reconstruct: bool, patient: bool = True, seed: int = 1) -> None:
        self._rng, self._reconstruct, self._patient = random.Random(seed), reconstruct, patient
        self._confidence = [Confidence() for _ in range(8)]
        self._evaluators = Evaluators()
        config = Config(policy, "pod")  # type: ignore[arg-type]
        zones = [MachineZone(number, 16, 0, {"memory": 64}, {}, {GPU: 4}) for number in (0, 1)]
        self._kubelets = [Topology(zones, config) for _ in range(8)]
        found = layout_of(decode(NodeResourceTopology, self._kubelets[0].topology("n")))
        assert found is not None
        self._layout = self._evaluators.layouts(found)
        self._tallies = [Tally(self._layout, self._evaluators.states) for _ in self._kubelets]
        self._published = [published_state(self._layout, decode(NodeResourceTopology, k.topology("n"))) for k in self._kubelets]
        self._due: list[tuple[int, str, int, Pod]] = []
        self.bound = self.refused = 0

    def run(self, seconds: int = 1200) -> Day:
        for second in range(seconds):
            ready = [item for item in self._due if item[0] <= second]
            self._due = [item for item in self._due if item[0] > second]
            for _, what, node, given in ready:
                getattr(self, what)(node, given, second)
            if second % PUBLISHED_EVERY == 0:
                self._published = [self._state_of(k) for k in self._kubelets]
            self._schedule(self._pod(f"p{second}"), second)
        return self

    def _state_of(self, kubelet: Topology) -> State:
        return published_state(self._layout, decode(NodeResourceTopology, kubelet.topology("n")))

    def _pod(self, name: str) -> Pod:
        needs = self._rng.choice(
            (
                {"gpu": 1, "cpu": 4, "memory": 16},
                {"gpu": 2, "cpu": 6, "memory": 24},
                {"gpu": 6, "cpu": 20, "memory": 80},
                {"cpu": 5},
            )
        )
        return pod(needs, metadata={"name": name, "uid": name})

    def _schedule(self, given: Pod, now: int) -> None:
        asked = self._evaluators.demands(demand(given))
        for node, tally in enumerate(self._tallies):
            if self._reconstruct and self._patient and self._confidence[node].doubtful:
                continue
            state = tally.state() if self._reconstruct else self._published[node]
            verdict = self._evaluators.admit(state, asked)
            if verdict.admit:
                given.metadata.annotations[PREDICTED] = encode(verdict.placement, self._layout)
                found = occupant(given, asked, self._layout)
                tally.post(given.uid, found.usage)
                self._confidence[node].put(found)
                self._due.append((now + ADMITTED_AFTER, "admitted", node, given))
                self.bound += 1
                return

    def admitted(self, node: int, given: Pod, now: int) -> None:
        if not isinstance(self._kubelets[node].admit(given), Assignment):
            self.refused += 1
            self._gone(node, given)
            return
        self._due.append((now + OBSERVED_AFTER, "observed", node, given))
        self._due.append((now + self._rng.randint(30, 300), "ended", node, given))

    def observed(self, node: int, given: Pod, now: int) -> None:
        listed = next(p for p in self._kubelets[node].podresources().pod_resources if p.name == given.metadata.name)
        texts = as_annotations(observe(listed, self._kubelets[node].zone_of_cpus()))
        given.metadata.annotations.update({name: text for name, text in texts.items() if text is not None})
        if self._tallies[node].entry(given.uid) is not None:
            found = occupant(given, demand(given), self._layout)
            self._tallies[node].post(given.uid, found.usage)
            self._confidence[node].put(found)

    def ended(self, node: int, given: Pod, now: int) -> None:
        self._kubelets[node].remove(given)
        self._gone(node, given)

    def _gone(self, node: int, given: Pod) -> None:
        self._tallies[node].post(given.uid, None)
        self._confidence[node].remove(given.key)


@pytest.mark.parametrize("policy", ["single-numa-node", "restricted"])
def test_counting_by_records_no_pod_is_refused(policy: str) -> None:
    """A node with a pod that may be elsewhere than predicted is left alone until the exporter has told where it is."""
    for seed in (1, 2, 3):
        day = Day(policy, reconstruct=True, seed=seed).run()
        assert day.bound > 200
        assert day.refused == 0


def test_who_does_not_wait_for_the_exporter_is_refused_now_and_then() -> None:
    day = Day("restricted", reconstruct=True, patient=False).run()
    assert 0 < day.refused < 0.02 * day.bound


def test_by_what_is_published_many_are() -> None:
    day = Day("single-numa-node", reconstruct=False).run()
    assert day.refused > 0.2 * day.bound
