"""What deciding on one pod starts from and ends with: its state, the placement, or the refusal."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from dray.api.core import PersistentVolume, PersistentVolumeClaim, Pod
from dray.api.reason import Reason
from dray.api.resource import AllocationResult, DeviceKey, ResourceClaim
from dray.books.demand import Demand
from dray.books.journal import Account, Standing
from dray.books.nodes import Placed
from dray.scheduling.config import Profile
from dray.scheduling.placing.plan import Plan
from dray.scheduling.placing.refusal import Refusal
from dray.scheduling.plugins.neighbours import View
from dray.scheduling.shape.claims import Resolved
from dray.scheduling.shape.extended import Special
from dray.scheduling.waiting.queue import QueuedPod

_NONE: Final[frozenset[str]] = frozenset()
_NO_NOTES: Final[Mapping[str, str]] = MappingProxyType({})


class Placement:
    """What was decided for a pod; ``because``: why these devices, in words. ``volumes`` are those that its unbound volume
    claims get, ``provisioned`` the claims for which one is to be made; ``rested`` the devices that it gets although they failed
    a short while ago."""

    def __init__(self, key: Hashable, node: str, resolved: Resolved) -> None:
        self.key = key
        self.node = node
        self.open = resolved.open
        self.pinned = resolved.pinned
        self.allocations = resolved.allocations
        self.results: Sequence[AllocationResult] = ()
        self.special: Special | None = None
        self.leftover: ResourceClaim | None = None
        self.volumes: Sequence[tuple[PersistentVolumeClaim, PersistentVolume]] = ()
        self.provisioned: Sequence[PersistentVolumeClaim] = ()
        # What plugins post besides, under the pod's uid.
        self.postings: Sequence[tuple[Account, object]] = ()
        # Annotations that the binding carries to the pod.
        self.notes: Mapping[str, str] = _NO_NOTES
        self.because = ""
        self.rested: Sequence[DeviceKey] = ()

    @property
    def given(self) -> list[tuple[ResourceClaim, AllocationResult]]:
        """What it gives to claims that have nothing yet."""
        found = list(zip(self.open, self.results))
        if self.special is not None and self.special.claim.status.allocation is None:
            found.append((self.special.claim, self.special.allocation))
        return found

    def placed(self, pod: Pod, demand: Demand, standing: Standing) -> Placed:
        """As it counts on its node, with what its claims do not show yet."""
        if not self.open and not self.pinned and self.special is None:
            return Placed(pod, demand, self.node, standing)
        shared = [(claim, self.allocations[claim.uid]) for claim in self.pinned if claim.status.allocation is None]
        return Placed(pod, demand, self.node, standing, {each[0].uid: each for each in (*shared, *self.given)})


class NotPlaced(Exception):
    """The pod is refused. ``key`` groups pods that are refused alike; ``free_claims`` may help when deallocated."""

    def __init__(
        self,
        key: Hashable,
        refusal: Refusal,
        topics: frozenset[str],
        free_claims: Sequence[ResourceClaim] = (),
        shared: bool = False,
    ) -> None:
        super().__init__(refusal)
        self.key = key
        self.refusal = refusal
        self.topics = topics
        self.free_claims = free_claims
        self.shared = shared
        # Devices of claims that failed or ran out of time while no scheduler looked.
        self.failed: Sequence[DeviceKey] = ()
        # Set when nodes were looked at: what preemption starts from.
        self.state: CycleState | None = None


class CycleState:
    """A pod with its claims resolved: everything that decides where it can go."""

    # Devices of claims that failed, where any did.
    failed: Sequence[DeviceKey] = ()
    packs_devices = False

    def __init__(self, pending: QueuedPod, profile: Profile, resolved: Resolved) -> None:
        self.pending = pending
        self.pod: Pod = pending.pod
        self.demand: Demand = pending.demand
        self.profile = profile
        self.resolved = resolved
        # The extended resources that devices are to serve, and a claim for them that an earlier attempt left.
        self.names: frozenset[str] = _NONE
        self.leftover: ResourceClaim | None = None
        # Its claims that nobody can use as they are.
        self.unusable: Sequence[tuple[ResourceClaim, Reason]] = ()
        self.view: View | None = None
        self.ranking: View | None = None
        # The only nodes that may be looked at, where those with whom the pod belongs together have to be near.
        self.within: frozenset[str] | None = None
        self.key: Hashable = None
        self.plan: Plan | None = None

    @property
    def named(self) -> str:
        """The special claim that the pod's status names, after an attempt that got that far."""
        status = self.pod.status.extended_resource_claim_status
        return status.resource_claim_name if status is not None else ""

    @property
    def needs_devices(self) -> bool:
        return bool(self.resolved.open or self.names)
