"""KEP-5007: a pod is bound when its devices say that they are ready, and not before."""

from __future__ import annotations

import copy
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from scheduling_cluster import EPOCH, Sim

from dray.api import kinds
from dray.api.gates import Gates
from dray.api.meta import decode
from dray.api.resource import ResourceClaim
from dray.api.times import format_time
from dray.cluster.port import ClusterError, Refused, Unreachable, Write
from dray.explain.awaited import awaited
from dray.explain.failures import failed_bindings
from dray.scheduling.binding.conditions import judge
from dray.scheduling.config import Config, Profile

READY = "dra.example.com/is-prepared"
FAILED = "dra.example.com/preparing-failed"
FABRIC = {"bindsToNode": True, "bindingConditions": [READY], "bindingFailureConditions": [FAILED]}
DRIVER = "gpu.example.com"


@pytest.fixture
def fabric(sim: Sim) -> Sim:
    sim.add_class()
    sim.add_node("n1")
    sim.add_node("n2")
    sim.add_slice("", 2, pool="fabric", **FABRIC)
    return sim


def say(sim: Sim, claim: str, condition: str, status: str = "True", message: str = "", **more: str) -> None:
    """What the controller of the device does; ``more``: further conditions by type, for a device that has several."""
    found = sim.claim(claim)
    result = found["status"]["allocation"]["devices"]["results"][0]
    said = [
        {"type": type, "status": status, "reason": "Said", "message": message, "lastTransitionTime": "2027-01-15T08:00:00Z"}
        for type, status in ({condition: status} | more).items()
    ]
    device = {key: result[key] for key in ("driver", "pool", "device")}
    found["status"]["devices"] = [{**device, "conditions": said}]
    sim.api.put(kinds.RESOURCE_CLAIMS, found)


def waiting_pod(sim: Sim, name: str = "p", **extra: Any) -> None:
    sim.add_claim(name)
    sim.add_pod(name, claims=[name], **extra)
    sim.settle()


def test_the_pod_is_bound_when_all_conditions_are_true(fabric: Sim) -> None:
    waiting_pod(fabric)
    claim = fabric.claim("p")
    result = claim["status"]["allocation"]["devices"]["results"][0]
    assert (result["bindingConditions"], result["bindingFailureConditions"]) == ([READY], [FAILED])
    assert fabric.node_of("p") == ""
    assert fabric.pod("p")["status"]["nominatedNodeName"] == "n1"
    event = fabric.events("BindingConditionsPending")[0]
    assert event["note"] == "waiting for binding conditions for device on node n1"
    say(fabric, "p", READY)
    fabric.settle()
    assert fabric.node_of("p") == "n1"
    labels = ("default-scheduler", DRIVER, "success")
    assert fabric.meter.counters["scheduler_dra_bindingconditions_allocations_total", labels] == 1
    assert len(fabric.meter.samples["scheduler_dra_bindingconditions_wait_duration_seconds", labels]) == 1


def test_binds_to_node_pins_the_claim_to_the_node(fabric: Sim) -> None:
    waiting_pod(fabric)
    terms = fabric.claim("p")["status"]["allocation"]["nodeSelector"]["nodeSelectorTerms"]
    assert terms[0]["matchFields"][0]["values"] == ["n1"]


def test_a_condition_that_is_false_or_a_device_without_status_is_not_ready(fabric: Sim) -> None:
    waiting_pod(fabric)
    say(fabric, "p", READY, "False")
    fabric.settle(30)
    assert fabric.node_of("p") == ""


def test_a_failure_counts_more_than_readiness(fabric: Sim) -> None:
    waiting_pod(fabric)
    say(fabric, "p", READY, "True", **{FAILED: "True"})
    fabric.settle(2)
    assert (fabric.node_of("p"), fabric.devices_of("p")) == ("", ["fabric/gpu-1"])


def test_a_condition_that_is_no_longer_true_is_waited_for_again(sim: Sim) -> None:
    sim.add_class()
    sim.add_node("n1")
    sim.add_slice("", 1, pool="fabric", **{**FABRIC, "bindingConditions": [READY, "powered"]})
    waiting_pod(sim)
    for ready, powered, node in (("True", "False", ""), ("False", "True", ""), ("Unknown", "True", ""), ("True", "True", "n1")):
        say(sim, "p", READY, ready, powered=powered)
        sim.settle(2)
        assert sim.node_of("p") == node
    say(sim, "p", READY, "False", powered="False", **{FAILED: "True"})
    sim.settle(2)
    assert (sim.node_of("p"), sim.devices_of("p")) == ("n1", ["fabric/gpu-0"])


