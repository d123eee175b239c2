"""Two schedulers gave out at the same time what is there once: a device, a part of its capacity, counters, or a place beside
devices of another group. Whoever is not running with it gives way; what runs stays."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import pytest
from scheduling_cluster import Sim
from test_two_schedulers import asked, behind

from dray.api import kinds
from dray.api.gates import Gates
from dray.api.kinds import Kind
from dray.cluster.port import Change, ClusterError, Outcome
from dray.cluster.world import World
from dray.explain.verify import verify
from dray.runtime.picture import apply_answer
from dray.scheduling.config import Config, Profile
from dray.scheduling.kinds import KINDS as SCHEDULED
from dray.scheduling.scheduler import Scheduler

DRIVER = "gpu.example.com"
Plain = dict[str, Any]
# What verify says of more in use than there is.
OVERDRAWN = {"device-owner", "share-allowed", "capacity", "counters", "compatibility"}


class Hardware(NamedTuple):
    """What a node has, and two results there: each is fine, both together are too much."""

    devices: list[Plain]
    foreign: Plain
    own: Plain
    words: str
    counters: Mapping[str, str] = {}


def part(name: str, memory: str, *groups: str) -> Plain:
    drawn: Plain = {"counterSet": "card", "counters": {"memory": {"value": memory}}}
    if groups:
        drawn["compatibilityGroups"] = list(groups)
    return {"name": name, "consumesCounters": [drawn]}


def share(device: str, number: int, **consumed: str) -> Plain:
    return {"device": device, "shareID": f"00000000-0000-4000-8000-{number:012}", "consumedCapacity": consumed}


NIC: Plain = {"name": "nic", "allowMultipleAllocations": True, "capacity": {"bandwidth": {"value": "10G"}}}
POLICY = {"default": "6G", "validRange": {"min": "1G", "step": "1G"}}
SIX_OF_TEN: Plain = {**NIC, "capacity": {"bandwidth": {"value": "10G", "requestPolicy": POLICY}}}
ENOUGH = {"memory": "10Gi"}
KINDS: dict[str, Hardware] = {
    "a device": Hardware(
        [{"name": "gpu"}],
        {"device": "gpu"},
        {"device": "gpu"},
        "holds device gpu.example.com/n1/gpu that claim default/foreign holds, too",
    ),
    "a device that the other has in shares": Hardware(
        [NIC],
        share("nic", 1, bandwidth="1G"),
        {"device": "nic"},
        "holds device gpu.example.com/n1/nic that claim default/foreign holds, too",
    ),
    "a share of a device that the other has as a whole": Hardware(
        [NIC],
        {"device": "nic"},
        share("nic", 1, bandwidth="1G"),
        "holds device gpu.example.com/n1/nic that claim default/foreign holds, too",
    ),
    "capacity": Hardware(
        [SIX_OF_TEN],
        share("nic", 1, bandwidth="6G"),
        share("nic", 2, bandwidth="6G"),
        "holds device gpu.example.com/n1/nic that claim default/foreign holds, too: bandwidth needs 12G of 10G",
    ),
    "counters": Hardware(
        [part("a", "6Gi"), part("b", "6Gi")],
        {"device": "a"},
        {"device": "b"},
        "holds device gpu.example.com/n1/b beside claim default/foreign on counter set card: memory needs 12Gi of 10Gi",
        ENOUGH,
    ),
    "groups": Hardware(
        [part("a", "1Gi", "mig"), part("b", "1Gi", "vgpu")],
        {"device": "a", "compatibilityGroups": {"card": ["mig"]}},
        {"device": "b", "compatibilityGroups": {"card": ["vgpu"]}},
        "holds device gpu.example.com/n1/b beside claim default/foreign on counter set card: offers vgpu, in use mig",
        ENOUGH,
    ),
    "groups that nobody recorded": Hardware(
        [part("a", "1Gi", "mig"), part("b", "1Gi")],
        {"device": "a"},
        {"device": "b"},
        "holds device gpu.example.com/n1/b beside claim default/foreign on counter set card: offers no group, in use mig",
        ENOUGH,
    ),
}


def cluster(hardware: Hardware, *nodes: str) -> Sim:
    sim = Sim(gates=Gates.dray())
    sim.add_class(extended="example.com/gpu")
    for node in nodes:
        sim.add_node(node)
        publish(sim, node, hardware.devices, hardware.counters)
    return sim


def publish(sim: Sim, node: str, devices: list[Plain], counters: Mapping[str, str]) -> None:
    pool = {"name": node, "generation": 1, "resourceSliceCount": 2 if counters else 1}
    head = {"driver": DRIVER, "nodeName": node, "pool": pool}
    if counters:
        sets = [{"name": "card", "counters": {name: {"value": value} for name, value in counters.items()}}]
        sim.api.put(kinds.RESOURCE_SLICES, {"metadata": {"name": f"{node}-c"}, "spec": {**head, "sharedCounters": sets}})
    sim.api.put(kinds.RESOURCE_SLICES, {"metadata": {"name": f"{node}-d"}, "spec": {**head, "devices": devices}})


def give(sim: Sim, claim: str, result: Plain, *pods: str, node: str = "n1") -> None:
    """Somebody allocated this for the claim, and reserved it for the pods."""
    sole = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    allocation = {
        "devices": {"results": [{"request": "req", "driver": DRIVER, "pool": node, **result}]},
        "nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [sole]}]},
    }
    reserved = [{"resource": "pods", "name": pod, "uid": sim.pod(pod)["metadata"]["uid"]} for pod in pods]
    status = {"allocation": allocation, "reservedFor": reserved}
    sim.api.put(kinds.RESOURCE_CLAIMS, {**copy.deepcopy(sim.claim(claim)), "status": status})


def take(sim: Sim, claim: str, result: Plain) -> None:
    """What another scheduler does: it allocates, and its pod runs."""
    sim.add_claim(claim)
    sim.add_pod(f"of-{claim}", claims=[claim], node_name="n1", phase="Running", schedulerName="another")
    give(sim, claim, result, f"of-{claim}")


def overdrawn(sim: Sim) -> list[str]:
    return [finding.detail for finding in verify(sim.world).violations if finding.rule in OVERDRAWN]


@pytest.fixture(params=KINDS)
def hardware(request: pytest.FixtureRequest) -> Hardware:
    return KINDS[request.param]


def crossed(sim: Sim, hardware: Hardware, *running: str) -> None:
    """The scheduler ends after its allocation crossed another's and before its pod is bound; it starts anew and sees both."""
    take(sim, "foreign", hardware.foreign)
    sim.add_claim("own")
    for pod in running:
        sim.add_pod(pod, claims=["own"], node_name="n1", phase="Running")
    sim.add_pod("p", claims=["own"])
    give(sim, "own", hardware.own, "p", *running)
    assert len(overdrawn(sim)) == 1
    sim.start()
    sim.settle(5)


