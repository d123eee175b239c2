"""KEP-5007, story 3: the pods of a gang are bound together once the devices of all are ready; and how such waits are counted."""

from __future__ import annotations

from typing import Any

import pytest

from dray.api import kinds
from dray.api.times import format_time
from dray.cluster.port import ClusterError, Conflict, Unreachable, Write
from dray.explain.why import why
from dray.scheduling.binding import binder
from tests.scheduling.gangs import add_group, add_member, add_queue, cluster, running
from tests.scheduling.scheduling_cluster import Sim

READY, FAILED, DRIVER = "dra.example.com/is-prepared", "dra.example.com/preparing-failed", "gpu.example.com"
FABRIC = {"bindsToNode": True, "bindingConditions": [READY], "bindingFailureConditions": [FAILED]}
ATTEMPTS = "scheduler_dra_bindingconditions_allocations_total"
WAITED = "scheduler_dra_bindingconditions_wait_duration_seconds"
PREBIND = "scheduler_dra_bindingconditions_prebind_duration_seconds"


@pytest.fixture
def gang() -> Sim:
    return preparing()


def preparing() -> Sim:
    """Two pods, w0 and w1, that wait for their devices on n0."""
    sim = cluster(0)
    sim.add_class()
    sim.add_slice("n0", 3, **FABRIC)
    add_queue(sim, "team", 8)
    add_group(sim, "train", "team", 2)
    for index in range(2):
        sim.add_claim(f"c{index}")
        add_member(sim, f"w{index}", "train", 0, claims=[f"c{index}"])
    sim.settle(5)
    assert len(sim.preparing()) == 2
    return sim


def say(sim: Sim, claim: str, *types: str, message: str = "") -> None:
    found = sim.claim(claim)
    (result,) = found["status"]["allocation"]["devices"]["results"]
    common = {"status": "True", "reason": "Said", "message": message, "lastTransitionTime": format_time(sim.now)}
    place = {key: result[key] for key in ("driver", "pool", "device")}
    found["status"]["devices"] = [{**place, "conditions": [{"type": type, **common} for type in types]}]
    sim.api.put(kinds.RESOURCE_CLAIMS, found)


def conditions_of(sim: Sim, claim: str) -> list[str]:
    return [each["type"] for device in sim.claim(claim)["status"].get("devices", []) for each in device["conditions"]]


def attempts(sim: Sim) -> dict[str, int]:
    """How many ended how."""
    return {labels[2]: number for (name, labels), number in sim.meter.counters.items() if name == ATTEMPTS}


def test_none_is_bound_before_the_devices_of_all_are_ready_and_then_all_are(gang: Sim) -> None:
    say(gang, "c0", READY)
    gang.settle(30)
    assert running(gang) == set()
    say(gang, "c1", READY)
    gang.settle(1)
    assert running(gang) == {"w0", "w1"}


def test_each_counts_once_with_its_own_time_however_often_its_claim_changes(gang: Sim) -> None:
    for message in ("attached", "attached, still", "attached, still, again"):
        say(gang, "c0", READY, message=message)
        gang.settle(10)
    say(gang, "c1", READY)
    gang.settle(1)
    assert attempts(gang) == {"success": 2}
    first, second = sorted(gang.meter.samples[WAITED, ("default-scheduler", DRIVER, "success")])
    assert first < 10 < second
    assert len(gang.meter.samples[PREBIND, ("success", "true")]) == 2


def test_when_one_fails_none_has_succeeded(gang: Sim) -> None:
    say(gang, "c0", READY)
    gang.settle(5)
    say(gang, "c1", FAILED)
    gang.settle(0.5)
    assert running(gang) == set()
    assert attempts(gang) == {"failure": 2}
    assert [len(gang.meter.samples.get((PREBIND, (status, "true")), ())) for status in ("failure", "success")] == [2, 0]


