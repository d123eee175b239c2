"""``dray why`` of pods that wait in queues and gangs: what the next session does with them, as their conditions say it."""

from __future__ import annotations

import pytest

from dray.api import kinds
from dray.explain.failures import FailedBinding
from dray.explain.overview import causes, waiting
from dray.explain.why import why
from tests.scheduling.gangs import GPU, add_group, add_member, add_queue, add_single, asked, cluster, running
from tests.scheduling.scheduling_cluster import Sim, node, pod


def lent(gpus: int = 4) -> Sim:
    """Queue a has borrowed everything; half of it is b's."""
    sim = cluster(gpus)
    add_queue(sim, "a", gpus / 2)
    add_queue(sim, "b", gpus / 2)
    for index in range(gpus):
        add_single(sim, f"a{index}", "a")
        sim.settle(2)
    return sim


def test_who_would_be_reclaimed_for_it_and_why_these() -> None:
    sim = lent()
    add_single(sim, "b0", "b")
    found = asked(sim, "b0")
    assert found.verdict == "waiting"
    assert found.evicts is not None
    assert [(each.pod, each.queue, each.to) for each in found.evicts.victims] == [("default/a3", "a", "")]
    assert "queue b holds 0 gpu and deserves 1, queue a holds 4 gpu and deserves 3" in found.evicts.why
    assert "no disruption budget is broken" in found.evicts.why
    sim.settle(10)
    assert running(sim) == {"a0", "a1", "a2", "b0"}, "and so it is done"


def test_who_asks_for_the_scheduler_by_another_name_is_of_the_same_queues() -> None:
    sim = lent()
    add_single(sim, "b0", "b", schedulerName="dray")
    found = asked(sim, "b0")
    assert found.evicts is not None
    assert [each.pod for each in found.evicts.victims] == ["default/a3"]


def test_of_parts_of_which_some_are_enough_only_these_count() -> None:
    sim = cluster(4)
    add_queue(sim, "a", 4)
    parts = [{"name": f"r{part}", "minMember": 2} for part in range(3)]
    add_group(sim, "replicas", "a", 0, minSubGroup=2, subGroups=parts)
    for name, part in (("p0", "r0"), ("p1", "r0"), ("p2", "r0"), ("p3", "r1")):
        add_member(sim, name, "replicas", 1)
        made = sim.pod(name)
        made["metadata"]["labels"] = {**made["metadata"].get("labels", {}), "kai.scheduler/subgroup-name": part}
        sim.api.put(kinds.PODS, made)
    sim.settle(5)
    found = asked(sim, "p0")
    assert found.queued is not None
    assert found.queued.needs == 4
    assert "has too few pods to start: 3 of 4" in found.summary


def test_nothing_of_cores_that_are_free_where_devices_are_missing() -> None:
    """Of the devices no queue counts anything; that others keep their cores is not why the pod waits."""
    sim = cluster(0)
    sim.add_class()
    for queue in ("a", "b"):
        add_queue(sim, queue)
    sim.add_slice("n0", 1)
    for queue in ("a", "b"):
        sim.add_claim(f"of-{queue}", count=1)
        made = pod(f"p-{queue}", requests={"cpu": "1"}, labels={"kai.scheduler/queue": queue}, claims=[f"of-{queue}"])
        sim.api.put(kinds.PODS, made)
        sim.settle(5)
    found = asked(sim, "p-b")
    assert "not enough devices of class gpu" in found.summary
    assert "queue b" not in found.summary


def test_who_would_move_for_devices_that_no_queue_counts() -> None:
    """Devices of a class that is neither a GPU nor in an annotation of the queues."""
    sim = cluster(0, 0)
    sim.add_class()
    add_queue(sim, "a")
    for index in range(2):
        sim.add_slice(f"n{index}", 2)
        sim.add_claim(f"c{index}")
        on = {"kubernetes.io/hostname": f"n{index}"} if not index else {}
        add_single(sim, f"p{index}", "a", 0, claims=[f"c{index}"], nodeSelector=on, again=True)
        sim.settle(5)
        sim.api.put(kinds.NODES, {**sim.api.objects[kinds.NODES]["n0"], "spec": {"unschedulable": not index}})
    sim.settle(5)
    sim.add_claim("both", count=2)
    add_single(sim, "big", "a", 0, claims=["both"])
    found = asked(sim, "big")
    assert found.evicts is not None
    assert [(each.pod, each.to) for each in found.evicts.victims] == [("default/p1", "n0")]


