"""Started with standard streams closed, as supervisors and ``>&-`` do: nothing is said there, and the answer is the same."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


def start(closed: str, *arguments: str) -> subprocess.Popen[bytes]:
    command = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-m", "dray", *arguments]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_cluster_in_which_all_is_well_is_not_told_by_the_code_of_a_violation(closed: str, tmp_path: Path) -> None:
    snapshot = tmp_path / "cluster.yaml"
    snapshot.write_text(yaml.safe_dump(POD))
    process = start(closed, "verify", "--snapshot", str(snapshot))
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (0, b"")


@pytest.mark.parametrize("command", [["allocate"], ["numa", "check", "-"]])
def test_nothing_to_read_is_no_question(command: list[str]) -> None:
    process = start("<&-", *command)
    assert (*process.communicate(timeout=60), process.returncode) == (b"", b"", 0)


def test_a_cluster_runs_without_any(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    options = ["--port", "0", "--ephemeral", "--no-ui", "--nodes", "1", "--kubeconfig", str(tmp_path / "kc")]
    process = start("<&- >&- 2>&-", "up", *options, "--ready-file", str(ready))
    try:
        deadline = time.monotonic() + 60
        while not ready.exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        assert ready.exists()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.communicate()
