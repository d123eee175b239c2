"""StatefulSets: stable names, one after the other."""

from __future__ import annotations

from typing import Any

import pytest

from dray.api.kinds import PODS, STATEFUL_SETS
from dray.controllers.statefulsets import StatefulSets
from dray.runtime.faults import EVERY, NONE, Faults
from tests.simulated import Place
from tests.workloads import replicated


def begin(seed: int = 0, faults: Faults = NONE) -> Place:
    made = Place(seed, faults)
    made.start("statefulsets", StatefulSets.kinds, lambda world: [StatefulSets(world)])
    made.start_nodes()
    return made


def stateful(replicas: int, **spec: Any) -> dict[str, Any]:
    return replicated("db", replicas, serviceName="db", **spec)


def names(place: Place) -> list[str]:
    return sorted(pod["metadata"]["name"] for pod in place.all(PODS))


def test_pods_start_one_after_the_other() -> None:
    place = begin()
    place.create(STATEFUL_SETS, stateful(3))
    seen: list[list[tuple[str, str]]] = []
    place.shell.listeners.append(lambda w: seen.append([(p["metadata"]["name"], p["status"]["phase"]) for p in place.all(PODS)]))
    place.shell.run(30)
    assert names(place) == ["db-0", "db-1", "db-2"]
    assert all(sum(phase != "Running" for _, phase in pods) <= 1 for pods in seen)


def test_scaling_down_removes_the_highest_first() -> None:
    place = begin()
    place.create(STATEFUL_SETS, stateful(3))
    place.shell.run(30)
    place.patch(STATEFUL_SETS, "db", {"spec": {"replicas": 1}})
    place.shell.run(60)
    assert names(place) == ["db-0"]


@pytest.mark.parametrize("policy", ["OrderedReady", "Parallel"])
def test_an_update_replaces_every_pod_and_its_status_says_so(policy: str) -> None:
    place = begin()
    place.create(STATEFUL_SETS, stateful(3, podManagementPolicy=policy))
    place.shell.run(30)
    image = [{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "registry.example/app:2"}]
    place.patch(STATEFUL_SETS, "db", image, patch="json")  # type: ignore[arg-type]
    place.shell.run(120)
    assert {pod["spec"]["containers"][0]["image"] for pod in place.all(PODS)} == {"registry.example/app:2"}
    found = place.get(STATEFUL_SETS, "db")
    assert found is not None
    status = found["status"]
    assert status["currentRevision"] == status["updateRevision"]
    assert (status["updatedReplicas"], status["readyReplicas"], status["observedGeneration"]) == (3, 3, 2)


def test_a_partition_keeps_the_lower_ordinals_as_they_are() -> None:
    place = begin()
    place.create(STATEFUL_SETS, stateful(3, updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}))
    place.shell.run(30)
    image = [{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "registry.example/app:2"}]
    place.patch(STATEFUL_SETS, "db", image, patch="json")  # type: ignore[arg-type]
    place.shell.run(120)
    assert [pod["spec"]["containers"][0]["image"][-1] for pod in place.all(PODS)] == ["1", "1", "2"]


@pytest.mark.parametrize("faults", EVERY.values(), ids=list(EVERY))
def test_every_fault_ends_with_each_name_once(faults: Faults) -> None:
    place = begin(5, faults)
    place.create(STATEFUL_SETS, stateful(4))
    place.shell.at(200, lambda: place.delete(PODS, "db-1"))
    place.shell.run(1200)
    assert names(place) == [f"db-{n}" for n in range(4)]
    assert {pod["status"]["phase"] for pod in place.all(PODS)} == {"Running"}


def test_a_pod_that_somebody_took_away_from_it_is_its_own_again() -> None:
    place = begin()
    place.create(STATEFUL_SETS, stateful(1))
    place.shell.run(30)
    place.patch(PODS, "db-0", {"metadata": {"ownerReferences": None}})
    place.shell.run(60)
    pod = place.get(PODS, "db-0")
    assert pod is not None
    assert [owner["name"] for owner in pod["metadata"].get("ownerReferences", [])] == ["db"]
