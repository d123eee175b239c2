"""``dray snapshot``: one file that says what is in it and what is not, holds no secrets, and answers as the cluster does."""

from __future__ import annotations

import json
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from dray.api.kinds import DEPLOYMENTS, PODS
from dray.cli import root
from dray.explain.snapshot import from_files
from dray.explain.taking import trimmed
from tests.inspect.conftest import Plain, healthy, node, pod
from tests.inspect.test_rights import Server, dray, kubeconfig, server

__all__ = ["kubeconfig", "server"]


def taken(kubeconfig: Path, file: Path, *arguments: str) -> Plain:
    answer = dray(kubeconfig, "snapshot", "-o", str(file), *arguments)
    assert answer.exit_code == 0, answer.output
    found: Plain = json.loads(file.read_text())
    return found


def asked(*arguments: str) -> Any:
    return CliRunner().invoke(root, list(arguments), catch_exceptions=False)


def test_the_file_says_when_from_what_and_what_is_in_it(server: Server, kubeconfig: Path, tmp_path: Path) -> None:
    file = tmp_path / "now.json"
    found = taken(kubeconfig, file, "--feature-gates", "DRADeviceTaints=false")
    header = found["header"]
    assert (found["apiVersion"], found["kind"]) == ("dray.dev/v1alpha1", "Snapshot")
    assert header["serverVersion"] == "v1.37.1"
    assert header["takenBy"].startswith("dray ")
    assert header["kinds"]["resourceclaims.resource.k8s.io"] == {"version": "v1", "objects": 1, "resourceVersion": "1"}
    assert header["kinds"]["persistentvolumeclaims"]["objects"] == 0
    assert header["featureGates"] == {"DRADeviceTaints": False}
    assert "unread" not in header
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(tmp_path.glob(".now.json*")) == []


def test_answers_from_the_file_are_those_of_the_cluster(server: Server, kubeconfig: Path, tmp_path: Path) -> None:
    file = tmp_path / "now.json"
    taken(kubeconfig, file)
    for command in (("devices",), ("verify",), ("why", "train", "-n", "ns")):
        live = dray(kubeconfig, *command, "-o", "json")
        saved = asked(*command, "-o", "json", "-f", str(file))
        assert (saved.exit_code, saved.stderr) == (live.exit_code, live.stderr)
        assert json.loads(saved.stdout) == json.loads(live.stdout)


def test_a_kind_that_could_not_be_listed_is_named_and_never_empty(server: Server, kubeconfig: Path, tmp_path: Path) -> None:
    file = tmp_path / "now.json"
    server.hidden = ("resourceslices", "persistentvolumeclaims")
    answer = dray(kubeconfig, "snapshot", "-o", str(file))
    assert answer.exit_code == 0
    assert "you may not list persistentvolumeclaims, resourceslices.resource.k8s.io" in answer.stderr
    unread = json.loads(file.read_text())["header"]["unread"]
    assert unread["resourceslices.resource.k8s.io"]["code"] == 403
    verified = asked("verify", "-f", str(file))
    assert verified.exit_code == 2
    assert "could not be listed when the snapshot was taken" in verified.stderr


def with_volume(name: str) -> Plain:
    made = pod("train", node="")
    made["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]
    return made


def test_what_a_pod_needs_of_a_kind_that_is_not_there_is_not_called_missing(tmp_path: Path) -> None:
    file = tmp_path / "some.yaml"
    file.write_text(yaml.safe_dump_all([node("n1"), with_volume("data")]))
    told = json.loads(asked("why", "train", "-n", "ns", "-f", str(file), "-o", "json").stdout)
    assert [reason["code"] for reason in told["reasons"]] == ["NotRead"]
    assert told["verdict"] == "unschedulable"
    assert "persistentvolumeclaims ns/data (the files have no persistentvolumeclaims)" in told["summary"]
    assert "cannot be told: pod ns/train depends on an object of which nothing is known" in told["summary"]


def test_of_a_kind_that_was_read_what_is_not_there_is_missing(tmp_path: Path) -> None:
    file = tmp_path / "some.yaml"
    other: Plain = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "other", "namespace": "ns"}}
    file.write_text(yaml.safe_dump_all([node("n1"), with_volume("data"), other]))
    told = json.loads(asked("why", "train", "-n", "ns", "-f", str(file), "-o", "json").stdout)
    assert [reason["code"] for reason in told["reasons"]] == ["VolumeClaimMissing"]


def test_secrets_and_what_may_hold_some_are_not_in_the_file(server: Server, kubeconfig: Path, tmp_path: Path) -> None:
    hidden = pod("hidden")
    metadata = hidden["metadata"]
    metadata["managedFields"] = [{"manager": "TOP-SECRET"}]
    metadata["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": "TOP-SECRET", "kept": "yes"}
    hidden["spec"]["containers"] = [
        {
            "name": "c",
            "image": "i",
            "command": ["run", "--token=TOP-SECRET"],
            "env": [{"name": "PASSWORD", "value": "TOP-SECRET"}, {"name": "REF", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}],
        }
    ]
    secret: Plain = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s", "namespace": "ns"},
        "data": {"x": "TOP-SECRET"},
    }
    server.objects += [hidden, secret]
    file = tmp_path / "now.json"
    taken(kubeconfig, file)
    assert "TOP-SECRET" not in file.read_text()
    (kept,) = [body for body in from_files([file]).plain(PODS) if body["metadata"]["name"] == "hidden"]
    assert kept["metadata"]["annotations"] == {"kept": "yes"}
    (container,) = kept["spec"]["containers"]
    assert container["env"] == [{"name": "PASSWORD"}, {"name": "REF", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}]


