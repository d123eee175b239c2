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
from dray.cluster.port import NotFound, WatchEvent, Write
from dray.cluster.remote import Remote

# Older versions with the same fields, newest first.
OLDER: Final[dict[Kind, tuple[str, ...]]] = {
    DEVICE_TAINT_RULES: ("v1beta2", "v1alpha3"),
    NODE_RESOURCE_TOPOLOGIES: ("v1alpha1",),
    CORE_POD_GROUPS: ("v1alpha3",),
}

log = logging.getLogger(__name__)


class Served:
    """``await Served.of(remote, kinds)`` asks what is served; what is not is asked for again when it is wanted."""

    def __init__(self, remote: Remote, versions: dict[Kind, Kind | None]) -> None:
        self._cluster, self._versions = remote, versions

    @staticmethod
    async def of(remote: Remote, kinds: Sequence[Kind]) -> Served:
        lists = _Lists(remote)
        versions = dict(zip(kinds, await asyncio.gather(*map(lists.newest, kinds))))
        for kind, found in versions.items():
            if found is None:
                log.warning(
                    "the cluster does not serve this kind; it counts as empty until it does", extra={"kind": kind.resource}
                )
            elif found != kind:
                log.info("the cluster serves an older version", extra={"kind": kind.resource, "version": found.version})
        return Served(remote, versions)

    async def list(
        self, kind: Kind, *, namespace: str = "", label_selector: str = "", field_selector: str = ""
    ) -> tuple[list[bytes], str]:
        if self._versions.get(kind, kind) is None:
            self._versions[kind] = await _Lists(self._cluster).newest(kind)
        served = self._served(kind)
        try:
            return await self._cluster.list(
                served, namespace=namespace, label_selector=label_selector, field_selector=field_selector
            )
        except NotFound:
            self._versions[kind] = None
            raise

    async def watch(
        self, kind: Kind, resource_version: str, *, namespace: str = "", field_selector: str = ""
    ) -> AsyncIterator[WatchEvent]:
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

    async def write(self, write: Write) -> dict[str, Any]:
        return await self._cluster.write(msgspec.structs.replace(write, kind=self._served(write.kind)))

    async def close(self) -> None:
        await self._cluster.close()

    def _served(self, kind: Kind) -> Kind:
        served = self._versions.get(kind, kind)
        if served is None:
            raise NotFound(404, "NotFound", f"the cluster does not serve {kind.resource}/{kind.version}")
        return served


class _Lists:
    """The resource lists of group versions, each read once."""

    def __init__(self, remote: Remote) -> None:
        self._remote = remote
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
            found = msgspec.json.decode(await self._remote.raw(path))
        except NotFound:
            return frozenset()
        return frozenset(entry["name"] for entry in found.get("resources", ()))