def test_what_is_ready_stays_where_it_is_while_the_one_that_failed_gets_another_device(gang: Sim) -> None:
    say(gang, "c0", READY)
    gang.settle(5)
    say(gang, "c1", FAILED)
    gang.settle(5)
    assert gang.devices_of("c0") == ["n0/gpu-0"]
    assert conditions_of(gang, "c0") == [READY], "nothing is attached twice"
    assert gang.devices_of("c1") == ["n0/gpu-2"]


def test_a_gang_that_cannot_start_after_all_gives_back_what_was_ready(gang: Sim) -> None:
    """Else others wait for devices of which nobody makes use."""
    gang.remove(kinds.RESOURCE_SLICES, "n0-gpu.example.com")
    gang.add_slice("n0", 2, **FABRIC)
    say(gang, "c0", READY)
    gang.settle(5)
    say(gang, "c1", FAILED)
    gang.settle(5)
    assert [gang.devices_of(name) for name in ("c0", "c1")] == [[], []]
    gang.add_claim("one")
    gang.add_pod("other", claims=["one"])
    gang.settle(5)
    assert gang.devices_of("one") == ["n0/gpu-0"]


def test_a_gang_that_lost_a_member_gives_back_what_was_ready(gang: Sim) -> None:
    say(gang, "c0", READY)
    gang.settle(5)
    gang.remove(kinds.PODS, "default/w1")
    gang.settle(5)
    assert [gang.devices_of(name) for name in ("c0", "c1")] == [[], []]


def test_what_failed_while_no_scheduler_looked_is_given_back(gang: Sim) -> None:
    say(gang, "c0", READY)
    say(gang, "c1", FAILED)
    gang.restart()
    gang.settle(20)
    assert gang.devices_of("c1") == ["n0/gpu-2"]


def test_a_wait_that_ends_because_its_node_goes_is_a_failure(gang: Sim) -> None:
    gang.remove(kinds.NODES, "n0")
    gang.settle(0.5)
    assert attempts(gang) == {"failure": 2}
    assert len(gang.meter.samples[PREBIND, ("failure", "true")]) == 2


@pytest.mark.parametrize("before", [False, True], ids=["then the other is ready", "the other was ready"])
def test_who_is_bound_by_somebody_else_is_not_waited_for(gang: Sim, before: bool) -> None:
    if before:
        say(gang, "c1", READY)
        gang.settle(5)
    target = {"kind": "Node", "name": "n0"}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "w0", "namespace": "default"}, "target": target}
    gang.api.write(Write("create", kinds.PODS, "default", "w0", body, "binding"))
    gang.settle(5)
    assert (running(gang) == {"w0", "w1"}) == before
    say(gang, "c1", READY)
    gang.settle(5)
    assert running(gang) == {"w0", "w1"}


def test_who_is_ready_says_for_whom_it_waits(gang: Sim) -> None:
    say(gang, "c0", READY)
    gang.settle(5)
    found = why(gang.world, gang.world.get(kinds.PODS, "default/w0"), now=gang.now)
    assert (found.verdict, found.fits) == ("waiting", [])
    assert [(reason.code, reason.object) for reason in found.reasons] == [("BindingPending", "claim/default/c1")]
    assert f"{READY} of {DRIVER}/n0/gpu-1 for default/w1 with which it starts" in found.summary
    assert found.queued is not None


PLAIN = "plain.example.com"


