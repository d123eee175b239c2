"""Pods on their way to their nodes: what is known of each, and which of them a claim, a volume or a moment concerns.

Always true: a binding is found under its pod, under each claim and volume that it waits for or has, and under nothing when it is
removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from heapq import heappop, heappush
from types import MappingProxyType
from typing import Final, NamedTuple

from dray.api.core import PersistentVolumeClaim, Pod
from dray.api.reason import Reason
from dray.api.resource import ResourceClaim
from dray.cluster.port import Write
from dray.scheduling.binding.gang import Gang
from dray.scheduling.binding.stages import Stage
from dray.scheduling.config import Profile
from dray.scheduling.placing.state import Placement
from dray.scheduling.shape.extended import Special
from dray.scheduling.waiting.queue import QueuedPod

_NONE: Final[AbstractSet[str]] = frozenset()
_NOTHING: Final[Mapping[str, ResourceClaim]] = MappingProxyType({})


class Ended(NamedTuple):
    """A binding is over. ``reason``: why it failed, where that is worth telling; ``node``: where the pod keeps its room
    until it has been tried again."""

    pending: QueuedPod
    bound: bool
    reason: Reason | None = None
    node: str = ""


class Binding:
    """One pod on its way to one node."""

    # What most bindings never have, and few ask for.
    # How often the server failed to bind it, or said so.
    failures = 0
    # Whether a bind was sent of which nobody knows what became.
    doubtful = False
    # Since when devices have been waited for.
    waited: float | None = None
    due = 0.0
    # Whether its node was told while it waits.
    nominated = False
    # Why it was given up, and on which node its room is kept.
    reason: Reason | None = None
    keeps = ""

    def __init__(
        self, pending: QueuedPod, placement: Placement, profile: Profile, now: float, gang: Gang[Binding] | None
    ) -> None:
        self.gang = gang
        self.pending = pending
        self.uid = pending.uid
        self.key = pending.key
        self.node = placement.node
        self.profile = profile
        self.since = now
        # Why these devices, for people.
        self.because = placement.because
        self.notes = placement.notes
        self.special: Special | None = placement.special
        self.stage: Stage = "claims"
        # The bind that is under way.
        self.writing: Write | None = None
        # The writes of this attempt that make its special claim and tell the pod's status of it; an answer to one of an
        # earlier attempt is not for this one.
        self.creation: Write | None = None
        self.mapping: Write | None = None
        # Its claims, by key; those of them that are still to be written, and those whose devices were decided on to be waited
        # for.
        self.claims: Sequence[str] = ()
        self.awaiting: AbstractSet[str] = _NONE
        self.conditional: AbstractSet[str] = _NONE
        # The claims as they were when the wait began, by key.
        self.held: Mapping[str, ResourceClaim] = _NOTHING
        # Those that are still to be bound, by key.
        self.unbound: AbstractSet[str] = _NONE
        self.volumes: Sequence[PersistentVolumeClaim] = ()
        # Since when nothing is in the way of this pod by itself.
        self.ready_since: float | None = None

    @property
    def pod(self) -> Pod:
        return self.pending.pod

    @property
    def has_devices(self) -> bool:
        return bool(self.claims) or self.special is not None

    @property
    def unheard(self) -> bool:
        """Whether nothing was written for it: it waits for the others of its gang, and for nothing else."""
        return self.stage == "claims" and self.writing is None and not self.has_devices and not self.volumes


class Bindings:
    def __init__(self) -> None:
        self._by_uid: dict[str, Binding] = {}
        self._by_pod: dict[str, str] = {}
        self._by_claim: dict[str, dict[str, None]] = {}
        self._by_volume: dict[str, dict[str, None]] = {}
        self._timers: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self._by_uid)

    def __iter__(self) -> Iterator[Binding]:
        return iter(list(self._by_uid.values()))

    def get(self, uid: str) -> Binding | None:
        return self._by_uid.get(uid)

    def of_pod(self, key: str) -> Binding | None:
        return self._by_uid.get(self._by_pod.get(key, ""))

    def with_claim(self, key: str) -> Iterable[Binding]:
        uids = self._by_claim.get(key)
        return self._present(uids) if uids else ()

    def with_volume(self, key: str) -> Iterator[Binding]:
        return self._present(self._by_volume.get(key, ()))

    def on_node(self, name: str) -> Iterator[Binding]:
        return self._present(binding.uid for binding in self._by_uid.values() if binding.node == name)

    def binds_with(self, claim: ResourceClaim, but: str = "") -> bool:
        """Whether a pod of the claim, ``but`` for one, is about to be bound: its bind may be sent, and may come true."""
        others = (self._by_uid.get(consumer.uid) for consumer in claim.status.reserved_for if consumer.uid != but)
        return any(other is not None and other.stage == "binding" for other in others)

    def _present(self, uids: Iterable[str]) -> Iterator[Binding]:
        """What is done about one may end others: those are left out."""
        for uid in list(uids):
            binding = self._by_uid.get(uid)
            if binding is not None:
                yield binding

    def add(self, binding: Binding) -> None:
        self._by_uid[binding.uid] = binding
        self._by_pod[binding.key] = binding.uid

    def follow(self, binding: Binding, key: str) -> None:
        """The claim is the pod's, and is to be written first."""
        binding.claims = (*binding.claims, key)
        binding.awaiting |= {key}
        self._by_claim.setdefault(key, {})[binding.uid] = None

    def follow_volume(self, binding: Binding, key: str) -> None:
        binding.unbound |= {key}
        self._by_volume.setdefault(key, {})[binding.uid] = None

    def remind(self, binding: Binding, at: float) -> None:
        heappush(self._timers, (at, binding.uid))

    def next_due(self) -> float | None:
        while self._timers and self._timers[0][1] not in self._by_uid:
            heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def pop_due(self, now: float) -> Binding | None:
        """One that was to be looked at by now."""
        at = self.next_due()
        return self._by_uid[heappop(self._timers)[1]] if at is not None and at <= now else None

    def remove(self, binding: Binding) -> None:
        uid = binding.uid
        self._by_uid.pop(uid, None)
        if self._by_pod.get(binding.key) == uid:
            del self._by_pod[binding.key]
        if binding.claims:
            self._unfollow(self._by_claim, binding.claims, uid)
        if binding.volumes:
            self._unfollow(self._by_volume, [claim.key for claim in binding.volumes], uid)

    def _unfollow(self, index: dict[str, dict[str, None]], keys: Iterable[str], uid: str) -> None:
        for key in keys:
            users = index.get(key)
            if users is not None:
                users.pop(uid, None)
                if not users:
                    del index[key]
