"""The two allocators as processes that answer the lines of ``dray allocate``: ours, and upstream's (``go_allocator/main.go``)."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.real.upstream.binaries import built, cache

SOURCE = Path(__file__).parent / "go_allocator"


def binary() -> Path:
    """The program, built once for each state of its source."""
    digest = hashlib.sha256(b"".join((SOURCE / n).read_bytes() for n in ("main.go", "go.mod", "go.sum"))).hexdigest()[:16]
    return built(cache() / f"go-allocator-{digest}", ".", SOURCE)


class Allocator:
    """A program that answers one line at a time until the context ends. After a crash the next line gets a new process."""

    def __init__(self, argv: Sequence[str]) -> None:
        self.argv = argv
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self.argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self) -> Allocator:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.process.kill()
        self.process.communicate()

    def answer(self, line: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps(line).encode() + b"\n")
        self.process.stdin.flush()
        raw = self.process.stdout.readline()
        if not raw:
            code = self.process.wait()
            self.process = self._start()
            raise RuntimeError(f"the allocator crashed with {code}")
        found: dict[str, Any] = json.loads(raw)
        return found


def upstream_allocator(*, pod_seconds: float = 20, memory: bool = False) -> Allocator:
    return Allocator([str(binary()), f"-pod-timeout={pod_seconds}s", f"-memory={str(memory).lower()}"])


def dray_allocator() -> Allocator:
    return Allocator([str(Path(sys.executable).with_name("dray")), "allocate", "-"])
