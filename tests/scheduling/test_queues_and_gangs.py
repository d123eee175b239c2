"""Queues and gangs on a server: KAI's kinds as they are, all or nothing, fair shares, and room made only for who starts then."""

from __future__ import annotations

import pytest

from dray.api import kinds
from dray.cluster.port import Refused
from dray.explain.queues import survey
from dray.queues.gangs import Gang, Member, State
from dray.scheduling.workloads import jobs
from tests.scheduling.gangs import GPU, add_group, add_member, add_queue, add_single, cluster, running
from tests.scheduling.scheduling_cluster import Sim, pod


class TestGangs:
    def test_a_gang_starts_as_a_whole_or_not_at_all(self) -> None:
        sim = cluster(1, 1)
        add_queue(sim, "team", 8)
        add_group(sim, "train", "team", 3)
        for index in range(3):
            add_member(sim, f"w{index}", "train")
        sim.settle(5)
        assert running(sim) == set()
        assert "2 of 3 pods fit together" in sim.condition("w0")["message"]
        sim.add_node("n9", resources={GPU: "1"})
        sim.settle(5)
        assert running(sim) == {"w0", "w1", "w2"}

    def test_who_is_in_the_way_is_told_anew_when_it_is_another(self) -> None:
        sim = cluster(0)
        add_queue(sim, "team", 8)
        add_group(sim, "train", "team", 2)
        for index in range(2):
            add_member(sim, f"w{index}", "train")
        sim.settle(5)
        assert "no place for default/w0" in sim.condition("w0")["message"]
        sim.add_node("n9", resources={GPU: "1"})
        sim.settle(5)
        assert "no place for default/w1" in sim.condition("w0")["message"]

    def test_a_pod_group_of_one_makes_room_as_a_pod_does(self) -> None:
        """Of a group of two, one goes: nobody asks for the other."""
        sim = cluster(2)
        for name, least in (("victims", 2), ("urgent", 1)):
            policy = {"schedulingPolicy": {"gang": {"minCount": least}}}
            sim.api.put(kinds.CORE_POD_GROUPS, {"metadata": {"name": name, "namespace": "default"}, "spec": policy})
        for name in ("v0", "v1"):
            sim.add_pod(name, requests={GPU: "1"}, priority=100, schedulingGroup={"podGroupName": "victims"})
        sim.settle(5)
        assert running(sim) == {"v0", "v1"}
        sim.add_pod("u", requests={GPU: "1"}, priority=1000, schedulingGroup={"podGroupName": "urgent"})
        sim.settle(10)
        assert "u" in running(sim)
        assert len(running(sim)) == 2

    def test_members_that_wait_for_devices_on_a_node_that_goes_are_given_back_once(self) -> None:
        sim = cluster(0)
        sim.add_class()
        sim.add_slice(
            "n0", 2, bindsToNode=True, bindingConditions=["example.com/ready"], bindingFailureConditions=["example.com/no"]
        )
        add_queue(sim, "team", 8)
        add_group(sim, "train", "team", 2)
        for index in range(2):
            sim.add_claim(f"c{index}")
            add_member(sim, f"w{index}", "train", 0, claims=[f"c{index}"])
        sim.settle(5)
        assert len(sim.preparing()) == 2
        sim.remove(kinds.NODES, "n0")
        sim.settle(5)
        assert sim.preparing() == []
        assert running(sim) == set()

    def test_pods_that_are_missing_are_waited_for(self) -> None:
        sim = cluster(4)
        add_queue(sim, "team", 8)
        add_group(sim, "train", "team", 2)
        add_member(sim, "w0", "train")
        sim.settle(5)
        assert running(sim) == set()
        assert "too few pods" in sim.condition("w0")["message"]
        add_member(sim, "w1", "train")
        sim.settle(5)
        assert running(sim) == {"w0", "w1"}

    def test_above_the_minimum_pods_start_one_by_one(self) -> None:
        sim = cluster(3)
        add_queue(sim, "team", 8)
        add_group(sim, "train", "team", 1)
        for index in range(5):
            add_member(sim, f"w{index}", "train")
        sim.settle(5)
        assert len(running(sim)) == 3

    def test_members_that_share_a_claim_are_placed_together(self) -> None:
        sim = cluster(0, 0)
        sim.add_class()
        sim.add_slice("n0", 1)
        sim.add_slice("n1", 1)
        sim.add_claim("shared")
        add_queue(sim, "team", 8)
        add_group(sim, "train", "team", 2)
        add_member(sim, "w0", "train", 0, claims=["shared"])
        add_member(sim, "w1", "train", 0, claims=["shared"])
        sim.settle(5)
        assert running(sim) == {"w0", "w1"}
        assert sim.node_of("w0") == sim.node_of("w1")

    def test_the_hardest_member_goes_first_where_that_helps(self) -> None:
        """Greedily the small pods would take the only node on which the large one fits."""
        sim = cluster(2, 4)
        add_queue(sim, "team", 8)
        add_group(sim, "train", "team", 3)
        add_member(sim, "w0", "train", 1)
        add_member(sim, "w1", "train", 1)
        add_member(sim, "w2", "train", 4)
        sim.settle(5)
        assert running(sim) == {"w0", "w1", "w2"}

    def test_a_member_whose_claim_cannot_be_written_gives_all_back(self) -> None:
        sim = cluster(1, 1)
        sim.add_class()
        sim.add_slice("n0", 1)
        sim.add_slice("n1", 1)
        add_queue(sim, "team", 8)
        add_group(sim, "train", "team", 2)
        for index in range(2):
            sim.add_claim(f"c{index}")
            add_member(sim, f"w{index}", "train", 0, claims=[f"c{index}"])
        failing = Refused(500, "InternalError", "no")
        sim.fault = lambda write: failing if write.kind is kinds.RESOURCE_CLAIMS and write.name == "c1" else None
        sim.settle(0.5)
        assert running(sim) == set()
        sim.fault = None
        sim.settle(30)
        assert running(sim) == {"w0", "w1"}

    def test_what_a_sub_group_lacks_is_found_out_once_however_many_are_told(self) -> None:
        looked = list[str]()

        class Watched(Gang):
            def of(self, leaf: str, *states: State) -> list[Member]:
                looked.append(leaf)
                return super().of(leaf, *states)

        def looks(pods: int) -> int:
            sim = cluster(1)
            add_queue(sim, "team", 8)
            parts = [{"name": "leader", "minMember": 1}, {"name": "worker", "minMember": 99}]
            add_group(sim, "train", "team", 0, subGroups=parts)
            for index in range(pods):
                add_member(sim, f"w{index}", "train", labels={"kai.scheduler/subgroup-name": "worker"})
            looked.clear()
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(jobs, "Gang", Watched)
                sim.settle(2)
            assert f"{pods} of 100" in sim.condition("w0")["message"]
            return len(looked)

        assert 0 < looks(40) < 1.5 * looks(10)

    def test_a_broken_gang_is_given_up_after_its_grace(self) -> None:
        sim = cluster(2)
        add_queue(sim, "team", 8)
        add_group(sim, "train", "team", 2, stalenessGracePeriod="30s")
        for index in range(2):
            add_member(sim, f"w{index}", "train")
        sim.settle(5)
        sim.remove(kinds.PODS, "default/w1")
        sim.settle(20)
        assert running(sim) == {"w0"}
        sim.settle(20)
        assert running(sim) == set()

    def test_a_sub_group_that_the_gang_can_do_without_goes_alone_when_it_broke(self) -> None:
        sim = cluster(6)
        add_queue(sim, "team", 8)
        parts = [{"name": part, "minMember": 2} for part in ("a", "b", "c")]
        add_group(sim, "train", "team", 0, minSubGroup=2, subGroups=parts, stalenessGracePeriod="30s")
        for name in ("a0", "a1", "b0", "b1"):
            add_member(sim, name, "train", labels={"kai.scheduler/subgroup-name": name[0]})
        sim.settle(40)
        assert running(sim) == {"a0", "a1", "b0", "b1"}, "of which two sub-groups are enough runs on without the third"
        for name in ("c0", "c1"):
            add_member(sim, name, "train", labels={"kai.scheduler/subgroup-name": "c"})
        sim.settle(5)
        assert running(sim) == {"a0", "a1", "b0", "b1", "c0", "c1"}
        sim.remove(kinds.PODS, "default/a1")
        sim.settle(40)
        assert running(sim) == {"b0", "b1", "c0", "c1"}
        [told] = sim.events("StaleGang")
        assert "sub-group a of pod group default/train has fewer pods than it needs" in told["note"]
        sim.remove(kinds.PODS, "default/b1")
        sim.settle(40)
        assert running(sim) == set(), "one is not enough"

    def test_what_is_left_of_a_sub_group_that_the_gang_does_without_leaves_for_others_before_the_rest(self) -> None:
        sim = cluster(4)
        add_queue(sim, "team", 8)
        parts = [{"name": part, "minMember": 2} for part in ("a", "b")]
        add_group(sim, "train", "team", 0, minSubGroup=1, subGroups=parts, stalenessGracePeriod="300s")
        for name in ("a0", "a1", "b0", "b1"):
            add_member(sim, name, "train", labels={"kai.scheduler/subgroup-name": name[0]})
        sim.settle(5)
        sim.remove(kinds.PODS, "default/b1")
        add_single(sim, "other", "team", priority=5)
        sim.settle(5)
        assert running(sim) == {"a0", "a1", "b0", "other"}
        add_single(sim, "high", "team", priority=50)
        sim.settle(10)
        assert running(sim) == {"a0", "a1", "high", "other"}

    def test_each_sub_group_that_broke_has_its_own_grace(self) -> None:
        """It had what was left of the grace of the one before it, also where that one was whole again."""
        sim = cluster(8)
        add_queue(sim, "team", 8)
        parts = [{"name": part, "minMember": 2} for part in ("a", "b", "c", "d")]
        add_group(sim, "train", "team", 0, minSubGroup=1, subGroups=parts, stalenessGracePeriod="30s")
        for name in ("a0", "a1", "b0", "b1", "c0", "c1", "d0", "d1"):
            add_member(sim, name, "train", labels={"kai.scheduler/subgroup-name": name[0]})
        sim.settle(5)
        sim.remove(kinds.PODS, "default/a1")
        sim.remove(kinds.PODS, "default/b1")
        sim.settle(25)
        sim.remove(kinds.PODS, "default/c1")
        add_member(sim, "b1", "train", labels={"kai.scheduler/subgroup-name": "b"})
        sim.settle(25)
        assert running(sim) == {"b0", "b1", "c0", "d0", "d1"}
        sim.settle(10)
        assert running(sim) == {"b0", "b1", "d0", "d1"}

    def test_a_broken_gang_that_is_to_be_one_pod_from_now_on_is_not_broken(self) -> None:
        sim = cluster(2)
        add_queue(sim, "team", 8)
        add_group(sim, "train", "team", 2, stalenessGracePeriod="30s")
        for index in range(2):
            add_member(sim, f"w{index}", "train")
        sim.settle(5)
        sim.remove(kinds.PODS, "default/w1")
        sim.settle(5)
        add_group(sim, "train", "team", 1, stalenessGracePeriod="30s")
        sim.settle(40)
        assert running(sim) == {"w0"}
        assert sim.scheduler.workloads.jobs.stirred == {}, "nobody looks at it again and again"

    def test_an_owner_asks_for_its_pods_to_start_together(self) -> None:
        sim = cluster(1)
        add_queue(sim, "default-queue", 8)
        for index in range(2):
            made = pod(f"w{index}", requests={GPU: "1"})
            owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}
            made["metadata"] |= {"annotations": {"dray.dev/gang": "2"}, "ownerReferences": [owner]}
            sim.api.put(kinds.PODS, made)
        sim.settle(5)
        assert running(sim) == set()
        sim.add_node("n9", resources={GPU: "1"})
        sim.settle(5)
        assert running(sim) == {"w0", "w1"}

    def test_a_pod_group_of_kubernetes_starts_together_without_any_queue(self) -> None:
        sim = cluster(1)
        policy = {"schedulingPolicy": {"gang": {"minCount": 2}}}
        sim.api.put(kinds.CORE_POD_GROUPS, {"metadata": {"name": "train", "namespace": "default"}, "spec": policy})
        for index in range(2):
            made = pod(f"w{index}", requests={GPU: "1"})
            made["spec"]["schedulingGroup"] = {"podGroupName": "train"}
            sim.api.put(kinds.PODS, made)
        sim.settle(5)
        assert running(sim) == set()
        sim.add_node("n9", resources={GPU: "1"})
        sim.settle(5)
        assert running(sim) == {"w0", "w1"}

    def test_groups_nested_without_end_cost_little(self) -> None:
        sim = cluster(2)
        add_queue(sim, "team", 8)
        parts = [{"name": f"p{index}", "parent": f"p{index - 1}" if index else None, "minMember": 1} for index in range(2000)]
        add_group(sim, "deep", "team", 1, subGroups=[{key: value for key, value in part.items() if value} for part in parts])
        add_member(sim, "w", "deep", labels={"kai.scheduler/subgroup-name": "p15"})
        sim.settle(3)
        assert running(sim) == {"w"}

    def test_a_pod_group_that_comes_late_is_waited_for(self) -> None:
        sim = cluster(2)
        add_queue(sim, "team", 8)
        for index in range(2):
            add_member(sim, f"w{index}", "train")
        sim.settle(5)
        assert running(sim) == set()
        add_group(sim, "train", "team", 2)
        sim.settle(5)
        assert running(sim) == {"w0", "w1"}


