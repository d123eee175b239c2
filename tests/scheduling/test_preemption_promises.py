"""What victims leave is kept for the pod that they were evicted for, and for nobody longer than that."""

from __future__ import annotations

from typing import Any

import pytest
from scheduling_cluster import Sim

from dray.api import kinds
from dray.cluster.port import ClusterError, Forbidden, NotFound, Write

NOMINATED = "nominatedNodeName"


def linger(sim: Sim, *names: str) -> None:
    """These pods take their time to end."""
    for name in names:
        found = sim.pod(name)
        found["metadata"]["finalizers"] = ["graceful"]
        sim.api.put(kinds.PODS, found)


def end(sim: Sim, name: str) -> None:
    """The pod is gone at last."""
    del sim.api.objects[kinds.PODS][f"default/{name}"]


def give_back(sim: Sim, name: str) -> None:
    """What the claims controller does once nobody uses the claim."""
    sim.api.put(kinds.RESOURCE_CLAIMS, {**sim.claim(name), "status": {}})


def ask(sim: Sim, name: str, priority: int, **extra: Any) -> None:
    sim.add_claim(name, count=extra.pop("count", 1))
    sim.add_pod(name, claims=[name], priority=priority, **extra)


def promised(sim: Sim) -> list[str]:
    return [uid for uid in sim.scheduler.engine.ledger._entries if uid.startswith("promised/")]


def nominated(sim: Sim, name: str) -> str:
    return str(sim.pod(name)["status"].get(NOMINATED, ""))


@pytest.fixture
def taken(sim: Sim) -> Sim:
    """One node, one device, held by ``low``, who is being evicted for ``high`` and takes its time."""
    sim.add_class()
    sim.add_node("n1")
    sim.add_slice("n1", 1)
    ask(sim, "low", 1)
    sim.settle()
    linger(sim, "low")
    ask(sim, "high", 10)
    sim.settle(5)
    assert nominated(sim, "high") == "n1"
    return sim


@pytest.mark.parametrize("priority", [0, 5, 10])
def test_no_pod_of_equal_or_lower_priority_takes_the_freed_device(taken: Sim, priority: int) -> None:
    ask(taken, "thief", priority)
    taken.settle(5)
    end(taken, "low")
    # The thief is tried in the very moment in which the device is free, before the pod that waits for it.
    taken.scheduler.queue.get(taken.pod("high")["metadata"]["uid"]).blocked_until = taken.now + 5  # type: ignore[union-attr]
    give_back(taken, "low")
    ask(taken, "late-thief", priority)
    taken.settle(20)
    assert taken.node_of("high") == "n1"
    assert taken.node_of("thief") == taken.node_of("late-thief") == ""
    assert promised(taken) == []


def test_the_devices_of_a_claim_that_it_shares_with_a_victim_are_kept_while_another_victim_still_leaves(sim: Sim) -> None:
    """The claim is given back when the first of them is gone, long before the pod can be bound."""
    sim.add_class()
    sim.add_node("n1", cpu="4")
    sim.add_slice("n1", 1)
    sim.add_claim("shared")
    sim.add_pod("quick", claims=["shared"], requests={"cpu": "2"}, priority=1)
    sim.add_pod("slow", requests={"cpu": "2"}, priority=1)
    sim.settle()
    linger(sim, "quick", "slow")
    sim.add_pod("high", claims=["shared"], requests={"cpu": "4"}, priority=10)
    sim.settle(5)
    assert nominated(sim, "high") == "n1"
    end(sim, "quick")
    sim.scheduler.queue.get(sim.pod("high")["metadata"]["uid"]).blocked_until = sim.now + 5  # type: ignore[union-attr]
    give_back(sim, "shared")
    ask(sim, "thief", 10)
    sim.settle(20)
    assert sim.node_of("thief") == ""
    assert nominated(sim, "high") == "n1"
    end(sim, "slow")
    sim.settle(20)
    assert sim.node_of("high") == "n1"
    assert promised(sim) == []


