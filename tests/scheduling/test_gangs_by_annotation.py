"""Gangs that their pods ask for themselves: numbers that cannot be read, and pods of owners that are made anew."""

from __future__ import annotations

from typing import Any

import pytest

from dray.api import kinds
from tests.scheduling.gangs import GPU, add_queue, asked, cluster, running
from tests.scheduling.scheduling_cluster import Sim, pod
from tests.scheduling.scheduling_cluster import node as made_node

GANG = "dray.dev/gang"
JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "train-1", "controller": True}


def add(
    sim: Sim, name: str, size: str | None, owner: dict[str, Any] | None = JOB, labels: dict[str, str] | None = None, **more: str
) -> None:
    body = pod(name, requests={GPU: "1"}, labels=labels or {})
    annotations = {**({GANG: size} if size is not None else {}), **more}
    body["metadata"] |= {"annotations": annotations, **({"ownerReferences": [owner]} if owner is not None else {})}
    sim.api.put(kinds.PODS, body)


def annotate(sim: Sim, name: str, **annotations: str) -> None:
    changed = sim.pod(name)
    changed["metadata"]["annotations"] = annotations
    sim.api.put(kinds.PODS, changed)


class TestANumberThatCannotBeRead:
    @pytest.mark.parametrize("size", ["four", "0", "-2", "2.5", "", "1e3", "٤", "9" * 5000])
    def test_keeps_its_pods_waiting_and_is_told(self, size: str) -> None:
        sim = cluster(4)
        add(sim, "w0", size)
        sim.settle(5)
        assert running(sim) == set()
        told = sim.condition("w0")["message"]
        assert told.startswith(f'pod default/w0 has the annotation dray.dev/gang: "{size[:60]}')
        assert told.endswith('", which cannot be gone by: it has to be a whole number from 1 on.')
        assert len(told) < 300

    @pytest.mark.parametrize(("size", "pods"), [("2", 2), (" 2 ", 2), ("02", 2), ("1", 1)])
    def test_is_none_of_these(self, size: str, pods: int) -> None:
        sim = cluster(4)
        for index in range(pods):
            assert running(sim) == set()
            add(sim, f"w{index}", size)
            sim.settle(5)
        assert len(running(sim)) == pods

    def test_of_a_pod_that_runs_keeps_it_where_it_is(self) -> None:
        """It would not start again, so it does not move for others."""
        sim = cluster(2, 2)
        add_queue(sim, "a", 4)
        nodes = sim.api.objects[kinds.NODES]
        for index in range(2):
            for name, other in (("n0", index), ("n1", not index)):
                sim.api.put(kinds.NODES, {**nodes[name], "spec": {"unschedulable": bool(other)}})
            add(
                sim,
                f"p{index}",
                None,
                labels={"kai.scheduler/queue": "a"},
                owner={**JOB, "name": f"j{index}", "uid": f"j{index}"},
            )
            sim.settle(5)
            annotate(sim, f"p{index}", **{GANG: "one"})
        sim.api.put(kinds.NODES, {**nodes["n0"], "spec": {}})
        sim.api.put(kinds.PODS, pod("large", requests={GPU: "2"}, labels={"kai.scheduler/queue": "a"}))
        sim.settle(5)
        assert running(sim) == {"p0", "p1"}
        annotate(sim, "p0")
        sim.settle(5)
        assert "large" in running(sim), "who can be read moves"

    def test_of_a_pod_that_nobody_made_is_not_called_without_effect(self) -> None:
        sim = cluster(1)
        add_queue(sim, "a", 4)
        add(sim, "w0", "four", owner=None, labels={"kai.scheduler/queue": "a"})
        sim.settle(5)
        assert "cannot be gone by" in asked(sim, "w0").summary
        assert asked(sim, "w0").notes == []

    def test_of_one_pod_keeps_all_of_them_waiting(self) -> None:
        sim = cluster(4)
        for name, size in (("w0", "2"), ("w1", "two")):
            add(sim, name, size)
        sim.settle(5)
        assert running(sim) == set()
        assert "pod default/w1 has the annotation" in sim.condition("w0")["message"]

    def test_is_read_when_it_is_corrected(self) -> None:
        sim = cluster(4)
        for name in ("w0", "w1"):
            add(sim, name, "two")
        sim.settle(5)
        annotate(sim, "w0", **{GANG: "2"})
        sim.settle(5)
        assert running(sim) == set()
        annotate(sim, "w1", **{GANG: "2"})
        sim.settle(5)
        assert running(sim) == {"w0", "w1"}

    def test_is_told_by_dray_why_with_the_cure(self) -> None:
        sim = cluster(4)
        add(sim, "w0", "four")
        found = asked(sim, "w0")
        assert found.verdict == "impossible"
        assert found.summary.startswith(
            'pod default/w0 cannot be scheduled as it stands: it has the annotation dray.dev/gang: "four", which'
        )
        [reason] = found.reasons
        assert (reason.code, reason.data["said"]) == ("PodSaysUnreadable", 'dray.dev/gang: "four"')
        assert any('write dray.dev/gang: "4" where the pod is made' in fix for fix in found.fixes)

    def test_is_no_matter_where_a_pod_group_decides(self) -> None:
        sim = cluster(4)
        add_queue(sim, "team", 4)
        group = {"metadata": {"name": "g", "namespace": "default"}, "spec": {"queue": "team", "minMember": 1}}
        sim.api.put(kinds.POD_GROUPS, group)
        add(sim, "w0", "four", **{"pod-group-name": "g"})
        sim.settle(5)
        assert running(sim) == {"w0"}
        assert any("counts for nothing: the pod group" in note for note in asked(sim, "w0").notes)

    def test_is_told_of_a_pod_that_nobody_made(self) -> None:
        sim = cluster(4)
        add(sim, "w0", "4", owner=None)
        sim.settle(5)
        assert any(f'{GANG}: "4" counts for nothing: no controller made the pod' in note for note in asked(sim, "w0").notes)


