"""Whatever goes wrong between controllers and their API server, the cluster ends as it was asked for, and nothing is double."""

from __future__ import annotations

import pytest

from dray.api.kinds import DEPLOYMENTS, JOBS, PODS, REPLICA_SETS
from dray.runtime.faults import EVERY, NONE, Crash, Faults
from tests.simulated import Place
from tests.workloads import job, replicated

SEEDS = range(3)


def busy(faults: Faults, seed: int) -> Place:
    """Twelve ReplicaSets, a Deployment that is rolled, and a Job; one hour."""
    place = Place(seed, faults)
    place.start_controllers()
    place.start_nodes()
    for number in range(12):
        place.create(REPLICA_SETS, replicated(f"rs-{number}", number % 5))
    place.create(DEPLOYMENTS, replicated("web", 6))
    place.create(JOBS, job("sums", {"completions": 5, "parallelism": 2}, finishes_after="20s"))
    image = [{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "registry.example/app:2"}]
    place.shell.at(300, lambda: place.patch(DEPLOYMENTS, "web", image, patch="json"))  # type: ignore[arg-type, func-returns-value]
    place.shell.at(330, lambda: place.patch(REPLICA_SETS, "rs-4", {"spec": {"replicas": 1}}))  # type: ignore[func-returns-value]
    place.shell.run(3600)
    return place


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("faults", [NONE, *EVERY.values()], ids=["nothing", *EVERY])
def test_every_count_is_reached_and_nothing_is_double(faults: Faults, seed: int) -> None:
    place = busy(faults, seed)
    for number in range(12):
        wanted = 1 if number == 4 else number % 5
        alive = [pod for pod in place.all(PODS, app=f"rs-{number}") if pod["status"]["phase"] == "Running"]
        assert len(alive) == wanted, number
        status = place.get(REPLICA_SETS, f"rs-{number}")["status"]  # type: ignore[index]
        assert (status["replicas"], status.get("readyReplicas", 0)) == (wanted, wanted)
    web = place.all(PODS, app="web")
    assert [pod["spec"]["containers"][0]["image"] for pod in web] == ["registry.example/app:2"] * 6
    finished = place.get(JOBS, "sums")
    assert finished is not None
    assert finished["status"]["succeeded"] == 5
    assert any(c["type"] == "Complete" and c["status"] == "True" for c in finished["status"]["conditions"])


def test_a_controller_that_crashes_again_and_again_still_gets_there() -> None:
    crashes = tuple(Crash(at, host) for at in range(0, 200, 3) for host in ("controllers", "nodes", "binder"))
    place = busy(Faults(crashes=crashes), 1)
    assert len(place.all(PODS, app="web")) == 6


def test_the_same_seed_gives_the_same_run_write_for_write() -> None:
    first, second = (busy(EVERY["everything"], 7).shell for _ in range(2))
    assert first.digest == second.digest
    assert first.steps == second.steps


def test_another_seed_gives_another_run() -> None:
    assert busy(EVERY["everything"], 7).shell.digest != busy(EVERY["everything"], 8).shell.digest
