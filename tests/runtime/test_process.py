"""A part says what it waits for before it can decide anything."""

from __future__ import annotations

import asyncio
import logging

import pytest

from dray.api.kinds import NODES, PODS, Kind
from dray.apiserver.embedded import Embedded
from dray.cluster.port import Forbidden
from dray.runtime import process


class Heard(logging.Handler):
    """The first record that names what is missing."""

    def __init__(self) -> None:
        super().__init__()
        self.missing: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def emit(self, record: logging.LogRecord) -> None:
        if "missing" in record.__dict__ and not self.missing.done():
            self.missing.set_result(record.__dict__["missing"])


async def test_kinds_that_cannot_be_listed_are_named(cluster: Embedded, monkeypatch: pytest.MonkeyPatch) -> None:
    listing, heard = cluster.list, Heard()

    async def list_all_but_pods(kind: Kind, **more: str) -> tuple[list[bytes], str]:
        if kind == PODS:
            raise Forbidden(403, "Forbidden", "may not list")
        return await listing(kind, **more)

    monkeypatch.setattr(cluster, "list", list_all_but_pods)
    monkeypatch.setattr(process, "_PATIENCE", 0.2)
    process.log.addHandler(heard)
    stop = asyncio.Event()
    task = asyncio.create_task(process.run(cluster, process.Part((PODS, NODES), lambda world, metrics: []), stop))
    try:
        async with asyncio.timeout(20):
            assert await heard.missing == "pods"
    finally:
        process.log.removeHandler(heard)
        stop.set()
        await task