def test_a_device_that_is_free_but_promised_is_not_given_away(taken: Sim) -> None:
    """The pod that waits is not even tried here: only the promise stands between the thief and the device."""
    end(taken, "low")
    taken.scheduler.queue.forget(taken.pod("high")["metadata"]["uid"], 0.0)
    taken.scheduler.validate = list  # type: ignore[method-assign, assignment]
    give_back(taken, "low")
    ask(taken, "thief", 9)
    taken.settle(5)
    assert taken.node_of("thief") == ""


def test_a_pod_of_higher_priority_takes_what_is_promised(taken: Sim) -> None:
    end(taken, "low")
    ask(taken, "higher", 20)
    give_back(taken, "low")
    taken.settle(20)
    assert taken.node_of("higher") == "n1"
    assert taken.node_of("high") == ""
    assert nominated(taken, "high") == ""
    assert promised(taken) == []


def test_who_lost_what_was_promised_is_not_nominated_any_more_at_once(taken: Sim) -> None:
    end(taken, "low")
    give_back(taken, "low")
    taken.scheduler.queue.get(taken.pod("high")["metadata"]["uid"]).blocked_until = taken.now + 5  # type: ignore[union-attr]
    ask(taken, "higher", 20)
    taken.scheduler.act(taken.now)
    (waiting,) = [pending for pending in taken.scheduler.queue if pending.pod.metadata.name == "high"]
    assert waiting.nominated == ""
    assert promised(taken) == []


def test_a_pod_of_higher_priority_that_never_preempts_takes_promised_room_too(taken: Sim) -> None:
    end(taken, "low")
    give_back(taken, "low")
    taken.scheduler.queue.get(taken.pod("high")["metadata"]["uid"]).blocked_until = taken.now + 5  # type: ignore[union-attr]
    ask(taken, "higher", 20, preemptionPolicy="Never")
    taken.settle(20)
    assert taken.node_of("higher") == "n1"


def test_a_pod_of_higher_priority_leaves_promised_room_alone_where_it_has_a_choice(taken: Sim) -> None:
    taken.add_node("n2")
    taken.add_slice("n2", 1)
    taken.scheduler.queue.get(taken.pod("high")["metadata"]["uid"]).blocked_until = taken.now + 5  # type: ignore[union-attr]
    end(taken, "low")
    give_back(taken, "low")
    ask(taken, "higher", 20)
    taken.settle(1)
    assert taken.node_of("higher") == "n2"
    assert nominated(taken, "high") == "n1"


def test_preemption_by_a_higher_pod_ends_the_lower_nomination(taken: Sim) -> None:
    ask(taken, "higher", 20)
    taken.settle(5)
    assert nominated(taken, "higher") == "n1"
    assert nominated(taken, "high") == ""
    # ``low`` is leaving already: it is not told twice.
    assert len(taken.events("Preempted")) == 1
    assert len(promised(taken)) == 1


def test_cpu_is_kept_from_pods_of_equal_priority_only(sim: Sim) -> None:
    sim.add_node("n1", cpu="1")
    sim.add_pod("low", requests={"cpu": "1"}, priority=1)
    sim.settle()
    linger(sim, "low")
    sim.add_pod("high", requests={"cpu": "1"}, priority=10)
    sim.settle(5)
    sim.scheduler.queue.get(sim.pod("high")["metadata"]["uid"]).blocked_until = sim.now + 5  # type: ignore[union-attr]
    sim.add_pod("equal", requests={"cpu": "1"}, priority=10)
    end(sim, "low")
    sim.settle(0.5)
    assert sim.node_of("equal") == ""
    sim.add_pod("higher", requests={"cpu": "1"}, priority=11, preemptionPolicy="Never")
    sim.settle(0.5)
    assert sim.node_of("higher") == "n1"


# ------------------------------------------------------------------------------------------------------- ends of a promise


def test_the_promise_ends_with_the_pod(taken: Sim) -> None:
    end(taken, "low")
    give_back(taken, "low")
    taken.scheduler.queue.get(taken.pod("high")["metadata"]["uid"]).blocked_until = taken.now + 5  # type: ignore[union-attr]
    ask(taken, "waits", 1)
    taken.remove(kinds.PODS, "default/high")
    taken.settle(5)
    assert promised(taken) == []
    assert taken.node_of("waits") == "n1"


