"""One way to ask: would this pod fit, where, why not on that node, what would this change do. Nothing is changed by asking.

The scheduler's own functions answer, on its own books: ``dray why``, the comparison of nodes, simulations and previews say
what the scheduler would decide because it is the same decision, made in a trial that is not kept.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable
from typing import Final, NamedTuple

from dray.api.codes import CODES
from dray.api.consumers import claims_of
from dray.api.core import NodeSelectorRequirement, NodeSelectorTerm, Pod
from dray.api.kinds import PODS, RESOURCE_CLAIMS
from dray.api.reason import Reason
from dray.api.resource import DeviceKey
from dray.api.selectors import SelectorError, node_selector_matches, node_term_matches
from dray.api.times import parse_time
from dray.books.nodes import NodeInfo
from dray.devices import Explanation
from dray.devices.explain import Outlines
from dray.scheduling.actions.preemption import Eviction
from dray.scheduling.config import Profile
from dray.scheduling.placing.state import CycleState, NotPlaced, Placement
from dray.scheduling.plugins.base import Reasons
from dray.scheduling.plugins.node import names_in
from dray.scheduling.plugins.numa import NUMA, told
from dray.scheduling.plugins.resources import readable
from dray.scheduling.scheduler import Scheduler
from dray.scheduling.shape.extended import as_asked, by_devices
from dray.scheduling.waiting.queue import QueuedPod
from dray.scheduling.workloads.session import Session

_LOWEST_PRIORITY: Final = -(1 << 31)


class Answer(NamedTuple):
    """What one node says: nothing where it would do, else reasons with their numbers; ``devices`` has the details where devices
    decide."""

    node: str
    reasons: list[Reason]
    devices: Explanation | None = None


class _Known:
    """What nodes share while nothing changes: the devices that would do, those that will not, and what is said of these."""

    def __init__(self) -> None:
        self.would: set[Hashable] = set()
        self.lacking: set[Hashable] = set()
        self.outlines: Outlines = {}


class Ask:
    """Questions to a scheduler that was told everything. ``profile``: for pods whose scheduler has none here."""

    def __init__(self, scheduler: Scheduler, now: float, profile: Profile | None = None) -> None:
        self.scheduler, self._now = scheduler, now
        scheduler.engine.advance(now)
        self._profile = profile
        # Who was waited for long enough by a scheduler that runs is not waited for here.
        scheduler.zones.due(now)

    def profile(self, pod: Pod) -> Profile:
        known = self.scheduler.config.by_name.get(pod.spec.scheduler_name)
        return known or self._profile or Profile(scheduler_name=pod.spec.scheduler_name or "default-scheduler")

    def state(self, pod: Pod) -> CycleState:
        """What the pod needs now; raises ``NotPlaced`` for what keeps it from every node."""
        pending = self.scheduler.queue.get(pod.uid) or QueuedPod(pod, self.scheduler.demands.of(pod), self._now)
        return self.scheduler.cycle.state(pending, self.profile(pod), self._now)

    def changed(self, pod: Pod) -> CycleState:
        """What the pod would need if it were written like this; raises ``NotPlaced`` as ``state`` does."""
        return self.scheduler.cycle.state(QueuedPod(pod, self.scheduler.demands.of(pod), self._now), self.profile(pod), self._now)

    def would_do(self, state: CycleState, name: str) -> bool:
        """Whether the node takes the pod. An error that concerns the request, whatever the node, is a no."""
        info = self.scheduler.nodes.get(name)
        try:
            return info is not None and isinstance(self.on(state, info), Placement)
        except NotPlaced:
            return False

    def room(self, state: CycleState, name: str, staying: Container[str]) -> Eviction | None:
        """The fewest pods that would have to leave the node, the least important ones, whoever they are, but for ``staying``."""
        info = self.scheduler.nodes.get(name)
        found = info.pods.values() if info is not None else ()
        others = [placed for placed in found if placed.pod.uid != state.pod.uid and placed.pod.uid not in staying]
        if info is None or not others:
            return None
        try:
            return self.scheduler.preemptor.preemption.room(state, info, others)
        except NotPlaced:
            return None

    def evicts(self, state: CycleState) -> Eviction | None:
        """Whom the scheduler would evict for the pod, if it may evict anybody."""
        if not state.profile.preempts or state.demand.preemption_policy == "Never":
            return None
        try:
            return self.scheduler.preemptor.preemption.find(state)
        except NotPlaced:
            return None

    # ------------------------------------------------------------------------------------------------------------ where

    def on(self, state: CycleState, info: NodeInfo) -> Placement | Reasons:
        """What the pod would get on this node, or why nothing."""
        return self.scheduler.cycle.try_on(state, info)

    def would(self, state: CycleState) -> Placement | None:
        """Where the pod would go, and with which devices."""
        if state.unusable:
            return None
        return self.scheduler.cycle.among(state, None, state.pod.status.nominated_node_name)

    def decide(self, pod: Pod) -> Placement | None:
        """What is decided when it is the pod's turn, quickly for many pods that are alike. Of a scheduler that nobody runs."""
        pending = self.scheduler.queue.get(pod.uid) or QueuedPod(pod, self.scheduler.demands.of(pod), self._now)
        try:
            return self.scheduler.preemptor.decide(pending, self.profile(pod), self._now)
        except NotPlaced:
            return None

    def broken(self, state: CycleState) -> list[Reason]:
        """Why the request itself is wrong, on whichever node that shows: then the pod gets none, though others would do."""
        cycle, nodes = self.scheduler.cycle, self.scheduler.nodes
        if not state.needs_devices or state.leftover is not None:
            return []
        plan = cycle.plan(state)
        try:
            for _ in cycle.devices.refusing(state, [info.name for info in nodes if plan.refuses(info) is None], nodes):
                pass
        except NotPlaced as refused:
            return [reason for reason, _ in refused.refusal.reasons]
        return []

    def answers(self, state: CycleState) -> list[Answer]:
        """Every node's answer, by name. Where devices decide, those of nodes that differ in names only are looked at once."""
        check, known = self.scheduler.cycle.checks(state), _Known()
        found = []
        for info in sorted(self.scheduler.nodes, key=lambda info: info.name):
            refused = check(info)
            found.append(self._refused(state, info, refused) if refused is not None else self._answer(state, info, known))
        return found

    def _refused(self, state: CycleState, info: NodeInfo, reasons: Reasons) -> Answer:
        return Answer(info.name, [self._of_zones(with_numbers(reason, state, info), state, info) for reason in reasons])

    def _answer(self, state: CycleState, info: NodeInfo, known: _Known) -> Answer:
        """Of a node that will do but for its devices and for volumes."""
        alike = self._devices_of(state, info)
        said: Reasons = ()
        if alike not in known.lacking:
            found = self.on(state, info) if alike not in known.would else None
            if found is None or isinstance(found, Placement):
                known.would.add(alike)
                return Answer(info.name, [])
            said = found
        if not state.needs_devices:
            return self._refused(state, info, said)
        claims, special = self.scheduler.cycle.devices.claims_on(state, info)
        told = self.scheduler.engine.explain(info.name, claims, known.outlines)
        if told.reasons:
            known.lacking.add(alike)
        reasons = told.reasons or self._refused(state, info, said).reasons
        made = [special] if special is not None else []
        return Answer(info.name, [as_asked(reason, made) for reason in reasons], told)

    def _devices_of(self, state: CycleState, info: NodeInfo) -> Hashable:
        """Nodes of which this is equal, and that nothing else refuses, all take the pod or none does."""
        inventory = self.scheduler.engine.inventory
        view = inventory.view(info.name)
        if view is None or state.demand.volumes or state.leftover is not None:
            return info.name  # more than devices and zones would have to be equal
        return by_devices(state.names, info), inventory.state(view), self.scheduler.zones.stamp(info)

    def _of_zones(self, reason: Reason, state: CycleState, info: NodeInfo) -> Reason:
        """With the zones that come nearest, and who has them."""
        if reason.code not in NUMA.codes:
            return reason
        zones = self.scheduler.zones
        return told(zones, zones.asked(state.pod, state.demand), info, reason)

    # ------------------------------------------------------------------------------------------------------ what if

    def survey(self) -> Session:
        """What a session of queues and gangs begins with, where pods that none decides on have what they are promised."""
        workloads = self.scheduler.workloads
        workloads.know()
        self.count_promises({uid for job in workloads.jobs for uid in job.pods})
        return workloads.survey(self._now)

    def leaving(self, state: CycleState) -> Eviction | None:
        """The pods that are leaving already the node for which the pod is nominated, if that makes enough room."""
        node = state.pod.status.nominated_node_name
        return self.scheduler.preemptor.preemption.under_way(state, node) if node else None

    def count_rests(self, failed: Iterable[str]) -> None:
        """Devices (``driver/pool/name``) that failed a short while ago are the last choice: a scheduler that has just been told
        everything does not know of them."""
        for device in failed:
            self.scheduler.parts.rests.rest(DeviceKey.parse(device), self._now)

    def count_promises(self, beside: Container[str] = (), priority: int = _LOWEST_PRIORITY) -> None:
        """What is promised to pods that wait for others to leave is not for pods of lower priority; what those have that wait for
        their devices is for nobody, unless they are driven out. A scheduler that has just been told everything works that out
        from the nodes that pods are nominated for."""
        scheduler = self.scheduler
        for other in list(scheduler.world.all(PODS).values()):
            name = other.status.nominated_node_name
            if not name or other.spec.node_name or other.uid in beside or other.metadata.deletion_timestamp is not None:
                continue
            pending = scheduler.queue.get(other.uid) or QueuedPod(other, scheduler.demands.of(other), self._now)
            info = scheduler.nodes.get(name)
            counts = pending.demand.priority >= priority or bool(scheduler.preemptor.preemption.claims(other.uid))
            if info is not None and not other.terminal and counts:
                scheduler.preemptor.assume(pending, info, self.profile(other), self._now)
                if (since := self._allocated_at(other)) is not None:
                    scheduler.zones.wait_for(since, [other.uid])
        scheduler.zones.due(self._now)

    def _allocated_at(self, pod: Pod) -> float | None:
        """When the last of its claims got the devices that the pod waits for."""
        claims = (self.scheduler.world.get(RESOURCE_CLAIMS, key) for key in claims_of(pod))
        found = [claim.status.allocation for claim in claims if claim is not None and claim.status.allocation is not None]
        stamps = [each.allocation_timestamp for each in found if each.allocation_timestamp]
        return max(map(parse_time, stamps), default=None)


