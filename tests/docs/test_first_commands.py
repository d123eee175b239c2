"""The README's first screen: two commands, which need Python and pip and nothing else, and which CI runs as written."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import sys
import venv
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
    assert main(["demo"]) == "Dray needs Python 3.11 or newer, but this is 3.9; run it with a newer one."


def test_nothing_is_set_up_that_is_set_up_already(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Also by a Python that has no pip."""
    names = runpy.run_path(str(RUN))
    set_up = names["set_up"]
    (tmp_path / ".venv").mkdir()
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / ".venv" / ".dev").touch()
    (tmp_path / ".venv" / "python").symlink_to(sys.executable)
    monkeypatch.setitem(set_up.__globals__, "HERE", str(tmp_path))
    monkeypatch.setitem(set_up.__globals__, "VENV", str(tmp_path / ".venv"))
    monkeypatch.setitem(set_up.__globals__, "PYTHON", str(tmp_path / ".venv" / "python"))
    asked: list[object] = []
    monkeypatch.setattr(subprocess, "run", lambda *given, **more: asked.append(given))
    set_up("dev")
    assert not asked


def copied(tmp_path: Path) -> Path:
    """run.py beside a project that needs nothing to be downloaded."""
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'nothing'\nversion = '1'\n")
    shutil.copy(RUN, tmp_path)
    return tmp_path / "run.py"


def test_it_is_set_up_anew_where_the_python_that_it_was_made_of_is_gone(tmp_path: Path) -> None:
    """As after an upgrade of Python: its tools and what it has are those of the old one."""
    names = runpy.run_path(str(copied(tmp_path)))
    python, done = Path(names["PYTHON"]), tmp_path / ".venv" / ".installed"
    python.parent.mkdir(parents=True)
    python.symlink_to(tmp_path / "gone")
    done.touch()
    (python.parent / "left").touch()
    names["set_up"].__globals__["the_pip_at_hand"] = lambda: [
        sys.executable,
        "-c",
        "import sys; open(sys.argv[-1] + '/ran', 'w')",
    ]
    names["set_up"]("")
    assert python.exists()
    assert done.exists()
    assert (tmp_path / "ran").exists()
    assert not (python.parent / "left").exists()


def test_what_kept_pip_from_coming_is_said_and_no_half_of_an_environment_is_left(tmp_path: Path) -> None:
    """As where a distribution ships Python without what brings pip."""
    without = tmp_path / "without"
    without.mkdir()
    (without / "sitecustomize.py").write_text(
        "import subprocess, sys, venv\n"
        "venv.EnvBuilder._setup_pip = lambda self, context: subprocess.check_output("
        "[sys.executable, '-S', '-c', 'import sys; sys.exit(\"no pip is shipped\")'], stderr=subprocess.STDOUT)\n"
    )
    venv.create(tmp_path / "python", with_pip=False)
    run = copied(tmp_path)
    python = tmp_path / "python" / "bin" / "python"
    done = subprocess.run([python, run, "set-up"], env={"PYTHONPATH": str(without)}, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "no pip is shipped" in done.stdout
    assert "see its output above" in done.stderr
    assert not (tmp_path / ".venv").exists()
