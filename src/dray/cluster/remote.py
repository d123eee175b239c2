"""``Remote``: the cluster port over HTTPS to any Kubernetes API server.

What is retried here, and what never is:

- 429, and 503 with Retry-After: the server did not do it; it is sent again after the time that the server asked for, a few times.
  An eviction's 429 is an answer (the disruption budget), so it is returned at once.
- The connection could not be opened: nothing was sent; tried again with growing pauses for ten seconds. Credentials that cannot
  be made are not: that is for the user, and was no fault of the server.
- The connection broke while a read was in flight: read again. While a write was in flight: ``Unreachable``, because it
  may have happened; the watch will show it, and preconditions keep a second try from doing it twice.
- An answer that was not complete in a minute, or is larger than is taken: the same is not asked for again, but smaller pages of
  a list.
- A redirect is not followed, and nobody else gets our token: whoever sends elsewhere is no API server.
- 401: the credentials are made anew once (exec plugins, rotated token files).
- A claim that cannot be written in JSON (``dray.cluster.protobuf`` says why) is written in protobuf.
- Everything else is an answer and becomes an error of ``dray.cluster.port``; a 5xx leaves in doubt whether a write happened.

Requests go over connections of our own, because their cost bounds what a scheduler can do; where a proxy is configured, through
aiohttp, which is loaded only then.
"""

from __future__ import annotations

import asyncio
import random
import re
import ssl
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from dray.api.digits import whole
from dray.api.kinds import Kind
from dray.cluster import protobuf
from dray.cluster.connections import Answer, Broken, Connections, NotSent, Stream, TooMuch
from dray.cluster.kubeconfig import Access, Identity, KubeconfigError
from dray.cluster.port import Expired, Unreachable, WatchEvent, Write, refused
from dray.cluster.requests import as_request, refusal, write_refusal

if TYPE_CHECKING:
    from dray.cluster.proxied import Proxied, ProxiedStream

T = TypeVar("T")

PAGE: Final = 2000
SMALLEST_PAGE: Final = 100
CONNECTIONS: Final = 128
REQUEST_SECONDS: Final = 60.0
CONNECT_SECONDS: Final = 10.0
# The server ends a watch within this range, chosen anew each time so that many watches do not end together.
WATCH_SECONDS: Final = (300, 600)
# Bookmarks come about once a minute: silence for longer than this means that the connection is dead.
SILENCE_SECONDS: Final = 180.0
TRIES: Final = 6
RETRY_AFTER_MAX_SECONDS: Final = 30.0
USER_AGENT: Final = "dray"

_PLAIN_PATH: Final = re.compile(r"[A-Za-z0-9/._~:-]+")
_COMMON: Final = {"Accept": "application/json", "User-Agent": USER_AGENT}
NO_HEADERS: Final[Mapping[str, str]] = {}


class _ListMeta(msgspec.Struct):
    resourceVersion: str = ""  # noqa: N815
    continue_: str = msgspec.field(default="", name="continue")
    annotations: dict[str, str] | None = None


class _List(msgspec.Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


class _Object(msgspec.Struct):
    metadata: _ListMeta


class _Line(msgspec.Struct):
    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]
    object: msgspec.Raw


_list_decoder: Final = msgspec.json.Decoder(_List)
_line_decoder: Final = msgspec.json.Decoder(_Line)
_object_decoder: Final = msgspec.json.Decoder(_Object)
_plain_decoder: Final = msgspec.json.Decoder(dict[str, Any])


