"""Real kubectl, the machine's and the newest, finds on ``dray up`` what it finds on a real API server.

The checks are data outside the project. All must pass; those that do not are printed.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.real.upstream.binaries import binary
from tests.real.upstream.control_plane import Server
from tests.real.upstream.embedded import dray_up

CHECKS = Path(__file__).parents[3] / "shared/conformance/check_kubectl.py"
# It asks for a kubectl that was built with its version.
KNOWN = {"version_reports_server"}
WORKLOADS = "^controllers_"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not CHECKS.is_file(), reason=f"no checks at {CHECKS}"),
]


@pytest.fixture(params=["built", "installed"])
def kubectl(request: pytest.FixtureRequest, upstream: None) -> str:
    if request.param == "built":
        return str(binary("kubectl"))
    found = shutil.which("kubectl")
    if found is None:
        pytest.skip("this machine has no kubectl")
    return found


def run(kubeconfig: Path, kubectl: str, *options: str) -> list[dict[str, Any]]:
    """The checks that count, each with its status."""
    argv = [sys.executable, str(CHECKS), "--kubeconfig", str(kubeconfig), "--kubectl", kubectl, "--json", "--jobs", "3"]
    done = subprocess.run([*argv, *options], capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    checks: list[dict[str, Any]] = json.loads(done.stdout)["checks"]
    counted = [c for c in checks if c["status"] != "skipped"]
    for check in counted:
        if check["status"] == "failed":
            print(f"{check['name']}: expected {check['expected']}; got {check['got']}")
    return counted


def test_the_api_answers_kubectl(embedded_server: Server, kubectl: str) -> None:
    checks = run(embedded_server.kubeconfig, kubectl)
    assert len(checks) >= 515
    assert {c["name"] for c in checks if c["status"] == "failed"} <= KNOWN


def test_controllers_do_what_kubectl_users_expect(tmp_path: Path, kubectl: str) -> None:
    with dray_up(tmp_path, without="scheduler,nodes") as server:
        checks = run(server.kubeconfig, kubectl, "--with-controllers", "--only", WORKLOADS)
    assert checks
    assert [c["name"] for c in checks if c["status"] == "failed"] == []