def test_the_promise_ends_when_somebody_takes_the_nomination_away(taken: Sim) -> None:
    found = taken.pod("high")
    del found["status"][NOMINATED]
    found["metadata"]["labels"] = {"changed": "too"}
    taken.add_node("n2")
    taken.add_slice("n2", 1)
    taken.api.put(kinds.PODS, found)
    taken.settle(5)
    assert taken.node_of("high") == "n2"
    assert promised(taken) == []


def test_a_pod_whose_nomination_somebody_took_away_is_nominated_anew_where_that_is_still_right(taken: Sim) -> None:
    found = taken.pod("high")
    del found["status"][NOMINATED]
    taken.api.put(kinds.PODS, found)
    taken.settle(5)
    assert nominated(taken, "high") == "n1"
    assert len(taken.events("Preempted")) == 1


def test_the_promise_ends_with_the_node(taken: Sim) -> None:
    taken.remove(kinds.NODES, "n1")
    taken.settle(5)
    assert nominated(taken, "high") == ""
    assert promised(taken) == []


def test_a_victim_that_cannot_be_deleted_gives_up_the_nomination_until_the_next_try(sim: Sim) -> None:
    sim.add_class()
    sim.add_node("n1")
    sim.add_slice("n1", 1)
    ask(sim, "low", 1)
    sim.settle()

    def fault(write: Write) -> ClusterError | None:
        return Forbidden(403, "Forbidden", "no") if write.verb == "delete" and write.kind is kinds.PODS else None

    sim.fault = fault
    ask(sim, "high", 10)
    sim.settle(0.5)
    assert nominated(sim, "high") == ""
    assert promised(sim) == []
    sim.settle(60)
    tries = [write for write in sim.log if write.verb == "delete"]
    assert 2 <= len(tries) <= 12, "it is tried again, and not in a hurry"
    sim.fault = None
    sim.settle(15)
    give_back(sim, "low")
    sim.settle(15)
    assert sim.node_of("high") == "n1"


def test_a_victim_that_was_gone_already_is_as_good_as_deleted(sim: Sim) -> None:
    sim.add_node("n1", cpu="1")
    sim.add_pod("low", requests={"cpu": "1"}, priority=1)
    sim.settle()
    linger(sim, "low")
    deletes: list[Write] = []

    def fault(write: Write) -> ClusterError | None:
        if write.verb == "delete" and write.kind is kinds.PODS:
            deletes.append(write)
            return NotFound(404, "NotFound", "low")
        return None

    sim.fault = fault
    sim.add_pod("high", requests={"cpu": "1"}, priority=10)
    sim.settle(20)
    assert nominated(sim, "high") == "n1"
    assert len(deletes) == 1


# ---------------------------------------------------------------------------------------------------------------- restart


@pytest.mark.parametrize("moment", ["leaving", "gone", "given back"])
def test_a_restart_keeps_the_device_for_the_nominated_pod(taken: Sim, moment: str) -> None:
    ask(taken, "a-thief", 10)  # which is listed first, and was seen as early
    taken.settle(5)
    if moment != "leaving":
        end(taken, "low")
    if moment == "given back":
        give_back(taken, "low")
    taken.start()
    taken.settle(5)
    if moment == "given back":
        assert taken.node_of("high") == "n1"
        return
    assert nominated(taken, "high") == "n1"
    assert len(promised(taken)) == 1
    assert len(taken.events("Preempted")) == 1
    if moment == "leaving":
        end(taken, "low")
    give_back(taken, "low")
    taken.settle(20)
    assert taken.node_of("high") == "n1"
    assert promised(taken) == []


# ----------------------------------------------------------------------------------------------------------------- claims


def test_pods_of_one_claim_make_room_for_it_once(sim: Sim) -> None:
    sim.add_class()
    for index in range(2):
        sim.add_node(f"n{index}")
        sim.add_slice(f"n{index}", 1)
        ask(sim, f"low{index}", 1)
    sim.settle()
    linger(sim, "low0", "low1")
    sim.add_claim("shared")
    for name in ("a", "b"):
        sim.add_pod(name, claims=["shared"], priority=10)
    sim.settle(20)
    (event,) = sim.events("Preempted")
    victim = event["regarding"]["name"]
    end(sim, victim)
    give_back(sim, victim)
    sim.settle(20)
    assert sim.node_of("a") == sim.node_of("b") != ""
    assert promised(sim) == []


