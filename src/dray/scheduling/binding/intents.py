"""What is to become of one claim that is being written, and what it counts for meanwhile.

Always true: what counts follows from what the API shows, what was sent and may still come true, and what is decided.
"""

from __future__ import annotations

from dray.api.core import Pod
from dray.api.resource import AllocationResult, ResourceClaim
from dray.books.journal import Standing
from dray.cluster.port import Write


class Intent:
    """What is to become of one claim. ``allocation`` is what is decided for it and not in the API yet."""

    __slots__ = (
        "allocation",
        "begun",
        "clear",
        "contested",
        "counted",
        "delete",
        "drop",
        "failures",
        "key",
        "leaving",
        "not_before",
        "reservers",
        "retry_at",
        "retry_version",
        "sent",
        "shown",
        "uid",
        "unanswered",
        "unanswered_until",
        "writing",
    )

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
        self.unanswered_until = 0.0
        # The allocations in what is being written, or was sent without an answer.
        self.sent: list[AllocationResult] = []
        # What it was last posted for.
        self.counted: tuple[Standing, list[AllocationResult]] | None = None
        self.not_before = 0.0
        # Writes in a row that the API refused: what it will not have is not sent again and again.
        self.failures = 0
        # After a conflict: the version that was refused. It is tried again when another one is seen, or after a while,
        # because a server may refuse for a reason that no watch event follows.
        self.retry_version = ""
        self.retry_at = 0.0

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
