"""The ``Cluster`` port in process: the same operations as over HTTP, without sockets.

Always true: what it returns or reports is durable, objects cross it as raw JSON, and refusals are the port's errors.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

import msgspec

from dray.api.kinds import Kind
from dray.apiserver.api import Answer, Request
from dray.apiserver.authentication.users import ADMIN
from dray.apiserver.server import ApiServer
from dray.cluster.port import Unreachable, WatchEvent, Write, refused
from dray.cluster.requests import as_request, refusal, write_refusal

_NO_TIMEOUT: Final = "3600"


class _Listed(msgspec.Struct):
    metadata: dict[str, Any]
    items: list[msgspec.Raw]


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Version(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class _Versioned(msgspec.Struct):
    metadata: _Version = msgspec.field(default_factory=_Version)


_list_decoder: Final = msgspec.json.Decoder(_Listed)
_event_decoder: Final = msgspec.json.Decoder(_Event)
_version_decoder: Final = msgspec.json.Decoder(_Versioned)


class Embedded:
    """A ``Cluster`` on an ``ApiServer`` that runs on the same loop."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._closed = False
        self._watches: set[asyncio.Event] = set()

    async def list(
        self, kind: Kind, *, namespace: str = "", label_selector: str = "", field_selector: str = ""
    ) -> tuple[list[bytes], str]:
        query = {"labelSelector": label_selector, "fieldSelector": field_selector}
        answer = await self._ask(Request("GET", kind.path(namespace), query, user=ADMIN))
        listed = _list_decoder.decode(answer.body)
        return [bytes(item) for item in listed.items], str(listed.metadata["resourceVersion"])

    async def get(self, kind: Kind, namespace: str, name: str) -> dict[str, Any]:
        answer = await self._ask(Request("GET", kind.path(namespace, name), user=ADMIN))
        found: dict[str, Any] = msgspec.json.decode(answer.body)
        return found

    async def write(self, write: Write) -> dict[str, Any]:
        answer = await self._answer(request_of(write))
        if answer.code >= 400:
            raise write_refusal(write, answer.body, answer.code)
        made: dict[str, Any] = msgspec.json.decode(answer.body)
        return made

    async def watch(
        self, kind: Kind, resource_version: str, *, namespace: str = "", field_selector: str = ""
    ) -> AsyncIterator[WatchEvent]:
        """Changes after ``resource_version``; without one, the present state first, closed by a ``synced`` bookmark."""
        query = {"watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": _NO_TIMEOUT, "fieldSelector": field_selector}
        if resource_version:
            query["resourceVersion"] = resource_version
        else:
            query |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        stream = self._server.handle(Request("GET", kind.path(namespace), query, user=ADMIN))
        if isinstance(stream, Answer):
            raise refused(_failure(stream))
        changed = asyncio.Event()
        self._watches.add(changed)
        try:
            await self._durable(stream.revision)
            stream.on_change(changed.set)
            while not self._closed:
                changed.clear()
                for line in stream.pending().splitlines():
                    yield _watch_event(line)
                if stream.ended:
                    return
                await changed.wait()
        finally:
            self._watches.discard(changed)
            stream.close()

    async def close(self) -> None:
        self._closed = True
        for changed in self._watches:
            changed.set()

    async def _ask(self, request: Request) -> Answer:
        answer = await self._answer(request)
        if answer.code >= 400:
            raise refusal(answer.body, answer.code)
        return answer

    async def _answer(self, request: Request) -> Answer:
        answer = self._server.handle(request)
        assert isinstance(answer, Answer)
        if answer.revision > self._server.core.store.published:
            await self._durable(answer.revision)
        return answer

    async def _durable(self, revision: int) -> None:
        try:
            await self._server.durable(revision)
        except OSError as error:
            raise Unreachable(str(error)) from error


def _failure(answer: Answer) -> dict[str, Any]:
    body: dict[str, Any] = msgspec.json.decode(answer.body)
    status = body.get("object", body)
    return status if isinstance(status, dict) else body


def _watch_event(line: bytes) -> WatchEvent:
    event = _event_decoder.decode(line)
    if event.type == "ERROR":
        raise refused(msgspec.json.decode(event.object))
    if event.type not in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK"):
        raise Unreachable(f"the watch sent {event.type!r}")
    metadata = _version_decoder.decode(event.object).metadata
    synced = event.type == "BOOKMARK" and "k8s.io/initial-events-end" in (metadata.annotations or {})
    return WatchEvent(event.type, bytes(event.object), metadata.resource_version, synced)  # type: ignore[arg-type]


def request_of(write: Write) -> Request:
    """The request that a write is over HTTP."""
    sent = as_request(write)
    return Request(sent.method, sent.path, sent.query, content_type=sent.content_type, body=sent.body, user=ADMIN)
