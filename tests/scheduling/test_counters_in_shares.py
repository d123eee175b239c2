"""Shared counters and consumable capacity in what queues may have: what the devices of a claim take of them."""

from __future__ import annotations

from typing import Any

import pytest

from dray.api import kinds
from dray.explain.queues import survey
from tests.scheduling.gangs import add_group, add_member, add_queue, add_single, cluster, running
from tests.scheduling.scheduling_cluster import Sim

DRIVER = "gpu.example.com"
MEMORY = f"counter/{DRIVER}/memory"
BANDWIDTH = "capacity/nic.example.com/bandwidth"
# Partitions of one GPU with 80 Gi: the whole, two halves, seven slices.
PROFILES = {"whole": (1, 80), "half": (2, 40), "slice": (7, 10)}


def mig(*gpus: int) -> Sim:
    """A node for each number: so many GPUs that can be partitioned."""
    sim = cluster(*(0 for _ in gpus))
    sim.add_class()
    for index, count in enumerate(gpus):
        add_partitions(sim, f"n{index}", count)
    return sim


def add_partitions(sim: Sim, node: str, gpus: int, **where: Any) -> None:
    devices = []
    sets = []
    for gpu in range(gpus):
        sets.append({"name": f"gpu{gpu}", "counters": {"memory": {"value": "80Gi"}}})
        for profile, (count, memory) in PROFILES.items():
            for number in range(count):
                takes = [{"counterSet": f"gpu{gpu}", "counters": {"memory": {"value": f"{memory}Gi"}}}]
                attributes = {"profile": {"string": profile}}
                name = f"gpu{gpu}-{profile}-{number}"
                devices.append({"name": name, "attributes": attributes, "consumesCounters": takes})
    pool = {"name": node, "generation": 1, "resourceSliceCount": 2}
    spec = {"driver": DRIVER, "pool": pool, **(where or {"nodeName": node})}
    sim.api.put(kinds.RESOURCE_SLICES, {"metadata": {"name": f"{node}-sets"}, "spec": {**spec, "sharedCounters": sets}})
    sim.api.put(kinds.RESOURCE_SLICES, {"metadata": {"name": f"{node}-devices"}, "spec": {**spec, "devices": devices}})


def add_team(sim: Sim, name: str, quota: str = "0", limit: str | int = -1, resource: str = MEMORY) -> None:
    bound = f'"{limit}"' if isinstance(limit, str) else limit
    text = f'{{"{resource}": {{"quota": "{quota}", "limit": {bound}, "overQuotaWeight": 1}}}}'
    add_queue(sim, name, 0, **{"dray.dev/resources": text})


def request(profile: str = "", name: str = "req", **more: Any) -> dict[str, Any]:
    expression = f"device.attributes['{DRIVER}'].profile == '{profile}'"
    selectors = [{"cel": {"expression": expression}}] if profile else []
    return {"name": name, "deviceClassName": "gpu", "selectors": selectors, "allocationMode": "ExactCount", "count": 1, **more}


def add_claim(sim: Sim, name: str, *profiles: str, **more: Any) -> None:
    """Of this profile; of several, the first that can be had."""
    if len(profiles) == 1:
        exactly = {key: value for key, value in request(profiles[0], **more).items() if key != "name"}
        asked: dict[str, Any] = {"name": "req", "exactly": exactly}
    else:
        asked = {"name": "req", "firstAvailable": [request(each, each) for each in profiles]}
    sim.add_claim(name, spec={"devices": {"requests": [asked]}})


def add_user(sim: Sim, name: str, queue: str, *profiles: str, **extra: Any) -> None:
    add_claim(sim, name, *profiles)
    add_single(sim, name, queue, 0, claims=[name], **extra)


def held(sim: Sim, queue: str, resource: str = MEMORY) -> float:
    return sim.scheduler.workloads.use.allocated[queue].get(resource, 0.0)


def free(sim: Sim, name: str) -> None:
    """What the claims' controller does, which is not here."""
    claim = sim.claim(name)
    claim["status"] = {}
    sim.api.put(kinds.RESOURCE_CLAIMS, claim)


GI = float(2**30)


