"""Gangs that have to be in one domain of a topology, in random clusters: never in two, and wherever that is possible."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from random import Random
from typing import Any, Final

import msgspec
import pytest

from dray.simulate.settle import Settling, WorldLine
from tests.queues.random_clusters import UNLIMITED, cluster
from tests.queues.test_random_clusters import Watched, faults_of

Json = dict[str, Any]
LEVELS: Final = ["row", "rack"]
TOPOLOGIES: Final = [{"name": "fabric", "levels": LEVELS}]


def domain(node: Json, level: str) -> tuple[str, ...]:
    return tuple(node["labels"][each] for each in LEVELS[: LEVELS.index(level) + 1])


def in_racks(chance: Random, nodes: list[Json]) -> None:
    rack = 0
    for node in nodes:
        rack += chance.random() < 0.5
        # Racks of different rows have the same names.
        node["labels"] = {"row": str(rack // 3), "rack": str(rack % 3)}


def constraint(chance: Random) -> Json:
    required, preferred = chance.choice((("rack", ""), ("rack", ""), ("row", ""), ("row", "rack"), ("", "rack"), ("", "row")))
    return {"topology": "fabric", "required_level": required, "preferred_level": preferred}


# ------------------------------------------------------------------------------------------------ in clusters that are full


def near_cluster(seed: int) -> Json:
    """As ``cluster``, in racks; of the groups that run, those have to be near to each other that are."""
    chance, world = Random(f"near-{seed}"), cluster(seed)
    in_racks(chance, world["nodes"])
    nodes = {node["name"]: node for node in world["nodes"]}
    for group in world["podgroups"]:
        asked = constraint(chance)
        where = {domain(nodes[pod["node"]], asked["required_level"] or "row") for pod in group["pods"] if pod.get("node")}
        if chance.random() < 0.6 and (len(where) < 2 or not asked["required_level"]):
            group["topology_constraint"] = asked
    return {**world, "topologies": TOPOLOGIES}


class Near(Watched):
    """Also: whether gangs are where they have to be, after every round."""

    def __init__(self, world: Json) -> None:
        super().__init__(world)
        self.nodes = {node["name"]: node for node in world["nodes"]}

    def required(self, group: Json) -> str:
        return str(group.get("topology_constraint", {}).get("required_level", ""))

    def look_at_plans(self, before: dict[str, str]) -> None:
        super().look_at_plans(before)
        there = self.placed() | self.promised()
        for group in self.world["podgroups"]:
            level = self.required(group)
            nodes = [self.nodes[there[pod["name"]]] for pod in group["pods"] if pod["name"] in there]
            if level and len({domain(node, level) for node in nodes}) > 1:
                self.wrong.append(f"{group['name']} is on {[node['name'] for node in nodes]}")

    def fits(self, members: Iterable[str], there: dict[str, str]) -> bool:
        members = list(members)
        group = self.pods[members[0]][0]
        level = self.required(group)
        if not level:
            return super().fits(members, there)
        own = {domain(self.nodes[there[pod["name"]]], level) for pod in group["pods"] if there.get(pod["name"])}
        domains = own or {domain(node, level) for node in self.nodes.values()}
        return any(self._fits_in(each, level, members, there) for each in domains)

    def _fits_in(self, where: tuple[str, ...], level: str, members: list[str], there: dict[str, str]) -> bool:
        requests = self.pods[members[0]][1]["requests"]
        free = {name: left for name, left in self.free(there).items() if domain(self.nodes[name], level) == where}
        slots = (min((left[key] // value for key, value in requests.items() if value)) for left in free.values())
        return sum(slots) >= len(members)


def faults(seed: int) -> list[str]:
    return faults_of(Near(near_cluster(seed)))


# The first, and those in which something was wrong once.
SEEDS: Final = (*range(24), 249, 264, 267)


def test_gangs_are_never_in_two_domains_and_nothing_waits_that_fits_into_one() -> None:
    assert {seed: wrong for seed in SEEDS if (wrong := faults(seed))} == {}


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 500, 100))
def test_the_same_holds_in_many_more_clusters(first: int) -> None:
    assert {seed: wrong for seed in range(first, first + 100) if (wrong := faults(seed))} == {}


# --------------------------------------------------------------------------------------- parts that have domains of their own


def parted(seed: int) -> Json:
    """Racks full of single pods of one queue, and gangs of parts of another, which deserves most of it."""
    chance = Random(f"parted-{seed}")
    nodes = [{"name": f"n{i}", "allocatable": {"gpu": chance.choice((2, 4)), "pods": 20}} for i in range(chance.randint(4, 8))]
    in_racks(chance, nodes)
    groups = [
        {"name": f"run-{node['name']}-{i}", "queue": "rich", "pods": [_running(f"run-{node['name']}-{i}", node["name"])]}
        for node in nodes
        for i in range(node["allocatable"]["gpu"] - chance.choice((0, 0, 0, 1)))
    ]
    for name in "xy"[: chance.randint(1, 2)]:
        parts = [{"name": each, "min_member": chance.randint(1, 3)} for each in "ab"[: chance.randint(1, 2)]]
        for part in parts:
            part["topology_constraint"] = {"topology": "fabric", "required_level": "rack"}
        size = chance.choice((1, 1, 2))
        pods = [
            {"name": f"{name}-{part['name']}{i}", "subgroup": part["name"], "requests": {"gpu": size}}
            for part in parts
            for i in range(part["min_member"])
        ]
        row = {"topology": "fabric", "required_level": chance.choice(("", "row"))}
        groups.append({"name": name, "queue": "poor", "subgroups": parts, "pods": pods, "topology_constraint": row})
    total = sum(node["allocatable"]["gpu"] for node in nodes)
    queues = [{"name": "rich", "gpu": {**UNLIMITED, "quota": 0}}, {"name": "poor", "gpu": {**UNLIMITED, "quota": total}}]
    return {"nodes": nodes, "queues": queues, "podgroups": groups, "topologies": TOPOLOGIES}


def _running(name: str, node: str) -> Json:
    return {"name": f"{name}-0", "requests": {"gpu": 1}, "state": "Running", "node": node}


def test_room_is_made_for_each_part_in_a_domain_of_its_own_and_for_nobody_in_vain() -> None:
    started = 0
    for seed in range(60):
        world = parted(seed)
        settling = Settling(msgspec.convert(world, WorldLine))
        settled = settling.settle()
        assert settled.settled, seed
        nodes = {node["name"]: node for node in world["nodes"]}
        runs = 0
        for group in (group for group in world["podgroups"] if group["queue"] == "poor"):
            placed = {pod["name"]: settled.pods[pod["name"]].get("node", "") for pod in group["pods"]}
            assert all(placed.values()) or not any(placed.values()), seed
            if all(placed.values()):
                runs += len(placed)
                assert kept_to(group, {name: nodes[node] for name, node in placed.items()}), seed
            elif sum(each["queue"] == "poor" for each in world["podgroups"]) == 1:
                assert next(ways(world | {"podgroups": [group]}), None) is None, seed
        started += runs > 0
        assert settled.evictions == 0 or runs, seed
    assert started > 30


# ---------------------------------------------------------------------------------------------------- by trying everything


def gang(seed: int) -> Json:
    """Few nodes in racks, and one gang, of up to three parts, which asks for about as much as there is."""
    chance = Random(f"gang-{seed}")
    nodes = [{"name": f"n{i}", "allocatable": {"gpu": chance.randint(1, 4), "pods": 9}} for i in range(chance.randint(2, 5))]
    in_racks(chance, nodes)
    parts, pods = list[Json](), list[Json]()
    for name in "abc"[: chance.randint(1, 3)]:
        count, size = chance.randint(1, 2), chance.choice((1, 1, 2, 3))
        parts.append({"name": name, "min_member": count})
        if chance.random() < 0.7:
            parts[-1]["topology_constraint"] = constraint(chance)
        pods += [{"name": f"{name}{i}", "subgroup": name, "requests": {"gpu": size}} for i in range(count)]
    group: Json = {"name": "gang", "queue": "team", "subgroups": parts, "pods": pods}
    if chance.random() < 0.6:
        group["topology_constraint"] = constraint(chance)
    return {"nodes": nodes, "queues": [{"name": "team", "gpu": UNLIMITED}], "podgroups": [group], "topologies": TOPOLOGIES}


def ways(world: Json) -> Iterator[dict[str, Json]]:
    """Every way to place all pods so that what is required is kept to."""
    [group] = world["podgroups"]
    for nodes in product(world["nodes"], repeat=len(group["pods"])):
        found = {pod["name"]: node for pod, node in zip(group["pods"], nodes)}
        used = [sum(pod["requests"]["gpu"] for pod in group["pods"] if found[pod["name"]] is node) for node in world["nodes"]]
        if all(gpus <= node["allocatable"]["gpu"] for gpus, node in zip(used, world["nodes"])) and kept_to(group, found):
            yield found


def kept_to(group: Json, found: dict[str, Json]) -> bool:
    for part in (group, *group["subgroups"]):
        level = part.get("topology_constraint", {}).get("required_level")
        own = [found[pod["name"]] for pod in group["pods"] if part is group or pod["subgroup"] == part["name"]]
        if level and len({domain(node, level) for node in own}) > 1:
            return False
    return True


def test_a_gang_starts_near_each_other_whenever_that_is_possible() -> None:
    started = 0
    for seed in range(120):
        world = gang(seed)
        settling = Settling(msgspec.convert(world, WorldLine), ("allocate",))
        settling.round()
        nodes = {node["name"]: node for node in world["nodes"]}
        [group] = world["podgroups"]
        placed = {pod["name"]: settling.pod(pod["name"])["spec"].get("nodeName", "") for pod in group["pods"]}
        if not all(placed.values()):
            assert not any(placed.values()), seed
            assert next(ways(world), None) is None, seed
            continue
        started += 1
        assert kept_to(group, {name: nodes[node] for name, node in placed.items()}), seed
    assert 40 < started < 110


def test_what_is_preferred_is_kept_to_whenever_that_is_possible() -> None:
    kept = 0
    for seed in range(120):
        world = gang(seed)
        [group] = world["podgroups"]
        group |= {"min_member": len(group["pods"]), "topology_constraint": {"topology": "fabric", "preferred_level": "rack"}}
        del group["subgroups"]
        for pod in group["pods"]:
            del pod["subgroup"]
        settling = Settling(msgspec.convert(world, WorldLine), ("allocate",))
        settling.round()
        nodes = {node["name"]: node for node in world["nodes"]}
        placed = [nodes.get(settling.pod(pod["name"])["spec"].get("nodeName", "")) for pod in group["pods"]]
        required = {**group, "subgroups": [], "topology_constraint": {"required_level": "rack"}}
        if next(ways({**world, "podgroups": [required]}), None) is not None:
            kept += 1
            assert len({domain(node, "rack") for node in placed if node is not None}) == 1, seed
            assert None not in placed, seed
    assert kept > 20
