"""The page on a real kube-apiserver, started as people start it, with the right to look and no other."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dray.explain.snapshot import KINDS
from tests.real.upstream import manifests
from tests.real.upstream.client import Client
from tests.real.upstream.control_plane import PLAIN_TOKEN, PLAIN_USER, Server, write_kubeconfig

_RBAC = "rbac.authorization.k8s.io"


@pytest.fixture
def reader(server: Server, tmp_path: Path) -> Path:
    """A kubeconfig of somebody who may list and watch everything that is read but volumes."""
    client = Client(server.kubeconfig)
    kinds = [kind for kind in KINDS if kind.plural != "persistentvolumes"]
    rules = [{"apiGroups": [kind.group], "resources": [kind.plural], "verbs": ["list", "watch"]} for kind in kinds]
    role = {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": "looker"}, "rules": rules}
    binding = {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "looker"},
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": "looker"},
        "subjects": [{"apiGroup": _RBAC, "kind": "User", "name": PLAIN_USER}],
    }
    for body in (role, binding, manifests.node("n1"), manifests.device_class()):
        client.create(body)
    client.create(manifests.resource_slice("n1", [manifests.device("g0"), manifests.device("g1")]))
    config = json.loads(server.kubeconfig.read_text())
    ca = Path(config["clusters"][0]["cluster"]["certificate-authority"])
    return write_kubeconfig(tmp_path / "reader", server.url, ca, PLAIN_TOKEN)


class Looking:
    def __init__(self, address: str) -> None:
        self._base, _, self._token = address.partition("/#token=")

    def ask(self, path: str, body: Any = None) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        data = json.dumps(body).encode() if body is not None else None
        try:
            with urllib.request.urlopen(urllib.request.Request(self._base + path, data, headers), timeout=60) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)


@contextmanager
def page(kubeconfig: Path, *arguments: str) -> Iterator[Looking]:
    argv = [Path(sys.executable).with_name("dray"), "ui", "--kubeconfig", kubeconfig, "--port", "0", *arguments]
    process = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if found := re.search(r"http://\S+", line):
                yield Looking(found.group())
                return
        raise AssertionError("it ended before it said where it is")
    finally:
        process.terminate()
        process.wait(20)


def test_with_rights_to_look_alone_everything_is_shown_followed_and_rehearsed(reader: Path, server: Server) -> None:
    with page(reader) as looking:
        _, about = looking.ask("/api/about")
        assert any("you may not list persistentvolumes" in notice for notice in about["notices"])
        _, shown = looking.ask("/api/map")
        assert [cell[0] for pool in shown["pools"].values() for cell in pool["devices"]] == ["g0", "g1"]
        client = Client(server.kubeconfig)
        client.create(manifests.claim("two", count=2))
        client.create(manifests.pod("train", "two"))
        until = time.monotonic() + 20
        while looking.ask("/api/map")[1]["waiting"] != 1 and time.monotonic() < until:
            time.sleep(0.1)
        _, waiting = looking.ask("/api/waiting")
        assert [each["pod"] for cause in waiting["causes"] for each in cause["each"]] == ["default/train"]
        status, plan = looking.ask("/api/plan", {"cordon": ["n1"]})
        assert status == 200, plan
        assert plan["ticket"] is None


def test_what_the_cluster_refuses_is_told_as_it_says_it(reader: Path) -> None:
    with page(reader, "--allow-changes") as looking:
        _, plan = looking.ask("/api/plan", {"cordon": ["n1"]})
        status, told = looking.ask("/api/apply", {"ticket": plan["ticket"]})
        assert status == 409
        assert "cordon n1: " in told["error"]
        assert 'cannot patch resource "nodes"' in told["error"]
        assert told["error"].endswith("Nothing was done.")