class TestCounters:
    def test_what_partitions_take_counts(self) -> None:
        sim = mig(2)
        add_team(sim, "a")
        add_user(sim, "small", "a", "slice")
        add_user(sim, "large", "a", "half")
        sim.settle(10)
        assert running(sim) == {"small", "large"}
        assert held(sim, "a") == 50 * GI
        status = sim.api.objects[kinds.QUEUES]["a"]["status"]
        assert status["allocated"] == {MEMORY: "50Gi"}
        assert status["fairShare"] == {MEMORY: "50Gi"}
        sim.remove(kinds.PODS, "default/large")
        sim.settle(5)
        assert held(sim, "a") == 10 * GI

    def test_what_partitions_take_counts_also_where_their_slices_come_after_the_claims_that_have_them(self) -> None:
        """As after a restart, or when a driver comes back: a device that nobody knows takes nothing as far as anybody knows."""
        sim = mig(1)
        add_team(sim, "a", limit="50Gi")
        add_user(sim, "first", "a", "half")
        sim.settle(5)
        slices = dict(sim.api.objects[kinds.RESOURCE_SLICES])
        for name in slices:
            sim.remove(kinds.RESOURCE_SLICES, name)
        sim.restart()
        sim.settle(5)
        assert held(sim, "a") == 0
        for each in slices.values():
            sim.api.put(kinds.RESOURCE_SLICES, each)
        add_user(sim, "second", "a", "half")
        sim.settle(5)
        assert held(sim, "a") == 40 * GI
        assert running(sim) == {"first"}

    def test_a_limit_is_kept(self) -> None:
        sim = mig(2)
        add_team(sim, "a", limit="50Gi")
        for index in range(3):
            add_user(sim, f"p{index}", "a", "half" if index < 2 else "slice")
            sim.settle(3)
        assert running(sim) == {"p0", "p2"}
        assert f"{MEMORY}: it holds 40Gi and may have 50Gi, 40Gi more are asked for" in sim.condition("p1")["message"]

    def test_the_tree_shows_them(self) -> None:
        sim = mig(2, 1)
        add_team(sim, "a", quota="80Gi", limit="160Gi")
        add_user(sim, "p", "a", "half")
        sim.settle(5)
        tree = survey(sim.world, sim.now)
        assert tree.total[MEMORY] == "240Gi"
        [row] = tree.queues
        shown = (row.quota[MEMORY], row.limit[MEMORY], row.fair_share[MEMORY], row.allocated[MEMORY])
        assert shown == ("80Gi", "160Gi", "40Gi", "40Gi")

    def test_a_queue_takes_back_its_share_of_them(self) -> None:
        sim = mig(1)
        add_team(sim, "a")
        add_team(sim, "b", quota="40Gi")
        for index in range(4):
            add_user(sim, f"a{index}", "a", "slice")
        add_user(sim, "a4", "a", "half")
        sim.settle(5)
        assert held(sim, "a") == 80 * GI
        add_user(sim, "b0", "b", "half")
        sim.settle(5)
        for name in {"a0", "a1", "a2", "a3", "a4"} - running(sim):
            free(sim, name)
        sim.settle(5)
        assert "b0" in running(sim)
        assert held(sim, "b") == 40 * GI
        assert held(sim, "a") == 40 * GI, "no more than what b deserves is taken"

    def test_within_a_share_nothing_is_taken(self) -> None:
        sim = mig(1)
        for name in ("a", "b"):
            add_team(sim, name, quota="40Gi")
        add_user(sim, "a0", "a", "half")
        add_user(sim, "b0", "b", "half")
        sim.settle(5)
        add_user(sim, "b1", "b", "slice")
        sim.settle(10)
        assert running(sim) == {"a0", "b0"}
        assert "would exceed its fair share of counter/gpu.example.com/memory" in sim.condition("b1")["message"]

    def test_a_gang_counts_as_a_whole(self) -> None:
        sim = mig(2)
        add_team(sim, "a", limit="100Gi")
        add_group(sim, "train", "a", 3)
        for index in range(3):
            add_claim(sim, f"w{index}", "half")
            add_member(sim, f"w{index}", "train", 0, claims=[f"w{index}"])
        sim.settle(5)
        assert running(sim) == set()
        assert "it holds 0 and may have 100Gi, 120Gi more are asked for" in sim.condition("w0")["message"]

    def test_a_counter_of_a_fabric_counts_once(self) -> None:
        sim = mig(1, 1)
        add_partitions(sim, "shared", 1, allNodes=True)
        add_team(sim, "a")
        sim.settle(1)
        assert survey(sim.world, sim.now).total[MEMORY] == "240Gi"

    def test_nodes_that_take_no_pods_have_none(self) -> None:
        sim = mig(1, 1)
        sim.api.put(kinds.NODES, {**sim.api.objects[kinds.NODES]["n1"], "spec": {"unschedulable": True}})
        add_team(sim, "a")
        sim.settle(1)
        assert survey(sim.world, sim.now).total[MEMORY] == "80Gi"

    def test_a_restart_counts_the_same(self) -> None:
        sim = mig(1)
        add_team(sim, "a")
        add_user(sim, "p", "a", "half")
        sim.settle(5)
        sim.restart()
        add_single(sim, "plain", "a", 0)
        sim.settle(5)
        assert held(sim, "a") == 40 * GI