def test_a_condition_that_changes_just_before_the_bind_is_noticed(fabric: Sim) -> None:
    """Both are told before anything is sent: what was said last counts."""
    waiting_pod(fabric)
    say(fabric, "p", READY)
    say(fabric, "p", READY, "False")
    fabric.settle(5)
    assert (fabric.node_of("p"), fabric.devices_of("p")) == ("", ["fabric/gpu-0"])
    assert fabric.preparing() == ["default/p"]
    say(fabric, "p", READY)
    say(fabric, "p", READY, **{FAILED: "True"})
    fabric.settle(5)
    assert (fabric.node_of("p"), fabric.devices_of("p")) == ("", ["fabric/gpu-1"])
    say(fabric, "p", READY)
    fabric.settle(5)
    assert fabric.node_of("p") == "n1"


def test_a_bind_that_may_have_come_true_is_not_taken_back_by_a_failure(fabric: Sim) -> None:
    """Its devices would be free while it runs with them."""
    waiting_pod(fabric)
    lost = iter([Unreachable("no answer")])
    fabric.fault = lambda write: next(lost, None) if write.subresource == "binding" else None
    say(fabric, "p", READY)
    fabric.step()
    fabric.now += 2
    say(fabric, "p", READY, **{FAILED: "True"})
    fabric.settle(5)
    assert (fabric.node_of("p"), fabric.devices_of("p")) == ("n1", ["fabric/gpu-0"])


@pytest.mark.parametrize("bound", [True, False])
def test_a_claim_is_not_cleared_while_the_bind_of_another_of_its_pods_is_on_its_way(fabric: Sim, bound: bool) -> None:
    """It would run without its claim."""
    fabric.add_claim("shared")
    fabric.add_claim("own")
    fabric.add_pod("first", claims=["shared"])
    fabric.add_pod("second", claims=["shared", "own"])
    fabric.settle()
    sent: list[Write] = []

    def late(write: Write) -> ClusterError | None:
        sent.extend([write] if write.subresource == "binding" else [])
        return Unreachable("no answer yet") if write.subresource == "binding" else None

    fabric.fault = late
    say(fabric, "shared", READY)
    fabric.step()
    say(fabric, "shared", FAILED)
    for _ in range(3):
        fabric.step()
    assert fabric.devices_of("shared") == ["fabric/gpu-0"]
    if bound:
        fabric.fault = None
        fabric.api.write(sent[0])
    else:
        fabric.fault = lambda write: Refused(400, "BadRequest", "no") if write.subresource == "binding" else None
    fabric.settle(5)
    status = fabric.claim("shared")["status"]
    if bound:
        assert (fabric.node_of("first"), fabric.devices_of("shared")) == ("n1", ["fabric/gpu-0"])
        assert [consumer["name"] for consumer in status["reservedFor"]] == ["first"]
    else:
        assert sorted(fabric.preparing()) == ["default/first", "default/second"]
        assert "devices" not in status


def test_a_failure_clears_the_allocation_at_once_and_another_device_is_taken(fabric: Sim) -> None:
    waiting_pod(fabric)
    assert fabric.devices_of("p") == ["fabric/gpu-0"]
    say(fabric, "p", FAILED, message="cable missing")
    fabric.settle(2)
    assert fabric.devices_of("p") == ["fabric/gpu-1"]
    assert fabric.node_of("p") == ""
    say(fabric, "p", READY)
    fabric.settle(2)
    assert fabric.node_of("p") != ""
    labels = ("default-scheduler", DRIVER, "failure")
    assert fabric.meter.counters["scheduler_dra_bindingconditions_allocations_total", labels] == 1
    assert any("cable missing" in event["note"] for event in fabric.events("FailedScheduling"))


def test_a_pod_of_a_queue_takes_another_device_after_a_failure_too(fabric: Sim) -> None:
    """Nor does it stand in its own way with what was kept for it: the host port."""
    fabric.api.put(kinds.QUEUES, {"metadata": {"name": "team"}, "spec": {"resources": {}}})
    fabric.remove(kinds.NODES, "n2")
    container = {"name": "main", "image": "app", "ports": [{"containerPort": 80, "hostPort": 8080}]}
    waiting_pod(fabric, labels={"kai.scheduler/queue": "team"}, containers=[container])
    failed = fabric.devices_of("p")
    say(fabric, "p", FAILED)
    fabric.settle(15)
    assert fabric.devices_of("p") not in ([], failed)
    say(fabric, "p", READY)
    fabric.settle(5)
    assert fabric.node_of("p") == "n1"


