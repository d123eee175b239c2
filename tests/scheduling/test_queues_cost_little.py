"""What a session of queues costs grows with what is asked for, not with how many pods ask for the same."""

from __future__ import annotations

from typing import Any

import pytest

from dray.api import kinds
from dray.devices.engine import Devices
from dray.scheduling.workloads.jobs import Job, Jobs
from dray.scheduling.workloads.members import Members
from dray.scheduling.workloads.room import Room
from tests.scheduling.gangs import add_group, add_member, add_queue, add_single, cluster, running
from tests.scheduling.scheduling_cluster import Sim, claim, pod, slice_of

QUEUE = {"kai.scheduler/queue": "team"}


def add_with_claim(sim: Sim, name: str, count: int, priority: int, **spec: Any) -> None:
    """A pod with a claim of its own, as it is made from a template."""
    entry = {"name": "gpu", "resourceClaimTemplateName": "template"}
    made = pod(name, labels=QUEUE | spec.pop("labels", {}), resourceClaims=[entry], priority=priority, **spec)
    made["metadata"]["uid"] = f"uid-{name}"
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": f"uid-{name}", "controller": True}
    sim.api.put(kinds.RESOURCE_CLAIMS, claim(f"{name}-gpu", count=count, metadata={"ownerReferences": [owner]}))
    made["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": f"{name}-gpu"}]
    sim.api.put(kinds.PODS, made)


@pytest.fixture
def full() -> Sim:
    """Four devices, which pods of low priority have."""
    sim = Sim()
    add_queue(sim, "team", 8)
    sim.add_class()
    sim.add_node("n1", cpu="64")
    sim.add_slice("n1", 4)
    for number in range(4):
        add_with_claim(sim, f"low-{number}", 1, 1)
    sim.settle(3)
    assert all(sim.node_of(f"low-{number}") for number in range(4))
    return sim


def add_closed(sim: Sim) -> None:
    """A node that takes no pods: with its devices there are enough in all."""
    sim.add_node("closed", unschedulable=True)
    sim.add_slice("closed", 5)


def searches(sim: Sim, monkeypatch: pytest.MonkeyPatch, pods: int, **spec: Any) -> int:
    """How often it is looked for whom to evict, for so many pods that no eviction would help."""
    add_closed(sim)
    found: list[str] = []
    for name in ("in_order", "by_node"):
        original = getattr(Room, name)

        def counted(self: Room, *given: Any, original: Any = original) -> Any:
            found.append(original.__name__)
            return original(self, *given)

        monkeypatch.setattr(Room, name, counted)
    for number in range(pods):
        add_with_claim(sim, f"large-{number}", 5, 10, **spec)
    sim.settle()
    assert not any(sim.node_of(f"large-{number}") for number in range(pods))
    return len(found)


def test_many_pods_with_equal_claims_are_looked_at_once(full: Sim, monkeypatch: pytest.MonkeyPatch) -> None:
    once = searches(full, monkeypatch, 30)
    assert 0 < once <= 4


def test_each_is_told_of_its_own_claim(full: Sim, monkeypatch: pytest.MonkeyPatch) -> None:
    searches(full, monkeypatch, 3)
    assert all("needs 5" in full.condition(f"large-{number}")["message"] for number in range(3))


def test_those_that_fit_start_one_after_the_other(full: Sim) -> None:
    """What one found does not speak for the next once devices are left."""
    for number in range(6):
        add_with_claim(full, f"high-{number}", 1, 10)
    full.settle(10)
    for key, found in list(full.api.objects[kinds.RESOURCE_CLAIMS].items()):
        if key.startswith("default/low") and f"{key.removesuffix('-gpu')}" not in full.api.objects[kinds.PODS]:
            full.api.put(kinds.RESOURCE_CLAIMS, {**found, "status": {}})
    full.settle(10)
    assert sum(bool(full.node_of(f"high-{number}")) for number in range(6)) == 4


