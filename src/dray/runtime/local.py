"""A whole cluster in this process: API server, scheduler, controllers, simulated nodes.

The parts run on the in-process port; kubectl and everything else comes in over HTTPS. Each part can be left out, for someone
else's scheduler or controllers to take its place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec

from dray.api.gates import Gates
from dray.api.kinds import CUSTOM_RESOURCE_DEFINITIONS, Kind
from dray.apiserver.catalog import CATALOG
from dray.apiserver.embedded import Embedded
from dray.apiserver.registry import Registry
from dray.apiserver.server import ApiServer, Core
from dray.cluster.metrics import METRICS
from dray.cluster.port import Cluster, Conflict, Decider, Refused, Write
from dray.cluster.world import World
from dray.controllers.claims import METRICS as CLAIM_METRICS
from dray.controllers.eviction import METRICS as EVICTION_METRICS
from dray.controllers.sets import SETS, Setting, deciders, kinds
from dray.nodes.numbers import METRICS as KUBELET_METRICS
from dray.runtime.machines import Machines
from dray.runtime.meter import Meter
from dray.runtime.metrics import Metrics
from dray.runtime.process import Part, run
from dray.scheduling.config import Config, Profile
from dray.scheduling.kinds import KINDS as SCHEDULER_KINDS
from dray.scheduling.scheduler import Scheduler

PARTS: Final = ("scheduler", "controllers", "nodes")
# The embedded cluster serves pods that name no scheduler, and pods that name Dray's.
EMBEDDED: Final = Config((Profile("default-scheduler"), Profile("dray")))
IN_FLIGHT: Final = 256


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
    config: Config = EMBEDDED
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
        self._machines = Machines(settings.nodes, settings.kubelet_roots)
        # What the parts count, from when they run.
        self.metrics: Metrics | None = None

    async def start(self) -> None:
        await self.server.start(port=self._settings.port)

    async def run(self, stop: asyncio.Event, ready: asyncio.Event | None = None) -> None:
        """Run the parts until ``stop``, then stop serving."""
        parts = [name for name in PARTS if name not in self._settings.without]
        try:
            if parts:
                part = Part(
                    self._kinds(parts),
                    lambda world, metrics: self._deciders(parts, world, metrics),
                    self._settings.serve,
                    None,
                    IN_FLIGHT,
                    self._machines.beside if "nodes" in parts and self._settings.kubelet_roots else None,
                )
                await run(self.port, part, stop, ready)
            else:
                if ready is not None:
                    ready.set()
                await stop.wait()
        finally:
            await self.port.close()
            await self.server.stop()

    async def apply(self, objects: Sequence[dict[str, Any]]) -> None:
        """Create the objects, or change them to these if they exist."""
        await bring_in(self.port, objects, self.server.core.operations.registry)

    @staticmethod
    def _kinds(parts: Sequence[str]) -> tuple[Kind, ...]:
        needed: list[Kind] = []
        if "scheduler" in parts:
            needed.extend(SCHEDULER_KINDS)
        if "controllers" in parts:
            needed.extend(kinds(tuple(SETS), CATALOG.owned))
        if "nodes" in parts:
            needed.extend(Machines.kinds)
        return tuple(dict.fromkeys(needed))

    def _deciders(self, parts: Sequence[str], world: World, metrics: Metrics) -> list[Decider]:
        settings, made = self._settings, list[Decider]()
        self.metrics = metrics
        meter = Meter(metrics.registry, {**CLAIM_METRICS, **EVICTION_METRICS, **METRICS, **KUBELET_METRICS})
        if "scheduler" in parts:
            made.append(Scheduler(world, settings.config, settings.gates, meter=meter))
        if "controllers" in parts:
            identity = self.server.identity
            sign = identity.client_authority.signed
            setting = Setting(world, settings.gates, CATALOG.owned, identity.ca, meter, sign=sign, serving=self.server.address)
            made.extend(deciders(tuple(SETS), setting))
        if "nodes" in parts:
            made.extend(self._machines.deciders(world, meter))
        if self._watching is not None:
            made.append(self._watching(world))
        return made


async def bring_in(cluster: Cluster, objects: Sequence[dict[str, Any]], registry: Registry | None = None) -> None:
    """Create the objects in a cluster, or change them to these if they exist; definitions first, so that their kinds are served.
    Raises Unappliable."""
    for found in sorted(objects, key=lambda found: found.get("kind") != CUSTOM_RESOURCE_DEFINITIONS.kind):
        kind = served_kind(found, registry)
        metadata = found.get("metadata") or {}
        namespace = str(metadata.get("namespace") or "default") if kind.namespaced else ""
        name = str(metadata.get("name") or "")
        try:
            try:
                await cluster.write(Write("create", kind, namespace, name, found))
            except Conflict:
                await cluster.write(Write("patch", kind, namespace, name, found))
        except Refused as error:
            raise Unappliable(f"{kind.kind} {name}: {error.message}") from error


def served_kind(found: dict[str, Any], registry: Registry | None = None) -> Kind:
    """The kind of an object, if it is served: in a running cluster, or in one that has just begun."""
    for resource in (registry or _beginning()).resources:
        if (resource.kind.api_version, resource.kind.kind) == (found.get("apiVersion"), found.get("kind")):
            return resource.kind
    raise Unappliable(f"no kind {found.get('kind')!r} in {found.get('apiVersion')!r} is served; see `kubectl api-resources`")
