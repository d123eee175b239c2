"""A whole cluster in this process: API server, scheduler, controllers, simulated nodes.

The parts run on the in-process port; kubectl and everything else comes in over HTTPS. Each part can be left out, for someone
else's scheduler or controllers to take its place. They are loaded when they run: an API server alone starts without them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from dray.api.gates import Gates
from dray.api.kinds import CUSTOM_RESOURCE_DEFINITIONS, Kind
from dray.apiserver.embedded import Embedded
from dray.apiserver.registry import Registry
from dray.apiserver.server import ApiServer, Core
from dray.cluster.port import Cluster, Conflict, Decider, Refused, Write
from dray.cluster.world import World
from dray.runtime.process import run

if TYPE_CHECKING:
    from dray.runtime.metrics import Metrics
    from dray.runtime.parts import Parts
    from dray.scheduling.config import Config

PARTS: Final = ("scheduler", "controllers", "nodes")


@cache
def _beginning() -> Registry:
    """What a cluster serves that nobody has changed."""
    core = Core()
    core.furnish()
    return core.operations.registry


class Unappliable(Exception):
    """An object cannot be brought into the cluster: names the object and why."""


class Settings(msgspec.Struct, frozen=True):
    data: Path | None = None
    port: int = 0
    gates: Gates = msgspec.field(default_factory=Gates.dray)
    # Of the scheduler; None for ``scheduling.config.EMBEDDED``.
    config: Config | None = None
    without: tuple[str, ...] = ()
    serve: str = ""
    nodes: tuple[dict[str, Any], ...] = ()
    # Where nodes look for driver programs and serve pod resources; most have no such place.
    kubelet_roots: dict[str, Path] = {}


class Local:
    """``await start()``, then ``run(stop)`` until it ends; ``port`` is the in-process way in."""

    def __init__(self, settings: Settings, watching: Callable[[World], Decider] | None = None) -> None:
        """``watching`` makes one more decider, which sees what the others see."""
        self._settings, self._watching = settings, watching
        self.server = ApiServer(settings.data, gates=settings.gates)
        self.port = Embedded(self.server)
        self._parts: Parts | None = None

    @property
    def metrics(self) -> Metrics | None:
        """What the parts count, from when they run."""
        return self._parts.metrics if self._parts is not None else None

    async def start(self) -> None:
        await self.server.start(port=self._settings.port)

    async def run(self, stop: asyncio.Event, ready: asyncio.Event | None = None) -> None:
        """Run the parts until ``stop``, then stop serving."""
        names = tuple(name for name in PARTS if name not in self._settings.without)
        try:
            if names:
                from dray.runtime.parts import Parts

                self._parts = Parts(names, self._settings, self.server, self._watching)
                await run(self.port, self._parts.part(), stop, ready)
            else:
                if ready is not None:
                    ready.set()
                await stop.wait()
        finally:
            await self.port.close()
            await self.server.stop()

    async def apply(self, objects: Sequence[dict[str, Any]]) -> None:
        """Create the objects, or change them to these if they exist."""
        await bring_in(self.port, objects, self.server.core.operations.registry, strict=True)


async def bring_in(
    cluster: Cluster, objects: Sequence[dict[str, Any]], registry: Registry | None = None, *, strict: bool = False
) -> None:
    """Create the objects in a cluster, or apply them where they exist, so that what the server added counts as no difference;
    definitions first, so that their kinds are served. Raises Unappliable. ``strict``: also where the server does not know a
    field; an older one may not know all that simulated hardware has."""
    for found in sorted(objects, key=lambda found: found.get("kind") != CUSTOM_RESOURCE_DEFINITIONS.kind):
        kind = served_kind(found, registry)
        metadata = found.get("metadata") or {}
        namespace = str(metadata.get("namespace") or "default") if kind.namespaced else ""
        name = str(metadata.get("name") or "")
        try:
            try:
                await cluster.write(Write("create", kind, namespace, name, found, strict=strict))
            except Conflict:
                await cluster.write(Write("patch", kind, namespace, name, found, patch="apply"))
        except Refused as error:
            raise Unappliable(f"{kind.kind} {name}: {error.message}") from error


def served_kind(found: dict[str, Any], registry: Registry | None = None) -> Kind:
    """The kind of an object, if it is served: in a running cluster, or in one that has just begun."""
    for resource in (registry or _beginning()).resources:
        if (resource.kind.api_version, resource.kind.kind) == (found.get("apiVersion"), found.get("kind")):
            return resource.kind
    raise Unappliable(f"kind {found.get('kind')!r} in {found.get('apiVersion')!r} is not served; see `kubectl api-resources`")
