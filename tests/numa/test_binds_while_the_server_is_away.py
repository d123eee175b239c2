"""The API server is away for longer than pods are waited for, while binds are under way: they may have come true, or come true
at any moment. Nobody is let ahead of them, nothing is held twice or for ever, and when the server is back everybody runs.
"""

from __future__ import annotations

import random

import pytest

from dray.api.kinds import PODS, RESOURCE_CLAIMS
from dray.runtime.faults import Faults
from dray.scheduling.scheduler import Scheduler
from dray.testing import builders
from tests.numa.clusters import Json, ZonedCluster, zoned_node
from tests.numa.test_gangs_and_consolidation import group, queued, queues
from tests.numa.test_pods_that_wait_for_devices import CPU2, CPU4, claiming


def cluster(*nodes: Json, away: tuple[tuple[float, float], ...], lost: float = 0.0, seed: int = 0) -> ZonedCluster:
    faults = Faults(write_delay=(0.3, 0.4), event_delay=(0.01, 0.2), away=away, lost_answer=lost, until=away[-1][1])
    made = ZonedCluster(*nodes, faults=faults, seed=seed)
    made.create(*queues(), builders.device_class(), *(builders.resource_slice(name, 2) for name in made.nodes()))
    return made


def at_rest(made: ZonedCluster) -> None:
    """Nothing is left of what was under way."""
    (scheduler,) = made.shell.hosts["scheduler"].deciders
    assert isinstance(scheduler, Scheduler)
    assert scheduler.validate() == []
    assert len(scheduler.binder.bindings) == 0
    found = made.verify()
    assert (found.violations, found.leftovers) == ([], [])
    ended = {pod["metadata"]["uid"] for pod in made.all(PODS) if pod["status"]["phase"] in ("Succeeded", "Failed")}
    users = [user for claim in made.all(RESOURCE_CLAIMS) for user in claim["status"].get("reservedFor", [])]
    assert not ended & {user["uid"] for user in users}


@pytest.mark.parametrize("exporter", ["2s", None])
@pytest.mark.parametrize("claims", [False, True])
@pytest.mark.parametrize("seconds", [5, 15, 60])
@pytest.mark.parametrize("before", [0.1, 0.5, 0.9])
def test_a_small_member_does_not_overtake_a_large_one(exporter: str | None, claims: bool, seconds: int, before: float) -> None:
    """Only the first zone will do for the large one, so it comes first; and it does although its bind has no answer."""
    made = cluster(zoned_node("n0", CPU4, CPU2, exporter=exporter), away=((12.0, 12.0 + seconds),))
    made.create(group("g", 2))
    made.run(12.0 - before - made.elapsed)
    for name, cpu in (("a-small", 2), ("large", 4)):
        pod = queued(name, cpu, "g", **{"dray.dev/finishes-after": "60s"})
        made.create(*(claiming(pod) if claims else (pod,)))
    # A kubelet that could not say that a pod runs tries it again after ever longer times.
    made.run_until(lambda: {made.phase(name) for name in ("a-small", "large")} == {"Succeeded"}, 600)
    assert made.refused == 0
    made.create(group("h", 2), *(queued(name, cpu, "h") for name, cpu in (("small-2", 2), ("large-2", 4))))
    made.run(120)
    assert [made.phase(name) for name in ("small-2", "large-2")] == ["Running", "Running"]
    assert made.refused == 0
    at_rest(made)


def test_nobody_of_another_shape_is_placed_beside_a_pod_whose_bind_has_no_answer() -> None:
    """Its kubelet would give the zone of the one that waits to whoever comes first."""
    made = cluster(zoned_node("n0", CPU4, CPU2), away=((12.0, 40.0),))
    made.run(11.9 - made.elapsed)
    made.create(queued("first", 3))
    made.run(2)
    made.create(queued("second", 2))
    made.run(60)
    assert [list(made.zones_of(name)) for name in ("first", "second")] == [["node-0"], ["node-1"]]
    assert made.refused == 0


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("lost", [0.0, 0.1])
def test_again_and_again_whoever_comes(seed: int, lost: float) -> None:
    rng = random.Random(seed)
    away, time = list[tuple[float, float]](), 20.0
    while time < 250:
        lasts = rng.choice((3, 12, 15, 30, 45))
        away.append((time, time + lasts))
        time += lasts + rng.uniform(15, 40)
    zones = [({"cpus": 4, "memory": "8Gi"}, {"cpus": rng.randint(2, 4), "memory": "8Gi"}) for _ in range(2)]
    made = cluster(*(zoned_node(f"n{n}", *each) for n, each in enumerate(zones)), away=tuple(away), lost=lost, seed=seed)
    for number, (start, _) in enumerate(away):
        # Of three at most one needs more than half of a zone, so that there is a way for all of them.
        sizes = [rng.randint(1, 4), *(rng.randint(1, 2) for _ in range(rng.randint(0, 2)))]
        objects = [group(f"g{number}", len(sizes))]
        for member, cpu in enumerate(sizes):
            pod = queued(f"g{number}-{member}", cpu, f"g{number}", **{"dray.dev/finishes-after": f"{rng.randint(5, 40)}s"})
            objects += claiming(pod) if rng.random() < 0.3 else (pod,)
        made.at(start - rng.uniform(-1, 1.2), lambda objects=objects: made.create(*objects) and None)  # type: ignore[misc]
    made.run(800)
    assert made.refused == 0
    assert {pod["status"]["phase"] for pod in made.all(PODS)} == {"Succeeded"}
    at_rest(made)
