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

from tests.real.upstream import manifests
from tests.real.upstream.client import Client, eventually
from tests.real.upstream.control_plane import Server
from tests.real.upstream.readers import reader_of
from tests.workloads import TRAIN


@pytest.fixture
def reader(server: Server, tmp_path: Path) -> Path:
    """A kubeconfig of somebody who may list and watch everything that is read but volumes."""
    return reader_of(server, tmp_path, "list", "watch")


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


def test_a_node_is_drained_as_budgets_allow_and_kinds_that_others_define_are_applied(reader: Path, server: Server) -> None:
    client = Client(server.kubeconfig)
    for name in ("kept", "leaves"):
        body = manifests.pod(name, nodeName="n1")
        body["metadata"]["labels"] = {"app": name}
        client.create(body)
        client.patch_status(body, {"phase": "Running"})  # budgets do not protect what does not run
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b", "namespace": "default"}}
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "kept"}}}
    client.call("POST", "apis/policy/v1/namespaces/default/poddisruptionbudgets", {**budget, "spec": spec})
    with page(server.kubeconfig, "--allow-changes", "--metrics", "/metrics") as looking:
        _, plan = looking.ask("/api/plan", {"manifests": TRAIN, "drain": ["n1"]})
        status, told = looking.ask("/api/apply", {"ticket": plan["ticket"]})
        assert status == 200, told
        assert client.call("GET", "apis/example.com/v1/namespaces/default/trains/t")["spec"] == {"gpus": 8}

        def said() -> dict[str, str]:
            (drain,) = looking.ask("/api/drains")[1]["drains"]
            return {each["pod"]: each["why"] for each in drain["left"]} if drain["evicted"] else {}

        left = eventually(lambda: (found := said()).get("default/kept", "").startswith("The") and found, "a budget says no")
        assert left == {"default/kept": left["default/kept"], "default/leaves": "terminating"}
        assert "disruption budget b" in left["default/kept"]
        assert client.get("Pod", "leaves")["metadata"]["deletionTimestamp"]
        assert "deletionTimestamp" not in client.get("Pod", "kept")["metadata"]
        assert client.get("Node", "n1", "")["spec"]["unschedulable"]
        assert looking.ask("/api/metrics")[1] == {"read": True, "trouble": "", "plots": []}  # asked for as the kubeconfig's user
    with page(reader, "--metrics", "/metrics") as looking:
        looking.ask("/api/about")
        trouble = eventually(lambda: looking.ask("/api/metrics")[1]["trouble"], "it is not allowed")
        assert "/metrics cannot be read: 403" in trouble
