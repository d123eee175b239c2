"""One port, three clusters behind it: ours in process, ours over HTTPS, and a real kube-apiserver."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from dray.api.kinds import NAMESPACES
from dray.apiserver.embedded import Embedded
from dray.apiserver.server import ApiServer
from dray.cluster.kubeconfig import load
from dray.cluster.port import Cluster, Write
from dray.cluster.remote import Remote

_serial = itertools.count(1)


@pytest.fixture(scope="session")
def real_kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    from tests.real.upstream.binaries import Unavailable
    from tests.real.upstream.control_plane import control_plane

    try:
        with control_plane(tmp_path_factory.mktemp("port")) as server:
            yield server.kubeconfig
    except Unavailable as missing:
        pytest.skip(str(missing))


@pytest.fixture(params=["embedded", "served", pytest.param("real", marks=pytest.mark.real)])
async def port(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Cluster]:
    """The port under test: on our server in process, on it over HTTPS, and on a real kube-apiserver."""
    if request.param == "real":
        cluster: Cluster = Remote(load(request.getfixturevalue("real_kubeconfig")))
        yield cluster
        await cluster.close()
        return
    server = ApiServer(None)
    await server.start()
    server.write_kubeconfig(tmp_path / "kubeconfig")
    cluster = Embedded(server) if request.param == "embedded" else Remote(load(tmp_path / "kubeconfig"))
    yield cluster
    await cluster.close()
    await server.stop()


@pytest.fixture
async def namespace(port: Cluster) -> str:
    """A new namespace."""
    name = f"port-{next(_serial)}"
    await port.write(Write("create", NAMESPACES, name=name, body=_named("v1", "Namespace", name)))
    return name


def _named(api_version: str, kind: str, name: str) -> dict[str, object]:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}}