def test_why_not_is_not_asked_while_it_is_looked_for_victims(full: Sim, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of pods that keep a distance to others, which are looked at one by one: words are made for people alone."""
    explained: list[str] = []
    original = Devices.explain

    def counted(self: Devices, *given: Any) -> Any:
        explained.append(given[0])
        return original(self, *given)

    monkeypatch.setattr(Devices, "explain", counted)
    term = {"labelSelector": {"matchLabels": {"app": "far"}}, "topologyKey": "kubernetes.io/hostname"}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    looks = searches(full, monkeypatch, 1, labels={"app": "far"}, affinity=affinity)
    assert looks > 1
    assert len(explained) <= 1


@pytest.mark.parametrize("own", [True, False], ids=["from a template", "by name"])
def test_room_for_a_gang_with_claims_costs_in_proportion_to_the_gang(monkeypatch: pytest.MonkeyPatch, own: bool) -> None:
    """Twice as large, in a cluster twice as large, it may take twice as long, and not four times."""

    def asked_for(size: int) -> int:
        """How often the allocator is asked until room is made."""
        sim = Sim()
        add_queue(sim, "team", size)
        sim.add_class()
        for number in range(size):
            sim.add_node(f"n{number}", cpu="64")
            sim.add_slice(f"n{number}", 2)
        for number in range(2 * size):
            add_with_claim(sim, f"low-{number}", 1, 1)
        sim.settle(3)
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": True}
        gang = {"annotations": {"dray.dev/gang": str(size)}, "ownerReferences": [owner]}
        for number in range(size):
            add_with_claim(sim, f"high-{number}", 1, 10)
            made = sim.api.objects[kinds.PODS][f"default/high-{number}"]
            made["metadata"] |= gang
            if not own:
                made["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": f"high-{number}-gpu"}]
            sim.api.put(kinds.PODS, made)
        times: list[None] = []
        original = Devices.allocate

        def counted(self: Devices, *given: Any) -> Any:
            times.append(None)
            return original(self, *given)

        with monkeypatch.context() as patched:
            patched.setattr(Devices, "allocate", counted)
            sim.step()
            sim.step()
        assert all(sim.pod(f"high-{number}")["status"].get("nominatedNodeName") for number in range(size))
        return len(times)

    assert asked_for(48) < 3 * asked_for(24)


@pytest.fixture
def busy() -> Sim:
    """Many pods that run, single ones and gangs, and room for more."""
    sim = cluster(*[8] * 6)
    add_queue(sim, "team", 48)
    for number in range(12):
        add_single(sim, f"one-{number}", "team")
        add_group(sim, f"gang-{number}", "team", 2)
        for member in "ab":
            add_member(sim, f"gang-{number}-{member}", f"gang-{number}")
    sim.settle(5)
    # A session that sees that they run.
    add_single(sim, "last", "team")
    sim.settle(3)
    assert len(running(sim)) == 37
    return sim


def test_no_room_is_made_while_a_claim_of_a_member_is_not_there(full: Sim, monkeypatch: pytest.MonkeyPatch) -> None:
    add_group(full, "train", "team", 3)
    for number in range(3):
        add_with_claim(full, f"large-{number}", 1, 10)
        made = full.api.objects[kinds.PODS][f"default/large-{number}"]
        made["metadata"]["annotations"] = {"pod-group-name": "train"}
        full.api.put(kinds.PODS, made)
    last = full.api.objects[kinds.RESOURCE_CLAIMS]["default/large-2-gpu"]
    full.remove(kinds.RESOURCE_CLAIMS, "default/large-2-gpu")
    tried: list[None] = []
    for name in ("in_order", "by_node"):
        original = getattr(Room, name)
        monkeypatch.setattr(Room, name, lambda *given, original=original: (tried.append(None), original(*given))[1])
    full.settle(5)
    assert tried == []
    full.api.put(kinds.RESOURCE_CLAIMS, {**last, "metadata": {**last["metadata"], "uid": "made-late"}})
    full.settle(5)
    assert tried
    assert full.pod("large-2")["status"]["nominatedNodeName"] == "n1"


def asked_about(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Fills with the jobs of whose pods it is asked how they stand; going through all jobs is not expected at all."""
    found: set[str] = set()
    original = Members.state_of

    def state_of(self: Members, job: Job, uid: str) -> Any:
        found.add(job.key)
        return original(self, job, uid)

    def everybody(self: Jobs) -> Any:
        raise AssertionError("all jobs are gone through")

    monkeypatch.setattr(Members, "state_of", state_of)
    monkeypatch.setattr(Jobs, "__iter__", everybody)
    monkeypatch.setattr(type(Sim().scheduler), "validate", lambda self: [])
    return found


def test_where_one_pod_comes_nobody_else_is_looked_at(busy: Sim, monkeypatch: pytest.MonkeyPatch) -> None:
    found = asked_about(monkeypatch)
    add_single(busy, "new", "team")
    busy.settle(3)
    assert busy.node_of("new")
    assert found == {f"pod/{busy.pod('new')['metadata']['uid']}"}


def test_where_a_member_of_a_gang_ends_only_that_gang_is_looked_at(busy: Sim, monkeypatch: pytest.MonkeyPatch) -> None:
    found = asked_about(monkeypatch)
    busy.remove(kinds.PODS, "default/gang-3-a")
    busy.settle(3)
    assert found == {"default/gang-3"}


def add_train(sim: Sim, size: int, count: int, **request: Any) -> None:
    """A gang of pods that ask for so many devices each."""
    add_group(sim, "train", "team", size)
    for number in range(size):
        add_with_claim(sim, f"large-{number}", count, 10)
        made = sim.api.objects[kinds.PODS][f"default/large-{number}"]
        made["metadata"]["annotations"] = {"pod-group-name": "train"}
        sim.api.put(kinds.PODS, made)
        asked = sim.api.objects[kinds.RESOURCE_CLAIMS][f"default/large-{number}-gpu"]
        asked["spec"]["devices"]["requests"][0]["exactly"] |= request
        sim.api.put(kinds.RESOURCE_CLAIMS, asked)


def nobody_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("in_order", "by_node"):
        monkeypatch.setattr(Room, name, lambda *given: pytest.fail("somebody is taken out"))


def test_nobody_is_taken_out_for_a_gang_for_which_all_devices_would_not_do(full: Sim, monkeypatch: pytest.MonkeyPatch) -> None:
    add_train(full, 5, 1)
    nobody_goes(monkeypatch)
    full.settle(5)
    assert "0 of 5 pods fit together" in full.condition("large-4")["message"]


@pytest.fixture
def mixed() -> Sim:
    """Three nodes with four devices each, one of which a pod has that does not go."""
    sim = Sim()
    add_queue(sim, "team", 12)
    sim.add_class()
    for number in range(3):
        sim.add_node(f"n{number}", cpu="64")
        made = slice_of(f"n{number}", 4)
        for index, device in enumerate(made["spec"]["devices"]):
            device["attributes"] = {"number": {"int": index}}
        sim.api.put(kinds.RESOURCE_SLICES, made)
        add_with_claim(sim, f"fixed-{number}", 1, 100, nodeSelector={"kubernetes.io/hostname": f"n{number}"})
    sim.settle(3)
    for number in range(9):
        add_with_claim(sim, f"low-{number}", 1, 1)
    sim.settle(3)
    assert all(sim.node_of(f"fixed-{number}") for number in range(3))
    assert all(sim.node_of(f"low-{number}") for number in range(9))
    return sim


def test_nobody_is_taken_out_where_those_who_stay_leave_no_node_whole(mixed: Sim, monkeypatch: pytest.MonkeyPatch) -> None:
    add_train(mixed, 2, 4)
    nobody_goes(monkeypatch)
    mixed.settle(5)
    assert "0 of 2 pods fit together" in mixed.condition("large-0")["message"]


def test_nobody_is_taken_out_where_those_who_stay_have_the_devices_that_are_asked_for(
    mixed: Sim, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each node has enough devices without them, but not such ones."""
    kept = [mixed.claim(f"fixed-{number}-gpu")["status"]["allocation"]["devices"]["results"] for number in range(3)]
    assert [results[0]["device"] for results in kept] == ["gpu-0"] * 3
    add_train(mixed, 1, 1, selectors=[{"cel": {"expression": 'device.attributes["gpu.example.com"].number == 0'}}])
    nobody_goes(monkeypatch)
    mixed.settle(5)
    assert "not enough devices" in mixed.condition("large-0")["message"]


def test_room_is_made_where_those_who_stay_leave_just_enough(mixed: Sim) -> None:
    add_train(mixed, 3, 3)
    mixed.settle(3)
    assert {mixed.pod(f"large-{number}")["status"]["nominatedNodeName"] for number in range(3)} == {"n0", "n1", "n2"}
