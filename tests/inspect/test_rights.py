"""What a cluster does not show is never taken for nothing: commands name what they may not read, and prove nothing without it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from dray.api.kinds import DEVICE_TAINT_RULES, QUEUES, Kind
from dray.cli import root, source
from dray.cluster.port import Forbidden, NotFound
from tests.inspect.conftest import Plain, healthy

RULE = {
    "apiVersion": "resource.k8s.io/v1beta2",
    "kind": "DeviceTaintRule",
    "metadata": {"name": "maintenance"},
    "spec": {
        "deviceSelector": {"driver": "gpu.example.com", "device": "g1"},
        "taint": {"key": "example.com/broken", "effect": "NoSchedule"},
    },
}


class Server:
    """Answers lists as an API server does for somebody with few rights, or in versions of its own."""

    def __init__(self, objects: list[Plain]) -> None:
        self.objects = objects
        self.hidden: tuple[str, ...] = ()
        self.unserved: tuple[str, ...] = ()
        self.unauthorized = False

    async def list(self, kind: Kind, **_: Any) -> tuple[list[bytes], str]:
        if self.unauthorized:
            raise Forbidden(401, "Unauthorized", "Unauthorized")
        if kind.plural in self.hidden:
            raise Forbidden(403, "Forbidden", f'{kind.plural} is forbidden: User "eve" cannot list')
        if f"{kind.plural}/{kind.version}" in self.unserved:
            raise NotFound(404, "NotFound", "the server could not find the requested resource")
        found = [body for body in self.objects if (body["apiVersion"], body["kind"]) == (kind.api_version, kind.kind)]
        return [json.dumps({**body, "metadata": {"uid": "u", **body["metadata"]}}).encode() for body in found], "1"

    async def version(self) -> str:
        return "v1.37.1"

    async def close(self) -> None: ...


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    made = Server([*healthy(), RULE])
    monkeypatch.setattr(source, "Remote", lambda access: made)
    return made


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    file = tmp_path / "kubeconfig"
    file.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
                "users": [{"name": "u", "user": {}}],
            }
        )
    )
    return file


def dray(kubeconfig: Path, *arguments: str) -> Result:
    return CliRunner().invoke(root, [*arguments, "--kubeconfig", str(kubeconfig)], catch_exceptions=False)


COMMANDS = [("verify",), ("devices",), ("why", "train", "-n", "ns"), ("story", "train", "-n", "ns")]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_credentials_that_are_not_accepted_are_no_empty_cluster(
    server: Server, kubeconfig: Path, command: tuple[str, ...]
) -> None:
    server.unauthorized = True
    answer = dray(kubeconfig, *command)
    assert answer.exit_code == 2
    assert "rejected the credentials" in answer.stderr
    assert not answer.stdout


@pytest.mark.parametrize(
    ("command", "plural"),
    [
        (("verify",), "resourceclaims"),
        (("verify",), "pods"),
        (("devices",), "resourceslices"),
        (("why", "train", "-n", "ns"), "nodes"),
        (("story", "train", "-n", "ns"), "pods"),
    ],
)
def test_without_the_right_to_what_the_answer_needs_there_is_none(
    server: Server, kubeconfig: Path, command: tuple[str, ...], plural: str
) -> None:
    server.hidden = (plural,)
    answer = dray(kubeconfig, *command)
    assert answer.exit_code == 2
    assert f"the answer needs {plural}" in answer.stderr
    assert 'User "eve" cannot list' in answer.stderr


def test_other_kinds_that_are_not_shown_are_warned_of(server: Server, kubeconfig: Path) -> None:
    server.hidden = ("priorityclasses", "persistentvolumes")
    answer = dray(kubeconfig, "verify")
    assert answer.exit_code == 0
    assert "you may not list persistentvolumes, priorityclasses.scheduling.k8s.io" in answer.stderr
    assert "all rules hold" in answer.stdout


def test_a_cluster_without_the_kind_is_told_which_kubernetes_has_it(server: Server, kubeconfig: Path) -> None:
    server.unserved = ("resourceclaims/v1",)
    answer = dray(kubeconfig, "verify")
    assert answer.exit_code == 2
    assert "does not serve resourceclaims.resource.k8s.io/v1; Kubernetes 1.34" in answer.stderr


def test_of_a_kind_that_nobody_has_defined_there_is_nothing(server: Server, kubeconfig: Path) -> None:
    """Queues are no part of Kubernetes, whatever its version."""
    server.unserved = (f"{QUEUES.plural}/{QUEUES.version}",)
    answer = dray(kubeconfig, "queues")
    assert (answer.exit_code, answer.stdout) == (0, "No queues found: pods are scheduled by priority and age.\n")


def test_taint_rules_are_read_in_the_version_that_the_server_has(server: Server, kubeconfig: Path) -> None:
    server.unserved = (f"{DEVICE_TAINT_RULES.plural}/{DEVICE_TAINT_RULES.version}",)
    found = json.loads(dray(kubeconfig, "devices", "-o", "json").stdout)["devices"]
    assert [row["state"] for row in found] == ["allocated", "tainted", "free", "tainted"]
