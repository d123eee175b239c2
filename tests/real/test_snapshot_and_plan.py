"""``dray snapshot`` and ``dray plan`` on a real kube-apiserver, with the right to list and no other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from dray.cli import root
from tests.real.upstream import manifests
from tests.real.upstream.control_plane import Server
from tests.real.upstream.readers import reader_of


def dray(*arguments: str) -> Result:
    return CliRunner().invoke(root, list(arguments), catch_exceptions=False)


@pytest.fixture
def reader(server: Server, tmp_path: Path) -> Path:
    """A kubeconfig of somebody who may list everything that is read but volumes."""
    return reader_of(server, tmp_path, "list")


def test_with_the_right_to_list_alone_a_snapshot_is_taken_and_planned_with(reader: Path, tmp_path: Path) -> None:
    file, change = tmp_path / "now.json", tmp_path / "change.yaml"
    taken = dray("snapshot", "-o", str(file), "--kubeconfig", str(reader))
    assert taken.exit_code == 0, taken.output
    assert "you may not list persistentvolumes" in taken.stderr
    header = json.loads(file.read_text())["header"]
    assert header["serverVersion"].startswith("v")
    assert header["unread"]["persistentvolumes"]["code"] == 403
    assert header["kinds"]["nodes"]["objects"] == 1
    claim = manifests.claim("two", count=2)
    change.write_text(yaml.safe_dump_all([claim, manifests.pod("train", "two")]))
    for source in (("--snapshot", str(file)), ("--kubeconfig", str(reader))):
        planned = dray("plan", "-f", str(change), *source, "-o", "json")
        assert planned.exit_code == 0, planned.output
        (train,) = json.loads(planned.stdout)["pods"]
        assert (train["node"], [device["device"] for device in train["devices"]]) == ("n1", ["g0", "g1"])
