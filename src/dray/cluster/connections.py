"""A pool of HTTP/1.1 connections for small requests with small answers, which is what writes are.

A scheduler's writes bound its speed, and a general HTTP client spends most of its time on what they never use: redirects,
cookies, streaming, content codings. This one sends a request, parses the answer with httptools and reuses the connection.

Always true: a connection carries one request at a time; ``NotSent`` means that no byte of the request left, ``Broken`` that the
request may have been carried out; a connection that idled for long is not used again, because the server may be closing it.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from typing import Final, cast

import httptools

IDLE_SECONDS: Final = 20.0
ANSWER_MAX: Final = 64 * 1024 * 1024


class NotSent(Exception):
    """No connection could be opened. ``hopeless`` when trying again will not help: the certificate is not trusted."""

    def __init__(self, why: str, hopeless: bool = False) -> None:
        super().__init__(why)
        self.hopeless = hopeless


class Broken(Exception):
    """The connection broke, or stayed silent, before the answer was complete."""


class Answer:
    """Status, the headers that matter, and the body of one answer."""

    __slots__ = ("body", "retry_after", "status")

    def __init__(self, status: int, body: bytes, retry_after: str) -> None:
        self.status, self.body, self.retry_after = status, body, retry_after


class _Connection(asyncio.Protocol):
    """One connection; also what the parser calls back."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._waiting: asyncio.Future[Answer] | None = None
        self._body: list[bytes] = []
        self._length = 0
        self._retry_after = ""
        self.idle_since = 0.0
        self.reusable = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are not its subclasses

    def send(self, request: bytes, waiting: asyncio.Future[Answer]) -> None:
        assert self._transport is not None
        self._waiting, self._body, self._length, self._retry_after = waiting, [], 0, ""
        self._parser = httptools.HttpResponseParser(self)
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        if self._parser is None or self._waiting is None:
            self.close()  # the server speaks without being asked
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(f"the answer is not HTTP: {error}")

    def connection_lost(self, error: Exception | None) -> None:
        self.reusable = False
        self._fail(str(error) if error else "the server closed the connection")

    def close(self) -> None:
        self.reusable = False
        if self._transport is not None:
            self._transport.abort()

    def _fail(self, why: str) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_exception(Broken(why))
            self.close()

    # ------------------------------------------------------------------------------------------- called by the parser

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"retry-after":
            self._retry_after = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self._length += len(body)
        if self._length > ANSWER_MAX:
            self._fail(f"the answer is larger than {ANSWER_MAX} bytes")
        else:
            self._body.append(body)

    def on_message_complete(self) -> None:
        parser, waiting = self._parser, self._waiting
        if parser is None or waiting is None:
            return
        status = parser.get_status_code()
        if status < 200:  # an interim answer: the real one follows
            self._body, self._length = [], 0
            return
        self._waiting = None
        self.reusable = self.reusable and parser.should_keep_alive()
        if not waiting.done():
            waiting.set_result(Answer(status, b"".join(self._body), self._retry_after))


class Connections:
    """Connections to one server, opened as needed, at most ``limit`` at a time."""

    def __init__(self, host: str, port: int, *, limit: int, connect_seconds: float, answer_seconds: float) -> None:
        self._host, self._port = host, port
        self._connect_seconds, self._answer_seconds = connect_seconds, answer_seconds
        self._free = asyncio.Semaphore(limit)
        self._idle: deque[tuple[ssl.SSLContext | None, _Connection]] = deque()

    async def ask(self, request: bytes, tls: ssl.SSLContext | None, server_name: str) -> Answer:
        async with self._free:
            connection = self._reuse(tls) or await self._open(tls, server_name)
            loop = asyncio.get_running_loop()
            waiting: asyncio.Future[Answer] = loop.create_future()
            deadline = loop.call_later(self._answer_seconds, _late, waiting)
            try:
                connection.send(request, waiting)
                answer = await waiting
            except BaseException:
                connection.close()
                raise
            finally:
                deadline.cancel()
            if connection.reusable:
                connection.idle_since = loop.time()
                self._idle.append((tls, connection))
            else:
                connection.close()
            return answer

    def _reuse(self, tls: ssl.SSLContext | None) -> _Connection | None:
        """The connection that was used last, if it has not idled for too long and shows the same identity."""
        oldest = asyncio.get_running_loop().time() - IDLE_SECONDS
        while self._idle:
            context, connection = self._idle.pop()
            if connection.reusable and context is tls and connection.idle_since > oldest:
                return connection
            connection.close()
        return None

    async def _open(self, tls: ssl.SSLContext | None, server_name: str) -> _Connection:
        loop = asyncio.get_running_loop()
        named = (server_name or self._host) if tls is not None else None
        try:
            async with asyncio.timeout(self._connect_seconds):
                _, connection = await loop.create_connection(_Connection, self._host, self._port, ssl=tls, server_hostname=named)
        except (OSError, TimeoutError) as error:
            raise NotSent(str(error) or "timed out", isinstance(error, ssl.SSLCertVerificationError)) from error
        return connection

    def close(self) -> None:
        while self._idle:
            self._idle.pop()[1].close()


def _late(waiting: asyncio.Future[Answer]) -> None:
    if not waiting.done():
        waiting.set_exception(Broken("timed out"))
