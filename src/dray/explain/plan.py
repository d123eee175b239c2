"""What would come of a change: where pods would go, who would have to leave for them, and what is left then.

``plan(snapshot, changes)`` rehearses it with the real scheduler. First the cluster comes to rest as it is (``before``), then the
change is made, all of it at once, and it comes to rest again (``after``).

Always true: nothing is written anywhere; the same snapshot and changes give the same plan; an object that the API would refuse
is no plan but a ``PlanError`` that names it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Final, Literal

import msgspec

from dray.api.core import Pod, Taint
from dray.api.gates import Gates
from dray.api.kinds import (
    DEPLOYMENTS,
    DEVICE_TAINT_RULES,
    NODES,
    PODS,
    REPLICA_SETS,
    RESOURCE_SLICES,
    Kind,
)
from dray.api.meta import decode
from dray.api.reason import Reason
from dray.api.resource import DeviceTaint, DeviceTaintSelector, ResourceSlice
from dray.api.words import as_json, message
from dray.cluster.port import Refused
from dray.explain.answer import NEVER, PASSING
from dray.explain.emptied import never
from dray.explain.in_queue import is_read
from dray.explain.missing import nearest, unless_unread
from dray.explain.overview import waiting
from dray.explain.rehearsal import Evicted, Rehearsal
from dray.explain.snapshot import Snapshot, without_collecting
from dray.explain.standing import Standing, standing
from dray.explain.taking import POD_SPECS
from dray.explain.targets import unpublished
from dray.runtime.hand import USER, is_named, place_of
from dray.runtime.local import Unappliable, served_kind
from dray.scheduling.ask import Ask
from dray.scheduling.config import Config
from dray.scheduling.placing.refusal import Refusal
from dray.scheduling.placing.state import CycleState, NotPlaced

Plain = dict[str, Any]
VerdictName = Literal["placed", "waits", "unschedulable", "impossible"]

_TEMPLATES: Final = ("template", "jobTemplate")
_GATED: Final = "SchedulingGated"


class PlanError(Exception):
    """The change is wrong: each problem names file and object. Whoever wrote it must act."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class Changes(msgspec.Struct):
    """What would be done: objects (each with where it is from) are created, or changed to these; then the rest, in this order."""

    objects: list[tuple[str, Plain]] = []
    cordon: list[str] = []
    uncordon: list[str] = []
    taint: list[tuple[str, Taint]] = []
    taint_devices: list[tuple[DeviceTaintSelector, DeviceTaint]] = []
    drain: list[str] = []
    remove: list[str] = []


class PlannedDevice(msgspec.Struct, rename="camel", omit_defaults=True):
    claim: str
    request: str
    driver: str
    pool: str
    device: str
    share_id: str = ""


class PlannedPod(msgspec.Struct, rename="camel"):
    """One pod that is asked about. ``after``: the pods that leave so that it has room. ``instead_of``: it is the one that is
    made again for this pod, which the change displaces."""

    pod: str
    verdict: VerdictName
    node: str = ""
    devices: list[PlannedDevice] = []
    after: list[str] = []
    reasons: list[Reason] = []
    summary: str = ""
    instead_of: str = ""


class PlannedEviction(msgspec.Struct, rename="camel"):
    """A pod that has to leave; ``for_``: so that this pod has room. ``again``: what is made again in its place, if anything is;
    ``finds_place``: that gets a node, ``place_then``."""

    pod: str
    node: str
    why: str
    finds_place: bool
    place_then: str = ""
    for_: str = msgspec.field(default="", name="for")
    by: str = ""
    again: str = ""


class Plan(msgspec.Struct, rename="camel"):
    """``pods``: those of the change, and those that are made again for who has to leave; of a change that only brings something
    else (nodes, devices, quota), those that wait. ``others``: pods that waited and get a node by the way. ``protected``: pods
    that a disruption budget keeps on a node that is to be drained. ``left_out``: objects of kinds that no placement depends
    on."""

    pods: list[PlannedPod]
    evictions: list[PlannedEviction]
    others: list[PlannedPod]
    waiting: int
    protected: list[str]
    before: Standing
    after: Standing
    left_out: list[str] = []
    settled: bool = True

    @property
    def all_placed(self) -> bool:
        displaced = all(each.finds_place for each in self.evictions if not each.for_)
        return displaced and not self.protected and all(pod.verdict == "placed" for pod in self.pods)

    def to_json(self) -> Plain:
        """The fixed shape that scripts rely on; keys may be added."""
        made: Plain = msgspec.to_builtins(self)
        for name, pods in (("pods", self.pods), ("others", self.others)):
            for plain, pod in zip(made[name], pods):
                plain["reasons"] = [as_json(reason) for reason in pod.reasons]
        return made


