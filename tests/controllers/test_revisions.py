"""What DaemonSets and StatefulSets had before, and going back to it; ReplicationControllers beside them."""

from __future__ import annotations

from typing import Any

import pytest

from dray.api.kinds import CONTROLLER_REVISIONS, DAEMON_SETS, PODS, REPLICATION_CONTROLLERS, STATEFUL_SETS, Kind
from dray.controllers.daemonsets import DaemonSets
from dray.controllers.replicasets import ReplicationControllers
from dray.controllers.statefulsets import StatefulSets
from tests.simulated import Place
from tests.workloads import replicated, template

IMAGE = "/spec/template/spec/containers/0/image"
KINDS = (*StatefulSets.kinds, *DaemonSets.kinds)


def begin() -> Place:
    place = Place()
    place.start("sets", tuple(dict.fromkeys(KINDS)), lambda world: [StatefulSets(world), DaemonSets(world)])
    place.start_nodes(2)
    return place


def make(place: Place, kind: Kind, **spec: Any) -> None:
    body = replicated("db", 2, serviceName="db", **spec)
    if kind == DAEMON_SETS:
        body["spec"] = {"selector": body["spec"]["selector"], "template": body["spec"]["template"], **spec}
    place.create(kind, body)
    place.pass_time(20)


def set_image(place: Place, kind: Kind, image: str) -> None:
    place.patch(kind, "db", [{"op": "replace", "path": IMAGE, "value": image}], patch="json")  # type: ignore[arg-type]
    place.pass_time(90)


def history(place: Place) -> list[tuple[int, str]]:
    found = place.all(CONTROLLER_REVISIONS)
    return sorted((each["revision"], each["data"]["spec"]["template"]["spec"]["containers"][0]["image"]) for each in found)


@pytest.mark.parametrize("kind", [STATEFUL_SETS, DAEMON_SETS])
def test_each_template_is_a_revision_and_going_back_gives_the_old_one_a_new_number(kind: Kind) -> None:
    place = begin()
    make(place, kind)
    first = "registry.example/app:1"
    set_image(place, kind, "two")
    assert history(place) == [(1, first), (2, "two")]
    set_image(place, kind, first)
    assert history(place) == [(2, "two"), (3, first)]
    [old] = [each for each in place.all(CONTROLLER_REVISIONS) if each["revision"] == 2]
    place.patch(kind, "db", old["data"], patch="strategic")
    place.pass_time(90)
    assert history(place) == [(3, first), (4, "two")]
    assert {pod["spec"]["containers"][0]["image"] for pod in place.all(PODS)} == {"two"}


def test_old_revisions_beyond_the_limit_go() -> None:
    place = begin()
    make(place, STATEFUL_SETS, revisionHistoryLimit=1)
    for number in range(2, 6):
        set_image(place, STATEFUL_SETS, f"v{number}")
    assert [image for _, image in history(place)] == ["v4", "v5"]


def test_a_pod_below_the_partition_is_made_again_from_the_old_template() -> None:
    place = begin()
    make(place, STATEFUL_SETS, updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"partition": 1}})
    set_image(place, STATEFUL_SETS, "two")
    place.delete(PODS, "db-0")
    place.pass_time(60)
    images = {pod["metadata"]["name"]: pod["spec"]["containers"][0]["image"] for pod in place.all(PODS)}
    assert images == {"db-0": "registry.example/app:1", "db-1": "two"}


def test_a_daemon_that_is_made_again_has_another_name() -> None:
    place = begin()
    make(place, DAEMON_SETS)
    before = {pod["metadata"]["name"] for pod in place.all(PODS)}
    for name in before:
        place.delete(PODS, name)
    place.pass_time(60)
    after = {pod["metadata"]["name"] for pod in place.all(PODS)}
    assert len(before) == len(after) == 2
    assert not before & after


def test_with_surge_the_old_daemon_stays_until_the_new_one_is_there() -> None:
    place = begin()
    surge = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    make(place, DAEMON_SETS, updateStrategy=surge)
    least = []
    place.shell.listeners.append(lambda w: least.append(sum(p["status"]["phase"] == "Running" for p in place.all(PODS))))
    set_image(place, DAEMON_SETS, "two")
    assert {pod["spec"]["containers"][0]["image"] for pod in place.all(PODS)} == {"two"}
    assert min(least) >= 2


def test_a_replication_controller_keeps_its_pods_and_adopts_strays() -> None:
    place = Place()
    place.start("rc", ReplicationControllers.kinds, lambda world: [ReplicationControllers(world)])
    place.start_nodes()
    pod = template("web")
    place.create(PODS, {"metadata": {"name": "stray", **pod["metadata"]}, "spec": pod["spec"]})
    spec = {"replicas": 3, "selector": {"app": "web"}, "template": pod}
    place.create(REPLICATION_CONTROLLERS, {"metadata": {"name": "web"}, "spec": spec})
    place.pass_time(20)
    assert len(place.all(PODS)) == 3
    assert place.get(PODS, "stray")["metadata"]["ownerReferences"][0]["kind"] == "ReplicationController"  # type: ignore[index]
    assert place.get(REPLICATION_CONTROLLERS, "web")["status"]["readyReplicas"] == 3  # type: ignore[index]
