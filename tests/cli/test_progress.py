"""Whoever waits at a terminal longer than two seconds is told what for; scripts are not."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import pytest
import yaml

from dray.cli import source, trouble
from dray.cli.source import Source
from dray.cluster.remote import Remote


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trouble, "PATIENCE_SECONDS", 0.05)


def waited(seconds: float) -> None:
    with trouble.patience("still at it …"):
        time.sleep(seconds)


def test_a_long_wait_is_told_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    waited(0.5)
    assert capsys.readouterr() == ("", "still at it …\n")


def test_a_short_one_is_not(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    waited(0)
    time.sleep(0.2)
    assert capsys.readouterr() == ("", "")


def test_scripts_are_not_told(capsys: pytest.CaptureFixture[str]) -> None:
    waited(0.5)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(("reason", "told"), [("", "https://127.0.0.1:1"), ("the pods to leave", "the pods to leave")])
def test_who_waits_for_a_cluster_is_told_what_is_waited_for(
    reason: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    one = {"name": "c", "cluster": {"server": "https://127.0.0.1:1"}, "user": {}, "context": {"cluster": "c", "user": "c"}}
    config = {"current-context": "c", "clusters": [one], "users": [one], "contexts": [one]}
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))

    async def long(_: Remote) -> None:
        await asyncio.sleep(0.5)

    Source((), tmp_path / "kubeconfig", "").run(long, reason)
    assert capsys.readouterr().err == f"still waiting for {told} …\n"


def test_who_waits_for_large_files_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(source, "documents", lambda file: time.sleep(0.5) or [{"kind": "Pod"}])
    (tmp_path / "pods.yaml").write_text("")
    assert len(source.objects_of([tmp_path / "pods.yaml"])) == 1
    assert capsys.readouterr().err == "reading the files …\n"
