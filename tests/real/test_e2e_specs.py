"""Upstream's own e2e suite on ``dray up``: every spec of the list passes, but those that docs/api-server.md names with a reason.

The list and the runner are data outside the project. Specs mostly wait, so many clusters of their own run them side by side, each
taking a few at a time. What fails is run once more, alone on a new cluster: a spec that was disturbed passes then, one that is
broken does not. ``make e2e`` runs this alone.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from queue import Empty, SimpleQueue

import pytest

from tests.real.upstream.binaries import binary, sources
from tests.real.upstream.client import Client
from tests.real.upstream.control_plane import Server
from tests.real.upstream.embedded import dray_up

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared/conformance"
SPECS, RUNNER, PAGE = SHARED / "e2e_specs.txt", SHARED / "run_e2e.py", ROOT / "docs/api-server.md"
LANES, AT_ONCE, SECONDS, RETRIED = 12, 6, 400, 20
LEAST = 350
# These wait for minutes, and begin first.
LONG = ("one using 0.0.0.0", "CronJob", "SchedulerPreemption", "NoExecuteTaintManager", "report node status", "StatefulSet")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(60 * 40),
    pytest.mark.skipif(not RUNNER.is_file(), reason=f"no e2e specs at {SHARED}"),
]

# Specs about scheduling wait a minute for it on every node, and go on without.
PROXY = {
    "apiVersion": "apps/v1",
    "kind": "DaemonSet",
    "metadata": {"name": "kube-proxy", "namespace": "kube-system"},
    "spec": {
        "selector": {"matchLabels": {"app": "kube-proxy"}},
        "template": {
            "metadata": {"labels": {"app": "kube-proxy"}},
            "spec": {"containers": [{"name": "c", "image": "registry.example/proxy"}], "tolerations": [{"operator": "Exists"}]},
        },
    },
}


def excused() -> list[str]:
    """The parts of names in the table under the heading about e2e specs."""
    section = PAGE.read_text().partition("## Upstream's e2e specs")[2].partition("\n## ")[0]
    return [re.sub(r"\\(.)", r"\1", name) for name in re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE)]


def test_every_excuse_is_about_a_spec_of_the_list() -> None:
    known = SPECS.read_text()
    assert [part for part in excused() if part not in known] == []


def test_upstreams_e2e_specs_pass(upstream: None, tmp_path: Path) -> None:
    wanted = [line for line in SPECS.read_text().splitlines() if line and not any(part in line for part in excused())]
    assert len(wanted) >= LEAST
    failed = run(wanted, LANES, AT_ONCE, tmp_path / "first")
    assert len(failed) <= RETRIED, "\n".join(failed.values())
    still = run(list(failed), 1, 1, tmp_path / "again") if failed else {}
    assert still == {}, "\n".join(still.values())


def run(specs: list[str], lanes: int, at_once: int, folder: Path) -> dict[str, str]:
    """What was said of each spec that failed."""
    waiting: SimpleQueue[list[str]] = SimpleQueue()
    long = [spec for spec in specs if any(part in spec for part in LONG)]
    for batch in (*([spec] for spec in long), *batches([spec for spec in specs if spec not in long], at_once)):
        waiting.put(batch)
    with ExitStack() as stack, ThreadPoolExecutor(lanes) as pool:
        places = [folder / str(number) for number in range(min(lanes, len(specs)))]
        servers = [stack.enter_context(dray_up(place, without="", arguments=("--hardware", "plain:3"))) for place in places]
        ended = [pool.submit(lane, server, waiting, place) for server, place in zip(servers, places, strict=True)]
        return {spec: said for each in ended for spec, said in each.result().items()}


def batches(specs: list[str], size: int) -> Iterator[list[str]]:
    return (specs[start : start + size] for start in range(0, len(specs), size))


def lane(server: Server, waiting: SimpleQueue[list[str]], folder: Path) -> dict[str, str]:
    Client(server.kubeconfig).call("POST", "apis/apps/v1/namespaces/kube-system/daemonsets", PROXY)
    failed: dict[str, str] = {}
    turn = 0
    while True:
        try:
            batch = waiting.get_nowait()
        except Empty:
            return failed
        turn += 1
        failed |= once(server, batch, folder / str(turn))


def once(server: Server, specs: list[str], folder: Path) -> dict[str, str]:
    folder.mkdir()
    chosen = folder / "specs.txt"
    chosen.write_text("\n".join(specs) + "\n")
    programs = {"E2E_TEST": str(binary("e2e.test")), "KUBECTL": str(binary("kubectl")), "K8S_ROOT": str(sources())}
    argv = [sys.executable, str(RUNNER), str(chosen), "--kubeconfig", str(server.kubeconfig), "--out", str(folder)]
    argv += ["--lanes", "1", "--timeout", str(SECONDS)]
    done = subprocess.run(argv, env={**os.environ, **programs}, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    failed = {name: f"{name}\n{words}" for name, words in re.findall(r"^FAIL +[\d.]+ s (.*)\n(.*)$", done.stdout, re.MULTILINE)}
    if f"{len(specs) - len(failed)} passed, {len(failed)} failed, 0 skipped" not in done.stdout:
        return {spec: f"{spec}\n{said}" for spec in specs}
    return failed
