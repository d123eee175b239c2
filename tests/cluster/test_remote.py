"""What the client does when the server is slow, busy, restarted or talks nonsense."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from typing import Any, cast

import pytest
from aiohttp import web

from dray.api.kinds import PODS
from dray.cluster.connections import Connections
from dray.cluster.kubeconfig import Access, Credentials, Fixed, Identity
from dray.cluster.port import ClusterError, Expired, Forbidden, Refused, Unreachable, WatchEvent, Write
from dray.cluster.reflector import Backoff, Listed, Reflector
from dray.cluster.remote import Remote
from dray.cluster.served import Served

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "n", "resourceVersion": "5", "uid": "u"}}


class Script:
    """A server that answers with what a test says, one answer after the other, and remembers what it was asked."""

    def __init__(self) -> None:
        self.answers: list[Handler] = []
        self.asked: list[web.Request] = []
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        await request.read()
        self.asked.append(request)
        return await self.answers.pop(0)(request)


@pytest.fixture
async def script() -> AsyncIterator[Script]:
    made = Script()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", made.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


@pytest.fixture
async def remote(script: Script) -> AsyncIterator[Remote]:
    made = Remote(Access(server=script.url, credentials=Fixed(Identity(token="t"))))
    yield made
    await made.close()


def answer(status: int, body: Any = None, **headers: str) -> Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        return web.json_response(body if body is not None else {}, status=status, headers=headers)

    return handler


def failure(code: int, reason: str, **details: Any) -> dict[str, Any]:
    return {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": "no", "details": details}


def stream(*lines: str, cut: bool = False) -> Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for line in lines:
            await response.write(line.encode())
        if cut:
            assert request.transport is not None
            request.transport.abort()
        return response

    return handler


def event(type: str, version: int, name: str = "p") -> str:
    return f'{{"type":"{type}","object":{{"metadata":{{"name":"{name}","resourceVersion":"{version}","uid":"{name}"}}}}}}\n'


WRITE = Write("patch", PODS, "n", "p", {"metadata": {"labels": {"a": "b"}}})


async def test_too_many_requests_are_sent_again_after_the_time_asked_for(remote: Remote, script: Script) -> None:
    script.answers = [answer(429, failure(429, "TooManyRequests"), **{"Retry-After": "0"}), answer(200, POD)]
    assert (await remote.write(WRITE))["metadata"]["name"] == "p"
    assert len(script.asked) == 2


async def test_an_eviction_that_a_budget_refuses_is_answered_at_once(remote: Remote, script: Script) -> None:
    script.answers = [answer(429, failure(429, "TooManyRequests"), **{"Retry-After": "10"})]
    with pytest.raises(Refused) as refused:
        await remote.write(Write("create", PODS, "n", "p", {}, subresource="eviction"))
    assert refused.value.code == 429


async def test_a_server_error_is_an_answer(remote: Remote, script: Script) -> None:
    script.answers = [answer(500, failure(500, "InternalError"))]
    with pytest.raises(Refused):
        await remote.write(WRITE)
    assert len(script.asked) == 1


async def test_a_write_whose_connection_breaks_is_not_sent_again(remote: Remote, script: Script) -> None:
    async def hang_up(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    script.answers = [hang_up]
    with pytest.raises(Unreachable, match="no answer"):
        await remote.write(WRITE)
    assert len(script.asked) == 1


async def test_a_read_whose_connection_breaks_is_read_again(remote: Remote, script: Script) -> None:
    async def hang_up(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    script.answers = [hang_up, answer(200, POD)]
    assert (await remote.get(PODS, "n", "p"))["metadata"]["name"] == "p"


async def test_refused_credentials_are_made_anew_once(script: Script) -> None:
    class Rotating(Credentials):
        made = 0

        async def identity(self) -> Identity:
            return Identity(token=f"t{self.made}")

        def refresh(self, refused: Identity) -> None:
            self.made += 1

    remote = Remote(Access(server=script.url, credentials=Rotating()))
    script.answers = [answer(401, failure(401, "Unauthorized")), answer(200, POD)]
    await remote.write(WRITE)
    assert [request.headers["Authorization"] for request in script.asked] == ["Bearer t0", "Bearer t1"]
    script.answers = [answer(401, failure(401, "Unauthorized"))] * 2
    with pytest.raises(Forbidden):
        await remote.write(WRITE)
    script.asked.clear()
    script.answers = [answer(401, failure(401, "Unauthorized")), stream(event("ADDED", 6))]
    assert [seen.resource_version async for seen in remote.watch(PODS, "5")] == ["6"], "nothing has to be listed again"
    assert [request.headers["Authorization"] for request in script.asked] == ["Bearer t2", "Bearer t3"]
    await remote.close()


async def test_a_server_without_pods_is_no_api_server(remote: Remote, script: Script) -> None:
    """A wrong path in the URL, or a gateway before a cluster that is away. That there are no pods would be something else."""
    script.answers = [answer(404, "default backend - 404")]
    with pytest.raises(Unreachable, match="does not serve pods; is this the URL of a Kubernetes API server"):
        await Served.of(remote, [PODS])


async def test_what_is_not_an_api_server_is_said(remote: Remote, script: Script) -> None:
    async def page(request: web.Request) -> web.StreamResponse:
        return web.Response(text="<html>hello</html>")

    script.answers = [page, page, page]
    for asked in (remote.get(PODS, "n", "p"), remote.list(PODS), Served.of(remote, [PODS])):
        with pytest.raises(Unreachable, match="is this a Kubernetes API server"):
            await asked


@pytest.fixture
async def balancer() -> AsyncIterator[Remote]:
    """What answers in front of a server that is away: without a length, and closes."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.0 502 Bad Gateway\r\nConnection: close\r\n\r\n<h1>no server</h1> is available")
        await writer.drain()
        writer.close()

    listening = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    made = Remote(Access(server=f"http://127.0.0.1:{port}", credentials=Fixed(Identity(token="t"))))
    yield made
    await made.close()
    listening.close()


