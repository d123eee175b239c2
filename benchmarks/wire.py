"""A small HTTP/1.1 client that costs as little as it can, so that a benchmark measures the server and not the client.

One ``Wire`` is one TLS connection; requests on it go one after the other. The same code speaks to every server.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.real.upstream.client import connection

Json = dict[str, Any]
MERGE = "application/merge-patch+json"


class Unexpected(Exception):
    """The server refused, or did not speak HTTP as expected."""


class Wire:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: str) -> None:
        self.reader, self.writer, self.head = reader, writer, head

    @classmethod
    async def open(cls, kubeconfig: Path) -> Wire:
        url, trusted, headers = connection(kubeconfig)
        trusted.set_alpn_protocols(["http/1.1"])
        where = urlsplit(url)
        reader, writer = await asyncio.open_connection(where.hostname, where.port, ssl=trusted, limit=2**22)
        head = f"Host: {where.netloc}\r\nAuthorization: {headers['Authorization']}\r\nAccept: application/json\r\n"
        return cls(reader, writer, head)

    def send(self, method: str, path: str, body: bytes = b"", content_type: str = "application/json") -> None:
        length = f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n" if body else ""
        self.writer.write(f"{method} /{path} HTTP/1.1\r\n{self.head}{length}\r\n".encode() + body)

    async def call(self, method: str, path: str, body: bytes = b"", content_type: str = "application/json") -> bytes:
        """One request, and the body of its answer; anything but success raises."""
        self.send(method, path, body, content_type)
        status, headers = await self.answer_head()
        content = await self._content(headers)
        if status >= 300:
            raise Unexpected(f"{method} /{path}: {status} {content[:300]!r}")
        return content

    async def answer_head(self) -> tuple[int, bytes]:
        headers = await self.reader.readuntil(b"\r\n\r\n")
        return int(headers[9:12]), headers.lower()

    async def _content(self, headers: bytes) -> bytes:
        found = headers.find(b"content-length:")
        if found >= 0:
            return await self.reader.readexactly(int(headers[found + 15 : headers.index(b"\r", found)]))
        if b"transfer-encoding: chunked" not in headers:
            raise Unexpected(f"neither length nor chunks: {headers!r}")
        return b"".join([chunk async for chunk in self.chunks()])

    async def chunks(self) -> AsyncIterator[bytes]:
        while size := int(await self.reader.readline(), 16):
            yield (await self.reader.readexactly(size + 2))[:-2]
        await self.reader.readline()

    async def events(self, path: str) -> AsyncIterator[Json]:
        """The events of a watch."""
        self.send("GET", path)
        status, _ = await self.answer_head()
        if status != 200:
            raise Unexpected(f"watch /{path}: {status}")
        rest = b""
        async for chunk in self.chunks():
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                yield json.loads(line)

    def close(self) -> None:
        self.writer.close()


@asynccontextmanager
async def wires(kubeconfig: Path, count: int) -> AsyncIterator[list[Wire]]:
    opened = [await Wire.open(kubeconfig) for _ in range(count)]
    try:
        yield opened
    finally:
        for wire in opened:
            wire.close()


async def over_all(connections: list[Wire], jobs: Iterable[Any], do: Callable[[Wire, Any], Awaitable[Any]]) -> None:
    """Does every job, as many at a time as there are connections."""
    pending = iter(jobs)

    async def worker(wire: Wire) -> None:
        for job in pending:
            await do(wire, job)

    await asyncio.gather(*(worker(w) for w in connections))