def one_device(sim: Sim) -> Sim:
    sim.add_class()
    sim.add_node("n1")
    sim.add_slice("", 1, pool="fabric", **FABRIC)
    return sim


def attempts(sim: Sim, seconds: int, claims: tuple[str, ...] = ("p",)) -> dict[str, list[int]]:
    """When each claim got a device, which fails it at once, every time."""
    found: dict[str, list[int]] = {claim: [] for claim in claims}
    for second in range(seconds):
        for claim in claims:
            if sim.devices_of(claim):
                found[claim].append(second)
                say(sim, claim, FAILED)
        sim.settle(1)
    return found


def test_the_only_device_is_tried_again_after_the_back_off_of_the_pod(sim: Sim) -> None:
    one_device(sim)
    waiting_pod(sim)
    say(sim, "p", FAILED)
    sim.settle()
    assert sim.devices_of("p") == []
    sim.settle(1)
    assert sim.devices_of("p") == ["fabric/gpu-0"]
    say(sim, "p", READY)
    sim.settle()
    assert sim.node_of("p") == "n1"


def test_a_device_that_always_fails_does_not_make_its_pod_spin(sim: Sim) -> None:
    one_device(sim)
    waiting_pod(sim)
    assert attempts(sim, 60)["p"] == [0, 1, 3, 7, 15, 25, 35, 45, 55]


def test_a_device_that_always_fails_is_tried_by_each_pod_at_its_own_pace(sim: Sim) -> None:
    one_device(sim)
    names = ("a", "b", "c")
    for name in names:
        waiting_pod(sim, name)
    found = attempts(sim, 60, names)
    assert all(5 <= len(times) <= 9 for times in found.values()), found


def test_a_device_that_failed_is_the_last_choice(fabric: Sim) -> None:
    waiting_pod(fabric)
    say(fabric, "p", FAILED)
    fabric.settle(2)
    assert fabric.devices_of("p") == ["fabric/gpu-1"]
    waiting_pod(fabric, "q")
    assert fabric.devices_of("q") == ["fabric/gpu-0"]
    waiting_pod(fabric, "r")
    assert fabric.devices_of("r") == []


def test_a_device_that_failed_another_pod_goes_to_one_that_waits(sim: Sim) -> None:
    one_device(sim)
    waiting_pod(sim, "first")
    waiting_pod(sim, "second")
    assert sim.devices_of("second") == []
    say(sim, "first", FAILED)
    sim.settle()
    assert (sim.devices_of("first"), sim.devices_of("second")) == ([], ["fabric/gpu-0"])


def at_no_node(spec: dict[str, Any]) -> None:
    key = {"key": "example.com/attachable", "operator": "Exists"}
    spec["nodeSelector"] = {"nodeSelectorTerms": [{"matchExpressions": [key]}]}


def from_the_slice(spec: dict[str, Any]) -> None:
    del spec["allNodes"]
    at_no_node(spec)


def from_the_device(spec: dict[str, Any]) -> None:
    del spec["allNodes"]
    spec["perDeviceNodeSelection"] = True
    at_no_node(spec["devices"][0])
    spec["devices"][1]["allNodes"] = True


def by_a_taint(spec: dict[str, Any]) -> None:
    spec["devices"][0]["taints"] = [{"key": "example.com/broken", "effect": "NoSchedule"}]


def by_taking_it_out(spec: dict[str, Any]) -> None:
    spec["devices"] = spec["devices"][1:]


@pytest.mark.parametrize("keep_away", [from_the_slice, from_the_device, by_a_taint, by_taking_it_out])
def test_a_controller_keeps_a_device_that_failed_from_being_picked_again(fabric: Sim, keep_away: Any) -> None:
    """KEP-5007, handling attachment failures: in each way that it names, also after the device has rested."""
    fabric.add_claim("other")
    fabric.add_pod("blocker", claims=["other"])
    waiting_pod(fabric)
    failed = fabric.devices_of("p")
    assert failed == ["fabric/gpu-1"]
    fabric.remove(kinds.PODS, "default/blocker")
    published = fabric.api.objects[kinds.RESOURCE_SLICES]["fabric-gpu.example.com"]
    published["spec"]["devices"].reverse()  # the device that fails is the first
    keep_away(published["spec"])
    say(fabric, "p", FAILED)
    fabric.api.put(kinds.RESOURCE_SLICES, published)
    fabric.settle(300)
    assert fabric.devices_of("p") == ([] if keep_away is from_the_slice else ["fabric/gpu-0"])


