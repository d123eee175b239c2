"""Claims on their way into the API: what is to become of each, and the writes that make it true.

Always true: what a claim counts for in the books is worked out from three things and from nothing else: what the API shows,
what was sent and may still come true, and what is decided. So nothing counts as free that may yet be written. A claim has
at most one write under way, and every write carries the version of what it was decided on; a claim that someone else
changed is decided on again. Pods that share a claim are reserved by one write. Where other schedulers give out devices too, a
claim is written only when the watch has come that far: of two allocations that crossed, the later one is taken back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from dray.api.core import Pod
from dray.api.kinds import PODS, RESOURCE_CLAIMS
from dray.api.meta import OwnerReference
from dray.api.resource import FINALIZER, AllocationResult, ResourceClaim
from dray.api.times import format_time
from dray.books.journal import Standing
from dray.cluster.port import ClusterError, Conflict, NotFound, Outcome, Unreachable, Write
from dray.cluster.world import World
from dray.devices import Devices
from dray.scheduling.binding.intents import Intent, Intents, accounted, same_allocation
from dray.scheduling.shape.claims import reserved_for
from dray.scheduling.shape.extended import Special, asks_for_devices, is_special, owner_uid

RETRY_AFTER: Final = 1.0
_RETRY_AT_MOST: Final = 60.0
# A write without an answer can come true for this long: as long as an API server works on a request.
_DOUBTFUL: Final = 60.0
# When it is looked again whether the watch has come to what was written.
_SEEN_AFTER: Final = 0.01
_OTHERS: Final = "others"


class Settled(NamedTuple):
    """News for the binding of a pod: its claim is written, or (``lost``) what was decided for it cannot be."""

    pod: str
    claim: str
    lost: bool = False
    error: ClusterError | None = None


class ClaimWriter:
    """Makes intents true. What it has to tell bindings is in ``news``."""

    def __init__(self, world: World, engine: Devices, schedulers: frozenset[str], *, stamps: bool) -> None:
        self._world, self._engine, self._schedulers, self._stamps = world, engine, schedulers, stamps
        # Whether a pod has a node or is on its way to one: its claim stays, whatever the watch has told of the pod.
        self.has_node: Callable[[str], bool] = lambda uid: False
        self.intents = Intents(world)
        # Claims to look at now, and those that rest until a time; one with a write under way is in neither.
        self._dirty: dict[str, None] = {}
        self._resting: dict[str, float] = {}
        self.news: list[Settled] = []
        self._contested_unmade: set[str] = set()
        self._specials = world.index(RESOURCE_CLAIMS, owner_uid)
        # Pods with devices that other schedulers place: those allocate too, at the same time as we do.
        self._of_others = world.index(PODS, self._placed_by_others)

    # -------------------------------------------------------------------------------------------------------- reading

    def take_news(self) -> list[Settled]:
        news, self.news = self.news, []
        return news

    def next_due(self) -> float | None:
        return 0.0 if self._dirty else min(self._resting.values(), default=None)

    def _placed_by_others(self, pod: Pod) -> tuple[str, ...]:
        others = pod.spec.scheduler_name not in self._schedulers and not pod.terminal and asks_for_devices(pod.spec)
        return (_OTHERS,) if others else ()

    def _unseen(self, claim: ResourceClaim, intent: Intent | None) -> bool:
        """Whether somebody may have written before us what only the watch will tell. It tells all claims in the order in which
        they were written: when it has come to ours, of two that crossed the later one knows."""
        ours = intent is not None and intent.allocation is not None and bool(self._of_others[_OTHERS])
        return ours and not self._world.has_come_to(RESOURCE_CLAIMS, claim.metadata.resource_version)

    # ------------------------------------------------------------------------------------------------- what it counts for

    def _account(self, claim: ResourceClaim, intent: Intent | None) -> None:
        """Post what the claim has or may get: the only place where devices of claims are charged or given back."""
        if intent is not None and intent.counts_only(claim.status.allocation):
            return
        allocations = accounted(claim, intent)
        standing: Standing = "decided"
        if claim.status.allocation is not None:
            standing = "writing" if self._unseen(claim, intent) else "shown"
        elif intent is not None and intent.sent:
            standing = "writing"
        if intent is not None:
            before, intent.counted = intent.counted, (standing, allocations)
            if before is not None and before[1] == allocations:
                if allocations and before[0] != standing:
                    self._engine.ledger.restate(intent.uid, standing)
                return
        if allocations:
            self._engine.charge(claim, allocations, standing)
        else:
            self._engine.remove_claim(claim.uid)

    def _account_for(self, intent: Intent) -> None:
        claim: ResourceClaim | None = self._world.get(RESOURCE_CLAIMS, intent.key)
        if claim is not None and claim.metadata.uid == intent.uid:
            self._account(claim, intent)
        else:
            self._engine.remove_claim(intent.uid)

    # ---------------------------------------------------------------------------------------------- claims not yet made

    def hold_unmade(self, special: Special) -> None:
        """A special claim counts from the decision on, also while it does not exist."""
        self._engine.hold(special.claim, special.allocation)

    def drop_unmade(self, special: Special) -> None:
        self._contested_unmade.discard(special.claim.uid)
        self._engine.release(special.claim.uid)

    def adopt(self, special: Special, claim: ResourceClaim, pod: Pod, now: float) -> None:
        """The special claim exists now: it gets its devices and its pod, and holds for itself what was held for it."""
        unmade = special.claim.metadata.uid
        made = unmade == claim.metadata.uid
        intent = self.intents.make(claim)
        if not made and self._engine.hand_over(unmade, claim):
            intent.counted = ("decided", [special.allocation])
        if claim.status.allocation is None:
            self.allocate(claim, special.allocation, pod, now)
        else:
            self.reserve(claim, pod)
        intent.begun = True
        if not made:
            intent.contested = unmade in self._contested_unmade
            self._contested_unmade.discard(unmade)
        special.claim, special.name = claim, claim.metadata.name

    # ------------------------------------------------------------------------------------------------------- deciding

    def allocate(self, claim: ResourceClaim, allocation: AllocationResult, pod: Pod, now: float) -> None:
        if self._stamps:
            allocation = msgspec.structs.replace(allocation, allocation_timestamp=format_time(now))
        intent = self.intents.make(claim)
        intent.allocation, intent.shown = allocation, False
        self._want(intent, pod)
        self._account(claim, intent)

    def reserve(self, claim: ResourceClaim, pod: Pod) -> None:
        self._want(self.intents.make(claim), pod)

    def unreserve(self, key: str, uid: str, *, gone: bool = False) -> None:
        """The pod does not need the claim after all; a reservation that is written, or may be, is taken back. The
        allocation stays, as upstream leaves it, unless the pod is gone and nobody else uses the claim."""
        claim: ResourceClaim | None = self._world.get(RESOURCE_CLAIMS, key)
        if claim is None:
            return
        known = reserved_for(claim, uid)
        intent = self.intents.get(claim.uid)
        if intent is None and not known:
            return
        intent = intent if intent is not None else self.intents.make(claim)
        intent.reservers.pop(uid, None)
        intent.drop = intent.drop or gone
        if known or intent.writing is not None or intent.unanswered is not None:
            intent.leaving.add(uid)
        self._dirty[intent.uid] = None
        self._release_unwanted(intent)

    def let_go(self, key: str, uid: str) -> None:
        """Nothing more is done here for this pod; what is written for it stays."""
        intent = self.intents.named(key)
        if intent is not None:
            intent.reservers.pop(uid, None)
            self._release_unwanted(intent)

    def deallocate(self, claim: ResourceClaim) -> None:
        """Clear the allocation with everything that hangs on it."""
        self.intents.make(claim).clear = True
        self._dirty[claim.uid] = None

    def delete(self, claim: ResourceClaim, about: str) -> None:
        """Let a claim go that the scheduler made; it counts until it is gone."""
        intent = self.intents.make(claim)
        intent.reservers.clear()
        intent.leaving.clear()
        intent.clear = intent.drop = intent.contested = False
        intent.allocation = None
        intent.delete = intent.delete if intent.delete is not None else about
        self._dirty[claim.uid] = None
        self._account_for(intent)

    def give_back(self, claim: ResourceClaim, pod: Pod) -> None:
        """The pod, alone with it, cannot use the claim as it is: one that was made for its extended resources goes, any other is
        to be allocated again."""
        if owner_uid(claim) == (pod.uid,):
            self.delete(claim, pod.key)
        else:
            self.deallocate(claim)

    def made_for(self, uid: str) -> Iterator[ResourceClaim]:
        """The claims for a pod's extended resources that nobody lets go."""
        for key in self._specials[uid]:
            claim: ResourceClaim | None = self._world.get(RESOURCE_CLAIMS, key)
            if claim is not None and claim.metadata.deletion_timestamp is None and not self.intents.deleting(claim):
                yield claim

    def keep_only(self, pod: Pod, name: str) -> None:
        """The pod is bound with this special claim, or without any: one that was made for it besides is of no use."""
        for key in self._specials[pod.uid]:
            claim: ResourceClaim | None = self._world.get(RESOURCE_CLAIMS, key)
            if claim is not None and claim.metadata.name != name and (not claim.metadata.deletion_timestamp or _stuck(claim)):
                self.delete(claim, pod.key)

    def contest(self, uids: list[str]) -> None:
        """What is decided for these claims is in the API for another one."""
        rivals = set(uids)
        for intent in self.intents if rivals else ():
            if intent.uid in rivals:
                rivals.remove(intent.uid)
                intent.contested = True
                self._dirty[intent.uid] = None
        self._contested_unmade |= rivals

    def _want(self, intent: Intent, pod: Pod) -> None:
        intent.drop = False
        uid = pod.metadata.uid
        intent.reservers[uid] = pod
        intent.leaving.discard(uid)
        self._dirty[intent.uid] = None

    def _release_unwanted(self, intent: Intent) -> None:
        """An allocation that nobody wants any more is not written. What was sent of it counts until that is known to fail."""
        if not intent.reservers:
            intent.allocation = None
        self._account_for(intent)
        self._tidy(intent)

    def _tidy(self, intent: Intent) -> None:
        if intent.idle and self.intents.drop(intent):
            self._dirty.pop(intent.uid, None)
            self._resting.pop(intent.uid, None)

    # ------------------------------------------------------------------------------------------------------ observing

    def observe(self, old: ResourceClaim | None, new: ResourceClaim | None, now: float) -> None:
        """The API shows the claim like this now."""
        same = old is not None and new is not None and new.metadata.uid == old.metadata.uid
        if old is not None and not same:
            self._gone(old, now)
        if new is None:
            return
        shown, before = new.status.allocation, old.status.allocation if old is not None and same else None
        intent = self.intents.get(new.metadata.uid)
        if intent is not None:
            if intent.writing is None:
                self._dirty[intent.uid] = None
            if shown is not None:
                intent.show(shown)
        changed = before != shown
        settled = intent is not None and intent.unanswered is not None and intent.settle_doubt(new, now)
        if changed or settled:
            self._account(new, intent)
        if changed and shown is not None and (intent is None or intent.allocation is None):
            self.contest([uid for uid in self._engine.rivals(shown) if uid != new.uid])
        if intent is not None:
            self._tidy(intent)
        owner = new.metadata.controller if is_special(new) else None
        if owner is not None and (intent is None or intent.delete is None):
            self._too_late(new, owner)

    def _gone(self, claim: ResourceClaim, now: float) -> None:
        intent = self.intents.get(claim.metadata.uid)
        if intent is not None:
            self._fail_all(intent)
        self._engine.remove_claim(claim.uid)

    def _too_late(self, claim: ResourceClaim, owner: OwnerReference) -> None:
        """A create without an answer may show only when its pod is bound with another claim; and one that somebody deleted
        goes, unless its pod runs with it."""
        pod: Pod | None = self._world.get(PODS, f"{claim.metadata.namespace}/{owner.name}")
        if pod is None or pod.uid != owner.uid or pod.spec.scheduler_name not in self._schedulers:
            return
        if not pod.spec.node_name:
            # It may be bound, or about to be: it would run with a claim that is gone, and whose devices another one has.
            if _stuck(claim) and claim.uid not in self.intents and not self.has_node(pod.uid):
                self.delete(claim, pod.key)
        else:
            named = pod.status.extended_resource_claim_status
            self.keep_only(pod, named.resource_claim_name if named is not None else "")

    # -------------------------------------------------------------------------------------------------------- writing

    def end_doubts(self, now: float) -> None:
        """What was sent too long ago to come true counts no more; to be done before anybody is woken for what is free."""
        for uid in [uid for uid, at in self._resting.items() if at <= now] if self._resting else ():
            intent = self.intents.get(uid)
            claim = self._world.get(RESOURCE_CLAIMS, intent.key) if intent is not None else None
            if intent is not None and claim is not None and claim.uid == uid and intent.settle_doubt(claim, now):
                self._account(claim, intent)

    def writes(self, now: float) -> list[Write]:
        for uid in [uid for uid, at in self._resting.items() if at <= now] if self._resting else ():
            del self._resting[uid]
            self._dirty[uid] = None
        dirty, self._dirty = self._dirty, {}
        made: list[Write] = []
        for uid in dirty:
            intent = self.intents.get(uid)
            # What was done for another claim a moment ago may have settled this one.
            if intent is not None and intent.writing is None and (write := self._write(intent, now)) is not None:
                made.append(write)
        return made

    def _write(self, intent: Intent, now: float) -> Write | None:
        claim: ResourceClaim | None = self._world.get(RESOURCE_CLAIMS, intent.key)
        if claim is None or claim.metadata.uid != intent.uid:
            self._fail_all(intent)
            return None
        refused = intent.retry_version and claim.metadata.resource_version == intent.retry_version
        until = max(intent.not_before, intent.retry_at) if refused else intent.not_before
        if until > now:
            self._resting[intent.uid] = until
            return None
        intent.retry_version = ""
        if intent.unanswered is not None and intent.settle_doubt(claim, now):
            self._account(claim, intent)
        write = self._next(intent, claim)
        if write is not None:
            self._send(intent, claim, write)
        elif intent.reservers and self._unseen(claim, intent):
            self._resting[intent.uid] = now + _SEEN_AFTER
        elif intent.unanswered is not None:
            self._resting[intent.uid] = intent.unanswered_until
        else:
            self._tidy(intent)
        return write

    def _send(self, intent: Intent, claim: ResourceClaim, write: Write) -> None:
        intent.writing, intent.begun = write, True
        if intent.allocation is not None and (write.body or {}).get("status", {}).get("allocation") is not None:
            intent.sent.append(intent.allocation)
            self._account(claim, intent)

    def _next(self, intent: Intent, claim: ResourceClaim) -> Write | None:
        """The next write that brings the API closer to what was decided; None when there is nothing left."""
        if intent.delete is not None:
            return self._deletes(intent, claim)
        if claim.metadata.deletion_timestamp is not None and intent.reservers:
            # Nobody gets it any more, and it goes when all have let it go.
            self._fail_all(intent)
        if intent.clear and claim.status.allocation is not None:
            body = {"status": {"allocation": None, "reservedFor": None, "devices": None}}
            return _patch(claim, body, claim.key, "status")
        intent.clear = False
        if intent.drop and not intent.reservers:
            # What was sent and does not show yet is cleared when it does.
            intent.drop = intent.unanswered is not None and claim.status.allocation is None
            unused = all(c.uid in intent.leaving for c in claim.status.reserved_for)
            if unused and claim.status.allocation is not None:
                intent.clear = True
                return self._next(intent, claim)
        if intent.contested:
            return self._yield(intent, claim)
        if self._outdated(intent, claim):
            self._fail_all(intent)
        return self._allocates(intent, claim)

    def _allocates(self, intent: Intent, claim: ResourceClaim) -> Write | None:
        missing = [pod for uid, pod in intent.reservers.items() if not reserved_for(claim, uid)] if intent.reservers else []
        leaving = [each.uid for each in claim.status.reserved_for if each.uid in intent.leaving] if intent.leaving else []
        unprotected = bool(intent.reservers) and FINALIZER not in claim.metadata.finalizers
        written = claim.status.allocation is not None or intent.allocation is None
        if written and not missing and not leaving and not unprotected:
            if not self._unseen(claim, intent) and not _may_be_taken(intent):
                self._settle(intent, claim)
            return None
        about = missing[0].key if missing else claim.key
        if unprotected:
            finalizers = [*claim.metadata.finalizers, FINALIZER]
            return _patch(claim, {"metadata": {"finalizers": finalizers}}, about)
        status: dict[str, Any] = {}
        if claim.status.allocation is None and intent.allocation is not None:
            status["allocation"] = _plain(intent.allocation)
        kept = [_plain(c) for c in claim.status.reserved_for if c.uid not in leaving]
        added = [{"resource": "pods", "name": pod.metadata.name, "uid": pod.metadata.uid} for pod in missing]
        status["reservedFor"] = [*kept, *added]
        return _patch(claim, {"status": status}, about, "status", goes_on=intent.begun)

    def _deletes(self, intent: Intent, claim: ResourceClaim) -> Write | None:
        """The claim first, then the finalizer: so it is never without while it has devices, and what was sent for it before
        cannot come true once it is gone."""
        metadata, about = claim.metadata, intent.delete or ""
        if metadata.deletion_timestamp is None:
            return Write("delete", RESOURCE_CLAIMS, metadata.namespace, metadata.name, uid=claim.uid, about=about)
        if FINALIZER in metadata.finalizers:
            others = [name for name in metadata.finalizers if name != FINALIZER]
            return _patch(claim, {"metadata": {"finalizers": others or None}}, about)
        return None

    def _yield(self, intent: Intent, claim: ResourceClaim) -> Write | None:
        """Somebody else has what was decided for this claim. Where it is written already, and for our pods only, it is
        cleared again."""
        intent.contested = False
        written = claim.status.allocation is not None
        ours = all(consumer.uid in intent.reservers for consumer in claim.status.reserved_for)
        if not written or not ours:
            self._fail_all(intent)
            return None
        self.news.extend(Settled(uid, intent.key, True) for uid in intent.reservers)
        intent.reservers.clear()
        intent.allocation, intent.clear = None, True
        self._account(claim, intent)
        return self._next(intent, claim)

    def _outdated(self, intent: Intent, claim: ResourceClaim) -> bool:
        """Someone else allocated what we wanted to allocate, or took the allocation that we counted on."""
        if not intent.reservers:
            return False
        if intent.allocation is None:
            return claim.status.allocation is None
        if claim.status.allocation is None:
            return intent.shown
        return not same_allocation(claim.status.allocation, intent.allocation)

    def _settle(self, intent: Intent, claim: ResourceClaim) -> None:
        """The API shows what was decided."""
        for uid in intent.reservers:
            self.news.append(Settled(uid, intent.key))
        intent.reservers.clear()
        if intent.unanswered is None:
            intent.leaving.clear()
        intent.allocation = None
        self._account(claim, intent)

    def _fail_all(self, intent: Intent, error: ClusterError | None = None) -> None:
        """What was decided cannot be: because of an error, or because the claim is another one now."""
        self.news.extend(Settled(uid, intent.key, True, error) for uid in intent.reservers)
        intent.reservers.clear()
        intent.clear = intent.contested = False
        claim: ResourceClaim | None = self._world.get(RESOURCE_CLAIMS, intent.key)
        if claim is None or claim.uid != intent.uid:
            intent.leaving.clear()
            intent.sent.clear()
            intent.writing = intent.unanswered = intent.delete = None
        self._release_unwanted(intent)

    # -------------------------------------------------------------------------------------------------------- outcomes

    def ended(self, outcome: Outcome, now: float) -> None:
        """One of its writes was answered, or will not be."""
        write, error = outcome.write, outcome.error
        intent = self.intents.get(write.uid)
        if intent is None or intent.writing is not write:
            return
        intent.writing = None
        self._dirty[intent.uid] = None
        if error is None:
            intent.unanswered, intent.failures = None, 0
        elif error.in_doubt or isinstance(error, Conflict):
            # It may have happened, and may yet; what it conflicts with may be itself. What the API shows next decides.
            intent.unanswered, intent.unanswered_until = write, now + _DOUBTFUL
        if isinstance(error, Unreachable):
            intent.not_before = now + RETRY_AFTER
            return
        sent = bool(intent.sent)
        if intent.unanswered is None:
            intent.sent.clear()
        if isinstance(error, Conflict):
            intent.retry_version, intent.retry_at = write.resource_version, now + RETRY_AFTER
            self._account_for(intent)
        elif isinstance(error, NotFound):
            self._fail_all(intent)
        elif error is not None:
            # It may not be written, or not deleted: then it is used again.
            intent.failures += 1
            intent.not_before = now + pause_after(intent.failures - 1)
            if not error.in_doubt:
                intent.delete = None
            self._fail_all(intent, error)
        else:
            if sent:
                self._account_for(intent)
            self._tidy(intent)


