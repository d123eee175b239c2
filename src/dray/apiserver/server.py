"""The API server as one object: core, journal, identity and sockets.

``Core`` is everything without I/O: it can run on virtual time. ``ApiServer`` puts it on a loop, a disk and a port.
"""

from __future__ import annotations

import asyncio
import gc
import random
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from dray.api.gates import Gates
from dray.api.kinds import NAMESPACES, PRIORITY_CLASSES
from dray.api.times import format_time
from dray.apiserver.api import Answer, Api, Request, refusal
from dray.apiserver.catalog import CATALOG
from dray.apiserver.custom.definitions import Definitions
from dray.apiserver.errors import ApiError
from dray.apiserver.http import Connection
from dray.apiserver.identity import Identity, identity, write_private
from dray.apiserver.journal import Journal
from dray.apiserver.operations import Operations, WriteOptions
from dray.apiserver.registry import Registry
from dray.apiserver.reviews import User
from dray.apiserver.schema import load
from dray.apiserver.services import ADDRESSES
from dray.apiserver.store import Log, Store
from dray.apiserver.watching import Stream

NAMESPACES_AT_START: Final = ("default", "kube-system", "kube-public", "kube-node-lease")
_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
_SYSTEM_CLASSES: Final = {
    "system-cluster-critical": (2_000_000_000, "Used for system critical pods that must run in the cluster, but can be moved."),
    "system-node-critical": (2_000_001_000, "Used for system critical pods that must not be moved from their current node."),
}


def collect_seldom() -> None:
    """Nearly all of the heap of a process with an API server is objects without cycles that live long: looking through them
    often finds nothing and stops everything for as long as it takes."""
    gc.set_threshold(50_000, 20, 100)


class Core:
    """The API without sockets and disks; deterministic given clock and randomness."""

    def __init__(
        self,
        *,
        gates: Gates | None = None,
        clock: Callable[[], float] = time.time,
        randomness: random.Random | None = None,
        log: Log | None = None,
        who: Callable[[str], User | None] = lambda token: None,
    ) -> None:
        self.store = Store(log)
        self.operations = Operations(
            Registry(CATALOG.resources),
            self.store,
            load().extended(),
            gates=gates or Gates.dray(),
            clock=clock,
            randomness=randomness or random.Random(),
        )
        self.definitions = Definitions(self.operations)
        self.api = Api(self.operations, who)

    def furnish(self) -> None:
        """What every cluster has from the start."""
        self.definitions.load()
        self.definitions.install()
        options = WriteOptions(manager="dray")
        namespaces, classes = CATALOG.of(NAMESPACES), CATALOG.of(PRIORITY_CLASSES)
        for name in NAMESPACES_AT_START:
            if self.operations.find(namespaces, "", name) is None:
                self.operations.create(namespaces, "", {"metadata": {"name": name}}, options)
        for name, (value, description) in _SYSTEM_CLASSES.items():
            if self.operations.find(classes, "", name) is None:
                given = {"metadata": {"name": name}, "value": value, "description": description}
                self.operations.create(classes, "", given, options)
        self._furnish_addresses(options)

    def _furnish_addresses(self, options: WriteOptions) -> None:
        ranges = CATALOG.named("servicecidrs.networking.k8s.io")
        if self.operations.find(ranges, "", "kubernetes") is None:
            given = {"metadata": {"name": "kubernetes"}, "spec": {"cidrs": [str(ADDRESSES)]}}
            self.operations.create(ranges, "", given, options)
            ready = {"type": "Ready", "status": "True", "reason": "", "message": "Kubernetes Service CIDR is ready"}
            status = {"conditions": [{**ready, "lastTransitionTime": format_time(self.operations.clock())}]}
            change = lambda old: {**old, "status": status}  # noqa: E731
            self.operations.update(ranges, "", "kubernetes", change, options, subresource="status")


class ApiServer:
    """``await start()``, use ``url``, ``identity`` and ``write_kubeconfig``, ``await stop()``.

    data: the directory that keeps the cluster; None for a cluster that is gone when the process ends.
    """

    def __init__(
        self,
        data: Path | None = None,
        *,
        gates: Gates | None = None,
        clock: Callable[[], float] = time.time,
        randomness: random.Random | None = None,
    ) -> None:
        self.identity: Identity = identity(_directory(data))
        self._journal = Journal(data, self._durable_in_thread, self._failed_in_thread) if data is not None else None
        self.core = Core(gates=gates, clock=clock, randomness=randomness, log=self._journal, who=self.identity.by_token)
        self.core.api.healthy = lambda: self.failure
        self.connections: set[Any] = set()
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        self.failure = ""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: asyncio.Server | None = None
        self.url = ""
        self.address = ("", 0)

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Load what there is and serve. Only loopback addresses are served: tokens are all that protects the cluster."""
        if host not in _LOOPBACK:
            raise ValueError(f"Dray serves loopback addresses only, not {host!r}; use 127.0.0.1 and a tunnel")
        collect_seldom()
        loop = self._loop = asyncio.get_running_loop()
        if self._journal is not None:
            self.core.store.load(*self._journal.load())
            self._journal.start()
        self.core.furnish()
        self._server = await loop.create_server(
            lambda: Connection(self, loop), host, port, ssl=self.identity.tls(), backlog=512, ssl_handshake_timeout=10
        )
        self.address = host, self._server.sockets[0].getsockname()[1]
        self.url = f"https://{host}:{self.address[1]}"
        await self.durable()

    async def stop(self) -> None:
        """End watches and connections, write what is pending, give everything free."""
        if self._server is not None:
            self._server.close()
            for connection in tuple(self.connections):
                connection.close()
        if self._journal is not None:
            await asyncio.to_thread(self._journal.close)
        await asyncio.sleep(0)

    def write_kubeconfig(self, path: Path, *, read_only: bool = False) -> None:
        token = self.identity.reader_token if read_only else self.identity.admin_token
        write_private(Path(path), self.identity.kubeconfig(self.url, token).encode())

    # ------------------------------------------------------------------------------------------------ for connections

    def handle(self, request: Request) -> Answer | Stream:
        if self.failure and request.method != "GET":
            return refusal(ApiError(500, "InternalError", f"the journal failed, nothing can be written: {self.failure}"))
        return self.core.api.handle(request)

    def user(self, authorization: str) -> User:
        return self.identity.user(authorization)

    def when_durable(self, revision: int, ready: Callable[[], None]) -> None:
        """Call ``ready`` when everything up to ``revision`` is durable; at once if it is."""
        if revision <= self.core.store.published:
            ready()
        else:
            self._waiting.append((revision, ready))

    async def durable(self) -> None:
        """Wait until everything written so far is durable."""
        done = asyncio.Event()
        self.when_durable(self.core.store.revision, done.set)
        await done.wait()
        if self.failure:
            raise OSError(f"the journal failed: {self.failure}")

    # ------------------------------------------------------------------------------------------------ from the journal

    def _durable_in_thread(self, revision: int) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._durable, revision)

    def _durable(self, revision: int) -> None:
        self.core.store.publish(revision)
        waiting = self._waiting
        while waiting and waiting[0][0] <= revision:
            waiting.popleft()[1]()

    def _failed_in_thread(self, error: Exception) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._fail, f"{type(error).__name__}: {error}")

    def _fail(self, failure: str) -> None:
        """Nothing more can be promised: unanswered requests end without an answer, which is the truth."""
        self.failure = failure
        for connection in tuple(self.connections):
            connection.close()
        while self._waiting:
            self._waiting.popleft()[1]()


def _directory(data: Path | None) -> Path | None:
    if data is not None:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
    return data
