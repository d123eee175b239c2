"""``dray up`` behind the same ``Server`` value as the real control plane."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import yaml

from tests.real.upstream.control_plane import Server
from tests.real.upstream.process import Program

API_ONLY = "scheduler,controllers,nodes"


@contextmanager
def dray_up(
    folder: Path, *, without: str = API_ONLY, durable: bool = False, arguments: Sequence[str | Path] = ()
) -> Iterator[Server]:
    """The embedded cluster until the context ends; by default nothing but its API server."""
    folder.mkdir(parents=True, exist_ok=True)
    kubeconfig, ready = folder / "kubeconfig", folder / "ready"
    ready.unlink(missing_ok=True)
    where = ["--data", folder / "data"] if durable else ["--ephemeral"]
    parts = ["--without", without] if without else []
    options = ["--port", "0", "--kubeconfig", kubeconfig, "--ready-file", ready, *where, *parts, *arguments]
    began = time.monotonic()
    argv = [Path(sys.executable).with_name("dray"), "up", *options]
    with Program("dray up", argv, folder / "dray-up.log") as program:
        program.wait_until(ready.exists, seconds=60, every=0.005)
        seconds = time.monotonic() - began
        config = yaml.safe_load(kubeconfig.read_text())
        yield Server(config["clusters"][0]["cluster"]["server"], kubeconfig, (program,), seconds)