@pytest.fixture
def shared(sim: Sim) -> Sim:
    """The only device is held by ``shared``, whose users ``low0`` and ``low1`` are being evicted for ``high``, and take their
    time; ``next`` came to use it too, as when a Deployment replaces them."""
    sim.add_class()
    sim.add_node("n1")
    sim.add_slice("n1", 1)
    sim.add_claim("shared")
    for name in ("low0", "low1"):
        sim.add_pod(name, claims=["shared"], priority=1)
    sim.settle()
    linger(sim, "low0", "low1")
    ask(sim, "high", 10)
    sim.settle(5)
    assert nominated(sim, "high") == "n1"
    sim.add_pod("next", claims=["shared"], priority=1)
    sim.settle(5)
    return sim


def test_nobody_begins_to_use_a_claim_whose_devices_are_promised(shared: Sim) -> None:
    assert shared.node_of("next") == ""
    assert (
        "claim default/shared is being given back: its devices are promised to pod default/high"
        in (shared.condition("next")["message"])
    )
    end(shared, "low0")
    end(shared, "low1")
    give_back(shared, "shared")
    shared.settle(20)
    assert shared.node_of("high") == "n1"
    assert len(shared.events("Preempted")) == 2
    assert "promised" not in shared.condition("next")["message"], "it is told what it waits for now"


def test_a_claim_is_used_again_when_nobody_is_promised_its_devices_any_more(shared: Sim) -> None:
    shared.remove(kinds.PODS, "default/high")
    shared.settle(5)
    assert shared.node_of("next") == "n1"


def test_a_pod_that_is_more_important_uses_a_claim_whose_devices_are_promised(shared: Sim) -> None:
    shared.add_pod("boss", claims=["shared"], priority=50)
    shared.settle(5)
    assert shared.node_of("boss") == "n1"
    end(shared, "low0")
    end(shared, "low1")
    shared.settle(5)
    assert nominated(shared, "high") == ""
    assert shared.node_of("next") == "n1", "nor is anybody else kept from it"


def test_a_restart_lets_nobody_use_a_claim_whose_devices_are_promised(shared: Sim) -> None:
    shared.start()
    shared.settle(5)
    assert nominated(shared, "high") == "n1"
    assert shared.node_of("next") == ""


def test_victims_that_are_gone_are_not_named_any_more(shared: Sim) -> None:
    assert "made room on n1: default/low0, default/low1." in shared.condition("high")["message"]
    end(shared, "low0")
    shared.settle(5)
    assert "made room on n1: default/low1." in shared.condition("high")["message"]


def test_a_claim_that_a_higher_pod_shares_is_not_freed_by_its_lower_user(sim: Sim) -> None:
    sim.add_class()
    sim.add_node("n1")
    sim.add_slice("n1", 1)
    sim.add_claim("shared")
    sim.add_pod("low", claims=["shared"], priority=1)
    sim.add_pod("boss", claims=["shared"], priority=50)
    sim.settle()
    ask(sim, "high", 10)
    sim.settle(10)
    assert sim.events("Preempted") == []
    assert nominated(sim, "high") == ""


def test_a_claim_that_a_higher_pod_is_about_to_share_is_not_freed(sim: Sim) -> None:
    sim.add_class()
    sim.add_node("n1")
    sim.add_slice("n1", 1)
    sim.add_claim("shared")
    sim.add_pod("low", claims=["shared"], priority=1)
    sim.settle()
    sim.add_pod("boss", claims=["shared"], priority=50)
    # Decided, and its reservation has not been written.
    sim.scheduler.act(sim.now)
    ask(sim, "high", 10)
    sim.scheduler.act(sim.now)
    (waiting,) = [pending for pending in sim.scheduler.queue if pending.pod.metadata.name == "high"]
    assert waiting.nominated == ""