def test_a_gang_is_told_whom_all_of_it_drives_out() -> None:
    sim = lent()
    add_group(sim, "train", "b", 2)
    add_member(sim, "b0", "train")
    add_member(sim, "b1", "train")
    found = asked(sim, "b1")
    assert found.evicts is not None
    assert {each.pod for each in found.evicts.victims} == {"default/a2", "default/a3"}
    assert "the 2 pods that start together do not fit beside" in found.evicts.why
    assert found.queued is not None
    assert (found.queued.queue, found.queued.group, found.queued.needs) == ("b", "default/train", 2)


@pytest.mark.parametrize(("quota", "lent"), [(4, "no more than their shares"), (3, "1 above their shares")])
def test_why_nothing_is_taken_back_for_a_queue_below_its_share(quota: int, lent: str) -> None:
    """The quotas exceed what there is: whoever has his keeps it."""
    sim = lent_by_quota(quota)
    add_group(sim, "train", "b", 2)
    for index in range(2):
        add_member(sim, f"b{index}", "train")
    sim.settle(5)
    found = asked(sim, "b0")
    numbers = "it holds 0 and deserves 2, 2 more are asked for, 0 are free"
    assert f"queue b cannot take back enough of gpu: {numbers}, and other queues hold {lent}" in found.summary
    assert sim.condition("b0")["message"].partition(" In kube-scheduler's words")[0] in found.summary
    sim.remove(kinds.PODS, "default/a0")
    sim.remove(kinds.PODS, "default/a1")
    sim.settle(5)
    assert {"b0", "b1"} <= running(sim)


def lent_by_quota(quota: int) -> Sim:
    sim = cluster(4)
    add_queue(sim, "a", quota)
    add_queue(sim, "b", 2)
    for index in range(4):
        add_single(sim, f"a{index}", "a")
    sim.settle(5)
    return sim


def test_what_is_free_lies_apart_and_others_keep_what_they_deserve() -> None:
    sim = cluster(2, 2)
    add_queue(sim, "a", 2)
    add_queue(sim, "b", 2)
    for index in range(2):
        add_single(sim, f"a{index}", "a", nodeSelector={"kubernetes.io/hostname": f"n{index}"})
    sim.settle(5)
    add_single(sim, "b0", "b", 2)
    sim.settle(5)
    assert "2 more are asked for, 2 are free, and other queues hold no more than their shares" in asked(sim, "b0").summary
    add_single(sim, "b1", "b", nodeSelector={"nowhere": "at all"})
    sim.settle(5)
    assert "cannot take back" not in asked(sim, "b1").summary, "whoever left, it would not help"


def test_what_is_free_in_the_wrong_places_is_not_told_as_taken_by_others() -> None:
    sim = cluster(1, 1)
    add_queue(sim, "a", 1)
    add_queue(sim, "b", 2)
    add_single(sim, "b0", "b", 2)
    sim.settle(5)
    assert "cannot take back" not in asked(sim, "b0").summary


def test_who_would_be_preempted_in_its_own_queue() -> None:
    sim = cluster(1)
    add_queue(sim, "a", 1)
    add_single(sim, "low", "a")
    sim.settle(2)
    add_single(sim, "high", "a", priority=50)
    found = asked(sim, "high")
    assert found.evicts is not None
    assert [each.pod for each in found.evicts.victims] == ["default/low"]
    assert found.evicts.why.startswith("below priority 50 in the same queue")