def test_the_largest_number_counts_where_pods_disagree() -> None:
    sim = cluster(4)
    for name, size in (("w0", "3"), ("w1", "2")):
        add(sim, name, size)
    sim.settle(5)
    assert running(sim) == set()
    add(sim, "w2", "2")
    sim.settle(5)
    assert running(sim) == {"w0", "w1", "w2"}


class TestLabelsOfQueues:
    def test_whether_it_may_be_preempted_has_to_be_said_so_that_it_is_understood(self) -> None:
        sim = cluster(1)
        add_queue(sim, "team", 1)
        add(sim, "p", None, None, {"kai.scheduler/queue": "team", "kai.scheduler/preemptibility": "never"})
        sim.settle(5)
        assert running(sim) == set()
        assert "it has to be preemptible or non-preemptible" in sim.condition("p")["message"]

    def test_so_has_a_pod_group(self) -> None:
        sim = cluster(1)
        add_queue(sim, "team", 1)
        spec = {"queue": "team", "minMember": 1, "preemptibility": "never"}
        sim.api.put(kinds.POD_GROUPS, {"metadata": {"name": "g", "namespace": "default"}, "spec": spec})
        add(sim, "p", None, owner=None, **{"pod-group-name": "g"})
        sim.settle(5)
        said = "podgroup default/g cannot be used: preemptibility is 'never'; write preemptible or non-preemptible"
        assert said in sim.condition("p")["message"]

    def test_what_only_orders_pods_is_noted(self) -> None:
        sim = cluster(1)
        add_queue(sim, "team", 1)
        labels = {"kai.scheduler/queue": "team", "kai.scheduler/task-priority": "high", "priorityClassName": "nobodys"}
        add(sim, "p", None, None, labels)
        sim.settle(5)
        assert running(sim) == {"p"}
        notes = asked(sim, "p").notes
        assert 'the label kai.scheduler/task-priority: "high" counts as 0, because it is no whole number' in notes
        assert any("names PriorityClass nobodys, which does not exist" in note for note in notes)


# What these controllers write on the pods that they make.
def of_job_set(job: str, attempt: int, uid: str = "js-1") -> tuple[dict[str, Any], dict[str, str]]:
    labels = {
        "jobset.sigs.k8s.io/jobset-name": "train",
        "jobset.sigs.k8s.io/jobset-uid": uid,
        "jobset.sigs.k8s.io/restart-attempt": str(attempt),
        "jobset.sigs.k8s.io/replicatedjob-name": job,
    }
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": f"train-{job}-0", "uid": f"{job}-{attempt}", "controller": True}
    return owner, labels


def of_leader_worker_set(group: int, worker: int, revision: str = "r1") -> tuple[dict[str, Any], dict[str, str]]:
    """A leader is of the StatefulSet of all leaders, its workers are of one that has the leader's name."""
    labels = {
        "leaderworkerset.sigs.k8s.io/name": "serve",
        "leaderworkerset.sigs.k8s.io/group-index": str(group),
        "leaderworkerset.sigs.k8s.io/worker-index": str(worker),
        "leaderworkerset.sigs.k8s.io/group-key": f"hash-{group}",
        "leaderworkerset.sigs.k8s.io/template-revision-hash": revision,
    }
    name = f"serve-{group}" if worker else "serve"
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": name, "uid": f"{name}-{revision}", "controller": True}, labels