class TestAlternatives:
    """Claims that can be satisfied in more than one way."""

    def test_an_alternative_beyond_the_limit_is_passed_over(self) -> None:
        sim = mig(1)
        add_team(sim, "a", limit="20Gi")
        add_user(sim, "p", "a", "whole", "half", "slice")
        sim.settle(5)
        assert running(sim) == {"p"}
        assert held(sim, "a") == 10 * GI

    def test_the_first_is_taken_where_the_limit_allows_it(self) -> None:
        sim = mig(1)
        add_team(sim, "a", limit="40Gi")
        add_user(sim, "p", "a", "half", "slice")
        sim.settle(5)
        assert held(sim, "a") == 40 * GI

    def test_members_of_a_gang_leave_room_for_each_other(self) -> None:
        sim = mig(2)
        add_team(sim, "a", limit="60Gi")
        add_group(sim, "train", "a", 3)
        for index in range(3):
            add_claim(sim, f"w{index}", "half", "slice")
            add_member(sim, f"w{index}", "train", 0, claims=[f"w{index}"])
        sim.settle(5)
        assert running(sim) == {"w0", "w1", "w2"}
        assert held(sim, "a") == 60 * GI

    def test_one_that_exceeds_the_limit_whatever_is_taken_waits(self) -> None:
        sim = mig(1)
        add_team(sim, "a", limit="5Gi")
        add_user(sim, "p", "a", "whole", "slice")
        sim.settle(5)
        assert running(sim) == set()
        assert "it holds 0 and may have 5Gi, 10Gi more are asked for" in sim.condition("p")["message"]

    def test_room_is_made_for_the_one_that_the_share_allows(self) -> None:
        sim = mig(1)
        add_team(sim, "a")
        add_team(sim, "b", quota="40Gi")
        for index in range(2):
            add_user(sim, f"a{index}", "a", "half")
        sim.settle(5)
        add_user(sim, "b0", "b", "whole", "half")
        sim.settle(3)
        [gone] = {"a0", "a1"} - running(sim)
        free(sim, gone)
        sim.settle(5)
        assert "b0" in running(sim)
        assert (held(sim, "a"), held(sim, "b")) == (40 * GI, 40 * GI)

    @pytest.mark.parametrize("limit", [2, 3])
    def test_all_devices_of_the_node_that_the_limit_allows(self, limit: int) -> None:
        """The largest node comes first, if its queue may have as much."""
        sim = cluster(0, 0)
        sim.add_class()
        sim.add_slice("n0", 3)
        sim.add_slice("n1", 2)
        add_team(sim, "a", limit=limit, resource="deviceclass/gpu")
        sim.add_claim("all", spec={"devices": {"requests": [{"name": "r", "exactly": _all()}]}})
        add_single(sim, "p", "a", 0, claims=["all"])
        sim.settle(5)
        assert running(sim) == {"p"}
        assert held(sim, "a", "deviceclass/gpu") <= limit


def _all() -> dict[str, Any]:
    return {"deviceClassName": "gpu", "allocationMode": "All"}