def test_who_would_move_and_where_to() -> None:
    sim = cluster(2, 2)
    add_queue(sim, "a", 4)
    labels = {"kai.scheduler/queue": "a"}
    for index in range(2):
        made = pod(f"a{index}", requests={GPU: "1"}, labels=labels, node_name=f"n{index}", phase="Running", again=True)
        sim.api.put(kinds.PODS, made)
    add_single(sim, "large", "a", 2)
    found = asked(sim, "large")
    assert found.evicts is not None
    [victim] = found.evicts.victims
    assert {victim.node, victim.to} == {"n0", "n1"}
    assert "whoever moves has another place" in found.evicts.why


def test_that_it_waits_for_its_gang_and_which_member_blocks() -> None:
    sim = cluster(1, 1)
    add_queue(sim, "a", 8)
    add_group(sim, "train", "a", 3)
    for index in range(3):
        add_member(sim, f"w{index}", "train")
    sim.settle(5)
    found = asked(sim, "w0")
    assert found.verdict == "impossible", "three do not fit on two nodes with one each, whoever is there"
    blocked = next(reason for reason in found.reasons if reason.code == "GangBlocked")
    assert blocked.data == {"member": "default/w2", "placed": 2, "needed": 3}
    assert found.fits == [], "alone it would fit, which is not what is asked"
    assert found.evicts is None


def test_that_another_pod_of_its_gang_is_next_which_asks_for_something_else() -> None:
    """A part of a gang of which one is enough, and a pod beyond the minimum: what nodes lack for another is not said of it."""
    sim = cluster(2)
    add_queue(sim, "a", 4)
    add_group(sim, "replicas", "a", 0, minSubGroup=1, subGroups=[{"name": each, "minMember": 1} for each in ("r0", "r1")])
    for name, part, gpus in (("large", "r0", 4), ("small", "r1", 1)):
        add_member(sim, name, "replicas", gpus)
        made = sim.pod(name)
        made["metadata"]["labels"] = {**made["metadata"].get("labels", {}), "kai.scheduler/subgroup-name": part}
        sim.api.put(kinds.PODS, made)
    sim.settle(5)
    assert running(sim) == set()
    found = asked(sim, "small")
    assert found.verdict == "unschedulable"
    assert found.summary.endswith("podgroup default/replicas is to place default/large next, for which there is no place.")
    assert "is to place default/large next, for which there is no place" in sim.condition("small")["message"]


def test_that_a_pod_beyond_the_minimum_has_to_be_where_the_others_are() -> None:
    sim = cluster(1, 4)
    sim.api.put(kinds.TOPOLOGIES, {"metadata": {"name": "floor"}, "spec": {"levels": [{"nodeLabel": "rack"}]}})
    for name, found in list(sim.api.objects[kinds.NODES].items()):
        found["metadata"]["labels"]["rack"] = name
        sim.api.put(kinds.NODES, found)
    add_queue(sim, "a", 5)
    near = {"topologyConstraint": {"topology": "floor", "requiredTopologyLevel": "rack"}}
    add_group(sim, "train", "a", 1, **near)
    add_member(sim, "w0", "train", 1, nodeSelector={"kubernetes.io/hostname": "n0"})
    sim.settle(3)
    add_member(sim, "w1", "train", 1)
    sim.settle(3)
    assert running(sim) == {"w0"}
    assert "OutsideDomain" in {reason.code for reason in asked(sim, "w1").reasons}
    assert "not in the domain" in sim.condition("w1")["message"]


def test_that_its_queue_has_its_share_in_numbers_as_its_condition_says() -> None:
    sim = lent()
    for index in range(3):
        add_single(sim, f"b{index}", "b")
    sim.settle(10)
    [waits] = {"b0", "b1", "b2"} - running(sim)
    found = asked(sim, waits)
    share = next(reason for reason in found.reasons if reason.code == "QueueShare")
    assert share.data == {"resource": "gpu", "held": "2", "share": "2", "asked": "1"}
    told = "queue b would exceed its fair share of gpu: it holds 2 and deserves 2, 1 more are asked for"
    assert told in found.summary
    assert told in sim.condition(waits)["message"]
    assert found.evicts is None


