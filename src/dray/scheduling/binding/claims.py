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
from dray.api.kinds import PODS, RESOURCE_CLAIMS
from dray.api.meta import OwnerReference
from dray.api.resource import FINALIZER, AllocationResult, ResourceClaim
from dray.api.times import format_time
from dray.cluster.port import ClusterError, Conflict, NotFound, Outcome, Unreachable, Write
from dray.cluster.world import World
from dray.scheduling.shape.claims import reserved_for
from dray.scheduling.shape.extended import is_special, owner_uid

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
        "shown",
        "uid",
        "writing",
    )

    def __init__(self, claim: ResourceClaim) -> None:
        self.key = claim.key
        self.uid = claim.uid
        self.allocation: AllocationResult | None = None
        # Whether the API has shown it: if it shows none after that, somebody took it away, and it is free for others.
        self.shown = False
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


class Deletion:
    """A special claim on its way out: the finalizer first, then the claim, as upstream does it."""

    __slots__ = ("about", "claim", "ended", "not_before", "unprotected", "writing")

    def __init__(self, claim: ResourceClaim, about: str) -> None:
        self.claim = claim
        self.about = about
        self.unprotected = FINALIZER not in claim.metadata.finalizers
        self.ended = False
        self.writing: Write | None = None
        self.not_before = 0.0


