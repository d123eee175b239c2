"""Devices of claims beside CPUs and memory: from which zones of a node a pod should have them.

No kubelet aligns the devices of claims with anything. Where a node publishes its zones and drivers say near to which zones their
devices are, a pod gets devices of the zones that its kubelet is going to take CPUs, memory and plugin devices from; where that
cannot be, of few zones more; a pod without any of those gets all of its devices from as few zones as possible. This is no
guarantee, and only a pod that limits its zones itself is refused a node because of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from dray.api.digits import whole
from dray.books.nodes import NodeInfo
from dray.devices import Devices
from dray.numa.devices import ZoneLimit, candidate_masks, device_zones
from dray.numa.intent import Intent, IntentError, intent
from dray.numa.layout import Layout, State
from dray.scheduling.placing.state import CycleState
from dray.scheduling.plugins.base import Reasons, because
from dray.scheduling.plugins.zones import Zones

# Sets of zones that are tried on a node; wider ones would hardly be worth it.
_TRIED: Final = 32


class DevicesInZones:
    def __init__(self, zones: Zones, engine: Devices) -> None:
        self._zones, self._engine = zones, engine

    def limits(self, state: CycleState, info: NodeInfo) -> tuple[Sequence[ZoneLimit], Reasons | None]:
        """The limits to try, the best first; and why the pod gets nothing where none of them does, if that is so."""
        there = self._zones.state(info) if self._zones.any else None
        view = self._engine.inventory.view(info.name) if there is not None else None
        if there is None or view is None or not any(device_zones(view.layout)):
            return (), None
        own = self._own(state)
        mask = self._taken(there, state)
        found = [_limit(there.layout, each) for each in islice(_masks(there, mask, own), _TRIED)]
        if own is None:
            return found, None
        return found, because("ZoneDevicesApart", mask=", ".join(there.layout.named(mask)) or "any", allowed=own.span)

    def _own(self, state: CycleState) -> Intent | None:
        """What the pod says of its zones, if that is about all that it has."""
        try:
            found = intent(state.pod)
        except IntentError:
            return None  # it is refused for that
        return found if found is not None and found.resources is None else None

    def _taken(self, there: State, state: CycleState) -> int:
        """The zones that the kubelet is going to give the pod something from, as far as that can be foreseen."""
        asked = self._zones.asked(state.pod, state.demand)
        mask = 0
        for place, _ in self._zones.placement(there, asked).placement if asked.units else ():
            mask |= 1 << place
        return mask


def _masks(there: State, taken: int, own: Intent | None) -> Iterator[int]:
    """Sets of zones that contain those taken, narrow and near ones first."""
    for mask in candidate_masks(there, None):
        if taken & ~mask == 0 and (own is None or mask.bit_count() <= own.span):
            yield mask


def _limit(layout: Layout, mask: int) -> ZoneLimit:
    return ZoneLimit(frozenset(number for label in layout.named(mask) if (number := whole(label)) is not None))
