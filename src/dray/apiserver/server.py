"""The API server as one object: core, journal, identity and sockets.

``Core`` is everything without I/O: it can run on virtual time. ``ApiServer`` puts it on a loop, a disk and a port.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from dray.api.digits import whole
from dray.api.gates import Gates
from dray.api.kinds import NAMESPACES, PRIORITY_CLASSES
from dray.api.times import format_time
from dray.apiserver.admission.gate import Gate
from dray.apiserver.admission.typechecking import TypeChecking
from dray.apiserver.api import Answer, Api, Request
from dray.apiserver.authentication.accounts import Accounts
from dray.apiserver.authentication.authenticator import Authenticator
from dray.apiserver.authentication.tokens import Signer
from dray.apiserver.authentication.users import ADMIN, VIEWER, User
from dray.apiserver.authorization import bootstrap
from dray.apiserver.authorization.policy import Policy
from dray.apiserver.catalog import CATALOG
from dray.apiserver.custom.definitions import Definitions
from dray.apiserver.errors import ApiError
from dray.apiserver.expiry import EVERY_SECONDS, Expiry
from dray.apiserver.http import Connection
from dray.apiserver.identity import Identity, identity, write_private
from dray.apiserver.journal import Journal
from dray.apiserver.kubeconfigs import kubeconfig, written
from dray.apiserver.operations import Operations, WriteOptions
from dray.apiserver.registry import Registry
from dray.apiserver.schema import load
from dray.apiserver.services import ADDRESSES
from dray.apiserver.store import Log, Store
from dray.apiserver.watching import Stream

log = logging.getLogger(__name__)

NAMESPACES_AT_START: Final = ("default", "kube-system", "kube-public", "kube-node-lease")
_PORT: Final = "port"
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
        tokens: Mapping[str, User] | None = None,
        account_key: str = "",
    ) -> None:
        """``tokens`` are those that are good for ever; ``account_key`` signs those of service accounts."""
        self.store = Store(log)
        self.operations = Operations(
            Registry(CATALOG.resources),
            self.store,
            load().extended(),
            gates=gates or Gates.dray(),
            clock=clock,
            randomness=randomness or random.Random(),
        )
        TypeChecking(self.operations.registry, self.operations.schemas)
        self.definitions = Definitions(self.operations)
        self.policy = Policy(self.store)
        self.operations.admission.gate = Gate(self.operations.registry, self.store, self.operations.schemas, self.policy)
        accounts = Accounts(self.operations, Signer(account_key))
        self.authenticator = Authenticator(tokens or {}, accounts)
        self.api = Api(self.operations, self.policy, self.authenticator, accounts)

    def revert(self) -> None:
        """What is not durable never happened; kinds are served by the definitions that are left."""
        if self.definitions.declared.storage in self.store.revert():
            self.definitions.load()

    def furnish_access(self) -> None:
        """The roles and bindings that every cluster has from the start."""
        bootstrap.furnish(self.operations)

    def furnish(self) -> None:
        """What every cluster has from the start, but for roles: who simulates one has no use for them."""
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
    ) -> None:
        self._data = data
        self.identity: Identity = identity(_directory(data))
        self._journal = Journal(data, self._durable_in_thread, self._failed_in_thread) if data is not None else None
        tokens = {self.identity.admin_token: ADMIN, self.identity.reader_token: VIEWER}
        key = self.identity.account_key
        self.core = Core(gates=gates, log=self._journal, tokens=tokens, account_key=key)
        self.core.api.healthy = lambda: self.failure
        self.connections: set[Any] = set()
        self._waiting: deque[tuple[int, Callable[[], None], Callable[[ApiError], None]]] = deque()
        self.failure = ""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: asyncio.Server | None = None
        self._expiry = Expiry(self.core.store)
        self._tick: asyncio.TimerHandle | None = None
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
        self.core.furnish_access()
        await self.durable(self.core.store.revision)
        self._expire()
        self._server = await self._listen(loop, host, port)
        taken = self._server.sockets[0].getsockname()[1]
        self.address = host, taken
        self.url = f"https://{host}:{taken}"
        if self._data is not None:
            write_private(self._data / _PORT, f"{taken}\n".encode())

    async def _listen(self, loop: asyncio.AbstractEventLoop, host: str, port: int) -> asyncio.Server:
        """On the port given, or on the one that this data directory had, so that kubeconfigs stay good; or on a free one."""
        kept = kept_port(self._data) if self._data is not None and not port else 0
        tls = self.identity.tls()
        for number in (kept, port) if kept else (port,):
            try:
                return await loop.create_server(
                    lambda: Connection(self, loop), host, number, ssl=tls, backlog=512, ssl_handshake_timeout=10
                )
            except OSError:
                if number == port:
                    raise
                log.warning("port %d, which this cluster used before, is taken: existing kubeconfigs no longer work", number)
        raise AssertionError("the last port was tried")

    def _expire(self) -> None:
        assert self._loop is not None
        self._expiry.expire(self.core.operations.clock())
        self._tick = self._loop.call_later(EVERY_SECONDS, self._expire)

    async def stop(self) -> None:
        """End watches and connections, write what is pending, give everything free."""
        if self._tick is not None:
            self._tick.cancel()
        if self._server is not None:
            self._server.close()
            for connection in tuple(self.connections):
                connection.close()
        if self._journal is not None:
            await asyncio.to_thread(self._journal.close)
        await asyncio.sleep(0)

    def write_kubeconfig(self, path: Path, *, view: bool = False) -> None:
        write_private(Path(path), written(kubeconfig(self.identity, self.url, view=view)))

    # ------------------------------------------------------------------------------------------------ for connections

    def handle(self, request: Request) -> Answer | Stream:
        return self.core.api.handle(request)

    def user(self, authorization: str) -> User | None:
        return self.core.authenticator.user(authorization)

    def when_durable(self, revision: int, ready: Callable[[], None], lost: Callable[[ApiError], None]) -> None:
        """Call ``ready`` when everything up to ``revision`` is durable, at once if it is; ``lost`` when it never will be."""
        if revision <= self.core.store.published:
            ready()
        else:
            self._waiting.append((revision, ready, lost))

    async def durable(self, revision: int) -> None:
        """Wait until everything up to ``revision`` is durable. Raises OSError when it never will be."""
        done: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def tell(failure: str) -> None:
            if not done.done():  # who waited may have been cancelled meanwhile
                done.set_result(failure)

        self.when_durable(revision, lambda: tell(""), lambda error: tell(error.message))
        if failure := await done:
            raise OSError(failure)

    # ------------------------------------------------------------------------------------------------ from the journal

    def _durable_in_thread(self, revision: int) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._durable, revision)

    def _durable(self, revision: int) -> None:
        self.failure = ""
        self.core.store.publish(revision)
        waiting = self._waiting
        while waiting and waiting[0][0] <= revision:
            waiting.popleft()[1]()

    def _failed_in_thread(self, error: Exception) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._fail, str(error) or type(error).__name__)

    def _fail(self, failure: str) -> None:
        """What the disk did not take never happened; whoever waits for it is told, and the next change is tried again."""
        assert self._journal is not None
        if not self.failure:
            log.error("cannot write changes to %s: %s", self._data, failure)
        self.failure = failure
        self.core.revert()
        self._journal.resume()
        waiting, self._waiting = self._waiting, deque()
        message = f"the change could not be written to {self._data}: {failure}; nothing was changed, try again later"
        for _, _, lost in waiting:
            lost(ApiError(500, "InternalError", message))


def kept_port(data: Path) -> int:
    """The port that the cluster in a data directory was last served on; 0 when there is none."""
    try:
        text = (data / _PORT).read_text().strip()
    except (FileNotFoundError, UnicodeDecodeError):
        return 0
    port = whole(text)
    return port if port is not None and port < 65536 else 0


def _directory(data: Path | None) -> Path | None:
    if data is not None:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
    return data
