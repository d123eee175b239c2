"""HTTPS_PROXY and NO_PROXY mean to Dray what they mean to kubectl."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path

import pytest

from dray.api.kinds import NODES
from dray.cluster.kubeconfig import KubeconfigError, load
from dray.cluster.port import Unreachable
from dray.cluster.proxies import proxy_for
from dray.cluster.remote import Remote

PROXY = "http://proxy.example:3128"


@pytest.mark.parametrize(
    ("server", "no_proxy", "through"),
    [
        ("https://api.example.com:6443", "", True),
        ("https://api.example.com", "example.com", False),
        ("https://example.com", "example.com", False),
        ("https://example.com", ".example.com", True),
        ("https://api.example.com", ".example.com", False),
        ("https://api.example.com", "*.example.com", False),
        ("https://badexample.com", "example.com", True),
        ("https://api.example.com", "other, API.Example.COM", False),
        ("https://api.example.com:6443", "api.example.com:6443", False),
        ("https://api.example.com:6443", "api.example.com:443", True),
        ("https://api.example.com", "api.example.com:443", False),
        ("https://10.1.2.3:6443", "10.0.0.0/8", False),
        ("https://10.1.2.3:6443", "192.168.0.0/16", True),
        ("https://10.1.2.3:6443", "10.1.2.3", False),
        ("https://[fd00::1]:6443", "fd00::/8", False),
        ("https://[fd00::1]:6443", "[fd00::1]:6443", False),
        ("https://api.example.com", "*", False),
        ("https://api.example.com", "rubbish/99,", True),
        ("https://localhost:6443", "", False),
        ("https://127.0.0.1:6443", "", False),
        ("https://[::1]:6443", "", False),
    ],
)
def test_the_exceptions_are_gos(server: str, no_proxy: str, through: bool) -> None:
    assert proxy_for(server, {"HTTPS_PROXY": PROXY, "NO_PROXY": no_proxy}) == (PROXY if through else "")


def test_names_in_capitals_win_and_a_scheme_is_not_needed() -> None:
    assert proxy_for("https://a.b", {"https_proxy": "x:1", "HTTPS_PROXY": "y:2"}) == "http://y:2"
    assert proxy_for("https://a.b", {"https_proxy": "x:1"}) == "http://x:1"
    assert proxy_for("https://a.b", {"HTTP_PROXY": "x:1"}) == ""
    assert proxy_for("http://a.b", {"HTTP_PROXY": "x:1"}) == "http://x:1"


def kubeconfig(folder: Path, **cluster: str) -> Path:
    named = {"name": "x", "cluster": {"server": "https://api.example.com:6443", **cluster}}
    config = {"clusters": [named], "users": [{"name": "x", "user": {"token": "t"}}], "current-context": "x"}
    path = folder / "config"
    path.write_text(json.dumps(config | {"contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}]}))
    return path


def test_a_kubeconfig_that_names_one_wins(tmp_path: Path) -> None:
    environment = {"HTTPS_PROXY": PROXY, "NO_PROXY": "*"}
    assert load(kubeconfig(tmp_path, **{"proxy-url": "http://own:1"}), environment=environment).proxy_url == "http://own:1"
    assert load(kubeconfig(tmp_path), environment=environment).proxy_url == ""
    assert load(kubeconfig(tmp_path), environment={"HTTPS_PROXY": PROXY}).proxy_url == PROXY


async def test_requests_go_through_it(tmp_path: Path) -> None:
    asked: list[bytes] = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readline())
        writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(proxy, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    remote = Remote(load(kubeconfig(tmp_path), environment={"HTTPS_PROXY": f"127.0.0.1:{port}"}))
    with pytest.raises(Unreachable, match=rf"the proxy http://127.0.0.1:{port} refused: 403"):
        async with asyncio.timeout(30):
            await remote.list(NODES)
    await remote.close()
    server.close()
    assert asked[0].startswith(b"CONNECT api.example.com:6443 ")
    assert len(asked) == 1, "a second later it would say the same"


@pytest.mark.parametrize(
    ("own", "environment", "named"),
    [
        ({"proxy-url": "socks5://me:secret@own:1"}, {}, "kubeconfig names the proxy socks5://own:1;"),
        ({}, {"HTTPS_PROXY": "socks5://me:secret@own:1"}, "environment names the proxy socks5://own:1;"),
        ({"proxy-url": "http://own:99999"}, {}, "names the proxy http://own:99999"),
    ],
)
def test_a_proxy_that_cannot_be_used_is_said_without_its_password(
    tmp_path: Path, own: dict[str, str], environment: dict[str, str], named: str
) -> None:
    with pytest.raises(KubeconfigError) as refused:
        load(kubeconfig(tmp_path, **own), environment=environment)
    assert named in str(refused.value)
    assert "secret" not in str(refused.value)


async def test_that_it_is_the_proxy_that_is_away_is_said_without_its_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dray.cluster.remote.CONNECT_SECONDS", 0.0)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        remote = Remote(load(kubeconfig(tmp_path, **{"proxy-url": f"http://me:secret@127.0.0.1:{port}"})))
        with pytest.raises(Unreachable) as refused:
            await remote.list(NODES)
    await remote.close()
    assert f"no connection to the proxy http://127.0.0.1:{port}: " in str(refused.value)
    assert "secret" not in str(refused.value)
    assert "object at" not in str(refused.value)
