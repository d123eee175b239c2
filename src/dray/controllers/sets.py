"""The controllers by the names that users choose them with, and the kinds that each choice needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from dray.api.gates import Gates
from dray.api.kinds import NAMESPACES, Kind
from dray.cluster.metrics import Meter
from dray.cluster.port import Decider
from dray.cluster.world import World
from dray.controllers.budgets import Budgets
from dray.controllers.claims import ClaimsController
from dray.controllers.cronjobs import CronJobs
from dray.controllers.daemonsets import DaemonSets
from dray.controllers.deployments import Deployments
from dray.controllers.endpoints import ApiService, Endpoints
from dray.controllers.garbage import Garbage
from dray.controllers.jobs import Jobs
from dray.controllers.namespaces import Namespaces
from dray.controllers.podgarbage import PodGarbage
from dray.controllers.replicasets import ReplicaSets, ReplicationControllers
from dray.controllers.statefulsets import StatefulSets
from dray.controllers.volumes import Volumes


class Setting:
    """What controllers are made from. ``owned`` are the kinds that garbage and namespaces look after; ``serving`` is where the
    API server is, if it is one of ours."""

    def __init__(
        self,
        world: World,
        gates: Gates,
        owned: Sequence[Kind],
        certificate: str = "",
        meter: Meter | None = None,
        serving: tuple[str, int] | None = None,
    ) -> None:
        self.world, self.gates, self.owned, self.certificate, self.meter = world, gates, owned, certificate, meter
        self.serving = serving


Make = Callable[[Setting], list[Decider]]

SETS: Final[dict[str, Make]] = {
    "claims": lambda s: [ClaimsController(s.world, s.gates, s.meter)],
    "workloads": lambda s: [
        ReplicaSets(s.world),
        ReplicationControllers(s.world),
        Deployments(s.world),
        StatefulSets(s.world),
        DaemonSets(s.world),
        Jobs(s.world),
        CronJobs(s.world),
        Budgets(s.world),
    ],
    "services": lambda s: [Endpoints(s.world), *([ApiService(s.world, *s.serving)] if s.serving is not None else ())],
    "volumes": lambda s: [Volumes(s.world)],
    "namespaces": lambda s: [Namespaces(s.world, s.owned, s.certificate)],
    "garbage": lambda s: [Garbage(s.world, s.owned), PodGarbage(s.world)],
}
_FIXED: Final[dict[str, tuple[Kind, ...]]] = {
    "claims": tuple(ClaimsController.kinds),
    "workloads": (
        *ReplicaSets.kinds,
        *ReplicationControllers.kinds,
        *Deployments.kinds,
        *StatefulSets.kinds,
        *DaemonSets.kinds,
        *Jobs.kinds,
        *CronJobs.kinds,
        *Budgets.kinds,
    ),
    "services": tuple(Endpoints.kinds),
    "volumes": tuple(Volumes.kinds),
    "namespaces": (NAMESPACES,),
    "garbage": tuple(PodGarbage.kinds),
}


def kinds(chosen: Sequence[str], owned: Sequence[Kind]) -> tuple[Kind, ...]:
    """What must be mirrored for the chosen controllers."""
    found = [kind for name in chosen for kind in _FIXED[name]]
    if {"namespaces", "garbage"} & set(chosen):
        found.extend(owned)
    return tuple(dict.fromkeys(found))


def deciders(chosen: Sequence[str], setting: Setting) -> list[Decider]:
    return [decider for name in chosen for decider in SETS[name](setting)]