class TestQueues:
    def test_nothing_changes_without_queues(self) -> None:
        sim = cluster(1)
        add_single(sim, "p", "team")
        sim.settle(5)
        assert running(sim) == {"p"}

    def test_a_pod_that_names_no_queue_is_in_the_default_queue(self) -> None:
        sim = cluster(2)
        add_queue(sim, "default-queue", 1, limit=1)
        add_single(sim, "a")
        add_single(sim, "b")
        sim.settle(5)
        assert len(running(sim)) == 1
        waits = ({"a", "b"} - running(sim)).pop()
        assert "limit" in sim.condition(waits)["message"]

    def test_where_there_is_no_default_queue_other_pods_are_as_before(self) -> None:
        sim = cluster(1)
        add_queue(sim, "team", 0, limit=0)
        add_single(sim, "p")
        sim.settle(5)
        assert running(sim) == {"p"}

    def test_a_queue_that_does_not_exist_is_told(self) -> None:
        sim = cluster(1)
        add_queue(sim, "team", 1)
        add_single(sim, "p", "taem")
        sim.settle(5)
        assert running(sim) == set()
        assert "taem" in sim.condition("p")["message"]
        add_queue(sim, "taem", 1)
        sim.settle(5)
        assert running(sim) == {"p"}

    def test_who_leaves_for_a_gang_is_told_which_member_comes_and_why(self) -> None:
        sim = cluster(2, 2)
        add_queue(sim, "a", 0)
        add_queue(sim, "b", 4)
        for index in range(2):
            add_single(sim, f"a{index}", "a", gpus=2)
        sim.settle(5)
        nodes = {f"a{index}": sim.node_of(f"a{index}") for index in range(2)}
        add_group(sim, "train", "b", 2)
        for index in range(2):
            add_member(sim, f"b{index}", "train", gpus=2)
        sim.settle(10)
        comes = {sim.node_of(f"b{index}"): sim.pod(f"b{index}")["metadata"]["uid"] for index in range(2)}
        told = {event["regarding"]["name"]: event["note"] for event in sim.events("Preempted")}
        why = "queue b takes back its share from queue a"
        assert told == {
            name: f"Preempted by pod {comes[node]} on node {node}: {why}" for name, node in nodes.items() if node is not None
        }

    def test_a_queue_below_its_share_takes_back_what_another_borrowed(self) -> None:
        sim = cluster(4)
        add_queue(sim, "a", 2)
        add_queue(sim, "b", 2)
        for index in range(4):
            add_single(sim, f"a{index}", "a")
        sim.settle(5)
        assert len(running(sim)) == 4
        for index in range(2):
            add_single(sim, f"b{index}", "b")
        sim.settle(10)
        left = running(sim)
        assert {"b0", "b1"} <= left
        assert len(left) == 4

    def test_who_was_to_start_in_the_same_session_is_not_started_only_to_be_evicted(self) -> None:
        sim = cluster(2)
        add_queue(sim, "a")
        add_queue(sim, "b", 2)
        add_single(sim, "a0", "a")
        sim.settle(2)
        add_group(sim, "train", "b", 2)
        for name in ("b0", "b1"):
            add_member(sim, name, "train")
        add_single(sim, "a1", "a")
        before = sim.pod("a1")["metadata"]["uid"]
        sim.settle(10)
        assert running(sim) == {"b0", "b1"}
        assert sim.pod("a1")["metadata"]["uid"] == before, "nobody had heard that it was to start"
        assert [write.name for write in sim.log if write.verb == "delete" and write.kind is kinds.PODS] == ["a0"]

    def test_pods_that_ask_for_the_same_find_other_things_where_other_pods_have_a_say(self) -> None:
        """The first of its namespace may go anywhere; of another namespace one is there, on a node that is full."""
        near = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "a"}}}
        affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [near]}}
        labels = {"kai.scheduler/queue": "team", "app": "a"}
        sim = cluster(1, 1)
        add_queue(sim, "team", 8)
        for number, namespace in enumerate(("one", "one", "two")):
            made = pod(f"p{number}", namespace=namespace, requests={GPU: "1"}, labels=labels, affinity=affinity)
            sim.api.put(kinds.PODS, made)
            sim.settle(3)
        assert running(sim) == {"p0", "p2"}

    def test_who_takes_back_is_promised_the_room_and_told(self) -> None:
        sim = cluster(1)
        add_queue(sim, "a", 0)
        add_queue(sim, "b", 1)
        add_single(sim, "a0", "a")
        sim.settle(3)
        sim.api.watchers.clear()  # the victim's end is not seen yet
        sim.api.watchers.append(lambda kind, obj, gone: None if gone else sim._watch(kind, obj, gone))
        add_single(sim, "b0", "b")
        sim.settle(1)
        assert sim.pod("b0")["status"]["nominatedNodeName"] == "n0"
        assert "a0" in sim.condition("b0")["message"]

    def test_who_has_left_already_is_not_named_any_more(self) -> None:
        sim = cluster(2)
        add_queue(sim, "a", 0)
        add_queue(sim, "b", 2)
        for name in ("a0", "a1"):
            add_single(sim, name, "a")
            sim.settle(2)
            sim.api.put(kinds.PODS, sim.pod(name) | {"metadata": sim.pod(name)["metadata"] | {"finalizers": ["graceful"]}})
        add_single(sim, "b0", "b", 2)
        sim.settle(3)
        assert "made room on n0: default/a0, default/a1." in sim.condition("b0")["message"]
        del sim.api.objects[kinds.PODS]["default/a0"]
        told = len(sim.log)
        sim.settle(5)
        assert "made room on n0: default/a1." in sim.condition("b0")["message"]
        assert len([write for write in sim.log[told:] if write.kind is kinds.PODS]) == 1, "once"

    def test_devices_of_a_class_are_shared_by_quota(self) -> None:
        sim = cluster(0)
        sim.add_class()
        sim.add_slice("n0", 2)
        add_queue(sim, "a", 0, **{"dray.dev/resources": '{"deviceclass/gpu": {"quota": 1, "limit": -1, "overQuotaWeight": 1}}'})
        add_queue(sim, "b", 0, **{"dray.dev/resources": '{"deviceclass/gpu": {"quota": 1, "limit": -1, "overQuotaWeight": 1}}'})
        for index in range(2):
            sim.add_claim(f"a{index}")
            add_single(sim, f"a{index}", "a", 0, claims=[f"a{index}"])
        sim.settle(5)
        assert running(sim) == {"a0", "a1"}
        sim.add_claim("b0")
        add_single(sim, "b0", "b", 0, claims=["b0"])
        sim.settle(3)
        # Claims are given back by their controller; here by hand.
        gone = ({"a0", "a1"} - running(sim)).pop()
        claim = sim.claim(gone)
        claim["status"] = {}
        sim.api.put(kinds.RESOURCE_CLAIMS, claim)
        sim.settle(5)
        assert "b0" in running(sim)
        assert len(running(sim)) == 2

    def test_a_restart_in_the_middle_changes_nothing(self) -> None:
        sim = cluster(2)
        add_queue(sim, "a", 0)
        add_queue(sim, "b", 2)
        for index in range(2):
            add_single(sim, f"a{index}", "a")
        sim.settle(3)
        add_group(sim, "train", "b", 2)
        for index in range(2):
            add_member(sim, f"w{index}", "train")
        sim.step()
        sim.restart()
        sim.settle(10)
        assert running(sim) == {"w0", "w1"}

    def test_the_status_of_a_queue_says_what_it_deserves_holds_and_waits_for(self) -> None:
        sim = cluster(2)
        add_queue(sim, "top", 2)
        add_queue(sim, "team", 2, limit=2, parent="top")
        for index in range(3):
            add_single(sim, f"p{index}", "team")
        sim.settle(20)
        for name in ("team", "top"):
            status = sim.api.objects[kinds.QUEUES][name]["status"]
            assert status["allocated"] == {GPU: "2"}
            assert status["requested"] == {GPU: "3"}
            assert status["fairShare"][GPU] == "2"
            assert status["waitingPods"] == 1
        sim.remove(kinds.PODS, "default/p0")
        sim.remove(kinds.PODS, "default/p1")
        sim.remove(kinds.PODS, "default/p2")
        sim.settle(20)
        status = sim.api.objects[kinds.QUEUES]["team"]["status"]
        assert status["allocated"] == {}
        assert status["waitingPods"] == 0

    def test_what_pods_of_no_queue_hold_on_a_node_that_takes_no_pods_is_not_taken_from_the_others(self) -> None:
        sim = cluster(4, 4)
        for index in range(4):
            sim.api.put(kinds.PODS, pod(f"other{index}", requests={GPU: "1"}, node_name="n0", phase="Running"))
        add_queue(sim, "a", 0)
        add_single(sim, "large", "a", 6)
        cordoned = sim.api.objects[kinds.NODES]["n0"]
        sim.api.put(kinds.NODES, cordoned | {"spec": {"unschedulable": True}})
        sim.settle(10)
        assert sim.api.objects[kinds.QUEUES]["a"]["status"]["fairShare"]["nvidia.com/gpu"] == "4"

    def test_the_tree_is_told_as_the_scheduler_counts(self) -> None:
        sim = cluster(8)
        add_queue(sim, "research", 8)
        add_queue(sim, "vision", 4, limit=6, parent="research")
        add_queue(sim, "speech", 2, parent="research")
        add_single(sim, "v", "vision", 5)
        add_single(sim, "s", "speech", 4)
        sim.settle(5)
        tree = survey(sim.world, sim.now)
        rows = {row.name: row for row in tree.queues}
        assert [(row.name, row.depth) for row in tree.queues] == [("research", 0), ("speech", 1), ("vision", 1)]
        assert rows["research"].allocated["gpu"] == "5"
        assert (rows["speech"].fair_share["gpu"], rows["vision"].fair_share["gpu"]) == ("3", "5")
        assert rows["speech"].waiting_pods == 1
        assert rows["vision"].limit == {"cpu": "unlimited", "gpu": "6", "memory": "unlimited"}


