"""Devices of claims and of extended resources: which the pod gets on a node, what they are worth, and why not.

Always true: asking changes nothing; the caller makes what was found count. A claim of an earlier attempt is used again where
it still asks for the right thing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from dray.api.core import NodeSelector
from dray.api.reason import Reason
from dray.api.resource import UNMADE, ResourceClaim
from dray.api.selectors import node_selector_matches
from dray.api.words import of_one_node, of_several
from dray.books.nodes import NodeInfo, Nodes
from dray.devices import Verdict
from dray.devices.demand import Limit
from dray.devices.inventory import OPTIONAL_OPERATIONS
from dray.scheduling.binding.crossed import crossed
from dray.scheduling.parts import Parts
from dray.scheduling.placing.refusal import Refusal, Tally
from dray.scheduling.placing.state import CycleState, NotPlaced, Placement
from dray.scheduling.plugins.base import Compiled, PodShape, Reasons, because, codes_of
from dray.scheduling.plugins.device_scoring import DeviceScorer
from dray.scheduling.plugins.node import names_in
from dray.scheduling.shape.claims import claim_topic
from dray.scheduling.shape.extended import (
    Requests,
    Special,
    as_asked,
    by_devices,
    requests_for,
    special_claim,
    still_valid,
    wanted_names,
)
from dray.scheduling.waiting import events

# Labels of the time that looking for devices takes.
_SUCCESS: Final = ("DynamicResources", "Filter", "Success")
_REFUSED: Final = ("DynamicResources", "Filter", "Unschedulable")
# Said for a node whose devices do not suffice until someone asks what is missing.
LACKING: Final = because("NotEnoughDevices")
# Different states of nodes that are looked into for a refusal.
_EXPLAINED: Final = 8
_ELSEWHERE: Final = because("ClaimElsewhere")
_OPERATIONS: Final = because("NodeOperationsUnsupported")


class DynamicResources:
    name = "DynamicResources"
    codes = codes_of(name)

    def __init__(self, parts: Parts) -> None:
        self._engine, self._meter = parts.engine, parts.meter
        self._classes, self._claims, self._intents = parts.classes, parts.claims, parts.claims.intents
        self._extended = parts.gates("DRAExtendedResource")
        self.scorer = DeviceScorer(parts.engine)
        self._requests: dict[tuple[int, frozenset[str]], Requests] = {}
        self._wanted: dict[int, frozenset[str]] = {}
        # Where zones matter: from which devices of a node a pod should have its own, the best first, and why it gets none
        # where it must have them from one of these.
        self.limits: Callable[[CycleState, NodeInfo], tuple[Sequence[Limit], Reasons | None]] = lambda state, info: ((), None)

    # -------------------------------------------------------------------------------------------------- what is needed

    def add_extended(self, state: CycleState) -> None:
        """The extended resources that devices provide, and a claim for them that an earlier attempt left."""
        if not self._extended:
            return
        demand = state.demand
        names = self._wanted.get(demand.id)
        if names is None:
            names = self._wanted[demand.id] = wanted_names(demand.spec, self._classes)
        state.names = names
        leftover = state.leftover = self.leftover(state.pending.uid)
        if leftover is not None:
            reason = crossed(self._engine, leftover)
            if reason is None and not names:
                reason = Reason("ClaimElsewhere", f"claim/{leftover.key}")
            if reason is not None:
                state.unusable = ((leftover, reason),)

    def leftover(self, uid: str) -> ResourceClaim | None:
        """The claim for its extended resources that an earlier attempt left to this pod."""
        return next(self._claims.made_for(uid), None) if self._extended else None

    def packs(self, state: CycleState) -> bool:
        """Whether the devices of nodes are compared, and packed. A claim of an earlier attempt has its devices already."""
        return self._compares(state) and state.profile.device_scoring == "Packing"

    def _compares(self, state: CycleState) -> bool:
        return state.needs_devices and state.leftover is None and self.scorer.wanted(state.resolved.open, state.profile)

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

    def forget(self, demands: set[int]) -> None:
        """Only these demands are still in use."""
        self._wanted = {number: names for number, names in self._wanted.items() if number in demands}
        self._requests = {key: found for key, found in self._requests.items() if key[0] in demands}

    def forget_all(self) -> None:
        self._requests.clear()
        self._wanted.clear()

    # -------------------------------------------------------------------------------------------------------- compiled

    def compile(self, shape: PodShape) -> Compiled | None:
        assert isinstance(shape, CycleState)
        if not self._compares(shape):
            return None
        judge = self.scorer.judge(shape.profile, shape.resolved.open, self._claims_of(shape), refusal_of)
        return Compiled([], judge=judge)

    def _claims_of(self, shape: CycleState) -> Callable[[NodeInfo], list[ResourceClaim]]:
        """The claims by node; made once for all nodes that leave the same resources to devices."""
        if not shape.names:
            return lambda info: shape.resolved.open
        made: dict[frozenset[str], list[ResourceClaim]] = {}

        def on(info: NodeInfo) -> list[ResourceClaim]:
            names = by_devices(shape.names, info)
            found = made.get(names)
            if found is None:
                found = made[names] = self.claims_on(shape, info)[0]
            return found

        return on

    def of_claims(self, state: CycleState) -> list[Compiled]:
        """What claims that are allocated already ask of a node, and what a named special claim does."""
        made: list[Compiled] = []
        if state.named:
            refusal = because("ClaimNamed", claim=state.named)
            # The API server does not let go of the name, and the kubelet would look for the claim.
            made.append(Compiled(["labels"], check=lambda info: None if by_devices(state.names, info) else refusal))
        selectors = self._selectors(state)
        if selectors:
            names = None
            for selector in selectors:
                found = names_in(selector)
                names = found if names is None else names if found is None else names & found
            made.append(Compiled(["labels"], check=lambda info: _on_others(selectors, info), names=names))
        if any(r.skip_node_operations for a in state.resolved.allocations.values() for r in a.devices.results):
            made.append(Compiled(check=lambda i: None if OPTIONAL_OPERATIONS in i.node.status.declared_features else _OPERATIONS))
        return made

    def _selectors(self, state: CycleState) -> list[NodeSelector]:
        selectors = state.resolved.selectors
        allocation = state.leftover.status.allocation if state.leftover is not None else None
        if allocation is not None and allocation.node_selector is not None:
            selectors.append(allocation.node_selector)
        return selectors

    # ----------------------------------------------------------------------------------------------------- on one node

    def place(self, state: CycleState, info: NodeInfo, placement: Placement) -> Reasons | None:
        """Put into the placement what the pod gets there; or why it gets nothing."""
        claims, special = self.claims_on(state, info)
        if state.leftover is not None:
            return self._reuse(state, info, placement, claims, special)
        if not claims:
            return None
        verdict = self._allocate(state, info, claims)
        if not verdict.ok:
            self.raise_fatal(state, verdict)
            return refusal_of(verdict)
        placement.results = list(verdict.results)
        placement.because = self.scorer.told(verdict, state.profile)
        if special is not None:
            placement.special = Special(claims[-1], special, placement.results.pop())
        return None

    def _reuse(
        self, state: CycleState, info: NodeInfo, placement: Placement, claims: list[ResourceClaim], special: Requests | None
    ) -> Reasons | None:
        leftover = state.leftover
        assert leftover is not None
        if special is None or not still_valid(leftover, special):
            return because("ClaimElsewhere", claim=leftover.key)
        own = claims[:-1]
        allocation = self._intents.allocation_of(leftover)
        wanted = own if allocation is not None else [*own, leftover]
        if wanted:
            verdict = self._allocate(state, info, wanted)
            if not verdict.ok:
                self.raise_fatal(state, verdict)
                return refusal_of(verdict)
            placement.results = list(verdict.results)
            if allocation is None:
                allocation = placement.results.pop()
        assert allocation is not None
        placement.special = Special(leftover, special, allocation)
        placement.special.name = leftover.metadata.name
        placement.leftover = leftover
        return None

    def _allocate(self, state: CycleState, info: NodeInfo, claims: list[ResourceClaim]) -> Verdict:
        started = self._meter.seconds()
        order = self.scorer.order(state.profile)
        limits, required = self.limits(state, info)
        verdict: Verdict | None = None
        if limits:
            tried = (self._engine.allocate(info.name, claims, order, within) for within in limits)
            verdict = next((each for each in tried if each.ok), None)
        if verdict is None:
            verdict = self._engine.allocate(info.name, claims, order)
            if verdict.ok and required is not None:
                verdict = Verdict(False, node_error=True, reasons=required)
        took = self._meter.seconds() - started
        self._meter.observe("scheduler_plugin_execution_duration_seconds", took, _SUCCESS if verdict.ok else _REFUSED)
        return verdict

    def could(self, state: CycleState, info: NodeInfo) -> bool:
        """Whether the node's devices would do if nobody used any."""
        claims = self.claims_on(state, info)[0] if state.needs_devices else []
        return not claims or self._engine.could(info.name, claims)

    # ---------------------------------------------------------------------------------------------------- on many nodes

    def refusing(self, state: CycleState, names: list[str], nodes: Nodes) -> Iterator[tuple[str, Reasons]]:
        """The nodes whose devices will not do, as upstream asks all of them: an error that concerns the request itself is
        found wherever it shows. Nodes in the same state answer once."""
        for claims, alike in self._by_claims(state, names, nodes):
            for name, verdict in self._engine.refusing(alike, claims):
                self.raise_fatal(state, verdict)
                yield name, refusal_of(verdict)

    def _by_claims(self, state: CycleState, names: list[str], nodes: Nodes) -> list[tuple[list[ResourceClaim], list[str]]]:
        """The nodes by what is to be allocated there: which resources are left to devices differs from node to node."""
        if not state.names:
            return [(state.resolved.open, names)]
        found: dict[frozenset[str], tuple[list[ResourceClaim], list[str]]] = {}
        for info in filter(None, map(nodes.get, names)):
            key = by_devices(state.names, info)
            if key not in found:
                found[key] = (self.claims_on(state, info)[0], [])
            found[key][1].append(info.name)
        return [each for each in found.values() if each[0]]

    def raise_fatal(self, state: CycleState, verdict: Verdict) -> None:
        """An error that does not depend on the node: trying others would say the same. One of the special claim does: a node
        with a device plugin needs no such claim."""
        if verdict.error and not verdict.node_error and not _of_special(state, verdict):
            reasons = tuple(verdict.reasons) or (Reason("InvalidRequest", "", {"error": verdict.error}),)
            refusal = Refusal(tuple((reason, 0) for reason in reasons))
            also = claim_topics(state) | {events.DEVICES, events.CLASSES}
            raise NotPlaced(state.key, refusal, events.events_for(refusal, also))

    def explained(
        self, state: CycleState, counts: list[tuple[Reason, int]], refusals: dict[str, Reasons], nodes: Nodes
    ) -> list[tuple[Reason, int]]:
        """Nodes whose devices do not suffice, told by what they lack; one node of each state is asked."""
        states: dict[int, list[str]] = {}
        inventory = self._engine.inventory
        for name, reasons in refusals.items():
            if reasons is LACKING and (view := inventory.view(name)) is not None:
                states.setdefault(inventory.state(view), []).append(name)
        tally = Tally()
        explained = 0
        for names in sorted(states.values(), key=len, reverse=True)[:_EXPLAINED]:
            info = nodes.get(names[0])
            if info is not None and (told := self._engine.explain(names[0], self.claims_on(state, info)[0]).reasons):
                # Nodes in the same state lack the same, but what is named of one is not there on the others.
                each = told if len(names) == 1 else [of_several(reason) for reason in told]
                tally.add(tuple(Reason(reason.code, "", reason.data) for reason in of_one_node(each)), len(names))
                explained += len(names)
        generic = LACKING[0]
        kept = [(reason, count - explained if reason is generic else count) for reason, count in counts]
        return self._as_asked(state, [*((reason, count) for reason, count in kept if count > 0), *tally.counts()])

    def _as_asked(self, state: CycleState, counts: list[tuple[Reason, int]]) -> list[tuple[Reason, int]]:
        if not state.names:
            return counts
        made = [found for (demand, _), found in self._requests.items() if demand == state.demand.id]
        return [(as_asked(reason, made), count) for reason, count in counts]


def claim_topics(state: CycleState) -> frozenset[str]:
    found = [*state.resolved.all, state.leftover] if state.leftover is not None else state.resolved.all
    return frozenset(claim_topic(claim.key) for claim in found)


def _of_special(state: CycleState, verdict: Verdict) -> bool:
    key = f"{state.pod.metadata.namespace}/{UNMADE}" if state.leftover is None else state.leftover.key
    return bool(state.names) and any(reason.object == f"claim/{key}" for reason in verdict.reasons)


def refusal_of(verdict: Verdict) -> Reasons:
    return tuple(verdict.reasons) or LACKING


def _on_others(selectors: list[NodeSelector], info: NodeInfo) -> Reasons | None:
    return None if all(node_selector_matches(selector, info.node) for selector in selectors) else _ELSEWHERE
