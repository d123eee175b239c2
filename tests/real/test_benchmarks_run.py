"""Every benchmark runs on small inputs and prints a table in which both sides did the same work."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("upstream")
@pytest.mark.parametrize("name", ["allocator", "api", "core", "decisions", "memory", "scale", "scheduler", "start", "burst"])
def test_a_quick_run_prints_a_table(name: str) -> None:
    argv = [sys.executable, "-m", "benchmarks", name, "--quick"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "## " in done.stdout
    assert "(Go: " not in done.stdout, "the two allocators placed a different number of pods"
    assert " 0 of " not in done.stdout, "a scheduler bound nothing"