class TestGroupsThatComeAndGo:
    def test_pods_that_are_seen_before_their_group_start_with_it(self) -> None:
        """After a restart kinds are listed one after the other: another group makes jobs of pods whose own is not known yet."""
        sim = cluster(4)
        other = {"schedulingPolicy": {"gang": {"minCount": 2}}}
        sim.api.put(kinds.CORE_POD_GROUPS, {"metadata": {"name": "other", "namespace": "default"}, "spec": other})
        add_group(sim, "train", "", 2)
        add_member(sim, "w0", "train")
        sim.settle(5)
        sim.restart()
        add_member(sim, "w1", "train")
        sim.settle(5)
        assert running(sim) == {"w0", "w1"}

    def test_when_the_last_group_goes_its_pods_are_pods_like_any_others(self) -> None:
        sim = cluster(4)
        add_group(sim, "train", "", 3)
        for name in ("w0", "w1"):
            add_member(sim, name, "train")
        sim.settle(5)
        assert running(sim) == set()
        sim.remove(kinds.POD_GROUPS, "default/train")
        sim.settle(30)
        assert running(sim) == {"w0", "w1"}

    def test_a_pod_whose_group_is_no_gang_is_a_pod_like_any_others(self) -> None:
        """The group comes while the pod waits for it; from then on what is freed wakes the pod."""
        sim = cluster(1)
        add_group(sim, "other", "", 2)
        sim.add_pod("before", requests={GPU: "1"})
        sim.add_pod("p", requests={GPU: "1"}, schedulingGroup={"podGroupName": "one"})
        sim.settle(5)
        assert "does not exist" in sim.condition("p")["message"]
        policy = {"schedulingPolicy": {"gang": {"minCount": 1}}}
        sim.api.put(kinds.CORE_POD_GROUPS, {"metadata": {"name": "one", "namespace": "default"}, "spec": policy})
        sim.settle(5)
        assert running(sim) == {"before"}
        sim.remove(kinds.PODS, "default/before")
        sim.settle(15)
        assert running(sim) == {"p"}

    def test_a_member_with_scheduling_gates_is_told_of_its_gates(self) -> None:
        sim = cluster(4)
        add_group(sim, "train", "", 2)
        add_member(sim, "w0", "train")
        add_member(sim, "w1", "train", schedulingGates=[{"name": "example.com/wait"}])
        sim.settle(5)
        assert "1 of 2" in sim.condition("w0")["message"]
        assert sim.condition("w1")["reason"] == "SchedulingGated"
        gated = sim.pod("w1")
        del gated["spec"]["schedulingGates"]
        sim.api.put(kinds.PODS, gated)
        sim.settle(5)
        assert running(sim) == {"w0", "w1"}

    def test_a_group_of_kubernetes_is_told_of_by_its_name(self) -> None:
        sim = cluster(4)
        add_group(sim, "other", "", 2)
        sim.add_pod("w0", requests={GPU: "1"}, schedulingGroup={"podGroupName": "train"})
        sim.settle(5)
        assert "podgroup default/train does not exist" in sim.condition("w0")["message"]

    def test_a_claim_that_is_made_anew_counts_as_it_is_now(self) -> None:
        sim = cluster(1)
        sim.add_class()
        wanted = '{"deviceclass/gpu.example.com": {"quota": 0, "limit": 4, "overQuotaWeight": 1}}'
        add_queue(sim, "team", **{"dray.dev/resources": wanted.replace("gpu.example.com", "gpu")})
        sim.add_claim("c", count=5)
        made = pod("p", claims=["c"], labels={"kai.scheduler/queue": "team"})
        sim.api.put(kinds.PODS, made)
        sim.settle(5)
        before = sim.condition("p")["message"]
        sim.remove(kinds.RESOURCE_CLAIMS, "default/c")
        sim.settle(5)
        assert sim.condition("p")["message"] != before
        assert "does not exist" in sim.condition("p")["message"]


