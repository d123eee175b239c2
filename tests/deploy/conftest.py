"""The manifests as kubectl builds them, and servers to apply them to: a real one, and ``dray up`` with nothing but its API."""

from __future__ import annotations

import pytest

from tests.real.conftest import embedded_server, real_server, server, upstream
from tests.real.upstream.control_plane import Server

__all__ = ["embedded_server", "real_server", "server", "upstream"]


@pytest.fixture(scope="session", params=["real", "embedded"])
def cluster(request: pytest.FixtureRequest, upstream: None) -> Server:
    found: Server = request.getfixturevalue(f"{request.param}_server")
    return found
