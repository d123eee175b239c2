"""A field that no API server knows is refused in the files of every command, as kubectl refuses it: without it the pod in the
file would be another one, and the answer about that."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from click.testing import CliRunner

from dray.cli import root
from dray.runtime.local import Local, Settings, Unappliable

NODE = """\
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {capacity: {cpu: "4", memory: 8Gi, pods: "10"}, allocatable: {cpu: "4", memory: 8Gi, pods: "10"}}
"""
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: a, namespace: default}
spec:
  resourceClams: [{name: gpu, resourceClaimName: gpu}]
  containers: [{name: c, image: i}]
"""


@pytest.mark.parametrize(
    "command",
    [
        ("plan", "-f", "pod.yaml", "--snapshot", "node.yaml"),
        ("simulate", "node.yaml", "pod.yaml", "--until", "5s"),
        ("simulate", "--from-cluster", "--snapshot", "node.yaml", "--add", "pod.yaml", "--until", "15s"),
        ("allocate", "-f", "pod.yaml"),
    ],
    ids=["plan", "simulate", "simulate --add", "allocate"],
)
def test_it_is_named_and_the_answer_is_none(command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("node.yaml").write_text(NODE)
    Path("pod.yaml").write_text(POD)
    result = CliRunner().invoke(root, list(command))
    assert result.exit_code == 2, result.output
    assert 'unknown field "spec.resourceClams"' in result.output + result.stderr
    assert "n1" not in result.stdout


def test_a_step_of_a_scenario_that_patches_one_is_refused(tmp_path: Path) -> None:
    scenario = tmp_path / "scenario.yaml"
    patch = "patch: {apiVersion: v1, kind: Node, metadata: {name: n1}, spec: {unschedulabel: true}}"
    steps = f"apiVersion: dray.dev/v1alpha1\nkind: Scenario\nspec:\n  steps:\n  - at: 1s\n    {patch}\n"
    scenario.write_text(f"{NODE}---\n{steps}")
    result = CliRunner().invoke(root, ["simulate", str(scenario), "--until", "5s"])
    assert 'unknown field "spec.unschedulabel"' in result.output


def test_dray_up_does_not_start_without_what_it_says() -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a"},
        "spec": {"resourceClams": [], "containers": [{"name": "c", "image": "i"}]},
    }

    async def apply() -> None:
        local = Local(Settings(without=("scheduler", "controllers", "nodes")))
        await local.start()
        try:
            await local.apply([pod])
        finally:
            await local.port.close()
            await local.server.stop()

    with pytest.raises(Unappliable, match=r'Pod a: .* unknown field "spec\.resourceClams"'):
        asyncio.run(apply())
