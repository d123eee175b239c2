"""Nobody overtakes by evicting: in a queue, who asks for no less than one before it for whom no room could be made waits too.

Always true: only jobs of one queue with as many pods that wait, which may be on the same nodes, are compared, by what these pods
ask of nodes. Jobs with claims, with volumes, or with pods that have to be near to each other or to others are compared with none.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import msgspec

from dray.books.demand import Demand
from dray.scheduling.workloads.jobs import Job

Requests = dict[str, int]


class Overtaking:
    """The least that was asked for in vain, and by whom, in one action of a session."""

    def __init__(self) -> None:
        self._least: dict[Hashable, tuple[list[Requests], Job]] = {}
        self._nodes: dict[int, bytes] = {}

    def behind(self, job: Job) -> Job | None:
        """Whom the job would overtake."""
        demands = _waiting(job)
        known = self._least.get(self._key(job, demands)) if demands is not None else None
        if demands is None or known is None or any(map(_less, _sorted(demands), known[0])):
            return None
        return known[1]

    def failed(self, job: Job) -> None:
        """No room could be made for the job."""
        demands = _waiting(job)
        if demands is not None:
            key, asked = self._key(job, demands), _sorted(demands)
            known = self._least.get(key)
            if known is None or all(map(_at_most, asked, known[0])):
                self._least[key] = asked, job

    def _key(self, job: Job, demands: Sequence[Demand]) -> Hashable:
        return job.queue, tuple(sorted(map(self._where, demands)))

    def _where(self, demand: Demand) -> bytes:
        """What decides which nodes will do, beside amounts; and the priority that the pod itself has."""
        known = self._nodes.get(demand.id)
        if known is None:
            rules = demand.priority, demand.node_selector, demand.affinity, demand.tolerations, demand.spread, demand.ports
            known = self._nodes[demand.id] = msgspec.msgpack.encode(rules, order="deterministic")
        return known


def _waiting(job: Job) -> list[Demand] | None:
    """Of its pods that wait; None if they cannot be compared with those of others."""
    pending = [each for each in job.waiting.values() if not each.nominated]
    demands = [each.demand for each in pending]
    alone = not job.root.constrained and not any(each.pod.spec.resource_claims for each in pending)
    near = any(each.volumes or each.affinity.pod_affinity or each.affinity.pod_anti_affinity for each in demands)
    return demands if alone and not near else None


def _sorted(demands: Sequence[Demand]) -> list[Requests]:
    return sorted(map(dict, (each.requests for each in demands)), key=lambda each: sorted(each.items(), reverse=True))


def _less(one: Requests, other: Requests) -> bool:
    """Of something, and no more of anything."""
    return _at_most(one, other) and not _at_most(other, one)


def _at_most(one: Requests, other: Requests) -> bool:
    return all(value <= other.get(name, 0) for name, value in one.items())
