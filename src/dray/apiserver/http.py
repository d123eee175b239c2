"""HTTP/1.1 on an asyncio transport: requests in, answers and watch streams out.

Always true: a request costs at most its bounds (head, body, time), whatever a client sends; an answer leaves only when the
revision it shows is durable; a client that does not read its watch is not waited for, its stream is cut by the store.
One connection handles one request at a time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final, Protocol, cast
from urllib.parse import parse_qsl, unquote

import httptools

from dray.apiserver.api import Answer, Request, refusal
from dray.apiserver.authentication.authenticator import certified
from dray.apiserver.authentication.users import User
from dray.apiserver.errors import ApiError
from dray.apiserver.intake import MAX_BODY
from dray.apiserver.watching import BOOKMARK_SECONDS, Stream

MAX_HEAD: Final = 64 * 1024
MAX_DISCARDED: Final = 128 * 1024 * 1024
REQUEST_SECONDS: Final = 60.0
MAX_QUEUED: Final = 16
MAX_CONNECTIONS: Final = 2000

_LINES: Final = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}
_CHUNKED: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\nCache-Control: no-cache, private\r\n\r\n"
)


class Service(Protocol):
    """What a connection needs from the server."""

    def handle(self, request: Request) -> Answer | Stream: ...

    def user(self, authorization: str) -> User | None: ...

    def when_durable(self, revision: int, ready: Callable[[], None], lost: Callable[[ApiError], None]) -> None: ...

    @property
    def connections(self) -> set[Any]: ...


class Connection(asyncio.Protocol):
    def __init__(self, service: Service, loop: asyncio.AbstractEventLoop) -> None:
        self._service, self._loop = service, loop
        self._transport: asyncio.Transport = None  # type: ignore[assignment]
        self._parser = httptools.HttpRequestParser(self)
        self._queue: deque[tuple[Request, bool]] = deque()
        self._busy = self._closing = self._paused = False
        self._stream: Stream | None = None
        self._scheduled = False
        self._timers: list[asyncio.TimerHandle] = []
        self._deadline: asyncio.TimerHandle | None = None
        self._discarding = 0
        self._certified: User | None = None
        self._reset()

    def _reset(self) -> None:
        self._url = b""
        self._headers: dict[bytes, bytes] = {}
        self._impersonate: list[tuple[str, str]] = []
        self._body: list[bytes] = []
        self._size = self._head = 0
        self._too_large = False

    # --------------------------------------------------------------------------------------------------- from the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if len(self._service.connections) >= MAX_CONNECTIONS:
            self._closing = True
            transport.close()
        self._service.connections.add(self)
        session = transport.get_extra_info("ssl_object")
        if session is not None and (certificate := session.getpeercert(True)):
            self._certified = certified(session.getpeercert()["subject"], certificate)

    def connection_lost(self, error: Exception | None) -> None:
        self._closing = True
        self._service.connections.discard(self)
        self._end_stream()
        if self._deadline is not None:
            self._deadline.cancel()
        # The parser and this know each other, and so do the transport and this: together they would stay until a collection.
        del self._parser, self._transport

    def data_received(self, data: bytes) -> None:
        if self._discarding:
            self._discarding -= len(data)
            if self._discarding <= 0:
                self._transport.close()
            return
        if self._deadline is None:
            self._deadline = self._loop.call_later(REQUEST_SECONDS, self._too_slow)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._discarding = (
                MAX_DISCARDED  # it gets the answer of any request; what follows is of a protocol that nobody agreed to
            )
        except httptools.HttpParserError as error:
            self._fail(400, f"the request is not HTTP: {error}")

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._drain()

    # ------------------------------------------------------------------------------------------------------ from the parser

    def on_url(self, url: bytes) -> None:
        self._url += url
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        self._headers[name] = value
        if name.startswith(b"impersonate-"):
            self._impersonate.append((name.decode("latin-1"), value.decode("utf-8", "replace")))
        self._count(len(name) + len(value))

    def on_headers_complete(self) -> None:
        length = self._headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > MAX_BODY:
            self._too_large = True
            self._fail(413, f"Request entity too large: limit is {MAX_BODY}", "RequestEntityTooLarge")
        elif self._headers.get(b"expect", b"").lower() == b"100-continue":
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self._size += len(body)
        if self._size > MAX_BODY:
            self._body.clear()
            if not self._too_large:
                self._too_large = True
                self._fail(413, f"Request entity too large: limit is {MAX_BODY}", "RequestEntityTooLarge")
            return
        self._body.append(body)

    def on_message_complete(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if self._discarding or self._closing:
            return
        request, keep = self._request(), self._parser.should_keep_alive() and not self._parser.should_upgrade()
        self._reset()
        if self._busy:
            if len(self._queue) >= MAX_QUEUED:
                self._fail(429, "too many requests at once on one connection")
                return
            self._queue.append((request, keep))
        else:
            self._start(request, keep)

    def _count(self, size: int) -> None:
        self._head += size
        if self._head > MAX_HEAD and not self._discarding:
            self._fail(431, f"request header fields too large: limit is {MAX_HEAD}")

    def _request(self) -> Request:
        raw = self._url.decode("latin-1")
        path, _, query = raw.partition("?")
        get = self._headers.get
        return Request(
            method=self._parser.get_method().decode(),
            path=unquote(path) if "%" in path else path,
            query=dict(reversed(parse_qsl(query, keep_blank_values=True))) if query else {},
            accept=get(b"accept", b"").decode("latin-1"),
            content_type=get(b"content-type", b"").decode("latin-1"),
            user_agent=get(b"user-agent", b"").decode("latin-1"),
            if_none_match=get(b"if-none-match", b"").decode("latin-1"),
            impersonate=tuple(self._impersonate),
            body=b"".join(self._body),
            user=self._certified or self._service.user(get(b"authorization", b"").decode("latin-1")),
        )

    # -------------------------------------------------------------------------------------------------------------- answers

    def _start(self, request: Request, keep: bool) -> None:
        self._busy = True
        answer = self._service.handle(request)

        def lost(error: ApiError) -> None:
            if isinstance(answer, Stream):
                answer.close()
            self._send(refusal(error), keep)

        if isinstance(answer, Stream):
            self._service.when_durable(answer.revision, lambda: self._begin(answer), lost)
        else:
            self._service.when_durable(answer.revision, lambda: self._send(answer, keep, request.method == "HEAD"), lost)

    def _send(self, answer: Answer, keep: bool, head_only: bool = False) -> None:
        if self._closing:
            return
        parts = [_LINES.get(answer.code) or f"HTTP/1.1 {answer.code} Unknown\r\n".encode()]
        head = (
            f"Content-Type: {answer.content_type}\r\nContent-Length: {len(answer.body)}\r\nCache-Control: no-cache, private\r\n"
        )
        for name, value in answer.headers:
            head += f"{name}: {value}\r\n"
        if not keep:
            head += "Connection: close\r\n"
        parts += [head.encode("utf-8", "replace"), b"\r\n"]
        if not head_only:
            parts.append(answer.body)
        self._transport.write(b"".join(parts))
        self._finished(keep)

    def _finished(self, keep: bool) -> None:
        self._busy = False
        if not keep:
            self._closing = True
            self._transport.close()
        elif self._queue:
            self._start(*self._queue.popleft())

    def _fail(self, code: int, message: str, reason: str = "BadRequest") -> None:
        """Answer and close; what the client still sends is thrown away for a while, so that it can read the answer."""
        if self._discarding or self._closing:
            return
        self._discarding = MAX_DISCARDED
        if self._stream is None and not self._busy:
            answer = refusal(ApiError(code, reason, message))
            self._send(answer, keep=True)
        self._timers.append(self._loop.call_later(5.0, self._transport.close))

    def _too_slow(self) -> None:
        self._deadline = None
        self._fail(408, f"the request did not arrive within {REQUEST_SECONDS:.0f} s", "Timeout")

    # -------------------------------------------------------------------------------------------------------------- streams

    def _begin(self, stream: Stream) -> None:
        if self._closing:
            stream.close()
            return
        self._stream = stream
        self._transport.write(_CHUNKED)
        self._timers.append(self._loop.call_later(stream.options.timeout, self._time_out))
        self._timers.append(self._loop.call_later(BOOKMARK_SECONDS, self._bookmark))
        self._drain()
        stream.on_change(self._changed)

    def _changed(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._drain)

    def _drain(self) -> None:
        self._scheduled = False
        stream = self._stream
        if stream is None or self._paused or self._closing:
            return
        self._chunk(stream.pending())
        if stream.ended:
            self._finish_stream()

    def _chunk(self, data: bytes) -> None:
        if data:
            self._transport.write(b"%x\r\n%s\r\n" % (len(data), data))

    def _bookmark(self) -> None:
        if self._stream is not None and not self._paused:
            self._drain()
            self._chunk(self._stream.bookmark() if self._stream is not None else b"")
        self._timers.append(self._loop.call_later(BOOKMARK_SECONDS, self._bookmark))

    def _time_out(self) -> None:
        if self._stream is not None:
            self._drain()
        if self._stream is not None:
            self._chunk(self._stream.bookmark())
            self._finish_stream()

    def _finish_stream(self) -> None:
        self._end_stream()
        if not self._closing:
            self._transport.write(b"0\r\n\r\n")
            self._finished(keep=True)

    def _end_stream(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def close(self) -> None:
        """The server stops: end what runs, then the connection."""
        if self._stream is not None:
            self._finish_stream()
        self._closing = True
        self._transport.close()