def test_a_device_that_failed_is_a_choice_like_any_other_after_its_rest(fabric: Sim) -> None:
    waiting_pod(fabric)
    say(fabric, "p", FAILED)
    fabric.settle(61)
    assert fabric.devices_of("p") == ["fabric/gpu-1"]
    fabric.add_slice("", 3, pool="fabric", **FABRIC)
    waiting_pod(fabric, "q")
    assert fabric.devices_of("q") == ["fabric/gpu-0"]


def test_nobody_is_evicted_while_a_device_that_failed_is_left(sim: Sim) -> None:
    sim.add_class()
    sim.add_node("n1")
    sim.add_slice("n1", 2, **FABRIC)
    waiting_pod(sim, "low")
    say(sim, "low", READY)
    sim.settle()
    waiting_pod(sim, "high", priority=10)
    say(sim, "high", FAILED)
    sim.settle(1)
    assert sim.node_of("low") == "n1"
    assert sim.devices_of("high") == ["n1/gpu-1"]


def test_the_timeout_counts_from_the_allocation(fabric: Sim) -> None:
    waiting_pod(fabric)
    fabric.settle(599)
    assert fabric.devices_of("p") == ["fabric/gpu-0"]
    fabric.settle(3)
    assert fabric.devices_of("p") == ["fabric/gpu-1"]
    labels = ("default-scheduler", DRIVER, "timeout")
    assert fabric.meter.counters["scheduler_dra_bindingconditions_allocations_total", labels] == 1


def test_the_timeout_is_configurable() -> None:
    sim = Sim(Config(profiles=(Profile(binding_timeout=10.0),)))
    sim.add_class()
    sim.add_node("n1")
    sim.add_slice("", 2, pool="fabric", **FABRIC)
    waiting_pod(sim)
    sim.settle(12)
    assert sim.devices_of("p") == ["fabric/gpu-1"]


def test_a_second_pod_of_a_shared_claim_waits_only_the_rest_of_the_time(fabric: Sim) -> None:
    waiting_pod(fabric)
    fabric.settle(500)
    fabric.add_pod("late", claims=["p"])
    fabric.settle()
    assert len(fabric.claim("p")["status"]["reservedFor"]) == 2
    fabric.settle(101)
    labels = ("default-scheduler", DRIVER, "timeout")
    assert fabric.meter.counters["scheduler_dra_bindingconditions_allocations_total", labels] >= 1
    assert fabric.devices_of("p") == ["fabric/gpu-1"]


def test_a_shared_claim_that_becomes_ready_binds_all_its_pods(fabric: Sim) -> None:
    fabric.add_claim("c")
    for name in ("a", "b"):
        fabric.add_pod(name, claims=["c"])
    fabric.settle()
    say(fabric, "c", READY)
    fabric.settle()
    assert fabric.node_of("a") == fabric.node_of("b") == "n1"


def test_several_claims_are_all_waited_for(fabric: Sim) -> None:
    fabric.add_claim("a")
    fabric.add_claim("b")
    fabric.add_pod("p", claims=["a", "b"])
    fabric.settle()
    say(fabric, "a", READY)
    fabric.settle()
    assert fabric.node_of("p") == ""
    say(fabric, "b", READY)
    fabric.settle()
    assert fabric.node_of("p") == "n1"


def test_a_restart_resumes_the_wait_on_the_same_node(fabric: Sim) -> None:
    waiting_pod(fabric)
    before = fabric.devices_of("p")
    fabric.settle(100)
    fabric.start()
    fabric.settle()
    assert fabric.devices_of("p") == before
    say(fabric, "p", READY)
    fabric.settle()
    assert fabric.node_of("p") == "n1"


def test_the_timeout_survives_a_restart(fabric: Sim) -> None:
    waiting_pod(fabric)
    fabric.settle(590)
    fabric.start()
    fabric.settle(11)
    assert fabric.devices_of("p") == ["fabric/gpu-1"]


