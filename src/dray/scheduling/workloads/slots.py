"""How many members nodes could take at most if everybody were gone who may go: counted, nobody is taken out for it.

Always true: the count is never too small, so that where it does not do no search would find more. Of nodes it goes by plain sums;
of devices by how many of a class those leave who stay, and by the allocator's answer for one member beside them. Devices that
several nodes see count on each of them; claims that members share, or that have devices already, ask for nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from dray.api.resource import ResourceClaim
from dray.books.nodes import NodeInfo
from dray.scheduling.actions.preemption import Preemption
from dray.scheduling.parts import Parts
from dray.scheduling.waiting.queue import QueuedPod
from dray.scheduling.workloads.bounds import asked_of_classes, held, whole_devices

Claims = list[ResourceClaim]
# More than any gang has members.
MANY: Final = 2**31


class Kind(NamedTuple):
    """What members that are alike ask for: of nodes, of classes of devices at least, and the claims of one of them."""

    requests: list[tuple[str, int]]
    devices: Counter[str]
    claims: Claims


class Slots:
    """``open_claims``: those of a pod that have no devices yet."""

    def __init__(self, parts: Parts, preemption: Preemption, open_claims: Callable[[QueuedPod], Claims]) -> None:
        self._nodes, self._engine, self._classes = parts.nodes, parts.engine, parts.classes
        self._preemption, self._open_claims = preemption, open_claims

    def too_few(self, members: Sequence[QueuedPod], goes: Callable[[str], bool]) -> bool:
        """Whether the members of some kind would not all fit if all pods were gone that go, by uid."""
        missing = [(kind, len(alike)) for kind, alike in self._kinds(members)]
        for info in self._nodes:
            staying = [uid for uid in info.pods if not goes(uid)]
            freed = held(placed for uid, placed in info.pods.items() if goes(uid)) if len(staying) < len(info.pods) else {}
            missing = [
                (kind, left) for kind, wanted in missing if (left := wanted - self._on(info, kind, wanted, freed, staying)) > 0
            ]
            if not missing:
                return False
        return True

    def _kinds(self, members: Sequence[QueuedPod]) -> Iterator[tuple[Kind, list[QueuedPod]]]:
        claims = {pending.uid: self._open_claims(pending) for pending in members}
        users = Counter(claim.uid for each in claims.values() for claim in each)
        own = {uid: [claim for claim in each if users[claim.uid] == 1] for uid, each in claims.items()}
        alike: dict[object, list[QueuedPod]] = {}
        for pending in members:
            same = pending.demand.id, self._engine.compiler.demand(tuple(own[pending.uid]))
            alike.setdefault(same, []).append(pending)
        for group in alike.values():
            requests = [(name, value) for name, value in group[0].demand.requests if value]
            first = own[group[0].uid]
            yield Kind(requests, asked_of_classes(first), first), group

    def _on(self, info: NodeInfo, kind: Kind, wanted: int, freed: dict[str, int], staying: Sequence[str]) -> int:
        """How many of the kind, of so many, the node could take."""
        slots, devices = wanted, kind.devices
        for name, value in kind.requests:
            if not info.allocatable.get(name) and (serving := self._classes.serving(name)) is not None:
                devices = devices + Counter({serving.metadata.name: value})
            else:
                slots = min(slots, (info.free(name) + freed.get(name, 0)) // value)
        if slots <= 0 or not (devices or kind.claims):
            return max(0, slots)
        holders = [holder for uid in staying for holder, _ in self._preemption.claims(uid)]
        slots = min(slots, self._with_devices(info, devices, holders))
        return slots if slots and (not kind.claims or self._engine.could(info.name, kind.claims, holders)) else 0

    def _with_devices(self, info: NodeInfo, devices: Counter[str], holders: Sequence[str]) -> int:
        """How often the node has so many devices of each class that these holders do not have as a whole."""
        view = self._engine.inventory.view(info.name)
        if view is None:
            return 0
        charges = (charge for holder in holders for charge in self._engine.charges(holder))
        taken = {charge.device for charge in charges if charge.mode == "exclusive"}
        there = view.layout.here
        if taken:
            there &= ~sum(1 << at for at, key in enumerate(view.keys()) if key in taken)
        found = ((whole_devices(self._engine, view, name, there), count) for name, count in devices.items())
        # Of devices that several may share there are as many as anybody may want.
        return min((mask.bit_count() // count for mask, count in found if mask is not None), default=MANY)