def pause_after(failures: int) -> float:
    """How long a write rests that failed once more, after so many failures in a row."""
    return min(RETRY_AFTER * 2.0 ** min(failures, 16), _RETRY_AT_MOST)


def _stuck(claim: ResourceClaim) -> bool:
    """Whether only the finalizer keeps it that Dray put there."""
    return claim.metadata.deletion_timestamp is not None and FINALIZER in claim.metadata.finalizers


def _may_be_taken(intent: Intent) -> bool:
    """Whether a write that nobody answered may yet take the claim from a pod that is to have it: one that gave it back before."""
    status = (intent.unanswered.body or {}).get("status") if intent.unanswered is not None else None
    if status is None or "reservedFor" not in status:
        return False
    kept = {consumer["uid"] for consumer in status["reservedFor"] or ()}
    return any(uid not in kept for uid in intent.reservers)


def _plain(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def _patch(claim: ResourceClaim, body: dict[str, Any], about: str, subresource: str = "", goes_on: bool = False) -> Write:
    return Write(
        "patch",
        RESOURCE_CLAIMS,
        claim.metadata.namespace,
        claim.metadata.name,
        body,
        subresource,
        uid=claim.metadata.uid,
        resource_version=claim.metadata.resource_version,
        about=about,
        goes_on=goes_on,
    )
