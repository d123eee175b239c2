"""The declared types and protobuf numbers are those of the upstream release that the tests use."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.real.upstream.binaries import version

TOOL = Path(__file__).parents[2] / "tools/upstream_schemas.py"


@pytest.mark.skipif(shutil.which("go") is None, reason="Go is not installed; the types come from its module cache")
def test_the_declarations_are_what_the_release_says(upstream: None) -> None:
    release = version().replace("v1.", "v0.", 1)
    done = subprocess.run(
        [sys.executable, str(TOOL), "--check", "--version", release], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