def test_a_failure_that_happened_while_no_scheduler_ran_is_cleaned_up(fabric: Sim) -> None:
    waiting_pod(fabric)
    fabric.api.watchers.clear()
    say(fabric, "p", FAILED)
    fabric.now += 7
    fabric.api.watchers.append(fabric._watch)
    fabric.start()
    fabric.settle(5)
    assert fabric.claim("p")["status"].get("devices") in (None, [])
    assert fabric.claim("p")["status"]["allocation"]["allocationTimestamp"] == "2027-01-15T08:00:07Z"


def test_a_pod_deleted_while_it_waits_frees_its_device_at_once(fabric: Sim) -> None:
    waiting_pod(fabric, "a")
    waiting_pod(fabric, "b")
    waiting_pod(fabric, "c")
    assert fabric.devices_of("c") == []
    fabric.remove(kinds.PODS, "default/a")
    fabric.settle()
    assert fabric.devices_of("a") == []
    assert fabric.devices_of("c") == ["fabric/gpu-0"]


def test_nodes_with_ready_devices_are_preferred(fabric: Sim) -> None:
    fabric.add_slice("n2", 1)
    waiting_pod(fabric)
    assert fabric.node_of("p") == "n2"


def test_without_the_gate_nothing_is_waited_for() -> None:
    sim = Sim(gates=Gates.dray().updated({"DRADeviceBindingConditions": False}))
    sim.add_class()
    sim.add_node("n1")
    sim.add_slice("n1", 1)
    waiting_pod(sim)
    assert sim.node_of("p") == "n1"
    assert "allocationTimestamp" not in sim.claim("p")["status"]["allocation"]


def test_without_the_gate_a_claim_that_has_conditions_is_used_as_it_is() -> None:
    sim = Sim(gates=Gates.dray().updated({"DRADeviceBindingConditions": False}))
    sim.add_class()
    sim.add_node("n1")
    result = {"request": "req", "driver": DRIVER, "pool": "fabric", "device": "gpu-0", "bindingConditions": [READY]}
    result["bindingFailureConditions"] = [FAILED]
    sim.add_claim("p", status={"allocation": {"devices": {"results": [result]}}})
    sim.add_pod("p", claims=["p"])
    sim.settle()
    assert sim.node_of("p") == "n1"


def test_nobody_is_bound_where_the_server_drops_the_conditions(fabric: Sim) -> None:
    """Its gate is off, and the slices are from before: what must be waited for would be forgotten."""
    server = fabric.send

    def dropping(write: Write) -> Any:
        body = copy.deepcopy(write.body)
        for result in ((body or {}).get("status", {}).get("allocation") or {}).get("devices", {}).get("results", ()):
            result.pop("bindingConditions", None)
            result.pop("bindingFailureConditions", None)
        return server(msgspec.structs.replace(write, body=body))

    fabric.send = dropping  # type: ignore[method-assign]
    waiting_pod(fabric)
    fabric.settle(30)
    assert (fabric.node_of("p"), fabric.devices_of("p")) == ("", [])
    assert any("the API server drops their binding conditions" in event["note"] for event in fabric.events("FailedScheduling"))
    fabric.send = server  # type: ignore[method-assign]
    fabric.settle(30)
    say(fabric, "p", READY)
    fabric.settle(2)
    assert fabric.node_of("p") != ""


def test_the_nominated_node_is_cleared_when_the_wait_failed(sim: Sim) -> None:
    sim.add_class()
    sim.add_node("n1")
    sim.add_slice("", 1, pool="fabric", **FABRIC)
    waiting_pod(sim)
    assert sim.pod("p")["status"]["nominatedNodeName"] == "n1"
    say(sim, "p", FAILED)
    sim.add_slice("", 0, pool="fabric")
    sim.settle(5)
    assert "nominatedNodeName" not in sim.pod("p")["status"]


def test_after_a_failure_the_same_node_is_chosen_again_where_another_device_is(fabric: Sim) -> None:
    waiting_pod(fabric)
    first = fabric.pod("p")["status"]["nominatedNodeName"]
    say(fabric, "p", FAILED)
    fabric.settle(2)
    assert fabric.pod("p")["status"]["nominatedNodeName"] == first


def test_a_claim_without_a_timestamp_is_waited_for_from_when_it_was_seen(fabric: Sim) -> None:
    result = {"request": "req", "driver": DRIVER, "pool": "fabric", "device": "gpu-0", "bindingConditions": [READY]}
    result["bindingFailureConditions"] = [FAILED]
    fabric.add_claim("c", status={"allocation": {"devices": {"results": [result]}}})
    fabric.add_pod("p", claims=["c"])
    fabric.settle(500)
    assert fabric.devices_of("c") == ["fabric/gpu-0"]
    assert "allocationTimestamp" not in fabric.claim("c")["status"]["allocation"]
    say(fabric, "c", READY)
    fabric.settle()
    assert fabric.node_of("p") == "n1"


