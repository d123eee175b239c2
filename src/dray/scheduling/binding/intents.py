"""What is to become of claims that are being written, and what they count for meanwhile.

Always true: what counts follows from what the API shows, what was sent and may still come true, and what is decided.
"""

from __future__ import annotations

from collections.abc import Iterator

from dray.api.core import Pod
from dray.api.kinds import RESOURCE_CLAIMS
from dray.api.resource import AllocationResult, ResourceClaim
from dray.books.journal import Standing
from dray.cluster.port import Write
from dray.cluster.world import World
from dray.scheduling.shape.claims import reserved_for


class Intent:
    """What is to become of one claim. ``allocation`` is what is decided for it and not in the API yet."""

    # What is asked for only after something went wrong.
    unanswered_until = 0.0
    # Writes in a row that the API refused: what it will not have is not sent again and again.
    failures = 0
    retry_at = 0.0

    def __init__(self, claim: ResourceClaim) -> None:
        self.key = claim.metadata.key
        self.uid = claim.metadata.uid
        self.allocation: AllocationResult | None = None
        # Whether the API has shown it: if it shows none after that, somebody took it away, and it is free for others.
        self.shown = False
        self.reservers: dict[str, Pod] = {}
        self.leaving: set[str] = set()
        self.clear = False
        # Clear the allocation too when those that leave were the last.
        self.drop = False
        # Delete the claim, which the scheduler made; for events: the pod that it was made for.
        self.delete: str | None = None
        # Another scheduler's allocation crossed the decision: it is not written, or taken back.
        self.contested = False
        self.writing: Write | None = None
        # Whether something was written for it already.
        self.begun = False
        # The last write that nobody answered: it may still come true while the claim is as it was then.
        self.unanswered: Write | None = None
        # The allocations in what is being written, or was sent without an answer.
        self.sent: list[AllocationResult] = []
        # What it was last posted for.
        self.counted: tuple[Standing, list[AllocationResult]] | None = None
        self.not_before = 0.0
        # After a conflict: the version that was refused. It is tried again when another one is seen, or after a while,
        # because a server may refuse for a reason that no watch event follows.
        self.retry_version = ""

    @property
    def idle(self) -> bool:
        wanted = self.reservers or self.leaving or self.clear or self.drop or self.delete is not None
        return not wanted and self.writing is None and self.unanswered is None

    def show(self, allocation: AllocationResult) -> None:
        """The API shows this. Where it is what was decided, it is that from now on, so that both are known to be one."""
        self.shown = True
        decided = self.allocation
        if decided is not None and same_allocation(allocation, decided):
            self.allocation = allocation
            self.sent = [allocation if sent is decided else sent for sent in self.sent]

    def counts_only(self, shown: AllocationResult | None) -> bool:
        """Whether it was last posted for what the API shows, and nothing else was sent or decided: the usual end of a claim."""
        if shown is None or self.counted is None or self.counted[0] != "shown":
            return False
        allocations, sent = self.counted[1], self.sent
        others = self.allocation is not None and self.allocation is not shown
        return not others and len(allocations) == 1 and allocations[0] is shown and (not sent or sent == [shown])

    def settle_doubt(self, claim: ResourceClaim, now: float) -> bool:
        """Whether what was sent without an answer has come true by now, or cannot any more; then it is forgotten."""
        write = self.unanswered
        if write is None or (claim.metadata.resource_version == write.resource_version and now < self.unanswered_until):
            return False
        self.unanswered = None
        if self.writing is None:
            self.sent.clear()
        return True


class Intents:
    """All of them, by the claim's uid: what is known of claims beyond what the API shows."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._by_uid: dict[str, Intent] = {}

    def __iter__(self) -> Iterator[Intent]:
        return iter(self._by_uid.values())

    def __contains__(self, uid: str) -> bool:
        return uid in self._by_uid

    def get(self, uid: str) -> Intent | None:
        return self._by_uid.get(uid)

    def named(self, key: str) -> Intent | None:
        claim: ResourceClaim | None = self._world.get(RESOURCE_CLAIMS, key)
        return self._by_uid.get(claim.uid) if claim is not None else None

    def make(self, claim: ResourceClaim) -> Intent:
        """The claim's, made now if it has none."""
        intent = self._by_uid.get(claim.metadata.uid)
        if intent is None:
            intent = Intent(claim)
            self._by_uid[intent.uid] = intent
        return intent

    def drop(self, intent: Intent) -> bool:
        """Whether it was there."""
        return self._by_uid.pop(intent.uid, None) is not None

    # -------------------------------------------------------------------------------------------------- what is known

    def allocation_of(self, claim: ResourceClaim) -> AllocationResult | None:
        """As the API has it, or as it was decided a moment ago."""
        intent = self._by_uid.get(claim.metadata.uid)
        if claim.status.allocation is not None:
            return None if intent is not None and (intent.clear or intent.delete is not None) else claim.status.allocation
        return intent.allocation if intent is not None else None

    def consumers(self, claim: ResourceClaim) -> int:
        """How many pods have the claim or are about to."""
        return len(claim.status.reserved_for) + sum(not reserved_for(claim, uid) for uid in self.joining(claim))

    def joining(self, claim: ResourceClaim) -> set[str]:
        """Pods that are about to have the claim, as far as the API does not show it yet."""
        intent = self._by_uid.get(claim.metadata.uid)
        return set(intent.reservers) if intent is not None else set()

    def clearing(self, key: str) -> bool:
        intent = self.named(key)
        return intent is not None and intent.clear

    def deleting(self, claim: ResourceClaim) -> bool:
        intent = self._by_uid.get(claim.metadata.uid)
        return intent is not None and intent.delete is not None

    def in_doubt(self, claim: ResourceClaim) -> bool:
        """Whether something was sent for it of which nobody knows what became."""
        intent = self._by_uid.get(claim.metadata.uid)
        return intent is not None and intent.unanswered is not None

    def accounted(self, claim: ResourceClaim) -> list[AllocationResult]:
        """What the claim has or may get: shown, sent, decided."""
        return accounted(claim, self._by_uid.get(claim.uid))


def accounted(claim: ResourceClaim, intent: Intent | None) -> list[AllocationResult]:
    """What the claim has or may get: shown, sent, decided; each once."""
    shown = claim.status.allocation
    found = [shown] if shown is not None else []
    if intent is not None:
        for allocation in (*intent.sent, intent.allocation) if intent.sent else (intent.allocation,):
            if allocation is None:
                continue
            for known in found:
                if same_allocation(known, allocation):
                    break
            else:
                found.append(allocation)
    return found


def same_allocation(a: AllocationResult, b: AllocationResult) -> bool:
    """Whether both name the same devices for the same requests."""
    return a is b or [(r.request, r.driver, r.pool, r.device, r.share_id) for r in a.devices.results] == [
        (r.request, r.driver, r.pool, r.device, r.share_id) for r in b.devices.results
    ]
