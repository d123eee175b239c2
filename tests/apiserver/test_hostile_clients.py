"""Whatever a client sends, it gets a clear Status, and the server serves the next one."""

from __future__ import annotations

import asyncio
import gc
import json
import ssl
import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dray.apiserver.api import Answer, Request
from dray.apiserver.authentication.users import ADMIN
from dray.apiserver.http import Connection
from dray.apiserver.server import ApiServer
from dray.apiserver.watching import Stream
from tests.apiserver.conftest import CONFIG_MAPS, PODS, Cluster, config_map, pod

LONG = b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n"
PATCH_TYPES = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
]


class Client:
    """One TLS connection that can send anything."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def connect(cls, server: ApiServer, context: ssl.SSLContext | None = None) -> Client:
        context = context or ssl.create_default_context(cadata=server.identity.ca)
        port = int(server.url.rpartition(":")[2])
        return cls(*await asyncio.open_connection("127.0.0.1", port, ssl=context))

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self) -> tuple[int, dict[bytes, bytes], bytes]:
        head = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), 20)
        line, *rest = head.split(b"\r\n")
        headers = dict(part.split(b": ", 1) for part in rest if part)
        body = await self.reader.readexactly(int(headers.get(b"Content-Length", b"0")))
        return int(line.split()[1]), headers, body

    async def request(self, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, Any]:
        lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        await self.send(f"{method} {path} HTTP/1.1\r\nHost: x\r\n{lines}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        code, _, answer = await self.answer()
        return code, answer

    async def close(self) -> None:
        self.writer.close()


def bearer(token: str) -> str:
    return f"Bearer {token}"


class TestOverTheWire:
    async def test_anonymous_gets_only_health_and_version(self, served: ApiServer) -> None:
        client = await Client.connect(served)
        for path in ("/healthz", "/livez", "/readyz"):
            assert await client.request("GET", path) == (200, b"ok")
        assert (await client.request("GET", "/version"))[0] == 200
        for path in ("/api", CONFIG_MAPS, "/nowhere"):
            code, body = await client.request("GET", path)
            assert (code, json.loads(body)["reason"]) == (403, "Forbidden")
        code, _ = await client.request("GET", "/version", Authorization=bearer("wrong"))
        assert code == 401
        code, _ = await client.request("GET", "/version", Authorization=bearer(served.identity.reader_token))
        assert code == 200

    async def test_health_is_told_check_by_check_and_by_name(self, served: ApiServer) -> None:
        client, owner = await Client.connect(served), bearer(served.identity.admin_token)
        assert await client.request("GET", "/readyz?verbose") == (200, b"[+]ping ok\n[+]etcd ok\nreadyz check passed\n")
        assert await client.request("GET", "/livez/ping", Authorization=owner) == (200, b"ok")
        assert (await client.request("GET", "/livez/nonsense", Authorization=owner))[0] == 404
        served.failure = "disk is full"
        assert await client.request("GET", "/livez") == (500, b"[+]ping ok\n[-]etcd failed: disk is full\nlivez check failed\n")
        assert await client.request("GET", "/livez?exclude=etcd") == (200, b"ok")
        assert await client.request("GET", "/livez/ping", Authorization=owner) == (200, b"ok")
        assert (await client.request("GET", "/healthz/etcd", Authorization=owner))[0] == 500

    @pytest.mark.parametrize("protocol", ["SPDY/3.1", "websocket"])
    async def test_an_upgrade_gets_one_answer_and_the_end(self, served: ApiServer, protocol: str) -> None:
        client = await Client.connect(served)
        head = f"GET {PODS}/p/exec?command=sh HTTP/1.1\r\nHost: x\r\nAuthorization: {bearer(served.identity.admin_token)}\r\n"
        await client.send(f"{head}Connection: Upgrade\r\nUpgrade: {protocol}\r\n\r\n".encode())
        await client.send(b"\x80\x03\x00\x01" * 8)
        everything = await asyncio.wait_for(client.reader.read(), 20)
        assert everything.count(b"HTTP/1.1 ") == 1
        assert everything.startswith(b"HTTP/1.1 404 ")

    async def test_a_connection_that_ends_leaves_nothing_behind(self, served: ApiServer) -> None:
        """Not even until the next collection: each one holds buffers that the collector does not count."""
        gc.collect()
        gc.disable()
        try:
            for _ in range(20):
                client = await Client.connect(served)
                assert (await client.request("GET", "/healthz"))[0] == 200
                client.writer.close()
            while served.connections:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)
            assert [found for found in gc.get_objects() if isinstance(found, Connection)] == []
        finally:
            gc.enable()

    async def test_a_kubeconfig_is_for_its_owner_only(self, served: ApiServer, tmp_path: Path) -> None:
        served.write_kubeconfig(tmp_path / "kubeconfig")
        assert stat.S_IMODE((tmp_path / "kubeconfig").stat().st_mode) == 0o600

    async def test_only_loopback_is_served(self) -> None:
        with pytest.raises(ValueError, match="loopback"):
            await ApiServer().start("0.0.0.0")

    async def test_fifty_megabytes_are_refused_before_they_arrive(self, served: ApiServer) -> None:
        client = await Client.connect(served)
        size = 50 * 1024 * 1024
        token = bearer(served.identity.admin_token)
        head = f"POST {CONFIG_MAPS} HTTP/1.1\r\nHost: x\r\nAuthorization: {token}\r\nContent-Length: {size}\r\n\r\n"
        await client.send(head.encode())
        await client.send(b"x" * (4 * 1024 * 1024))
        code, _, body = await client.answer()
        assert (code, json.loads(body)["reason"]) == (413, "RequestEntityTooLarge")
        assert await (await Client.connect(served)).request("GET", "/healthz") == (200, b"ok")

    async def test_chunks_are_counted_too(self, served: ApiServer) -> None:
        client = await Client.connect(served)
        token = bearer(served.identity.admin_token)
        head = f"POST {CONFIG_MAPS} HTTP/1.1\r\nHost: x\r\nAuthorization: {token}\r\nTransfer-Encoding: chunked\r\n\r\n"
        await client.send(head.encode())
        for _ in range(5):
            await client.send(b"100000\r\n" + b"x" * 0x100000 + b"\r\n")
        code, _, _ = await client.answer()
        assert code == 413

    @pytest.mark.parametrize(
        "data", [b"\x00\x01\x02\r\n\r\n", b"GET\r\n\r\n", b"FROB / HTTP/1.1\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", LONG]
    )
    async def test_what_is_not_http_is_answered_and_closed(self, served: ApiServer, data: bytes) -> None:
        client = await Client.connect(served)
        await client.send(data)
        code, _, body = await client.answer()
        assert code in (400, 431)
        assert json.loads(body)["kind"] == "Status"
        assert await (await Client.connect(served)).request("GET", "/healthz") == (200, b"ok")

    async def test_many_parameters_are_no_error_and_the_first_of_a_name_counts(self, served: ApiServer) -> None:
        query = "&".join(["limit=1", *(f"p{number}=1" for number in range(1000)), "limit=x"])
        client = await Client.connect(served)
        code, body = await client.request("GET", f"/api/v1/namespaces?{query}", Authorization=bearer(served.identity.admin_token))
        assert code == 200, body
        assert len(json.loads(body)["items"]) == 1

    async def test_requests_on_one_connection_are_answered_in_order(self, served: ApiServer) -> None:
        client = await Client.connect(served)
        token = bearer(served.identity.admin_token)
        one = "GET {} HTTP/1.1\r\nHost: x\r\nAuthorization: " + token + "\r\n\r\n"
        await client.send((one.format("/version") + one.format("/healthz") + one.format("/api")).encode())
        bodies = [(await client.answer())[2] for _ in range(3)]
        assert b"gitVersion" in bodies[0]
        assert bodies[1] == b"ok"
        assert b"APIVersions" in bodies[2]

    async def test_a_watch_streams_and_ends_when_asked(self, served: ApiServer) -> None:
        client, writer = await Client.connect(served), await Client.connect(served)
        token = bearer(served.identity.admin_token)
        path = f"{CONFIG_MAPS}?watch=1&resourceVersion=0&timeoutSeconds=1"
        await client.send(f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: {token}\r\n\r\n".encode())
        code, _, _ = await client.answer()
        assert code == 200
        await writer.request("POST", CONFIG_MAPS, msgspec.json.encode(config_map()), Authorization=token)
        size = int(await asyncio.wait_for(client.reader.readline(), 5), 16)
        event = json.loads(await client.reader.readexactly(size + 2))
        assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "cm")
        assert await asyncio.wait_for(client.reader.readexactly(5), 5) == b"0\r\n\r\n"
        code, _ = await client.request("GET", "/healthz")
        assert code == 200

    async def test_a_client_that_does_not_read_is_cut_off_and_harms_nobody(self, served: ApiServer) -> None:
        client, writer = await Client.connect(served), await Client.connect(served)
        token = bearer(served.identity.admin_token)
        await client.send(f"GET {CONFIG_MAPS}?watch=1 HTTP/1.1\r\nHost: x\r\nAuthorization: {token}\r\n\r\n".encode())
        await asyncio.sleep(0.1)
        (watcher,) = served.core.store.table("configmaps").watchers
        watcher.limit = 5
        big = config_map() | {"data": {"k": "x" * 500_000}}
        for number in range(40):
            big["metadata"] = {"name": f"m-{number}"}
            code, _ = await writer.request("POST", CONFIG_MAPS, msgspec.json.encode(big), Authorization=token)
            assert code == 201
        assert watcher.overflowed
        assert not watcher.buffer


@pytest.mark.parametrize(
    ("method", "path", "body", "code", "words"),
    [
        ("POST", CONFIG_MAPS, b'{"kind": ', 400, "JSON"),
        ("POST", CONFIG_MAPS, b"", 400, "no body"),
        ("POST", CONFIG_MAPS, b"[]", 400, "ConfigMap"),
        ("POST", CONFIG_MAPS, b'"text"', 400, "ConfigMap"),
        ("POST", CONFIG_MAPS, b"[" * 100_000, 400, "JSON"),
        ("POST", CONFIG_MAPS, b'{"a":' * 5000 + b"1" + b"}" * 5000, 400, "depth"),
        ("POST", CONFIG_MAPS, b'{"kind":"Secret","apiVersion":"v1","metadata":{"name":"x"}}', 400, "kind"),
        ("POST", CONFIG_MAPS, b'{"apiVersion":"v2","metadata":{"name":"x"}}', 400, "version"),
        ("POST", CONFIG_MAPS, b'{"metadata":{"name":"Not_Valid"}}', 422, "metadata.name"),
        ("POST", CONFIG_MAPS, b'{"metadata":{}}', 422, "name or generateName is required"),
        ("POST", CONFIG_MAPS, b'{"metadata":"x"}', 400, "ConfigMap"),
        ("POST", CONFIG_MAPS, b'{"metadata":{"name":"x","namespace":"kube-system"}}', 400, "namespace"),
        ("POST", CONFIG_MAPS, b'{"metadata":{"name":"x"},"data":{"k":1}}', 400, "ConfigMap"),
        ("POST", CONFIG_MAPS, b"\xff\xfe", 400, "JSON"),
        ("POST", "/api/v1/namespaces/default/frobs", b"{}", 404, "could not find"),
        ("POST", "/api/v1/configmaps", b"{}", 405, ""),
        ("GET", "/apis/nope.example.com/v1/things", b"", 404, "could not find"),
        ("GET", "/api/v1/namespaces/default/pods/x/y/z", b"", 404, "could not find"),
        ("GET", "/api/v1/namespaces//pods", b"", 404, ""),
        ("PUT", CONFIG_MAPS, b"{}", 405, ""),
        ("TRACE", CONFIG_MAPS, b"", 405, ""),
        ("GET", f"{CONFIG_MAPS}?limit=²", b"", 400, "invalid syntax"),
        ("GET", f"{CONFIG_MAPS}?watch=1&timeoutSeconds=x", b"", 400, "invalid syntax"),
        ("DELETE", f"{CONFIG_MAPS}/cm?gracePeriodSeconds=x", b"", 400, "invalid syntax"),
        ("DELETE", f"{CONFIG_MAPS}/cm", b'{"propagationPolicy":"Sideways"}', 422, "propagationPolicy"),
        ("POST", f"{CONFIG_MAPS}?dryRun=Some", b"{}", 422, "dryRun"),
        ("POST", f"{CONFIG_MAPS}?fieldValidation=Loose", b"{}", 422, "fieldValidation"),
    ],
)
def test_bad_requests_are_told_what_is_wrong(
    cluster: Cluster, method: str, path: str, body: bytes, code: int, words: str
) -> None:
    cluster.post(CONFIG_MAPS, config_map())
    refused = cluster.call(method, path, body, code=code)
    assert refused["kind"] == "Status"
    assert words in refused["message"]


@pytest.mark.parametrize("validation", ["Strict", "Warn", "Ignore"])
@pytest.mark.parametrize("text", [b'"\xff"', rb'"\ud800"'])
def test_text_that_is_no_unicode_is_stored_as_kube_apiserver_stores_it(cluster: Cluster, text: bytes, validation: str) -> None:
    body = b'{"metadata":{"name":"x"},"data":{"a":%s}}' % text
    made = cluster.post(f"{CONFIG_MAPS}?fieldValidation={validation}", body)
    assert made["data"] == {"a": "\ufffd"}


def test_yaml_is_read_without_its_bombs(cluster: Cluster) -> None:
    made = cluster.post(CONFIG_MAPS, b"metadata: {name: y}\ndata: {k: 'v'}", content_type="application/yaml")
    assert made["data"] == {"k": "v"}
    bomb = b"a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]"
    assert "aliases" in cluster.post(CONFIG_MAPS, bomb, content_type="application/yaml", code=400)["message"]


FIELDS = [
    *("apiVersion", "kind", "metadata", "name", "namespace", "labels", "annotations", "finalizers", "ownerReferences", "uid"),
    *("spec", "status", "containers", "image", "resources", "requests", "limits", "devices", "exactly", "selectors", "cel"),
    *("expression", "allocation", "results", "driver", "pool", "device", "taints", "key", "effect", "replicas", "template"),
    *("selector", "matchLabels", "op", "path", "value", "from", "$patch", "$setElementOrder/containers", "preconditions"),
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=6), inner, max_size=5),
    max_leaves=20,
)
PARAMETERS = ["watch", "limit", "continue", "resourceVersion", "resourceVersionMatch", "labelSelector", "fieldSelector"]
PATHS = [
    CONFIG_MAPS,
    PODS,
    "/api/v1/nodes",
    "/api/v1/namespaces",
    "/apis/apps/v1/namespaces/default/deployments",
    "/apis/batch/v1/namespaces/default/jobs",
    "/apis/resource.k8s.io/v1/resourceslices",
    "/apis/resource.k8s.io/v1/deviceclasses",
    "/apis/resource.k8s.io/v1/devicetaintrules",
    "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims",
    "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates",
    "/apis/events.k8s.io/v1/namespaces/default/events",
    "/apis/coordination.k8s.io/v1/namespaces/default/leases",
    "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
]


def fine(answer: Answer | Stream) -> None:
    assert isinstance(answer, Answer)
    assert answer.code < 500, answer.body
    if answer.code >= 400:
        assert msgspec.json.decode(answer.body)["kind"] == "Status"


@settings(max_examples=300, deadline=None)
@given(path=st.sampled_from(PATHS), body=JSON)
def test_no_body_of_a_create_breaks_the_server(path: str, body: Any) -> None:
    fine(Cluster().ask("POST", path, body))
    if isinstance(body, dict):
        fine(Cluster().ask("POST", path, body | {"metadata": {"name": "x"}}))


@settings(max_examples=300, deadline=None)
@given(type_=st.sampled_from(PATCH_TYPES), patch=JSON, subresource=st.sampled_from(["", "/status"]))
def test_no_patch_breaks_the_server(type_: str, patch: Any, subresource: str) -> None:
    cluster = Cluster()
    cluster.post(PODS, pod())
    fine(cluster.ask("PATCH", f"{PODS}/p{subresource}?fieldManager=fuzz", patch, content_type=type_))
    deeper = {"spec": patch, "status": patch}
    fine(cluster.ask("PATCH", f"{PODS}/p{subresource}?fieldManager=fuzz", deeper, content_type=type_))
    fine(cluster.ask("GET", f"{PODS}/p", accept="application/json;as=Table;v=v1;g=meta.k8s.io"))


@settings(max_examples=200, deadline=None)
@given(
    path=st.text(max_size=40),
    method=st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE"]),
    query=st.dictionaries(st.sampled_from(PARAMETERS), st.text(max_size=10)),
)
def test_no_url_breaks_the_server(path: str, method: str, query: dict[str, str]) -> None:
    cluster = Cluster()
    for full in (f"/{path}", f"/api/v1/{path}", f"{CONFIG_MAPS}/{path}", CONFIG_MAPS):
        answer = cluster.core.api.handle(Request(method, full, query, body=b"{}", user=ADMIN))
        if isinstance(answer, Answer):
            assert answer.code < 500 or answer.code == 504, answer.body