async def test_an_answer_without_a_length_ends_with_its_connection(balancer: Remote) -> None:
    with pytest.raises(ClusterError, match="no server"):
        await balancer.raw("/apis")
    with pytest.raises(ClusterError, match="no server"):
        async for _ in balancer.watch(PODS, "1"):
            pass


async def test_a_server_behind_a_wall_is_given_up_after_ten_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody refuses the connection and nobody takes it."""
    monkeypatch.setattr("dray.cluster.remote.CONNECT_SECONDS", 0.5)
    full = socket.create_server(("127.0.0.1", 0), backlog=0)
    with full, closing(socket.socket()) as first, closing(socket.socket()) as second:
        for each in (first, second):
            each.setblocking(False)
            each.connect_ex(full.getsockname())
        remote = Remote(Access(server=f"http://127.0.0.1:{full.getsockname()[1]}", credentials=Fixed(Identity())))
        tried, opened = 0, Connections._open

        async def counted(*asked: Any) -> Any:
            nonlocal tried
            tried += 1
            return await opened(*asked)

        monkeypatch.setattr(Connections, "_open", counted)
        with pytest.raises(Unreachable, match="cannot connect"):
            await remote.raw("/apis")
        assert tried == 1  # that took all of the time


async def test_preconditions_are_in_the_body(remote: Remote, script: Script) -> None:
    seen: list[Any] = []

    async def record(request: web.Request) -> web.StreamResponse:
        seen.append(await request.json())
        return web.json_response(POD)

    script.answers = [record, record]
    await remote.write(Write("patch", PODS, "n", "p", {"metadata": {"labels": {}}}, uid="u", resource_version="5"))
    await remote.write(Write("delete", PODS, "n", "p", {"gracePeriodSeconds": 0}, uid="u"))
    assert seen[0]["metadata"] == {"labels": {}, "uid": "u", "resourceVersion": "5"}
    assert seen[1]["preconditions"] == {"uid": "u"}
    assert seen[1]["gracePeriodSeconds"] == 0


async def test_a_list_is_read_page_by_page(remote: Remote, script: Script) -> None:
    first = {"metadata": {"resourceVersion": "9", "continue": "more"}, "items": [POD]}
    last = {"metadata": {"resourceVersion": "9"}, "items": [POD]}
    script.answers = [answer(200, first), answer(200, last)]
    raws, version = await remote.list(PODS)
    assert (len(raws), version) == (2, "9")
    assert script.asked[1].query["continue"] == "more"


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_who_sends_elsewhere_is_told_so_and_not_followed(remote: Remote, script: Script, status: int) -> None:
    """As an http:// address that sends to https://, or a login page: our token is for nobody else."""
    script.answers = [answer(status, Location="http://127.0.0.1:1/")] * 2
    for asked in (remote.get(PODS, "n", "p"), remote.write(WRITE)):
        with pytest.raises(Unreachable, match=f"sends elsewhere \\({status}\\); is this a Kubernetes API server"):
            await asked
    assert len(script.asked) == 2


