"""The README's first screen: two commands, which need Python and pip and nothing else, and which CI runs as written."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
RUN = ROOT / "run.py"


def test_ci_runs_both_as_they_are_written() -> None:
    written = re.findall(r"^    (python3 run\.py .*)$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert len(written) == 2
    ran = (ROOT / ".ci" / "run").read_text().splitlines()
    for command in written:
        assert any(line == command or line == f"{command} --once" for line in ran), command


def test_what_it_cannot_do_is_answered_with_what_it_can() -> None:
    for wrong in ([], ["demonstrate"], ["set-up", "everything"]):
        done = subprocess.run([sys.executable, RUN, *wrong], capture_output=True, text=True, check=False)
        assert done.returncode == 2, wrong
        assert "python3 run.py demo" in done.stdout
    assert subprocess.run([sys.executable, RUN, "--help"], capture_output=True, check=False).returncode == 0


def test_a_python_that_is_too_old_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    main: Callable[[list[str]], Any] = runpy.run_path(str(RUN))["main"]
    monkeypatch.setattr(sys, "version_info", (3, 9))
    assert main(["demo"]) == "Dray needs Python 3.11 or newer, and this is 3.9: run it with a newer one."


def test_nothing_is_set_up_that_is_set_up_already(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Also by a Python that has no pip."""
    names = runpy.run_path(str(RUN))
    set_up = names["set_up"]
    (tmp_path / ".venv").mkdir()
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / ".venv" / ".dev").touch()
    monkeypatch.setitem(set_up.__globals__, "HERE", str(tmp_path))
    monkeypatch.setitem(set_up.__globals__, "VENV", str(tmp_path / ".venv"))
    asked: list[object] = []
    monkeypatch.setattr(subprocess, "run", lambda *given, **more: asked.append(given))
    set_up("dev")
    assert not asked
