"""From decision to bound pod: claims written, devices ready, pod bound. One state per pod, driven by outcomes and changes.

Always true: a pod here counts on its node and its claims count as taken. Whatever stage is interrupted, the API shows
enough to go on: a restarted scheduler finds claims allocated and reserved for the pod, and continues from there.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any, Final, Literal, Protocol

import msgspec

from dray.api.core import PersistentVolume, PersistentVolumeClaim, Pod
from dray.api.events import event_body
from dray.api.kinds import EVENTS, NODES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, RESOURCE_CLAIMS
from dray.api.meta import decode
from dray.api.reason import Reason
from dray.api.resource import ResourceClaim
from dray.api.selectors import node_selector_matches
from dray.cluster.metrics import Meter
from dray.cluster.port import ClusterError, Conflict, NotFound, Outcome, Unreachable, Write
from dray.cluster.world import World
from dray.scheduling.binding import conditions
from dray.scheduling.binding.conditions import Verdict
from dray.scheduling.binding.claims import RETRY_AFTER, ClaimWriter, same_allocation
from dray.scheduling.config import Profile
from dray.scheduling.plugins.volumes import SELECTED_NODE, bound
from dray.scheduling.shape.claims import reserved_for
from dray.scheduling.shape.extended import Special
from dray.scheduling.waiting.queue import QueuedPod

Stage = Literal["creating", "claims", "conditions", "binding"]
_POD_STATUS: Final = "pod status"
_MAPPING: Final = "extendedResourceClaimStatus"


class Host(Protocol):
    """What binding asks of the scheduler around it."""

    def undo(self, pending: QueuedPod, reason: Reason | None, now: float, node: str = "") -> None:
        """``node``: where the pod keeps its room until it has been tried again."""
        ...

    def bound(self, pending: QueuedPod, node: str, now: float) -> None: ...

    def rest(self, device: conditions.Device, now: float) -> None: ...

    def adopt(self, special: Special, claim: ResourceClaim) -> None: ...

    def abandon(self, special: Special) -> None: ...

    def runs_with(self, claim: ResourceClaim) -> bool: ...

    def volume_for(self, claim: PersistentVolumeClaim, node: str) -> PersistentVolume | None: ...


class Binding:
    """One pod on its way to one node."""

    __slots__ = (
        "awaiting",
        "claims",
        "creation",
        "due",
        "held",
        "mapping",
        "node",
        "pending",
        "profile",
        "since",
        "special",
        "stage",
        "told",
        "volumes",
        "waited",
        "writing",
    )

    def __init__(self, pending: QueuedPod, node: str, profile: Profile, now: float) -> None:
        self.pending = pending
        self.node = node
        self.profile = profile
        self.since = now
        self.told = ""
        self.claims: list[str] = []
        self.awaiting: set[str] = set()
        self.special: Special | None = None
        # The writes of this attempt that make its special claim and tell the pod's status of it; an answer to one of an
        # earlier attempt is not for this one.
        self.creation: Write | None = None
        self.mapping: Write | None = None
        self.volumes: list[PersistentVolumeClaim] = []
        self.stage: Stage = "claims"
        self.writing = False
        self.waited: float | None = None
        # The claims as they were when the wait began, by key.
        self.held: dict[str, ResourceClaim] = {}
        self.due = 0.0

    @property
    def pod(self) -> Pod:
        return self.pending.pod

    @property
    def has_devices(self) -> bool:
        return bool(self.claims) or self.special is not None


class Binder:
    def __init__(self, world: World, desk: ClaimWriter, host: Host, meter: Meter, *, waits: bool) -> None:
        self._world, self._desk, self._host, self._meter = world, desk, host, meter
        # Whether binding conditions count; without the feature pods are bound at once, as older schedulers do.
        self._waits = waits
        self._bindings: dict[str, Binding] = {}
        self._by_pod: dict[str, str] = {}
        self._by_claim: dict[str, dict[str, None]] = {}
        self._by_volume: dict[str, dict[str, None]] = {}
        self._timers: list[tuple[float, str]] = []
        self._out: list[Write] = []
        self._events: list[Write] = []
        self._waiting = 0

    # -------------------------------------------------------------------------------------------------------- reading

    def get(self, uid: str) -> Binding | None:
        return self._bindings.get(uid)

    @property
    def in_flight(self) -> int:
        """Pods whose writes are under way; those that wait for devices cost nothing and do not count."""
        return len(self._bindings) - self._waiting

    @property
    def waiting(self) -> int:
        return self._waiting

    def next_due(self) -> float | None:
        while self._timers and self._timers[0][1] not in self._bindings:
            heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def writes(self) -> list[Write]:
        out, self._out = self._out, []
        return out

    def events(self) -> list[Write]:
        """What people are told; less urgent than the writes."""
        out, self._events = self._events, []
        return out

    # ------------------------------------------------------------------------------------------------------- starting

    def start(
        self,
        binding: Binding,
        open: list[ResourceClaim],
        pinned: list[ResourceClaim],
        now: float,
        leftover: ResourceClaim | None = None,
    ) -> None:
        """The decision is made: ``open`` claims were just allocated at the desk, ``pinned`` ones need a reservation;
        ``leftover`` is a special claim from an earlier attempt that is used again."""
        pod = binding.pod
        self._bindings[pod.uid] = binding
        self._by_pod[pod.key] = pod.uid
        for claim in (*open, *pinned):
            self._follow(binding, claim.key)
            binding.awaiting.add(claim.key)
        if binding.volumes:
            self._bind_volumes(binding, now)
        if leftover is not None:
            self.adopt_special(binding, leftover, now)
        elif binding.special is not None:
            binding.stage = "creating"
            self._create_special(binding)
        elif not binding.awaiting:
            self._advance(binding, now)

    def _bind_volumes(self, binding: Binding, now: float) -> None:
        """Tell whoever binds or makes volumes which node was chosen, and wait until they did."""
        for claim in binding.volumes:
            binding.awaiting.add(claim.key)
            self._by_volume.setdefault(claim.key, {})[binding.pod.uid] = None
            volume = self._host.volume_for(claim, binding.node)
            metadata = claim.metadata
            if volume is not None:
                reference = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": metadata.namespace}
                reference |= {"name": metadata.name, "uid": claim.uid}
                body: dict[str, Any] = {
                    "metadata": {"annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}},
                    "spec": {"claimRef": reference},
                }
                version = volume.metadata.resource_version
                write = Write(
                    "patch", PERSISTENT_VOLUMES, "", volume.metadata.name, body, uid=volume.uid, resource_version=version
                )
            else:
                body = {"metadata": {"annotations": {SELECTED_NODE: binding.node}}}
                write = Write("patch", PERSISTENT_VOLUME_CLAIMS, metadata.namespace, metadata.name, body, uid=claim.uid)
            self._out.append(msgspec.structs.replace(write, about=binding.pod.key))
        heappush(self._timers, (now + binding.profile.volume_timeout, binding.pod.uid))

    def volume_changed(self, key: str, now: float) -> None:
        claim: PersistentVolumeClaim | None = self._world.get(PERSISTENT_VOLUME_CLAIMS, key)
        for uid in list(self._by_volume.get(key, ())):
            binding = self._bindings.get(uid)
            if binding is None:
                self._by_volume[key].pop(uid, None)
            elif claim is None:
                self.give_up(binding, Reason("VolumeClaimMissing", f"pod/{binding.pod.key}", {"claim": key}), now)
            elif bound(claim):
                self.reserved(uid, key, now)

    def _follow(self, binding: Binding, key: str) -> None:
        binding.claims.append(key)
        self._by_claim.setdefault(key, {})[binding.pod.uid] = None

    def _create_special(self, binding: Binding) -> None:
        assert binding.special is not None
        pod = binding.pod
        body = binding.special.body(pod)
        binding.creation = Write("create", RESOURCE_CLAIMS, pod.metadata.namespace, "", body, about=pod.key)
        self._out.append(binding.creation)

    # ------------------------------------------------------------------------------------------------------ progress

    def reserved(self, uid: str, key: str, now: float) -> None:
        binding = self._bindings.get(uid)
        if binding is not None:
            binding.awaiting.discard(key)
            self._advance(binding, now)

    def lost(self, uid: str, key: str, error: ClusterError | None, now: float) -> None:
        binding = self._bindings.get(uid)
        if binding is not None:
            binding.awaiting.discard(key)
            self.give_up(binding, _write_failed(error) or Reason("ClaimLost", f"claim/{key}"), now)

    def claim_changed(self, key: str, now: float) -> None:
        for uid in list(self._by_claim.get(key, ())):
            binding = self._bindings.get(uid)
            if binding is not None and binding.stage == "conditions":
                self._check_conditions(binding, now)
            elif binding is not None and binding.held and any(_binds(write, uid) for write in self._out):
                # Ready a moment ago, and not so any more before the bind was sent.
                self._out = [write for write in self._out if not _binds(write, uid)]
                self._bind_again(binding, now)

    def due(self, now: float) -> None:
        while (at := self.next_due()) is not None and at <= now:
            _, uid = heappop(self._timers)
            binding = self._bindings[uid]
            if binding.stage == "conditions":
                self._check_conditions(binding, now)
            elif binding.stage == "binding" and not binding.writing:
                self._bind_again(binding, now)
            elif (
                any(claim.key in binding.awaiting for claim in binding.volumes)
                and now - binding.since >= binding.profile.volume_timeout
            ):
                self.give_up(binding, Reason("VolumeClaimUnbound", f"pod/{binding.pod.key}", {"node": binding.node}), now)

    def _advance(self, binding: Binding, now: float) -> None:
        if binding.awaiting or binding.stage != "claims":
            return
        claims: list[ResourceClaim] = []
        for key in binding.claims:
            claim = self._world.get(RESOURCE_CLAIMS, key)
            if claim is None or not self._allocated(claim, binding.node):
                self.give_up(binding, Reason("ClaimLost", f"claim/{key}"), now)
                return
            claims.append(claim)
        if self._waits and any(conditions.waits(claim) for claim in claims):
            self._wait(binding, claims, now)
        else:
            self._prebound(binding, "success", now)
            self._bind(binding)

    # ---------------------------------------------------------------------------------------------- binding conditions

    def _wait(self, binding: Binding, claims: list[ResourceClaim], now: float) -> None:
        binding.stage = "conditions"
        binding.waited = now
        binding.held = {claim.key: claim for claim in claims}
        self._waiting += 1
        if self._check_conditions(binding, now):
            return
        pod = binding.pod
        note = f"waiting for binding conditions for device on node {binding.node}"
        self._event(binding, now, "BindingConditionsPending", note, "Scheduling")
        if pod.status.nominated_node_name != binding.node:
            self._out.append(_pod_status(pod, {"nominatedNodeName": binding.node}))

    def _check_conditions(self, binding: Binding, now: float) -> bool:
        """Whether the wait is over, one way or the other."""
        assert binding.waited is not None
        claims = [claim for held in binding.held.values() if (claim := self._still(held, binding.pod.uid)) is not None]
        if len(claims) < len(binding.held):
            lost = next(key for key in binding.held if key not in {claim.key for claim in claims})
            self._observe_wait(binding, "failure", now)
            self.give_up(binding, Reason("ClaimLost", f"claim/{lost}"), now)
            return True
        dues = [conditions.deadline(claim, binding.profile.binding_timeout, binding.waited) for claim in claims]
        verdicts = [conditions.judge(claim, now, due) for claim, due in zip(claims, dues)]
        ended = [(claim, verdict) for claim, verdict in zip(claims, verdicts) if verdict.readiness in ("failed", "timeout")]
        if ended:
            self._not_ready(binding, ended, now)
            return True
        if all(verdict.readiness == "ready" for verdict in verdicts):
            self._observe_wait(binding, "success", now)
            self._prebound(binding, "success", now)
            self._waiting -= 1
            self._bind(binding)
            return True
        due = min(due for due, verdict in zip(dues, verdicts) if verdict.readiness == "pending")
        if due != binding.due:
            binding.due = due
            heappush(self._timers, (due, binding.pod.uid))
        return False

    def _still(self, held: ResourceClaim, uid: str) -> ResourceClaim | None:
        """The claim as it is now, unless somebody took from the pod what it waits for."""
        claim: ResourceClaim | None = self._world.get(RESOURCE_CLAIMS, held.key)
        if claim is None or claim.uid != held.uid or claim.metadata.deletion_timestamp is not None:
            return None
        before, now = held.status.allocation, claim.status.allocation
        if before is None or now is None or not same_allocation(before, now):
            return None
        return claim if reserved_for(claim, uid) else None

    def _not_ready(self, binding: Binding, ended: list[tuple[ResourceClaim, Verdict]], now: float) -> None:
        """Some claims failed or ran out of time. Those are cleared, unless a pod runs with them; what is ready, or on its
        way to be, stays where it is, so that the pod finds it again on the same node."""
        claim, worst = min(ended, key=lambda found: found[1].readiness != "failed")
        status = "failure" if worst.readiness == "failed" else "timeout"
        self._observe_wait(binding, status, now)
        self._prebound(binding, status, now)
        for bad, verdict in ended:
            for device in verdict.devices:
                self._host.rest(device, now)
            if not self._host.runs_with(bad):
                self._desk.deallocate(bad)
        reason = conditions.reason_for(claim, worst, binding.profile.binding_timeout, binding.node)
        self._give_up(binding, reason, now, binding.node)

    def _observe_wait(self, binding: Binding, status: str, now: float) -> None:
        """Once for each driver whose devices were waited for."""
        waited = now - (binding.waited if binding.waited is not None else now)
        for driver in sorted({driver for claim in binding.held.values() for driver in conditions.drivers(claim)}):
            labels = (binding.profile.scheduler_name, driver, status)
            self._meter.count("scheduler_dra_bindingconditions_allocations_total", labels)
            self._meter.observe("scheduler_dra_bindingconditions_wait_duration_seconds", waited, labels)

    def _prebound(self, binding: Binding, status: str, now: float) -> None:
        """Everything before the bind is over for a pod with devices."""
        if binding.has_devices:
            labels = (status, "true" if binding.held else "false")
            self._meter.observe("scheduler_dra_bindingconditions_prebind_duration_seconds", now - binding.since, labels)

    # --------------------------------------------------------------------------------------------------------- the bind

    def _bind(self, binding: Binding) -> None:
        pod = binding.pod
        binding.stage = "binding"
        binding.writing = True
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod.metadata.name, "namespace": pod.metadata.namespace, "uid": pod.uid},
            "target": {"kind": "Node", "name": binding.node},
        }
        self._out.append(
            Write("create", PODS, pod.metadata.namespace, pod.metadata.name, body, "binding", uid=pod.uid, about=pod.key)
        )

    def _bind_again(self, binding: Binding, now: float) -> None:
        """Unless somebody took a claim from the pod meanwhile."""
        for key in binding.claims:
            claim: ResourceClaim | None = self._world.get(RESOURCE_CLAIMS, key)
            if claim is None or not self._allocated(claim, binding.node) or not reserved_for(claim, binding.pod.uid):
                self.give_up(binding, Reason("ClaimLost", f"claim/{key}"), now)
                return
        self._bind(binding)

    def _allocated(self, claim: ResourceClaim, node: str) -> bool:
        """Whether the claim has devices that the node can use."""
        allocation = claim.status.allocation
        if allocation is None or allocation.node_selector is None:
            return allocation is not None
        found = self._world.get(NODES, node)
        return found is None or node_selector_matches(allocation.node_selector, found)

    # --------------------------------------------------------------------------------------------------------- outcomes

    def observe(self, outcome: Outcome, now: float) -> None:
        write = outcome.write
        uid = write.uid if write.kind is PODS else self._by_pod.get(write.about, "")
        binding = self._bindings.get(uid)
        if binding is None or _is_of_another_attempt(binding, write):
            self._orphaned(outcome)
        elif write.kind is PODS and write.subresource == "binding":
            binding.writing = False
            self._bind_ended(binding, outcome.error, now)
        elif write is binding.mapping:
            self._mapping_ended(binding, outcome.error, now)
        elif write is binding.creation:
            self._create_ended(binding, outcome, now)
        elif write.kind in (PERSISTENT_VOLUMES, PERSISTENT_VOLUME_CLAIMS) and outcome.error is not None:
            self.give_up(binding, _write_failed(outcome.error), now)

    def _bind_ended(self, binding: Binding, error: ClusterError | None, now: float) -> None:
        if error is None:
            self._bound(binding, now)
        elif isinstance(error, Unreachable | Conflict | NotFound):
            # It may be bound, or gone: the watch will tell. Until then it keeps its place, and binding again does no harm.
            heappush(self._timers, (now + RETRY_AFTER, binding.pod.uid))
        else:
            self.give_up(binding, _write_failed(error), now)

    def confirm(self, binding: Binding, now: float) -> None:
        """The API shows the pod on its node, whether or not the answer to our write has come."""
        self._bound(binding, now)

    def _bound(self, binding: Binding, now: float) -> None:
        pod = binding.pod
        told = f": {binding.told}" if binding.told else ""
        self._event(binding, now, "Scheduled", f"Successfully assigned {pod.key} to {binding.node}{told}", "Binding")
        self._remove(binding)
        if binding.special is not None:
            self._desk.keep_only(pod, binding.special.name)
        self._host.bound(binding.pending, binding.node, now)

    def _create_ended(self, binding: Binding, outcome: Outcome, now: float) -> None:
        assert binding.special is not None
        result = "success" if outcome.ok else "failure"
        self._meter.count("dynamic_resource_allocation_resourceclaim_creates_total", (result, "false", "", "Pod"))
        if outcome.object is None or outcome.error is not None:
            # Also when there was no answer: a claim that was made all the same is found by its owner and annotation.
            self.give_up(binding, Reason("WriteFailed", f"pod/{binding.pod.key}", {"error": str(outcome.error)[:200]}), now)
            return
        claim = decode(ResourceClaim, outcome.object)
        self.adopt_special(binding, claim, now)

    def adopt_special(self, binding: Binding, claim: ResourceClaim, now: float) -> None:
        """The claim for extended resources exists now: allocate it and tell the pod's status, both at once."""
        special = binding.special
        assert special is not None
        binding.stage = "claims"
        special.name = claim.metadata.name
        self._host.adopt(special, claim)
        self._follow(binding, claim.key)
        binding.awaiting.add(claim.key)
        if claim.status.allocation is None:
            self._desk.allocate(claim, special.allocation, binding.pod, now)
        else:
            self._desk.reserve(claim, binding.pod)
        self._patch_mapping(binding)

    def _patch_mapping(self, binding: Binding) -> None:
        assert binding.special is not None
        binding.awaiting.add(_POD_STATUS)
        binding.mapping = _pod_status(binding.pod, {_MAPPING: binding.special.status()})
        self._out.append(binding.mapping)

    def _mapping_ended(self, binding: Binding, error: ClusterError | None, now: float) -> None:
        if error is None:
            binding.awaiting.discard(_POD_STATUS)
            self._advance(binding, now)
        else:
            self.give_up(binding, _write_failed(error), now)

    def _orphaned(self, outcome: Outcome) -> None:
        """An answer for a pod that is gone, or is decided on anew: a claim that was made for it is deleted again."""
        write = outcome.write
        if write.kind is RESOURCE_CLAIMS and write.verb == "create" and outcome.object is not None:
            self._desk.delete(decode(ResourceClaim, outcome.object), write.about)

    # ---------------------------------------------------------------------------------------------------- giving up

    def give_up(self, binding: Binding, reason: Reason | None, now: float) -> None:
        """The decision does not hold: everything is given back, and the pod is decided on again."""
        if binding.stage != "binding":
            self._prebound(binding, "failure", now)
        self._give_up(binding, reason, now)

    def _give_up(self, binding: Binding, reason: Reason | None, now: float, node: str = "") -> None:
        self._withdraw(binding)
        self._host.undo(binding.pending, reason, now, node)

    def node_gone(self, name: str, now: float) -> None:
        """Nothing is waited for on a node that is no more. A bind that is under way is the watch's to tell of."""
        for binding in [found for found in self._bindings.values() if found.node == name and found.stage != "binding"]:
            self.give_up(binding, None, now)

    def pod_gone(self, uid: str) -> Binding | None:
        """The pod was deleted or finished on its way. Devices that were being made ready for it alone are freed at once."""
        binding = self._bindings.get(uid)
        if binding is not None:
            self._withdraw(binding, gone=True)
        return binding

    def bound_by_others(self, binding: Binding) -> None:
        """Someone else placed the pod: its claims stay as they are."""
        if binding.stage == "conditions":
            self._waiting -= 1
        self._remove(binding)
        for key in binding.claims:
            self._desk.let_go(key, binding.pod.uid)
        if binding.special is not None and not binding.special.name:
            self._host.abandon(binding.special)

    def _withdraw(self, binding: Binding, *, gone: bool = False) -> None:
        if binding.stage == "conditions":
            self._waiting -= 1
        uid, special = binding.pod.uid, binding.special
        self._remove(binding)
        for key in binding.claims:
            if not self._desk.clearing(key) and (special is None or key != special.claim.key):
                self._desk.unreserve(key, uid, gone=gone)
        if special is None:
            return
        if special.name:
            # The API server keeps the name in the pod's status until another one is written there.
            self._desk.delete(special.claim, binding.pod.key)
        else:
            # Never made in the API: what it would have held is free. Once it is made, the desk knows what it holds.
            self._host.abandon(special)

    def _remove(self, binding: Binding) -> None:
        uid = binding.pod.uid
        self._bindings.pop(uid, None)
        if self._by_pod.get(binding.pod.key) == uid:
            del self._by_pod[binding.pod.key]
        for claim in binding.volumes:
            self._by_volume.get(claim.key, {}).pop(uid, None)
        for key in binding.claims:
            users = self._by_claim.get(key)
            if users is not None:
                users.pop(uid, None)
                if not users:
                    del self._by_claim[key]

    def _event(self, binding: Binding, now: float, reason: str, note: str, action: str) -> None:
        pod = binding.pod
        controller = binding.profile.scheduler_name
        body = event_body(PODS, pod, now=now, type="Normal", reason=reason, note=note, action=action, controller=controller)
        self._events.append(Write("create", EVENTS, body["metadata"]["namespace"], body["metadata"]["name"], body, about=pod.key))


def _is_of_another_attempt(binding: Binding, write: Write) -> bool:
    return write.kind is RESOURCE_CLAIMS and write.verb == "create" and write is not binding.creation


def _binds(write: Write, uid: str) -> bool:
    return write.subresource == "binding" and write.uid == uid


def _pod_status(pod: Pod, status: dict[str, Any]) -> Write:
    metadata = pod.metadata
    return Write("patch", PODS, metadata.namespace, metadata.name, {"status": status}, "status", uid=pod.uid, about=pod.key)


def _write_failed(error: ClusterError | None) -> Reason | None:
    """None where deciding again is all there is to say."""
    if error is None or isinstance(error, Conflict | NotFound):
        return None
    return Reason("WriteFailed", "", {"error": str(error)[:200]})