def test_a_workload_and_its_template_are_trimmed_alike() -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "args": ["x"]}]}}
    body = {"metadata": {"name": "d"}, "spec": {"replicas": 1, "template": template}}
    cut = trimmed(DEPLOYMENTS, body)
    assert cut["spec"] == {
        "replicas": 1,
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c"}]}},
    }
    assert template["spec"]["containers"] == [{"name": "c", "args": ["x"]}]  # type: ignore[index]


def test_a_header_that_is_none_is_named(tmp_path: Path) -> None:
    file = tmp_path / "now.json"
    file.write_text('{"apiVersion": "dray.dev/v1alpha1", "kind": "Snapshot", "items": []}')
    answer = asked("verify", "-f", str(file))
    assert answer.exit_code == 2
    assert "now.json: document 1: header:" in answer.stderr


def test_how_pods_are_placed_goes_along(server: Server, kubeconfig: Path, tmp_path: Path) -> None:
    config, file = tmp_path / "config.yaml", tmp_path / "now.json"
    arguments = {"kind": "NodeAffinityArgs", "addedAffinity": _only("elsewhere")}
    profile = {"schedulerName": "dray", "pluginConfig": [{"name": "NodeAffinity", "args": arguments}]}
    config.write_text(
        yaml.safe_dump(
            {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", "profiles": [profile]}
        )
    )
    server.objects = [*healthy(), pod("waits", node="")]
    taken(kubeconfig, file, "--config", str(config))
    told = json.loads(asked("why", "waits", "-n", "ns", "-f", str(file), "-o", "json").stdout)
    assert [reason["code"] for reason in told["reasons"]] == ["NodeSelectorMismatch"]


def _only(name: str) -> Plain:
    terms = [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [name]}]}]
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}


@pytest.mark.parametrize("where", ["nowhere/now.json"])
def test_a_folder_that_is_not_there_is_said(server: Server, kubeconfig: Path, tmp_path: Path, where: str) -> None:
    answer = dray(kubeconfig, "snapshot", "-o", str(tmp_path / where))
    assert answer.exit_code == 2
    assert "is not a directory" in answer.stderr


def test_a_folder_is_no_file(server: Server, kubeconfig: Path, tmp_path: Path) -> None:
    answer = dray(kubeconfig, "snapshot", "-o", str(tmp_path))
    assert (answer.exit_code, answer.stderr) == (2, f"Error: {tmp_path}: Is a directory\n")


def test_what_is_no_file_is_written_to_and_stays_what_it_is(server: Server, kubeconfig: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor() as beside:
        read = beside.submit(pipe.read_bytes)
        assert dray(kubeconfig, "snapshot", "-o", str(pipe)).exit_code == 0
    assert json.loads(read.result())["kind"] == "Snapshot"
    assert pipe.is_fifo()


def test_a_link_stays_one(server: Server, kubeconfig: Path, tmp_path: Path) -> None:
    (tmp_path / "latest.json").symlink_to(tmp_path / "monday.json")
    taken(kubeconfig, tmp_path / "latest.json")
    assert (tmp_path / "latest.json").is_symlink()
    assert stat.S_IMODE((tmp_path / "monday.json").stat().st_mode) == 0o600


def test_a_dash_is_standard_output(server: Server, kubeconfig: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    answer = dray(kubeconfig, "snapshot", "-o", "-")
    assert json.loads(answer.stdout)["kind"] == "Snapshot"
    assert not (tmp_path / "-").exists()


def of_gang(name: str, **spec: Any) -> Plain:
    body = {"metadata": {"name": name, "namespace": "ns"}, "spec": {"minMember": 1, **spec}}
    return {"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup", **body}


@pytest.mark.parametrize(
    ("group", "unread"),
    [
        (of_gang("train", queue="team"), "queues.scheduling.run.ai team"),
        (of_gang("other"), ""),
        (
            of_gang("train", topologyConstraint={"topology": "racks", "requiredTopologyLevel": "rack"}),
            "topologies.kai.scheduler racks",
        ),
    ],
)
def test_a_queue_or_topology_of_a_kind_that_is_not_there_is_not_called_missing(tmp_path: Path, group: Plain, unread: str) -> None:
    """A pod group that is not there although others are is missing indeed."""
    file, made = tmp_path / "some.yaml", pod("train", node="")
    made["metadata"]["annotations"] = {"pod-group-name": "train"}
    file.write_text(yaml.safe_dump_all([node("n1"), made, group]))
    told = json.loads(asked("why", "train", "-n", "ns", "-f", str(file), "-o", "json").stdout)
    assert [reason["code"] for reason in told["reasons"]] == ["NotRead" if unread else "PodGroupMissing"]
    expected = f"depends on an object of which nothing is known: {unread} (the files have no {unread.partition(' ')[0]})"
    assert (expected if unread else "podgroup ns/train does not exist") in told["summary"]


def test_what_files_have_nothing_of_is_warned_of_where_the_answer_goes_by_it(tmp_path: Path) -> None:
    file = tmp_path / "pods.yaml"
    file.write_text(yaml.safe_dump_all([node("n"), pod("p")]))
    for command in (("why",), ("plan", "--cordon", "n"), ("simulate", "--from-cluster", "--until", "1s")):
        told = asked(*command, "--snapshot", str(file)).stderr
        assert told.startswith("warning: the files have no resource"), command
        assert "nodes" not in told
