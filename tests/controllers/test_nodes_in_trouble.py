"""Nodes that fall silent, say that they are in trouble, or are tainted: what they are marked with and who leaves them."""

from __future__ import annotations

from typing import Any

import pytest

from dray.api.kinds import EVENTS, LEASES, NODES, PODS
from dray.api.times import format_time
from dray.cluster.port import Write
from dray.cluster.world import World
from dray.controllers.nodeeviction import NodeEviction
from dray.controllers.nodelifecycle import NodeLifecycle
from dray.controllers.podgarbage import PodGarbage
from dray.nodes.kubelet import Kubelets
from dray.runtime.faults import EVERY, NONE, Faults
from tests.simulated import Place

UNREACHABLE, NOT_READY = "node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready"


class Nodes(Place):
    """Each node has a kubelet of its own, which can be lost; controllers run in one process."""

    def __init__(self, names: str = "abcd", seed: int = 0, faults: Faults = NONE) -> None:
        super().__init__(seed, faults)
        self.start(
            "controllers",
            (NODES, LEASES, PODS),
            lambda world: [NodeLifecycle(world), NodeEviction(world), PodGarbage(world, finished_max=2)],
        )
        for name in names:
            self.start_node(name)
        self.later(5)

    def start_node(self, name: str) -> None:
        manifest = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name},
            "status": {"capacity": {"cpu": "8", "pods": "9"}},
        }
        self.start(f"node {name}", Kubelets.kinds, lambda world: [Kubelets(world, [manifest])])

    def later(self, seconds: float) -> None:
        self.shell.run(self.shell.elapsed + seconds)

    def lose(self, *names: str, seconds: float = 1e6) -> None:
        for name in names:
            self.shell.crash(f"node {name}", seconds)

    def run_pod(self, name: str, node: str, **spec: Any) -> None:
        spec = {"nodeName": node, "terminationGracePeriodSeconds": 5, "containers": [{"name": "c", "image": "i"}], **spec}
        self.create(PODS, {"metadata": {"name": name}, "spec": spec})

    def taints(self, node: str) -> set[tuple[str, str]]:
        found = self.get(NODES, node)
        assert found is not None
        return {(taint["key"], taint["effect"]) for taint in found["spec"].get("taints", ())}

    def ready(self, node: str) -> str:
        found = self.get(NODES, node)
        assert found is not None
        return next(str(c["status"]) for c in found["status"]["conditions"] if c["type"] == "Ready")

    def condition(self, node: str, kind: str, status: str) -> None:
        body = {"status": {"conditions": [{"type": kind, "status": status}]}}
        self.shell.user(Write("patch", NODES, name=node, body=body, subresource="status", patch="strategic"))

    def taint(self, node: str, *taints: dict[str, str]) -> None:
        self.shell.user(Write("patch", NODES, name=node, body={"spec": {"taints": list(taints) or None}}))

    def present(self) -> set[str]:
        """Pods that nobody has deleted yet."""
        return {p["metadata"]["name"] for p in self.all(PODS) if not p["metadata"].get("deletionTimestamp")}

    def told(self, reason: str) -> list[str]:
        return [event.get("note") or event["message"] for event in self.core.all(EVENTS).values() if event["reason"] == reason]


