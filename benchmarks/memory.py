"""What pods take in memory on ``dray up``, with everything in one process: while they are there, and after they came and went."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.scale import DEPLOYMENTS, create, left, ready
from benchmarks.table import Table, mebibytes
from tests.real.upstream.client import Client
from tests.real.upstream.embedded import dray_up
from tests.real.upstream.process import Program

WAVE = 1_000


def there(quick: bool) -> Table:
    """Deployments of a thousand pods, one after the other."""
    nodes, waves, wave, settling = (10, 2, 20, 1.0) if quick else (1_250, 10, WAVE, 10.0)
    table = Table(f"Memory of `dray up` with {nodes:,} nodes, {wave:,} pods more at a time", ("pods", "memory", "more"))
    with _up(nodes) as (program, client):
        before = _row(table, "none", program, 0, settling)
        for number in range(1, waves + 1):
            create(client, 1, wave, first=number)
            _until(lambda: ready(client) == number * wave)  # noqa: B023
            before = _row(table, f"{number * wave:,}", program, before, settling)
    return table


def gone(quick: bool) -> Table:
    """A Deployment of a thousand pods that is made, runs and is deleted, again and again."""
    nodes, waves, wave, settling = (10, 2, 20, 1.0) if quick else (20, 28, WAVE, 10.0)
    table = Table(
        f"Memory of `dray up` with {nodes:,} nodes, {wave:,} pods that came and went at a time", ("pods", "memory", "more")
    )
    with _up(nodes) as (program, client):
        before = _row(table, "none", program, 0, settling)
        for number in range(1, waves + 1):
            create(client, 1, wave, first=number)
            _until(lambda: ready(client) == wave)
            client.call("DELETE", DEPLOYMENTS)
            _until(lambda: left(client) == 0)
            before = _row(table, f"{number * wave:,}", program, before, settling)
    return table


@contextmanager
def _up(nodes: int) -> Iterator[tuple[Program, Client]]:
    with (
        tempfile.TemporaryDirectory() as folder,
        dray_up(Path(folder), without="", arguments=("--nodes", str(nodes))) as server,
    ):
        yield server.programs[0], Client(server.kubeconfig)


def _until(done: Callable[[], bool]) -> None:
    while not done():
        time.sleep(0.5)


def _row(table: Table, pods: str, program: Program, before: int, settling: float) -> int:
    time.sleep(settling)  # the last events of pods that are there, or gone
    now = program.memory_bytes()
    table.add(pods, mebibytes(now), mebibytes(now - before) if before else "")
    return now


TABLES = {"memory-there": there, "memory-gone": gone}
