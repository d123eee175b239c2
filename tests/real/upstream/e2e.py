"""Upstream's own e2e suite, spread over many clusters of one sort.

The list of specs and the program that runs some of them are data outside the project. Specs mostly wait, so several clusters run
them side by side, each taking a few at a time.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from queue import Empty, SimpleQueue

from tests.real.upstream.binaries import binary, sources
from tests.real.upstream.client import Client
from tests.real.upstream.control_plane import Server

ROOT = Path(__file__).parents[3]
SHARED = ROOT.parent / "shared/conformance"
SPECS, RUNNER, PAGE = SHARED / "e2e_specs.txt", SHARED / "run_e2e.py", ROOT / "docs/api-server.md"
SECONDS = 400
NODES = "plain:3"
# These wait for minutes, and begin first.
LONG = ("one using 0.0.0.0", "CronJob", "SchedulerPreemption", "NoExecuteTaintManager", "report node status", "StatefulSet")

# A cluster in a folder, until the context ends.
Start = Callable[[Path], AbstractContextManager[Server]]

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


def listed() -> list[str]:
    return [line for line in SPECS.read_text().splitlines() if line and not line.startswith("#")]


def excused() -> list[str]:
    """The parts of names in the table under the heading about e2e specs."""
    section = PAGE.read_text().partition("## Upstream's e2e specs")[2].partition("\n## ")[0].partition("\n### ")[0]
    return [re.sub(r"\\(.)", r"\1", name) for name in re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE)]


def run(specs: list[str], start: Start, lanes: int, at_once: int, folder: Path) -> dict[str, str]:
    """What was said of each spec that failed."""
    waiting: SimpleQueue[list[str]] = SimpleQueue()
    long = [spec for spec in specs if any(part in spec for part in LONG)]
    for batch in (*([spec] for spec in long), *_batches([spec for spec in specs if spec not in long], at_once)):
        waiting.put(batch)
    with ExitStack() as stack, ThreadPoolExecutor(lanes) as pool:
        places = [folder / str(number) for number in range(min(lanes, len(specs)))]
        servers = [stack.enter_context(start(place)) for place in places]
        ended = [pool.submit(_lane, server, waiting, place) for server, place in zip(servers, places, strict=True)]
        return {spec: said for each in ended for spec, said in each.result().items()}


def _batches(specs: list[str], size: int) -> Iterator[list[str]]:
    return (specs[start : start + size] for start in range(0, len(specs), size))


def _lane(server: Server, waiting: SimpleQueue[list[str]], folder: Path) -> dict[str, str]:
    Client(server.kubeconfig).call("POST", "apis/apps/v1/namespaces/kube-system/daemonsets", PROXY)
    failed: dict[str, str] = {}
    turn = 0
    while True:
        try:
            batch = waiting.get_nowait()
        except Empty:
            return failed
        turn += 1
        failed |= _once(server, batch, folder / str(turn))


def _once(server: Server, specs: list[str], folder: Path) -> dict[str, str]:
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
