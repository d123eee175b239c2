"""One program in the background: its output in a file, its end certain.

A program started here is killed when the context ends, when Python exits, and (on Linux) by the kernel when Python itself
is killed, so that no test run leaves an etcd behind.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
_PR_SET_PDEATHSIG = 1
_TICKS = os.sysconf("SC_CLK_TCK")


class Died(Exception):
    """A program ended, or did not become ready, while it was needed; carries the end of its output."""


class Program:
    """A running program. ``log`` is its stdout and stderr."""

    def __init__(self, name: str, argv: Sequence[str | Path], log: Path, environment: dict[str, str] | None = None) -> None:
        self.name, self.log = name, log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [str(a) for a in argv],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                preexec_fn=_die_with_parent,
            )

    def __enter__(self) -> Program:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        return self.process.pid

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_until(self, ready: Callable[[], bool], seconds: float = 60, every: float = 0.02) -> None:
        """Returns when ``ready``; raises ``Died`` with the end of the log if the program ends or time runs out first."""
        end = time.monotonic() + seconds
        while not ready():
            if self.process.poll() is not None:
                raise Died(f"{self.name} exited with {self.process.returncode}:\n{self.text()[-3000:]}")
            if time.monotonic() > end:
                raise Died(f"{self.name} was not ready after {seconds:g} s:\n{self.text()[-3000:]}")
            time.sleep(every)

    def stop(self, gentle: bool = False, seconds: float = 10) -> int:
        """Ends it: at once, or after a SIGTERM that it may answer."""
        if self.process.poll() is None:
            if gentle:
                self.process.terminate()
                try:
                    return self.process.wait(seconds)
                except subprocess.TimeoutExpired:
                    pass
            self.process.kill()
        return self.process.wait()

    def cpu_seconds(self) -> float:
        """User and system time that it has used (Linux)."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def memory_bytes(self) -> int:
        """Resident memory (Linux)."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


def _die_with_parent() -> None:
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
