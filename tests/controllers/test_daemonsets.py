"""DaemonSets: one pod on each node that fits."""

from __future__ import annotations

from typing import Any

import pytest

from dray.api.kinds import DAEMON_SETS, NODES, PODS
from dray.cluster.port import Write
from dray.controllers.daemonsets import DaemonSets
from dray.runtime.faults import EVERY, NONE, Faults
from tests.simulated import Place
from tests.workloads import template


class Follower:
    """Binds a daemon's pod to the node that it is aimed at."""

    name = "follower"
    kinds = (PODS,)

    def __init__(self, world: Any) -> None:
        self._world, self._due = world, set[str]()

    def observe(self, event: Any, now: float) -> None:
        self._due.add(event.object.key if hasattr(event, "new") else event.write.key)

    def act(self, now: float) -> list[Write]:
        pods = [self._world.get(PODS, key) for key in sorted(self._due)]
        self._due.clear()
        return [self._bind(pod) for pod in pods if pod is not None and not pod.spec.node_name]

    def _bind(self, pod: Any) -> Write:
        node = pod.spec.affinity.node_affinity.required.node_selector_terms[0].match_fields[0].values[0]
        metadata = {"name": pod.metadata.name, "uid": pod.uid}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": {"kind": "Node", "name": node}}
        return Write("create", PODS, pod.metadata.namespace, pod.metadata.name, body, subresource="binding")

    def wake(self) -> float | None:
        return None


def begin(nodes: int = 3, seed: int = 0, faults: Faults = NONE, **spec: Any) -> Place:
    place = Place(seed, faults)
    place.start("daemonsets", DaemonSets.kinds, lambda world: [DaemonSets(world)])
    place.start_kubelets(nodes)
    place.start("follower", (PODS,), lambda world: [Follower(world)])
    body = {"selector": {"matchLabels": {"app": "agent"}}, "template": template("agent"), **spec}
    place.create(DAEMON_SETS, {"metadata": {"name": "agent"}, "spec": body})
    place.shell.run(300 if faults is not NONE else 30)
    return place


def where(place: Place) -> list[str]:
    return sorted(pod["spec"]["nodeName"] for pod in place.all(PODS) if pod["status"]["phase"] == "Running")


def test_every_node_gets_one_pod_and_the_status_counts_them() -> None:
    place = begin()
    assert where(place) == ["plain-0", "plain-1", "plain-2"]
    status = place.get(DAEMON_SETS, "agent")["status"]  # type: ignore[index]
    assert (status["desiredNumberScheduled"], status["numberReady"], status["updatedNumberScheduled"]) == (3, 3, 3)


def test_a_taint_keeps_it_away_and_a_cordon_does_not() -> None:
    place = begin()
    taint = {"key": "dedicated", "value": "x", "effect": "NoSchedule"}
    place.shell.user(Write("patch", NODES, name="plain-0", body={"spec": {"taints": [taint]}}))
    place.shell.user(Write("patch", NODES, name="plain-1", body={"spec": {"unschedulable": True}}))
    place.shell.run(60)
    assert where(place) == ["plain-1", "plain-2"]


def test_an_update_replaces_one_after_the_other() -> None:
    place = begin()
    least: list[int] = []
    place.shell.listeners.append(lambda written: least.append(len(where(place))))
    image = [{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "registry.example/app:2"}]
    place.patch(DAEMON_SETS, "agent", image, patch="json")  # type: ignore[arg-type]
    place.shell.run(120)
    assert {pod["spec"]["containers"][0]["image"] for pod in place.all(PODS)} == {"registry.example/app:2"}
    assert where(place) == ["plain-0", "plain-1", "plain-2"]
    assert min(least) >= 2


@pytest.mark.parametrize("faults", EVERY.values(), ids=list(EVERY))
def test_every_fault_ends_with_one_pod_on_each_node(faults: Faults) -> None:
    place = begin(4, 2, faults)
    place.shell.run(1500)
    assert where(place) == [f"plain-{n}" for n in range(4)]


def names(place: Place) -> list[str]:
    return sorted(pod["metadata"]["name"] for pod in place.all(PODS))


def test_pods_that_nothing_controls_are_taken_over_by_a_set_that_selects_them() -> None:
    """As after ``kubectl delete daemonset --cascade=orphan``: the next set goes on with the pods that are there."""
    place = begin()
    before = names(place)
    for name in before:
        place.patch(PODS, name, {"metadata": {"ownerReferences": None}})
    place.shell.run(60)
    assert names(place) == before
    assert all(pod["metadata"]["ownerReferences"][0]["kind"] == "DaemonSet" for pod in place.all(PODS))


def test_a_pod_whose_labels_change_is_let_go_and_another_takes_its_place() -> None:
    place = begin(1)
    (before,) = names(place)
    place.patch(PODS, before, {"metadata": {"labels": {"app": "looked-into"}}})
    place.shell.run(60)
    kept = place.get(PODS, before)
    assert kept is not None
    assert not kept["metadata"].get("ownerReferences")
    assert len(names(place)) == 2
