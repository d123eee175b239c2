"""Ctrl-C, and a reader who has enough, end every command at once and without a word, with a code that is no answer."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from dray.cli import root
from dray.cli.source import Source


@pytest.mark.parametrize("command", [["verify"], ["devices"], ["why", "p", "-n", "ns"], ["story", "p", "-n", "ns"]])
def test_a_question_that_is_interrupted_has_no_answer(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Source, "read", interrupted)
    result = CliRunner().invoke(root, command)
    assert (result.exit_code, result.output) == (130, "")


@pytest.mark.parametrize("output", ["table", "json"])
def test_a_reader_who_has_enough_is_no_answer(output: str, tmp_path: Path) -> None:
    pods = [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"p{number}"}} for number in range(300)]
    snapshot = tmp_path / "cluster.yaml"
    snapshot.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": [*pods, *_reserved(300)]}))
    assert _piped_to_nobody("verify", "--snapshot", str(snapshot), "-o", output) == (141, b"")


def test_the_demo_ends_when_nobody_reads_it() -> None:
    assert _piped_to_nobody("demo", "--once") == (141, b"")


def _reserved(count: int) -> list[dict[str, object]]:
    """Claims that break a rule, so that there is more to print than a pipe takes at once."""
    reserved = [{"resource": "pods", "name": "p", "uid": "u"}]
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "status": {"reservedFor": reserved}}
    return [claim | {"metadata": {"name": f"a-claim-with-a-rather-long-name-{number}"}} for number in range(count)]


def _piped_to_nobody(*arguments: str) -> tuple[int, bytes]:
    process = subprocess.Popen([sys.executable, "-m", "dray", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    said = process.communicate(timeout=60)[1]
    return process.returncode, said


@pytest.mark.parametrize("command", ["scheduler", "controllers", "fabric"])
def test_waiting_for_a_server_that_does_not_answer_is_told_and_can_be_ended(command: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        process = subprocess.Popen(
            [sys.executable, "-m", "dray", command, "--kubeconfig", str(_kubeconfig(tmp_path / "kc", url))],
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stderr is not None
            said = process.stderr.readline()
            process.send_signal(signal.SIGINT)
            assert process.wait(5) == 0
        finally:
            process.kill()
            process.communicate()
    assert "still waiting for the API server" in said
    assert url in said


def _kubeconfig(file: Path, url: str) -> Path:
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {}}],
    }
    file.write_text(yaml.safe_dump(content))
    return file