@without_collecting()
def plan(found: Snapshot, changes: Changes, *, now: float, config: Config | None = None, gates: Gates | None = None) -> Plan:
    """Raises ``PlanError`` for a change that cannot be made."""
    rehearsal = begun(found, changes, now, config, gates)
    rehearsal.settle()
    before = standing(rehearsal.scheduler, rehearsal.clock.now)
    idle = {pod.uid for pod in waiting(rehearsal.world.all(PODS).values()) if not rehearsal.node_of(pod)}
    rehearsal.evicted.clear()
    making = Making(rehearsal)
    making.all(changes)
    settled = rehearsal.settle() and making.drain_the_rest(changes)
    told = _Told(rehearsal, idle, making)
    asked, others = told.pods()
    return Plan(
        asked,
        told.evictions(),
        others,
        len([pod for pod in waiting(rehearsal.world.all(PODS).values()) if not rehearsal.node_of(pod)]),
        making.protected,
        before,
        standing(rehearsal.scheduler, rehearsal.clock.now),
        making.left_out,
        settled,
    )


def begun(found: Snapshot, changes: Changes, now: float, config: Config | None, gates: Gates | None, *also: str) -> Rehearsal:
    """The cluster as it was read, ready for the change; ``also``: further kinds that will come."""
    names, comes = scheduler_names(changes.objects), {*also, *(str(body.get("kind")) for _, body in changes.objects)}
    return Rehearsal(found, now=now, config=config, gates=gates, schedulers=names, comes=comes)


def scheduler_names(objects: Iterable[tuple[str, Plain]]) -> set[str]:
    """The schedulers that pods of these objects name, their own or those of templates."""
    return {name for _, body in objects for name in _named(body.get("spec"))}


def _named(spec: Any) -> Iterator[str]:
    while isinstance(spec, dict):
        if isinstance(spec.get("schedulerName"), str):
            yield spec["schedulerName"]
        inner = next((spec[key] for key in _TEMPLATES if isinstance(spec.get(key), dict)), None)
        spec = inner.get("spec") if inner is not None else None


# ------------------------------------------------------------------------------------------------------------- the change