def test_that_nothing_is_there_for_queues_where_pods_of_none_hold_everything() -> None:
    """Made smaller than what runs on it: a queue that may have everything deserves nothing, and never less than that."""
    sim = cluster(4)
    add_queue(sim, "a", 0)
    add_queue(sim, "b", -1)
    add_single(sim, "a0", "a")
    for index in range(3):
        add_single(sim, f"other{index}")
    sim.settle(2)
    shrunk = sim.api.objects[kinds.NODES]["n0"] | {"status": node("n0", resources={GPU: "1"})["status"]}
    sim.api.put(kinds.NODES, shrunk)
    add_single(sim, "b0", "b")
    sim.settle(10)
    share = next(reason for reason in asked(sim, "b0").reasons if reason.code == "QueueShare")
    assert share.data == {"resource": "gpu", "held": "0", "share": "0", "asked": "1"}
    assert "deserves 0" in sim.condition("b0")["message"]


def test_that_a_job_which_is_too_large_is_before_it_in_its_queue() -> None:
    """The gang would take back at once what it gives: of its share it has less than b with what b is to serve first."""
    sim = cluster(9)
    add_queue(sim, "a", 0)
    add_queue(sim, "b", 2)
    add_group(sim, "lent", "a", 8)
    for index in range(8):
        add_member(sim, f"a{index}", "lent")
    add_single(sim, "b0", "b")
    sim.settle(2)
    add_group(sim, "large", "b", 12)
    for index in range(12):
        add_member(sim, f"large{index}", "large")
    sim.settle(2)
    add_single(sim, "b1", "b")
    before = running(sim)
    sim.settle(10)
    assert running(sim) == before, "nobody has to go"
    found = asked(sim, "b1")
    assert found.evicts is None
    behind = next(reason for reason in found.reasons if reason.code == "QueueBehind")
    assert behind.data == {"first": "default/large0"}
    told = "queue b takes nothing from other queues while default/large0 is first in it"
    assert told in found.summary
    assert told in sim.condition("b1")["message"]


def behind_one_that_may_not_start(priority: int) -> Sim:
    """The quota is for one GPU; the job that asks for two of them may not be preempted, so it never starts."""
    sim = cluster(2)
    add_queue(sim, "a", 1)
    for index in range(2):
        add_single(sim, f"low{index}", "a", priority=10)
    sim.settle(2)
    add_group(sim, "first", "a", 1, preemptibility="non-preemptible")
    add_member(sim, "first0", "first", 2, priority=50)
    sim.settle(2)
    add_single(sim, "behind", "a", 2, priority=priority)
    sim.settle(10)
    return sim


def test_that_it_would_overtake_one_that_finds_no_room() -> None:
    sim = behind_one_that_may_not_start(50)
    assert running(sim) == {"low0", "low1"}
    found = asked(sim, "behind")
    behind = next(reason for reason in found.reasons if reason.code == "QueueOvertaking")
    assert behind.data == {"first": "default/first0"}
    told = "queue a evicts nobody for it while default/first0, which asks for no more, waits before it and finds no room"
    assert told in found.summary
    assert told in sim.condition("behind")["message"]


def test_nothing_of_overtaking_where_pods_have_another_priority_of_their_own() -> None:
    """As with KAI-Scheduler: only pods of the same priority are compared, so that one that never starts stops no others."""
    assert running(behind_one_that_may_not_start(40)) == {"behind"}


def test_that_its_queue_is_at_its_limit_in_numbers() -> None:
    sim = cluster(4)
    add_queue(sim, "a", 1, limit=2)
    for index in range(3):
        add_single(sim, f"a{index}", "a")
    sim.settle(5)
    [waits] = {"a0", "a1", "a2"} - running(sim)
    found = asked(sim, waits)
    assert [(reason.code, reason.data) for reason in found.reasons] == [
        ("QueueLimit", {"resource": "gpu", "held": "2", "asked": "1", "limit": "2"})
    ]
    assert found.verdict == "unschedulable"
    assert "it holds 2 and may have 2, 1 more are asked for" in sim.condition(waits)["message"]


