"""The inspecting commands on a running cluster: ``dray up`` with two pods that fit and one that does not."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from dray.cli import root
from tests.real.upstream.embedded import dray_up

TEMPLATE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "six", "namespace": "default"},
    "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.dray.dev", "count": 6}}]}}},
}


def pod(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "containers": [{"name": "c", "image": "i", "resources": {"claims": [{"name": "gpu"}]}}],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "six"}],
        },
    }


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("live")
    manifests = folder / "pods.yaml"
    manifests.write_text(yaml.safe_dump_all([TEMPLATE, *(pod(name) for name in "abc")]))
    arguments = ["--hardware", "gpu8:2", "-f", manifests]
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("XDG_RUNTIME_DIR", str(folder))
        with dray_up(folder / "up", without="", arguments=arguments) as server:
            yield server.kubeconfig


def dray(kubeconfig: Path, *arguments: str) -> Result:
    return CliRunner().invoke(root, [*arguments, "--kubeconfig", str(kubeconfig)], catch_exceptions=False)


def eventually(ask: Callable[[], Any], done: Callable[[Any], bool]) -> Any:
    end = time.monotonic() + 20
    while not done(found := ask()):
        assert time.monotonic() < end, found
        time.sleep(0.2)
    return found


def verdicts(kubeconfig: Path) -> dict[str, str]:
    return {name: json.loads(dray(kubeconfig, "why", name, "-o", "json").stdout)["verdict"] for name in "abc"}


def test_two_pods_are_bound_and_one_is_told_why_it_is_not(kubeconfig: Path) -> None:
    found = eventually(lambda: verdicts(kubeconfig), lambda found: sorted(found.values()) == ["bound", "bound", "unschedulable"])
    (left,) = (name for name, verdict in found.items() if verdict == "unschedulable")
    answer = dray(kubeconfig, "why", left)
    assert "needs 6, at most 2 free of 8" in answer.stdout
    assert "would do" in answer.stdout


def test_devices_have_the_pods_that_use_them(kubeconfig: Path) -> None:
    def states() -> list[str]:
        return [row["state"] for row in json.loads(dray(kubeconfig, "devices", "-o", "json").stdout)["devices"]]

    found = eventually(states, lambda found: found.count("allocated") == 12)
    assert found.count("free") == 4


def test_every_rule_holds(kubeconfig: Path) -> None:
    answer = dray(kubeconfig, "verify")
    assert answer.exit_code == 0
    assert "all rules hold" in answer.stdout


def test_the_story_is_told_from_events(kubeconfig: Path) -> None:
    eventually(lambda: verdicts(kubeconfig), lambda found: "bound" in found.values())
    bound = next(name for name, verdict in verdicts(kubeconfig).items() if verdict == "bound")
    told = eventually(lambda: dray(kubeconfig, "story", bound).stdout, lambda told: "Scheduled" in told)
    assert "created" in told


def test_a_cluster_that_does_not_answer_is_trouble(tmp_path: Path) -> None:
    answer = dray(tmp_path / "none", "verify")
    assert answer.exit_code == 2
    assert "does not exist" in answer.stderr


class TestACommandThatIsToldNoCluster:
    def ask(self, monkeypatch: pytest.MonkeyPatch, home: Path) -> Result:
        monkeypatch.setenv("HOME", str(home))
        monkeypatch.delenv("KUBECONFIG", raising=False)
        monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
        return CliRunner().invoke(root, ["devices", "-o", "json"])

    def test_finds_the_one_that_runs(self, kubeconfig: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        assert kubeconfig.exists()
        found = eventually(lambda: self.ask(monkeypatch, tmp_path), lambda result: result.exit_code == 0)
        assert len(json.loads(found.stdout)["devices"]) == 16

    def test_takes_what_kubectl_would_take_first(self, kubeconfig: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        assert kubeconfig.exists()
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
        assert "none of the files in KUBECONFIG exists" in CliRunner().invoke(root, ["devices"]).stderr

    def test_does_not_find_what_was_killed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
        left = tmp_path / "dray" / "running" / "999999999"
        left.parent.mkdir(parents=True)
        left.write_text(str(tmp_path / "kc"))
        told = self.ask(monkeypatch, tmp_path).stderr
        assert "no kubeconfig found" in told
        assert "make a cluster with `dray up`" in told
        assert not left.exists()

    def test_asks_which_where_several_run(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
        for number, name in ((os.getpid(), "one"), (os.getppid(), "two")):
            (tmp_path / name).write_text("")
            file = tmp_path / "dray" / "running" / str(number)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(str(tmp_path / name))
        found = self.ask(monkeypatch, tmp_path)
        assert found.exit_code == 2
        assert "choose one with --kubeconfig" in found.stderr


def test_features_are_switched_as_the_cluster_says(tmp_path: Path) -> None:
    limits = {"limits": {"dray.dev/gpu": "1"}}
    classic = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "classic", "namespace": "default"}}
    classic["spec"] = {"containers": [{"name": "c", "image": "i", "resources": limits}]}
    manifest, taken = tmp_path / "pod.yaml", tmp_path / "now.json"
    manifest.write_text(yaml.safe_dump(classic))
    arguments = ["--hardware", "gpu8:1", "--feature-gates", "DRAExtendedResource=false", "-f", manifest]
    with dray_up(tmp_path / "up", without="", arguments=arguments) as server:
        told = dray(server.kubeconfig, "why", "classic").output
        assert dray(server.kubeconfig, "snapshot", "-o", str(taken)).exit_code == 0
    assert "1 node does not offer dray.dev/gpu" in told
    later = CliRunner().invoke(root, ["why", "classic", "-f", str(taken)], catch_exceptions=False).output
    assert "1 node does not offer dray.dev/gpu" in later