def with_numbers(reason: Reason, state: CycleState, info: NodeInfo) -> Reason:
    """Shared refusals carry no numbers; here they are for this node."""
    data = dict(reason.data)
    if reason.code == "ResourcesInsufficient":
        name = str(data["resource"])
        data["needed"] = readable(name, dict(state.demand.requests).get(name, 0))
        data["free"] = readable(name, info.free(name))
        data["total"] = readable(name, info.allocatable.get(name, 0))
    if reason.code == "TooManyPods":
        data["limit"] = info.allowed_pods
    if reason.code == "NodeSelectorMismatch" and (found := unmatched(state, info)) is not None:
        data["requirement"] = requirement(found)
    if reason.code == "TopologySpread" and str(data["topologyKey"]) not in info.node.metadata.labels:
        data["label"] = data["topologyKey"]
    if reason.code == "ClaimElsewhere":
        data |= _elsewhere(state, info)
    of_pod = CODES[reason.code].subject == "pod"  # what is wrong with the pod is not said of a node
    return Reason(reason.code, reason.object or ("" if of_pod else f"node/{info.name}"), data)


def unmatched(state: CycleState, info: NodeInfo) -> NodeSelectorRequirement | None:
    """The first requirement of the pod's node selector or affinity that the node does not meet; of several terms, one of the
    term that comes nearest."""
    labels = info.node.metadata.labels
    for key, value in sorted(state.demand.node_selector.items()):
        if labels.get(key) != value:
            return NodeSelectorRequirement(key, "In", (value,))
    affinity = state.demand.affinity.node_affinity
    for selector in (affinity.required if affinity is not None else None, state.profile.added_affinity.required):
        if selector is None:
            continue
        failing = [[r for r in _requirements(term) if not _meets(term, r, info)] for term in selector.node_selector_terms]
        if failing and all(failing):
            return min(failing, key=len)[0]
    return None


