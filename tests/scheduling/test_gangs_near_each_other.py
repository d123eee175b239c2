"""Gangs whose pods have to be near to each other: in one domain of a topology, as KAI-Scheduler's and Kubernetes' groups say."""

from __future__ import annotations

from typing import Any

from dray.api import kinds
from dray.cluster.port import ClusterError, Write
from dray.explain.why import why
from tests.scheduling.gangs import GPU, add_group, add_member, add_queue, add_single, running
from tests.scheduling.scheduling_cluster import Sim, node, pod

RACK = {"topology": "fabric", "requiredTopologyLevel": "rack"}
PREFERS_RACK = {"topology": "fabric", "preferredTopologyLevel": "rack"}


def fabric(**racks: tuple[int, ...]) -> Sim:
    """A row of racks, each with nodes of so many GPUs: ``a0``, ``a1`` and so on."""
    sim = Sim()
    levels = [{"nodeLabel": "row"}, {"nodeLabel": "rack"}]
    sim.api.put(kinds.TOPOLOGIES, {"metadata": {"name": "fabric"}, "spec": {"levels": levels}})
    for rack, gpus in racks.items():
        for index, count in enumerate(gpus):
            labels = {"row": "r", "rack": rack}
            sim.api.put(kinds.NODES, node(f"{rack}{index}", cpu="64", memory="256Gi", resources={GPU: str(count)}, labels=labels))
    return sim


def add_gang(sim: Sim, name: str, queue: str, members: int, gpus: int = 1, **spec: Any) -> None:
    add_group(sim, name, queue, members, **spec)
    for index in range(members):
        add_member(sim, f"{name}-{index}", name, gpus)


def listened(sim: Sim) -> dict[str, str]:
    """By pod that has to go what it is told, as far as it was told."""
    found: dict[str, str] = {}

    def note(write: Write) -> ClusterError | None:
        status = (write.body or {}).get("status") or {} if write.kind is kinds.PODS and write.verb == "patch" else {}
        found.update((write.key, each["message"]) for each in status.get("conditions", ()) if each["type"] == "DisruptionTarget")
        return None

    sim.fault = note
    return found


def racks(sim: Sim, prefix: str) -> list[str]:
    pods = sim.api.objects[kinds.PODS].values()
    named = [each["spec"]["nodeName"] for each in pods if each["metadata"]["name"].startswith(prefix)]
    return sorted({name[0] for name in named})


def test_it_starts_in_the_fullest_domain_that_has_room_for_all() -> None:
    sim = fabric(a=(4, 4), b=(2, 4), c=(1, 1))
    add_queue(sim, "team", 100)
    add_gang(sim, "train", "team", 3, topologyConstraint=RACK)
    sim.settle(5)
    assert racks(sim, "train") == ["b"]


def test_it_waits_rather_than_start_in_two_and_says_which_came_closest() -> None:
    sim = fabric(a=(1, 1), b=(2, 1), c=(1,))
    add_queue(sim, "team", 100)
    add_gang(sim, "train", "team", 4, topologyConstraint=RACK)
    sim.settle(5)
    assert running(sim) == set()
    told = sim.condition("train-0")["message"]
    assert "into no domain of level rack: 3 of 4 pods fit into r/b, which comes closest" in told
    found = why(sim.world, sim.world.get(kinds.PODS, "default/train-0"), now=sim.now)
    assert "TopologyConstraint" in {reason.code for reason in found.reasons}
    sim.api.put(kinds.NODES, node("c1", cpu="64", memory="256Gi", resources={GPU: "3"}, labels={"row": "r", "rack": "c"}))
    sim.settle(5)
    assert racks(sim, "train") == ["c"]


def test_equal_names_in_different_rows_are_different_racks() -> None:
    sim = fabric(a=(1,))
    labels = {"row": "s", "rack": "a"}
    sim.api.put(kinds.NODES, node("b0", cpu="64", memory="256Gi", resources={GPU: "1"}, labels=labels))
    add_queue(sim, "team", 100)
    add_gang(sim, "train", "team", 2, topologyConstraint=RACK)
    sim.settle(5)
    assert running(sim) == set()


def test_what_is_preferred_is_had_where_there_is_room_and_else_as_few_domains_as_possible() -> None:
    sim = fabric(a=(2,), b=(1, 2), c=(4,), d=(1,))
    add_queue(sim, "team", 100)
    add_gang(sim, "small", "team", 3, topologyConstraint=PREFERS_RACK)
    sim.settle(5)
    assert racks(sim, "small") == ["b"]
    add_gang(sim, "large", "team", 6, topologyConstraint=PREFERS_RACK)
    sim.settle(5)
    assert racks(sim, "large") == ["a", "c"]


def test_pods_that_come_later_join_those_that_run() -> None:
    sim = fabric(a=(3,), b=(8,))
    add_queue(sim, "team", 100)
    add_gang(sim, "train", "team", 2, topologyConstraint=RACK)
    sim.settle(5)
    assert racks(sim, "train") == ["a"]
    for name in ("train-2", "train-3"):
        add_member(sim, name, "train")
    sim.settle(5)
    assert running(sim) == {"train-0", "train-1", "train-2"}
    assert "0 of 1 pods fit into r/a" in sim.condition("train-3")["message"]


