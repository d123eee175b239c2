"""What goes with what: owners, namespaces, lost nodes, budgets."""

from __future__ import annotations

from typing import Any

import pytest

from dray.api.kinds import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    NAMESPACES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    REPLICA_SETS,
    SERVICE_ACCOUNTS,
    STATEFUL_SETS,
)
from dray.cluster.port import Conflict, Outcome
from dray.cluster.world import World
from dray.controllers.budgets import Budgets
from dray.controllers.garbage import Garbage
from dray.controllers.podgarbage import PodGarbage
from dray.runtime.faults import EVERY
from tests.simulated import Place
from tests.workloads import replicated


@pytest.fixture
def place() -> Place:
    made = Place()
    made.start_controllers()
    made.start_nodes()
    return made


def owned(place: Place, name: str, *owners: dict[str, Any], finalizers: list[str] | None = None) -> dict[str, Any]:
    references = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": o["metadata"]["name"],
            "uid": o["metadata"]["uid"],
            "blockOwnerDeletion": True,
        }
        for o in owners
    ]
    metadata: dict[str, Any] = {"name": name, "ownerReferences": references}
    if finalizers:
        metadata["finalizers"] = finalizers
    return place.create(CONFIG_MAPS, {"metadata": metadata})


def names(place: Place) -> list[str]:
    return sorted(found["metadata"]["name"] for found in place.all(CONFIG_MAPS))


def test_dependents_go_with_their_last_owner(place: Place) -> None:
    one, two = (place.create(CONFIG_MAPS, {"metadata": {"name": name}}) for name in ("one", "two"))
    owned(place, "child", one, two)
    place.shell.run(5)
    place.delete(CONFIG_MAPS, "one")
    place.shell.run(20)
    assert names(place) == ["child", "two"]
    assert [o["name"] for o in place.get(CONFIG_MAPS, "child")["metadata"]["ownerReferences"]] == ["two"]  # type: ignore[index]
    place.delete(CONFIG_MAPS, "two")
    place.shell.run(40)
    assert names(place) == []


def test_an_owner_deleted_in_the_foreground_goes_last(place: Place) -> None:
    owner = place.create(CONFIG_MAPS, {"metadata": {"name": "owner"}})
    owned(place, "free", owner)
    owned(place, "held", owner, finalizers=["example.com/hold"])
    place.shell.run(5)
    place.delete(CONFIG_MAPS, "owner", propagationPolicy="Foreground")
    place.shell.run(20)
    assert names(place) == ["held", "owner"]
    place.patch(CONFIG_MAPS, "held", {"metadata": {"finalizers": None}})
    place.shell.run(40)
    assert names(place) == []


def test_orphans_stay_and_lose_their_owner(place: Place) -> None:
    owner = place.create(CONFIG_MAPS, {"metadata": {"name": "owner"}})
    owned(place, "child", owner)
    place.shell.run(5)
    place.delete(CONFIG_MAPS, "owner", propagationPolicy="Orphan")
    place.shell.run(20)
    assert names(place) == ["child"]
    assert "ownerReferences" not in place.get(CONFIG_MAPS, "child")["metadata"]  # type: ignore[index]


def test_an_object_whose_owner_never_existed_goes(place: Place) -> None:
    ghost = {"metadata": {"name": "ghost", "uid": "11111111-2222-3333-4444-555555555555"}}
    owned(place, "child", ghost)
    place.shell.run(20)
    assert names(place) == []


def test_an_owner_of_the_same_name_is_not_the_same_owner(place: Place) -> None:
    first = place.create(CONFIG_MAPS, {"metadata": {"name": "owner"}})
    owned(place, "child", first)
    place.delete(CONFIG_MAPS, "owner", propagationPolicy="Background")
    place.create(CONFIG_MAPS, {"metadata": {"name": "owner"}})
    place.shell.run(20)
    assert names(place) == ["owner"]


@pytest.mark.parametrize("faults", EVERY.values(), ids=list(EVERY))
def test_a_deleted_deployment_takes_everything_with_it_under_every_fault(faults: Any) -> None:
    place = Place(3, faults)
    place.start_controllers()
    place.start_nodes()
    place.create(DEPLOYMENTS, replicated("web", 4))
    place.create(DEPLOYMENTS, replicated("kept", 2))
    place.shell.at(120, lambda: place.delete(DEPLOYMENTS, "web", propagationPolicy="Background"))
    place.shell.run(1200)
    assert place.all(PODS, app="web") == []
    assert place.all(REPLICA_SETS, app="web") == []
    assert len(place.all(PODS, app="kept")) == 2


def test_a_deleted_namespace_is_emptied_and_goes(place: Place) -> None:
    place.create(NAMESPACES, {"metadata": {"name": "team"}})
    place.create(DEPLOYMENTS, replicated("web", 3), namespace="team")
    place.shell.run(20)
    assert place.core.get(SERVICE_ACCOUNTS, "team/default") is not None
    place.delete(NAMESPACES, "team")
    place.shell.run(60)
    assert place.get(NAMESPACES, "team") is None
    assert [key for kind in (PODS, REPLICA_SETS, DEPLOYMENTS) for key in place.core.all(kind)] == []