def requirement(found: NodeSelectorRequirement) -> str:
    """As people write it: ``zone=a``, ``zone in (a, b)``, ``zone exists``."""
    values = ", ".join(found.values)
    match found.operator:
        case "In":
            return f"{found.key}={values}" if len(found.values) == 1 else f"{found.key} in ({values})"
        case "NotIn":
            return f"{found.key}!={values}" if len(found.values) == 1 else f"{found.key} not in ({values})"
        case "Gt" | "Lt":
            return f"{found.key} {'>' if found.operator == 'Gt' else '<'} {values}"
        case "Exists":
            return f"{found.key} exists"
        case _:
            return f"no {found.key}"


def _requirements(term: NodeSelectorTerm) -> tuple[NodeSelectorRequirement, ...]:
    return (*term.match_expressions, *term.match_fields)


def _meets(term: NodeSelectorTerm, one: NodeSelectorRequirement, info: NodeInfo) -> bool:
    alone = NodeSelectorTerm(match_fields=(one,)) if one in term.match_fields else NodeSelectorTerm(match_expressions=(one,))
    try:
        return node_term_matches(alone, info.node)
    except SelectorError:
        return False


def _elsewhere(state: CycleState, info: NodeInfo) -> dict[str, str]:
    """Which claim keeps the pod from the node, and where it is allocated."""
    held = [(claim, state.resolved.allocations[claim.uid].node_selector) for claim in state.resolved.pinned]
    if state.leftover is not None and state.leftover.status.allocation is not None:
        held.append((state.leftover, state.leftover.status.allocation.node_selector))
    for claim, selector in held:
        if selector is not None and not node_selector_matches(selector, info.node):
            terms = [", ".join(map(requirement, _requirements(term))) for term in selector.node_selector_terms]
            names = names_in(selector)
            return {"claim": claim.key, "nodes": ", ".join(sorted(names)) if names is not None else " or ".join(terms)}
    return {}
