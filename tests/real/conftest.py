"""Fixtures of the tests that run beside, on or against the real upstream programs.

Everything in this folder is marked ``real``. ``cluster`` gives each test twice: on a real kube-apiserver with etcd, and on
``dray up``. Servers live as long as the test session, so a test uses the ``namespace`` fixture and names of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.real.upstream.binaries import OLDEST, PACKAGES, Unavailable, binary
from tests.real.upstream.client import Client
from tests.real.upstream.control_plane import Server, control_plane
from tests.real.upstream.embedded import dray_up
from tests.real.upstream.process import Program
from tests.real.upstream.scheduler import kube_scheduler

HERE = Path(__file__).parent
_serial = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.real)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Builds the upstream programs before the first test, because no test has the minutes that it takes."""
    wanted = any(HERE in item.path.parents for item in session.items)
    if wanted and not session.config.option.collectonly:
        with suppress(Unavailable):  # the fixture below says what is missing
            build_all()


def build_all() -> None:
    for name in PACKAGES:
        binary(name)
    binary("kube-apiserver", OLDEST)


@pytest.fixture(scope="session")
def upstream() -> None:
    """Skips, with the reason, where the upstream programs cannot be had."""
    try:
        build_all()
    except Unavailable as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def real_server(upstream: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A real kube-apiserver and etcd, nothing else."""
    with control_plane(tmp_path_factory.mktemp("real")) as server:
        yield server


@pytest.fixture
def server(upstream: None, tmp_path: Path) -> Iterator[Server]:
    """A control plane of its own, for tests in which every device counts."""
    with control_plane(tmp_path / "control-plane") as found:
        yield found


@pytest.fixture(scope="session")
def embedded_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """``dray up`` with its API server only."""
    with dray_up(tmp_path_factory.mktemp("embedded")) as server:
        yield server


@pytest.fixture(params=["real", "embedded"])
def cluster(request: pytest.FixtureRequest) -> Server:
    """One API server, and the other: what holds on the first must hold on the second."""
    server: Server = request.getfixturevalue(f"{request.param}_server")
    return server


@pytest.fixture
def client(cluster: Server) -> Client:
    return Client(cluster.kubeconfig)


@pytest.fixture
def namespace(client: Client) -> str:
    """A new namespace."""
    name = f"test-{next(_serial)}"
    client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return name


@pytest.fixture
def scheduler(upstream: None, cluster: Server, tmp_path: Path) -> Iterator[Program]:
    """The real kube-scheduler on ``cluster`` for one test."""
    with kube_scheduler(cluster.kubeconfig, tmp_path) as program:
        yield program