# ------------------------------------------------------------------------------------------------- a scheduler that starts anew


def test_who_starts_anew_has_the_claim_allocated_again(hardware: Hardware) -> None:
    sim = cluster(hardware, "n1", "n2")
    crossed(sim, hardware)
    assert sim.devices_of("foreign") == [f"n1/{hardware.foreign['device']}"]
    assert [device.partition("/")[0] for device in sim.devices_of("own")] == ["n2"]
    assert sim.node_of("p") == "n2"
    assert overdrawn(sim) == []


def test_with_nothing_left_the_pod_waits_and_holds_nothing(hardware: Hardware) -> None:
    sim = cluster(hardware, "n1")
    crossed(sim, hardware)
    assert (sim.node_of("p"), sim.devices_of("own")) == ("", [])
    assert sim.devices_of("foreign") == [f"n1/{hardware.foreign['device']}"]
    sim.remove(kinds.PODS, "default/of-foreign")
    sim.api.put(kinds.RESOURCE_CLAIMS, {**sim.claim("foreign"), "status": {}})
    sim.settle(20)
    assert sim.node_of("p") == "n1"


def test_what_runs_keeps_its_claim_and_no_further_pod_gets_it(hardware: Hardware) -> None:
    sim = cluster(hardware, "n1", "n2")
    crossed(sim, hardware, "running")
    assert sim.devices_of("own") == [f"n1/{hardware.own['device']}"]
    assert (sim.node_of("running"), sim.node_of("p")) == ("n1", "")
    assert f"claim default/own {hardware.words}" in sim.condition("p")["message"]
    # The other one gives way, as its own scheduler has it.
    sim.remove(kinds.PODS, "default/of-foreign")
    sim.api.put(kinds.RESOURCE_CLAIMS, {**sim.claim("foreign"), "status": {}})
    sim.settle(20)
    assert sim.node_of("p") == "n1"


