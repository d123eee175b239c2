"""Who gets an answer: those with the token, from this page, under our own name."""

from __future__ import annotations

import asyncio
import socket

import pytest

from dray.cli.ui import bound
from tests.web.clusters import small
from tests.web.conftest import Client, serving, still

API = (
    "/api/about",
    "/api/map",
    "/api/waiting",
    "/api/verify",
    "/api/drains",
    "/api/node?name=gpu8-0",
    "/api/stream",
    "/api/pod?name=team/train",
)


@pytest.mark.parametrize("path", API)
async def test_without_the_token_nothing_of_the_cluster_is_told(path: str) -> None:
    async with serving(still(small())) as client:
        for token in ("", "wrong", "a-token2"):
            status, body, _ = await client.get(path, token=token)
            assert (status, list(body)) == (401, ["error"])
            assert "gpu8" not in str(body)
        status, _, _ = await client.get(f"{path}{'&' if '?' in path else '?'}token=a-token", token="")
        assert status == 401  # what is in an address ends in logs and histories


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://127.0.0.1:1", "http://localhost.evil.example"])
async def test_a_page_of_another_origin_gets_no_answer(origin: str) -> None:
    async with serving(still(small())) as client:
        status, body, headers = await client.get("/api/map", headers={"Origin": origin})
        assert (status, list(body)) == (403, ["error"])
        assert "Access-Control-Allow-Origin" not in headers


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_a_browser_that_says_it_is_from_elsewhere_gets_no_answer(site: str) -> None:
    async with serving(still(small())) as client:
        assert (await client.get("/api/map", headers={"Sec-Fetch-Site": site}))[0] == 403


async def test_no_preflight_of_another_origin_succeeds() -> None:
    async with serving(still(small())) as client:
        asked = {"Origin": "http://evil.example", "Access-Control-Request-Method": "GET"}
        async with client.session.options(client.base + "/api/map", headers=asked) as answer:
            assert answer.status == 403
            assert not [name for name in answer.headers if name.lower().startswith("access-control")]


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "[::1", "a b"])
@pytest.mark.parametrize("path", ["/", "/app.js", "/api/map"])
async def test_under_a_name_that_is_not_ours_nothing_is_served(host: str, path: str) -> None:
    async with serving(still(small())) as client:
        status, _, _ = await client.get(path, headers={"Host": host})
        assert status in (400, 421)


@pytest.mark.parametrize("host", ["localhost:1234", "127.0.0.1", "[::1]:99"])
async def test_local_names_are_ours_on_every_port(host: str) -> None:
    async with serving(still(small())) as client:
        assert (await client.get("/api/map", headers={"Host": host}))[0] == 200


@pytest.mark.parametrize("path", ["/", "/app.js", "/style.css", "/api/map", "/api/nothing", "/api/node?name=no"])
async def test_every_answer_carries_the_strict_policy_and_no_cookie(path: str) -> None:
    async with serving(still(small())) as client:
        _, _, headers = await client.get(path)
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "require-trusted-types-for 'script'" in policy
        assert (headers["X-Content-Type-Options"], headers["Referrer-Policy"]) == ("nosniff", "no-referrer")
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert "Set-Cookie" not in headers


async def test_files_beside_the_page_are_not_served() -> None:
    async with serving(still(small())) as client:
        for path in ("/server.py", "/../server.py", "/%2e%2e/server.py", "/assets/", "/app.js/../../server.py"):
            status, body, _ = await client.get(path)
            assert status == 404, (path, body)


async def _raw(client: Client, text: bytes) -> bytes:
    host, port = client.base.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(text)
    answer = await asyncio.wait_for(reader.read(400), 5)
    writer.close()
    return answer


async def test_a_request_with_a_huge_head_is_refused() -> None:
    async with serving(still(small())) as client:
        answer = await _raw(client, b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 100_000 + b"\r\n\r\n")
        assert b" 400 " in answer.split(b"\r\n")[0]


def test_by_default_only_this_machine_can_connect() -> None:
    sock = bound("127.0.0.1", 0)
    assert sock.getsockname()[0] == "127.0.0.1"
    assert sock.family == socket.AF_INET
    sock.close()
