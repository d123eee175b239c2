"""Claims on their way into the API: what was decided for each, and the writes that make it true.

Always true: a claim has at most one write under way, and every write carries the resourceVersion of what it was decided on;
so a claim that someone else changed is decided on again and never has two owners. Pods that share a claim are reserved
by one write.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from dray.api.core import Pod
from dray.api.kinds import RESOURCE_CLAIMS
from dray.api.resource import FINALIZER, AllocationResult, ResourceClaim
from dray.api.times import format_time
from dray.cluster.port import ClusterError, Conflict, NotFound, Outcome, Unreachable, Write
from dray.cluster.world import World
from dray.scheduling.resolution import reserved_for

RETRY_AFTER = 1.0


class ClaimWork:
    """What is to become of one claim. ``allocation`` is set while it is decided here and not yet in the API."""

    __slots__ = (
        "allocation",
        "clear",
        "drop",
        "key",
        "leaving",
        "not_before",
        "reservers",
        "retry_at",
        "retry_version",
        "uid",
        "writing",
    )

    def __init__(self, claim: ResourceClaim) -> None:
        self.key = claim.key
        self.uid = claim.uid
        self.allocation: AllocationResult | None = None
        self.reservers: dict[str, Pod] = {}
        self.leaving: set[str] = set()
        self.clear = False
        # Clear the allocation too when those that leave were the last.
        self.drop = False
        self.writing: Write | None = None
        self.not_before = 0.0
        # After a conflict: the version that was refused. It is tried again when another one is seen, or after a while,
        # because a server may refuse for a reason that no watch event follows.
        self.retry_version = ""
        self.retry_at = 0.0

    @property
    def idle(self) -> bool:
        return not (self.reservers or self.leaving or self.clear or self.writing is not None)


class ClaimDesk:
    """All claim work, by claim key. ``lost`` is told the pods whose decision no longer holds, ``reserved`` those that
    have their claim."""

    def __init__(
        self,
        world: World,
        stamps: bool,
        reserved: Callable[[str, str, float], None],
        lost: Callable[[str, str, ClusterError | None, float], None],
        release: Callable[[str], None],
    ) -> None:
        self._world = world
        self._stamps = stamps
        self._work: dict[str, ClaimWork] = {}
        self._dirty: dict[str, None] = {}
        # Special claims that are being deleted from here, by uid: nothing is decided on them any more.
        self.deleting: set[str] = set()
        # Claims, by uid, whose decision was crossed by another scheduler's allocation: it is not written, or taken back.
        self.contested: set[str] = set()
        self._reserved, self._lost, self._release = reserved, lost, release

    # -------------------------------------------------------------------------------------------------------- reading

    def allocation_of(self, claim: ResourceClaim) -> AllocationResult | None:
        """As the API has it, or as it was decided a moment ago."""
        if claim.status.allocation is not None:
            work = self._work.get(claim.key)
            return None if work is not None and work.clear else claim.status.allocation
        work = self._work.get(claim.key)
        return work.allocation if work is not None and work.uid == claim.uid else None

    def consumers(self, claim: ResourceClaim) -> int:
        """How many pods have the claim or are about to."""
        work = self._work.get(claim.key)
        joining = sum(not reserved_for(claim, uid) for uid in work.reservers) if work is not None else 0
        return len(claim.status.reserved_for) + joining

    def joining(self, claim: ResourceClaim) -> set[str]:
        """Pods that are about to have the claim, as far as the API does not show it yet."""
        work = self._work.get(claim.key)
        return set(work.reservers) if work is not None else set()

    def clearing(self, key: str) -> bool:
        work = self._work.get(key)
        return work is not None and work.clear

    def next_due(self) -> float | None:
        ready = (work for key in self._dirty if (work := self._work.get(key)) is not None)
        return min(
            (work.retry_at if work.retry_version else work.not_before for work in ready if work.writing is None), default=None
        )

    # ------------------------------------------------------------------------------------------------------- deciding

    def allocate(self, claim: ResourceClaim, allocation: AllocationResult, pod: Pod, now: float) -> None:
        if self._stamps:
            allocation = msgspec.structs.replace(allocation, allocation_timestamp=format_time(now))
        work = self._for(claim)
        work.allocation = allocation
        self._want(work, pod)

    def reserve(self, claim: ResourceClaim, pod: Pod) -> None:
        self._want(self._for(claim), pod)

    def unreserve(self, key: str, uid: str, *, gone: bool = False) -> None:
        """The pod does not need the claim after all; a reservation that is written, or may be, is taken back. The
        allocation stays, as upstream leaves it, unless the pod is gone and nobody else uses the claim."""
        work = self._work.get(key)
        claim = self._world.get(RESOURCE_CLAIMS, key)
        known = claim is not None and reserved_for(claim, uid)
        if work is None and not known:
            return
        if work is None:
            assert claim is not None
            work = self._for(claim)
        work.reservers.pop(uid, None)
        work.drop = work.drop or gone
        if known or work.writing is not None:
            work.leaving.add(uid)
        self._drop_unused(work)
        self._dirty[key] = None
        self._tidy(work)

    def let_go(self, key: str, uid: str) -> None:
        """Nothing more is done here for this pod; what is written for it stays."""
        work = self._work.get(key)
        if work is not None:
            work.reservers.pop(uid, None)
            self._drop_unused(work)
            self._tidy(work)

    def deallocate(self, claim: ResourceClaim) -> None:
        """Clear the allocation with everything that hangs on it."""
        self._for(claim).clear = True
        self._dirty[claim.key] = None

    def _want(self, work: ClaimWork, pod: Pod) -> None:
        work.drop = False
        work.reservers[pod.uid] = pod
        work.leaving.discard(pod.uid)
        self._dirty[work.key] = None

    def _for(self, claim: ResourceClaim) -> ClaimWork:
        work = self._work.get(claim.key)
        if work is None or work.uid != claim.uid:
            work = self._work[claim.key] = ClaimWork(claim)
        return work

    # -------------------------------------------------------------------------------------------------------- writing

    def writes(self, now: float) -> list[Write]:
        made: list[Write] = []
        for key in list(self._dirty):
            work = self._work.get(key)
            if work is None:
                del self._dirty[key]
                continue
            if work.writing is not None or work.not_before > now:
                continue
            claim: ResourceClaim | None = self._world.get(RESOURCE_CLAIMS, key)
            if claim is None or claim.uid != work.uid or claim.metadata.deletion_timestamp is not None:
                self._fail_all(work, now)
                continue
            if work.retry_version and claim.metadata.resource_version == work.retry_version and now < work.retry_at:
                continue
            work.retry_version = ""
            write = self._next(work, claim, now)
            if write is None:
                self._dirty.pop(key, None)
            else:
                work.writing = write
                made.append(write)
        return made

    def _next(self, work: ClaimWork, claim: ResourceClaim, now: float) -> Write | None:
        """The next write that brings the API closer to what was decided; None when there is nothing left."""
        if work.clear and claim.status.allocation is not None:
            body = {"status": {"allocation": None, "reservedFor": None, "devices": None}}
            return _patch(claim, body, claim.key, "status")
        work.clear = False
        if work.drop and not work.reservers and all(consumer.uid in work.leaving for consumer in claim.status.reserved_for):
            work.drop = False
            if claim.status.allocation is not None:
                work.clear = True
                return self._next(work, claim, now)
        if work.uid in self.contested:
            return self._yield(work, claim, now)
        if self._outdated(work, claim):
            self._fail_all(work, now)
            return None
        missing = [pod for uid, pod in work.reservers.items() if not reserved_for(claim, uid)]
        leaving = [consumer.uid for consumer in claim.status.reserved_for if consumer.uid in work.leaving]
        if not missing and not leaving and (claim.status.allocation is not None or work.allocation is None):
            self._settle(work, now)
            return None
        about = missing[0].key if missing else claim.key
        if missing and FINALIZER not in claim.metadata.finalizers:
            finalizers = [*claim.metadata.finalizers, FINALIZER]
            return _patch(claim, {"metadata": {"finalizers": finalizers}}, about)
        status: dict[str, Any] = {}
        if claim.status.allocation is None and work.allocation is not None:
            status["allocation"] = _plain(work.allocation)
        kept = [_plain(c) for c in claim.status.reserved_for if c.uid not in leaving]
        added = [{"resource": "pods", "name": pod.metadata.name, "uid": pod.uid} for pod in missing]
        status["reservedFor"] = [*kept, *added]
        return _patch(claim, {"status": status}, about, "status")

    def _yield(self, work: ClaimWork, claim: ResourceClaim, now: float) -> Write | None:
        """Somebody else has what was decided for this claim. Where it is written already, and for our pods only, it is
        cleared again."""
        self.contested.discard(work.uid)
        written = claim.status.allocation is not None
        ours = all(consumer.uid in work.reservers for consumer in claim.status.reserved_for)
        if not written or not ours:
            self._fail_all(work, now)
            return None
        pods, work.reservers, work.allocation, work.clear = list(work.reservers), {}, None, True
        for uid in pods:
            self._lost(uid, work.key, None, now)
        return self._next(work, claim, now)

    def _outdated(self, work: ClaimWork, claim: ResourceClaim) -> bool:
        """Someone else allocated what we wanted to allocate, or took the allocation that we counted on."""
        if not work.reservers:
            return False
        if work.allocation is None:
            return claim.status.allocation is None
        return claim.status.allocation is not None and not same_allocation(claim.status.allocation, work.allocation)

    def _settle(self, work: ClaimWork, now: float) -> None:
        """The API shows what was decided."""
        pods = list(work.reservers)
        work.reservers.clear()
        work.leaving.clear()
        work.allocation = None
        self._tidy(work)
        for uid in pods:
            self._reserved(uid, work.key, now)

    def _fail_all(self, work: ClaimWork, now: float, error: ClusterError | None = None) -> None:
        """What was decided cannot be: because of an error, or because the claim is another one now."""
        pods = list(work.reservers)
        self.contested.discard(work.uid)
        work.reservers.clear()
        work.clear = False
        self._drop_unused(work)
        self._work.pop(work.key, None)
        self._dirty.pop(work.key, None)
        for uid in pods:
            self._lost(uid, work.key, error, now)

    def _drop_unused(self, work: ClaimWork) -> None:
        """An allocation that nobody wants any more is not written; what it held is free again."""
        if work.allocation is None or work.reservers or work.writing is not None:
            return
        work.allocation = None
        claim: ResourceClaim | None = self._world.get(RESOURCE_CLAIMS, work.key)
        if claim is None or claim.uid != work.uid or claim.status.allocation is None:
            self._release(work.uid)

    def _tidy(self, work: ClaimWork) -> None:
        if work.idle:
            self.contested.discard(work.uid)
            self._work.pop(work.key, None)
            self._dirty.pop(work.key, None)

    # -------------------------------------------------------------------------------------------------------- outcomes

    def observe(self, outcome: Outcome, now: float) -> None:
        if outcome.write.verb == "delete" and not outcome.ok:
            self.deleting.discard(outcome.write.uid)
        work = self._work.get(outcome.write.key)
        if work is None or work.writing is not outcome.write:
            return
        work.writing = None
        self._dirty[work.key] = None
        error = outcome.error
        if error is None:
            self._drop_unused(work)
        elif isinstance(error, Conflict):
            work.retry_version, work.retry_at = outcome.write.resource_version, now + RETRY_AFTER
        elif isinstance(error, NotFound):
            self._fail_all(work, now)
        elif isinstance(error, Unreachable):
            # It may have happened: what the watch shows next decides.
            work.not_before = now + RETRY_AFTER
        else:
            self._fail_all(work, now, error)

    def touched(self, key: str) -> None:
        """The claim changed in the API."""
        if key in self._work:
            self._dirty[key] = None


def _plain(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def same_allocation(a: AllocationResult, b: AllocationResult) -> bool:
    """Whether both name the same devices for the same requests."""
    return [(r.request, r.driver, r.pool, r.device, r.share_id) for r in a.devices.results] == [
        (r.request, r.driver, r.pool, r.device, r.share_id) for r in b.devices.results
    ]


def _patch(claim: ResourceClaim, body: dict[str, Any], about: str, subresource: str = "") -> Write:
    return Write(
        "patch",
        RESOURCE_CLAIMS,
        claim.metadata.namespace,
        claim.metadata.name,
        body,
        subresource,
        uid=claim.uid,
        resource_version=claim.metadata.resource_version,
        about=about,
    )
