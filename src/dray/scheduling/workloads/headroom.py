"""What a queue has left for a pod whose claims can be satisfied in more than one way.

Always true: only what would exceed a limit (or, where room is made for a queue, its share) is left out, and what the other
members of the attempt need at least is kept for them. Claims that are certain to take what they take are never looked at.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from dray.api.resource import ResourceClaim
from dray.books.nodes import Nodes
from dray.queues.tree import UNLIMITED
from dray.scheduling.placing.needs import Needs
from dray.scheduling.placing.state import CycleState
from dray.scheduling.waiting.queue import QueuedPod
from dray.scheduling.workloads.asked import Amounts, Asked, add, together
from dray.scheduling.workloads.jobs import Job, Jobs
from dray.scheduling.workloads.use import QueueUse


class Headroom:
    def __init__(self, jobs: Jobs, use: QueueUse, nodes: Nodes, needs: Needs) -> None:
        self._jobs, self._use, self._nodes, self._needs = jobs, use, nodes, needs
        self._members: Sequence[QueuedPod] = ()
        self._share: Mapping[str, float] = {}

    def begin(self, members: Sequence[QueuedPod], share: Mapping[str, float] | None = None) -> None:
        """An attempt to place these together; their queue is to keep to its ``share``, if that is given."""
        self._members, self._share = members, share or {}

    def narrow(self, state: CycleState, pending: QueuedPod) -> frozenset[str] | None:
        """Leaves the pod only the alternatives that its queue has room for; answers the nodes that will do, or None for all."""
        job, asked = self._jobs.of(pending.uid), self._jobs.asks(pending.pod, pending.demand)
        if job is None or not asked.between or job.queue not in self._jobs.tree.queues:
            return None
        room = self._room(job, pending, asked)
        if not room:
            return None
        nodes: frozenset[str] | None = None
        changed: dict[str, ResourceClaim] = {}
        for claim in state.resolved.open:
            if claim.uid in asked.between:
                own = _less(room, asked, claim.uid)
                changed[claim.uid] = self._jobs.devices.narrowed(claim, own)
                within = self._jobs.devices.nodes_within(changed[claim.uid], own)
                nodes = within if nodes is None or within is None else nodes & within
        self._needs.narrow(state, changed)
        return nodes

    def _room(self, job: Job, pending: QueuedPod, asked: Asked) -> Amounts:
        """By resource what is left for the pod, of those that it may take and that are limited."""
        names = dict.fromkeys(name for _, most in asked.between.values() for name in most)
        waiting = [each for each in self._members if each is not pending and self._nodes.placed(each.uid) is None]
        asking = [(each.pod, self._jobs.asks(each.pod, each.demand)) for each in waiting]
        others = together((each.least for _, each in asking), self._use.paid(asking))
        found = {name: self._left(job, name) - others.get(name, 0.0) for name in names}
        return {name: value for name, value in found.items() if value != math.inf}

    def _left(self, job: Job, name: str) -> float:
        left = math.inf
        for queue in self._jobs.tree.upwards(job.queue):
            entitled = queue.of(name)
            held, fixed = self._use.allocated[queue.name].get(name, 0.0), self._use.fixed[queue.name].get(name, 0.0)
            if not entitled.binds:
                continue
            if entitled.limit != UNLIMITED:
                left = min(left, entitled.limit - held)
            if not job.preemptible and entitled.quota != UNLIMITED:
                left = min(left, entitled.quota - fixed)
            if queue.name == job.queue and name in self._share:
                left = min(left, self._share[name] - held)
        return left


def _less(room: Amounts, asked: Asked, claim: str) -> Amounts:
    """What is left for one claim when the others of its pod get their least."""
    others = asked.least
    taken: Amounts = {}
    for uid, amounts in others.claims.items():
        if uid != claim:
            add(taken, amounts)
    return {name: value - taken.get(name, 0.0) for name, value in room.items()}
