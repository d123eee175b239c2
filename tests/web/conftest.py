"""The page served on a real socket, for tests that ask it and for tests that look at it."""

from __future__ import annotations

import os
import socket
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from dray.api.gates import Gates
from dray.explain.snapshot import Snapshot, kind_of
from dray.web.guard import Guard
from dray.web.moments import Scene, Still
from dray.web.server import Page
from tests.web import browser
from tests.web.clusters import small, world_of

TOKEN = "a-token"
NOW = 1_800_000_000.0


class Client:
    """Asks as the page does; ``headers`` replace what a browser would send."""

    def __init__(self, session: aiohttp.ClientSession, base: str, page: Page) -> None:
        self.session, self.base, self.page = session, base, page

    async def get(self, path: str, *, token: str = TOKEN, headers: dict[str, str] | None = None) -> tuple[int, Any, Any]:
        sent = {"Authorization": f"Bearer {token}", **(headers or {})}
        async with self.session.get(self.base + path, headers=sent) as answer:
            kind = answer.content_type
            return answer.status, (await answer.json() if kind == "application/json" else await answer.text()), answer.headers

    async def post(self, path: str, body: Any, *, headers: dict[str, str] | None = None) -> tuple[int, Any]:
        sent = {"Authorization": f"Bearer {TOKEN}", **(headers or {})}
        async with self.session.post(self.base + path, json=body, headers=sent) as answer:
            return answer.status, await answer.json()

    async def delete(self, path: str) -> int:
        async with self.session.delete(self.base + path, headers={"Authorization": f"Bearer {TOKEN}"}) as answer:
            return answer.status

    async def ok(self, path: str) -> Any:
        status, body, _ = await self.get(path)
        assert status == 200, body
        return body


@asynccontextmanager
async def serving(scene: Scene, **options: Any) -> AsyncIterator[Client]:
    sock = socket.create_server(("127.0.0.1", 0))
    page = Page(scene, Guard(TOKEN), **options)
    await page.serve(sock)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        yield Client(session, f"http://127.0.0.1:{sock.getsockname()[1]}", page)
    await page.close()


def still(objects: Sequence[dict[str, Any]], gates: Gates | None = None) -> Still:
    found = {(kind, key): body for kind, key, body in _placed(objects)}
    return Still(Snapshot(world_of(objects), found, Counter()), "a test", NOW, gates=gates)


def _placed(objects: Sequence[dict[str, Any]]) -> Any:
    for body in objects:
        kind = kind_of(body, Path("a test"))
        if kind is not None:
            metadata = body["metadata"]
            yield kind, f"{metadata.get('namespace', '')}/{metadata['name']}".strip("/"), body


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # As root in a container there is no sandbox to be had; nothing but our own page is opened.
        arguments = ["--no-sandbox", "--js-flags=--expose-gc"] if os.geteuid() == 0 else ["--js-flags=--expose-gc"]
        started = playwright.chromium.launch(executable_path=browser.found(), args=arguments)
        yield started
        started.close()


@pytest.fixture(scope="module")
def shown() -> Iterator[browser.Served]:
    with browser.in_a_thread(lambda: still(small())) as served:
        yield served
