"""Every benchmark runs on small inputs and prints a table in which both sides did the same work."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def quick(name: str) -> str:
    argv = [sys.executable, "-m", "benchmarks", name, "--quick"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("upstream")
@pytest.mark.parametrize("name", ["allocator", "api", "core", "decisions", "memory", "scale", "scheduler", "start", "burst"])
def test_a_quick_run_prints_a_table(name: str) -> None:
    said = quick(name)
    assert "## " in said
    assert "(Go: " not in said, "the two allocators placed a different number of pods"
    assert " 0 of " not in said, "a scheduler bound nothing"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["access", "eviction", "numa", "page", "plan", "preemption", "queues", "why"])
def test_a_quick_run_of_dray_alone_prints_a_table(name: str) -> None:
    assert "## " in quick(name)