class ClaimWriter:
    """All claim work, by claim key. ``lost`` is told the pods whose decision no longer holds, ``reserved`` those that
    have their claim."""

    def __init__(
        self,
        world: World,
        stamps: bool,
        reserved: Callable[[str, str, float], None],
        lost: Callable[[str, str, ClusterError | None, float], None],
        release: Callable[[str], None],
        ours: Callable[[Pod], bool],
    ) -> None:
        self._world = world
        self._stamps = stamps
        self._work: dict[str, ClaimWork] = {}
        self._dirty: dict[str, None] = {}
        # Special claims that are being deleted from here, by uid: nothing is decided on them any more.
        self.deleting: dict[str, Deletion] = {}
        # Claims, by uid, whose decision was crossed by another scheduler's allocation: it is not written, or taken back.
        self.contested: set[str] = set()
        self._specials = world.index(RESOURCE_CLAIMS, owner_uid)
        self._reserved, self._lost, self._release, self._ours = reserved, lost, release, ours

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
        times = [work.retry_at if work.retry_version else work.not_before for work in ready if work.writing is None]
        times += [going.not_before for going in self.deleting.values() if going.writing is None and not going.ended]
        return min(times, default=None)

    # ------------------------------------------------------------------------------------------------------- deciding

    def allocate(self, claim: ResourceClaim, allocation: AllocationResult, pod: Pod, now: float) -> None:
        if self._stamps:
            allocation = msgspec.structs.replace(allocation, allocation_timestamp=format_time(now))
        work = self._for(claim)
        work.allocation, work.shown = allocation, False
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

    def delete(self, claim: ResourceClaim, about: str) -> None:
        """Let a claim go that the scheduler made; what was decided for it does not count any more."""
        work = self._work.get(claim.key)
        if work is not None and work.uid == claim.uid:
            work.reservers.clear()
            self._drop_unused(work)
            self._work.pop(work.key, None)
            self._dirty.pop(work.key, None)
        self.deleting.setdefault(claim.uid, Deletion(claim, about))

    def keep_only(self, pod: Pod, name: str) -> None:
        """The pod is bound with this special claim, or without any: one that was made for it besides is of no use."""
        for key in self._specials[pod.uid]:
            claim: ResourceClaim | None = self._world.get(RESOURCE_CLAIMS, key)
            if claim is not None and claim.metadata.name != name and (not claim.metadata.deletion_timestamp or _stuck(claim)):
                self.delete(claim, pod.key)

    def gone(self, uid: str) -> None:
        """The API shows the claim no more."""
        self.deleting.pop(uid, None)

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
                # What was done for another claim a moment ago may have settled this one.
                self._dirty.pop(key, None)
                continue
            if work.writing is not None or work.not_before > now:
                continue
            claim: ResourceClaim | None = self._world.get(RESOURCE_CLAIMS, key)
            if claim is None or claim.uid != work.uid:
                self._fail_all(work, now)
                continue
            if claim.metadata.deletion_timestamp is not None and work.reservers:
                self._fail_deleted(work, now)
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
        return [*made, *self._deletions(now)]

    def _deletions(self, now: float) -> list[Write]:
        due = [going for going in self.deleting.values() if going.writing is None and not going.ended and going.not_before <= now]
        for going in due:
            going.writing = self._deletes(going)
        return [going.writing for going in due if going.writing is not None]

    def _deletes(self, going: Deletion) -> Write:
        known: ResourceClaim | None = self._world.get(RESOURCE_CLAIMS, going.claim.key)
        claim = known if known is not None and known.uid == going.claim.uid else going.claim
        if not going.unprotected:
            others = [name for name in claim.metadata.finalizers if name != FINALIZER]
            return _patch(claim, {"metadata": {"finalizers": others or None}}, going.about)
        metadata = claim.metadata
        return Write("delete", RESOURCE_CLAIMS, metadata.namespace, metadata.name, uid=claim.uid, about=going.about)

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
        unprotected = bool(work.reservers) and FINALIZER not in claim.metadata.finalizers
        written = claim.status.allocation is not None or work.allocation is None
        if written and not missing and not leaving and not unprotected:
            self._settle(work, now)
            return None
        about = missing[0].key if missing else claim.key
        if unprotected:
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
        if claim.status.allocation is None:
            return work.shown
        return not same_allocation(claim.status.allocation, work.allocation)

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

    def _fail_deleted(self, work: ClaimWork, now: float) -> None:
        """The claim is being deleted: nobody gets it any more, and it goes when all have let it go."""
        leaving = list(work.leaving)
        self._fail_all(work, now)
        for uid in leaving:
            self.unreserve(work.key, uid)

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
        going = self.deleting.get(outcome.write.uid)
        if going is not None and going.writing is outcome.write:
            self._deletion_ended(going, outcome, now)
            return
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

    def _deletion_ended(self, going: Deletion, outcome: Outcome, now: float) -> None:
        going.writing = None
        if isinstance(outcome.error, NotFound):
            going.ended = True
        elif isinstance(outcome.error, Conflict | Unreachable):
            going.not_before = now + RETRY_AFTER
        elif outcome.error is not None:
            # It may not be deleted: then it is used again.
            del self.deleting[going.claim.uid]
        elif outcome.write.verb == "delete":
            going.ended = True
            self._unstick(going)
        else:
            going.unprotected = True

    def _unstick(self, going: Deletion) -> None:
        """A finalizer that came back before the claim was deleted keeps it: once more."""
        claim: ResourceClaim | None = self._world.get(RESOURCE_CLAIMS, going.claim.key)
        if claim is not None and claim.uid == going.claim.uid and _stuck(claim):
            going.ended = going.unprotected = False

    def touched(self, key: str) -> None:
        """The claim changed in the API."""
        claim: ResourceClaim | None = self._world.get(RESOURCE_CLAIMS, key)
        work = self._work.get(key)
        if work is not None:
            self._dirty[key] = None
            work.shown = work.shown or (claim is not None and claim.uid == work.uid and claim.status.allocation is not None)
        owner = claim.metadata.controller if claim is not None and is_special(claim) else None
        if claim is None or owner is None:
            return
        going = self.deleting.get(claim.uid)
        if going is None:
            self._too_late(claim, owner)
        elif going.ended:
            self._unstick(going)

    def _too_late(self, claim: ResourceClaim, owner: OwnerReference) -> None:
        """A create without an answer may show only when its pod is bound with another claim; and one that somebody deleted
        goes, unless its pod runs with it."""
        pod: Pod | None = self._world.get(PODS, f"{claim.metadata.namespace}/{owner.name}")
        if pod is None or pod.uid != owner.uid or not self._ours(pod):
            return
        if not pod.spec.node_name:
            if _stuck(claim) and claim.key not in self._work:
                self.delete(claim, pod.key)
        else:
            named = pod.status.extended_resource_claim_status
            self.keep_only(pod, named.resource_claim_name if named is not None else "")


def _stuck(claim: ResourceClaim) -> bool:
    """Whether only the finalizer keeps it that Dray put there."""
    return claim.metadata.deletion_timestamp is not None and FINALIZER in claim.metadata.finalizers


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
