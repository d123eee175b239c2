"""``dray simulate``: what a scenario says happens at the time it says, and the same seed gives the same bytes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from dray.cli import root

Plain = dict[str, Any]


def template(name: str = "gpu", count: int = 1, device_class: str = "gpu.dray.dev", **request: Any) -> Plain:
    exactly = {"deviceClassName": device_class, "count": count, **request}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}},
    }


def pod(name: str, claims: str = "gpu", **annotations: str) -> Plain:
    named = {f"dray.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "annotations": named},
        "spec": {
            "containers": [{"name": "c", "image": "i", "resources": {"claims": [{"name": "gpu"}]}}],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": claims}],
        },
    }


def scenario(*steps: Plain, **spec: Any) -> Plain:
    given = {"until": "1m", "hardware": ["gpu8:1"], "steps": list(steps), **spec}
    return {"apiVersion": "dray.dev/v1alpha1", "kind": "Scenario", "metadata": {"name": "s"}, "spec": given}


class Simulate:
    def __init__(self, folder: Path) -> None:
        self.file = folder / "scenario.yaml"

    def __call__(self, *objects: Plain, arguments: tuple[str, ...] = ()) -> Result:
        self.file.write_text(yaml.safe_dump_all(objects))
        return CliRunner().invoke(root, ["simulate", str(self.file), *arguments])

    def report(self, *objects: Plain, arguments: tuple[str, ...] = ()) -> Plain:
        answer = self(*objects, arguments=("-o", "json", *arguments))
        assert answer.exit_code == 0, answer.output
        found: Plain = json.loads(answer.stdout)
        return found


@pytest.fixture
def simulate(tmp_path: Path) -> Simulate:
    return Simulate(tmp_path)


def pods(report: Plain) -> dict[str, Plain]:
    return {found["name"]: found for found in report["pods"]}


def test_a_pod_gets_its_devices_and_runs(simulate: Simulate) -> None:
    report = simulate.report(scenario({"at": "10s", "apply": pod("train")}), template(count=2))
    assert report.keys() >= {"seed", "until", "pods", "evictions", "events", "invariants"}
    (train,) = report["pods"]
    assert (train["namespace"], train["phase"], train["node"]) == ("default", "Running", "gpu8-0")
    assert 10 < train["boundAt"] < 12
    (claim,) = train["claims"]
    assert [device["device"] for device in claim["devices"]] == ["gpu-0", "gpu-1"]
    assert (train["numa"], train["reasons"]) == (None, [])
    assert report["invariants"]["checked"] > 0
    assert report["invariants"]["violated"] == []
    assert ("pod/default/train", "Scheduled") in [(event["object"], event["reason"]) for event in report["events"]]


def test_what_does_not_fit_waits_with_its_reason_and_runs_when_there_is_room(simulate: Simulate) -> None:
    first, second = pod("first", finishes_after="20s"), pod("second")
    steps = [{"at": "1s", "apply": first}, {"at": "5s", "apply": second}]
    early = pods(simulate.report(scenario(*steps), template(count=8), arguments=("--until", "10s")))
    assert early["second"]["phase"] == "Pending"
    assert [reason["code"] for reason in early["second"]["reasons"]] == ["NotEnoughDevices"]
    late = pods(simulate.report(scenario(*steps), template(count=8)))
    assert late["first"]["phase"] == "Succeeded"
    assert late["second"]["phase"] == "Running"
    assert late["second"]["boundAt"] > 20


def test_steps_create_many_change_and_delete(simulate: Simulate) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu8-0"}, "spec": {"unschedulable": True}}
    steps = [
        {"at": 1, "apply": pod("p"), "count": 3},
        {"at": 10, "delete": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p-1", "namespace": "default"}}},
        {"at": 20, "patch": node},
        {"at": 30, "apply": pod("late")},
    ]
    report = simulate.report(scenario(*steps), template())
    assert {name: found["phase"] for name, found in pods(report).items()} == {
        "p-0": "Running",
        "p-2": "Running",
        "late": "Pending",
    }
    assert report["evictions"] == [{"namespace": "default", "name": "p-1", "at": 10.0, "by": "user"}]
    assert [reason["code"] for reason in pods(report)["late"]["reasons"]] == ["NodeUnschedulable"]


def test_nodes_and_slices_of_ones_own_can_be_used(simulate: Simulate) -> None:
    own = [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "4", "memory": "8Gi"}}},
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": "s"},
            "spec": {
                "driver": "d.example.com",
                "nodeName": "n",
                "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": "x"}],
            },
        },
        {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "d"}, "spec": {}},
    ]
    report = simulate.report(*own, template(device_class="d"), pod("train"), arguments=("--until", "30s"))
    assert pods(report)["train"]["claims"][0]["devices"][0]["device"] == "x"


def test_what_kubectl_took_from_a_cluster_can_be_used_with_owners_and_users(simulate: Simulate) -> None:
    def of_a_server(uid: str, **metadata: Any) -> Plain:
        fields = {"manager": "x", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {}}
        times = {"creationTimestamp": "2026-01-01T00:00:00Z", "generation": 3, "managedFields": [fields]}
        return {"uid": uid, "resourceVersion": "12", **times, **metadata}

    owner = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "uid-node"}
    gone = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "uid-replicas", "controller": True}
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "d.example.com", "nodeName": "n", "pool": pool, "devices": [{"name": "x"}, {"name": "y"}]}
    ran = pod("ran")
    ran["metadata"] |= of_a_server("uid-ran", ownerReferences=[gone])
    ran["spec"] |= {"nodeName": "n", "resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]}
    result = {"request": "gpu", "driver": "d.example.com", "pool": "n", "device": "x"}
    user = {"resource": "pods", "name": "ran", "uid": "uid-ran"}
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": of_a_server("uid-c", name="c", namespace="default", finalizers=["resource.kubernetes.io/delete-protection"]),
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "d"}}]}},
        "status": {"allocation": {"devices": {"results": [result]}}, "reservedFor": [user]},
    }
    own = [
        {"apiVersion": "v1", "kind": "Node", "metadata": of_a_server("uid-node", name="n")},
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": of_a_server("uid-slice", name="s", ownerReferences=[owner]),
            "spec": spec,
        },
        {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": of_a_server("uid-class", name="d"), "spec": {}},
        ran,
        claim,
    ]
    later = scenario({"at": "2m", "apply": pod("late")}, hardware=[], until="5m")
    found = pods(simulate.report(*own, template(device_class="d"), later))
    assert {name: each["phase"] for name, each in found.items()} == {"ran": "Running", "late": "Running"}
    assert [each["claims"][0]["devices"][0]["device"] for each in (found["ran"], found["late"])] == ["x", "y"]


def test_devices_on_a_fabric_are_attached_before_the_pod_runs(simulate: Simulate) -> None:
    report = simulate.report(
        scenario({"at": "1s", "apply": pod("train")}, hardware=["fabric:1"]), template(device_class="fabric-gpu.dray.dev")
    )
    train = pods(report)["train"]
    assert train["phase"] == "Running"
    assert train["boundAt"] > 3


def test_shares_are_told_with_their_ids(simulate: Simulate) -> None:
    made = template(device_class="nic.dray.dev", capacity={"requests": {"bandwidth": "30G"}})
    report = simulate.report(scenario({"at": "1s", "apply": pod("p"), "count": 2}, hardware=["nic:1"]), made)
    ids = {device["shareID"] for found in report["pods"] for claim in found["claims"] for device in claim["devices"]}
    assert len(ids) == 2


class TestTheSameSeed:
    def run(self, file: Path, seed: int, hash_seed: str) -> bytes:
        command = [str(Path(sys.executable).parent / "dray"), "simulate", str(file), "--seed", str(seed), "-o", "json"]
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        return subprocess.run(command, capture_output=True, check=False, env=environment, timeout=100).stdout

    def test_gives_the_same_bytes_and_another_does_not(self, simulate: Simulate) -> None:
        made = [template(count=3), template("nic", device_class="nic.dray.dev")]
        steps = [
            {"at": "1s", "apply": pod("p", finishes_after="20s"), "count": 6},
            {"at": "2s", "apply": pod("n", "nic"), "count": 3},
            {"at": "15s", "crash": {"host": "scheduler", "down": "3s"}},
        ]
        simulate(scenario(*steps, hardware=["gpu8:2", "nic:1"], faults="slow"), *made)
        first = self.run(simulate.file, 7, "1")
        assert first == self.run(simulate.file, 7, "2")
        assert json.loads(first)["seed"] == 7
        assert first != self.run(simulate.file, 8, "1")


@pytest.mark.parametrize(
    "kind", ["slow", "conflicts", "lost answers", "doubtful answers", "lost watches", "away", "crashes", "everything"]
)
def test_invariants_hold_and_every_pod_ends_whatever_goes_wrong(kind: str, simulate: Simulate) -> None:
    steps = [
        {"at": "1s", "apply": pod("p", finishes_after="15s"), "count": 8},
        {"at": "20s", "crash": {"host": "controllers", "down": "5s"}},
        {"at": "25s", "crash": {"host": "scheduler", "down": "5s"}},
        {"at": "30s", "crash": {"host": "nodes", "down": "5s"}},
    ]
    faults = {"kind": kind, "until": "2m"}
    report = simulate.report(scenario(*steps, until="10m", faults=faults), template(count=4), arguments=("--seed", "5"))
    assert {found["phase"] for found in report["pods"]} == {"Succeeded"}


def test_the_server_completes_names_of_which_the_beginning_is_given(simulate: Simulate) -> None:
    made = pod("x")
    made["metadata"] = {"generateName": "train-"}
    given = (scenario({"at": "1s", "count": 2, "apply": made}), template(), made)
    report = simulate.report(*given)
    assert len({each["name"] for each in report["pods"]}) == 3
    assert all(each["name"].startswith("train-") and each["phase"] == "Running" for each in report["pods"])
    assert simulate.report(*given) == report


def test_the_table_tells_what_several_nodes_say_once(simulate: Simulate) -> None:
    answer = simulate(scenario(hardware=["gpu8:3"]), template(count=9), pod("too-much"))
    told = "3 nodes have not enough devices of class gpu.dray.dev for request gpu (needs 9, at most 8 free of 8)"
    assert answer.stdout.count(told) == 1


class TestAScenarioThatIsWrong:
    @pytest.mark.parametrize(
        ("given", "says"),
        [
            (scenario(untill="1m"), "untill"),
            (scenario(until="soon"), "spec.until: 'soon' is not a duration"),
            (scenario(hardware=["toaster"]), "unknown hardware 'toaster'"),
            (scenario(faults="gremlins"), "unknown fault 'gremlins'"),
            (scenario({"at": "1s", "crash": {"host": "moon"}}), "spec.steps[0].crash.host"),
            (scenario({"at": "1s", "apply": {"apiVersion": "v1", "kind": "Toast"}}), "spec.steps[0].apply: kind 'Toast'"),
            (scenario({"at": "1s", "apply": {"apiVersion": "v1", "kind": "Pod"}}), "Pod without metadata.name"),
            (
                scenario({"at": "1s", "delete": {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "p-"}}}),
                "Pod without metadata.name",
            ),
            (
                scenario({"at": "1s", "count": 2, "delete": {"apiVersion": "v1", "kind": "Pod", "metadata": {}}}),
                "Pod without metadata.name",
            ),
            (scenario({"at": "1s", "apply": pod("p"), "count": 0}), "spec.steps[0].count"),
        ],
    )
    def test_is_trouble_that_names_the_place(self, given: Plain, says: str, simulate: Simulate) -> None:
        answer = simulate(given)
        assert answer.exit_code == 2
        assert says in answer.stderr
        assert "scenario.yaml" in answer.stderr

    def test_objects_that_the_api_refuses_are_told(self, simulate: Simulate) -> None:
        wrong = pod("p")
        wrong["spec"]["containers"] = []
        report = simulate.report(scenario({"at": "1s", "apply": wrong}))
        assert len(report["refused"]) == 1
        assert "spec.containers" in report["refused"][0]


class TestObjectsThatAreRefusedAtTheStart:
    def wrong(self) -> Plain:
        made = pod("p")
        made["spec"]["containers"] = []
        return made

    def test_are_trouble_that_names_the_object_and_why(self, simulate: Simulate) -> None:
        answer = simulate(scenario(), template(), self.wrong())
        assert answer.exit_code == 2
        (line,) = answer.stderr.splitlines()
        assert line.startswith("error: not simulated: ")
        assert "scenario.yaml: object 3: pod/default/p: 422 Invalid" in line
        assert "spec.containers" in line
        assert "Invariants held" in answer.stdout

    def test_are_told_to_scripts_beside_those_of_later_steps(self, simulate: Simulate) -> None:
        answer = simulate(scenario({"at": "5s", "apply": self.wrong()}), self.wrong(), arguments=("-o", "json"))
        assert answer.exit_code == 2
        report = json.loads(answer.stdout)
        assert [(each["at"], each["object"]) for each in report["refusedObjects"]] == [
            (0.0, "pod/default/p"),
            (5.0, "pod/default/p"),
        ]
        assert len(report["refused"]) == 2

    def test_of_a_later_step_alone_are_no_trouble(self, simulate: Simulate) -> None:
        answer = simulate(scenario({"at": "5s", "apply": self.wrong()}))
        assert answer.exit_code == 0
        assert "rejected:" in answer.stdout


def test_people_see_pods_devices_and_what_was_checked(simulate: Simulate) -> None:
    told = simulate(scenario({"at": "10s", "apply": pod("train")}), template()).stdout
    assert "default/train" in told
    assert "gpu8-0/gpu-0" in told
    assert "Invariants held" in told


def test_a_pod_that_fits_and_is_not_placed_is_told_apart(simulate: Simulate) -> None:
    foreign = pod("foreign")
    foreign["spec"]["schedulerName"] = "somebody-else"
    assert "; scheduler somebody-else has not placed it yet." in simulate(scenario(), template(), foreign).stdout


def test_why_a_pod_waits_is_told_in_one_sentence_that_counts_nodes(simulate: Simulate) -> None:
    large = pod("large")
    large["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "1000"}
    answer = simulate(scenario(), template(), large)
    assert "  cannot be scheduled, even on an empty cluster: 0/" in answer.stdout
    [told] = simulate.report(scenario(), template(), large)["pods"]
    assert told["summary"].startswith("pod default/large cannot be scheduled, even on an empty cluster: 0/")


def test_a_drained_node_is_cordoned_and_its_pods_go(simulate: Simulate) -> None:
    steps = [{"at": "5s", "apply": pod("train")}, {"at": "20s", "drain": {"node": "gpu8-0"}}, {"at": "40s", "apply": pod("next")}]
    report = simulate.report(scenario(*steps), template())
    assert [(found["name"], found["by"], found["at"]) for found in report["evictions"]] == [("train", "user", 20.0)]
    assert [reason["code"] for reason in pods(report)["next"]["reasons"]] == ["NodeUnschedulable"]


def test_a_drain_leaves_what_a_budget_protects(simulate: Simulate) -> None:
    protected = pod("train")
    protected["metadata"]["labels"] = {"app": "a"}
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "a", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}},
    }
    report = simulate.report(scenario({"at": "20s", "drain": {"node": "gpu8-0"}}), template(), budget, protected)
    assert report["evictions"] == []
    assert pods(report)["train"]["phase"] == "Running"


def test_a_host_can_crash_at_the_very_start(simulate: Simulate) -> None:
    report = simulate.report(scenario({"at": "0s", "crash": {"host": "scheduler", "down": "5s"}}), template(), pod("train"))
    assert pods(report)["train"]["boundAt"] > 5
