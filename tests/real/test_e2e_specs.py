"""Upstream's own e2e suite on ``dray up``: every spec of the list passes, but those that docs/api-server.md names with a reason.

The list and the runner are data outside the project. A spec that the page names and that passes is no failure: whether it does
depends on time. ``make e2e`` runs it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.real.upstream.binaries import binary, sources

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared/conformance"
SPECS, RUNNER, PAGE = SHARED / "e2e_specs.txt", SHARED / "run_e2e.py", ROOT / "docs/api-server.md"
MINUTES = 60

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not os.environ.get("DRAY_E2E"), reason="takes the better part of an hour: make e2e"),
    pytest.mark.timeout(60 * MINUTES),
    pytest.mark.skipif(not RUNNER.is_file(), reason=f"no e2e specs at {SHARED}"),
]


def excused() -> list[str]:
    """The parts of names in the table under the heading about e2e specs."""
    section = PAGE.read_text().partition("## Upstream's e2e specs")[2].partition("\n## ")[0]
    return [re.sub(r"\\(.)", r"\1", name) for name in re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE)]


def test_every_excuse_is_about_a_spec_of_the_list() -> None:
    known = SPECS.read_text()
    assert [part for part in excused() if part not in known] == []


def test_upstreams_e2e_specs_pass(upstream: None, tmp_path: Path) -> None:
    wanted = [line for line in SPECS.read_text().splitlines() if line and not any(part in line for part in excused())]
    chosen = tmp_path / "specs.txt"
    chosen.write_text("\n".join(wanted) + "\n")
    environment = {
        **os.environ,
        "E2E_TEST": str(binary("e2e.test")),
        "KUBECTL": str(binary("kubectl")),
        "K8S_ROOT": str(sources()),
    }
    dray = Path(sys.executable).with_name("dray")
    argv = [sys.executable, str(RUNNER), str(chosen), "--lanes", "4", "--timeout", "200", "--dray", str(dray)]
    done = subprocess.run([*argv, "--out", str(tmp_path / "lanes")], env=environment, capture_output=True, text=True, check=False)
    assert re.search(rf"^{len(wanted)} passed, 0 failed, 0 skipped$", done.stdout, re.MULTILINE), done.stdout + done.stderr
