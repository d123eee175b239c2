"""An API server without sockets or disk, on a clock that the test holds, and one that serves HTTPS."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest

from dray.apiserver.api import Answer, Request
from dray.apiserver.authentication.users import ADMIN, User
from dray.apiserver.server import ApiServer, Core
from dray.apiserver.watching import Stream

Json = dict[str, Any]
START = 1_800_000_000.0


class Cluster:
    """Speaks to a ``Core`` as a client would, and moves its time."""

    def __init__(self, seed: int = 1) -> None:
        self.now = START
        self.core = Core(clock=lambda: self.now, randomness=random.Random(seed))
        self.core.furnish()

    def ask(self, method: str, path: str, body: Any = None, user: User = ADMIN, **headers: str) -> Answer | Stream:
        path, _, query = path.partition("?")
        pairs = dict(pair.split("=", 1) for pair in query.split("&")) if query else {}
        raw = body if isinstance(body, bytes) else b"" if body is None else msgspec.json.encode(body)
        return self.core.api.handle(Request(method, path, pairs, body=raw, user=user, **headers))

    def call(self, method: str, path: str, body: Any = None, *, code: int = 0, **headers: str) -> Json:
        """The answer's body; ``code`` is the one expected (any success if 0)."""
        answer = self.ask(method, path, body, **headers)
        assert isinstance(answer, Answer)
        found: Json = msgspec.json.decode(answer.body)
        assert answer.code == code if code else answer.code < 300, (answer.code, found)
        return found

    def get(self, path: str) -> Json:
        return self.call("GET", path)

    def post(self, path: str, body: Any, **more: Any) -> Json:
        return self.call("POST", path, body, **more)

    def put(self, path: str, body: Any, **more: Any) -> Json:
        return self.call("PUT", path, body, **more)

    def delete(self, path: str, body: Any = None, **more: Any) -> Json:
        return self.call("DELETE", path, body, **more)

    def patch(self, path: str, body: Any, **more: Any) -> Json:
        return self.call("PATCH", path, body, content_type="application/merge-patch+json", **more)

    def watch(self, path: str) -> Callable[[], list[tuple[str, Json]]]:
        """Starts a watch; the function gives what has come since it was last called."""
        mark = "&" if "?" in path else "?"
        stream = self.ask("GET", f"{path}{mark}watch=1")
        assert isinstance(stream, Stream), stream
        return lambda: [(e["type"], e["object"]) for e in map(msgspec.json.decode, stream.pending().splitlines())]


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
async def served() -> AsyncIterator[ApiServer]:
    server = ApiServer()
    await server.start()
    yield server
    await server.stop()


CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"


def config_map(name: str = "cm", **metadata: Any) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}, "data": {"k": "v"}}


def pod(name: str = "p", **spec: Any) -> Json:
    containers = [{"name": "c", "image": "registry.example/app:1"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"containers": containers, **spec},
    }
