"""``dray queues settle``: a world of queues, pod groups and nodes, run through the scheduler until nothing changes any more.

The scheduler is the real one; what it writes is applied at once. A round is everything that it does at one moment; between rounds
evicted pods are gone and come back as pending ones, and placed pods run, in the zones where they were thought to; their claims
are given back. Amounts: milli-cores, bytes, whole GPUs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final

import msgspec

from dray.api.kinds import (
    NODE_RESOURCE_TOPOLOGIES,
    NODES,
    POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
    QUEUES,
    RESOURCE_CLAIMS,
    TOPOLOGIES,
    Kind,
)
from dray.api.queues import (
    GPU_RESOURCE,
    GROUP,
    LAST_START_ANNOTATION,
    MEMORY_UNIT,
    POD_GROUP_ANNOTATION,
    STALE_ANNOTATION,
    SUBGROUP_LABEL,
    TASK_PRIORITY_LABEL,
)
from dray.api.times import format_time
from dray.apiserver.patch import merge_patch
from dray.cluster.port import Change, NotFound, Outcome, Write
from dray.cluster.world import World
from dray.numa.placement import INIT_MEMORY_PREDICTED, OBSERVED, PREDICTED
from dray.queues.tree import QueueError
from dray.scheduling.config import FILTERS, Config, Profile, QueueSettings
from dray.scheduling.kinds import KINDS
from dray.scheduling.scheduler import Scheduler
from dray.scheduling.workloads.room import Plan
from dray.simulate.settle_devices import DevicesLine, claims, published, without

START: Final = 1_750_000_000.0
ROUNDS: Final = 12
NAMESPACE: Final = "default"
RESOURCES: Final = {"cpu_milli": "cpu", "memory_bytes": "memory", "gpu": GPU_RESOURCE}
Json = dict[str, Any]
Name = Annotated[str, msgspec.Meta(min_length=1)]
# As large as such a number of the API may be.
Whole = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
# No quantity of the API is larger.
Much = Annotated[float, msgspec.Meta(ge=0, le=2**63 - 1)]
# Thirty years.
Seconds = Annotated[float, msgspec.Meta(ge=-1e9, le=1e9)]

_ON_NODE: Final = frozenset({"Running", "Bound", "Binding", "Allocated", "Releasing", "StuckInReleasing"})
# How long ago a pod was to be gone that will not go.
_STUCK_FOR: Final = 3600.0
_LEAVING: Final = frozenset({"Releasing", "StuckInReleasing"})
# What says where a pod is, of which nothing holds when it comes again.
_PLACED: Final = frozenset({OBSERVED, PREDICTED, INIT_MEMORY_PREDICTED})


class Amounts(msgspec.Struct, forbid_unknown_fields=False):
    quota: float = 0.0
    limit: float = -1.0
    over_quota_weight: float = 1.0


class QueueLine(msgspec.Struct):
    name: Name
    parent: str | None = None
    priority: Whole = 100
    creation_rank: Whole = 0
    gpu: Amounts = msgspec.field(default_factory=Amounts)
    cpu_milli: Amounts = msgspec.field(default_factory=lambda: Amounts(-1.0))
    memory_bytes: Amounts = msgspec.field(default_factory=lambda: Amounts(-1.0))
    reclaim_min_runtime_s: Seconds | None = None
    preempt_min_runtime_s: Seconds | None = None


class NearLine(msgspec.Struct):
    match_labels: dict[str, str]
    topology_key: str


class PodLine(msgspec.Struct):
    name: Name
    requests: dict[str, Much] = {}
    state: str = "Pending"
    node: str | None = None
    subgroup: str | None = None
    task_priority_label: Whole | str | None = None
    node_affinity_names: list[str] = []
    qos_class: str = ""
    numa_placement_observed: list[Json] = []
    labels: dict[str, str] = {}
    resource_claims: list[str] = []
    persistent_volume_claims: list[str] = []
    pod_affinity: NearLine | None = None
    pod_anti_affinity: NearLine | None = None


class LevelsLine(msgspec.Struct):
    """Of a pod group: in one domain of which levels of a topology its pods are to be."""

    topology: str = ""
    required_level: str = ""
    preferred_level: str = ""


class TopologyLine(msgspec.Struct):
    name: Name
    levels: list[str]


class SubgroupLine(msgspec.Struct):
    name: Name
    parent: str | None = None
    kind: str = "pods"
    min_member: Whole | None = None
    min_sub_group: Whole | None = None
    topology_constraint: LevelsLine | None = None


class GroupLine(msgspec.Struct):
    name: Name
    queue: str
    pods: list[PodLine]
    priority: Whole = 50
    preemptible: bool | None = None
    creation_rank: Whole = 0
    age_s: Seconds | None = None
    min_member: Whole = 1
    min_sub_group: Whole | None = None
    subgroups: list[SubgroupLine] = []
    last_start_age_s: Seconds | None = None
    stale_for_s: Seconds | None = None
    staleness_grace_s: Seconds | None = None
    preemption_delay_s: Seconds | None = None
    topology_constraint: LevelsLine | None = None


class ZoneLine(msgspec.Struct):
    id: str
    allocatable: dict[str, Much] = {}
    available: dict[str, Much] = {}


class ZonesLine(msgspec.Struct):
    zones: list[ZoneLine]
    policy: str = "none"
    scope: str = "container"


class NodeLine(msgspec.Struct):
    name: Name
    allocatable: dict[str, Much] = {}
    labels: dict[str, str] = {}
    numa: ZonesLine | None = None


class SessionLine(msgspec.Struct):
    default_staleness_grace_s: Seconds = 60
    allow_consolidating_reclaim: bool = True


class WorldLine(msgspec.Struct):
    nodes: list[NodeLine]
    queues: list[QueueLine]
    podgroups: list[GroupLine]
    session_config: SessionLine = msgspec.field(default_factory=SessionLine)
    dra: DevicesLine = msgspec.field(default_factory=DevicesLine)
    topologies: list[TopologyLine] = []


class Settled(msgspec.Struct):
    settled: bool
    rounds: int
    evictions: int
    pods: dict[str, dict[str, Any]]


class Settling:
    """A world and its scheduler; ``round`` once, or ``settle``."""

    def __init__(self, world: WorldLine, actions: tuple[str, ...] | None = None) -> None:
        _distinct(world)
        self.now = START
        self._version = 0
        self.evicted: dict[str, int] = {}
        self._objects: dict[str, Json] = {}
        self._claims: dict[str, Json] = {}
        self._lines = world
        self.world = World(KINDS)
        self.scheduler = Scheduler(
            self.world, Config(profiles=(_profile(),), in_flight=1 << 30, queues=_settings(world, actions))
        )
        self._stuck = {pod.name for group in world.podgroups for pod in group.pods if pod.state == "StuckInReleasing"}
        for kind, body in _objects(world):
            self._put(kind, body)
        for kind, body in claims(world.dra, self._users(), NAMESPACE):
            self._put(kind, body)

    def _users(self) -> dict[str, list[tuple[str, str, str]]]:
        """By claim the name, uid and node of each pod that uses it."""
        found: dict[str, list[tuple[str, str, str]]] = {}
        for name, pod in self._objects.items():
            for entry in pod["spec"].get("resourceClaims", ()):
                user = (name, pod["metadata"]["uid"], pod["spec"].get("nodeName", ""))
                found.setdefault(entry["resourceClaimName"], []).append(user)
        return found

    # ------------------------------------------------------------------------------------------------------------ rounds

    def settle(self, rounds: int = ROUNDS) -> Settled:
        for count in range(1, rounds + 1):
            if not self.round() and not self.scheduler.workloads.promises.waits:
                return self._result(True, count)
            self.between()
        return self._result(False, rounds)

    def round(self) -> int:
        """Everything that the scheduler does now; how many pods it placed and evicted."""
        done = 0
        for _ in range(1000):
            writes = self.scheduler.act(self.now)
            for write in writes:
                done += self._apply(write)
            wake = self.scheduler.wake()
            if not writes and (wake is None or wake > self.now):
                break
        return done

    def between(self) -> None:
        """Who was evicted comes back as a pod that waits."""
        self.now += 1.0
        for pod in [pod for pod in self._objects.values() if pod["metadata"].get("deletionTimestamp")]:
            if pod["metadata"]["name"] in self._stuck:
                continue
            name = pod["metadata"]["name"]
            self._observe(self.world.remove(PODS, msgspec.json.encode(pod)))
            del self._objects[name]
            for claim in list(self._claims.values()):
                if (left := without(claim, pod["metadata"]["uid"])) is not None:
                    self._put(RESOURCE_CLAIMS, left)
            again = {key: value for key, value in pod["metadata"].items() if key not in ("deletionTimestamp", "uid")}
            again["annotations"] = {key: text for key, text in again["annotations"].items() if key not in _PLACED}
            spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
            self._put(PODS, {**pod, "metadata": again, "spec": spec, "status": {"phase": "Pending"}})

    def plans(self) -> list[Plan]:
        """What the last session evicted for whom, and who of them has another place."""
        session = self.scheduler.workloads.last_session
        return list(session.plans.values()) if session is not None else []

    def pod(self, name: str) -> Json:
        return self._objects[name]

    def _result(self, settled: bool, rounds: int) -> Settled:
        pods = {}
        for group in self._lines.podgroups:
            for line in group.pods:
                node = self._objects[line.name]["spec"].get("nodeName", "")
                pods[line.name] = {
                    "state": "Running" if node else "Pending",
                    **({"node": node} if node else {}),
                    "evictedTimes": self.evicted.get(line.name, 0),
                }
        return Settled(settled, rounds, sum(self.evicted.values()), pods)

    # ----------------------------------------------------------------------------------------------------------- applying

    def _apply(self, write: Write) -> int:
        if write.kind is RESOURCE_CLAIMS and write.name in self._claims:
            self._put(RESOURCE_CLAIMS, merge_patch(self._claims[write.name], write.body))
            self.scheduler.observe(Outcome(write, self._claims[write.name]), self.now)
            return 0
        if write.kind is not PODS:
            self.scheduler.observe(Outcome(write, {}), self.now)
            return 0
        pod = self._objects.get(write.name)
        if pod is None or (write.uid and pod["metadata"]["uid"] != write.uid):
            self.scheduler.observe(Outcome(write, error=NotFound(404, "NotFound", "pod")), self.now)
            return 0
        counts = 0
        pod = {**pod, "metadata": dict(pod["metadata"]), "spec": dict(pod["spec"]), "status": dict(pod["status"])}
        if write.subresource == "binding":
            pod["spec"]["nodeName"] = write.body["target"]["name"]
            noted = write.body.get("metadata", {}).get("annotations", {})
            pod["metadata"]["annotations"] = {**pod["metadata"]["annotations"], **noted}
            pod["status"] = {"phase": "Running", "startTime": format_time(self.now)}
            counts = 1
        elif write.verb == "delete":
            pod["metadata"]["deletionTimestamp"] = format_time(self.now)
            self.evicted[write.name] = self.evicted.get(write.name, 0) + 1
            counts = 1
        elif "nominatedNodeName" in write.body.get("status", {}):
            pod["status"]["nominatedNodeName"] = write.body["status"]["nominatedNodeName"] or ""
        self._put(PODS, pod)
        self.scheduler.observe(Outcome(write, self._objects[write.name]), self.now)
        return counts

    def _put(self, kind: Kind, body: Json) -> None:
        self._version += 1
        metadata = {"uid": f"uid-{self._version:06}", **body["metadata"], "resourceVersion": str(self._version)}
        body = {**body, "metadata": metadata}
        if kind is PODS:
            self._objects[metadata["name"]] = body
        if kind is RESOURCE_CLAIMS:
            self._claims[metadata["name"]] = body
        self._observe(self.world.put(kind, msgspec.json.encode(body)))

    def _observe(self, changes: list[Change]) -> None:
        for change in changes:
            self.scheduler.observe(change, self.now)


# ----------------------------------------------------------------------------------------------------------- as objects


def _distinct(world: WorldLine) -> None:
    pods = [pod for group in world.podgroups for pod in group.pods]
    given: dict[str, Sequence[NodeLine | QueueLine | GroupLine | PodLine]] = {
        "node": world.nodes,
        "queue": world.queues,
        "podgroup": world.podgroups,
        "pod": pods,
    }
    for kind, lines in given.items():
        names = Counter(line.name for line in lines)
        if twice := next((name for name, times in names.items() if times > 1), ""):
            raise QueueError(f"{kind} {twice!r} is given twice")


def _profile() -> Profile:
    return Profile(filters=FILTERS, scores=(("NodePacking", 1), ("DynamicResources", 1)), percentage_of_nodes_to_score=100)


def _settings(world: WorldLine, actions: tuple[str, ...] | None) -> QueueSettings:
    given = world.session_config
    found = QueueSettings(
        staleness_grace=given.default_staleness_grace_s, consolidating_reclaim=given.allow_consolidating_reclaim
    )
    return msgspec.structs.replace(found, actions=actions) if actions is not None else found


def _objects(world: WorldLine) -> Iterator[tuple[Kind, Json]]:
    yield from published(world.dra)
    for topology in world.topologies:
        levels = [{"nodeLabel": level} for level in topology.levels]
        yield TOPOLOGIES, {"metadata": {"name": topology.name}, "spec": {"levels": levels}}
    for node in world.nodes:
        yield NODES, _node(node, world.dra.serves(node.name))
        if node.numa is not None:
            yield NODE_RESOURCE_TOPOLOGIES, _topology(node.name, node.numa)
    for queue in world.queues:
        yield QUEUES, _queue(queue)
    for priority in sorted({group.priority for group in world.podgroups}):
        yield PRIORITY_CLASSES, {"metadata": {"name": _class_of(priority)}, "value": priority}
    for group in world.podgroups:
        yield POD_GROUPS, _group(group)
        for index, pod in enumerate(group.pods):
            yield PODS, _pod(pod, group, index)


def _node(node: NodeLine, devices: bool) -> Json:
    """``devices``: its GPUs are published as devices, so they are no resource of the node."""
    amounts = {name: value for name, value in node.allocatable.items() if name != "gpu" or not devices}
    allocatable = {RESOURCES.get(name, name): _quantity(name, value) for name, value in amounts.items()}
    labels = {"kubernetes.io/hostname": node.name, **node.labels}
    return {
        "metadata": {"name": node.name, "labels": labels},
        "status": {"allocatable": {"pods": "110", **allocatable}, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def _topology(node: str, numa: ZonesLine) -> Json:
    attributes = {"topologyManagerPolicy": numa.policy, "topologyManagerScope": numa.scope}
    return {
        "metadata": {"name": node},
        "attributes": [{"name": name, "value": value} for name, value in attributes.items()],
        "zones": [{"name": zone.id, "type": "Node", "resources": _by_zone(zone)} for zone in numa.zones],
    }


def _by_zone(zone: ZoneLine) -> list[Json]:
    """By resource all of it and what is free, which is all where nothing is said."""
    found = []
    for name, value in zone.allocatable.items():
        whole, free = _quantity(name, value), _quantity(name, zone.available.get(name, value))
        found.append({"name": RESOURCES.get(name, name), "capacity": whole, "allocatable": whole, "available": free})
    return found


def _quantity(name: str, value: float) -> str:
    return f"{int(value)}m" if name == "cpu_milli" else str(int(value))


def _queue(queue: QueueLine) -> Json:
    def amounts(given: Amounts, unit: float = 1.0) -> Json:
        def scaled(value: float) -> float:
            return value / unit if value >= 0 else -1.0

        weight = given.over_quota_weight
        return {"quota": scaled(given.quota), "limit": scaled(given.limit), "overQuotaWeight": max(weight, 0.0)}

    spec: Json = {
        "priority": queue.priority,
        "resources": {
            "gpu": amounts(queue.gpu),
            "cpu": amounts(queue.cpu_milli),
            "memory": amounts(queue.memory_bytes, MEMORY_UNIT),
        },
    }
    if queue.parent:
        spec["parentQueue"] = queue.parent
    for field, value in (("reclaimMinRuntime", queue.reclaim_min_runtime_s), ("preemptMinRuntime", queue.preempt_min_runtime_s)):
        if value is not None:
            spec[field] = f"{value}s"
    created = format_time(START - 10_000_000 + queue.creation_rank)
    return {"apiVersion": f"{GROUP}/v2", "metadata": {"name": queue.name, "creationTimestamp": created}, "spec": spec}


def _class_of(priority: int) -> str:
    """Priorities are those of pod groups; the pods have none of their own."""
    return f"priority-{priority}"


def _group(group: GroupLine) -> Json:
    annotations = {}
    if group.last_start_age_s is not None:
        annotations[LAST_START_ANNOTATION] = format_time(START - group.last_start_age_s)
    if group.stale_for_s is not None:
        annotations[STALE_ANNOTATION] = format_time(START - group.stale_for_s)
    preemptible = group.priority < 100 if group.preemptible is None else group.preemptible
    spec: Json = {
        "queue": group.queue,
        "minMember": group.min_member,
        "priorityClassName": _class_of(group.priority),
        "preemptibility": "preemptible" if preemptible else "non-preemptible",
    }
    if group.subgroups:
        spec["subGroups"] = [_subgroup(part) for part in group.subgroups]
    for field, value in (
        ("minSubGroup", group.min_sub_group),
        ("stalenessGracePeriod", _duration(group.staleness_grace_s)),
        ("preemptionDelay", _duration(group.preemption_delay_s)),
        ("topologyConstraint", _levels(group.topology_constraint)),
    ):
        if value is not None:
            spec[field] = value
    metadata = {"name": group.name, "namespace": NAMESPACE, "creationTimestamp": _created(group), "annotations": annotations}
    return {"apiVersion": f"{GROUP}/v2alpha2", "metadata": metadata, "spec": spec}


def _levels(line: LevelsLine | None) -> Json | None:
    if line is None:
        return None
    levels = {"requiredTopologyLevel": line.required_level, "preferredTopologyLevel": line.preferred_level}
    return {"topology": line.topology, **{field: level for field, level in levels.items() if level}}


def _created(group: GroupLine) -> str:
    """By rank, which is what decides between jobs; by age only where it counts for a delay."""
    if group.preemption_delay_s is not None and group.age_s is not None:
        return format_time(START - group.age_s)
    return format_time(START - 1_000_000 + group.creation_rank)


def _duration(value: float | None) -> str | None:
    return None if value is None else f"{value}s"


def _subgroup(part: SubgroupLine) -> Json:
    found: Json = {"name": part.name}
    for field, value in (
        ("parent", part.parent),
        ("minMember", part.min_member),
        ("minSubGroup", part.min_sub_group),
        ("topologyConstraint", _levels(part.topology_constraint)),
    ):
        if value is not None:
            found[field] = value
    return found


def _affinity(pod: PodLine) -> Json:
    required, found = "requiredDuringSchedulingIgnoredDuringExecution", dict[str, Json]()
    if pod.node_affinity_names:
        names = [{"key": "metadata.name", "operator": "In", "values": [name]} for name in pod.node_affinity_names]
        found["nodeAffinity"] = {required: {"nodeSelectorTerms": [{"matchFields": [each]} for each in names]}}
    for kind, near in (("podAffinity", pod.pod_affinity), ("podAntiAffinity", pod.pod_anti_affinity)):
        if near is not None:
            term = {"labelSelector": {"matchLabels": near.match_labels}, "topologyKey": near.topology_key}
            found[kind] = {required: [term]}
    return found


def _pod(pod: PodLine, group: GroupLine, index: int) -> Json:
    labels = dict(pod.labels)
    if pod.subgroup:
        labels[SUBGROUP_LABEL] = pod.subgroup
    if pod.task_priority_label is not None:
        labels[TASK_PRIORITY_LABEL] = str(pod.task_priority_label)
    # GPUs are counted in the line whether a claim or the pod itself asks for them.
    own = {name: value for name, value in pod.requests.items() if value and (name != "gpu" or not pod.resource_claims)}
    requests = {RESOURCES.get(name, name): _quantity(name, value) for name, value in own.items()}
    resources = {"requests": requests, **({"limits": requests} if pod.qos_class == "Guaranteed" else {})}
    spec: Json = {
        "schedulerName": "default-scheduler",
        "containers": [{"name": "main", "image": "work", "resources": resources}],
    }
    spec |= {
        "affinity": _affinity(pod),
        "resourceClaims": [{"name": name, "resourceClaimName": name} for name in pod.resource_claims],
        "volumes": [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in pod.persistent_volume_claims],
    }
    if pod.state == "Gated":
        spec["schedulingGates"] = [{"name": "held"}]
    annotations = {POD_GROUP_ANNOTATION: group.name}
    if pod.numa_placement_observed:
        annotations[OBSERVED] = msgspec.json.encode(pod.numa_placement_observed).decode()
    metadata: Json = {
        "name": pod.name,
        "namespace": NAMESPACE,
        "creationTimestamp": format_time(START - 900_000 + index),
        "labels": labels,
        "annotations": annotations,
        "ownerReferences": [{"apiVersion": "v1", "kind": "World", "name": "all", "uid": "uid", "controller": True}],
    }
    status: Json = {"phase": "Pending"}
    if pod.state in _ON_NODE and pod.node:
        spec["nodeName"] = pod.node
        status = {"phase": "Running"}
        if pod.state in _LEAVING:
            metadata["deletionTimestamp"] = format_time(START - (_STUCK_FOR if pod.state == "StuckInReleasing" else 0.0))
    elif pod.state in ("Succeeded", "Failed"):
        status = {"phase": pod.state}
    return {"metadata": metadata, "spec": spec, "status": status}
