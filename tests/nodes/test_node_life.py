"""Nodes that are lost, come back and are drained."""

from __future__ import annotations

from typing import Any

from dray.api.core import Node
from dray.api.kinds import LEASES, NODES, PODS
from dray.api.meta import decode
from dray.cluster.port import Write
from dray.nodes.hardware import hardware
from dray.nodes.heartbeats import Heartbeats
from dray.nodes.kubelet import Kubelets
from tests.nodes.laboratory import DRIVER, NODE, Driver, Laboratory
from tests.simulated import Place


def stop(place: Place, value: str | None = "stopped") -> None:
    place.patch(NODES, NODE, {"metadata": {"annotations": {"dray.dev/kubelet": value}}})


def test_a_lost_node_renews_no_lease_and_comes_back_ready() -> None:
    place = Place()
    made = hardware(["gpu8"])
    renewals: list[float] = []

    def note(written: Any) -> None:
        if written.write.kind == LEASES:
            renewals.append(written.at)

    place.shell.listeners.append(note)
    place.start("nodes", Kubelets.kinds, lambda world: [Kubelets(world, made.nodes)])
    place.shell.run(30)
    stop(place)
    place.shell.run(31)
    lost = len(renewals)
    lies = [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]
    place.patch(NODES, NODE, {"status": {"conditions": lies}}, subresource="status", patch="strategic")
    place.shell.run(120)
    assert len(renewals) == lost
    stop(place, None)
    place.shell.run(150)
    assert len(renewals) > lost
    node = place.get(NODES, NODE)
    assert node is not None
    assert {c["type"]: c["status"] for c in node["status"]["conditions"]}["Ready"] == "True"


def test_what_somebody_writes_into_the_capacity_is_allocatable_too() -> None:
    have, more = {"cpu": "4"}, {"example.com/beard-seconds": "1k"}
    status = {"capacity": have | more, "allocatable": have}
    node = decode(Node, {"metadata": {"name": "n", "uid": "u"}, "status": status})
    [write] = Heartbeats([{"metadata": {"name": "n"}}], 0).tend("n", node, 0.0, lambda at: None)
    assert (write.subresource, write.body) == ("status", {"status": {"allocatable": more}})
    status["allocatable"] = have | more
    assert Heartbeats([], 0).tend("n", decode(Node, {"metadata": {"name": "n"}, "status": status}), 0.0, lambda at: None) == []


def test_pods_of_a_lost_node_stay_as_they_are_until_it_is_back() -> None:
    lab = Laboratory(Driver())
    lab.claim("mine")
    lab.pod("p", "mine", annotations={"dray.dev/finishes-after": "20s"})
    lab.pod("q")
    lab.run(5)
    stop(lab.place)
    lab.run(6)
    lab.pod("late")
    lab.place.delete(PODS, "q")
    lab.run(60)
    assert [lab.phase(name) for name in ("p", "q", "late")] == ["Running", "Running", "Pending"]
    stop(lab.place, None)
    lab.run(80)
    assert [lab.phase(name) for name in ("p", "q", "late")] == ["Succeeded", "gone", "Running"]


def test_a_kubelet_that_comes_back_asks_the_drivers_again() -> None:
    lab = Laboratory(Driver())
    lab.claim("mine")
    lab.pod("p", "mine")
    lab.run(5)
    stop(lab.place)
    lab.run(10)
    stop(lab.place, None)
    lab.run(20)
    assert lab.driver is not None
    assert lab.driver.calls == [("prepare", DRIVER, ["mine"])] * 2


def test_a_drained_node_lets_each_pod_go_within_its_grace_period_and_unprepares_its_claims() -> None:
    lab = Laboratory(Driver())
    lab.claim("mine")
    lab.pod("quick", "mine")
    lab.pod("slow", annotations={"dray.dev/stops-after": "1h"}, terminationGracePeriodSeconds=20)
    lab.run(5)
    lab.place.patch(NODES, NODE, {"spec": {"unschedulable": True}})
    for name in ("quick", "slow"):
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "default"}}
        lab.place.shell.user(Write("create", PODS, "default", name, eviction, subresource="eviction"))
    lab.run(10)
    assert (lab.phase("quick"), lab.phase("slow")) == ("gone", "Running")
    lab.run(30)
    assert lab.phase("slow") == "gone"
    assert lab.driver is not None
    assert [call[0] for call in lab.driver.calls] == ["prepare", "unprepare"]


def test_a_pod_that_somebody_holds_back_says_how_it_ended() -> None:
    lab = Laboratory()
    lab.pod("p")
    lab.run(5)
    lab.place.patch(PODS, "p", {"metadata": {"finalizers": ["example.com/wait"]}})
    lab.place.delete(PODS, "p")
    lab.run(20)
    assert lab.phase("p") == "Failed"
    lab.place.patch(PODS, "p", {"metadata": {"finalizers": None}})
    lab.run(40)
    assert lab.phase("p") == "gone"


def test_nodes_that_were_late_together_renew_their_leases_at_their_own_moments_again() -> None:
    nodes = [decode(Node, {"metadata": {"name": f"n{i}", "uid": f"u{i}"}}) for i in range(20)]
    heartbeats = Heartbeats([], 10)
    moments: list[float] = []
    for node in nodes:
        heartbeats.tend(node.metadata.name, node, 0.0, moments.append)
    late: list[float] = []
    for node in nodes:
        [renewed] = heartbeats.tend(node.metadata.name, node, 25.0, late.append)
        assert renewed.verb == "patch"
    assert len({round(moment, 3) for moment in moments}) > 10
    assert [round(moment % 10, 6) for moment in late] == [round(moment % 10, 6) for moment in moments]
    assert all(25 < moment <= 35 for moment in late)