def beside_ready(tolerations: list[dict[str, object]] | None = None) -> Sim:
    """w0 waits for its device on n0, and w1, whose device needs no preparation, for w0."""
    sim = cluster(0)
    sim.add_class()
    sim.add_class("plain", driver=PLAIN)
    sim.add_slice("n0", 3, **FABRIC)
    pool = {"name": "n0", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": PLAIN, "nodeName": "n0", "pool": pool, "devices": [{"name": "a"}, {"name": "b"}]}
    sim.api.put(kinds.RESOURCE_SLICES, {"metadata": {"name": "plain"}, "spec": spec})
    add_queue(sim, "team", 8)
    add_group(sim, "train", "team", 2)
    sim.add_claim("c0")
    exactly = {"deviceClassName": "plain", "allocationMode": "ExactCount", "count": 1, "tolerations": tolerations or []}
    sim.add_claim("c1", spec={"devices": {"requests": [{"name": "req", "exactly": exactly}]}})
    for index in range(2):
        add_member(sim, f"w{index}", "train", 0, claims=[f"c{index}"])
    sim.settle(5)
    assert (sim.preparing(), sim.devices_of("c1")) == (["default/w0"], ["n0/a"])
    return sim


def evict_from(sim: Sim, device: str) -> None:
    selector = {"driver": PLAIN, "pool": "n0", "device": device}
    taint = {"key": "example.com/maintenance", "effect": "NoExecute", "timeAdded": format_time(sim.now)}
    sim.api.put(kinds.DEVICE_TAINT_RULES, {"metadata": {"name": "rule"}, "spec": {"deviceSelector": selector, "taint": taint}})


def test_who_waits_for_the_others_is_not_bound_to_a_device_that_must_be_left_meanwhile() -> None:
    sim = beside_ready()
    evict_from(sim, "a")
    sim.settle(5)
    assert sim.devices_of("c1") == ["n0/b"]
    say(sim, "c0", READY)
    sim.settle(5)
    assert running(sim) == {"w0", "w1"}
    assert sim.devices_of("c1") == ["n0/b"]


def test_nor_when_its_toleration_has_ended_by_the_time_they_are_ready() -> None:
    sim = beside_ready([{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 20}])
    evict_from(sim, "a")
    sim.settle(10)
    assert sim.devices_of("c1") == ["n0/a"]
    sim.settle(30)
    say(sim, "c0", READY)
    sim.settle(5)
    assert running(sim) == {"w0", "w1"}
    assert sim.devices_of("c1") == ["n0/b"]


def test_nor_without_its_claim_where_somebody_took_that_away_meanwhile() -> None:
    sim = beside_ready()
    taken = sim.claim("c1")
    del taken["status"]["allocation"], taken["status"]["reservedFor"]
    sim.api.put(kinds.RESOURCE_CLAIMS, taken)
    sim.settle(5)
    say(sim, "c0", READY)
    sim.settle(5)
    assert running(sim) == {"w0", "w1"}
    assert sim.devices_of("c1") != []


def test_when_zones_were_lost_by_the_time_they_are_ready_none_is_bound() -> None:
    sim = beside_ready()
    uid = sim.pod("w0")["metadata"]["uid"]
    sim.scheduler.binder.arrival = lambda asked: ("refused" if asked == uid else "comes", {})
    say(sim, "c0", READY)
    sim.settle(1)
    assert running(sim) == set()


def test_autoscalers_see_where_those_go_who_wait_for_the_others() -> None:
    sim = beside_ready()
    assert [sim.pod(name)["status"].get("nominatedNodeName") for name in ("w0", "w1")] == ["n0", "n0"]
    sim.remove(kinds.NODES, "n0")
    sim.settle(30)
    assert [sim.pod(name)["status"].get("nominatedNodeName") for name in ("w0", "w1")] == [None, None]


RESOURCES = ("example.com/gpu", "example.com/plain")


def special(sim: Sim) -> dict[str, str]:
    """The claims for extended resources, by pod."""
    found = sim.api.objects[kinds.RESOURCE_CLAIMS].values()
    return {owner["name"]: claim["metadata"]["name"] for claim in found for owner in claim["metadata"].get("ownerReferences", [])}


@pytest.fixture
def numbers() -> Sim:
    """As beside_ready, of pods that know no claims."""
    sim = cluster(0)
    sim.add_class(extended=RESOURCES[0])
    sim.add_class("plain", driver=PLAIN, extended=RESOURCES[1])
    sim.add_slice("n0", 2, **FABRIC)
    pool = {"name": "n0", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": PLAIN, "nodeName": "n0", "pool": pool, "devices": [{"name": "a"}]}
    sim.api.put(kinds.RESOURCE_SLICES, {"metadata": {"name": "plain"}, "spec": spec})
    add_queue(sim, "team", 8)
    add_group(sim, "train", "team", 2)
    for index, resource in enumerate(RESOURCES):
        asks = {"requests": {resource: "1"}, "limits": {resource: "1"}}
        add_member(sim, f"w{index}", "train", 0, containers=[{"name": "c", "resources": asks}])
    sim.settle(5)
    assert (sim.preparing(), sim.devices_of(special(sim)["w1"])) == (["default/w0"], ["n0/a"])
    return sim


def test_one_that_waits_for_a_device_that_fails_may_go_to_a_device_plugin(numbers: Sim) -> None:
    numbers.remove(kinds.RESOURCE_SLICES, "plain")
    numbers.add_node("n1", resources={RESOURCES[1]: "1"})
    say(numbers, special(numbers)["w0"], FAILED)
    numbers.settle(30)
    say(numbers, special(numbers)["w0"], READY)
    numbers.settle(5)
    assert {name: numbers.node_of(name) for name in ("w0", "w1")} == {"w0": "n0", "w1": "n1"}
    assert "extendedResourceClaimStatus" not in numbers.pod("w1")["status"]


@pytest.mark.parametrize("refused", [Conflict(409, "Conflict", "changed"), Unreachable("no answer")])
def test_each_is_told_its_claim_before_any_is_bound_however_often_that_fails(numbers: Sim, refused: ClusterError) -> None:
    told = "extendedResourceClaimStatus"
    left = iter([refused] * 3)
    untold: list[str] = []

    def fault(write: Write) -> ClusterError | None:
        if write.subresource == "binding":
            untold.extend(name for name in ("w0", "w1") if told not in numbers.pod(name)["status"])
        return next(left, None) if write.name == "w1" and told in str(write.body) else None

    numbers.fault = fault
    claims = special(numbers)
    say(numbers, claims["w0"], READY)
    numbers.settle(60)
    assert running(numbers) == {"w0", "w1"}
    assert (special(numbers), untold) == (claims, [])


def looks(monkeypatch: pytest.MonkeyPatch, members: int) -> int:
    """How often it is looked whether a device must be left, until a gang of so many is bound."""
    found, original = list[Any](), binder.must_be_left

    def counted(*given: Any) -> Any:
        found.append(given)
        return original(*given)

    sim = cluster(0)
    sim.add_class(extended=RESOURCES[0])
    sim.add_slice("n0", members)
    add_queue(sim, "team", 8)
    add_group(sim, "train", "team", members)
    asks = {"requests": {RESOURCES[0]: "1"}, "limits": {RESOURCES[0]: "1"}}
    for index in range(members):
        add_member(sim, f"w{index}", "train", 0, containers=[{"name": "c", "resources": asks}])
    with monkeypatch.context() as patched:
        patched.setattr(binder, "must_be_left", counted)
        sim.settle(10)
    assert len(running(sim)) == members
    return len(found)


def test_what_it_costs_to_tell_them_their_claims_grows_with_how_many_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 0 < looks(monkeypatch, 40) <= 4 * looks(monkeypatch, 10)


@pytest.mark.parametrize("type", [FAILED, "dra.example.com/is-tested"])
def test_when_one_is_not_ready_any_more_just_before_all_are_bound_none_is(gang: Sim, type: str) -> None:
    """It is told before any bind is sent: that the devices of all were ready a moment ago is not enough."""
    say(gang, "c0", READY)
    gang.settle(5)
    say(gang, "c1", READY)
    say(gang, "c1", type)
    gang.settle(20)
    assert running(gang) == set()
    assert gang.devices_of("c0") == ["n0/gpu-0"]
    say(gang, "c1", READY)
    gang.settle(5)
    assert running(gang) == {"w0", "w1"}
