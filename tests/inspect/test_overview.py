"""``dray why`` without a pod, and for workloads: who waits, by cause, worst first."""

from __future__ import annotations

import json
from typing import Any

import yaml

from tests.inspect.conftest import Plain, Run, claim, healthy, node, pod


def owned(each: Plain, kind: str, name: str) -> Plain:
    owner = {"apiVersion": "v1", "kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}
    return {**each, "metadata": {**each["metadata"], "ownerReferences": [owner]}}


def replica_set(name: str, deployment: str) -> Plain:
    made = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name, "namespace": "ns"}, "spec": {}}
    return owned(made, "Deployment", deployment)


def objects() -> list[Plain]:
    """Three pods wait for devices, one for a claim that does not exist, one only for its scheduler."""
    many = [each for i in range(3) for each in (claim(f"c{i}", count=2), owned(pod(f"w{i}", f"c{i}"), "ReplicaSet", "web-1"))]
    busy = pod("busy", node="n2", cpu="7500m")
    full = pod("full", node="n1", cpu="6500m")
    return [*healthy(), busy, full, *many, replica_set("web-1", "web"), pod("lost", "none"), pod("small", cpu="100m")]


def ask(dray: Run, *arguments: str) -> dict[str, Any]:
    answer = dray("why", objects(), *arguments, "-o", "json")
    assert answer.exit_code == 0, answer.output
    found: dict[str, Any] = json.loads(answer.stdout)
    return found


def test_all_that_wait_are_told_by_cause_worst_first(dray: Run) -> None:
    found = ask(dray)
    assert (found["pods"], found["waiting"]) == (8, 5)
    assert [(cause["verdict"], cause["pods"]) for cause in found["causes"]] == [
        ("impossible", ["ns/lost"]),
        ("unschedulable", ["ns/w0", "ns/w1", "ns/w2"]),
        ("waiting", ["ns/small"]),
    ]
    assert not any("ns/w0" in cause["summary"] for cause in found["causes"])
    assert {"verdict", "summary", "pods", "reasons", "fixes", "advice"} <= found["causes"][0].keys()


def test_yaml_is_the_same_and_people_read_a_paragraph_for_each(dray: Run) -> None:
    assert yaml.safe_load(dray("why", objects(), "-o", "yaml").stdout) == ask(dray)
    shown = dray("why", objects()).stdout
    assert shown.startswith("impossible  1 pod: cannot be scheduled as it stands: claim ns/none does not exist.")
    assert "unschedulable  3 pods: cannot be scheduled now" in shown
    assert "  ns/w0, ns/w1, ns/w2\n" in shown


def test_a_namespace_narrows_it(dray: Run) -> None:
    assert ask(dray, "-n", "other")["pods"] == 0
    assert dray("why", objects(), "-n", "other").stdout == "No pods found.\n"


def test_nobody_waits(dray: Run) -> None:
    assert dray("why", healthy()).stdout == "No pods are pending.\n"


def test_all_namespaces_are_asked_for_as_with_kubectl(dray: Run) -> None:
    assert dray("why", objects(), "-A").stdout == dray("why", objects()).stdout
    for one in (("-A", "-n", "ns"), ("w0", "-A")):
        answer = dray("why", objects(), *one)
        assert answer.exit_code == 2
        assert "-A cannot be combined" in answer.stderr


class TestAWorkload:
    def test_of_which_no_pod_waits_says_where_they_are(self, dray: Run) -> None:
        placed = [owned(pod(name, node=on), "Job", "train") for name, on in (("a", "n1"), ("b", "n1"), ("c", "n2"))]
        ended = owned(pod("d", node="n2", phase="Succeeded"), "Job", "train")
        told = dray("why", [node("n1"), node("n2"), *placed, ended], "job/train", "-n", "ns").stdout
        assert told == (
            "No pods are pending.\n4 pods: 2 on n1, 1 on n2, 1 finished. `dray why POD` explains the placement of one.\n"
        )

    def test_is_its_pods(self, dray: Run) -> None:
        (cause,) = ask(dray, "deploy/web", "-n", "ns")["causes"]
        assert cause["pods"] == ["ns/w0", "ns/w1", "ns/w2"]
        assert ask(dray, "rs/web-1", "-n", "ns")["waiting"] == 3

    def test_with_one_pod_is_that_pod(self, dray: Run) -> None:
        alone = owned(pod("train-x"), "Job", "train")
        answer = dray("why", [node("n1"), alone], "job/train", "-n", "ns", "-o", "json")
        assert json.loads(answer.stdout)["pod"] == "ns/train-x"

    def test_without_pods_is_trouble(self, dray: Run) -> None:
        answer = dray("why", objects(), "job/none", "-n", "ns")
        assert answer.exit_code == 2
        assert 'Job "none" has no pods in namespace "ns"' in answer.stderr


def test_a_pod_that_is_being_preempted_says_so_and_for_whom(dray: Run) -> None:
    low = pod("low", node="n1")
    low["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    low["status"]["conditions"] = [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]
    high = pod("high", priority=10)
    high["status"]["nominatedNodeName"] = "n1"
    told = dray("why", [node("n1"), low, high], "low", "-n", "ns").stdout
    assert told == "bound  pod ns/low is on node n1 (Running), and is being preempted: it makes room for ns/high.\n"