class Making:
    """Makes the change; what the API refuses is collected."""

    def __init__(self, rehearsal: Rehearsal) -> None:
        self._rehearsal, self._hand, self._core = rehearsal, rehearsal.hand, rehearsal.core
        self._problems: list[str] = []
        self.added: list[str] = []
        self.protected: list[str] = []
        self.left_out: list[str] = []
        self.brings = False
        """Whether the change is about more than pods and what makes them, so that it is about all that wait."""
        self.why: dict[str, str] = {}
        """Why a node's pods leave, by node."""

    def all(self, changes: Changes) -> None:
        self.brings = bool(changes.uncordon)
        for where, body in changes.objects:
            self._try(where, self._object, body)
        for node in changes.cordon:
            self._on_node("--cordon", self._hand.cordon, node)
        for node in changes.uncordon:
            self._on_node("--uncordon", self._hand.uncordon, node)
        for node, taint in changes.taint:
            self._on_node("--taint", self._taint, node, taint)
        for selector, device_taint in changes.taint_devices:
            self._try("--taint-device", self._rule, selector, device_taint)
        for node in changes.drain:
            self._on_node("--drain", self._drain, node)
        for node in changes.remove:
            self._on_node("--remove-node", self._remove, node)
        if self._problems:
            raise PlanError(self._problems)

    def _on_node(self, option: str, step: Callable[..., None], node: str, *given: Any) -> None:
        there = self._core.all(NODES)
        if node not in there:
            near = nearest(node, list(there))
            self._problems.append(f'{option}: node "{node}" does not exist' + (f"; did you mean {near}?" if near else ""))
            return
        self._try(f"{option} {node}", step, node, *given)

    def _try(self, where: str, step: Callable[..., None], *given: Any) -> None:
        try:
            step(*given)
        except Refused as error:
            self._problems.append(f"{where}: {error.message}")
        except Unappliable as error:
            self._problems.append(f"{where}: {error}")

    def _object(self, body: Plain) -> None:
        kind = self._kind(body)
        if kind is None:
            return
        if not is_named(kind, body):
            raise Unappliable(f"{kind.kind} without metadata.name")
        namespace, name = place_of(kind, body)
        before = self._core.get(kind, f"{namespace}/{name}" if namespace else name)
        if kind == DEPLOYMENTS and before is not None and REPLICA_SETS in self._rehearsal.unknown:
            raise Unappliable(f"{kind.kind} {name} is there, and its pods are not known: {self._rehearsal.unknown[REPLICA_SETS]}")
        name = self._hand.apply(kind, _usable_node(body) if kind == NODES else body)
        key = f"{namespace}/{name}" if namespace else name
        self.brings |= kind not in POD_SPECS
        if kind == PODS and not (before or {}).get("spec", {}).get("nodeName"):
            self.added.append(key)
        if kind == NODES:
            self._rehearsal.new_nodes = True
        self._rehearsal.touched.add((kind.kind, key))

    def _kind(self, body: Plain) -> Kind | None:
        """None, and noted, for a kind that is not known, so that no placement depends on it; one that is known in another
        version, or nearly by this name, is a mistake."""
        registry = self._core.core.operations.registry
        try:
            return served_kind(body, registry)
        except Unappliable as error:
            named, group = str(body.get("kind")), str(body.get("apiVersion")).rpartition("/")[0]
            known = {resource.kind.kind for resource in registry.resources}
            if named in known:
                raise
            of_group = sorted({resource.kind.kind for resource in registry.resources if resource.kind.group == group})
            if near := get_close_matches(named, of_group, 1, 0.8):
                raise Unappliable(f"{error}; did you mean {near[0]}?") from error
        self.left_out.append(f"{body.get('kind')} of {body.get('apiVersion')}: {(body.get('metadata') or {}).get('name') or ''}")
        return None

    def _taint(self, node: str, taint: Taint) -> None:
        found = self._core.get(NODES, node)
        kept = [each for each in ((found or {}).get("spec") or {}).get("taints") or () if not _same(each, taint)]
        made = {"key": taint.key, "value": taint.value, "effect": taint.effect}
        self.why[node] = f"it does not tolerate the taint {taint.key}{'=' + taint.value if taint.value else ''}:{taint.effect}"
        self._hand.change(NODES, {"metadata": {"name": node}, "spec": {"taints": [*kept, made]}})

    def _rule(self, selector: DeviceTaintSelector, taint: DeviceTaint) -> None:
        if wrong := unpublished(selector, (decode(ResourceSlice, each) for each in self._core.all(RESOURCE_SLICES).values())):
            raise Unappliable(wrong)
        chosen = {key: value for key, value in msgspec.to_builtins(selector).items() if value is not None}
        said = {key: value for key, value in msgspec.to_builtins(taint).items() if value}
        name = f"plan-{len(self._core.all(DEVICE_TAINT_RULES))}"
        self._hand.apply(DEVICE_TAINT_RULES, {"metadata": {"name": name}, "spec": {"deviceSelector": chosen, "taint": said}})

    def _drain(self, node: str) -> None:
        self.why[node] = f"node {node} is drained"
        self._hand.cordon(node)
        for key in self._hand.on_node(node):
            self._evict(key)

    def _evict(self, key: str) -> bool:
        self._rehearsal.leaves(key, USER)
        if self._hand.evict(*key.split("/")):
            return True
        pod: Pod | None = self._rehearsal.world.get(PODS, key)
        if pod is not None:
            self._rehearsal.evicted.pop(pod.uid, None)
        return False

    def drain_the_rest(self, changes: Changes) -> bool:
        """As ``kubectl drain`` goes on asking: a budget may allow it when others are ready elsewhere."""
        settled, again = True, True
        while again:
            left = [key for node in changes.drain for key in self._hand.on_node(node)]
            again = sum(self._evict(key) for key in left) > 0
            settled = self._rehearsal.settle() and settled
            self.protected = [key for node in changes.drain for key in self._hand.on_node(node)]
        return settled

    def _remove(self, node: str) -> None:
        self.why[node] = f"node {node} is removed"
        self._hand.delete(NODES, "", node)
        for name, slice in self._core.all(RESOURCE_SLICES).items():
            if (slice.get("spec") or {}).get("nodeName") == node:
                self._core.uproot(RESOURCE_SLICES, name)
        for key, pod in self._core.all(PODS).items():
            if (pod.get("spec") or {}).get("nodeName") == node:
                self._rehearsal.leaves(key, USER)
                self._hand.delete(PODS, *key.split("/"))


