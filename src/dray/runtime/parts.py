"""The parts of a cluster in this process beside its API server: scheduler, controllers and simulated nodes, on one picture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from dray.api.kinds import Kind
from dray.apiserver.catalog import CATALOG
from dray.apiserver.server import ApiServer
from dray.cluster.metrics import METRICS
from dray.cluster.port import Decider
from dray.cluster.world import World
from dray.controllers.sets import METRICS as CONTROLLER_METRICS
from dray.controllers.sets import SETS, Setting, deciders, kinds
from dray.nodes.numbers import METRICS as KUBELET_METRICS
from dray.runtime.machines import Machines
from dray.runtime.meter import Meter
from dray.runtime.metrics import Metrics
from dray.runtime.process import Part
from dray.scheduling.config import EMBEDDED
from dray.scheduling.kinds import KINDS as SCHEDULER_KINDS
from dray.scheduling.scheduler import Scheduler

if TYPE_CHECKING:
    from dray.runtime.local import Settings

IN_FLIGHT: Final = 256


class Parts:
    """``part`` is what to run; ``metrics`` what is counted, from when it runs."""

    def __init__(
        self, names: Sequence[str], settings: Settings, server: ApiServer, watching: Callable[[World], Decider] | None
    ) -> None:
        """``watching`` makes one more decider, which sees what the others see."""
        self._names, self._settings, self._server, self._watching = names, settings, server, watching
        self._machines = Machines(settings.nodes, settings.kubelet_roots)
        self.metrics: Metrics | None = None

    def part(self) -> Part:
        beside = self._machines.beside if "nodes" in self._names and self._settings.kubelet_roots else None
        return Part(self._kinds(), self._deciders, self._settings.serve, None, IN_FLIGHT, beside, self._settings.gates)

    def _kinds(self) -> tuple[Kind, ...]:
        needed: list[Kind] = []
        if "scheduler" in self._names:
            needed.extend(SCHEDULER_KINDS)
        if "controllers" in self._names:
            needed.extend(kinds(tuple(SETS), CATALOG.owned))
        if "nodes" in self._names:
            needed.extend(Machines.kinds)
        return tuple(dict.fromkeys(needed))

    def _deciders(self, world: World, metrics: Metrics) -> list[Decider]:
        settings, made = self._settings, list[Decider]()
        self.metrics = metrics
        meter = Meter(metrics.registry, {**CONTROLLER_METRICS, **METRICS, **KUBELET_METRICS})
        if "scheduler" in self._names:
            made.append(Scheduler(world, settings.config or EMBEDDED, settings.gates, meter=meter))
        if "controllers" in self._names:
            identity = self._server.identity
            sign = identity.client_authority.signed
            setting = Setting(world, settings.gates, CATALOG.owned, identity.ca, meter, sign=sign, serving=self._server.address)
            made.extend(deciders(tuple(SETS), setting))
        if "nodes" in self._names:
            made.extend(self._machines.deciders(world, meter))
        if self._watching is not None:
            made.append(self._watching(world))
        return made
