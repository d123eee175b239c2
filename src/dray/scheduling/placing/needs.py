"""What a pod needs at this moment: its claims resolved, what other pods say of it, and under which key its answers are kept.

Always true: pods with equal keys get equal answers.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Mapping

import msgspec

from dray.api.core import Pod
from dray.api.kinds import DEVICE_CLASSES, RESOURCE_CLAIMS
from dray.api.reason import Reason
from dray.api.resource import AllocationResult, ResourceClaim, ResourceClaimStatus
from dray.scheduling.binding import conditions
from dray.scheduling.binding.crossed import crossed
from dray.scheduling.binding.tainted import tainted
from dray.scheduling.config import Profile
from dray.scheduling.parts import Parts
from dray.scheduling.placing.refusal import Refusal
from dray.scheduling.placing.state import CycleState, NotPlaced
from dray.scheduling.plugins.devices import DynamicResources
from dray.scheduling.plugins.neighbours import Neighbours
from dray.scheduling.plugins.volumes import VOLUME_PLUGINS, Volumes
from dray.scheduling.shape.claims import Refused, Resolved, claim_keys, claim_topic, pod_topic, requests, reserved_for, resolve
from dray.scheduling.waiting import events
from dray.scheduling.waiting.queue import QueuedPod

# What a pod asks for; where other pods have a say, its namespace and labels.
Alike = tuple[int, str, str, tuple[tuple[str, str], ...]]


class Needs:
    def __init__(self, parts: Parts, neighbours: Neighbours, volumes: Volumes, devices: DynamicResources) -> None:
        self._world, self._intents, self._engine = parts.world, parts.claims.intents, parts.engine
        self._neighbours, self._volumes, self._devices = neighbours, volumes, devices
        self._conditions_on = parts.gates("DRADeviceBindingConditions")
        self._taints_on = parts.gates("DRADeviceTaints")
        # Why a claim is not there for the pod much longer, for the sake of a pod that is to have its devices.
        self.promised_away: Callable[[CycleState, ResourceClaim], Reason | None] = lambda state, claim: None
        # Of plugins that read more of a pod than its demand.
        self.signs: list[Callable[[Pod], Hashable]] = []
        self._specs: dict[bytes, int] = {}
        self._last_spec = 0
        self._spec_of: dict[str, int] = {}
        self._encoder = msgspec.msgpack.Encoder(order="deterministic")

    def signed(self, pod: Pod) -> Hashable:
        """What plugins read of a pod beside its demand."""
        return tuple([sign(pod) for sign in self.signs])

    def of(self, pending: QueuedPod, profile: Profile, now: float) -> CycleState:
        """The pod's needs as they are now; raises ``NotPlaced`` when it cannot be tried at all: then it keeps no devices either
        that an earlier attempt left it with."""
        try:
            return self._of(pending, profile, now)
        except NotPlaced as refused:
            if "ClaimInFlight" not in refused.refusal.codes:
                # Once that claim is given back all may be well.
                refused.free_claims = self._unused(pending.pod)
                refused.topics |= {claim_topic(claim.key) for claim in refused.free_claims}
            raise

    def _unused(self, pod: Pod) -> list[ResourceClaim]:
        """Claims of the pod that have devices, and that nobody else has or is about to have."""
        claims = (self._world.get(RESOURCE_CLAIMS, key) for key in claim_keys(pod)) if pod.spec.resource_claims else ()
        return [
            claim
            for claim in claims
            if claim is not None
            and claim.status.allocation is not None
            and not self._intents.clearing(claim.key)
            and {consumer.uid for consumer in claim.status.reserved_for} | self._intents.joining(claim) <= {pod.uid}
        ]

    def _of(self, pending: QueuedPod, profile: Profile, now: float) -> CycleState:
        pod = pending.pod
        if pod.spec.scheduling_gates:
            names = ", ".join(gate.name for gate in pod.spec.scheduling_gates)
            raise NotPlaced(pod.uid, Refusal.of("SchedulingGated", f"pod/{pod.key}", gates=names), frozenset({pod_topic(pod)}))
        try:
            resolved = resolve(pod, self._world, self._intents) if pod.spec.resource_claims else Resolved()
        except Refused as refused:
            raise NotPlaced(pod.uid, refused.refusal, refused.topics) from None
        state = CycleState(pending, profile, resolved)
        if state.demand.volumes and any(name in profile.filters for name in VOLUME_PLUGINS):
            self._check_volumes(state)
        if resolved.open:
            self._check_classes(state)
        self._devices.add_extended(state)
        if state.needs_devices:
            state.packs_devices = self._devices.packs(state)
        for claim in resolved.pinned:
            unusable = self._unusable(state, claim, now)
            if unusable is not None:
                state.unusable = (*state.unusable, (claim, unusable))
        self.look_around(state)
        state.key = self._key(state)
        return state

    def pin(self, state: CycleState, decided: Mapping[str, AllocationResult]) -> None:
        """Claims that were given devices in a trial, for a pod that shares them, are not to be allocated again for this one."""
        resolved = state.resolved
        given = [claim for claim in resolved.open if claim.uid in decided]
        if given:
            resolved.open = [claim for claim in resolved.open if claim.uid not in decided]
            resolved.pinned = [*resolved.pinned, *given]
            resolved.allocations |= {claim.uid: decided[claim.uid] for claim in given}
            state.key, state.plan = self._key(state), None

    def reopen(self, state: CycleState, freed: Container[str]) -> None:
        """Claims that are given back in a trial, by a pod that is to be placed anew, are to be allocated again for it."""
        resolved = state.resolved
        back = [claim for claim in resolved.pinned if claim.uid in freed]
        if back:
            resolved.pinned = [claim for claim in resolved.pinned if claim.uid not in freed]
            resolved.open = [*resolved.open, *(msgspec.structs.replace(claim, status=ResourceClaimStatus()) for claim in back)]
            for claim in back:
                del resolved.allocations[claim.uid]
            state.unusable = [(claim, reason) for claim, reason in state.unusable if claim.uid not in freed]
            state.packs_devices = self._devices.packs(state)
            state.key, state.plan = self._key(state), None

    def narrow(self, state: CycleState, claims: Mapping[str, ResourceClaim]) -> None:
        """Of these claims, by uid, only what is left of them is to be allocated."""
        resolved = state.resolved
        changed = [claims[claim.uid] for claim in resolved.open if claims.get(claim.uid, claim) is not claim]
        if changed:
            resolved.open = [claims.get(claim.uid, claim) for claim in resolved.open]
            state.packs_devices = self._devices.packs(state)
            state.key, state.plan = (self._key(state), *(self._encoder.encode(claim.spec) for claim in changed)), None

    def confine(self, state: CycleState, nodes: frozenset[str]) -> None:
        """The pod is to be on one of these nodes."""
        state.within = nodes
        state.key, state.plan = (state.key, nodes), None

    def look_around(self, state: CycleState) -> None:
        """What other pods say about where this pod goes, as they are placed just now."""
        state.view = self._neighbours.view(state.pod, state.demand, state.profile)
        if state.view is None:
            state.ranking = self._neighbours.ranking(state.pod, state.demand, state.profile)

    # ------------------------------------------------------------------------------------------------------------- keys

    def alike(self, pending: QueuedPod, profile: Profile) -> Alike:
        """Pods without claims of which this is equal find the same."""
        leftover = self._devices.leftover(pending.uid)
        own = leftover.uid if leftover is not None else ""
        return pending.demand.id, own, *self._neighbours.tells_apart(pending.pod, pending.demand, profile)

    def _key(self, state: CycleState) -> Hashable:
        resolved = state.resolved
        key: tuple[Hashable, ...] = (
            state.demand.id,
            state.profile.scheduler_name,
            tuple([self._spec_id(claim) for claim in resolved.open]) if resolved.open else (),
            tuple([self._pinned_id(state, claim) for claim in resolved.pinned]) if resolved.pinned else (),
            (state.leftover.uid, state.leftover.metadata.resource_version) if state.leftover is not None else (),
            state.named,
        )
        if self.signs:
            key = (*key, self.signed(state.pod))
        if state.view is not None:
            pod = state.pod
            key = (*key, pod.metadata.namespace, tuple(sorted(pod.metadata.labels.items())))
        return key

    def _pinned_id(self, state: CycleState, claim: ResourceClaim) -> Hashable:
        """The claim as it is; and where an allocation can be used that its version does not tell, because it is on its way."""
        uid, version = claim.metadata.uid, claim.metadata.resource_version
        if claim.status.allocation is not None:
            return uid, version
        return uid, version, self._encoder.encode(state.resolved.allocations[uid].node_selector)

    def _spec_id(self, claim: ResourceClaim) -> int:
        """Claims with equal specs are one. A spec never changes, so it is looked at once per claim."""
        uid = claim.metadata.uid
        known = self._spec_of.get(uid)
        if known is None:
            encoded = self._encoder.encode(claim.spec)
            self._last_spec += 1
            known = self._spec_of[uid] = self._specs.setdefault(encoded, self._last_spec)
        return known

    def forget_claim(self, uid: str) -> None:
        self._spec_of.pop(uid, None)

    def forget(self, demands: set[int]) -> None:
        """Only these demands, and the specs of claims that are known, are still in use."""
        specs = set(self._spec_of.values())
        self._specs = {encoded: number for encoded, number in self._specs.items() if number in specs}
        self._devices.forget(demands)

    # --------------------------------------------------------------------------------------- what keeps it from every node

    def _check_volumes(self, state: CycleState) -> None:
        missing = self._volumes.missing(state.demand)
        if missing is not None:
            refusal = Refusal(tuple((reason, 0) for reason in missing))
            raise NotPlaced(state.pod.uid, refusal, events.events_for(refusal))

    def _check_classes(self, state: CycleState) -> None:
        for claim in state.resolved.open:
            for name, request in requests(claim):
                if request.device_class_name and self._world.get(DEVICE_CLASSES, request.device_class_name) is None:
                    data = {"request": name, "class": request.device_class_name}
                    refusal = Refusal.of("ClassMissing", f"claim/{claim.key}", **data)
                    raise NotPlaced(state.pod.uid, refusal, events.events_for(refusal, frozenset({claim_topic(claim.key)})))

    def _unusable(self, state: CycleState, claim: ResourceClaim, now: float) -> Reason | None:
        """A claim whose devices failed, never became ready, are tainted, promised to another, or another's too, does not take
        new pods."""
        if (other_has_it := crossed(self._engine, claim)) is not None:
            return other_has_it
        if self._conditions_on and claim.status.allocation is not None and conditions.waits(claim):
            timeout = state.profile.binding_timeout
            verdict = conditions.judge(claim, now, conditions.deadline(claim, timeout, now))
            if verdict.readiness in ("failed", "timeout"):
                state.failed = (*state.failed, *verdict.devices)
                return conditions.reason_for(claim, verdict, timeout)
        if reserved_for(claim, state.pod.uid):
            return None
        allocation = state.resolved.allocations[claim.uid]
        found = tainted(self._engine.inventory, claim.key, allocation, now) if self._taints_on else None
        return found or self.promised_away(state, claim)