def test_what_exceeds_its_limit_at_once_need_not_wait_for_others() -> None:
    sim = cluster(4)
    add_queue(sim, "a", 1, limit=2)
    add_single(sim, "large", "a", 3)
    sim.settle(2)
    told = ["raise the limit of gpu of queue a to 3 (then it starts)", "ask for at most 2 gpu (not tried)"]
    assert asked(sim, "large").fixes == told
    for index in range(3):
        add_single(sim, f"a{index}", "a", priority=10)
    sim.settle(5)
    [waits] = {"a0", "a1", "a2"} - running(sim)
    told = ["raise the limit of gpu of queue a to 3 (then it starts)", "wait until pods of queue a end"]
    assert asked(sim, waits).fixes == told


def full_of_others() -> Sim:
    """Of one GPU, which a pod of a queue has that could be ended."""
    sim = cluster(1)
    add_queue(sim, "vision", 1)
    add_single(sim, "old", "vision")
    sim.settle(2)
    assert running(sim) == {"old"}
    return sim


def test_that_its_queue_does_not_exist() -> None:
    """What would make a node do is no help: nothing starts in a queue that is not there."""
    sim = full_of_others()
    add_single(sim, "p", "vison")
    found = asked(sim, "p")
    assert [reason.code for reason in found.reasons] == ["QueueMissing"]
    assert found.fixes == [
        "name queue vision, which exists, instead of vison",
        "create Queue vison, with a quota as it deserves",
    ]
    assert found.advice[0].command == "kubectl label pod p -n default --overwrite kai.scheduler/queue=vision"
    assert '"kind":"Queue"' in found.advice[1].command


def test_that_its_pod_group_does_not_exist() -> None:
    sim = full_of_others()
    add_group(sim, "train", "vision", 1)
    add_member(sim, "p", "trian")
    found = asked(sim, "p")
    assert [reason.code for reason in found.reasons] == ["PodGroupMissing"]
    assert found.fixes == [
        "name PodGroup train, which exists, instead of trian",
        "create PodGroup default/trian, with as many members as start together",
        "let the pod start without a pod group",
    ]
    assert found.advice[0].command == "kubectl annotate pod p -n default --overwrite pod-group-name=train"


def test_that_the_topology_of_its_pod_group_does_not_exist() -> None:
    sim = full_of_others()
    sim.api.put(kinds.TOPOLOGIES, {"metadata": {"name": "fabric"}, "spec": {"levels": [{"nodeLabel": "rack"}]}})
    for name, topology, level in (("p", "fabrik", "rack"), ("q", "fabric", "rak")):
        add_group(sim, name, "vision", 2, topologyConstraint={"topology": topology, "requiredTopologyLevel": level})
        for index in range(2):
            add_member(sim, f"{name}{index}", name)
    sim.settle(2)
    assert asked(sim, "p0").fixes == [
        "name Topology fabric, which exists, instead of fabrik in topologyConstraint",
        "create Topology fabrik, with the levels that count",
    ]
    assert asked(sim, "q0").fixes == ["name a level that topology fabric has in topologyConstraint instead of rak: rack"]


def test_that_its_queue_has_others_below_it() -> None:
    sim = full_of_others()
    add_queue(sim, "below", 1, parent="vision")
    add_single(sim, "p", "vision")
    found = asked(sim, "p")
    assert [reason.code for reason in found.reasons] == ["QueueHasChildren"]
    assert found.fixes == ["name a queue below it that has none itself (below)"]


def test_what_never_fits_is_told_by_the_empty_cluster_and_the_queue_besides() -> None:
    sim = lent()
    add_single(sim, "p", "b", 5)
    sim.settle(2)
    found = asked(sim, "p")
    assert found.verdict == "impossible"
    assert "(needs 5, 4 free of 4)" in found.summary
    assert "; besides, queue b would exceed its fair share of gpu" in found.summary


