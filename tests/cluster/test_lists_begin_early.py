"""Whoever starts has its cluster listed while it is still being loaded, and nothing is asked twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from dray.api.kinds import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, NODE_RESOURCE_TOPOLOGIES, NODES, Kind
from dray.apiserver.server import ApiServer
from dray.cluster.kubeconfig import load
from dray.cluster.port import NotFound, WatchEvent, Write
from dray.cluster.remote import Remote
from dray.cluster.served import Served


class Asked(Remote):
    """A connection that tells what went over it; ``held`` keeps lists of a kind back."""

    def __init__(self, kubeconfig: Path) -> None:
        super().__init__(load(kubeconfig))
        self.asked: list[str] = []
        self.held: dict[Kind, asyncio.Event] = {}

    async def list(self, kind: Kind, **selectors: Any) -> tuple[list[bytes], str]:
        self.asked.append(f"list {kind.plural} {selectors.get('field_selector', '')}".strip())
        if kind in self.held:
            await self.held[kind].wait()
        return await super().list(kind, **selectors)

    async def watch(self, kind: Kind, resource_version: str, **selectors: Any) -> AsyncIterator[WatchEvent]:
        self.asked.append(f"watch {kind.plural}")
        async for event in super().watch(kind, resource_version, **selectors):
            yield event

    async def raw(self, path: str) -> bytes:
        self.asked.append(path)
        return await super().raw(path)


@pytest.fixture
async def remote(tmp_path: Path) -> AsyncIterator[Asked]:
    server = ApiServer(None)
    await server.start()
    server.write_kubeconfig(tmp_path / "kubeconfig")
    remote = Asked(tmp_path / "kubeconfig")
    yield remote
    await remote.close()
    await server.stop()


async def test_the_first_list_is_the_one_that_was_begun(remote: Asked) -> None:
    served = await Served.of(remote, [NAMESPACES], begin=True)
    await asyncio.sleep(0)
    assert remote.asked == ["/api/v1", "list namespaces"]
    first, _ = await served.list(NAMESPACES)
    assert len(remote.asked) == 2
    await remote.write(Write("create", NAMESPACES, name="new", body={"metadata": {"name": "new"}}))
    second, _ = await served.list(NAMESPACES)
    assert len(second) == len(first) + 1, "the second is as things are then"


async def test_a_list_of_some_is_not_answered_with_all(remote: Asked) -> None:
    served = await Served.of(remote, [NAMESPACES], begin=True)
    found, _ = await served.list(NAMESPACES, field_selector="metadata.name=default")
    assert len(found) == 1


async def test_a_kind_that_was_just_missed_is_not_asked_for_again_at_once_but_later(
    remote: Asked, caplog: pytest.LogCaptureFixture
) -> None:
    await remote.write(Write("delete", CUSTOM_RESOURCE_DEFINITIONS, name=NODE_RESOURCE_TOPOLOGIES.resource))
    served = await Served.of(remote, [NODE_RESOURCE_TOPOLOGIES], begin=True)
    assert not caplog.records, "whoever reads it says that it is missing"
    asked = len(remote.asked)
    with pytest.raises(NotFound):
        await served.list(NODE_RESOURCE_TOPOLOGIES)
    assert len(remote.asked) == asked
    with pytest.raises(NotFound):
        await served.list(NODE_RESOURCE_TOPOLOGIES)
    assert len(remote.asked) > asked


async def test_watches_wait_for_the_lists_without_which_nobody_can_begin(remote: Asked) -> None:
    remote.held[NODES] = asyncio.Event()
    served = await Served.of(remote, [NAMESPACES, NODES], begin=True)
    _, version = await served.list(NAMESPACES)
    watching = asyncio.create_task(anext(aiter(served.watch(NAMESPACES, version))))
    await asyncio.sleep(0.05)
    assert "watch namespaces" not in remote.asked
    remote.held[NODES].set()
    async with asyncio.timeout(10):
        while "watch namespaces" not in remote.asked:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    watching.cancel()
    await served.close()


async def test_a_list_that_nobody_asked_for_ends_with_the_connection(remote: Asked) -> None:
    remote.held[NODES] = asyncio.Event()
    served = await Served.of(remote, [NODES], begin=True)
    async with asyncio.timeout(10):
        await served.close()
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "list nodes"]
