"""The simulated kubelet's managers: the rows of the behaviour notes, what it gives out and takes back, what it publishes."""

from __future__ import annotations

import json
import random

import pytest

from dray.api.core import Pod
from dray.api.kinds import NODE_RESOURCE_TOPOLOGIES, NODES, PODS
from dray.api.meta import decode
from dray.api.topology import NodeResourceTopology
from dray.cluster.port import Decider
from dray.cluster.world import World
from dray.nodes.machine import MachineZone
from dray.nodes.publishing import TopologyPublisher
from dray.nodes.topology import Assignment, Config, Rejection, Topology
from dray.nodes.zoned import NUMA, ZonedNodes
from dray.numa.layout import layout_of, published_state
from tests.numa.building import GPU, pod
from tests.numa.machines import machine
from tests.numa.machines import pod as random_pod
from tests.numa.spec import admission_rows, needs_spec, question, rows
from tests.simulated import Place

MANAGERS = {"K52": {"cpu_manager": "none"}, "K53": {"cpu_manager": "none"}}
MANAGERS |= {name: {"memory_manager": "None"} for name in ("K09", "K54", "K55")}
# How the memory of the rows about groups came to be given out: pods before the one in question.
EARLIER = {
    "K45": [{"memory": "5"}],
    "K46": [{"memory": "5"}],
    **{name: [{"memory": "120"}] for name in ("K47", "K48", "K49", "K50")},
}
# Amounts in use that no earlier pod explains: the machine is made with what is left, and with the same totals.
GROUPED = frozenset(EARLIER)


def kubelet(name: str) -> Topology:
    asked = question(name)
    topology = decode(NodeResourceTopology, asked["topology"])
    policy, scope = topology.management
    distances = [[cost.value for cost in zone.costs] for zone in topology.numa_zones] if topology.numa_zones[0].costs else None
    closest = bool(asked.get("kubelet", {}).get("preferClosestNUMA"))
    config = Config(policy, scope, prefer_closest=closest, **MANAGERS.get(name, {}))  # type: ignore[arg-type]
    zones = []
    for zone in topology.numa_zones:
        amounts = {
            info.name: (int(info.available or 0), int(info.allocatable or 0), int(info.capacity or 0)) for info in zone.resources
        }
        zones.append(_zone(zone.number or 0, amounts, name in GROUPED))
    return Topology(zones, config, distances)


def _zone(number: int, amounts: dict[str, tuple[int, int, int]], whole: bool) -> MachineZone:
    """In use is the same as reserved, broken or set aside: not free, and still counted for the width."""
    cpus, memory, reserved, devices, broken = 0, {}, {}, {}, {}
    kept = 0
    for name, (free, allocatable, capacity) in amounts.items():
        if name == "cpu":
            cpus, kept = capacity, capacity - free
        elif name == "memory" or name.startswith("hugepages-"):
            memory[name], reserved[name] = allocatable, 0 if whole else allocatable - free
        else:
            devices[name], broken[name] = capacity, capacity - free
    return MachineZone(number, cpus, kept, memory, reserved, devices, broken)


# What is used of memory cannot be set aside without making the zone smaller, and the rows are about just that; and a machine
# without CPUs is not the same as one whose CPUs nobody reports.
NOT_MADE = {"K54", "K55", "K25"}


@needs_spec
@pytest.mark.parametrize("name", [name for name in admission_rows() if name not in NOT_MADE])
def test_rows_of_the_notes(name: str) -> None:
    node = kubelet(name)
    for number, amounts in enumerate(EARLIER.get(name, ())):
        earlier = pod(amounts, metadata={"uid": f"earlier-{number}"})
        config, node.config = node.config, Config("restricted", "pod")
        assert isinstance(node.admit(earlier), Assignment)
        node.config = config
    answer = node.admit(decode(Pod, {"metadata": {"name": "p", "uid": "p"}, **question(name)["pod"]}))
    expected = rows()[name][6]
    if expected.startswith("admit"):
        assert isinstance(answer, Assignment)
    else:
        assert isinstance(answer, Rejection)
        assert answer.reason == ("UnexpectedAdmissionError" if expected.startswith("UAE") else "TopologyAffinityError")


