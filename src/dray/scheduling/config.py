"""What an administrator decides about scheduling: profiles, plugins, weights and arguments.

Read from a ``KubeSchedulerConfiguration`` (kubescheduler.config.k8s.io/v1), strictly: a field, plugin or argument that is
not known is an error that names it.
"""

from __future__ import annotations

from typing import Final

import msgspec

from dray.api.core import NodeAffinity, TopologySpreadConstraint
from dray.devices.search import BUDGET
from dray.scheduling.arguments import FitArgs, ResourceWeight, ZoneArgs

# Plugins in upstream's order, with the weight of those that score (0: it does not score). NUMA is Dray's own, and has nothing
# to say where no node publishes its zones.
DEFAULT_PLUGINS: Final[tuple[tuple[str, int], ...]] = (
    ("SchedulingGates", 0),
    ("PrioritySort", 0),
    ("NodeName", 0),
    ("NodeUnschedulable", 0),
    ("NodeDeclaredFeatures", 0),
    ("TaintToleration", 3),
    ("NodeAffinity", 2),
    ("NodePorts", 0),
    ("NodeResourcesFit", 1),
    ("VolumeRestrictions", 0),
    ("NodeVolumeLimits", 0),
    ("VolumeBinding", 0),
    ("VolumeZone", 0),
    ("PodTopologySpread", 2),
    ("InterPodAffinity", 2),
    ("DynamicResources", 2),
    ("NUMA", 2),
    ("DefaultPreemption", 0),
    ("NodeResourcesBalancedAllocation", 1),
    ("ImageLocality", 1),
    ("DefaultBinder", 0),
)
FILTERS: Final = (
    "NodeName",
    "NodeUnschedulable",
    "NodeDeclaredFeatures",
    "TaintToleration",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "VolumeRestrictions",
    "NodeVolumeLimits",
    "VolumeBinding",
    "VolumeZone",
    "PodTopologySpread",
    "InterPodAffinity",
    "DynamicResources",
    "NUMA",
)
SCORES: Final = (
    "TaintToleration",
    "NodeAffinity",
    "NodeResourcesFit",
    "PodTopologySpread",
    "InterPodAffinity",
    "DynamicResources",
    "NUMA",
    "NodeResourcesBalancedAllocation",
    "ImageLocality",
)


# How pods of one service or workload spread that say nothing about it themselves.
SYSTEM_SPREAD: Final = (
    TopologySpreadConstraint(max_skew=3, topology_key="kubernetes.io/hostname", when_unsatisfiable="ScheduleAnyway"),
    TopologySpreadConstraint(max_skew=5, topology_key="topology.kubernetes.io/zone", when_unsatisfiable="ScheduleAnyway"),
)


DEFAULT_FILTER_TIMEOUT: Final = 10.0
# The most steps of one search for devices on one node, however long it may take: work is always bounded.
LONGEST_SEARCH: Final = 1_000_000


class Profile(msgspec.Struct, frozen=True, eq=False):
    """How pods of one scheduler name are placed."""

    scheduler_name: str = "default-scheduler"
    filters: tuple[str, ...] = FILTERS
    scores: tuple[tuple[str, int], ...] = tuple((name, weight) for name, weight in DEFAULT_PLUGINS if name in SCORES)
    preempts: bool = True
    percentage_of_nodes_to_score: int = 0
    fit: FitArgs = FitArgs()
    balanced: tuple[ResourceWeight, ...] = (ResourceWeight("cpu"), ResourceWeight("memory"))
    added_affinity: NodeAffinity = msgspec.field(default_factory=NodeAffinity)
    hard_pod_affinity_weight: int = 1
    ignore_preferred_terms_of_existing_pods: bool = False
    # Without any of the pod's own; None: the system's, which rank nodes that lack a topology key too.
    default_spread: tuple[TopologySpreadConstraint, ...] | None = None
    volume_timeout: float = 600.0
    binding_timeout: float = 600.0
    # Seconds, as upstream has it; 0 is without limit. What it allows is counted in steps, see ``Config.search_budget``.
    filter_timeout: float = DEFAULT_FILTER_TIMEOUT
    min_candidate_nodes_percentage: int = 10
    min_candidate_nodes_absolute: int = 100
    device_scoring: str = "Packing"
    zones: ZoneArgs = ZoneArgs()

    def weight_of(self, plugin: str) -> int:
        return next((weight for name, weight in self.scores if name == plugin), 0)


class LeaderElection(msgspec.Struct, frozen=True):
    """What the configuration says about electing a leader; times in seconds."""

    name: str = "dray-scheduler"
    namespace: str = "kube-system"
    lease_duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0


class QueueSettings(msgspec.Struct, frozen=True):
    """What a session of queues does, in this order; how long a gang may lack pods that it needs, in seconds; whether pods that
    find another place count as taken when a job reclaims."""

    actions: tuple[str, ...] = ("allocate", "consolidation", "reclaim", "preempt", "stalegangeviction")
    staleness_grace: float = 60.0
    consolidating_reclaim: bool = True


class Config(msgspec.Struct, frozen=True):
    profiles: tuple[Profile, ...] = (Profile(),)
    initial_backoff: float = 1.0
    max_backoff: float = 10.0
    # Dray's own: pods whose writes may be under way at once, how often waiting pods are checked for missed wake-ups,
    # how long a device rests after binding to it failed.
    in_flight: int = 256
    sweep_interval: float = 300.0
    device_rest: float = 60.0

    queues: QueueSettings = QueueSettings()
    # None: whoever starts the scheduler decides.
    leader_election: LeaderElection | None = None
    kubeconfig: str = ""
    # Settings that are known but change nothing here, each with why; to be told when the scheduler starts.
    notices: tuple[str, ...] = ()

    @property
    def search_budget(self) -> int:
        """How many steps a search for devices on one node may take: ``filterTimeout`` in steps, so that the same input
        gives the same answer on every machine. The default of ten seconds is the allocator's own budget; a tenth of the
        time is a tenth of the steps. One allocator serves all profiles, so the longest counts."""
        return max(_steps(profile.filter_timeout) for profile in self.profiles)

    @property
    def zones(self) -> ZoneArgs | None:
        """How zones are counted, None where no profile looks at them. There is one account for all profiles, so the first of
        those that look says it."""
        return next((p.zones for p in self.profiles if "NUMA" in p.filters or p.weight_of("NUMA")), None)

    @property
    def by_name(self) -> dict[str, Profile]:
        return {profile.scheduler_name: profile for profile in self.profiles}


def _steps(seconds: float) -> int:
    if not seconds:
        return LONGEST_SEARCH
    return min(max(round(seconds * BUDGET / DEFAULT_FILTER_TIMEOUT), 1), LONGEST_SEARCH)


# The embedded cluster serves pods that name no scheduler, pods that name Dray's, and pods of manifests that were written for
# KAI-Scheduler, which all name it.
EMBEDDED: Final = Config((Profile("default-scheduler"), Profile("dray"), Profile("kai-scheduler")))
