"""A pool of HTTP/1.1 connections for small requests with small answers, which is what writes are, and for watches.

A scheduler's writes bound its speed, and a general HTTP client spends most of its time on what they never use: redirects,
cookies, content codings. This one sends a request, parses the answer with httptools and reuses the connection. A watch is an
answer that does not end: it has a connection of its own and is read as it comes.

Always true: a connection carries one request at a time; ``NotSent`` means that no byte of the request left, ``Broken`` that the
request may have been carried out; a connection that idled for long is not used again, because the server may be closing it. An
answer that does not say how long it is, as what load balancers say of a server that is away, ends with its connection.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator
from typing import Final, TypeVar, cast

import httptools

IDLE_SECONDS: Final = 20.0
# Many slices of many devices, all pods of a large cluster at once: hundreds of megabytes. More is no answer of an API server.
ANSWER_MAX: Final = 512 * 1024 * 1024
# The server is not read any further while this much of a stream is not taken yet.
UNREAD_MAX: Final = 4 * 1024 * 1024
# Watches of many kinds begin together; all their handshakes at once would keep a write waiting, such as the first binding.
STREAMS_OPENED_AT_ONCE: Final = 2


class NotSent(Exception):
    """No connection could be opened. ``hopeless`` when trying again will not help: the certificate is not trusted."""

    def __init__(self, why: str, hopeless: bool = False) -> None:
        super().__init__(why)
        self.hopeless = hopeless


class Broken(Exception):
    """The connection broke, or stayed silent, before the answer was complete."""


class TooMuch(Broken):
    """The answer is larger than is taken, or was not complete in its time: asking for the same again would not help."""


class Answer:
    """Status, the headers that matter, and the body of one answer."""

    __slots__ = ("body", "retry_after", "status")

    def __init__(self, status: int, body: bytes, retry_after: str) -> None:
        self.status, self.body, self.retry_after = status, body, retry_after


# The second where it speaks another protocol from here on, which nobody asked for.
_NOT_HTTP: Final = (httptools.HttpParserError, httptools.HttpParserUpgrade)
# Headers that say where an answer ends.
_MEASURES: Final = frozenset({b"content-length", b"transfer-encoding"})


class _Connection(asyncio.Protocol):
    """One connection; also what the parser calls back."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._waiting: asyncio.Future[Answer] | None = None
        self._body: list[bytes] = []
        self._length = 0
        self._retry_after = ""
        # Whether the answer says how long it is; whether its head is there and did not say so.
        self._measured = self._open_ended = False
        self.idle_since = 0.0
        self.reusable = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are not its subclasses

    def send(self, request: bytes, waiting: asyncio.Future[Answer]) -> None:
        assert self._transport is not None
        self._waiting, self._body, self._length, self._retry_after = waiting, [], 0, ""
        self._measured = self._open_ended = False
        self._parser = httptools.HttpResponseParser(self)
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        if self._parser is None or self._waiting is None:
            self.close()  # the server speaks without being asked
            return
        try:
            self._parser.feed_data(data)
        except _NOT_HTTP as error:
            self._fail(Broken(f"the answer is not HTTP: {error}"))

    def connection_lost(self, error: Exception | None) -> None:
        self.reusable = False
        if error is None and self._open_ended:
            self.on_message_complete()
        self._fail(Broken(str(error) if error else "the server closed the connection"))

    def close(self) -> None:
        self.reusable = False
        if self._transport is not None:
            self._transport.abort()

    def _fail(self, why: Broken) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_exception(why)
            self.close()

    # ------------------------------------------------------------------------------------------- called by the parser

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name == b"retry-after":
            self._retry_after = value.decode("latin-1")
        self._measured = self._measured or name in _MEASURES

    def on_headers_complete(self) -> None:
        self._open_ended = not self._measured

    def on_body(self, body: bytes) -> None:
        self._length += len(body)
        if self._length > ANSWER_MAX:
            self._fail(TooMuch(f"the answer is larger than {ANSWER_MAX >> 20} MiB"))
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


