"""Connections, so many and no more.

Always true: what is open is bounded, and nobody keeps others out by opening connections and asking nothing: when all places are
taken, the one that has been open longest without a question under way gives its place to whoever comes; questions that are being
answered, and streams, are never cut off for it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

OPEN_MAX: Final = 512


class Doors:
    """Makes the protocol of each connection for ``loop.create_server``."""

    def __init__(self, server: web.Server) -> None:
        self._server = server
        self._busy: Counter[object] = Counter()

    def __call__(self) -> asyncio.BaseProtocol:
        # Those that were told to close have no transport any more, and are gone in a moment.
        there = [each for each in self._server.connections if each.transport is not None]
        if len(there) < OPEN_MAX:
            return self._server()
        idle: RequestHandler | None = next((each for each in there if not self._busy[each]), None)
        if idle is None:
            return _Full()
        idle.force_close()
        return self._server()

    @contextmanager
    def answering(self, protocol: object) -> Iterator[None]:
        self._busy[protocol] += 1
        try:
            yield
        finally:
            self._busy[protocol] -= 1
            if not self._busy[protocol]:
                del self._busy[protocol]


class _Full(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()
