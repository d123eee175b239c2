"""A cluster as it was read, on virtual time, to see what would come of a change: the real scheduler on the embedded API server.

What a snapshot has is put there as it is. The scheduler, the controllers of claims, of taints and of volumes run; nodes are as
quick as can be: a pod that is bound runs, one that must leave is gone. Workloads are left to their controllers only where the
change is theirs (``touched``); every other pod that is evicted and has a controller is made again from itself, whatever kind its
controller is of.

Always true: the same snapshot and changes give the same end; the snapshot is not changed.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from dray.api import disruption
from dray.api.core import Pod
from dray.api.gates import Gates
from dray.api.kinds import (
    CRON_JOBS,
    DAEMON_SETS,
    EVENTS,
    NAMESPACES,
    PERSISTENT_VOLUME_CLAIMS,
    POD_DISRUPTION_BUDGETS,
    PODS,
    REPLICA_SETS,
    Kind,
)
from dray.api.resource import DeviceRequestAllocationResult, ResourceClaim
from dray.api.times import format_time
from dray.cluster.port import Decider, Event, Outcome, Write
from dray.cluster.world import World
from dray.controllers.budgets import Budgets
from dray.controllers.claims import ClaimsController
from dray.controllers.creating import generated
from dray.controllers.daemonsets import DaemonSets
from dray.controllers.deployments import Deployments
from dray.controllers.eviction import TaintEviction
from dray.controllers.jobs import Jobs
from dray.controllers.keyed import Keyed
from dray.controllers.nodeeviction import NodeEviction
from dray.controllers.replicasets import ReplicaSets, ReplicationControllers
from dray.controllers.statefulsets import StatefulSets
from dray.controllers.volumes import Volumes
from dray.explain.claimed import claims_in
from dray.explain.snapshot import KINDS, Snapshot, key_of
from dray.runtime.faults import Faults
from dray.runtime.hand import Hand
from dray.runtime.inprocess import InProcess
from dray.runtime.virtual import Clock, Virtual
from dray.scheduling.config import Config, Profile
from dray.scheduling.scheduler import Scheduler

Plain = dict[str, Any]

# Nothing more happens when nothing was written for so long: longer than pods tolerate an evicting taint by default.
QUIET_SECONDS: Final = 310.0
MOST_SECONDS: Final = 7200.0
# Not one that a simulated cluster has: no uid that is given here may be one that was read.
SEED: Final = 0x706C616E
EVICTIONS_PER_SECOND: Final = 10_000.0
_AT_ONCE: Final = Faults(event_delay=(0.0, 0.0), write_delay=(0.0, 0.0))
# Pods last: what they need is known before them.
_PUT: Final = (*(kind for kind in KINDS if kind not in (EVENTS, CRON_JOBS, PODS)), PODS)
# Whose controllers have something to do when an object of a kind comes or changes.
CONTROLLERS: Final[dict[str, tuple[type[Keyed], ...]]] = {
    "Deployment": (Deployments, ReplicaSets),
    "ReplicaSet": (ReplicaSets,),
    "ReplicationController": (ReplicationControllers,),
    "StatefulSet": (StatefulSets,),
    "DaemonSet": (DaemonSets,),
    "Job": (Jobs,),
    "Node": (DaemonSets,),
}
# Pods that are of a node: what makes them again makes them on that node only.
_OF_NODES: Final = ("DaemonSet", "Node")
_OF_THE_LAST_PLACE: Final = "kai.scheduler/numa-"


class Evicted(msgspec.Struct, frozen=True):
    """A pod that had to leave: as it was, who made it leave, for which pod, if for one, and why, as it was told."""

    pod: Pod
    body: Plain
    by: str
    about: str
    why: str = ""


class Rehearsal:
    """``settle`` lets everything happen that would; ``hand`` is what people do in between."""

    def __init__(
        self,
        found: Snapshot,
        *,
        now: float,
        config: Config | None,
        gates: Gates | None,
        schedulers: Iterable[str],
        comes: Collection[str],
    ) -> None:
        """``schedulers``: names that pods will have which come later; ``comes``: kinds of which the change has objects, so that
        their controllers run."""
        self._comes = frozenset(comes)
        self._workloads = {sort for kind in comes for sort in CONTROLLERS.get(kind, ())}
        self._found, self.gates = found, gates or Gates.dray()
        self._config = for_everybody(config, found, schedulers)
        self.clock = Clock(now)
        self.core = InProcess(self.clock, seed=SEED, gates=self.gates)
        self.hand = Hand(self.core)
        self.touched: set[tuple[str, str]] = set()
        """Kind and ``namespace/name`` of the workloads that the change is about."""
        self.new_nodes = False
        self.evicted: dict[str, Evicted] = {}
        """By uid, in the order in which they left."""
        self.again: dict[str, str] = {}
        """The uid of a pod that was evicted, and the name of the one that was made in its place."""
        self._put()
        self.virtual = Virtual(self.core, self.clock, faults=_AT_ONCE)
        self._host = self.virtual.start("cluster", _PUT, self._deciders)

    @property
    def unknown(self) -> Mapping[Kind, str]:
        """Kinds of which there may be objects that were not read, and why."""
        return self._found.unknown

    @property
    def world(self) -> World:
        return self._host.world

    def settle(self) -> bool:
        """Until nothing happens any more; False where it does not come to rest."""
        self.virtual.pump()
        quiet = self.virtual.run_until_quiet(QUIET_SECONDS, MOST_SECONDS)
        # No pod backs off any more after it was tried last, so what comes now finds all of them ready.
        self.virtual.run(self.virtual.elapsed + self._config.max_backoff + 1.0)
        return quiet

    # ---------------------------------------------------------------------------------------------------- how it begins

    def _put(self) -> None:
        objects, core = self._found.objects, self.core
        namespaces = {key.partition("/")[0] for kind, key in objects if kind.namespaced}
        for name in sorted(namespaces - {key for kind, key in objects if kind == NAMESPACES}):
            if core.get(NAMESPACES, name) is None:
                core.plant({"metadata": {"name": name}}, NAMESPACES)
        for (kind, _), body in sorted(objects.items(), key=lambda item: (item[0][0].resource, item[0][1])):
            if kind in _PUT and core.serves(kind) and self._found.world.get(kind, key_of(body)) is not None:
                core.transplant(_as_it_is(body) if kind == DAEMON_SETS else body, kind)

    def _deciders(self, world: World) -> Sequence[Decider]:
        shares = random.Random("shares")
        self.scheduler = Scheduler(
            world, self._config, self.gates, None, lambda: str(uuid.UUID(int=shares.getrandbits(128), version=4))
        )
        made: list[Decider] = [
            ClaimsController(world, self.gates),
            _Evicting(self.scheduler, self.leaves),
            _Evicting(TaintEviction(world, self.gates, rate=EVICTIONS_PER_SECOND), self.leaves),
            _Evicting(NodeEviction(world), self.leaves),
            *([Volumes(world)] if self._has(PERSISTENT_VOLUME_CLAIMS) else []),
            _Quick(world, self.core, self._gone, lambda: self.virtual.pump()),
        ]
        if self._has(POD_DISRUPTION_BUDGETS) and REPLICA_SETS not in self._found.unknown:
            made.append(Budgets(world))
        for sort in sorted(self._workloads, key=lambda sort: sort.name):
            controller: Keyed = sort(world)
            controller.chosen = self._chosen(world, controller.kinds[0])
            made.append(controller)
        return made

    def _has(self, kind: Kind) -> bool:
        return bool(self._found.world.all(kind)) or kind.kind in self._comes

    def _chosen(self, world: World, kind: Kind) -> Callable[[str], bool]:
        """Whether the change is about this workload, or about its owner."""

        def chosen(key: str) -> bool:
            if (kind.kind, key) in self.touched or (self.new_nodes and kind == DAEMON_SETS):
                return True
            found = world.get(kind, key)
            owner = found.metadata.controller if found is not None else None
            return owner is not None and (owner.kind, f"{key.partition('/')[0]}/{owner.name}") in self.touched

        return chosen

    # -------------------------------------------------------------------------------------------------- what happens

    def leaves(self, key: str, by: str, about: str = "", why: str = "") -> None:
        """The pod must leave: who says so, for which pod, and why."""
        pod: Pod | None = self.world.get(PODS, key)
        body = self.core.get(PODS, key)
        if pod is not None and body is not None and pod.uid not in self.evicted:
            self.evicted[pod.uid] = Evicted(pod, body, by, about, why)

    def _gone(self, pod: Pod) -> None:
        """A pod is gone: what its controller would do, where nobody does it here."""
        owner, left = pod.metadata.controller, self.evicted.get(pod.uid)
        if left is None or owner is None or owner.kind in _OF_NODES or pod.terminal:
            return
        if any((sort, key) in self.touched for sort, key in self._owners(pod)):
            return
        made = _made_again(left.body, pod, self.clock.now)
        self.core.plant(made, PODS)
        self.again[pod.uid] = f"{pod.metadata.namespace}/{made['metadata']['name']}"

    def _owners(self, pod: Pod) -> Iterable[tuple[str, str]]:
        owner, namespace = pod.metadata.controller, pod.metadata.namespace
        while owner is not None:
            yield owner.kind, f"{namespace}/{owner.name}"
            found = self.world.get(REPLICA_SETS, f"{namespace}/{owner.name}") if owner.kind == "ReplicaSet" else None
            owner = found.metadata.controller if found is not None else None

    # ------------------------------------------------------------------------------------------------------- looking

    def was_there(self, pod: Pod) -> bool:
        """Whether the pod is one that was read."""
        known: Pod | None = self._found.world.get(PODS, pod.key)
        return known is not None and known.uid == pod.uid

    def node_of(self, pod: Pod) -> str:
        """Where the pod is, or will be when its devices and volumes are ready."""
        binding = self.scheduler.binder.bindings.get(pod.uid)
        return pod.spec.node_name or (binding.node if binding is not None else "")

    def devices_of(self, pod: Pod) -> list[tuple[ResourceClaim, DeviceRequestAllocationResult]]:
        held = [(claim, claim.status.allocation) for claim in claims_in(self.world, pod)]
        return [(claim, result) for claim, found in held if found is not None for result in found.devices.results]


class _Evicting:
    """A decider, with word of every pod that it makes leave."""

    def __init__(self, decider: Decider, tell: Callable[[str, str, str, str], None]) -> None:
        self._decider, self._tell = decider, tell
        self.name, self.kinds = decider.name, decider.kinds
        self.observe, self.wake = decider.observe, decider.wake

    def act(self, now: float) -> list[Write]:
        writes = self._decider.act(now)
        why: dict[str, str] = {}
        for write in writes:
            if write.kind == PODS and write.subresource == "status":
                why[write.key] = _disrupted(write)
            elif write.kind == PODS and write.verb == "delete":
                about = write.about if write.about != write.key else ""
                self._tell(write.key, self.name, about, why.get(write.key, ""))
        return writes


def _disrupted(write: Write) -> str:
    """What a pod is told when it has to go."""
    conditions = ((write.body or {}).get("status") or {}).get("conditions") or ()
    return next((str(each["message"]) for each in conditions if each.get("type") == disruption.TARGET), "")


class _Quick:
    """Nodes that lose no time: what is bound runs and is ready, what must leave is gone."""

    name = "nodes"
    kinds: Sequence[Kind] = (PODS,)

    def __init__(self, world: World, core: InProcess, gone: Callable[[Pod], None], pump: Callable[[], None]) -> None:
        self._world, self._core, self._tell, self._pump = world, core, gone, pump
        self._due: dict[str, None] = {}
        self._gone: list[Pod] = []

    def observe(self, event: Event, now: float) -> None:
        if isinstance(event, Outcome):
            return
        old, new = event.old, event.new
        if isinstance(new, Pod):
            bound = isinstance(old, Pod) and not old.spec.node_name and bool(new.spec.node_name)
            if bound or new.metadata.deletion_timestamp is not None:
                self._due[new.key] = None
        elif isinstance(old, Pod):
            self._gone.append(old)

    def act(self, now: float) -> list[Write]:
        due, self._due = self._due, {}
        gone, self._gone = self._gone, []
        for pod in gone:
            self._tell(pod)
        for key in due:
            self._serve(key, now)
        if due or gone:
            self._pump()
        return []

    def _serve(self, key: str, now: float) -> None:
        pod: Pod | None = self._world.get(PODS, key)
        body = self._core.get(PODS, key)
        if pod is None or body is None or body["metadata"]["uid"] != pod.uid:
            return
        if pod.metadata.deletion_timestamp is not None:
            self._core.uproot(PODS, key)
        elif pod.spec.node_name and not pod.terminal:
            self._core.plant(_running(body, now), PODS)

    def wake(self) -> float | None:
        return 0.0 if self._due or self._gone else None


def _as_it_is(body: Plain) -> Plain:
    """A DaemonSet whose pods are as they should be: new nodes get one, and no pod is replaced."""
    return {**body, "spec": {**(body.get("spec") or {}), "updateStrategy": {"type": "OnDelete"}}}


def _running(body: Plain, now: float) -> Plain:
    status, stamp = body.get("status") or {}, format_time(now)
    known = {condition["type"]: condition for condition in status.get("conditions") or ()}
    for type in ("Initialized", "Ready", "ContainersReady"):
        known[type] = {"type": type, "status": "True", "lastTransitionTime": stamp}
    return {**body, "status": {**status, "phase": "Running", "startTime": stamp, "conditions": list(known.values())}}


def _made_again(body: Plain, pod: Pod, now: float) -> Plain:
    """As its controller would make it: without node, status and what was known of its place."""
    old = body["metadata"]
    base = old.get("generateName")
    owner = pod.metadata.controller
    named = base is None or (owner is not None and owner.kind == "StatefulSet")
    annotations = {key: value for key, value in (old.get("annotations") or {}).items() if not key.startswith(_OF_THE_LAST_PLACE)}
    metadata = {
        "name": old["name"] if named else generated(str(base).rstrip("-"), pod.uid),
        "namespace": old["namespace"],
        "labels": old.get("labels") or {},
        "annotations": annotations,
        "ownerReferences": old["ownerReferences"],
        "creationTimestamp": format_time(now),
        **({"generateName": base} if base is not None else {}),
    }
    spec = {key: value for key, value in body["spec"].items() if key != "nodeName"}
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}


def for_everybody(config: Config | None, found: Snapshot, also: Iterable[str] = ()) -> Config:
    """The configuration with a profile for each scheduler that a pod names: what others do is taken to be what Dray would."""
    config = config or Config()
    named = {pod.spec.scheduler_name or "default-scheduler" for pod in found.world.all(PODS).values()}
    missing = sorted((named | set(also) | {"default-scheduler", "dray"}) - config.by_name.keys())
    return msgspec.structs.replace(config, profiles=(*config.profiles, *(Profile(scheduler_name=name) for name in missing)))