def test_a_namespace_waits_for_what_holds_on(place: Place) -> None:
    place.create(NAMESPACES, {"metadata": {"name": "team"}})
    held = {"metadata": {"name": "held", "finalizers": ["example.com/hold"]}}
    place.create(CONFIG_MAPS, held, namespace="team")
    place.shell.run(5)
    place.delete(NAMESPACES, "team")
    place.shell.run(60)
    assert place.get(NAMESPACES, "team") is not None
    assert "deletionTimestamp" in place.core.all(CONFIG_MAPS)["team/held"]["metadata"]


def test_pods_of_a_lost_node_are_failed_removed_and_replaced(place: Place) -> None:
    place.start("podgarbage", (PODS, NODES), lambda world: [PodGarbage(world)])
    place.create(REPLICA_SETS, replicated("web", 3))
    place.shell.run(20)
    lost = place.all(PODS, app="web")[0]["spec"]["nodeName"]
    place.delete(NODES, lost)
    place.shell.run(30)
    assert any(pod["spec"].get("nodeName") == lost for pod in place.all(PODS))
    place.shell.run(180)
    assert not any(pod["spec"].get("nodeName") == lost and pod["status"]["phase"] == "Running" for pod in place.all(PODS))


@pytest.mark.parametrize(
    ("spec", "allowed"),
    [({"minAvailable": 2}, 2), ({"maxUnavailable": 1}, 1), ({"minAvailable": "50%"}, 2), ({"maxUnavailable": "25%"}, 1)],
)
def test_a_budget_says_how_many_may_go(place: Place, spec: dict[str, Any], allowed: int) -> None:
    kinds = (POD_DISRUPTION_BUDGETS, PODS, REPLICA_SETS, STATEFUL_SETS)
    place.start("budgets", kinds, lambda world: [Budgets(world)])
    place.create(REPLICA_SETS, replicated("web", 4))
    selector = {"matchLabels": {"app": "web"}}
    place.create(POD_DISRUPTION_BUDGETS, {"metadata": {"name": "b"}, "spec": {"selector": selector, **spec}})
    place.shell.run(20)
    status = place.get(POD_DISRUPTION_BUDGETS, "b")["status"]  # type: ignore[index]
    assert (status["disruptionsAllowed"], status["currentHealthy"], status["expectedPods"]) == (allowed, 4, 4)


def test_a_circle_of_owners_goes(place: Place) -> None:
    first = owned(place, "a")
    second = owned(place, "b", first)
    third = owned(place, "c", second)
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "c",
        "uid": third["metadata"]["uid"],
        "blockOwnerDeletion": True,
    }
    place.patch(CONFIG_MAPS, "a", {"metadata": {"ownerReferences": [reference]}})
    place.delete(CONFIG_MAPS, "a", propagationPolicy="Foreground")
    place.pass_time(60)
    assert [found["metadata"]["name"] for found in place.all(CONFIG_MAPS) if len(found["metadata"]["name"]) == 1] == []


def test_an_owner_that_waits_for_its_dependents_is_left_by_those_with_another(place: Place) -> None:
    leaving, staying = owned(place, "leaving"), owned(place, "staying")
    owned(place, "both", leaving, staying)
    place.delete(CONFIG_MAPS, "leaving", propagationPolicy="Foreground")
    place.pass_time(60)
    [reference] = place.get(CONFIG_MAPS, "both")["metadata"]["ownerReferences"]  # type: ignore[index]
    assert (reference["name"], place.get(CONFIG_MAPS, "leaving")) == ("staying", None)


def test_a_namespace_that_hangs_says_what_holds_it_and_loses_its_pods_first(place: Place) -> None:
    place.create(NAMESPACES, {"metadata": {"name": "team"}})
    spec = {"containers": [{"name": "a", "image": "x"}]}
    place.create(PODS, {"metadata": {"name": "p", "finalizers": ["example.com/hold"]}, "spec": spec}, "team")
    place.create(CONFIG_MAPS, {"metadata": {"name": "later"}}, "team")
    place.pass_time(10)
    place.delete(NAMESPACES, "team")
    place.pass_time(60)
    assert place.core.get(CONFIG_MAPS, "team/later") is not None
    conditions = {c["type"]: c["message"] for c in place.get(NAMESPACES, "team")["status"]["conditions"]}  # type: ignore[index]
    assert "example.com/hold in 1 resource instances" in conditions["NamespaceFinalizersRemaining"]
    assert "pods. has 1 resource instances" in conditions["NamespaceContentRemaining"]


def test_a_conflict_does_not_prove_that_an_owner_is_gone() -> None:
    """The watch of owners is behind, and the question whether the owner is there met another write."""
    world = World([PODS, CONFIG_MAPS])
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "owner", "uid": "u1"}
    metadata = {"name": "child", "namespace": "default", "uid": "c1", "resourceVersion": "5", "ownerReferences": [owner]}
    garbage = Garbage(world, (PODS, CONFIG_MAPS))
    for change in world.put(CONFIG_MAPS, {"metadata": metadata}):
        garbage.observe(change, 0.0)
    (asked,) = garbage.act(0.0)
    assert (asked.verb, asked.kind, asked.body, asked.uid) == ("patch", PODS, {}, "u1")
    garbage.observe(Outcome(asked, error=Conflict(409, "Conflict", "another write came between")), 0.0)
    assert [write.verb for now in range(1, 60) for write in garbage.act(float(now))] == ["patch"]
