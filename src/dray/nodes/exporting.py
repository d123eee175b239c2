"""The shell around the placement exporter: a kubelet's podresources socket, the machine's map of CPUs, the files that change.

The kubelet is asked when pods of the node change, when one of its state files does, and now and then in any case; never more
than once a second. A kubelet that is away is waited for.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import grpc

from dray.api.kinds import NODE_RESOURCE_TOPOLOGIES, PODS, Kind
from dray.api.wire import WireError, decode, encode
from dray.cluster.port import Cluster, WatchEvent, Write
from dray.nodes.exporter import LOOK_SECONDS, Exporter
from dray.numa.podresources import LIST, ListPodResourcesRequest, ListPodResourcesResponse

# Written by a kubelet whenever it gives something out or takes it back.
STATE_FILES: Final = ("cpu_manager_state", "memory_manager_state", "device-plugins/kubelet_internal_checkpoint")
TIMEOUT_SECONDS: Final = 10.0
MESSAGE_MAX: Final = 16 * 1024 * 1024

log = logging.getLogger(__name__)


class PodResourcesClient:
    """The kubelet behind a unix socket."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self._channel = grpc.aio.insecure_channel(
            f"unix:{socket}", options=(("grpc.max_receive_message_length", MESSAGE_MAX), ("grpc.enable_http_proxy", 0))
        )
        self._list = self._channel.unary_unary(
            LIST, request_serializer=encode, response_deserializer=partial(decode, ListPodResourcesResponse)
        )

    async def list(self) -> ListPodResourcesResponse:
        """Everything that containers of this node have. Raises grpc.RpcError, WireError."""
        found: ListPodResourcesResponse = await self._list(ListPodResourcesRequest(), timeout=TIMEOUT_SECONDS)
        return found

    async def close(self) -> None:
        await self._channel.close()


async def follow(exporter: Exporter, client: PodResourcesClient, state: Path | None, stir: Callable[[], None]) -> None:
    """Ask the kubelet whenever the exporter wants to know, until cancelled. ``stir`` has the exporter look at the answer."""
    stamps = _stamps(state)
    while True:
        now = time.time()
        if (latest := _stamps(state)) != stamps:
            stamps = latest
            exporter.changed(now)
        if exporter.due <= now:
            try:
                exporter.see(await client.list(), now)
                stir()
            except (grpc.RpcError, WireError) as error:
                exporter.unseen(now)
                log.warning("no answer from the kubelet", extra={"socket": str(client.socket), "error": _told(error)})
        await asyncio.sleep(LOOK_SECONDS)


def _told(error: Exception) -> str:
    details = getattr(error, "details", None)
    return str(details()) if callable(details) else str(error)


def _stamps(state: Path | None) -> tuple[int, ...]:
    """When each of the state files was written last; 0 for one that is not there."""

    def stamp(path: Path) -> int:
        try:
            return path.stat().st_mtime_ns
        except OSError:
            return 0

    return () if state is None else tuple(stamp(state / name) for name in STATE_FILES)


def cpu_zones(sysfs: Path) -> dict[int, int]:
    """CPU -> zone number, as the machine says. Empty when it says nothing."""
    found: dict[int, int] = {}
    for path in sorted(sysfs.glob("node[0-9]*/cpulist")):
        number = re.fullmatch(r"node(\d{1,4})", path.parent.name)
        if number:
            found.update(dict.fromkeys(cpu_list(path.read_text()), int(number[1])))
    return found


def cpu_list(text: str) -> list[int]:
    """The CPUs in a list as the kernel writes it: ``0-3,8,10-11``."""
    found: list[int] = []
    for part in filter(None, text.strip().split(",")):
        ends = re.fullmatch(r"(\d{1,5})(?:-(\d{1,5}))?", part)
        if ends is None:
            raise ValueError(f"{part!r} is not a range of CPUs")
        found += range(int(ends[1]), int(ends[2] or ends[1]) + 1)
    return found


class OnNode:
    """A cluster of which only one node's pods and topology are seen."""

    def __init__(self, cluster: Cluster, node: str) -> None:
        self._cluster = cluster
        self._selectors = {PODS: f"spec.nodeName={node}", NODE_RESOURCE_TOPOLOGIES: f"metadata.name={node}"}

    async def list(
        self, kind: Kind, *, namespace: str = "", label_selector: str = "", field_selector: str = ""
    ) -> tuple[list[bytes], str]:
        chosen = self._selectors.get(kind, field_selector)
        return await self._cluster.list(kind, namespace=namespace, label_selector=label_selector, field_selector=chosen)

    async def watch(
        self, kind: Kind, resource_version: str, *, namespace: str = "", field_selector: str = ""
    ) -> AsyncIterator[WatchEvent]:
        chosen = self._selectors.get(kind, field_selector)
        async for event in self._cluster.watch(kind, resource_version, namespace=namespace, field_selector=chosen):
            yield event

    async def get(self, kind: Kind, namespace: str, name: str) -> dict[str, Any]:
        return await self._cluster.get(kind, namespace, name)

    async def write(self, write: Write) -> dict[str, Any]:
        return await self._cluster.write(write)

    async def close(self) -> None:
        await self._cluster.close()
