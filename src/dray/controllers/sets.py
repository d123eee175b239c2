"""The controllers by the names that users choose them with, and the kinds that each choice needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from dray.api.gates import Gates
from dray.api.kinds import NAMESPACES, Kind
from dray.cluster.metrics import Declared, Meter
from dray.cluster.port import Decider
from dray.cluster.world import World
from dray.controllers import claims, eviction, spans
from dray.controllers.aggregation import RoleAggregation
from dray.controllers.budgets import Budgets
from dray.controllers.certificates import CertificateSigning, Sign
from dray.controllers.claims import ClaimsController
from dray.controllers.cronjobs import CronJobs
from dray.controllers.daemonsets import DaemonSets
from dray.controllers.deployments import Deployments
from dray.controllers.endpoints import ApiService, Endpoints
from dray.controllers.eviction import RATE, TaintEviction
from dray.controllers.exporter import ExporterOperator
from dray.controllers.exporter import Settings as ExporterSettings
from dray.controllers.garbage import Garbage
from dray.controllers.jobs import Jobs
from dray.controllers.namespaces import Namespaces
from dray.controllers.nodeeviction import NodeEviction
from dray.controllers.nodelifecycle import NodeLifecycle
from dray.controllers.podgarbage import PodGarbage
from dray.controllers.quotas import Quotas
from dray.controllers.replicasets import ReplicaSets, ReplicationControllers
from dray.controllers.spans import Spans
from dray.controllers.statefulsets import StatefulSets
from dray.controllers.volumes import Volumes

# What all of them count: who makes a meter for them declares this.
METRICS: Final[Declared] = {**claims.METRICS, **eviction.METRICS, **spans.METRICS}


class Exporting(msgspec.Struct, frozen=True):
    """How the placement exporter is deployed, and whether NUMA scheduling is on."""

    settings: ExporterSettings = ExporterSettings()
    enabled: Callable[[], bool | None] = bool


@dataclass(frozen=True)
class Setting:
    """What controllers are made from. ``owned`` are the kinds that garbage and namespaces look after; ``embedded``: the API
    server is Dray's own; ``serving`` is where it is; ``sign`` makes the certificates of clients, where there is an authority
    for them."""

    world: World
    gates: Gates
    owned: Sequence[Kind]
    certificate: str = ""
    meter: Meter | None = None
    exporter: Exporting = field(default_factory=Exporting)
    evictions_per_second: float = RATE
    embedded: bool = True
    sign: Sign | None = None
    serving: tuple[str, int] | None = None


Make = Callable[[Setting], list[Decider]]

SETS: Final[dict[str, Make]] = {
    "claims": lambda s: [ClaimsController(s.world, s.gates, s.meter)],
    "eviction": lambda s: [TaintEviction(s.world, s.gates, s.meter, rate=s.evictions_per_second)],
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
    "access": lambda s: [RoleAggregation(s.world), *([CertificateSigning(s.world, s.sign)] if s.sign is not None else [])],
    # Everything is counted where everything is mirrored anyway: by who stands in for kube-controller-manager.
    "quota": lambda s: [Quotas(s.world, s.gates, s.owned if set(s.owned) <= set(s.world.kinds) else (), embedded=s.embedded)],
    "nodes": lambda s: [NodeLifecycle(s.world), NodeEviction(s.world)],
    "zones": lambda s: [Spans(s.world, s.meter)],
}
# Only for those who ask for it by name: a cluster in one process has no image to run.
OPTIONAL: Final[dict[str, Make]] = {
    "exporter": lambda s: [ExporterOperator(s.world, s.exporter.settings, s.exporter.enabled)],
}
_FIXED: Final[dict[str, tuple[Kind, ...]]] = {
    "claims": tuple(ClaimsController.kinds),
    "eviction": tuple(TaintEviction.kinds),
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
    "access": (*RoleAggregation.kinds, *CertificateSigning.kinds),
    "exporter": tuple(ExporterOperator.kinds),
    "quota": tuple(Quotas.kinds),
    "nodes": (*NodeLifecycle.kinds, *NodeEviction.kinds),
    "zones": tuple(Spans.kinds),
}


def kinds(chosen: Sequence[str], owned: Sequence[Kind]) -> tuple[Kind, ...]:
    """What must be mirrored for the chosen controllers."""
    found = [kind for name in chosen for kind in _FIXED[name]]
    if {"namespaces", "garbage"} & set(chosen):
        found.extend(owned)
    return tuple(dict.fromkeys(found))


def deciders(chosen: Sequence[str], setting: Setting) -> list[Decider]:
    return [decider for name in chosen for decider in (SETS | OPTIONAL)[name](setting)]