class TestOwnersThatAreMadeAnew:
    def test_the_jobs_of_a_job_set_count_together(self) -> None:
        sim = cluster(2)
        for name, job in (("driver", "driver"), ("w0", "worker"), ("w1", "worker")):
            add(sim, name, "3", *of_job_set(job, 0))
        sim.settle(5)
        assert running(sim) == set()
        told = sim.condition("driver")["message"]
        assert "podgroup default/JobSet/train cannot start as a whole: 2 of 3 pods fit together" in told
        sim.api.put(kinds.NODES, made_node("n1", resources={GPU: "1"}))
        sim.settle(5)
        assert running(sim) == {"driver", "w0", "w1"}

    def test_pods_of_the_next_attempt_do_not_join_those_of_the_last(self) -> None:
        """Its Jobs are deleted and made anew one by one: while some old pods still run, new ones wait for all of theirs."""
        sim = cluster(4)
        for name, job in (("old-driver", "driver"), ("old-worker", "worker")):
            add(sim, name, "2", *of_job_set(job, 0))
        sim.settle(5)
        sim.remove(kinds.PODS, "default/old-driver")
        add(sim, "new-driver", "2", *of_job_set("driver", 1))
        sim.settle(5)
        assert running(sim) == {"old-worker"}
        assert "has too few pods to start: 1 of 2" in sim.condition("new-driver")["message"]
        sim.remove(kinds.PODS, "default/old-worker")
        add(sim, "new-worker", "2", *of_job_set("worker", 1))
        sim.settle(5)
        assert running(sim) == {"new-driver", "new-worker"}

    def test_one_job_of_a_job_set_that_starts_again_by_itself_joins_the_others(self) -> None:
        sim = cluster(4)
        for name, job in (("driver", "driver"), ("worker", "worker")):
            add(sim, name, "2", *of_job_set(job, 0))
        sim.settle(5)
        sim.remove(kinds.PODS, "default/worker")
        add(sim, "again", "2", *of_job_set("worker", 0))
        sim.settle(5)
        assert running(sim) == {"driver", "again"}

    @pytest.mark.parametrize("again", ["Job", "JobSet"])
    def test_an_owner_of_the_same_name_is_another_one(self, again: str) -> None:
        sim = cluster(4)
        for name in ("old0", "old1"):
            add(sim, name, "2", *(of_job_set("w", 0) if again == "JobSet" else (JOB, {})))
        sim.settle(5)
        add(sim, "new0", "2", *(of_job_set("w", 0, "js-2") if again == "JobSet" else ({**JOB, "uid": "train-2"}, {})))
        sim.settle(5)
        assert running(sim) == {"old0", "old1"}

    def test_a_leader_starts_with_its_workers_and_groups_apart_from_each_other(self) -> None:
        sim = cluster(3)
        for group in range(2):
            for worker in range(2):
                add(sim, f"serve-{group}-{worker}", "2", *of_leader_worker_set(group, worker))
        sim.settle(5)
        assert running(sim) == {"serve-0-0", "serve-0-1"}
        assert "podgroup default/LeaderWorkerSet/serve-1 cannot start" in sim.condition("serve-1-0")["message"]

    def test_a_leader_of_the_next_revision_does_not_join_workers_of_the_last(self) -> None:
        sim = cluster(4)
        for worker in range(2):
            add(sim, f"old-{worker}", "2", *of_leader_worker_set(0, worker))
        sim.settle(5)
        sim.remove(kinds.PODS, "default/old-0")
        add(sim, "leader", "2", *of_leader_worker_set(0, 0, "r2"))
        sim.settle(5)
        assert running(sim) == {"old-1"}
        sim.remove(kinds.PODS, "default/old-1")
        add(sim, "worker", "2", *of_leader_worker_set(0, 1, "r2"))
        sim.settle(5)
        assert running(sim) == {"leader", "worker"}


class TestWhatPodsSayDifferently:
    def test_is_what_the_oldest_says_whoever_was_seen_first(self) -> None:
        """A scheduler that is started again goes by the same, and so does dray why."""
        found = set()
        for order in ((0, 1), (1, 0)):
            sim = cluster(4)
            for queue in ("red", "blue"):
                add_queue(sim, queue, 4)
            for index in order:
                add(sim, f"w{index}", "3", labels={"kai.scheduler/queue": ("red", "blue")[index]})
            sim.settle(2)
            job = sim.scheduler.workloads.jobs.of(sim.pod("w0")["metadata"]["uid"])
            assert job is not None
            found.add((job.queue, job.first.key))
        assert found == {("red", "default/w0")}

    def test_counts_for_another_queue_when_the_oldest_goes(self) -> None:
        sim = cluster(4)
        for queue in ("red", "blue"):
            add_queue(sim, queue, 4)
        for index in range(3):
            add(sim, f"w{index}", "1", labels={"kai.scheduler/queue": "red" if index == 0 else "blue"})
        sim.settle(5)
        assert running(sim) == {"w0", "w1", "w2"}
        allocated = sim.scheduler.workloads.use.allocated
        assert (allocated["red"]["gpu"], allocated["blue"]["gpu"]) == (3, 0)
        sim.remove(kinds.PODS, "default/w0")
        sim.settle(5)
        allocated = sim.scheduler.workloads.use.allocated
        assert (allocated["red"]["gpu"], allocated["blue"]["gpu"]) == (0, 2)

    def test_is_forgotten_with_who_said_it(self) -> None:
        sim = cluster(4)
        for index in range(3):
            add(sim, f"w{index}", "4" if index == 0 else "2")
        sim.settle(5)
        assert running(sim) == set()
        sim.remove(kinds.PODS, "default/w0")
        sim.settle(5)
        assert running(sim) == {"w1", "w2"}
