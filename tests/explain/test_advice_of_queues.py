"""What ``dray why`` advises to pods of queues was tried in a session: each advice, followed, starts the pod."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

from dray.api import kinds
from tests.scheduling.gangs import GPU, add_group, add_member, add_queue, add_single, asked, cluster, running
from tests.scheduling.scheduling_cluster import Sim, pod


def add_fixed(sim: Sim, name: str, queue: str, gpus: int = 1) -> None:
    """A pod that cannot be preempted."""
    labels = {"kai.scheduler/queue": queue, "kai.scheduler/preemptibility": "non-preemptible"}
    sim.api.put(kinds.PODS, pod(name, requests={GPU: str(gpus)}, labels=labels))


def follow(sim: Sim, command: str) -> None:
    """What the commands do, with the patches that they have."""
    for line in command.splitlines():
        words = shlex.split(line)
        if words[:3] == ["kubectl", "delete", "pod"]:
            sim.remove(kinds.PODS, f"default/{words[3]}")
            continue
        if words[1] == "label":
            body = sim.pod(words[3])
            name, _, value = words[-1].partition("=")
            sim.api.put(
                kinds.PODS, {**body, "metadata": {**body["metadata"], "labels": {**body["metadata"]["labels"], name: value}}}
            )
            continue
        assert words[:2] == ["kubectl", "patch"]
        kind = {"queues.scheduling.run.ai": kinds.QUEUES, "podgroups.scheduling.run.ai": kinds.POD_GROUPS}[words[2]]
        key = words[3] if kind is kinds.QUEUES else f"default/{words[3]}"
        sim.api.put(kind, merged(sim.api.objects[kind][key], json.loads(words[-1])))


def merged(body: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    return {
        **body,
        **{name: merged(body.get(name) or {}, each) if isinstance(each, dict) else each for name, each in patch.items()},
    }


def followed(sim: Sim, name: str, begins: str) -> str:
    """The advice that begins so, which is followed."""
    [fix] = [fix for fix in asked(sim, name).advice if fix.text.startswith(begins)]
    follow(sim, fix.command)
    sim.settle(20)
    return fix.told


def test_a_limit_is_raised_beyond_what_the_queue_holds() -> None:
    sim = cluster(8)
    add_queue(sim, "a", 8, limit=2)
    add_single(sim, "old", "a", 1)
    sim.settle(5)
    add_single(sim, "p", "a", 3)
    assert followed(sim, "p", "raise the limit") == "raise the limit of gpu of queue a to 4 (then it starts)"
    assert "p" in running(sim)


def test_limits_above_are_raised_too() -> None:
    sim = cluster(8)
    add_queue(sim, "top", 8, limit=2)
    add_queue(sim, "a", 8, parent="top", limit=1)
    add_queue(sim, "b", 8, parent="top", limit=-1)
    add_single(sim, "old", "b", 1)
    sim.settle(5)
    add_single(sim, "p", "a", 2)
    told = followed(sim, "p", "raise the limit")
    assert told == "raise the limit of gpu of queue a to 2, raise the limit of gpu of queue top to 3 (then it starts)"
    assert "p" in running(sim)


def test_a_limit_that_is_not_all_is_said_to_be_not_all() -> None:
    sim = cluster(2)
    add_queue(sim, "a", 2, limit=1)
    add_queue(sim, "b", 2)
    add_single(sim, "old", "b", 2)
    sim.settle(5)
    add_single(sim, "p", "a", 2)
    [fix] = [fix for fix in asked(sim, "p").advice if fix.text.startswith("raise")]
    assert fix.told.startswith("raise the limit of gpu of queue a to 2 (that alone would not do: ")
    assert "0/1 nodes are available" in fix.told


def test_what_would_do_is_told_before_what_would_not_alone_and_that_says_only_what_is_new() -> None:
    sim = cluster(4)
    for queue in ("a", "b"):
        add_queue(sim, queue, 2)
        for number in range(2):
            add_single(sim, f"{queue}{number}", queue, 1)
    sim.settle(5)
    add_single(sim, "p", "a", 2)
    sim.settle(5)
    first, *others, last = asked(sim, "p").fixes
    assert first == "end pods default/a1, default/b0 (then node n0 would do)"
    assert others == ["add a node like n0, which would do when empty", "wait until pods of other queues end"]
    assert last == (
        "raise the quota of gpu of queue a to 4 (that alone would not do: queue a cannot take back enough of gpu: it holds 2 and "
        "deserves 4, 2 more are asked for, 0 are free, and other queues hold no more than their shares)"
    )


def test_the_quota_of_what_cannot_be_preempted() -> None:
    for way in (
        "raise the quota of gpu of queue a to 2 (then it starts)",
        "let it be preempted, by the label of its pods (then it starts)",
    ):
        sim = cluster(4)
        add_queue(sim, "a", 1)
        for name in ("old", "p"):
            add_fixed(sim, name, "a")
            sim.settle(5)
        assert followed(sim, "p", way.partition(" (")[0]) == way
        assert "p" in running(sim)


def test_a_pod_group_is_let_be_preempted() -> None:
    sim = cluster(4)
    add_queue(sim, "a", 1)
    add_group(sim, "train", "a", 2, preemptibility="non-preemptible")
    for index in range(2):
        add_member(sim, f"w{index}", "train")
    sim.settle(5)
    told = followed(sim, "w0", "let podgroup")
    assert told == "let podgroup default/train be preempted (then all 2 pods start together)"
    assert running(sim) == {"w0", "w1"}


def test_a_quota_that_takes_back_says_from_whom() -> None:
    sim = cluster(4)
    add_queue(sim, "a", 3)
    add_queue(sim, "b", 1)
    for index in range(3):
        add_single(sim, f"a{index}", "a")
    add_single(sim, "b0", "b")
    sim.settle(5)
    add_single(sim, "b1", "b")
    sim.settle(5)
    told = asked(sim, "b1")
    assert "fair share" in told.summary
    [fix] = [fix for fix in told.advice if fix.text.startswith("raise the quota")]
    follow(sim, fix.command)
    sim.settle(20)
    if "would not do" in fix.text:
        assert "b1" not in running(sim)
    else:
        assert "b1" in running(sim)


def test_room_that_another_queue_takes_first_is_no_advice() -> None:
    """One GPU more starts the pod of the queue that has less of its share, and this one waits on."""
    sim = cluster(4)
    add_queue(sim, "a", 2)
    add_queue(sim, "b", 2)
    for index in range(2):
        add_fixed(sim, f"a{index}", "a")
    add_fixed(sim, "b0", "b", 2)
    sim.settle(5)
    add_single(sim, "first", "b", priority=50)
    add_single(sim, "p", "b")
    sim.settle(5)
    found = asked(sim, "p")
    assert not [fix for fix in found.advice if fix.text.startswith("end pod")], found.fixes
    assert "add a node like n0, which would do when empty" in found.fixes, "that is enough for both"
    assert any("it is the turn of default/first before" in note for note in found.notes), found.notes
    first = asked(sim, "first")
    [fix] = [fix for fix in first.advice if fix.text.startswith("end pod")][:1]
    follow(sim, fix.command)
    sim.settle(20)
    assert "first" in running(sim)
    assert "p" not in running(sim)


@pytest.mark.parametrize("again", [False, True])
def test_room_that_goes_back_to_what_a_controller_makes_again_is_no_advice(again: bool) -> None:
    """The new pod waits before the room of the old one is free, and its queue is below its quota then."""
    sim = cluster(3)
    add_queue(sim, "a", 0)
    add_queue(sim, "b", 3)
    for index in range(3):
        sim.api.put(kinds.PODS, pod(f"b{index}", requests={GPU: "1"}, labels={"kai.scheduler/queue": "b"}, again=again))
    sim.settle(5)
    add_single(sim, "p", "a")
    sim.settle(5)
    found = asked(sim, "p")
    ending = [fix for fix in found.advice if fix.text.startswith("end pod")]
    if not again:
        follow(sim, ending[0].command)
        sim.settle(20)
        assert "p" in running(sim)
        return
    assert ending == []
    assert any("end pod" in note and "it is the turn of what Work/work makes again" in note for note in found.notes)


def test_who_is_made_again_with_a_claim_of_its_own_asks_for_devices_again() -> None:
    sim = cluster(0)
    sim.add_class("gpu.nvidia.com")
    sim.add_slice("n0", 2)
    add_queue(sim, "a", 1)
    add_queue(sim, "b", 1)
    for name, queue in (("a0", "a"), ("b0", "b"), ("p", "a")):
        made = pod(name, labels={"kai.scheduler/queue": queue}, claims=[name], again=True)
        made["metadata"]["ownerReferences"][0]["uid"] = queue
        sim.api.put(kinds.PODS, made)
        owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": sim.pod(name)["metadata"]["uid"], "controller": True}
        request = {"name": "req", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": 1}}
        spec = {"devices": {"requests": [request]}}
        sim.add_claim(name, spec=spec, metadata={"ownerReferences": [owner]})
        sim.settle(5)
    assert running(sim) == {"a0", "b0"}
    found = asked(sim, "p")
    assert [fix.text for fix in found.advice if "b0" in fix.text] == []
    assert any("b0" in note and "makes again" in note for note in found.notes), found.notes