class TestCapacity:
    def sim(self, *gigabits: int) -> Sim:
        sim = cluster(*(0 for _ in gigabits))
        sim.add_class("nic", driver="nic.example.com")
        for index, amount in enumerate(gigabits):
            sim.add_slice(
                f"n{index}",
                1,
                driver="nic.example.com",
                allowMultipleAllocations=True,
                capacity={"bandwidth": {"value": f"{amount}G"}},
            )
        return sim

    def add_user(self, sim: Sim, name: str, queue: str, gigabits: int) -> None:
        capacity = {"requests": {"bandwidth": f"{gigabits}G"}}
        exactly = {"deviceClassName": "nic", "allocationMode": "ExactCount", "count": 1, "capacity": capacity}
        sim.add_claim(name, spec={"devices": {"requests": [{"name": "req", "exactly": exactly}]}})
        add_single(sim, name, queue, 0, claims=[name])

    def test_what_is_shared_counts_by_what_is_consumed(self) -> None:
        sim = self.sim(100)
        add_team(sim, "a", limit="50G", resource=BANDWIDTH)
        for index, amount in enumerate((30, 30, 20)):
            self.add_user(sim, f"p{index}", "a", amount)
            sim.settle(3)
        sim.settle(6)
        assert running(sim) == {"p0", "p2"}
        assert held(sim, "a", BANDWIDTH) == 50e9
        assert "it holds 30G and may have 50G, 30G more are asked for" in sim.condition("p1")["message"]
        assert survey(sim.world, sim.now).total[BANDWIDTH] == "100G"


def test_an_extended_resource_counts_the_devices_that_serve_it_and_what_they_take() -> None:
    sim = mig(1)
    sim.add_class(extended="example.com/gpu")
    further = f'{{"example.com/gpu": {{"limit": 2}}, "{MEMORY}": {{"quota": 0}}}}'
    add_queue(sim, "a", 0, **{"dray.dev/resources": further})
    for index in range(3):
        sim.add_pod(f"p{index}", requests={"example.com/gpu": "1"}, labels={"kai.scheduler/queue": "a"})
        sim.settle(3)
    found = survey(sim.world, sim.now)
    assert found.total["example.com/gpu"] == "10"
    assert held(sim, "a", "example.com/gpu") == len(running(sim))
    taken = [each.split("-")[1] for name in sim.api.objects[kinds.RESOURCE_CLAIMS] for each in sim.devices_of(name[8:])]
    assert len(taken) == len(running(sim)) > 0
    assert held(sim, "a") == sum(PROFILES[each][1] for each in taken) * GI


class TestWhatIsWritten:
    @pytest.mark.parametrize(
        ("text", "wrong"),
        [
            ('{"counter/memory": {"quota": 2}}', "'counter/memory' is none of deviceclass/NAME, counter/DRIVER/NAME"),
            ('{"gpus": {"quota": 2}}', "'gpus' is none of deviceclass/NAME"),
            (f'{{"{MEMORY}": {{"quota": "many"}}}}', "many"),
            (f'{{"{MEMORY}": {{"quota": 2, "limits": 4}}}}', "unknown field `limits`"),
            (f'{{"{MEMORY}": {{"limit": -4}}}}', f"limit of {MEMORY} is -4; it cannot be negative, but for -1"),
            (f'{{"{MEMORY}": {{"overQuotaWeight": -1}}}}', f"overQuotaWeight of {MEMORY} is -1; it cannot be negative"),
            ('{"deviceclass/gpu.nvidia.com": {"limit": 4}}', "deviceclass/gpu.nvidia.com counts as gpu"),
            ('{"nvidia.com/gpu": {"limit": 4}}', "nvidia.com/gpu counts as gpu, which stands in spec.resources"),
            ("nonsense", "annotation dray.dev/resources"),
        ],
    )
    def test_a_queue_that_cannot_be_read_is_told_about(self, text: str, wrong: str) -> None:
        sim = mig(1)
        add_queue(sim, "a", 1, **{"dray.dev/resources": text})
        add_single(sim, "p", "a", 0)
        sim.settle(5)
        assert running(sim) == set(), "limits that cannot be read are not taken for none"
        assert wrong in sim.condition("p")["message"]
        assert wrong in survey(sim.world, sim.now).wrong["a"]

    def test_what_is_left_out_is_unlimited(self) -> None:
        sim = mig(1)
        add_queue(sim, "a", 0, **{"dray.dev/resources": f'{{"{MEMORY}": {{"quota": "40Gi"}}}}'})
        add_user(sim, "p", "a", "whole")
        sim.settle(5)
        assert running(sim) == {"p"}