def test_each_part_has_its_domain_and_all_are_in_the_one_around() -> None:
    sim = fabric(a=(2,), b=(1,))
    for name in ("c", "d"):
        labels = {"row": "s", "rack": name}
        sim.api.put(kinds.NODES, node(f"{name}0", cpu="64", memory="256Gi", resources={GPU: "2"}, labels=labels))
    add_queue(sim, "team", 100)
    parts = [{"name": name, "minMember": 2, "topologyConstraint": RACK} for name in ("left", "right")]
    add_group(sim, "train", "team", 1, subGroups=parts, topologyConstraint={"topology": "fabric", "requiredTopologyLevel": "row"})
    for part in ("left", "right"):
        for index in range(2):
            made = pod(f"{part}-{index}", requests={GPU: "1"}, labels={"kai.scheduler/subgroup-name": part})
            made["metadata"]["annotations"] = {"pod-group-name": "train"}
            sim.api.put(kinds.PODS, made)
    sim.settle(5)
    assert sorted([*racks(sim, "left"), *racks(sim, "right")]) == ["c", "d"]


def test_pods_of_an_owner_that_start_together_say_it_by_annotation() -> None:
    sim = fabric(a=(1, 1), b=(2, 1))
    for index in range(3):
        made = pod(f"train-{index}", requests={GPU: "1"})
        made["metadata"]["ownerReferences"] = [
            {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u", "controller": True}
        ]
        made["metadata"]["annotations"] = {
            "dray.dev/gang": "3",
            "kai.scheduler/topology": "fabric",
            "kai.scheduler/topology-required-placement": "rack",
        }
        sim.api.put(kinds.PODS, made)
    add_queue(sim, "team", 100)
    sim.settle(5)
    assert racks(sim, "train") == ["b"]


def test_domains_whose_nodes_take_nobody_do_not_keep_it_from_one_that_does() -> None:
    sim = fabric(z=(2,))
    taint = [{"key": "broken", "effect": "NoSchedule"}]
    for index in range(80):
        labels = {"row": "r", "rack": f"{index:02}"}
        made = node(f"n{index}", cpu="64", memory="256Gi", resources={GPU: "2"}, labels=labels, taints=taint)
        sim.api.put(kinds.NODES, made)
    add_queue(sim, "team", 100)
    add_gang(sim, "train", "team", 2, topologyConstraint=RACK)
    sim.settle(5)
    assert racks(sim, "train") == ["z"]


class TestDevices:
    """The same for devices of claims."""

    def racks_of_devices(self, **racks: int) -> Sim:
        sim = fabric(**dict.fromkeys(racks, (0, 0)))
        sim.add_class()
        for rack, count in racks.items():
            for index in range(2):
                sim.add_slice(f"{rack}{index}", count)
        add_queue(sim, "team", 100)
        return sim

    def add(self, sim: Sim, name: str, members: int) -> None:
        add_group(sim, name, "team", members, topologyConstraint=RACK)
        for index in range(members):
            sim.add_claim(f"{name}-{index}")
            add_member(sim, f"{name}-{index}", name, 0, claims=[f"{name}-{index}"])

    def test_a_gang_joins_others_in_a_domain_that_has_devices_for_all(self) -> None:
        sim = self.racks_of_devices(a=2, b=2, c=1)
        sim.add_claim("other")
        sim.api.put(
            kinds.PODS, pod("other", claims=["other"], labels={"kai.scheduler/queue": "team"}, nodeSelector={"rack": "b"})
        )
        sim.settle(5)
        self.add(sim, "train", 3)
        sim.settle(5)
        assert racks(sim, "train") == ["b"]

    def test_it_waits_where_no_domain_has_devices_for_all(self) -> None:
        sim = self.racks_of_devices(a=1, b=2)
        self.add(sim, "train", 5)
        sim.settle(5)
        assert running(sim) == set()
        assert "4 of 5 pods fit into r/b" in sim.condition("train-0")["message"]


def test_of_gangs_that_are_alike_each_is_told_of_itself() -> None:
    sim = fabric(a=(1,), b=(1,))
    add_queue(sim, "team", 100)
    for name in ("first", "second"):
        add_gang(sim, name, "team", 2, topologyConstraint=RACK)
    sim.settle(5)
    told = sim.condition("second-0")["message"]
    assert "podgroup default/second fits into no domain" in told
    assert "no place for default/second-1" in told


class TestMakingRoom:
    def test_a_share_is_taken_back_in_one_domain(self) -> None:
        sim = fabric(a=(1, 1), b=(1, 1))
        add_queue(sim, "rich")
        add_queue(sim, "poor", 2)
        for index in range(4):
            add_single(sim, f"s{index}", "rich")
        sim.settle(5)
        add_gang(sim, "train", "poor", 2, topologyConstraint=RACK)
        sim.settle(20)
        assert {"train-0", "train-1"} <= running(sim)
        assert len(racks(sim, "train")) == 1
        assert len(running(sim)) == 4

    def test_others_move_so_that_one_domain_is_free(self) -> None:
        sim = fabric(a=(2,), b=(2,), c=(2,))
        moves = listened(sim)
        add_queue(sim, "team", 6)
        for index, name in enumerate(("a0", "b0", "c0")):
            add_single(sim, f"s{index}", "team", node_name=name, phase="Running", again=True)
        sim.settle(5)
        add_gang(sim, "train", "team", 2, topologyConstraint=RACK)
        sim.settle(20)
        assert {"train-0", "train-1"} <= running(sim)
        assert len(racks(sim, "train")) == 1
        assert len(moves) == 1

    def test_who_moves_stays_in_the_domain_of_its_gang(self) -> None:
        """Not where there would be more room for it."""
        sim = fabric(a=(2, 1, 1), b=(1, 1, 1))
        moves = listened(sim)
        add_queue(sim, "team", 100)
        add_group(sim, "near", "team", 2, topologyConstraint=RACK)
        for name, where in (("near-0", "a0"), ("near-1", "a1")):
            add_member(sim, name, "near", node_name=where, phase="Running", again=True)
        sim.settle(5)
        add_single(sim, "large", "team", gpus=2)
        sim.settle(20)
        assert "large" in running(sim)
        assert moves == {"default/near-0": "default-scheduler: moving to node a2, to make room for default/large"}

    def test_nobody_is_evicted_where_no_domain_would_do(self) -> None:
        sim = fabric(a=(1,), b=(1,))
        add_queue(sim, "rich")
        add_queue(sim, "poor", 2)
        for index in range(2):
            add_single(sim, f"s{index}", "rich")
        sim.settle(5)
        add_gang(sim, "train", "poor", 2, topologyConstraint=RACK)
        sim.settle(20)
        assert running(sim) == {"s0", "s1"}


class TestWhatCannotBeMeant:
    def test_a_topology_that_is_not_there_is_waited_for(self) -> None:
        sim = fabric(a=(2,))
        sim.api.delete(kinds.TOPOLOGIES, "fabric")
        add_queue(sim, "team", 100)
        add_gang(sim, "train", "team", 2, topologyConstraint=RACK)
        sim.settle(5)
        assert "names topology fabric, which does not exist" in sim.condition("train-0")["message"]
        levels = [{"nodeLabel": "rack"}]
        sim.api.put(kinds.TOPOLOGIES, {"metadata": {"name": "fabric"}, "spec": {"levels": levels}})
        sim.settle(5)
        assert racks(sim, "train") == ["a"]

    def test_a_level_that_it_does_not_have_is_named(self) -> None:
        sim = fabric(a=(2,))
        add_queue(sim, "team", 100)
        add_gang(sim, "train", "team", 2, topologyConstraint={"topology": "fabric", "requiredTopologyLevel": "block"})
        sim.settle(5)
        assert "names topology fabric, which has no level block" in sim.condition("train-0")["message"]

    def test_where_no_node_has_the_label_that_is_said(self) -> None:
        sim = Sim()
        sim.add_node("n0", resources={GPU: "2"})
        sim.api.put(kinds.TOPOLOGIES, {"metadata": {"name": "fabric"}, "spec": {"levels": [{"nodeLabel": "rack"}]}})
        add_queue(sim, "team", 100)
        add_gang(sim, "train", "team", 2, topologyConstraint=RACK)
        sim.settle(5)
        assert "into no domain of level rack that any node is in" in sim.condition("train-0")["message"]
        told = why(sim.world, sim.world.get(kinds.PODS, "default/train-0"), now=sim.now).fixes
        assert any("a node that lacks the label of the level, or of one above it, is in no domain" in fix for fix in told)


class TestKubernetesOwnGroups:
    def add(self, sim: Sim, count: int, policy: dict[str, Any]) -> None:
        spec = {"schedulingPolicy": policy, "schedulingConstraints": {"topology": [{"key": "rack"}]}}
        sim.api.put(kinds.CORE_POD_GROUPS, {"metadata": {"name": "train", "namespace": "default"}, "spec": spec})
        for index in range(count):
            made = pod(f"train-{index}", requests={GPU: "1"})
            made["spec"]["schedulingGroup"] = {"podGroupName": "train"}
            sim.api.put(kinds.PODS, made)

    def test_are_in_one_domain_of_their_key(self) -> None:
        sim = fabric(a=(2, 1), b=(1, 1))
        self.add(sim, 3, {"gang": {"minCount": 3}})
        sim.settle(5)
        assert racks(sim, "train") == ["a"]

    def test_without_a_gang_each_pod_starts_beside_the_others(self) -> None:
        sim = fabric(a=(2,), b=(1, 1))
        self.add(sim, 3, {"basic": {}})
        sim.settle(5)
        assert len(running(sim)) == 2
        assert len({sim.pod(name)["spec"]["nodeName"][0] for name in running(sim)}) == 1
