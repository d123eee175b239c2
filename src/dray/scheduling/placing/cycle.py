"""One pod: which nodes will do, which is best, and what it gets there.

Always true: deciding changes nothing outside its own caches; the caller makes the decision count. Equal pods share one
set of candidates, so most pods cost one look at the best node. ``try_on`` and ``among`` read no candidates and
leave none behind; ``best`` in a trial is for those who let the logs follow it (``Books.follower``).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Hashable, Sequence
from typing import Final

from dray.api.core import PersistentVolumeClaim
from dray.api.reason import Reason
from dray.api.resource import AllocationResult, ResourceClaim
from dray.books.nodes import NodeInfo
from dray.scheduling.config import Profile
from dray.scheduling.parts import Parts
from dray.scheduling.placing.candidates import ZONE, Candidates, enough, turn
from dray.scheduling.placing.needs import Needs
from dray.scheduling.placing.plan import Found, Plan
from dray.scheduling.placing.refusal import Refusal, Tally
from dray.scheduling.placing.state import CycleState, NotPlaced, Placement
from dray.scheduling.plugins.base import Check, Plugin, Reasons, Signs, because
from dray.scheduling.plugins.devices import LACKING, DynamicResources, claim_topics
from dray.scheduling.plugins.neighbours import View
from dray.scheduling.plugins.volumes import Volumes
from dray.scheduling.shape.claims import claim_keys, runs_with
from dray.scheduling.waiting import events
from dray.scheduling.waiting.queue import QueuedPod

# Sets of candidates that are kept; each holds at most the nodes that were examined for it.
_KEPT: Final = 128
# Where pods of one workload only rank nodes: how many zones are compared, and how many nodes of each.
_ZONES: Final = 8
_OF_EACH: Final = 8


class Cycle:
    def __init__(
        self, parts: Parts, needs: Needs, plugins: Sequence[Plugin], volumes: Volumes, devices: DynamicResources
    ) -> None:
        self._nodes, self._queue, self._engine, self._wakeups = parts.nodes, parts.queue, parts.engine, parts.wakeups
        self._bindings = parts.binder.bindings
        self.needs, self.plugins, self._volumes, self.devices = needs, plugins, volumes, devices
        needs.signs.extend(plugin.sign for plugin in plugins if isinstance(plugin, Signs))
        self._kept: OrderedDict[Hashable, Candidates] = OrderedDict()
        self._start = self._scale = 0

    # -------------------------------------------------------------------------------------------------------- deciding

    def state(self, pending: QueuedPod, profile: Profile, now: float) -> CycleState:
        return self.needs.of(pending, profile, now)

    def decide(self, state: CycleState) -> Placement:
        """Where the pod goes; raises ``NotPlaced``."""
        self._share(state)
        return self.best(state)

    def best(self, state: CycleState) -> Placement:
        """The best node as things are just now, also in a trial, whoever waits for the same; raises ``NotPlaced``."""
        if state.unusable:
            raise self._unusable(state)
        if state.view is not None:
            return self._best_of_neighbours(state)
        placement = self._best_candidate(state)
        if placement is None:
            candidates = self.candidates(state)
            raise self._refused(state, candidates.refusals(), candidates.verdicts())
        return placement

    def found(self, state: CycleState) -> Placement | None:
        """As ``best``, for who does not ask why not: a refusal costs nothing then, nor does a broken request."""
        if state.unusable:
            return None
        try:
            return self._best_candidate(state) if state.view is None else self._among_neighbours(state, {})
        except NotPlaced:
            return None

    def _best_candidate(self, state: CycleState) -> Placement | None:
        """Where nodes are looked at for all pods that ask for the same. Raises ``NotPlaced`` where the request is broken."""
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
        return None

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
        if found is not None:
            self._kept.move_to_end(state.key)
            found.catch_up()
            return found
        plan = self.plan(state)
        found = Candidates(plan, self._nodes, self._wakeups, self._start)
        found.catch_up()
        self._start = found.next_start
        if state.needs_devices and state.leftover is None:
            # Raises where the request itself is broken: then nothing is kept, and the next pod hears the same.
            for name, reasons in self.devices.refusing(state, found.unasked(), self._nodes):
                found.refuse(name, reasons)
        # Volumes change without any node changing, so what was found out for them is not kept.
        if "volumes" not in plan.reads:
            self._keep(state.key, found)
        return found

    def _keep(self, key: Hashable, candidates: Candidates) -> None:
        self._kept[key] = candidates
        if len(self._kept) > _KEPT:
            self._kept.popitem(last=False)

    def kept(self, key: Hashable) -> Candidates | None:
        return self._kept.get(key)

    def forget_candidates(self) -> None:
        """Something that plans were made of changed."""
        self._kept.clear()
        self.devices.forget_all()

    def plan(self, state: CycleState) -> Plan:
        if state.plan is not None:
            state.plan.refresh()
        else:
            own = self.devices.of_claims(state)
            state.plan = Plan(state, self.plugins, self._nodes.state_of, own, state.within)
        return state.plan

    # ------------------------------------------------------------------------------------------------------ on one node

    def _on(self, state: CycleState, candidates: Candidates, name: str) -> Placement | None:
        """The pod on this node, or None (and why, in the candidates) when its devices will not do."""
        info = self._nodes.get(name)
        if info is None or not _allowed(state, name):
            return None
        found = candidates.plan.refuses(info) or self._place(state, info, candidates.plan)
        if isinstance(found, Placement):
            return found
        candidates.refuse(name, found)
        return None

    def _place(
        self, state: CycleState, info: NodeInfo, plan: Plan, results: Sequence[AllocationResult] | None = None
    ) -> Placement | Reasons:
        """On a node that will do but for volumes and devices; ``results``: what its claims get there, if that is known."""
        placement = Placement(state.key, info.name, state.resolved)
        if state.demand.volumes and (unbound := self._volumes.unbound(state.demand)):
            chosen = self._volumes.choose(unbound, info.node)
            if isinstance(chosen, PersistentVolumeClaim):
                return because("VolumeNodeAffinity", volume=chosen.key)
            placement.volumes, placement.provisioned = chosen
        if results is not None:
            placement.results = list(results)
        elif state.needs_devices and (refused := self.devices.place(state, info, placement)) is not None:
            return refused
        if plan.posts:
            placement.postings = [posting for posts in plan.posts for posting in posts(info)]
        if plan.notes:
            placement.notes = {name: text for notes in plan.notes for name, text in notes(info).items()}
        return placement

    def try_on(self, state: CycleState, info: NodeInfo, results: Sequence[AllocationResult] | None = None) -> Placement | Reasons:
        """The pod on this node as things are just now, without any cache of candidates; ``results``: what its open claims get
        there, where that was found already."""
        if state.unusable:
            return tuple(reason for _, reason in state.unusable)
        reasons = self.checks(state)(info)
        if reasons is not None:
            return reasons
        try:
            return self._place(state, info, self.plan(state), results)
        except NotPlaced as refused:
            return tuple(reason for reason, _ in refused.refusal.reasons)

    def checks(self, state: CycleState) -> Check:
        """Why a node will not do as things are just now, whatever its devices are and however volumes are chosen."""
        self._look_again(state)
        plan = self.plan(state)
        return lambda info: plan.refuses(info) if _allowed(state, info.name) else because("OutsideDomain")

    def _look_again(self, state: CycleState) -> None:
        """Other pods may be elsewhere than they were, and so have a say that they did not have, or none that they had."""
        before = state.view
        self.needs.look_around(state)
        if before is not None or state.view is not None:
            state.plan = None

    def among(self, state: CycleState, names: Collection[str] | None, first: str = "") -> Placement | None:
        """The best of these nodes (None: of all) as things are just now, also in a trial; ``first`` before all others."""
        if first and (info := self._nodes.get(first)) is not None and isinstance(found := self.try_on(state, info), Placement):
            return found
        found_on: list[tuple[Found, Placement]] = []
        for info in self._nodes.order:
            if names is None or info.name in names:
                placed = self.try_on(state, info)
                if isinstance(placed, Placement):
                    plan = self.plan(state)
                    found_on.append(((info, plan.examine(info), plan.judged(info)), placed))
        return self._best_of(self.plan(state), found_on) if found_on else None

    # --------------------------------------------------------------------------------------------------- other pods

    def _best_of_neighbours(self, state: CycleState) -> Placement:
        refusals: dict[str, Reasons] = {}
        placement = self._among_neighbours(state, refusals)
        if placement is not None:
            return placement
        tally = Tally()
        for reasons in refusals.values():
            tally.add(reasons)
        for reasons, count in self.plan(state).left_out(lambda name: self._nodes.get(name) is not None, len(self._nodes)):
            tally.add(reasons, count)
        raise self._refused(state, tally.counts(), refusals)

    def _among_neighbours(self, state: CycleState, refusals: dict[str, Reasons]) -> Placement | None:
        """Where other pods decide with it, nodes are looked at for this pod alone; what nodes say is put into ``refusals``."""
        plan = self.plan(state)
        infos = self._in_turn(plan)
        wanted = enough(len(infos), state.profile.percentage_of_nodes_to_score)
        found: list[tuple[Found, Placement]] = []
        for seen, info in enumerate(infos, 1):
            examined = plan.examine(info)
            reasons = examined[0]
            if reasons is None:
                placed = self._place(state, info, plan)
                if isinstance(placed, Placement):
                    found.append(((info, examined, plan.judged(info)), placed))
                    if len(found) >= wanted or info.name == state.pod.status.nominated_node_name:
                        self._start = (self._start + seen) % max(len(self._nodes), 1)
                        break
                    continue
                reasons = placed
            refusals[info.name] = reasons
        return self._best_of(plan, found) if found else None

    def _ranked(self, state: CycleState, ranking: View, candidates: Candidates) -> Placement | None:
        """The best node as the pods of the same workload rank the best few of each zone: what this costs does not grow
        with the number of nodes."""
        lanes = [candidates]
        if candidates.plan.names is None and not state.demand.volumes:
            lanes.extend(self._in_zone(state, candidates.plan, zone) for zone in ranking.emptiest(ZONE, _ZONES))
        names = {name: lane.judged(name) for lane in lanes for name in lane.top(_OF_EACH)}
        infos = [info for name in names if (info := self._nodes.get(name)) is not None]
        comparing = [("PodTopologySpread", state.profile.weight_of("PodTopologySpread"), ranking.spread_scores)]
        plan = candidates.plan
        totals = plan.totals([(info, plan.examine(info), names[info.name]) for info in infos], comparing)
        for index in sorted(range(len(infos)), key=lambda index: (-totals[index], turn(infos[index]))):
            placement = self._on(state, candidates, infos[index].name)
            if placement is not None:
                return placement
            for lane in lanes[1:]:
                lane.refuse(infos[index].name, LACKING)
        return None

    def _in_zone(self, state: CycleState, plan: Plan, zone: str) -> Candidates:
        key = (state.key, zone)
        found = self._kept.get(key)
        if found is None:
            found = Candidates(plan, self._nodes, self._wakeups, self._start, zone)
            self._keep(key, found)
        self._kept.move_to_end(key)
        found.catch_up()
        return found

    def _in_turn(self, plan: Plan) -> list[NodeInfo]:
        if plan.names is not None:
            return [info for name in sorted(plan.names) if (info := self._nodes.get(name)) is not None]
        order = self._nodes.order
        start = self._start % max(len(order), 1)
        return [*order[start:], *order[:start]]

    def _best_of(self, plan: Plan, found: list[tuple[Found, Placement]]) -> Placement:
        totals = plan.totals([each for each, _ in found])
        best = max(range(len(found)), key=lambda index: (totals[index], -turn(found[index][0][0])))
        return found[best][1]

    # ------------------------------------------------------------------------------------------------------- refusals

    def _refused(self, state: CycleState, counts: list[tuple[Reason, int]], refusals: dict[str, Reasons]) -> NotPlaced:
        if len(self._nodes):
            explained = self.devices.explained(state, counts, refusals, self._nodes)
            refusal = Refusal(tuple(explained), len(self._nodes), tuple(claim_keys(state.pod)))
        else:
            refusal = Refusal.of("NoNodes")
        claims = [claim for claim in state.resolved.pinned if self._may_free(state, claim)]
        if state.leftover is not None:
            claims.append(state.leftover)
        refused = NotPlaced(state.key, refusal, events.events_for(refusal, claim_topics(state)), claims)
        refused.state = state
        return refused

    def _may_free(self, state: CycleState, claim: ResourceClaim) -> bool:
        alone = all(consumer.uid == state.pod.uid for consumer in claim.status.reserved_for)
        return claim.status.allocation is not None and alone

    def _stays(self, claim: ResourceClaim) -> bool:
        return runs_with(claim, self._nodes) or self._bindings.binds_with(claim)

    def _unusable(self, state: CycleState) -> NotPlaced:
        refusal = Refusal(tuple((reason, 0) for _, reason in state.unusable))
        free = [claim for claim, _ in state.unusable if self._may_free(state, claim) or claim is state.leftover]
        if state.failed:
            # Nobody can start with it, so it does not matter that others have reserved it too.
            free.extend(claim for claim, _ in state.unusable if claim not in free and not self._stays(claim))
        refused = NotPlaced(state.key, refusal, events.events_for(refusal, claim_topics(state)), free)
        refused.failed = state.failed
        return refused


def _allowed(state: CycleState, node: str) -> bool:
    return state.within is None or node in state.within