def test_who_crossed_without_a_pod_that_runs_gives_way_whichever_it_is(hardware: Hardware) -> None:
    """Nobody has to know which was first: both are allocated again, one after the other."""
    sim = cluster(hardware, "n1", "n2")
    for claim, result in (("foreign", hardware.foreign), ("own", hardware.own)):
        sim.add_claim(claim)
        sim.add_pod(f"of-{claim}", claims=[claim])
        give(sim, claim, result, f"of-{claim}")
    sim.start()
    sim.settle(10)
    assert sorted((sim.node_of("of-foreign"), sim.node_of("of-own"))) == ["n1", "n2"]
    assert overdrawn(sim) == []


@pytest.mark.parametrize("kind", ["a device", "counters", "capacity"])
def test_a_special_claim_gives_way_too(kind: str) -> None:
    hardware = KINDS[kind]
    sim = cluster(hardware, "n1", "n2")
    resources = {"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}}
    at_bind = sim.send
    # It ends before the pod is bound.
    sim.send = lambda write: {} if write.subresource == "binding" else at_bind(write)  # type: ignore[method-assign]
    sim.add_pod("p", containers=[{"name": "m", "resources": resources}])
    sim.settle(1)
    [(device, [special])] = sim.holders().items()
    node, _, name = device.partition("/")
    foreign = next((r for r in (hardware.foreign, hardware.own) if r["device"] != name), hardware.foreign)
    sim.add_claim("foreign")
    sim.add_pod("of-foreign", claims=["foreign"], node_name=node, phase="Running", schedulerName="another")
    give(sim, "foreign", foreign, "of-foreign", node=node)
    assert len(overdrawn(sim)) == 1
    sim.send = at_bind  # type: ignore[method-assign]
    sim.start()
    sim.settle(20)
    assert {sim.node_of("p"), node} == {"n1", "n2"}
    assert special not in [claim for claims in sim.holders().values() for claim in claims]
    assert overdrawn(sim) == []


# ------------------------------------------------------------------------------------------------------ where nothing crossed

TOGETHER: dict[str, Hardware] = {
    "capacity": Hardware([NIC], share("nic", 1, bandwidth="4G"), share("nic", 2, bandwidth="6G"), ""),
    "counters": Hardware([part("a", "4Gi"), part("b", "6Gi")], {"device": "a"}, {"device": "b"}, "", ENOUGH),
    "groups": Hardware([part("a", "1Gi", "x", "y"), part("b", "1Gi", "y")], {"device": "a"}, {"device": "b"}, "", ENOUGH),
    "other counters": Hardware([part("a", "11Gi"), {"name": "b"}], {"device": "a"}, {"device": "b"}, "", ENOUGH),
}


@pytest.mark.parametrize("hardware", TOGETHER.values(), ids=TOGETHER)
def test_claims_that_go_together_are_used_as_they_are(hardware: Hardware) -> None:
    sim = cluster(hardware, "n1", "n2")
    take(sim, "foreign", hardware.foreign)
    sim.add_claim("own")
    sim.add_pod("p", claims=["own"])
    give(sim, "own", hardware.own, "p")
    sim.start()
    sim.settle(5)
    assert (sim.node_of("p"), sim.devices_of("own")) == ("n1", [f"n1/{hardware.own['device']}"])


def test_a_claim_that_has_too_much_by_itself_crossed_nobody() -> None:
    """Its driver has less than before: as upstream, that is no reason not to start."""
    less = Hardware([part("a", "11Gi")], {}, {"device": "a"}, "", ENOUGH)
    sim = cluster(less, "n1")
    sim.add_claim("own")
    sim.add_pod("p", claims=["own"])
    give(sim, "own", less.own, "p")
    sim.start()
    sim.settle(5)
    assert sim.node_of("p") == "n1"


def test_where_the_driver_has_less_by_now_no_further_pod_gets_a_claim_that_is_too_much() -> None:
    hardware = TOGETHER["counters"]
    sim = cluster(hardware, "n1")
    take(sim, "foreign", hardware.foreign)
    sim.add_claim("own")
    sim.add_pod("running", claims=["own"], node_name="n1", phase="Running")
    give(sim, "own", hardware.own, "running")
    publish(sim, "n1", hardware.devices, {"memory": "9Gi"})
    sim.add_pod("p", claims=["own"])
    sim.settle(5)
    assert (sim.node_of("p"), sim.devices_of("own")) == ("", ["n1/b"])
    assert "memory needs 10Gi of 9Gi" in sim.condition("p")["message"]
    publish(sim, "n1", hardware.devices, {"memory": "10Gi"})
    sim.settle(20)
    assert sim.node_of("p") == "n1"


# ---------------------------------------------------------------------------------------------------------- while both work


AT_ONCE = {name: KINDS[name] for name in ("a device", "capacity", "counters", "groups", "groups that nobody recorded")}


def called(name: str) -> Plain:
    """A claim for a device that is called this."""
    selector = {"cel": {"expression": f"device.attributes['{DRIVER}'].name == '{name}'"}}
    return {"devices": {"requests": [{"name": "req", "exactly": {"deviceClassName": "gpu", "selectors": [selector]}}]}}


def call(device: Plain, name: str) -> Plain:
    return {**device, "attributes": {"name": {"string": name}}}


def at_once(hardware: Hardware) -> Sim:
    """Two claims, of which one is of a pod that another scheduler places."""
    devices = [call(device, device["name"]) for device in hardware.devices]
    sim = cluster(hardware._replace(devices=devices), "n1")
    sim.add_claim("foreign")
    sim.add_claim("own", spec=called(hardware.own["device"]))
    sim.add_pod("q", claims=["foreign"], schedulerName="another")
    return sim


@pytest.mark.parametrize("hardware", AT_ONCE.values(), ids=AT_ONCE)
def test_who_was_second_gives_way_before_its_pod_is_bound(hardware: Hardware) -> None:
    sim = at_once(hardware)
    catch_up = behind(sim)
    give(sim, "foreign", hardware.foreign, "q")
    asked(sim)
    sim.settle(1)
    assert (sim.devices_of("own"), sim.node_of("p")) == ([f"n1/{hardware.own['device']}"], "")
    catch_up()
    sim.settle(5)
    assert (sim.devices_of("own"), sim.node_of("p")) == ([], "")
    assert overdrawn(sim) == []


@pytest.mark.parametrize("hardware", AT_ONCE.values(), ids=AT_ONCE)
def test_who_was_first_keeps_what_it_has(hardware: Hardware) -> None:
    sim = at_once(hardware)
    catch_up = behind(sim)
    asked(sim)
    sim.settle(1)
    give(sim, "foreign", hardware.foreign, "q")
    assert sim.node_of("p") == ""
    catch_up()
    sim.settle(5)
    assert (sim.devices_of("own"), sim.node_of("p")) == ([f"n1/{hardware.own['device']}"], "n1")


FOUR = {**NIC, "capacity": {"bandwidth": {"value": "10G", "requestPolicy": {**POLICY, "default": "4G"}}}}
SIDE_BY_SIDE: dict[str, Hardware] = {
    **TOGETHER,
    "capacity": Hardware([FOUR], share("nic", 1, bandwidth="6G"), share("nic", 2, bandwidth="4G"), ""),
}


@pytest.mark.parametrize("hardware", SIDE_BY_SIDE.values(), ids=SIDE_BY_SIDE)
def test_nobody_gives_way_where_there_is_enough_for_both(hardware: Hardware) -> None:
    """Two schedulers that share a network card or a partitioned one are not in each other's way until it is full."""
    sim = at_once(hardware)
    cleared: list[str] = []
    send = sim.send

    def noting(write: Any) -> Plain:
        status = (write.body or {}).get("status", {})
        cleared.extend([write.name] if "allocation" in status and status["allocation"] is None else [])
        return send(write)

    catch_up = behind(sim)
    give(sim, "foreign", hardware.foreign, "q")
    asked(sim)
    sim.settle(1)
    send, sim.send = sim.send, noting  # type: ignore[method-assign]
    catch_up()
    sim.settle(5)
    assert (sim.devices_of("own"), sim.node_of("p"), cleared) == ([f"n1/{hardware.own['device']}"], "n1", [])


def test_a_pool_that_cannot_be_read_when_the_other_shows_is_not_counted_on() -> None:
    """Its driver is publishing anew: whether there is enough for both cannot be told, and nothing is bound yet."""
    hardware = KINDS["counters"]
    sim = at_once(hardware)
    catch_up = behind(sim)
    give(sim, "foreign", hardware.foreign, "q")
    asked(sim)
    sim.settle(1)
    sim.remove(kinds.RESOURCE_SLICES, "n1-c")
    sim.observe(sim.world.remove(kinds.RESOURCE_SLICES, {"metadata": {"name": "n1-c"}}))
    catch_up()
    sim.settle(5)
    assert (sim.devices_of("own"), sim.node_of("p")) == ([], "")


class Late:
    """A scheduler whose watches come as late as they are told to, each by itself; answers to its writes are there at once."""

    def __init__(self, sim: Sim, name: str) -> None:
        self._sim, self._name = sim, name
        sim.api.watchers.append(self._hear)
        self.start()

    def start(self) -> None:
        """It ended, whatever it was doing, and starts anew with what there is."""
        self.world, self.late = World(SCHEDULED), dict[Kind, list[tuple[Plain, bool]]]()
        self.scheduler = Scheduler(self.world, Config((Profile(self._name),)), Gates.dray())
        for kind in SCHEDULED:
            raws, version = self._sim.server.list(kind)
            self._observe(self.world.replace(kind, raws, version))

    def _hear(self, kind: Kind, obj: Plain, gone: bool) -> None:
        if kind in SCHEDULED:
            self.late.setdefault(kind, []).append((obj, gone))

    def _observe(self, changes: Iterable[Change]) -> None:
        for change in changes:
            self.scheduler.observe(change, self._sim.now)

    def catch_up(self, pick: random.Random | None = None) -> None:
        for kind, late in self.late.items():
            many = pick.randint(0, len(late)) if pick is not None else len(late)
            for obj, gone in late[:many]:
                self._observe(self.world.remove(kind, obj) if gone else self.world.put(kind, obj))
            del late[:many]

    def step(self) -> None:
        for write in self.scheduler.act(self._sim.now):
            try:
                answer = self._sim.api.write(write)
            except ClusterError as refused:
                self.scheduler.observe(Outcome(write, None, refused), self._sim.now)
            else:
                self._observe(apply_answer(self.world, write, answer))
                self.scheduler.observe(Outcome(write, answer, None), self._sim.now)
        assert self.scheduler.validate() == []


# What a node has, the counters there, and at least how many pods three such nodes have room for. Each scheduler is after
# partitions of its own, so that they meet on the counter set and not on a device.
PLENTY: dict[str, tuple[list[Plain], Mapping[str, str], int]] = {
    "devices": ([{"name": "gpu-0"}, {"name": "gpu-1"}], {}, 6),
    "capacity": ([FOUR, {**FOUR, "name": "nic-2"}], {}, 12),
    "counters": ([call(part(f"{name}-{n}", "4Gi"), name) for name in ("one", "two") for n in range(2)], ENOUGH, 6),
    "groups": ([call(part(f"{name}-{n}", "3Gi", name), name) for name in ("one", "two") for n in range(2)], ENOUGH, 5),
}


@pytest.mark.parametrize("kind", PLENTY)
@pytest.mark.parametrize("seed", [1, 2, 7, 14, 68, 81])
def test_no_two_pods_run_with_more_than_there_is_however_late_and_whoever_ends(kind: str, seed: int) -> None:
    devices, counters, room = PLENTY[kind]
    sim, pick = Sim(gates=Gates.dray()), random.Random(seed)
    sim.api.watchers.clear()
    sim.add_class()
    for node in ("n0", "n1", "n2"):
        sim.add_node(node)
        publish(sim, node, devices, counters)
    pods = [f"p{number}" for number in range(room + 2)]
    for pod in pods:
        name = pick.choice(("one", "two"))
        sim.add_claim(pod, spec=called(name) if counters else None)
        sim.add_pod(pod, claims=[pod], schedulerName=name)
    both = [Late(sim, "one"), Late(sim, "two")]
    for _ in range(200):
        one = pick.choice(both)
        one.step()
        one.catch_up(pick)
        if pick.random() < 0.03:
            one.start()
        assert overdrawn_by(sim, [pod for pod in pods if sim.node_of(pod)]) == []
        sim.now += pick.choice((0.0, 0.0, 0.1, 2.0))
    for _ in range(60):
        for one in both:
            one.catch_up()
            one.step()
        sim.now += 2.0
    assert overdrawn_by(sim, pods) == []
    assert sum(bool(sim.node_of(pod)) for pod in pods) >= room


def overdrawn_by(sim: Sim, pods: list[str]) -> list[str]:
    """Of what the claims of these pods have more than there is."""
    world = World(sim.kinds)
    world.replace(kinds.RESOURCE_SLICES, list(sim.api.objects[kinds.RESOURCE_SLICES].values()))
    world.replace(kinds.RESOURCE_CLAIMS, [sim.claim(pod) for pod in pods])
    return [finding.detail for finding in verify(world).violations if finding.rule in OVERDRAWN]