class Remote:
    """List, watch and write over HTTPS. One connection pool; close it when done."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self._proxied: Proxied | None = None
        url = urlsplit(access.server)
        self._prefix = url.path.rstrip("/")
        self._host_line = f"Host: {url.netloc.rpartition('@')[2]}"
        self._connections = Connections(
            url.hostname or "",
            url.port or (80 if url.scheme == "http" else 443),
            limit=CONNECTIONS,
            connect_seconds=CONNECT_SECONDS,
            answer_seconds=REQUEST_SECONDS,
        )
        self._tls: tuple[Identity, ssl.SSLContext | None] | None = None

    async def list(
        self, kind: Kind, *, namespace: str = "", label_selector: str = "", field_selector: str = ""
    ) -> tuple[list[bytes], str]:
        """Every object, in pages of one consistent snapshot, and the resourceVersion to watch from. When the snapshot is
        compacted between two pages, everything is asked for at once."""
        query = {"limit": str(PAGE), **_selectors(label_selector, field_selector)}
        found: list[bytes] = []
        while True:
            try:
                page = decoded(_list_decoder, await self._read(kind.path(namespace), query))
            except Unreachable as error:
                smaller = int(query.get("limit", "0")) // 4
                if not isinstance(error.__cause__, TooMuch) or smaller < SMALLEST_PAGE:
                    raise
                query["limit"] = str(smaller)
                continue
            except Expired:
                if "continue" not in query:
                    raise
                query, found = _selectors(label_selector, field_selector), []
                continue
            found.extend(map(bytes, page.items or ()))
            if not page.metadata.continue_:
                return found, page.metadata.resourceVersion
            query["continue"] = page.metadata.continue_

    async def watch(
        self, kind: Kind, resource_version: str, *, namespace: str = "", label_selector: str = "", field_selector: str = ""
    ) -> AsyncIterator[WatchEvent]:
        """Events after ``resource_version`` until the server ends the watch. With "" the current objects come first and
        then a bookmark with ``synced`` set. Raises Expired when the position is compacted."""
        seconds = random.randint(*WATCH_SECONDS)
        query = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": str(seconds)}
        query |= _selectors(label_selector, field_selector)
        if resource_version:
            query["resourceVersion"] = resource_version
        else:
            query |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        stream: Stream | ProxiedStream | None = None
        try:
            stream = await self._stream(kind.path(namespace), query)
            if stream.status >= 400:
                raise refusal(b"".join([piece async for piece in stream.pieces()]), stream.status)
            async for line in _lines(stream.pieces()):
                yield _event(line)
        except (NotSent, Broken) as error:
            raise Unreachable(f"watch of {kind.resource} at {self.access.server} broke: {error}") from error
        finally:
            if stream is not None:
                stream.close()

    async def get(self, kind: Kind, namespace: str, name: str) -> dict[str, Any]:
        return _plain(await self._read(kind.path(namespace, name), {}))

    async def raw(self, path: str) -> bytes:
        """The body of a GET on any path: ``/version``, ``/apis``."""
        return await self._read(path, {})

    async def write(self, write: Write) -> dict[str, Any]:
        method, path, query, content_type, body = as_request(write)
        headers = {"Content-Type": content_type}
        evicting = write.subresource == "eviction"
        status, answer = await self._answer(method, path, query, headers, body, final_429=evicting)
        if status >= 400:
            error = write_refusal(write, answer, status)
            if not protobuf.helps(write, error):
                raise error
            return await self._write_in_protobuf(write, path, query)
        return _plain(answer)

    async def _write_in_protobuf(self, write: Write, path: str, query: Mapping[str, str]) -> dict[str, Any]:
        """Of the object as it is stored; a change in between ends in a conflict, because its version goes along."""
        stored = await self._read(path, {}, {"Accept": protobuf.CONTENT_TYPE})
        try:
            body = protobuf.rewritten(write, stored)
        except (ValueError, IndexError, KeyError, UnicodeDecodeError) as error:
            raise Unreachable(f"GET {path} at {self.access.server}: the answer cannot be read: {error!r}") from error
        status, answer = await self._answer("PUT", path, query, {"Content-Type": protobuf.CONTENT_TYPE}, body)
        if status >= 400:
            raise write_refusal(write, answer, status)
        return _plain(answer)

    async def version(self) -> str:
        """What the server calls itself: ``v1.37.1``."""
        return str(_plain(await self._read("/version", {})).get("gitVersion") or "")

    async def close(self) -> None:
        self._connections.close()
        if self._proxied is not None:
            await self._proxied.close()
            self._proxied = None

    # ------------------------------------------------------------------------------------------------ one request

    async def _read(self, path: str, query: Mapping[str, str], headers: Mapping[str, str] = NO_HEADERS) -> bytes:
        for again in range(TRIES):
            try:
                status, answer = await self._answer("GET", path, query, headers, None)
            except Unreachable as error:
                cause = error.__cause__
                if again == TRIES - 1 or not isinstance(cause, Broken) or isinstance(cause, TooMuch):
                    raise
                await asyncio.sleep(_pause(again))
                continue
            if status >= 400:
                raise refusal(answer, status)
            return answer
        raise AssertionError("unreachable")

    async def _answer(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes | None,
        final_429: bool = False,
    ) -> tuple[int, bytes]:
        """Status and body, after the retries that are safe for any method."""
        renewed = False
        began = time.monotonic()
        for again in range(TRIES):
            last = again == TRIES - 1
            identity = await self._identity()
            try:
                answer = await self._exchange(identity, method, path, query, headers, body)
            except NotSent as error:
                pause = _pause(again)
                if last or error.hopeless or time.monotonic() + pause > began + CONNECT_SECONDS:
                    raise Unreachable(f"cannot connect to {self.access.server}: {error}") from error
                await asyncio.sleep(pause)
                continue
            except Broken as error:
                raise Unreachable(f"{method} {path} at {self.access.server}: no answer: {error}") from error
            if answer.status == 401 and not renewed:
                renewed = True
                self.access.credentials.refresh(identity)
            elif 300 <= answer.status < 400:
                raise Unreachable(f"{self.access.server} sends elsewhere ({answer.status}); is this a Kubernetes API server?")
            elif last or not _again_later(answer, final_429):
                return answer.status, answer.body
            else:
                await asyncio.sleep(_asked_pause(answer))
        raise AssertionError("unreachable")

    async def _exchange(
        self, identity: Identity, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes | None
    ) -> Answer:
        """One request and its answer: over our own connections, or through a proxy."""
        tls, name, target = self._context(identity), self.access.tls_server_name, _target(path, query)
        headers = {**identity.headers(), **headers}
        if self.access.proxy_url:
            return await self._proxy().ask(method, target, self._named(headers), body, tls, name)
        return await self._connections.ask(self._bytes(method, target, headers, body), tls, name)

    async def _stream(self, path: str, query: Mapping[str, str]) -> Stream | ProxiedStream:
        identity = await self._identity()
        stream = await self._opened(identity, path, query)
        if stream.status != 401:
            return stream
        stream.close()
        self.access.credentials.refresh(identity)
        return await self._opened(await self._identity(), path, query)

    async def _opened(self, identity: Identity, path: str, query: Mapping[str, str]) -> Stream | ProxiedStream:
        tls, name, target = self._context(identity), self.access.tls_server_name, _target(path, query)
        if self.access.proxy_url:
            return await self._proxy().stream(target, self._named(identity.headers()), tls, name)
        request = self._bytes("GET", target, identity.headers(), None)
        return await self._connections.stream(request, tls, name, SILENCE_SECONDS)

    def _bytes(self, method: str, target: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
        lines = [f"{method} {self._prefix}{target} HTTP/1.1", self._host_line]
        lines += [f"{name}: {_header(value)}" for name, value in self._named(headers)]
        lines += [f"Content-Length: {len(body or b'')}", "", ""]
        return "\r\n".join(lines).encode() + (body or b"")

    def _named(self, headers: Mapping[str, str]) -> Sequence[tuple[str, str]]:
        """All headers of a request; of those about whom we want to be taken for several may have one name."""
        return (*{**_COMMON, **headers}.items(), *self.access.impersonation)

    def _proxy(self) -> Proxied:
        if self._proxied is None:
            from dray.cluster.proxied import Proxied

            self._proxied = Proxied(
                self.access.proxy_url,
                self.access.server,
                limit=CONNECTIONS,
                connect_seconds=CONNECT_SECONDS,
                answer_seconds=REQUEST_SECONDS,
                silence_seconds=SILENCE_SECONDS,
            )
        return self._proxied

    async def _identity(self) -> Identity:
        try:
            return await self.access.credentials.identity()
        except KubeconfigError as error:
            raise Unreachable(str(error)) from error

    def _context(self, identity: Identity) -> ssl.SSLContext | None:
        if self._tls is None or self._tls[0] is not identity:
            if self._tls is not None and self._same_certificate(identity):
                self._tls = (identity, self._tls[1])
            else:
                self._tls = (identity, self._made(identity))
        return self._tls[1]

    def _made(self, identity: Identity) -> ssl.SSLContext | None:
        try:
            return self.access.tls(identity)
        except KubeconfigError as error:
            raise Unreachable(str(error)) from error

    def _same_certificate(self, identity: Identity) -> bool:
        """A new token alone needs no new TLS context, and keeps the connections."""
        assert self._tls is not None
        known = self._tls[0]
        return (known.certificate, known.key) == (identity.certificate, identity.key)


def _selectors(label_selector: str, field_selector: str) -> dict[str, str]:
    pairs = {"labelSelector": label_selector, "fieldSelector": field_selector}
    return {key: value for key, value in pairs.items() if value}


# ----------------------------------------------------------------------------------------------------- what comes back


def decoded(decoder: msgspec.json.Decoder[T], answer: bytes) -> T:
    """An answer of the form that it must have. Raises Unreachable: whoever answered was no API server."""
    try:
        return decoder.decode(answer)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        said = answer[:80].decode(errors="replace").strip()
        raise Unreachable(
            f"the answer cannot be read ({error}); is this a Kubernetes API server? It begins with {said!r}"
        ) from error


def _plain(answer: bytes) -> dict[str, Any]:
    return decoded(_plain_decoder, answer)


def _event(line: bytes) -> WatchEvent:
    try:
        found = _line_decoder.decode(line)
        if found.type == "ERROR":
            raise refused(msgspec.json.decode(found.object))
        metadata = _object_decoder.decode(found.object).metadata
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unreachable(f"a watch event cannot be read: {error}: {line[:200].decode(errors='replace')}") from error
    synced = bool(metadata.annotations) and (metadata.annotations or {}).get("k8s.io/initial-events-end") == "true"
    return WatchEvent(found.type, bytes(found.object), metadata.resourceVersion, synced and found.type == "BOOKMARK")


async def _lines(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Lines of any length."""
    rest = b""
    async for chunk in pieces:
        *lines, rest = (rest + chunk).split(b"\n") if b"\n" in chunk else (rest + chunk,)
        for line in lines:
            if line:
                yield line
    if rest.strip():
        yield rest


def _target(path: str, query: Mapping[str, str]) -> str:
    """Path and query as they go into a request line, whatever is in a name."""
    if _PLAIN_PATH.fullmatch(path) is None:
        path = quote(path, safe="/:")
    return f"{path}?{urlencode(query)}" if query else path


def _header(value: str) -> str:
    if not value.isprintable():
        raise Unreachable("a credential or header contains a line break or another unprintable character")
    return value


def _again_later(answer: Answer, final_429: bool) -> bool:
    if answer.status == 429:
        return not final_429
    return answer.status == 503 and bool(answer.retry_after)


def _asked_pause(answer: Answer) -> float:
    seconds = whole(answer.retry_after)
    return min(float(seconds) if seconds is not None else 1.0, RETRY_AFTER_MAX_SECONDS) + random.uniform(0, 0.2)


def _pause(again: int) -> float:
    return float(min(0.2 * 2**again, 4.0) * random.uniform(0.8, 1.2))