def _same(taint: Plain, other: Taint) -> bool:
    return (taint.get("key"), taint.get("effect")) == (other.key, other.effect)


def _usable_node(body: Plain) -> Plain:
    """A Node as it is when its kubelet has come up: with room for pods, and its name as a label."""
    metadata, status = body["metadata"], body.get("status") or {}
    labels = {"kubernetes.io/hostname": metadata["name"], **(metadata.get("labels") or {})}
    amounts = {"pods": "110", **(status.get("allocatable") or status.get("capacity") or {})}
    return {**body, "metadata": {**metadata, "labels": labels}, "status": {**status, "allocatable": amounts}}


# --------------------------------------------------------------------------------------------------------- what came of it


class _Told:
    def __init__(self, rehearsal: Rehearsal, idle: set[str], making: Making) -> None:
        self._rehearsal, self._idle, self._making = rehearsal, idle, making
        self._scheduler, self._world = rehearsal.scheduler, rehearsal.world
        self._ask = Ask(self._scheduler, rehearsal.clock.now)
        self._possible: dict[Hashable, bool] = {}
        self._never: dict[str, Refusal | None] = {}
        self._victims: dict[str, list[str]] = {}
        for each in rehearsal.evicted.values():
            if each.about:
                self._victims.setdefault(each.about, []).append(each.pod.key)

    def pods(self) -> tuple[list[PlannedPod], list[PlannedPod]]:
        """Those that are asked about, and others that get a node by the way."""
        pods: Mapping[str, Pod] = self._world.all(PODS)
        added = {key: "" for key in self._making.added if key in pods}
        made = {key: "" for key, pod in sorted(pods.items()) if key not in added and self._of_the_change(pod)}
        again = {new: each.pod.key for each, new in self._replacements() if not each.about and new in pods}
        asked = added | made | again
        waited = [key for key, pod in sorted(pods.items()) if pod.uid in self._idle and key not in asked]
        displaces = any(not each.about for each in self._rehearsal.evicted.values())
        if not asked and self._making.brings and not displaces:
            return [self._pod(pods[key]) for key in waited], []
        placed = [key for key in waited if self._rehearsal.node_of(pods[key])]
        return [self._pod(pods[key], old) for key, old in asked.items()], [self._pod(pods[key]) for key in placed]

    def _of_the_change(self, pod: Pod) -> bool:
        """Made by a workload of the change; of those that were there before, those that wait."""
        owner, namespace = pod.metadata.controller, pod.metadata.namespace
        if owner is None or (self._rehearsal.was_there(pod) and pod.uid not in self._idle):
            return False
        owners = [(owner.kind, f"{namespace}/{owner.name}")]
        found = self._world.get(REPLICA_SETS, owners[0][1]) if owner.kind == "ReplicaSet" else None
        if found is not None and found.metadata.controller is not None:
            owners.append((found.metadata.controller.kind, f"{namespace}/{found.metadata.controller.name}"))
        return any(each in self._rehearsal.touched for each in owners)

    def _replacements(self) -> Iterator[tuple[Evicted, str]]:
        for uid, each in self._rehearsal.evicted.items():
            if uid in self._rehearsal.again:
                yield each, self._rehearsal.again[uid]

    def _pod(self, pod: Pod, instead_of: str = "") -> PlannedPod:
        node = self._rehearsal.node_of(pod)
        victims = self._victims.get(pod.key, [])
        if node:
            devices = [
                PlannedDevice(claim.key, found.request, found.driver, found.pool, found.device, found.share_id or "")
                for claim, found in self._rehearsal.devices_of(pod)
            ]
            return PlannedPod(pod.key, "placed", node, devices, victims, instead_of=instead_of)
        pending = self._scheduler.queue.get(pod.uid)
        refusal = pending.refusal if pending is not None else None
        if pod.spec.scheduling_gates or refusal is None:
            gates = ", ".join(gate.name for gate in pod.spec.scheduling_gates)
            reasons = [Reason(_GATED, f"pod/{pod.key}", {"gates": gates} if gates else {})] if gates else []
            return PlannedPod(pod.key, "waits", reasons=reasons, instead_of=instead_of)
        counts = list(refusal.reasons)
        told = [unless_unread(reason, pod, self._rehearsal.unknown) for reason, _ in counts]
        if unread := [(reason, 0) for reason in told if reason.code == "NotRead"][:1]:
            counts = unread  # whatever else nodes lack
        reasons = [reason for reason, _ in counts]
        verdict = "unschedulable" if unread else self._verdict(pod, refusal.codes)
        nowhere = self._of_gang(pod) if verdict == "unschedulable" and not unread else None
        if nowhere is not None:
            # What the empty cluster lacks is told, and not what is in use besides.
            verdict, counts, refusal = "impossible", list(nowhere.reasons), nowhere
            reasons = [reason for reason, _ in counts]
        said = message(counts, refusal.nodes)
        return PlannedPod(pod.key, verdict, "", [], victims, reasons, said, instead_of)

    def _of_gang(self, pod: Pod) -> Refusal | None:
        """Why the pod's gang would not start with every other pod gone, where that is proven."""
        job = self._scheduler.workloads.jobs.of(pod.uid)
        if job is None or not is_read(job.pods.values(), self._rehearsal.unknown):
            return None
        if job.key not in self._never:
            rehearsal, config = self._rehearsal, self._scheduler.config
            self._never[job.key] = never(self._world, job, now=rehearsal.clock.now, config=config, gates=rehearsal.gates)
        return self._never[job.key]

    def _verdict(self, pod: Pod, codes: frozenset[str]) -> VerdictName:
        if codes & NEVER:
            return "impossible"
        if codes & PASSING:
            return "waits"
        if not len(self._scheduler.nodes):
            return "unschedulable"  # the pod may well be one that a node would do for
        try:
            state = self._ask.state(pod)
        except NotPlaced:
            return "unschedulable"
        if state.key not in self._possible:
            self._possible[state.key] = self._when_empty(state)
        return "unschedulable" if self._possible[state.key] else "impossible"

    def _when_empty(self, state: CycleState) -> bool:
        """Whether some node would do with every pod gone."""
        cycle = self._scheduler.cycle
        checks = cycle.plan(state)
        for info in self._scheduler.nodes:
            refused = checks.refuses(info.without(list(info.pods.values())))
            if (refused is None or state.view is not None) and cycle.devices.could(state, info):
                return True
        return False

    # ------------------------------------------------------------------------------------------------------ who leaves

    def evictions(self) -> list[PlannedEviction]:
        again = self._rehearsal.again
        return [self._eviction(each, again.get(uid, "")) for uid, each in self._rehearsal.evicted.items()]

    def _eviction(self, each: Evicted, new: str) -> PlannedEviction:
        pod = each.pod
        again: Pod | None = self._world.get(PODS, new) if new else self._instead(pod)
        node = self._rehearsal.node_of(again) if again is not None else ""
        name = again.key if again is not None else ""
        return PlannedEviction(pod.key, pod.spec.node_name or "", self._why(each), bool(node), node, each.about, each.by, name)

    def _instead(self, pod: Pod) -> Pod | None:
        """What the controller of a workload of the change made: one of its pods that was not there before."""
        owner = pod.metadata.controller
        if owner is None:
            return None
        made = [
            other
            for other in self._world.all(PODS).values()
            if other.metadata.controller == owner and not self._rehearsal.was_there(other)
        ]
        return next((other for other in made if self._rehearsal.node_of(other)), made[0] if made else None)

    def _why(self, each: Evicted) -> str:
        pod, node = each.pod, each.pod.spec.node_name or ""
        told = each.why.partition(": ")[2]
        if each.about:
            other: Pod | None = self._world.get(PODS, each.about)
            there = self._rehearsal.node_of(other) if other is not None else ""
            # Who goes with others of its gang need not be where the room is.
            needs = f"{each.about} needs {'the room' if there in ('', node) else 'room'} on node {there or node}"
            if "higher priority" not in told:
                return f"{needs}: {told}" if told else needs
            below = (
                f", and its priority {pod.spec.priority or 0} is below {other.spec.priority or 0}" if other is not None else ""
            )
            return needs + below
        if each.by == self._scheduler.name:
            return told  # of a gang that the change breaks, those who are left
        if each.by == "eviction":
            return "it uses a device with a taint that it does not tolerate"
        return self._making.why.get(node) or f"it does not tolerate a taint of node {node}"