class Stream(asyncio.Protocol):
    """One answer that is read as it comes: its ``status``, then its body in pieces. Whoever opened it closes it."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._unread: list[bytes] = []
        self._size = 0
        self._paused = False
        self._measured = False
        self._over = False
        self._broken = ""
        self._stirred = asyncio.Event()
        self._silence = 0.0
        self.status = 0

    async def begin(self, request: bytes, silence_seconds: float) -> None:
        """Send the request and wait for the head of the answer."""
        assert self._transport is not None
        self._silence = silence_seconds
        self._transport.write(request)
        while not self.status:
            await self._more()

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body as it comes. Raises Broken when it ends before its time, or when nothing comes for too long."""
        while True:
            if self._unread:
                yield self._take()
            elif self._over:
                return
            else:
                await self._more()

    def close(self) -> None:
        self._over = True
        if self._transport is not None:
            self._transport.abort()

    async def _more(self) -> None:
        if self._broken:
            raise Broken(self._broken)
        self._stirred.clear()
        try:
            async with asyncio.timeout(self._silence):
                await self._stirred.wait()
        except TimeoutError:
            raise Broken(f"nothing came for {self._silence:g} seconds") from None

    def _take(self) -> bytes:
        data = b"".join(self._unread)
        self._unread, self._size = [], 0
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return data

    # --------------------------------------------------------------------------------- called by the transport and the parser

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except _NOT_HTTP as error:
            self._broken = f"the answer is not HTTP: {error}"
        self._stirred.set()

    def connection_lost(self, error: Exception | None) -> None:
        if error is None and self.status and not self._measured:
            self._over = True
        self._broken = self._broken or (str(error) if error else "the server closed the connection")
        self._stirred.set()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._measured = self._measured or name.lower() in _MEASURES

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        self.status = status if status >= 200 else 0  # before that, an interim answer: the real one follows

    def on_body(self, body: bytes) -> None:
        self._unread.append(body)
        self._size += len(body)
        if self._size > UNREAD_MAX and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        self._over = self._over or self.status > 0


P = TypeVar("P", _Connection, Stream)


class Connections:
    """Connections to one server, opened as needed, at most ``limit`` at a time."""

    def __init__(self, host: str, port: int, *, limit: int, connect_seconds: float, answer_seconds: float) -> None:
        self._host, self._port = host, port
        self._connect_seconds, self._answer_seconds = connect_seconds, answer_seconds
        self._free = asyncio.Semaphore(limit)
        self._opening = asyncio.Semaphore(STREAMS_OPENED_AT_ONCE)
        self._idle: deque[tuple[ssl.SSLContext | None, _Connection]] = deque()

    async def ask(self, request: bytes, tls: ssl.SSLContext | None, server_name: str) -> Answer:
        async with self._free:
            connection = self._reuse(tls) or await self._open(_Connection, tls, server_name)
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

    async def stream(self, request: bytes, tls: ssl.SSLContext | None, server_name: str, silence_seconds: float) -> Stream:
        """An answer that is read as it comes, on a connection of its own, which does not count among the ``limit``."""
        async with self._opening:
            stream = await self._open(Stream, tls, server_name)
        try:
            await stream.begin(request, silence_seconds)
        except BaseException:
            stream.close()
            raise
        return stream

    def _reuse(self, tls: ssl.SSLContext | None) -> _Connection | None:
        """The connection that was used last, if it has not idled for too long and shows the same identity."""
        oldest = asyncio.get_running_loop().time() - IDLE_SECONDS
        while self._idle:
            context, connection = self._idle.pop()
            if connection.reusable and context is tls and connection.idle_since > oldest:
                return connection
            connection.close()
        return None

    async def _open(self, protocol: type[P], tls: ssl.SSLContext | None, server_name: str) -> P:
        loop = asyncio.get_running_loop()
        named = (server_name or self._host) if tls is not None else None
        try:
            async with asyncio.timeout(self._connect_seconds):
                _, connection = await loop.create_connection(protocol, self._host, self._port, ssl=tls, server_hostname=named)
        except (OSError, TimeoutError) as error:
            raise NotSent(str(error) or "timed out", isinstance(error, ssl.SSLCertVerificationError)) from error
        return connection

    def close(self) -> None:
        while self._idle:
            self._idle.pop()[1].close()


def _late(waiting: asyncio.Future[Answer]) -> None:
    if not waiting.done():
        waiting.set_exception(TooMuch("timed out"))
