"""One pod: which claims it needs, which nodes will do, which is best, and what it gets there.

Always true: deciding changes nothing outside its own caches; the caller makes the decision count. Equal pods share one
set of candidates, so most pods cost one look at the best node.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Hashable
from typing import Final

import msgspec

from dray.api.core import NodeSelector, PersistentVolumeClaim
from dray.api.kinds import DEVICE_CLASSES, RESOURCE_CLAIMS
from dray.api.reason import Reason
from dray.api.resource import ResourceClaim
from dray.books.nodes import NodeInfo
from dray.devices import DeviceKey, Verdict
from dray.devices.inventory import OPTIONAL_OPERATIONS
from dray.scheduling.binding import conditions
from dray.scheduling.config import Profile
from dray.scheduling.parts import Parts
from dray.scheduling.placing.candidates import ZONE, Candidates, enough, turn
from dray.scheduling.placing.plan import UNJUDGED, DeviceJudge, Facts, Plan
from dray.scheduling.placing.refusal import Refusal, Tally
from dray.scheduling.placing.score import Found, totals_of
from dray.scheduling.placing.state import CycleState, NotPlaced, Placement
from dray.scheduling.plugins.base import Reasons, because
from dray.scheduling.plugins.device_scoring import DeviceScorer
from dray.scheduling.plugins.neighbours import Neighbours, View
from dray.scheduling.plugins.tolerations import tolerates
from dray.scheduling.plugins.volumes import Volumes
from dray.scheduling.shape.claims import Refused, Resolved, claim_topic, pod_topic, requests, reserved_for, resolve, runs_with
from dray.scheduling.shape.extended import (
    Requests,
    Special,
    by_devices,
    owner_uid,
    requests_for,
    serves_by_devices,
    special_claim,
    still_valid,
    wanted_names,
)
from dray.scheduling.waiting import events
from dray.scheduling.waiting.queue import QueuedPod

# Sets of candidates that are kept; each holds at most the nodes that were examined for it.
_KEPT: Final = 128
# Where pods of one workload only rank nodes: how many zones are compared, and how many nodes of each.
_ZONES: Final = 8
_OF_EACH: Final = 8


class Cycle:
    def __init__(self, parts: Parts, facts: Facts, neighbours: Neighbours, volumes: Volumes) -> None:
        self._world, self._nodes, self._queue, self._engine = parts.world, parts.nodes, parts.queue, parts.engine
        self._classes, self._claims, self._meter, self._wakeups = parts.classes, parts.claims, parts.meter, parts.wakeups
        self._facts, self._neighbours, self._volumes = facts, neighbours, volumes
        self._extended = parts.gates("DRAExtendedResource")
        self._conditions_on = parts.gates("DRADeviceBindingConditions")
        self._taints_on = parts.gates("DRADeviceTaints")
        self.scorer = DeviceScorer(parts.engine)
        self._kept: OrderedDict[Hashable, Candidates] = OrderedDict()
        self._start = self._scale = 0
        self._specs: dict[bytes, int] = {}
        self._last_spec = 0
        self._spec_of: dict[str, int] = {}
        self._requests: dict[tuple[int, frozenset[str]], Requests] = {}
        self._wanted: dict[int, frozenset[str]] = {}
        self._specials = parts.world.index(RESOURCE_CLAIMS, owner_uid)
        self._encoder = msgspec.msgpack.Encoder(order="deterministic")

    # -------------------------------------------------------------------------------------------------------- deciding

    def decide(self, state: CycleState) -> Placement:
        """Where the pod goes; raises ``NotPlaced``."""
        self._share(state)
        if state.unusable:
            raise self._unusable(state)
        if state.view is not None:
            return self._among_neighbours(state)
        candidates = self.candidates(state)
        nominated = state.pod.status.nominated_node_name
        if nominated and (placement := self._on(state, candidates, nominated)) is not None:
            return placement
        if state.ranking is not None and (placement := self._ranked(state, state.ranking, candidates)) is not None:
            return placement
        while (name := candidates.best()) is not None:
            placement = self._on(state, candidates, name)
            if placement is not None:
                return placement
        raise self._refused(state, self._explained(state, candidates.refusals(), candidates.verdicts()))

    def state(self, pending: QueuedPod, profile: Profile, now: float) -> CycleState:
        """The pod's needs as they are now; raises ``NotPlaced`` when it cannot be tried at all."""
        pod = pending.pod
        if pod.spec.scheduling_gates:
            names = ", ".join(gate.name for gate in pod.spec.scheduling_gates)
            raise NotPlaced(pod.uid, Refusal.of("SchedulingGated", f"pod/{pod.key}", gates=names), frozenset({pod_topic(pod)}))
        try:
            resolved = resolve(pod, self._world, self._claims) if pod.spec.resource_claims else Resolved()
        except Refused as refused:
            raise NotPlaced(pod.uid, refused.refusal, refused.topics) from None
        state = CycleState(pending, profile, resolved)
        if state.demand.volumes and "VolumeBinding" in profile.filters:
            self._check_volumes(state)
        self._check_classes(state)
        if self._extended:
            self._add_extended(state)
        if resolved.pinned:
            state.unusable = [bad for claim in resolved.pinned if (bad := self._unusable_claim(state, claim, now)) is not None]
        state.view = self._neighbours.view(pod, state.demand, profile)
        if state.view is None:
            state.ranking = self._neighbours.ranking(pod, state.demand, profile)
        state.key = self._key(state)
        return state

    def _key(self, state: CycleState) -> Hashable:
        resolved = state.resolved
        key: tuple[Hashable, ...] = (
            state.demand.id,
            state.profile.scheduler_name,
            tuple(self._spec_id(claim) for claim in resolved.open),
            tuple((claim.uid, claim.metadata.resource_version, self._unwritten(state, claim)) for claim in resolved.pinned),
            (state.leftover.uid, state.leftover.metadata.resource_version) if state.leftover is not None else (),
            state.named,
        )
        if state.view is not None:
            pod = state.pod
            key = (*key, pod.metadata.namespace, tuple(sorted(pod.metadata.labels.items())))
        return key

    def _unwritten(self, state: CycleState, claim: ResourceClaim) -> bytes:
        """Where an allocation can be used that the claim's version does not tell, because it is on its way."""
        if claim.status.allocation is not None:
            return b""
        return self._encoder.encode(state.resolved.allocations[claim.uid].node_selector)

    def _spec_id(self, claim: ResourceClaim) -> int:
        """Claims with equal specs are one. A spec never changes, so it is looked at once per claim."""
        known = self._spec_of.get(claim.uid)
        if known is None:
            encoded = self._encoder.encode(claim.spec)
            self._last_spec += 1
            known = self._spec_of[claim.uid] = self._specs.setdefault(encoded, self._last_spec)
        return known

    def forget_claim(self, uid: str) -> None:
        self._spec_of.pop(uid, None)

    def forget_shapes(self, demands: set[int]) -> None:
        """Only these demands, and the specs of claims that are known, are still in use."""
        specs = set(self._spec_of.values())
        self._specs = {encoded: number for encoded, number in self._specs.items() if number in specs}
        self._wanted = {number: names for number, names in self._wanted.items() if number in demands}
        self._requests = {key: found for key, found in self._requests.items() if key[0] in demands}

    def _share(self, state: CycleState) -> None:
        """Pods that wait for the same were refused for the same: nothing changed since, or they would not wait.
        A pod for which room is being made sees a node that the others do not see."""
        if state.pending.nominated:
            return
        group = self._queue.group(state.key)
        if group is not None and group.leader is None and state.pending.group is not group and group.members:
            raise NotPlaced(state.key, group.refusal, group.topics, shared=True)

    # --------------------------------------------------------------------------------------------------- candidates

    def candidates(self, state: CycleState) -> Candidates:
        if self._scale != self._engine.scale.serial:
            self._scale = self._engine.scale.serial
            self._kept.clear()  # there are larger devices than before, so that the others are worth something else
        found = self._kept.get(state.key)
        if found is None:
            found = Candidates(self.plan(state), self._nodes, self._wakeups, self._start)
            # Volumes change without any node changing, so what was found out for them is not kept.
            if not state.demand.volumes:
                self._kept[state.key] = found
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
            found.catch_up()
            self._start = found.next_start
            if state.needs_devices and state.leftover is None:
                self._ask_all(state, found)
            return found
        self._kept.move_to_end(state.key)
        found.catch_up()
        return found

    def _ask_all(self, state: CycleState, candidates: Candidates) -> None:
        """The first pod of its kind asks the devices of every node that it looked at, as upstream does: an error that
        concerns the request itself is found wherever it shows. Nodes in the same state answer once."""
        for claims, names in self._by_claims(state, candidates.unasked()):
            for name, verdict in self._engine.refusing(names, claims):
                self._raise_fatal(state, verdict)
                candidates.refuse(name, _device_reasons(verdict))

    def _by_claims(self, state: CycleState, names: list[str]) -> list[tuple[list[ResourceClaim], list[str]]]:
        """The nodes by what is to be allocated there: which resources are left to devices differs from node to node."""
        if not state.names:
            return [(state.resolved.open, names)]
        found: dict[frozenset[str], tuple[list[ResourceClaim], list[str]]] = {}
        for info in filter(None, map(self._nodes.get, names)):
            key = by_devices(state.names, info)
            if key not in found:
                found[key] = (self.claims_on(state, info)[0], [])
            found[key][1].append(info.name)
        return [each for each in found.values() if each[0]]

    def kept(self, key: Hashable) -> Candidates | None:
        return self._kept.get(key)

    def plan(self, state: CycleState) -> Plan:
        if state.plan is None:
            judge = self._judge(state) if state.needs_devices else None
            skips = any(r.skip_node_operations for a in state.resolved.allocations.values() for r in a.devices.results)
            feature = OPTIONAL_OPERATIONS if skips else ""
            also = (serves_by_devices(state.names, named),) if (named := state.named) else ()
            state.plan = Plan(state.demand, state.profile, self._facts, self._selectors(state), judge, feature, also)
        return state.plan

    def _selectors(self, state: CycleState) -> list[NodeSelector]:
        selectors = state.resolved.selectors
        if (
            state.leftover is not None
            and (allocation := state.leftover.status.allocation) is not None
            and allocation.node_selector
        ):
            selectors.append(allocation.node_selector)
        return selectors

    def _judge(self, state: CycleState) -> DeviceJudge | None:
        """A claim of an earlier attempt has its devices already, so there is nothing to compare."""
        if state.leftover is not None or not self.scorer.wanted(state.resolved.open, state.profile):
            return None
        return self.scorer.judge(state.profile, state.resolved.open, lambda info: self.claims_on(state, info)[0], _device_reasons)

    def forget_candidates(self) -> None:
        """Something that plans were made of changed."""
        self._kept.clear()
        self._requests.clear()
        self._wanted.clear()

    def _on(self, state: CycleState, candidates: Candidates, name: str) -> Placement | None:
        """The pod on this node, or None (and why, in the candidates) when its devices will not do."""
        info = self._nodes.get(name)
        if info is None:
            return None
        found = candidates.plan.refuses(info) or self._place(state, info)
        if isinstance(found, Placement):
            return found
        candidates.refuse(name, found)
        return None

    def _place(self, state: CycleState, info: NodeInfo) -> Placement | Reasons:
        placement = Placement(state.key, info.name, state.resolved)
        if state.demand.volumes and (unbound := self._volumes.unbound(state.demand)):
            chosen = self._volumes.choose(unbound, info.node)
            if isinstance(chosen, PersistentVolumeClaim):
                return because("VolumeNodeAffinity", volume=chosen.key)
            placement.volumes, placement.provisioned = chosen
        if not state.needs_devices:
            return placement
        claims, special = self.claims_on(state, info)
        if state.leftover is not None:
            return self._reuse(state, placement, claims, special)
        if not claims:
            return placement
        verdict = self._allocate(state, info.name, claims)
        if not verdict.ok:
            self._raise_fatal(state, verdict)
            return _device_reasons(verdict)
        placement.results = list(verdict.results)
        placement.because = self.scorer.told(verdict, state.profile)
        if special is not None:
            placement.special = Special(claims[-1], special, placement.results.pop())
        return placement

    def _allocate(self, state: CycleState, node: str, claims: list[ResourceClaim]) -> Verdict:
        started = self._meter.seconds()
        verdict = self._engine.allocate(node, claims, self.scorer.order(state.profile))
        took = self._meter.seconds() - started
        self._meter.observe("scheduler_plugin_execution_duration_seconds", took, _SUCCESS if verdict.ok else _REFUSED)
        return verdict

    def claims_on(self, state: CycleState, info: NodeInfo) -> tuple[list[ResourceClaim], Requests | None]:
        """The claims to allocate on this node: the pod's own, then the special one if the node leaves resources to devices."""
        if not state.names:
            return state.resolved.open, None
        names = by_devices(state.names, info)
        if not names:
            return state.resolved.open, None
        key = (state.demand.id, names)
        found = self._requests.get(key)
        if found is None:
            found = self._requests[key] = requests_for(state.pod.spec, names, self._classes)
        return [*state.resolved.open, special_claim(state.pod, found)], found

    def _raise_fatal(self, state: CycleState, verdict: Verdict) -> None:
        """An error that does not depend on the node: trying others would say the same."""
        if verdict.error and not verdict.node_error:
            reasons = tuple(verdict.reasons) or (Reason("InvalidRequest", "", {"error": verdict.error}),)
            refusal = Refusal(tuple((reason, 0) for reason in reasons))
            raise NotPlaced(
                state.key, refusal, events.events_for(refusal, self._claim_topics(state) | {events.DEVICES, events.CLASSES})
            )

    # ------------------------------------------------------------------------------------------------ extended resources

    def _add_extended(self, state: CycleState) -> None:
        demand = state.demand
        names = self._wanted.get(demand.id)
        if names is None:
            names = self._wanted[demand.id] = wanted_names(demand.spec, self._classes)
        state.names = names
        leftovers = [self._world.get(RESOURCE_CLAIMS, key) for key in self._specials[state.pod.uid]]
        alive = [claim for claim in leftovers if claim is not None and self._is_alive(claim)]
        if alive:
            state.leftover = alive[0]
            if not names:
                reason = Reason("ClaimElsewhere", f"claim/{alive[0].key}")
                state.unusable.append((alive[0], reason))

    def _is_alive(self, claim: ResourceClaim) -> bool:
        return claim.metadata.deletion_timestamp is None and not self._claims.deleting(claim)

    def _reuse(
        self, state: CycleState, placement: Placement, claims: list[ResourceClaim], special: Requests | None
    ) -> Placement | Reasons:
        """A special claim from an earlier attempt is used again where it still asks for the right thing."""
        leftover = state.leftover
        assert leftover is not None
        if special is None or not still_valid(leftover, special):
            return because("ClaimElsewhere", claim=leftover.key)
        own = claims[:-1]
        allocation = self._claims.allocation_of(leftover)
        wanted = own if allocation is not None else [*own, leftover]
        if wanted:
            verdict = self._allocate(state, placement.node, wanted)
            if not verdict.ok:
                self._raise_fatal(state, verdict)
                return _device_reasons(verdict)
            placement.results = list(verdict.results)
            if allocation is None:
                allocation = placement.results.pop()
        assert allocation is not None
        placement.special = Special(leftover, special, allocation)
        placement.special.name = leftover.metadata.name
        placement.leftover = leftover
        return placement

    def among(self, state: CycleState, names: Collection[str] | None, first: str = "") -> Placement | None:
        """The best of these nodes (None: of all) as things are just now, also in a trial; ``first`` before all others."""
        if first and (info := self._nodes.get(first)) is not None and isinstance(found := self.try_on(state, info), Placement):
            return found
        view = self._neighbours.view(state.pod, state.demand, state.profile) if state.view is not None else state.ranking
        plan = self.plan(state)
        found_on: list[tuple[Found, Placement]] = []
        for info in self._nodes.order:
            if names is not None and info.name not in names:
                continue
            placed = self.try_on(state, info)
            if isinstance(placed, Placement):
                judged = plan.devices(info) if plan.devices is not None else UNJUDGED
                found_on.append(((info, plan.examine(info), judged), placed))
        return self._best_of(plan, view, found_on) if found_on else None

    def devices_could_do(self, state: CycleState, info: NodeInfo) -> bool:
        """Whether the node's devices would do if nobody used any."""
        claims = self.claims_on(state, info)[0] if state.needs_devices else []
        return not claims or self._engine.could(info.name, claims)

    def try_on(self, state: CycleState, info: NodeInfo) -> Placement | Reasons:
        """The pod on this node as things are just now, without any cache of candidates."""
        reasons = self.plan(state).refuses(info)
        if reasons is None and state.view is not None:
            view = self._neighbours.view(state.pod, state.demand, state.profile)
            reasons = view.refuses(info) if view is not None else None
        if reasons is not None:
            return reasons
        try:
            return self._place(state, info)
        except NotPlaced as refused:
            return tuple(reason for reason, _ in refused.refusal.reasons)

    # --------------------------------------------------------------------------------------------------- other pods

    def _among_neighbours(self, state: CycleState) -> Placement:
        """Where other pods decide with it, nodes are looked at for this pod alone."""
        plan = self.plan(state)
        view = state.view
        assert view is not None
        tally = Tally()
        refusals: dict[str, Reasons] = {}
        infos = self._in_turn(plan)
        wanted = enough(len(infos), state.profile.percentage_of_nodes_to_score)
        found: list[tuple[Found, Placement]] = []
        for seen, info in enumerate(infos, 1):
            examined = plan.examine(info)
            reasons = examined[0] or view.refuses(info)
            if reasons is None:
                placed = self._place(state, info)
                if isinstance(placed, Placement):
                    found.append(((info, examined, plan.devices(info) if plan.devices is not None else UNJUDGED), placed))
                    if len(found) >= wanted or info.name == state.pod.status.nominated_node_name:
                        self._start = (self._start + seen) % max(len(self._nodes), 1)
                        break
                    continue
                reasons = placed
            tally.add(reasons)
            refusals[info.name] = reasons
        if not found:
            for reasons, count in plan.left_out(lambda name: self._nodes.get(name) is not None, len(self._nodes)):
                tally.add(reasons, count)
            raise self._refused(state, self._explained(state, tally.counts(), refusals))
        return self._best_of(plan, view, found)

    def _ranked(self, state: CycleState, ranking: View, candidates: Candidates) -> Placement | None:
        """The best node as the pods of the same workload rank the best few of each zone: what this costs does not grow
        with the number of nodes."""
        lanes = [candidates]
        if candidates.plan.names is None and not state.demand.volumes:
            lanes.extend(self._in_zone(state, candidates.plan, zone) for zone in ranking.emptiest(ZONE, _ZONES))
        names = {name: lane.judged(name) for lane in lanes for name in lane.top(_OF_EACH)}
        infos = [info for name in names if (info := self._nodes.get(name)) is not None]
        totals = totals_of(candidates.plan, ranking, [(info, candidates.plan.examine(info), names[info.name]) for info in infos])
        for index in sorted(range(len(infos)), key=lambda index: (-totals[index], turn(infos[index]))):
            placement = self._on(state, candidates, infos[index].name)
            if placement is not None:
                return placement
            for lane in lanes[1:]:
                lane.refuse(infos[index].name, _DEVICES)
        return None

    def _in_zone(self, state: CycleState, plan: Plan, zone: str) -> Candidates:
        key = (state.key, zone)
        found = self._kept.get(key)
        if found is None:
            found = self._kept[key] = Candidates(plan, self._nodes, self._wakeups, self._start, zone)
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        found.catch_up()
        return found

    def _in_turn(self, plan: Plan) -> list[NodeInfo]:
        if plan.names is not None:
            return [info for name in sorted(plan.names) if (info := self._nodes.get(name)) is not None]
        order = self._nodes.order
        start = self._start % max(len(order), 1)
        return [*order[start:], *order[:start]]

    def _best_of(self, plan: Plan, view: View | None, found: list[tuple[Found, Placement]]) -> Placement:
        totals = totals_of(plan, view, [each for each, _ in found])
        best = max(range(len(found)), key=lambda index: (totals[index], -turn(found[index][0][0])))
        return found[best][1]

    # ------------------------------------------------------------------------------------------------------- refusals

    def _refused(self, state: CycleState, counts: list[tuple[Reason, int]]) -> NotPlaced:
        if not len(self._nodes):
            refusal = Refusal.of("NoNodes")
        else:
            refusal = Refusal(tuple(counts), len(self._nodes))
        claims = [claim for claim in state.resolved.pinned if self._may_free(state, claim)]
        if state.leftover is not None:
            claims.append(state.leftover)
        refused = NotPlaced(state.key, refusal, events.events_for(refusal, self._claim_topics(state)), claims)
        refused.state = state
        return refused

    def _explained(
        self, state: CycleState, counts: list[tuple[Reason, int]], refusals: dict[str, Reasons]
    ) -> list[tuple[Reason, int]]:
        """Nodes whose devices do not suffice, told by what they lack; one node of each state is asked."""
        states: dict[int, list[str]] = {}
        inventory = self._engine.inventory
        for name, reasons in refusals.items():
            if reasons is _DEVICES and (view := inventory.view(name)) is not None:
                states.setdefault(inventory.state(view), []).append(name)
        tally = Tally()
        explained = 0
        for names in sorted(states.values(), key=len, reverse=True)[:_EXPLAINED]:
            info = self._nodes.get(names[0])
            if info is not None and (told := self._engine.explain(names[0], self.claims_on(state, info)[0]).reasons):
                tally.add(tuple(Reason(reason.code, "", reason.data) for reason in told), len(names))
                explained += len(names)
        generic = _DEVICES[0]
        kept = [(reason, count - explained if reason is generic else count) for reason, count in counts]
        return [*((reason, count) for reason, count in kept if count > 0), *tally.counts()]

    def _claim_topics(self, state: CycleState) -> frozenset[str]:
        found = [*state.resolved.all, state.leftover] if state.leftover is not None else state.resolved.all
        return frozenset(claim_topic(claim.key) for claim in found)

    def _may_free(self, state: CycleState, claim: ResourceClaim) -> bool:
        return claim.status.allocation is not None and all(
            consumer.uid == state.pod.uid for consumer in claim.status.reserved_for
        )

    def _check_volumes(self, state: CycleState) -> None:
        missing = self._volumes.missing(state.demand)
        if missing is not None:
            refusal = Refusal(tuple((reason, 0) for reason in missing))
            raise NotPlaced(state.pod.uid, refusal, events.events_for(refusal))

    def _check_classes(self, state: CycleState) -> None:
        for claim in state.resolved.open:
            for name, request in requests(claim):
                if request.device_class_name and self._world.get(DEVICE_CLASSES, request.device_class_name) is None:
                    refusal = Refusal.of(
                        "ClassMissing", f"claim/{claim.key}", request=name, **{"class": request.device_class_name}
                    )
                    raise NotPlaced(state.pod.uid, refusal, events.events_for(refusal, frozenset({claim_topic(claim.key)})))

    def _unusable(self, state: CycleState) -> NotPlaced:
        refusal = Refusal(tuple((reason, 0) for _, reason in state.unusable))
        free = [claim for claim, _ in state.unusable if self._may_free(state, claim) or claim is state.leftover]
        if state.failed:
            # Nobody can start with it, so it does not matter that others have reserved it too.
            free.extend(claim for claim, _ in state.unusable if claim not in free and not runs_with(claim, self._nodes))
        refused = NotPlaced(state.key, refusal, events.events_for(refusal, self._claim_topics(state)), free)
        refused.failed = state.failed
        return refused

    def _unusable_claim(self, state: CycleState, claim: ResourceClaim, now: float) -> tuple[ResourceClaim, Reason] | None:
        """A claim whose devices failed, never became ready, or are tainted, does not take new pods."""
        if self._conditions_on and claim.status.allocation is not None and conditions.waits(claim):
            verdict = conditions.judge(claim, now, conditions.deadline(claim, state.profile.binding_timeout, now))
            if verdict.readiness in ("failed", "timeout"):
                state.failed.extend(verdict.devices)
                return claim, conditions.reason_for(claim, verdict, state.profile.binding_timeout)
        if reserved_for(claim, state.pod.uid) or not self._taints_on:
            return None
        for result in state.resolved.allocations[claim.uid].devices.results:
            device = DeviceKey(result.driver, result.pool, result.device)
            for taint in self._engine.inventory.taints_now(device):
                if taint.effect in ("NoSchedule", "NoExecute") and not any(tolerates(t, taint) for t in result.tolerations):
                    data = {"device": str(device), "key": taint.key, "value": taint.value, "effect": taint.effect}
                    return claim, Reason("ClaimTainted", f"claim/{claim.key}", data)
        return None


def _device_reasons(verdict: Verdict) -> Reasons:
    return tuple(verdict.reasons) or _DEVICES


# Labels of the time that looking for devices takes.
_SUCCESS: Final = ("DynamicResources", "Filter", "Success")
_REFUSED: Final = ("DynamicResources", "Filter", "Unschedulable")
# Said for a node whose devices do not suffice until someone asks what is missing.
_DEVICES: Final = because("NotEnoughDevices")
# Different states of nodes that are looked into for a refusal.
_EXPLAINED: Final = 8
