"""One way to ask: would this pod fit, where, why not on that node, what would this change do. Nothing is changed by asking.

The scheduler's own functions answer, on its own books: ``dray why``, the comparison of nodes, simulations and previews say
what the scheduler would decide because it is the same decision, made in a trial that is not kept.
"""

from __future__ import annotations

from typing import NamedTuple

from dray.api.core import Pod
from dray.api.kinds import PODS
from dray.api.reason import Reason
from dray.books.nodes import NodeInfo
from dray.devices import Explanation
from dray.scheduling.actions.preemption import Eviction
from dray.scheduling.config import Profile
from dray.scheduling.placing.state import CycleState, Placement
from dray.scheduling.plugins.base import Reasons
from dray.scheduling.plugins.resources import readable
from dray.scheduling.scheduler import Scheduler
from dray.scheduling.waiting.queue import QueuedPod


class Answer(NamedTuple):
    """What one node says: a placement, or reasons with their numbers; ``devices`` has the details where devices decide."""

    node: str
    placement: Placement | None
    reasons: list[Reason]
    devices: Explanation | None = None


class Ask:
    """Questions to a scheduler that was told everything. ``profile``: for pods whose scheduler has none here."""

    def __init__(self, scheduler: Scheduler, now: float, profile: Profile | None = None) -> None:
        self.scheduler, self._now = scheduler, now
        self._profile = profile

    def profile(self, pod: Pod) -> Profile:
        known = self.scheduler.config.by_name.get(pod.spec.scheduler_name)
        return known or self._profile or Profile(scheduler_name=pod.spec.scheduler_name or "default-scheduler")

    def state(self, pod: Pod) -> CycleState:
        """What the pod needs now; raises ``NotPlaced`` for what keeps it from every node."""
        pending = self.scheduler.queue.get(pod.uid) or QueuedPod(pod, self.scheduler.demands.of(pod), self._now)
        return self.scheduler.cycle.state(pending, self.profile(pod), self._now)

    # ------------------------------------------------------------------------------------------------------------ where

    def on(self, state: CycleState, info: NodeInfo) -> Placement | Reasons:
        """What the pod would get on this node, or why nothing."""
        return self.scheduler.cycle.try_on(state, info)

    def would(self, state: CycleState) -> Placement | None:
        """Where the pod would go, and with which devices."""
        if state.unusable:
            return None
        return self.scheduler.cycle.among(state, None, state.pod.status.nominated_node_name)

    def answers(self, state: CycleState) -> list[Answer]:
        """Every node's answer, by name."""
        return [self.answer(state, info) for info in sorted(self.scheduler.nodes, key=lambda info: info.name)]

    def answer(self, state: CycleState, info: NodeInfo) -> Answer:
        found = self.on(state, info)
        if isinstance(found, Placement):
            return Answer(info.name, found, [])
        reasons = [with_numbers(reason, state, info) for reason in found]
        if self.scheduler.cycle.plan(state).refuses(info) is not None or not state.needs_devices or state.leftover is not None:
            return Answer(info.name, None, reasons)
        claims = self.scheduler.cycle.devices.claims_on(state, info)[0]
        told = self.scheduler.engine.explain(info.name, claims)
        return Answer(info.name, None, list(told.reasons) or reasons, told)

    # ------------------------------------------------------------------------------------------------------ what if

    def evictions(self, state: CycleState) -> Eviction | None:
        """Who would be evicted for the pod, where it fits nowhere as things are."""
        return self.scheduler.preemptor.preemption.find(state)

    def leaving(self, state: CycleState) -> Eviction | None:
        """The pods that are leaving already the node for which the pod is nominated, if that makes enough room."""
        node = state.pod.status.nominated_node_name
        return self.scheduler.preemptor.preemption.under_way(state, node) if node else None

    def count_promises(self, priority: int, beside: str) -> None:
        """What is promised to pods that wait for others to leave is not for pods of lower priority. A scheduler that has just
        been told everything works that out from the nodes that pods are nominated for."""
        scheduler = self.scheduler
        for other in list(scheduler.world.all(PODS).values()):
            name = other.status.nominated_node_name
            if not name or other.spec.node_name or other.uid == beside or other.metadata.deletion_timestamp is not None:
                continue
            pending = scheduler.queue.get(other.uid) or QueuedPod(other, scheduler.demands.of(other), self._now)
            info = scheduler.nodes.get(name)
            if info is not None and not other.terminal and pending.demand.priority >= priority:
                scheduler.preemptor.assume(pending, info, self.profile(other), self._now)


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
    return Reason(reason.code, reason.object or f"node/{info.name}", data)
