"""`dray up` as a user runs it: a process, kubeconfig, ready file, kubectl-like reads over HTTPS, and a clean end."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from dray.api.kinds import NODES, PODS, RESOURCE_CLAIMS
from dray.cli import root
from dray.cluster.kubeconfig import load
from dray.cluster.remote import Remote

POD_WITH_A_GPU = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: one}
spec:
  devices:
    requests:
    - name: gpu
      exactly: {deviceClassName: gpu.dray.dev}
---
apiVersion: v1
kind: Pod
metadata: {name: train}
spec:
  containers:
  - name: main
    image: example
    resources: {claims: [{name: gpu}]}
  resourceClaims:
  - {name: gpu, resourceClaimName: one}
"""


@contextmanager
def running(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    ready = folder / "ready"
    ready.unlink(missing_ok=True)
    command = [
        sys.executable,
        "-c",
        "from dray.cli import main; main()",
        "up",
        "--kubeconfig",
        str(folder / "kc"),
        "--ready-file",
        str(ready),
        *arguments,
    ]
    process = subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        until = time.monotonic() + 30
        while not ready.exists():
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < until, "dray up was not ready in time"
            time.sleep(0.02)
        yield process
    finally:
        process.kill()
        process.communicate()


async def _until_running(kubeconfig: Path) -> tuple[dict[str, object], dict[str, object]]:
    remote = Remote(load(kubeconfig))
    try:
        async with asyncio.timeout(20):
            while True:
                pod = await remote.get(PODS, "default", "train")
                if pod["status"].get("phase") == "Running":
                    return pod, await remote.get(RESOURCE_CLAIMS, "default", "one")
                await asyncio.sleep(0.05)
    finally:
        await remote.close()


def test_a_pod_with_a_claim_runs_on_it_and_survives_a_restart(tmp_path: Path) -> None:
    manifest = tmp_path / "pod.yaml"
    manifest.write_text(POD_WITH_A_GPU)
    data = str(tmp_path / "data")
    with running(tmp_path, "--data", data, "--hardware", "gpu8:1", "-f", str(manifest)) as process:
        pod, claim = asyncio.run(_until_running(tmp_path / "kc"))
        assert pod["spec"]["nodeName"] == "gpu8-0"  # type: ignore[index]
        result = claim["status"]["allocation"]["devices"]["results"][0]  # type: ignore[index]
        assert (result["pool"], result["device"]) == ("gpu8-0", "gpu-0")
        process.send_signal(signal.SIGKILL)
        process.wait()
    # The same line once more: what there is already is as the file says.
    with running(tmp_path, "--data", data, "--hardware", "gpu8:1", "-f", str(manifest)) as process:
        again, _ = asyncio.run(_until_running(tmp_path / "kc"))
        assert again["metadata"]["uid"] == pod["metadata"]["uid"]  # type: ignore[index]
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0


def test_the_kubeconfig_is_private(tmp_path: Path) -> None:
    with running(tmp_path, "--ephemeral", "--without", "scheduler,controllers,nodes") as process:
        assert stat.S_IMODE(os.stat(tmp_path / "kc").st_mode) == 0o600
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0


def test_it_says_where_it_is_and_how_to_use_and_end_it_and_nothing_else(tmp_path: Path) -> None:
    with running(tmp_path, "--ephemeral") as process:
        process.send_signal(signal.SIGINT)
        said = process.communicate()[1].splitlines()
    assert [line.partition(" ")[0] for line in said] == ["Cluster", "Use", "Web", "Press"]
    assert said[1] == f"Use it:  export KUBECONFIG={tmp_path}/kc"
    assert said[2].startswith("Web page:  http://127.0.0.1:")


def test_plain_nodes_are_made_by_number(tmp_path: Path) -> None:
    async def names() -> list[str]:
        remote = Remote(load(tmp_path / "kc"))
        try:
            async with asyncio.timeout(10):
                while len(found := (await remote.list(NODES))[0]) < 3:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            return [raw.decode() for raw in found]
        finally:
            await remote.close()

    with running(tmp_path, "--ephemeral", "--nodes", "3"):
        assert len(asyncio.run(names())) == 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--without", "kitchen"], "unknown part 'kitchen'"),
        (["--hardware", "abacus:1"], "unknown hardware 'abacus'"),
        (["--ephemeral", "--data", "x"], "cannot be combined"),
        (["--feature-gates", "Nope=true"], "unknown feature gate 'Nope'"),
        (["-f", "/nonexistent.yaml"], "/nonexistent.yaml"),
    ],
)
def test_wrong_options_are_named(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(root, ["up", *arguments])
    assert result.exit_code != 0
    assert said in result.output


def test_an_object_that_is_refused_at_start_is_named(tmp_path: Path) -> None:
    manifest = tmp_path / "bad.yaml"
    manifest.write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: UPPER}\nspec: {containers: [{name: a, image: b}]}\n")
    command = [
        sys.executable,
        "-c",
        "from dray.cli import main; main()",
        "up",
        "--ephemeral",
        "--kubeconfig",
        str(tmp_path / "kc"),
        "-f",
        str(manifest),
    ]
    done = subprocess.run(command, text=True, capture_output=True, timeout=30)
    assert done.returncode == 1
    assert "Pod UPPER" in done.stderr
    assert "Traceback" not in done.stderr


def test_every_command_teaches_by_example() -> None:
    from dray.cli import COMMANDS

    for name in COMMANDS:
        result = CliRunner().invoke(root, [name, "--help"])
        assert result.exit_code == 0, (name, result.output)
        assert "Example" in result.output, name
