"""Driver programs on the sockets of a simulated node: what a kubelet does to find them, call them and hear how devices are.

Each node that has a root directory looks for registration sockets in ``ROOT/plugins_registry``, as a kubelet does in
``/var/lib/kubelet/plugins_registry``, and serves pod resources on ``ROOT/pod-resources/kubelet.sock``. A driver that was built on
the upstream library needs nothing but other paths.

Always true: of several endpoints of a driver the most recently registered one that is connected is called, else the latest;
the first of a plugin's versions that we know is the one used. A call is asked for again and again and made once
(``dray.nodes.drivers``). Registered drivers take the place of simulated ones; on such a node nobody stands in for a driver that
is neither registered nor simulated.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

import grpc
import grpc.aio

from dray.api.wire import WireError, decode, encode
from dray.nodes import messages as m
from dray.nodes.drivers import CALL_SECONDS, Answer, ClaimName, Done, Drivers, Failed, Health, NotYet, Operation, PreparedDevice
from dray.nodes.reports import Reports

SCAN_SECONDS: Final = 0.25
RETRY_SECONDS: Final = 2.0
REGISTRATION_SECONDS: Final = 10.0
STREAM_SECONDS: Final = 5.0
TYPE: Final = "DRAPlugin"
_OPTIONS: Final = (("grpc.enable_http_proxy", 0), ("grpc.max_reconnect_backoff_ms", 3000))
_METHODS: Final[dict[Operation, tuple[str, type[Any]]]] = {
    "prepare": ("NodePrepareResources", m.NodePrepareResourcesResponse),
    "unprepare": ("NodeUnprepareResources", m.NodeUnprepareResourcesResponse),
}

T = TypeVar("T")
# A path and what is there: a driver that starts again makes a new socket under the old name.
Socket = tuple[Path, int, int]
Mark = tuple[Operation, str, str, tuple[ClaimName, ...]]

log = logging.getLogger(__name__)


class Unfit(Exception):
    """A plugin that cannot be used: why, as it is told."""


class Plugin:
    """A registered driver on one node: how to call it, and whether somebody is there."""

    def __init__(self, node: str, info: m.PluginInfo) -> None:
        self.node, self.driver, self.endpoint = node, info.name, info.endpoint
        self.service = _chosen(info)
        self.health_service = next((path for name, path in m.HEALTH_SERVICES.items() if name in info.supported_versions), "")
        self.channel = grpc.aio.insecure_channel(f"unix:{info.endpoint}", options=_OPTIONS)
        self.connected = False

    async def call(self, operation: Operation, claims: Sequence[ClaimName]) -> Answer:
        method, kind = _METHODS[operation]
        request = m.NodeResourcesRequest(tuple(m.Claim(claim.namespace, claim.uid, claim.name) for claim in claims))
        try:
            answer = await ask(self.channel, self.service + method, request, kind, CALL_SECONDS)
        except grpc.aio.AioRpcError as error:
            return Failed(f"rpc error: code = {_code(error)} desc = {error.details()}", _code(error))
        except WireError as error:
            return Failed(f"the driver's answer cannot be read: {error}")
        return {uid: _done(operation, found) for uid, found in answer.claims.items()}


class Sockets:
    """The drivers of nodes with a root directory, and of the others. ``run`` it beside the deciders.

    ``changed`` is called with a node's name when something about its drivers did.
    """

    def __init__(self, roots: Mapping[str, Path], others: Drivers, simulated: Callable[[str], bool]) -> None:
        self.roots = roots
        self.changed: Callable[[str], None] = lambda node: None
        self._others, self._simulated = others, simulated
        self._plugins: dict[Socket, Plugin] = {}  # by registration socket, in the order of registration
        self._attempts: dict[Socket, float] = {}  # registration socket -> when it is tried again
        self._calls: dict[Mark, asyncio.Task[Answer]] = {}
        self._reports: dict[tuple[str, str], Reports] = {}
        self._group: asyncio.TaskGroup | None = None

    # ------------------------------------------------------------------------------------------------ as the drivers

    def serves(self, node: str, driver: str) -> bool:
        return self._plugin(node, driver) is not None or self._stands_in(node, driver)

    def call(self, operation: Operation, node: str, driver: str, claims: Sequence[ClaimName], now: float) -> Answer:
        plugin = self._plugin(node, driver)
        if plugin is None:
            return self._others.call(operation, node, driver, claims, now)
        mark: Mark = (operation, node, driver, tuple(claims))
        under_way = self._calls.get(mark)
        if under_way is None:
            under_way = self._calls[mark] = self._spawn(plugin.call(operation, claims))
            under_way.add_done_callback(lambda _: self.changed(node))
        if not under_way.done():
            return NotYet()
        del self._calls[mark]
        return under_way.result()

    def health(self, node: str, driver: str, pool: str, device: str) -> Health | None:
        if self._plugin(node, driver) is None:
            return self._others.health(node, driver, pool, device) if self._stands_in(node, driver) else None
        reports = self._reports.get((node, driver))
        return reports.of(pool, device, time.time()) if reports is not None else None

    def connected(self, node: str, driver: str) -> bool:
        return any(plugin.connected for plugin in self._plugins.values() if (plugin.node, plugin.driver) == (node, driver))

    def _plugin(self, node: str, driver: str) -> Plugin | None:
        found = [plugin for plugin in self._plugins.values() if (plugin.node, plugin.driver) == (node, driver)]
        there = [plugin for plugin in found if plugin.connected] or found
        return there[-1] if there else None

    def _stands_in(self, node: str, driver: str) -> bool:
        return node not in self.roots or self._simulated(driver)

    # ------------------------------------------------------------------------------------------------------ the shell

    async def run(self) -> None:
        """Look for plugins until cancelled."""
        for root in self.roots.values():
            for name in ("plugins_registry", "plugins", "pod-resources"):
                (root / name).mkdir(parents=True, exist_ok=True)
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                while True:
                    await self._scan()
                    self._expire()
                    await asyncio.sleep(SCAN_SECONDS)
        finally:
            self._group = None
            for plugin in self._plugins.values():
                await plugin.channel.close()

    def _spawn(self, work: Awaitable[T]) -> asyncio.Task[T]:
        assert self._group is not None, "drivers are called while the shell runs"
        return self._group.create_task(work)  # type: ignore[arg-type]

    async def _scan(self) -> None:
        found = {known: node for node, root in self.roots.items() for known in _sockets(root / "plugins_registry")}
        for known in [known for known in (*self._plugins, *self._attempts) if known not in found]:
            self._attempts.pop(known, None)
            if (plugin := self._plugins.pop(known, None)) is not None:
                await self._deregister(plugin)
        now = time.monotonic()
        due = [known for known in found if known not in self._plugins and self._attempts.get(known, 0.0) <= now]
        for known in due:
            self._attempts[known] = now + RETRY_SECONDS
        await asyncio.gather(*(self._register(found[known], known) for known in due))

    async def _register(self, node: str, known: Socket) -> None:
        """As a kubelet: ask who it is, decide, and tell it."""
        path = known[0]
        try:
            async with grpc.aio.insecure_channel(f"unix:{path}", options=_OPTIONS) as channel:
                info = await ask(channel, m.REGISTRATION + "GetInfo", m.InfoRequest(), m.PluginInfo, REGISTRATION_SECONDS)
                status, plugin = m.RegistrationStatus(True), None
                try:
                    plugin = self._accepted(node, info)
                except Unfit as why:
                    log.warning("rejected a plugin", extra={"node": node, "socket": str(path), "why": str(why)})
                    status = m.RegistrationStatus(False, str(why))
                notify = m.REGISTRATION + "NotifyRegistrationStatus"
                await ask(channel, notify, status, m.RegistrationStatusResponse, REGISTRATION_SECONDS)
        except (grpc.aio.AioRpcError, WireError) as error:
            log.info("no answer from a registration socket", extra={"node": node, "socket": str(path), "error": str(error)})
            return
        if plugin is not None:
            self._plugins[known] = plugin
            self._attempts.pop(known, None)
            self._spawn(self._monitor(known, plugin))
            if plugin.health_service:
                self._spawn(self._listen(known, plugin))
            log.info("registered a driver", extra={"node": node, "driver": plugin.driver, "endpoint": plugin.endpoint})

    def _accepted(self, node: str, info: m.PluginInfo) -> Plugin:
        if info.type != TYPE:
            raise Unfit(f"plugins of type {info.type!r} are not simulated, only {TYPE}")
        if not info.name or not info.endpoint:
            raise Unfit("a plugin must report its name and endpoint")
        for other in self._plugins.values():
            if (other.node, other.driver, other.endpoint) == (node, info.name, info.endpoint):
                raise Unfit(f"endpoint {info.endpoint} already registered for DRA driver plugin {info.name}")
        return Plugin(node, info)

    async def _deregister(self, plugin: Plugin) -> None:
        plugin.connected = False
        self._reports.pop((plugin.node, plugin.driver), None)
        self.changed(plugin.node)
        await plugin.channel.close()

    async def _monitor(self, known: Socket, plugin: Plugin) -> None:
        """Whether somebody is at the endpoint; a connection that is lost is made again."""
        with suppress(grpc.aio.UsageError):  # the channel was closed: the plugin went
            while self._plugins.get(known) is plugin:
                state = plugin.channel.get_state(try_to_connect=True)
                if plugin.connected != (state == grpc.ChannelConnectivity.READY):
                    plugin.connected = not plugin.connected
                    self.changed(plugin.node)
                await plugin.channel.wait_for_state_change(state)

    # ------------------------------------------------------------------------------------------------------- health

    async def _listen(self, known: Socket, plugin: Plugin) -> None:
        """The stream of complete health reports; begun again when it ends, unless the driver has none."""
        watch = plugin.channel.unary_stream(
            plugin.health_service + "NodeWatchResources",
            request_serializer=encode,
            response_deserializer=lambda raw: decode(m.NodeWatchResourcesResponse, raw),
        )
        while self._plugins.get(known) is plugin:
            try:
                async for report in watch(m.NodeWatchResourcesRequest()):
                    self._heard(plugin, report)
            except grpc.aio.AioRpcError as error:
                if error.code() == grpc.StatusCode.UNIMPLEMENTED:
                    return
            except (grpc.aio.UsageError, asyncio.InvalidStateError):
                return
            if self._reports.pop((plugin.node, plugin.driver), None) is not None:
                self.changed(plugin.node)
            await asyncio.sleep(STREAM_SECONDS)

    def _heard(self, plugin: Plugin, report: m.NodeWatchResourcesResponse) -> None:
        reports = self._reports.setdefault((plugin.node, plugin.driver), Reports())
        if reports.take(report.devices, time.time()):
            self.changed(plugin.node)

    def _expire(self) -> None:
        for (node, _), reports in self._reports.items():
            if reports.expire(time.time()):
                self.changed(node)


async def ask(channel: grpc.aio.Channel, method: str, request: Any, kind: type[T], timeout: float) -> T:  # noqa: ASYNC109
    """One unary call."""
    # The bytes are read here and not by the library, so that an answer that is no message is an error of ours.
    call: Any = channel.unary_unary(method, request_serializer=encode, response_deserializer=None)
    return decode(kind, await call(request, timeout=timeout))


def _chosen(info: m.PluginInfo) -> str:
    for name in info.supported_versions:
        if name in m.DRA_SERVICES:
            return m.DRA_SERVICES[name]
    known = ", ".join(m.DRA_SERVICES)
    raise Unfit(f"none of the versions {', '.join(info.supported_versions) or '(none)'} is supported; supported: {known}")


def _done(operation: Operation, found: Any) -> Done:
    if operation == "unprepare":
        return Done(error=found.error)
    devices = (
        PreparedDevice(d.pool_name, d.device_name, d.request_names, d.cdi_device_ids, d.share_id or None) for d in found.devices
    )
    return Done(tuple(devices), found.error)


def _code(error: grpc.aio.AioRpcError) -> str:
    """As Go writes it: DeadlineExceeded."""
    return "".join(part.capitalize() for part in error.code().name.split("_"))


def _sockets(directory: Path) -> list[Socket]:
    """Sockets in the directory and below, oldest first; hidden ones are being made."""
    found: list[Socket] = []
    for place, directories, names in os.walk(directory):
        directories[:] = [name for name in directories if not name.startswith(".")]
        for name in names:
            path = Path(place) / name
            with suppress(FileNotFoundError):
                about = path.stat()
                if stat.S_ISSOCK(about.st_mode) and not name.startswith("."):
                    found.append((path, about.st_mtime_ns, about.st_ino))
    return sorted(found, key=lambda known: known[1])