def test_an_allocation_of_a_clock_that_was_ahead_is_not_waited_for_longer(fabric: Sim) -> None:
    """As after a restart on another machine, or after a clock was set back."""
    waiting_pod(fabric)
    claim = fabric.claim("p")
    claim["status"]["allocation"]["allocationTimestamp"] = format_time(fabric.now + 7200)
    fabric.api.put(kinds.RESOURCE_CLAIMS, claim)
    fabric.restart()
    fabric.settle(590)
    assert fabric.devices_of("p") == ["fabric/gpu-0"]
    (found,) = awaited(decode(ResourceClaim, fabric.claim("p")), 600.0, fabric.now)
    assert found.deadline == format_time(fabric.now + 600)
    fabric.settle(20)
    assert fabric.devices_of("p") == ["fabric/gpu-1"]


def test_a_thousand_waiting_pods_cost_nothing(sim: Sim) -> None:
    sim.add_class()
    sim.add_node("n1", pods="5000", cpu="500", memory="1Ti")
    for part in range(8):
        sim.add_slice("", 125, pool=f"fabric-{part}", **FABRIC)
    for index in range(1000):
        sim.add_claim(f"c{index}")
        sim.add_pod(f"p{index}", claims=[f"c{index}"])
    sim.settle(most=20000)
    assert len(sim.preparing()) == 1000
    assert sim.scheduler.binder.in_flight == 0
    assert sim.scheduler.act(sim.now) == []
    # Nothing is polled: the next thing to do is the first timeout.
    wake = sim.scheduler.wake()
    assert wake is not None
    assert wake >= EPOCH + 599
    sim.add_pod("plain")
    sim.settle()
    assert sim.node_of("plain") == "n1"


def test_each_share_of_a_device_is_judged_by_what_is_said_of_it() -> None:
    results = [
        {"request": "r", "driver": DRIVER, "pool": "p", "device": "d", "shareID": share, "bindingConditions": [READY]}
        for share in ("one", "two")
    ]
    said = {"type": READY, "status": "True", "reason": "Told", "message": "", "lastTransitionTime": "2027-01-15T08:00:00Z"}
    entry = {"driver": DRIVER, "pool": "p", "device": "d", "shareID": "one", "conditions": [said]}
    status = {"allocation": {"devices": {"results": results}}, "devices": [entry]}
    claim = decode(ResourceClaim, {"metadata": {"name": "c", "namespace": "default"}, "status": status})
    assert judge(claim, EPOCH, EPOCH + 600).readiness == "pending"
    assert [found.device for found in awaited(claim, 600.0, EPOCH)] == [f"{DRIVER}/p/d"]
    both = msgspec.structs.replace(claim.status.devices[0], share_id="two")
    ready = msgspec.structs.replace(claim, status=msgspec.structs.replace(claim.status, devices=(*claim.status.devices, both)))
    assert judge(ready, EPOCH, EPOCH + 600).readiness == "ready"
    assert list(awaited(ready, 600.0, EPOCH)) == []


def test_devices_that_fail_again_and_again_are_told_of_once(fabric: Sim) -> None:
    """Which of them failed last is in events, one for each of them; what else there is to say is told as before."""
    told: list[str] = []
    fabric.api.watchers.append(
        lambda kind, obj, gone: told.append(fabric.condition("p").get("message", "")) if kind is kinds.PODS else None
    )
    waiting_pod(fabric)
    for number in range(20):
        say(fabric, "p", FAILED, message="out of reach")
        fabric.settle(10 + number)
        assert fabric.claim("p")["status"].get("allocation"), "it is tried again"
    failures = [event for event in fabric.events("FailedScheduling") if "could not be bound" in event["note"]]
    assert 2 <= len(failures) <= 8
    assert sum(event.get("series", {}).get("count", 1) for event in failures) == 20
    changes = [after for before, after in pairwise(told) if before != after]
    assert len(changes) <= 3
    failed = failed_bindings(fabric.events("FailedScheduling"))
    assert max(found.at or 0.0 for found in failed) > fabric.now - 60, "when each failed last is known"