def test_all_users_of_a_shared_claim_go_together(sim: Sim) -> None:
    sim.add_class()
    sim.add_node("n1")
    sim.add_slice("n1", 1)
    sim.add_claim("shared")
    for name in ("a", "b"):
        sim.add_pod(name, claims=["shared"], priority=1)
    sim.settle()
    ask(sim, "high", 10)
    sim.settle(10)
    assert sorted(event["regarding"]["name"] for event in sim.events("Preempted")) == ["a", "b"]


def test_a_pod_that_waits_for_its_devices_is_a_victim_and_is_not_deleted(sim: Sim) -> None:
    """It has not started: it gives back what was being prepared, and looks for another place."""
    sim.add_class()
    sim.add_node("n1")
    sim.add_slice("n1", 1, bindingConditions=["ready"], bindingFailureConditions=["failed"])
    ask(sim, "low", 1)
    sim.settle()
    assert sim.devices_of("low") == ["n1/gpu-0"]
    ask(sim, "high", 10)
    sim.settle(5)
    assert sim.devices_of("high") == ["n1/gpu-0"]
    assert sim.node_of("low") == ""
    assert sim.devices_of("low") == []
    (event,) = sim.events("Preempted")
    assert event["regarding"]["name"] == "low"
    assert "before it was bound" in event["note"]
    assert not [write for write in sim.log if write.verb == "delete" and write.kind is kinds.PODS]
    assert sim.condition("low")["reason"] == "Unschedulable"


def test_devices_of_a_claim_that_is_still_being_written_count_as_the_victims(sim: Sim) -> None:
    sim.add_class()
    sim.add_node("n1")
    sim.add_slice("n1", 1)
    ask(sim, "low", 1)
    # Decided, and no write has been made.
    sim.scheduler.act(sim.now)
    ask(sim, "high", 10)
    sim.scheduler.act(sim.now)
    (waiting,) = [pending for pending in sim.scheduler.queue if pending.pod.metadata.name == "high"]
    assert waiting.nominated == "n1"


def test_extended_resources_are_promised_too(sim: Sim) -> None:
    sim.add_class(extended="example.com/gpu")
    sim.add_node("n1")
    sim.add_slice("n1", 1)
    ask(sim, "low", 1)
    sim.settle()
    linger(sim, "low")
    resources = {"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}}
    sim.add_pod("high", containers=[{"name": "m", "resources": resources}], priority=10)
    sim.settle(5)
    assert nominated(sim, "high") == "n1"
    ask(sim, "thief", 10)
    end(sim, "low")
    give_back(sim, "low")
    sim.settle(20)
    assert sim.node_of("high") == "n1"
    assert promised(sim) == []


# ---------------------------------------------------------------------------------------------------------------- numbers


def test_attempts_and_victims_are_counted_by_upstreams_names(taken: Sim) -> None:
    assert taken.meter.counters["scheduler_preemption_attempts_total", ()] == 1
    assert taken.meter.samples["scheduler_preemption_victims", ()] == [1]
    taken.add_pod("other")
    taken.settle(30)
    assert taken.meter.samples["scheduler_preemption_victims", ()] == [1]


def test_the_waiting_pod_knows_for_whom_it_waits(taken: Sim) -> None:
    (waiting,) = [pending for pending in taken.scheduler.queue if pending.pod.metadata.name == "high"]
    assert waiting.refusal is not None
    reason = waiting.refusal.reasons[0][0]
    assert (reason.code, reason.data) == ("Preempting", {"node": "n1", "victims": "default/low"})
    assert "waits until pods of lower priority have made room on n1: default/low" in taken.condition("high")["message"]


def test_who_waited_for_its_devices_and_was_called_off_is_not_nominated_any_more(sim: Sim) -> None:
    """Also where it is refused for what it was told before."""
    sim.add_class()
    sim.add_node("n1")
    sim.add_slice("n1", 1, bindingConditions=["ready"], bindingFailureConditions=["failed"])
    ask(sim, "first", 20)
    ask(sim, "low", 1)
    sim.settle(5)
    before = sim.condition("low")["message"]
    sim.remove(kinds.PODS, "default/first")
    sim.settle(20)
    assert nominated(sim, "low") == "n1"
    ask(sim, "high", 10)
    sim.settle(5)
    assert nominated(sim, "high") == "n1"
    assert sim.condition("low")["message"] == before
    assert nominated(sim, "low") == ""