def test_nobody_of_the_same_work_is_to_be_ended_for_it() -> None:
    """What its owner makes again asks for the same, and a gang without one of its pods is broken."""
    sim = cluster(2)
    add_queue(sim, "team", 2)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "sum", "uid": "sum", "controller": True}
    for index in range(3):
        add_single(sim, f"w{index}", "team", priority=9 - index)
        made = sim.pod(f"w{index}")
        made["metadata"]["ownerReferences"] = [owner]
        sim.api.put(kinds.PODS, made)
        sim.settle(3)
    assert running(sim) == {"w0", "w1"}
    assert not [fix for fix in asked(sim, "w2").fixes if fix.startswith(("end ", "release "))]
    add_single(sim, "other", "team")
    sim.settle(3)
    [ended] = [fix for fix in asked(sim, "other").fixes if fix.startswith("end ")]
    assert ended.startswith("end pod default/w1, which Job/sum makes again (then")


def test_that_it_has_gates_comes_before_what_its_queue_is_like() -> None:
    sim = cluster(1)
    add_queue(sim, "team", 1)
    add_single(sim, "p", "taem", schedulingGates=[{"name": "example.com/wait"}])
    sim.settle(2)
    assert [reason.code for reason in asked(sim, "p").reasons] == ["SchedulingGated"]
    assert "has scheduling gates" in sim.condition("p")["message"]


def test_nothing_is_changed_by_asking() -> None:
    sim = lent()
    add_single(sim, "b0", "b")
    before = {key: sim.api.objects[kinds.PODS][key] for key in sim.api.objects[kinds.PODS]}
    assert asked(sim, "b0") == asked(sim, "b0")
    assert before == {key: sim.api.objects[kinds.PODS][key] for key in sim.api.objects[kinds.PODS]}


def test_of_many_pods_each_is_told_what_its_own_queue_makes_of_it() -> None:
    """Pods that ask for the same in different queues wait for different reasons."""
    sim = cluster(2)
    add_queue(sim, "a", 1, limit=1)
    add_queue(sim, "b", 1)
    for name in ("a0", "a1"):
        add_single(sim, name, "a")
    for name in ("b0", "b1"):
        add_single(sim, name, "b")
    sim.settle(5)
    told = causes(sim.world, waiting(sim.world.all(kinds.PODS).values()), now=sim.now)
    codes = {pod: {reason.code for reason in cause.reasons} for cause in told for pod in cause.pods}
    [a] = {"a0", "a1"} - running(sim)
    [b] = {"b0", "b1"} - running(sim)
    assert "QueueLimit" in codes[f"default/{a}"]
    assert "QueueShare" in codes[f"default/{b}"]


def test_of_many_pods_of_one_queue_each_is_told_what_it_says_itself() -> None:
    """They ask for the same of nodes, and each has something else wrong."""
    sim = cluster(4)
    add_queue(sim, "a", 4)
    wrong = {
        "part": "gpu-fraction",
        "gang": "dray.dev/gang",
        "lost": "pod-group-name",
        "gone": "pod-group-name",
        "four": "dray.dev/gang",
    }
    for name, annotation in wrong.items():
        add_single(sim, name, "a")
        said = {"part": "0.5", "lost": "lost", "gone": "gone"}.get(name, "four")
        sim.api.put(kinds.PODS, {**sim.pod(name), "metadata": {**sim.pod(name)["metadata"], "annotations": {annotation: said}}})
    told = causes(sim.world, waiting(sim.world.all(kinds.PODS).values()), now=sim.now)
    codes = {tuple(cause.pods): {reason.code for reason in cause.reasons} for cause in told}
    assert codes == {
        ("default/part",): {"GpuSharing"},
        ("default/four", "default/gang"): {"PodSaysUnreadable"},
        ("default/lost",): {"PodGroupMissing"},
        ("default/gone",): {"PodGroupMissing"},
    }


def test_of_a_topology_that_does_not_exist_the_levels_are_created_that_are_asked_for() -> None:
    sim = cluster(4)
    add_queue(sim, "a", 4)
    constraint = {"topology": "fabric", "requiredTopologyLevel": "rack", "preferredTopologyLevel": "host"}
    add_group(sim, "train", "a", 1, topologyConstraint=constraint)
    add_member(sim, "w0", "train")
    assert '"levels":[{"nodeLabel":"rack"},{"nodeLabel":"host"}]' in asked(sim, "w0").advice[0].command