async def test_who_speaks_another_protocol_is_told_so(script: Script, remote: Remote, caplog: pytest.LogCaptureFixture) -> None:
    async def upgraded(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        cast("asyncio.Transport", request.transport).write(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: other\r\nConnection: upgrade\r\n\r\nand so on"
        )
        request.transport.close()
        return web.Response()

    script.answers = [upgraded]
    with pytest.raises(Unreachable, match="is not HTTP"):
        await remote.write(WRITE)
    assert not [record for record in caplog.records if record.name == "asyncio"]


async def test_a_page_that_is_larger_than_is_taken_is_asked_for_in_smaller_ones(
    remote: Remote, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dray.cluster.connections.ANSWER_MAX", 5000)
    names = [{"metadata": {"name": f"p{number}" + "x" * 1000}} for number in range(6)]
    whole = {"metadata": {"resourceVersion": "9"}, "items": names}
    first = {"metadata": {"resourceVersion": "9", "continue": "more"}, "items": names[:3]}
    rest = {"metadata": {"resourceVersion": "9"}, "items": names[3:]}
    script.answers = [answer(200, whole), answer(200, first), answer(200, rest)]
    items, version = await remote.list(PODS)
    assert (len(items), version) == (6, "9")
    assert [request.query.get("limit") for request in script.asked] == ["2000", "500", "500"]


async def test_a_page_that_does_not_come_in_time_is_asked_for_in_smaller_ones_until_that_is_in_vain(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(60)
        return web.Response()

    monkeypatch.setattr("dray.cluster.remote.REQUEST_SECONDS", 0.5)
    remote = Remote(Access(server=script.url, credentials=Fixed(Identity())))
    script.answers = [never] * 9
    with pytest.raises(Unreachable, match="timed out"):
        await remote.list(PODS)
    assert [request.query.get("limit") for request in script.asked] == ["2000", "500", "125"]
    await remote.close()


async def test_an_answer_that_is_larger_than_is_taken_is_not_asked_for_again(
    remote: Remote, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dray.cluster.connections.ANSWER_MAX", 50)
    script.answers = [answer(200, {"metadata": {"name": "x" * 100}})] * 9
    with pytest.raises(Unreachable, match="larger than"):
        await remote.get(PODS, "n", "p")
    assert len(script.asked) == 1


async def test_a_list_whose_snapshot_is_compacted_between_pages_is_read_at_once(remote: Remote, script: Script) -> None:
    first = {"metadata": {"resourceVersion": "9", "continue": "more"}, "items": [POD]}
    whole = {"metadata": {"resourceVersion": "12"}, "items": [POD, POD, POD]}
    script.answers = [answer(200, first), answer(410, failure(410, "Expired")), answer(200, whole)]
    raws, version = await remote.list(PODS, label_selector="a=b")
    assert (len(raws), version) == (3, "12")
    assert dict(script.asked[2].query) == {"labelSelector": "a=b"}


async def test_events_split_over_chunks_and_very_long_ones_arrive_whole(remote: Remote, script: Script) -> None:
    long = event("ADDED", 7, "x" * 500_000)
    script.answers = [stream(event("ADDED", 6)[:30], event("ADDED", 6)[30:] + long[:9], long[9:])]
    events = [found async for found in remote.watch(PODS, "5")]
    assert [(found.type, found.resource_version) for found in events] == [("ADDED", "6"), ("ADDED", "7")]


async def test_a_watch_that_falls_silent_is_unreachable(remote: Remote, script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    async def silent(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(event("ADDED", 6).encode())
        await asyncio.sleep(30)
        return response

    monkeypatch.setattr("dray.cluster.remote.SILENCE_SECONDS", 0.2)
    script.answers = [silent]
    watch = remote.watch(PODS, "5")
    assert (await anext(watch)).resource_version == "6"
    with pytest.raises(Unreachable, match="nothing came for"):
        await anext(watch)


async def test_a_server_that_sends_faster_than_events_are_taken_is_held_back(
    remote: Remote, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dray.cluster.connections.UNREAD_MAX", 10_000)
    script.answers = [stream(*(event("ADDED", version, "x" * 5_000) for version in range(1, 401)))]
    found = []
    async for each in remote.watch(PODS, "0"):
        found.append(int(each.resource_version))
        if len(found) % 50 == 0:
            await asyncio.sleep(0.01)
    assert found == list(range(1, 401))


async def test_a_compacted_position_is_expired(remote: Remote, script: Script) -> None:
    status = '{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}\n'
    script.answers = [stream(status), answer(410, failure(410, "Expired"))]
    for _ in range(2):
        with pytest.raises(Expired):
            _ = [found async for found in remote.watch(PODS, "5")]


async def reflected(remote: Remote, script: Script, answers: list[Handler]) -> list[Listed | WatchEvent]:
    """What a reflector passes on until the script is over."""
    found: list[Listed | WatchEvent] = []
    over = asyncio.Event()

    async def end(request: web.Request) -> web.StreamResponse:
        over.set()
        await asyncio.sleep(30)
        return web.Response()

    script.answers = [*answers, end]
    reflector = Reflector(remote, PODS, lambda kind, item: found.append(item), backoff=Backoff(0.01, 0.02))
    task = asyncio.create_task(reflector.run())
    async with asyncio.timeout(10):
        await over.wait()
    task.cancel()
    return found


def listing(version: int) -> Handler:
    return answer(200, {"metadata": {"resourceVersion": str(version)}, "items": [POD]})


async def test_a_watch_that_ends_or_breaks_goes_on_where_it_was(remote: Remote, script: Script) -> None:
    bookmark = event("BOOKMARK", 20)
    answers = [listing(9), stream(event("ADDED", 10)), stream(event("MODIFIED", 12), bookmark), stream(cut=True)]
    found = await reflected(remote, script, answers)
    assert [type(item).__name__ for item in found] == ["Listed", "WatchEvent", "WatchEvent"]
    assert [request.query.get("resourceVersion") for request in script.asked] == [None, "9", "10", "20", "20"]


async def test_an_expired_watch_leads_to_a_new_list(remote: Remote, script: Script) -> None:
    answers = [listing(9), answer(410, failure(410, "Expired")), listing(30)]
    found = await reflected(remote, script, answers)
    assert [item.resource_version for item in found] == ["9", "30"]


async def test_a_server_that_is_away_is_waited_for(remote: Remote, script: Script) -> None:
    answers = [answer(500, failure(500, "InternalError")), answer(503, failure(503, "Unavailable")), listing(9)]
    found = await reflected(remote, script, answers)
    assert len(found) == 1
