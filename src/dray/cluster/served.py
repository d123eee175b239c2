"""A cluster seen through what it serves: kinds in the version it has them.

Kubernetes 1.34 to 1.36 serve DeviceTaintRule in older versions or not at all, and not every cluster has NodeResourceTopology.
Deciders need not know. A kind that is not served is looked for again whenever it is asked about, and NotFound until then; so is
one that went, because its definition was deleted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import msgspec

from dray.api.kinds import CORE_POD_GROUPS, DEVICE_TAINT_RULES, NODE_RESOURCE_TOPOLOGIES, Kind
from dray.cluster.port import NotFound, Unreachable, WatchEvent, Write
from dray.cluster.remote import Remote, decoded

# Older versions with the same fields, newest first.
OLDER: Final[dict[Kind, tuple[str, ...]]] = {
    DEVICE_TAINT_RULES: ("v1beta2", "v1alpha3"),
    NODE_RESOURCE_TOPOLOGIES: ("v1alpha1",),
    CORE_POD_GROUPS: ("v1alpha3",),
}

# How a kind that Kubernetes has, but not always serves, is switched on.
SWITCHED_ON: Final[dict[Kind, str]] = {
    DEVICE_TAINT_RULES: "they are off before Kubernetes 1.37; its servers need --feature-gates DRADeviceTaints=true (since 1.35 "
    "DRADeviceTaintRules=true, too) and --runtime-config resource.k8s.io/v1alpha3=true (in 1.36 v1beta2). "
    "A driver can taint its devices in their ResourceSlices",
}

# Asking one after the other on a few connections takes less time than opening one for each question.
AT_ONCE: Final = 6

Listing = tuple[list[bytes], str]

log = logging.getLogger(__name__)


class Served:
    """``await Served.of(remote, kinds)`` asks what is served; what is not is asked for again when it is wanted.

    ``begin`` lists each kind as soon as its version is known, before anybody asks for it: whoever starts has other things to do
    until it can. The first list of a kind is that one."""

    def __init__(self, remote: Remote) -> None:
        self._cluster = remote
        self._versions: dict[Kind, Kind | None] = {}
        self._begun: dict[Kind, asyncio.Task[Listing]] = {}
        self._under_way: set[asyncio.Task[Listing]] = set()
        self._just_missed: set[Kind] = set()
        self._at_once = asyncio.Semaphore(AT_ONCE)

    @staticmethod
    async def of(remote: Remote, kinds: Sequence[Kind], begin: bool = False) -> Served:
        served = Served(remote)
        lists = _Lists(remote, served._at_once)
        await asyncio.gather(*(served._find(kind, lists, begin) for kind in kinds))
        lost = next((kind for kind in kinds if not kind.group and served._versions[kind] is None), None)
        if lost is not None:
            raise Unreachable(
                f"{remote.access.server} does not serve {lost.resource}; is this the URL of a Kubernetes API server?"
            )
        return served

    async def _find(self, kind: Kind, lists: _Lists, begin: bool) -> None:
        found = self._versions[kind] = await lists.newest(kind)
        if found is None:
            self._just_missed.add(kind)
            return
        if found != kind:
            log.info("the cluster serves an older version", extra={"kind": kind.resource, "version": found.version})
        if begin:
            begun = self._begun[kind] = asyncio.create_task(self._begin(found), name=f"list {kind.resource}")
            self._under_way.add(begun)
            begun.add_done_callback(self._under_way.discard)

    async def _begin(self, kind: Kind) -> Listing:
        async with self._at_once:
            return await self._cluster.list(kind)

    async def list(self, kind: Kind, *, namespace: str = "", label_selector: str = "", field_selector: str = "") -> Listing:
        if self._versions.get(kind, kind) is None and kind not in self._just_missed:
            self._versions[kind] = await _Lists(self._cluster, self._at_once).newest(kind)
        self._just_missed.discard(kind)
        served, begun = self._served(kind), self._begun.pop(kind, None)
        try:
            if begun is not None and not (namespace or label_selector or field_selector):
                return await begun
            return await self._cluster.list(
                served, namespace=namespace, label_selector=label_selector, field_selector=field_selector
            )
        except NotFound:
            self._versions[kind] = None
            raise

    async def watch(
        self, kind: Kind, resource_version: str, *, namespace: str = "", field_selector: str = ""
    ) -> AsyncIterator[WatchEvent]:
        if self._under_way:  # what there is comes before what will be: without the last list nobody can begin
            await asyncio.wait(tuple(self._under_way))
        async for event in self._cluster.watch(
            self._served(kind), resource_version, namespace=namespace, field_selector=field_selector
        ):
            yield event

    def version_of(self, kind: Kind) -> str:
        """The apiVersion that a body of this kind must have here."""
        return self._served(kind).api_version

    async def get(self, kind: Kind, namespace: str, name: str) -> dict[str, Any]:
        return await self._cluster.get(self._served(kind), namespace, name)

    async def raw(self, path: str) -> bytes:
        """The body of a GET on any path."""
        return await self._cluster.raw(path)

    async def version(self) -> str:
        """What the server calls itself."""
        return await self._cluster.version()

    async def write(self, write: Write) -> dict[str, Any]:
        return await self._cluster.write(msgspec.structs.replace(write, kind=self._served(write.kind)))

    async def close(self) -> None:
        for begun in self._begun.values():
            begun.cancel()
        await asyncio.gather(*self._begun.values(), return_exceptions=True)
        await self._cluster.close()

    def _served(self, kind: Kind) -> Kind:
        served = self._versions.get(kind, kind)
        if served is None:
            raise NotFound(404, "NotFound", not_served(kind))
        return served


def not_served(kind: Kind) -> str:
    switch = SWITCHED_ON.get(kind)
    return f"the cluster does not serve {kind.resource}/{kind.version}" + (f": {switch}" if switch else "")


class _Resource(msgspec.Struct):
    name: str


class _Resources(msgspec.Struct):
    """An APIResourceList."""

    resources: list[_Resource] | None = None


_resources_decoder: Final = msgspec.json.Decoder(_Resources)


class _Lists:
    """The resource lists of group versions, each read once."""

    def __init__(self, remote: Remote, at_once: asyncio.Semaphore) -> None:
        self._remote, self._at_once = remote, at_once
        self._plurals: dict[str, asyncio.Future[frozenset[str]]] = {}

    async def newest(self, kind: Kind) -> Kind | None:
        for version in (kind.version, *OLDER.get(kind, ())):
            candidate = msgspec.structs.replace(kind, version=version)
            if kind.plural in await self._of(candidate):
                return candidate
        return None

    async def _of(self, kind: Kind) -> frozenset[str]:
        path = kind.path().removesuffix(f"/{kind.plural}")
        if path not in self._plurals:
            self._plurals[path] = asyncio.ensure_future(self._read(path))
        return await self._plurals[path]

    async def _read(self, path: str) -> frozenset[str]:
        try:
            async with self._at_once:
                found = decoded(_resources_decoder, await self._remote.raw(path))
        except NotFound:
            return frozenset()
        return frozenset(entry.name for entry in found.resources or ())
