"""TLS as the kubeconfig says: whose certificate is trusted, under which name, and which one of ours is shown."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from dray.api.kinds import PODS
from dray.cluster.kubeconfig import Access, Files, Fixed, Identity, KubeconfigError, load
from dray.cluster.port import Unreachable
from dray.cluster.remote import Remote

POD = {"kind": "Pod", "metadata": {"name": "p"}}


class Authority:
    """A certificate authority for one test."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
        self.certificate, _ = self.issue("test authority", itself=True)

    def issue(self, name: str, itself: bool = False) -> tuple[bytes, bytes]:
        key = self._key if itself else ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        made = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(minutes=1))
            .not_valid_after(now + timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=itself, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name.replace(" ", "-"))]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        plain = serialization.NoEncryption()
        pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
        return made.public_bytes(serialization.Encoding.PEM), pem


@pytest.fixture
def authority() -> Authority:
    return Authority()


@pytest.fixture
async def server(authority: Authority, tmp_path: Path) -> AsyncIterator[str]:
    """A server named api.example that answers only to clients with a certificate, with the client's name."""
    certificate, key = authority.issue("api.example")
    (tmp_path / "server.pem").write_bytes(certificate + key)
    (tmp_path / "ca.pem").write_bytes(authority.certificate)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(tmp_path / "ca.pem"))
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(tmp_path / "server.pem")

    async def handle(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        subject = dict(pair[0] for pair in request.transport.get_extra_info("peercert")["subject"])
        return web.json_response({**POD, "seen": subject["commonName"]})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    yield f"https://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


def access(server: str, authority: Authority, **options: object) -> Access:
    certificate, key = authority.issue("somebody")
    identity = Identity(certificate=certificate, key=key)
    given = {"certificate_authority": authority.certificate, "tls_server_name": "api.example", **options}
    return Access(server=server, credentials=Fixed(identity), **given)  # type: ignore[arg-type]


async def got(access: Access) -> str:
    remote = Remote(access)
    try:
        return str((await remote.get(PODS, "n", "p"))["seen"])
    finally:
        await remote.close()


async def test_the_client_certificate_is_shown_and_the_server_is_known_by_its_tls_name(server: str, authority: Authority) -> None:
    assert await got(access(server, authority)) == "somebody"


async def test_verification_can_be_switched_off(server: str, authority: Authority) -> None:
    skipping = access(server, authority, certificate_authority=b"", tls_server_name="", insecure_skip_tls_verify=True)
    assert await got(skipping) == "somebody"


@pytest.mark.parametrize("options", [{"tls_server_name": "other.example"}, {"certificate_authority": Authority().certificate}])
async def test_another_name_or_authority_is_not_trusted_and_not_tried_again(
    server: str, authority: Authority, options: dict[str, object]
) -> None:
    async with asyncio.timeout(3):
        with pytest.raises(Unreachable, match="certificate verify failed"):
            await got(access(server, authority, **options))


def test_a_key_that_does_not_belong_to_the_certificate_is_said(authority: Authority) -> None:
    certificate, _ = authority.issue("one")
    _, key = authority.issue("two")
    with pytest.raises(KubeconfigError, match="do not load"):
        access("https://api.example", authority).tls(Identity(certificate=certificate, key=key))


def write(folder: Path, certificate: bytes, key: bytes) -> None:
    (folder / "client.crt").write_bytes(certificate)
    (folder / "client.key").write_bytes(key)


async def test_a_client_certificate_in_files_is_read_again_when_both_are_replaced(
    server: str, authority: Authority, tmp_path: Path
) -> None:
    now = [0.0]
    (tmp_path / "authority").write_bytes(authority.certificate)
    user = {"client-certificate": "client.crt", "client-key": "client.key"}
    cluster = {"server": server, "certificate-authority": "authority", "tls-server-name": "api.example"}
    content = {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "clusters": [{"name": "x", "cluster": cluster}],
        "users": [{"name": "x", "user": user}],
    }
    (tmp_path / "config").write_text(json.dumps(content))
    before, after = authority.issue("before"), authority.issue("after")
    write(tmp_path, *before)
    remote = Remote(load(tmp_path / "config"))
    credentials = remote.access.credentials
    assert isinstance(credentials, Files)
    credentials._clock = lambda: now[0]
    seen = []
    for now[0], (certificate, key) in ((0.0, before), (61.0, (after[0], before[1])), (67.0, after)):
        write(tmp_path, certificate, key)
        seen.append((await remote.get(PODS, "n", "p"))["seen"])
    await remote.close()
    assert seen == ["before", "before", "after"]


@pytest.mark.parametrize("proxied", [False, True], ids=["directly", "through a proxy"])
async def test_every_request_says_whom_to_take_us_for(proxied: bool) -> None:
    asked: list[list[str]] = []

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        asked.append([f"{name}: {value}" for name, value in request.headers.items() if name.startswith("Impersonate")])
        return web.json_response({**POD, "seen": ""})

    runner = web.ServerRunner(web.Server(handle))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    wanted = (("Impersonate-User", "jane"), ("Impersonate-Group", "a"), ("Impersonate-Group", "b"))
    access = Access(server=url, credentials=Fixed(Identity()), impersonation=wanted, proxy_url=url if proxied else "")
    remote = Remote(access)
    await remote.get(PODS, "n", "p")
    with pytest.raises(Unreachable, match="cannot be read"):
        _ = [event async for event in remote.watch(PODS, "5")]
    await remote.close()
    await runner.cleanup()
    assert asked == [["Impersonate-User: jane", "Impersonate-Group: a", "Impersonate-Group: b"]] * 2


async def test_a_proxy_gets_the_requests_where_one_is_configured() -> None:
    asked: list[str] = []

    async def proxy(request: web.BaseRequest) -> web.StreamResponse:
        asked.append(f"{request.method} {request.url}")
        return web.json_response({**POD, "seen": "through the proxy"})

    runner = web.ServerRunner(web.Server(proxy))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    found = await got(Access(server="http://api.example", credentials=Fixed(Identity()), proxy_url=url))
    await runner.cleanup()
    assert found == "through the proxy"
    assert asked == ["GET http://api.example/api/v1/namespaces/n/pods/p"]


async def test_a_proxy_gets_watches_too() -> None:
    line = '{"type":"ADDED","object":{"metadata":{"name":"p","resourceVersion":"7"}}}'

    async def proxy(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(text=line)

    runner = web.ServerRunner(web.Server(proxy))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    remote = Remote(Access(server="http://api.example", credentials=Fixed(Identity()), proxy_url=url))
    found = [event.resource_version async for event in remote.watch(PODS, "5")]
    await remote.close()
    await runner.cleanup()
    assert found == ["7"]