def test_a_pod_group_of_another_namespace_is_told_of() -> None:
    sim = cluster(4)
    add_queue(sim, "a", 4)
    add_group(sim, "train", "a", 1)
    group = sim.api.objects[kinds.POD_GROUPS]["default/train"]
    sim.remove(kinds.POD_GROUPS, "default/train")
    sim.api.put(kinds.POD_GROUPS, {**group, "metadata": {**group["metadata"], "namespace": "research", "uid": "other"}})
    add_member(sim, "w0", "train")
    told = "make the pod in namespace research, where there is a PodGroup train, or the PodGroup in default"
    assert asked(sim, "w0").fixes[0] == told


def test_of_a_queue_with_others_below_it_one_is_named_that_takes_pods() -> None:
    sim = cluster(4)
    add_queue(sim, "top", 4)
    add_queue(sim, "middle", 4, parent="top")
    add_queue(sim, "low", 4, parent="middle")
    add_single(sim, "p", "top")
    [fix] = asked(sim, "p").advice
    assert fix.text == "name a queue below it that has none itself (low)"
    assert fix.command == "kubectl label pod p -n default --overwrite kai.scheduler/queue=low"


def test_who_asks_to_start_with_others_and_has_no_owner_is_a_pod_like_any_other() -> None:
    """Nobody else is of its owner's pods: where there are no queues, no session decides on it, and none is asked."""
    sim = cluster(0)
    alone = pod("p", requests={GPU: "1"})
    alone["metadata"]["annotations"] = {"dray.dev/gang": "2"}
    sim.api.put(kinds.PODS, alone)
    sim.settle(2)
    found = asked(sim, "p")
    assert found.queued is None
    assert [reason.code for reason in found.reasons] == ["ResourceUnknown"]


def _gang_beside_a_pod_that_is_promised_a_node(sim: Sim, **needs: object) -> None:
    """Two nodes with room for one each; what is nominated for one of them is in no queue and no gang."""
    add_group(sim, "train", "a", 2)
    for index in range(2):
        add_member(sim, f"w{index}", "train")
    other = pod("other", requests={GPU: "1"}, **needs)
    other["status"] = {"phase": "Pending", "nominatedNodeName": "n0"}
    sim.api.put(kinds.PODS, other)


def test_what_pods_outside_of_queues_are_promised_counts_for_a_gang() -> None:
    sim = cluster(1, 1)
    add_queue(sim, "a", 8)
    _gang_beside_a_pod_that_is_promised_a_node(sim)
    blocked = next(reason for reason in asked(sim, "w0").reasons if reason.code == "GangBlocked")
    assert blocked.data["placed"] == 1


def test_so_does_the_room_that_is_kept_while_devices_that_failed_rest() -> None:
    sim = cluster(1, 1)
    add_queue(sim, "a", 8)
    sim.add_class()
    sim.add_slice("n0", 1)
    sim.add_claim("c")
    _gang_beside_a_pod_that_is_promised_a_node(sim, claims=["c"])
    failed = FailedBinding("gpu.example.com/n0/gpu-0", "default/other", "could not be bound", at=sim.now)
    found = why(sim.world, sim.world.get(kinds.PODS, "default/w0"), now=sim.now, failures=[failed])
    blocked = next(reason for reason in found.reasons if reason.code == "GangBlocked")
    assert blocked.data["placed"] == 1


def test_who_has_to_leave_is_told_what_its_scheduler_said() -> None:
    """Not every pod that leaves makes room for one of higher priority: others take back their share, or their gang is broken."""
    sim = cluster(1)
    add_single(sim, "one", "")
    sim.settle(2)
    said = "dray: pod group default/train has fewer pods than it needs to run, for longer than its grace period"
    marked = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": said}
    made = sim.pod("one")
    sim.api.put(kinds.PODS, {**made, "status": {**made["status"], "conditions": [marked]}})
    sim.settle(1)
    summary = asked(sim, "one").summary
    assert "has to leave: pod group default/train has fewer pods than it needs to run" in summary
    assert "priority" not in summary
