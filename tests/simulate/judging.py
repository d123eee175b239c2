"""What must be true of any scenario, whatever happened in it.

While it runs: every rule of ``dray verify``. At the quiet end, looked at several times so that what is merely under way at one
instant is not held against anybody: no pod waits that would fit; every waiting pod has a reason that the API shows; nothing that
is bound fails to start, nothing that is deleted stays, nothing is left over; no pod was placed only because the sweep tried it
again.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from typing import Final

import msgspec

from dray.api.core import Pod
from dray.api.kinds import NODES, PODS, RESOURCE_CLAIMS
from dray.cluster.metrics import Recorder
from dray.cluster.world import World
from dray.explain.failures import FailedBinding
from dray.explain.verify import verify
from dray.nodes.kubelet import SIMULATED
from dray.simulate.run import Simulation
from dray.simulate.scenario import made_of
from tests.simulate.random_scenarios import Document

# How long after the end it is looked at again; longer than a pod backs off, and at no even distance.
LOOKS: Final = (0.0, 17.0, 41.0)


class Failure(msgspec.Struct, frozen=True, order=True):
    """``kind`` is the same for failures of one sort; ``detail`` says what and where."""

    kind: str
    detail: str


class Outcome(msgspec.Struct):
    failures: list[Failure]
    digest: str = ""

    @property
    def kinds(self) -> list[str]:
        return sorted({failure.kind for failure in self.failures})


def judge(documents: list[Document], *, seed: int | None = None) -> Outcome:
    """Run the scenario and say what is wrong with it."""
    try:
        return _judged(documents, seed)
    except Exception as error:  # whatever goes wrong inside is what is looked for
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{place.filename.rpartition('/')[2]}:{place.lineno}"
        return Outcome([Failure(f"exception {type(error).__name__}", f"{error!r} at {where}")])


def _judged(documents: list[Document], seed: int | None) -> Outcome:
    scenario = made_of(((f"object {number}", each) for number, each in enumerate(documents, 1)), seed=seed)
    meter = Recorder()
    simulation = Simulation(scenario, meter)
    looks = []
    for wait in LOOKS:
        simulation.run(scenario.until + wait)
        looks.append(set(_wrong_now(simulation)))
    report = simulation.report()
    failures = [
        Failure(found["rule"], f"{' '.join(found['objects'])}: {found['detail']} at {found['at']:g} s")
        for found in report.invariants.violated
    ]
    failures += sorted(set.intersection(*looks))
    missed = meter.counters.get(("dray_missed_wakeups_total", ()), 0)
    if missed:
        failures.append(Failure("missed wake-up", f"{missed} pods were placed by the sweep"))
    return Outcome(failures, report.digest)


def _wrong_now(simulation: Simulation) -> Iterator[Failure]:
    world = simulation.world()
    failures = simulation.failures()
    for pod in world.all(PODS).values():
        if pod.metadata.deletion_timestamp is not None:
            if not pod.spec.node_name or _tended(world, pod):
                yield Failure("never goes", f"pod {pod.key} is deleted and stays")
        elif pod.spec.node_name:
            if pod.status.phase == "Pending" and _tended(world, pod):
                yield Failure("never starts", f"pod {pod.key} is bound to {pod.spec.node_name} and does not start")
        elif not pod.terminal:
            yield from _waiting(simulation, world, pod, failures)
    for found in verify(world).leftovers:
        if not found.rule.endswith("-vanished"):
            yield Failure(f"left over: {found.rule}", f"{' '.join(found.objects)}: {found.detail}")
    for claim in world.all(RESOURCE_CLAIMS).values():
        owner = claim.metadata.controller
        if owner is not None and owner.kind == "Pod" and not _is_there(world, claim.metadata.namespace, owner.name, owner.uid):
            yield Failure("left over: claim", f"claim {claim.key} of pod {owner.name}, which is gone")


def _tended(world: World, pod: Pod) -> bool:
    """Whether a kubelet looks after the pod."""
    node = world.get(NODES, pod.spec.node_name)
    return node is not None and node.metadata.labels.get(SIMULATED) == "true"


def _is_there(world: World, namespace: str, name: str, uid: str) -> bool:
    pod = world.get(PODS, f"{namespace}/{name}")
    return pod is not None and pod.uid == uid


def _waiting(simulation: Simulation, world: World, pod: Pod, failures: list[FailedBinding]) -> Iterator[Failure]:
    answer = simulation.why(world, pod, failures)
    condition = next((found for found in pod.status.conditions if found.type == "PodScheduled"), None)
    if answer.fits and not answer.reasons:
        rests = condition is not None and "at rest after a failure" in (condition.message or "")
        kind = "why disagrees about rests" if rests else "would fit"
        yield Failure(kind, f"pod {pod.key} waits although it fits on {', '.join(answer.fits)}")
    if condition is None or condition.status != "False" or not condition.message:
        yield Failure("no reason", f"pod {pod.key} waits and its status does not say why")
    elif not answer.reasons and not answer.fits:
        yield Failure("no reason", f"pod {pod.key} waits and `dray why` gives no reason")
