"""Nobody overtakes by evicting: in a queue, who asks for no less than one before it for whom no room could be made waits too.

Always true: only jobs of one queue with as many pods that wait, which may be on the same nodes, are compared, by what these pods
ask of nodes, and by how many devices of the same kind their claims ask for. Jobs whose claims have devices already, or leave open
how many they get, with volumes, or with pods that have to be near to each other or to others are compared with none. Where nodes
publish zones, more may fit where less does not: there only jobs of which kubelets align the same are compared.
"""

from __future__ import annotations

from collections.abc import Hashable

import msgspec

from dray.api.kinds import RESOURCE_CLAIMS
from dray.api.resource import ResourceClaim
from dray.numa.demand import demand as aligned
from dray.numa.evaluate import EVALUATORS
from dray.scheduling.parts import Parts
from dray.scheduling.shape.claims import claim_keys
from dray.scheduling.waiting.queue import QueuedPod
from dray.scheduling.workloads.jobs import Job

Requests = dict[str, int]


class Overtaking:
    """The least that was asked for in vain, and by whom, in one action of a session."""

    def __init__(self, parts: Parts) -> None:
        self._world = parts.world
        self._zoned = any(tally.state.layout.policy in EVALUATORS for tally in parts.zones.tallies.values())
        self._least: dict[Hashable, tuple[list[Requests], Job]] = {}
        self._nodes: dict[int, bytes] = {}

    def behind(self, job: Job) -> Job | None:
        """Whom the job would overtake."""
        asked = self._asked(job)
        known = self._least.get(self._key(job)) if asked is not None else None
        if asked is None or known is None or any(map(_less, asked, known[0])):
            return None
        return known[1]

    def failed(self, job: Job) -> None:
        """No room could be made for the job."""
        if (asked := self._asked(job)) is not None:
            key = self._key(job)
            known = self._least.get(key)
            if known is None or all(map(_at_most, asked, known[0])):
                self._least[key] = asked, job

    def _key(self, job: Job) -> Hashable:
        return job.queue, tuple(sorted(self._where(each) for each in _waiting(job)))

    def _where(self, pending: QueuedPod) -> bytes:
        """What decides which nodes will do, beside amounts; and the priority that the pod itself has."""
        demand = pending.demand
        known = self._nodes.get(demand.id)
        if known is None:
            zones = aligned(pending.pod) if self._zoned else None
            rules = demand.priority, demand.node_selector, demand.affinity, demand.tolerations, demand.spread, demand.ports, zones
            known = self._nodes[demand.id] = msgspec.msgpack.encode(rules, order="deterministic")
        return known

    def _asked(self, job: Job) -> list[Requests] | None:
        """Of its pods that wait; None if they cannot be compared with those of others."""
        pending = _waiting(job)
        demands = [each.demand for each in pending]
        near = any(each.volumes or each.affinity.pod_affinity or each.affinity.pod_anti_affinity for each in demands)
        if near or job.root.constrained:
            return None
        seen, found = set[str](), list[Requests]()
        for each in pending:
            devices = self._devices(each, seen) if each.pod.spec.resource_claims else {}
            if devices is None:
                return None
            found.append(dict(each.demand.requests) | devices)
        return sorted(found, key=lambda each: sorted(each.items(), reverse=True))

    def _devices(self, pending: QueuedPod, seen: set[str]) -> Requests | None:
        """By kind, of the claims that others of the job do not ask for already."""
        keys, found = claim_keys(pending.pod), Requests()
        if len(keys) < len(pending.pod.spec.resource_claims):
            return None
        for key in keys:
            claim: ResourceClaim | None = self._world.get(RESOURCE_CLAIMS, key)
            counts = _counts(claim) if claim is not None else None
            if counts is None:
                return None
            for kind, count in counts if key not in seen else ():
                found[kind] = found.get(kind, 0) + count
            seen.add(key)
        return found


def _waiting(job: Job) -> list[QueuedPod]:
    return [each for each in job.waiting.values() if not each.nominated]


def _counts(claim: ResourceClaim) -> list[tuple[str, int]] | None:
    """How many devices of which kind the claim asks for, where that is all there is to it."""
    devices, found = claim.spec.devices, list[tuple[str, int]]()
    if claim.status.allocation is not None or devices.constraints:
        return None
    for request in devices.requests:
        exactly = request.exactly
        if exactly is None or exactly.allocation_mode == "All" or exactly.admin_access:
            return None
        kind = msgspec.json.encode(msgspec.structs.replace(exactly, count=0), order="deterministic").decode()
        found.append((kind, max(1, exactly.count)))
    return found


def _less(one: Requests, other: Requests) -> bool:
    """Of something, and no more of anything."""
    return _at_most(one, other) and not _at_most(other, one)


def _at_most(one: Requests, other: Requests) -> bool:
    return all(value <= other.get(name, 0) for name, value in one.items())