GONE = {(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")}


def test_a_silent_node_is_marked_and_its_pods_leave_when_their_time_is_over() -> None:
    here = Nodes()
    here.run_pod("app", "a")
    here.run_pod("daemon", "a", tolerations=[{"operator": "Exists"}])
    here.run_pod("elsewhere", "b")
    here.later(10)
    here.lose("a")
    here.later(45)
    assert here.taints("a") == set()
    here.later(25)
    assert here.ready("a") == "Unknown"
    assert here.taints("a") == GONE
    here.later(270)
    assert "app" in here.present()
    here.later(45)
    assert here.present() == {"daemon", "elsewhere"}
    left = here.get(PODS, "app")
    assert left is not None  # nobody is there to stop it
    assert ("DisruptionTarget", "DeletionByTaintManager") in {(c["type"], c.get("reason")) for c in left["status"]["conditions"]}
    assert here.told("TaintManagerEviction") == ["Marking for deletion Pod default/app"]


def test_a_node_that_comes_back_keeps_its_pods() -> None:
    here = Nodes()
    here.run_pod("app", "a")
    here.later(10)
    here.lose("a", seconds=200)
    here.later(100)
    assert here.taints("a") == GONE
    here.later(150)
    assert here.ready("a") == "True"
    assert here.taints("a") == set()
    here.later(600)
    assert here.present() == {"app"}
    assert here.told("TaintManagerEviction") == ["Cancelling deletion of Pod default/app"]


def test_conditions_become_taints_and_back() -> None:
    here = Nodes()
    here.condition("a", "Ready", "False")
    here.condition("b", "DiskPressure", "True")
    here.shell.user(Write("patch", NODES, name="c", body={"spec": {"unschedulable": True}}))
    here.later(9)
    assert here.taints("a") == {(NOT_READY, "NoSchedule"), (NOT_READY, "NoExecute")}
    assert here.taints("b") == {("node.kubernetes.io/disk-pressure", "NoSchedule")}
    assert here.taints("c") == {("node.kubernetes.io/unschedulable", "NoSchedule")}
    here.condition("a", "Ready", "True")
    here.condition("b", "DiskPressure", "False")
    here.shell.user(Write("patch", NODES, name="c", body={"spec": {"unschedulable": None}}))
    here.later(2)
    assert here.taints("a") == here.taints("b") == here.taints("c") == set()


def test_taints_of_others_stay_as_they_are() -> None:
    here = Nodes()
    mine = {"key": "example.com/mine", "value": "x", "effect": "NoSchedule"}
    here.taint("a", mine)
    here.condition("a", "Ready", "False")
    here.later(2)
    here.condition("a", "Ready", "True")
    here.later(2)
    assert here.get(NODES, "a")["spec"]["taints"] == [mine]  # type: ignore[index]


def test_a_node_that_was_not_ready_and_then_silent_changes_its_taint_without_waiting_its_turn() -> None:
    here = Nodes()
    here.condition("a", "Ready", "False")
    here.later(9)
    here.lose("a")
    here.later(70)
    assert here.taints("a") == GONE


def test_nobody_is_driven_away_while_all_nodes_are_silent() -> None:
    here = Nodes("ab")
    here.run_pod("app", "a")
    here.later(10)
    here.lose("a", "b")
    here.later(900)
    assert here.taints("a") == here.taints("b") == {(UNREACHABLE, "NoSchedule")}
    assert here.present() == {"app"}
    here.start_node("c")
    here.later(120)
    assert here.taints("a") == here.taints("b") == GONE


def test_nobody_is_driven_away_while_most_nodes_are_silent() -> None:
    here = Nodes("abcde")
    for name in "abc":
        here.condition(name, "Ready", "False")
    here.later(200)
    assert {name: here.taints(name) for name in "abc"} == {name: {(NOT_READY, "NoSchedule")} for name in "abc"}


def test_nodes_are_emptied_one_after_the_other() -> None:
    here = Nodes("abcdefg")
    for name in "abc":
        here.condition(name, "Ready", "False")
    emptied = []
    for _ in range(3):
        here.later(10)
        emptied.append(sum((NOT_READY, "NoExecute") in here.taints(name) for name in "abc"))
    assert emptied == [1, 2, 3]


def test_a_node_without_a_lease_is_believed() -> None:
    here = Nodes("a")
    here.create(NODES, {"metadata": {"name": "made-by-hand"}})
    here.later(300)
    assert here.taints("made-by-hand") == set()


def test_a_pause_of_the_controller_itself_counts_against_no_node() -> None:
    world = World((NODES, LEASES))
    decider = NodeLifecycle(world)
    node = {
        "metadata": {"name": "a", "uid": "u", "resourceVersion": "1"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
    lease = {
        "metadata": {"name": "a", "namespace": "kube-node-lease", "uid": "l", "resourceVersion": "2"},
        "spec": {"renewTime": "2026-01-01T00:00:00.000000Z"},
    }
    for kind, raw in ((NODES, node), (LEASES, lease)):
        for change in world.put(kind, raw):
            decider.observe(change, 1000.0)
    assert decider.act(1000.0) == []
    assert decider.act(9000.0) == []  # the lid was closed for two hours
    for second in range(9000, 9049, 5):
        assert decider.act(float(second)) == []
    assert [write.subresource for write in decider.act(9051.0) if write.kind == NODES] == ["status"]


# ------------------------------------------------------------------------------------------------------- taints of users


DEDICATED = {"key": "dedicated", "value": "gpu", "effect": "NoExecute"}


def test_a_taint_drives_away_who_does_not_tolerate_it() -> None:
    here = Nodes()
    tolerating = {"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoExecute"}
    here.run_pod("stranger", "a")
    here.run_pod("forever", "a", tolerations=[tolerating])
    here.run_pod("a-minute", "a", tolerations=[{**tolerating, "tolerationSeconds": 60}])
    here.run_pod("not-at-all", "a", tolerations=[{**tolerating, "tolerationSeconds": -5}])
    here.run_pod("of-another-value", "a", tolerations=[{**tolerating, "value": "cpu"}])
    here.later(10)
    here.taint("a", DEDICATED)
    here.later(10)
    assert here.present() == {"forever", "a-minute"}
    here.later(60)
    assert here.present() == {"forever"}


@pytest.mark.parametrize("tells", [True, False])
def test_the_time_of_a_toleration_counts_from_the_taint(tells: bool) -> None:
    here = Nodes()
    here.run_pod(
        "app", "a", tolerations=[{"key": "dedicated", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}]
    )
    here.later(100)
    here.taint("a", DEDICATED | ({"timeAdded": stamp(here)} if tells else {}))
    here.later(55)
    assert here.present() == {"app"}
    here.later(10)
    assert here.present() == set()


def test_for_a_pod_that_comes_later_the_time_counts_from_its_coming() -> None:
    here = Nodes()
    here.taint("a", DEDICATED | {"timeAdded": stamp(here)})
    here.later(500)
    here.run_pod(
        "app", "a", tolerations=[{"key": "dedicated", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}]
    )
    here.later(50)
    assert here.present() == {"app"}
    here.later(15)
    assert here.present() == set()


def test_finished_pods_stay() -> None:
    here = Nodes()
    here.run_pod("done", "a")
    here.later(5)
    here.patch(PODS, "done", {"status": {"phase": "Succeeded"}}, subresource="status")
    here.taint("a", DEDICATED)
    here.later(60)
    assert here.present() == {"done"}


@pytest.mark.parametrize("fault", sorted(EVERY))
def test_deadlines_survive_restarts_and_faults(fault: str) -> None:
    here = Nodes(seed=7, faults=EVERY[fault])
    for index in range(6):
        here.run_pod(
            f"app-{index}",
            "a",
            tolerations=[{"key": "dedicated", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 100 * index}],
        )
    here.later(60)
    here.taint("a", DEDICATED | {"timeAdded": stamp(here)})
    here.later(150)
    here.shell.crash("controllers", 20)
    assert {"app-2", "app-3", "app-4", "app-5"} <= here.present()
    here.later(130)
    assert {"app-3", "app-4", "app-5"} <= here.present()
    here.later(400)
    assert here.present() == set()


def stamp(here: Nodes) -> str:
    return format_time(here.shell.clock.now)


# ------------------------------------------------------------------------------------------------------------- pod garbage


def test_pods_of_a_node_that_is_declared_out_of_service_are_removed_once_deleted() -> None:
    here = Nodes()
    for name in ("stuck", "alive"):
        here.run_pod(name, "a", tolerations=[{"operator": "Exists"}])
    here.later(5)
    here.lose("a")
    here.later(70)
    here.delete(PODS, "stuck")
    here.later(60)
    assert here.get(PODS, "stuck") is not None
    taints = here.get(NODES, "a")["spec"]["taints"]  # type: ignore[index]
    here.taint("a", *taints, {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"})
    here.later(10)
    assert here.get(PODS, "stuck") is None
    assert here.present() == {"alive"}


def test_a_pod_that_is_deleted_before_it_has_a_node_is_failed_for_whoever_holds_it() -> None:
    here = Nodes()
    held = {
        "metadata": {"name": "held", "finalizers": ["example.com/hold"]},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    here.create(PODS, held)
    here.delete(PODS, "held")
    here.later(10)
    assert here.get(PODS, "held")["status"]["phase"] == "Failed"  # type: ignore[index]
    here.patch(PODS, "held", {"metadata": {"finalizers": None}})
    here.later(10)
    assert here.get(PODS, "held") is None


def test_of_finished_pods_the_youngest_are_kept() -> None:
    here = Nodes()
    for name in ("first", "second", "third", "fourth"):
        here.run_pod(name, "a")
        here.later(3)
        here.patch(PODS, name, {"status": {"phase": "Succeeded"}}, subresource="status")
    here.later(10)
    assert here.present() == {"third", "fourth"}
