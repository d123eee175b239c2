"""Dray's own parts as processes against any API server."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.real.upstream.process import Program, free_port

CONTROLLERS = "claims,workloads,garbage"


@contextmanager
def dray_part(command: str, kubeconfig: Path, folder: Path, *arguments: str | Path) -> Iterator[Program]:
    """``dray scheduler``, ``dray controllers`` or ``dray fabric`` until the context ends; returns when it is ready."""
    folder.mkdir(parents=True, exist_ok=True)
    serve = f"127.0.0.1:{free_port()}"
    argv: Sequence[str | Path] = [
        Path(sys.executable).with_name("dray"),
        command,
        "--kubeconfig",
        kubeconfig,
        "--serve",
        serve,
        *arguments,
    ]
    with Program(f"dray {command}", argv, folder / f"dray-{command}.log") as program:
        program.wait_until(lambda: "initial lists complete" in program.text(), seconds=60)
        yield program