def test_a_claim_that_nobody_uses_is_given_back_so_that_its_pod_starts_elsewhere() -> None:
    """As for pods of no queue: it was allocated on a node that is full by now."""
    sim = Sim()
    for name in ("n0", "n1"):
        sim.add_node(name, cpu="4")
        sim.add_slice(name, 1)
    sim.add_class()
    add_queue(sim, "a", 1)
    sim.add_claim("c")
    sim.add_pod("before", claims=["c"])
    sim.settle(5)
    full = sim.node_of("before")
    sim.remove(kinds.PODS, "default/before")
    sim.api.put(kinds.RESOURCE_CLAIMS, {**sim.claim("c"), "status": {**sim.claim("c")["status"], "reservedFor": []}})
    sim.add_pod("full", requests={"cpu": "4"}, node_name=full, phase="Running")
    sim.add_pod("p", requests={"cpu": "1"}, claims=["c"], labels={"kai.scheduler/queue": "a"})
    sim.settle(10)
    assert {full, sim.node_of("p")} == {"n0", "n1"}


class TestWhatAnEarlierAttemptLeft:
    """One device, and a claim for extended resources that has it: made for a pod before something went wrong."""

    def cluster(self, **names: str) -> Sim:
        """Pods that all ask for the same, by group."""
        sim = Sim()
        sim.add_node("n0")
        sim.add_slice("n0", 1)
        sim.add_class(extended=GPU)
        add_queue(sim, "a", 1)
        for name, group in names.items():
            found = sim.add_pod(name, requests={GPU: "1"}, labels={"kai.scheduler/queue": "a"})
            sim.api.put(kinds.PODS, {**found, "metadata": {**found["metadata"], "annotations": {"pod-group-name": group}}})
        return sim

    def leave(self, sim: Sim, name: str) -> None:
        annotations = {"resource.kubernetes.io/extended-resource-claim": "true"}
        owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": sim.pod(name)["metadata"]["uid"], "controller": True}
        metadata = {"name": "left", "namespace": "default", "annotations": annotations, "ownerReferences": [owner]}
        request = {"name": "container-0-request-0", "exactly": {"deviceClassName": "gpu", "count": 1}}
        result = {"request": request["name"], "driver": "gpu.example.com", "pool": "n0", "device": "gpu-0"}
        status = {"allocation": {"devices": {"results": [result]}}}
        body = {"metadata": metadata, "spec": {"devices": {"requests": [request]}}, "status": status}
        sim.api.put(kinds.RESOURCE_CLAIMS, body)

    def test_a_pod_that_has_its_devices_is_not_like_one_that_has_none(self) -> None:
        sim = self.cluster(before="", having="")
        self.leave(sim, "having")
        sim.settle(10)
        assert sim.node_of("having") == "n0"

    def test_a_gang_that_cannot_start_gives_it_back(self) -> None:
        sim = self.cluster(one="g", two="g")
        add_group(sim, "g", "a", 2)
        self.leave(sim, "two")
        sim.add_claim("c")
        sim.add_pod("other", claims=["c"])
        sim.settle(10)
        assert running(sim) == {"other"}
