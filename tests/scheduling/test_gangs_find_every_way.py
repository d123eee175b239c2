"""A gang starts if there is any way to place all of its members: every way is tried here, by counting.

The clusters are small and tight: devices of nodes and of a fabric that all nodes reach, with attributes and shared counters;
members with claims of their own or shared ones, with alternatives and constraints, and with processors beside them.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from dray.api import kinds
from tests.scheduling.gangs import running
from tests.scheduling.scheduling_cluster import Sim, pod

DRIVER = "gpu.example.com"
FABRIC = "fabric"
FULL = 4


class Device(NamedTuple):
    pool: str
    name: str
    model: str
    root: str
    card: str
    draws: int

    @property
    def plain(self) -> dict[str, Any]:
        attributes = {"model": {"string": self.model}, "root": {"string": self.root}}
        drawn = [{"counterSet": self.card, "counters": {"units": {"value": str(self.draws)}}}] if self.card else []
        return {"name": self.name, "attributes": attributes, **({"consumesCounters": drawn} if drawn else {})}


class Way(NamedTuple):
    """One alternative of a request."""

    count: int
    model: str

    @property
    def plain(self) -> dict[str, Any]:
        expression = f"device.attributes['{DRIVER}'].model == '{self.model}'"
        selectors = [{"cel": {"expression": expression}}] if self.model else []
        return {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": self.count, "selectors": selectors}


class Claim(NamedTuple):
    requests: list[list[Way]]
    same_root: bool

    @property
    def plain(self) -> dict[str, Any]:
        requests = [_request(f"r{index}", ways) for index, ways in enumerate(self.requests)]
        constraints = [{"matchAttribute": f"{DRIVER}/root"}] if self.same_root else []
        return {"devices": {"requests": requests, "constraints": constraints}}


def _request(name: str, ways: list[Way]) -> dict[str, Any]:
    if len(ways) == 1:
        return {"name": name, "exactly": ways[0].plain}
    return {"name": name, "firstAvailable": [{"name": f"s{index}", **way.plain} for index, way in enumerate(ways)]}


class Member(NamedTuple):
    name: str
    cpu: int
    claim: int


class Small:
    """A random cluster with a gang that waits."""

    def __init__(self, seed: int) -> None:
        self._pick = pick = random.Random(seed)
        self.cpu = {f"n{index}": pick.choice([2, 3, 4]) for index in range(pick.randint(1, 3))}
        pools = [*self.cpu, *([FABRIC] if pick.random() < 0.4 else [])]
        self.devices = [device for pool in pools for device in self._pool(pool)]
        self.claims: list[Claim] = []
        self.members = [self._member(index) for index in range(pick.randint(2, 4))]

    def _pool(self, pool: str) -> Iterator[Device]:
        pick = self._pick
        cards = [f"card-{index}" for index in range(pick.randint(0, 2))]
        for index in range(pick.randint(1, 4)):
            card = pick.choice(cards) if cards and pick.random() < 0.6 else ""
            yield Device(pool, f"d{index}", pick.choice("ab"), pick.choice(["r0", "r1"]), card, pick.choice([1, 2, FULL]))

    def _member(self, index: int) -> Member:
        pick = self._pick
        if not self.claims or pick.random() < 0.85:
            requests = [
                [Way(pick.choice([1, 1, 2]), pick.choice(["", "", "a", "b"])) for _ in range(pick.choice([1, 1, 2]))]
                for _ in range(pick.choice([1, 1, 2]))
            ]
            self.claims.append(Claim(requests, pick.random() < 0.3))
            return Member(f"w{index}", pick.choice([1, 2]), len(self.claims) - 1)
        return Member(f"w{index}", 1, pick.randrange(len(self.claims)))

    # ----------------------------------------------------------------------------------------------------------- made real

    def sim(self) -> Sim:
        """Nobody is there yet."""
        sim = Sim()
        sim.add_class()
        for name, cpu in self.cpu.items():
            sim.add_node(name, cpu=str(cpu))
        for pool in dict.fromkeys(device.pool for device in self.devices):
            self._publish(sim, pool)
        return sim

    def add_others(self, sim: Sim) -> None:
        """Pods of low priority that have some of the devices."""
        for node, number in itertools.product(self.cpu, range(3)):
            name = f"{node}-low-{number}"
            sim.add_claim(name, spec=Claim([[Way(1, "")]], same_root=False).plain)
            there = {"nodeSelector": {"kubernetes.io/hostname": node}, "priority": -1}
            if self._pick.random() < 0.7:
                sim.add_pod(name, requests={"cpu": "1"}, claims=[name], **there)

    def add_gang(self, sim: Sim) -> None:
        policy = {"schedulingPolicy": {"gang": {"minCount": len(self.members)}}}
        sim.api.put(kinds.CORE_POD_GROUPS, {"metadata": {"name": "gang", "namespace": "default"}, "spec": policy})
        for index, claim in enumerate(self.claims):
            sim.add_claim(f"c{index}", spec=claim.plain)
        for member in self.members:
            made = pod(member.name, requests={"cpu": str(member.cpu)}, claims=[f"c{member.claim}"])
            made["spec"]["schedulingGroup"] = {"podGroupName": "gang"}
            sim.api.put(kinds.PODS, made)

    def _publish(self, sim: Sim, pool: str) -> None:
        devices = [device for device in self.devices if device.pool == pool]
        cards = sorted({device.card for device in devices} - {""})
        counters = [{"name": card, "counters": {"units": {"value": str(FULL)}}} for card in cards]
        parts = [("devices", [device.plain for device in devices]), *([("sharedCounters", counters)] if counters else [])]
        where = {"allNodes": True} if pool == FABRIC else {"nodeName": pool}
        for name, content in parts:
            told = {"name": pool, "generation": 1, "resourceSliceCount": len(parts)}
            spec = {"driver": DRIVER, "pool": told, **where, name: content}
            sim.api.put(kinds.RESOURCE_SLICES, {"metadata": {"name": f"{pool}-{name.lower()}"}, "spec": spec})

    # ------------------------------------------------------------------------------------------------------------- counted

    def fits(self) -> bool:
        """Whether there is any way at all."""
        for nodes in itertools.product(self.cpu, repeat=len(self.members)):
            asked = dict.fromkeys(self.cpu, 0)
            for member, node in zip(self.members, nodes):
                asked[node] += member.cpu
            if all(asked[node] <= self.cpu[node] for node in self.cpu) and self._given(self._reach(nodes), []):
                return True
        return False

    def _reach(self, nodes: tuple[str, ...]) -> list[set[str]]:
        """By claim, the pools that it may have devices of: those that all of its users reach."""
        found = []
        for index in range(len(self.claims)):
            used_on = {node for member, node in zip(self.members, nodes) if member.claim == index}
            found.append({FABRIC, *used_on} if len(used_on) == 1 else {FABRIC})
        return found

    def _given(self, reach: list[set[str]], taken: list[Device]) -> bool:
        """Whether the claims from here on can all have their devices beside those that are taken."""
        if not reach:
            return self._within_counters(taken)
        claim = self.claims[len(self.claims) - len(reach)]
        free = [device for device in self.devices if device.pool in reach[0] and device not in taken]
        return any(
            self._within_counters([*taken, *chosen]) and self._given(reach[1:], [*taken, *chosen])
            for chosen in self._choices(claim.requests, free)
            if not claim.same_root or len({device.root for device in chosen}) == 1
        )

    def _choices(self, requests: list[list[Way]], free: list[Device]) -> Iterator[list[Device]]:
        if not requests:
            yield []
            return
        for way in requests[0]:
            matching = [device for device in free if way.model in ("", device.model)]
            for chosen in itertools.combinations(matching, way.count):
                left = [device for device in free if device not in chosen]
                yield from ([*chosen, *more] for more in self._choices(requests[1:], left))

    def _within_counters(self, taken: list[Device]) -> bool:
        drawn: dict[tuple[str, str], int] = {}
        for device in taken:
            if device.card:
                drawn[device.pool, device.card] = drawn.get((device.pool, device.card), 0) + device.draws
        return all(units <= FULL for units in drawn.values())


def starts_if_it_can(seed: int, others: bool = False) -> bool:
    small = Small(seed)
    sim = small.sim()
    if others:
        small.add_others(sim)
        sim.settle(5)
    small.add_gang(sim)
    sim.settle(5)
    for _ in range(6 if others else 0):
        give_back_claims_of_who_left(sim)
        sim.settle(4)
    everybody = {member.name for member in small.members}
    started = running(sim) & everybody
    assert started == (everybody if small.fits() else set()), seed
    return bool(started)


def give_back_claims_of_who_left(sim: Sim) -> None:
    """As the controller does."""
    pods, claims = sim.api.objects[kinds.PODS], sim.api.objects[kinds.RESOURCE_CLAIMS]
    for claim in list(claims.values()):
        users = claim["status"].get("reservedFor", [])
        if users and all(f"default/{user['name']}" not in pods for user in users):
            sim.api.put(kinds.RESOURCE_CLAIMS, {**claim, "status": {}})


def test_in_some_clusters() -> None:
    started = sum(map(starts_if_it_can, range(60)))
    assert 10 < started < 50


def test_in_some_clusters_where_others_have_to_leave_first() -> None:
    started = sum(starts_if_it_can(seed, others=True) for seed in range(60))
    assert 10 < started < 50


@pytest.mark.slow
@pytest.mark.parametrize("others", [False, True])
@pytest.mark.parametrize("first", range(1000, 1800, 400))
def test_in_many_clusters(first: int, others: bool) -> None:
    for seed in range(first, first + 400):
        starts_if_it_can(seed, others)