class TestGivingAndTaking:
    def test_a_refused_pod_has_nothing(self) -> None:
        node = Topology([MachineZone(n, 4) for n in (0, 1)], Config("single-numa-node"))
        before = node.topology("n")
        answer = node.admit(pod({"cpu": 3}, {"cpu": 3}, {"cpu": 3}))
        assert answer == Rejection("TopologyAffinityError", "Resources cannot be allocated with Topology locality")
        assert node.topology("n") == before

    def test_asked_again_it_changes_nothing(self) -> None:
        node = Topology([MachineZone(0, 4)], Config("restricted"))
        node.admit(pod({"cpu": 3}))
        before = node.topology("n")
        assert isinstance(node.admit(pod({"cpu": 3})), Assignment)
        assert node.topology("n") == before

    def test_k76_and_s25_devices_of_an_init_container_stay_with_the_pod(self) -> None:
        node = Topology([MachineZone(n, devices={GPU: 4}) for n in (0, 1)], Config("single-numa-node"))
        first = pod({"gpu": 1}, inits=({"gpu": 4},))
        node.admit(first)
        node.started(first)
        answer = node.admit(pod({"gpu": 3}, metadata={"uid": "q"}))
        assert isinstance(answer, Assignment)
        assert answer.affinity == {"app-0": (1,)}

    def test_cpus_of_an_init_container_stay_with_the_pod(self) -> None:
        node = Topology([MachineZone(0, 4)], Config("restricted"))
        given = pod({"cpu": 1}, inits=({"cpu": 4},))
        node.admit(given)
        node.started(given)
        assert isinstance(node.admit(pod({"cpu": 1}, metadata={"uid": "q"})), Rejection)
        node.remove(given)
        assert isinstance(node.admit(pod({"cpu": 1}, metadata={"uid": "q"})), Assignment)

    def test_memory_of_an_init_container_comes_back_when_the_pod_runs(self) -> None:
        node = Topology([MachineZone(0, 4, 0, {"memory": 8})], Config("restricted"))
        given = pod({"cpu": 1, "memory": 2}, inits=({"cpu": 1, "memory": 8},))
        node.admit(given)
        assert isinstance(node.admit(pod({"memory": 6}, metadata={"uid": "q"})), Rejection)
        node.started(given)
        node.started(given)
        assert isinstance(node.admit(pod({"memory": 7}, metadata={"uid": "q"})), Rejection)
        assert isinstance(node.admit(pod({"memory": 6}, metadata={"uid": "q"})), Assignment)

    def test_s28_memory_of_a_best_effort_pod_binds_the_zones_that_it_spills_over(self) -> None:
        zones = [
            MachineZone(0, 4, 4, {"memory": 16}, {"memory": 16}, {GPU: 1}),
            MachineZone(1, 4, 0, {"memory": 16}, {}, {GPU: 0}),
        ]
        node = Topology(zones, Config("best-effort", "pod"))
        assert isinstance(node.admit(pod({"cpu": 4, "memory": 16, "gpu": 1})), Assignment)
        (listed,) = node.podresources().pod_resources
        (block,) = listed.containers[0].memory
        assert len(block.topology.nodes if block.topology else ()) == 2

    def test_a_machine_with_more_zones_than_it_may_have_does_not_start(self) -> None:
        with pytest.raises(ValueError, match="more than 8 NUMA Nodes"):
            Topology([MachineZone(n, 2) for n in range(9)], Config("restricted"))
        Topology([MachineZone(n, 2) for n in range(9)], Config("none"))

    def test_when_all_are_gone_everything_is_back(self) -> None:
        rng = random.Random(3)
        for _ in range(40):
            node = machine(rng, policies=("none", "best-effort", "restricted", "single-numa-node"), split="packed")
            before = node.topology("n")
            pods = [random_pod(rng, f"p{number}") for number in range(8)]
            for each in pods:
                node.admit(each)
                if rng.random() < 0.5:
                    node.started(each)
            rng.shuffle(pods)
            for each in pods:
                node.remove(each)
            assert node.topology("n") == before
            assert node.podresources().pod_resources == ()

    def test_no_cpu_and_no_device_has_two_owners(self) -> None:
        rng = random.Random(4)
        for _ in range(40):
            node = machine(rng, policies=("best-effort", "restricted"), split="packed")
            for number in range(10):
                given = random_pod(rng, f"p{number}")
                node.admit(given)
                node.started(given)
            containers = [c for listed in node.podresources().pod_resources for c in listed.containers]
            cpus = [cpu for container in containers for cpu in container.cpu_ids]
            devices = [(d.resource_name, name) for c in containers for d in c.devices for name in d.device_ids]
            assert len(cpus) == len(set(cpus))
            assert len(devices) == len(set(devices))


class TestPublishing:
    def begin(self, delay: float, jitter: float = 0.0) -> tuple[Place, Topology]:
        place = Place()
        made: list[ZonedNodes] = []

        def deciders(world: World) -> list[Decider]:
            made.append(ZonedNodes(world))
            return [TopologyPublisher(world, made[-1], seed=1)]

        place.start("publisher", TopologyPublisher.kinds, deciders)
        described = {
            "topologyManager": {"policy": "restricted", "scope": "pod"},
            "zones": [{"cpus": 4}, {"cpus": 4}],
            "publish": {"after": f"{delay}s", "jitter": f"{jitter}s"},
        }
        place.create(NODES, {"metadata": {"name": "n1", "annotations": {NUMA: json.dumps(described)}}})
        place.shell.run(1)
        return place, made[-1]["n1"]

    def free(self, place: Place) -> tuple[int, ...]:
        found = decode(NodeResourceTopology, place.get(NODE_RESOURCE_TOPOLOGIES, "n1") or {})
        layout = layout_of(found)
        assert layout is not None
        return published_state(layout, found).free[0]

    def bind(self, place: Place, node: Topology) -> None:
        node.admit(pod({"cpu": 3}))
        spec = {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]}
        place.create(PODS, {"metadata": {"name": "p"}, "spec": spec})

    def test_a_node_has_its_topology_at_once(self) -> None:
        place, _ = self.begin(delay=60)
        assert self.free(place) == (4000, 4000)
        found = place.get(NODE_RESOURCE_TOPOLOGIES, "n1") or {}
        assert decode(NodeResourceTopology, found).management == ("restricted", "pod")

    def test_what_is_taken_shows_after_the_delay_and_not_before(self) -> None:
        place, node = self.begin(delay=60)
        self.bind(place, node)
        place.shell.run(50)
        assert self.free(place) == (4000, 4000)
        place.shell.run(65)
        assert self.free(place) == (1000, 4000)

    def test_jitter_is_from_a_seed(self) -> None:
        def shown(until: float) -> tuple[int, ...]:
            place, node = self.begin(delay=10, jitter=40)
            self.bind(place, node)
            place.shell.run(until)
            return self.free(place)

        moments = [second for second in range(10, 60) if shown(second) == (1000, 4000)]
        assert moments
        assert moments == list(range(moments[0], 60))
        assert moments[0] > 11

    def test_it_comes_back_when_somebody_deletes_it(self) -> None:
        place, _ = self.begin(delay=0)
        place.delete(NODE_RESOURCE_TOPOLOGIES, "n1")
        place.shell.run(10)
        assert self.free(place) == (4000, 4000)
