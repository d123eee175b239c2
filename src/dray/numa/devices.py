"""DRA devices and zones: which zones a device belongs to by what its driver says, and which zones suit a pod and its devices.

Kubelets do not align DRA devices with anything. A driver that publishes ``numaNode`` (a number or a list of them) says it
itself; one that only publishes ``pcieRoot`` says it through others on the same root that do. A device that nothing is known
of belongs to no zone and can be used with any.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations, islice
from typing import Final, NamedTuple, cast

from dray.api.resource import PCIE_ROOT, DeviceAttribute
from dray.devices.views import NodeLayout
from dray.numa.layout import Layout, State
from dray.numa.masks import apart, bits, holds
from dray.numa.room import Needs

# The names that drivers give to it, after their domain: as the standard attribute, and as they had it before.
NUMA_NODE: Final = ("numaNode", "numaNodeID", "numaNodes", "numa")
MASKS_MAX: Final = 256
_ZONES: Final = "zones of devices"

Attributes = Mapping[str, DeviceAttribute]


def zone_numbers(attributes: Attributes, roots: Mapping[str, frozenset[int]] | None = None) -> frozenset[int] | None:
    """The numbers of the zones that a device is near to, None when nothing says so. ``roots``: zones by PCIe root."""
    for name in NUMA_NODE:
        for key in sorted(key for key in attributes if key == name or key.endswith(f"/{name}")):
            found = _numbers(attributes[key])
            if found:
                return found
    near = [(roots or {}).get(root) for root in pcie_roots(attributes)]
    known = [zones for zones in near if zones]
    return frozenset().union(*known) if known else None


def pcie_roots(attributes: Attributes) -> tuple[str, ...]:
    value = attributes.get(PCIE_ROOT)
    if value is None:
        return ()
    return (value.string,) if value.string is not None else value.strings or ()


def root_zones(devices: Iterable[Attributes]) -> dict[str, frozenset[int]]:
    """Zones by PCIe root, learned from the devices of one node that say both. A root that devices contradict each other about
    has no zone."""
    said: dict[str, set[frozenset[int]]] = {}
    for attributes in devices:
        numbers = zone_numbers(attributes)
        roots = pcie_roots(attributes)
        if numbers and len(roots) == 1:
            said.setdefault(roots[0], set()).add(numbers)
    return {root: next(iter(zones)) for root, zones in said.items() if len(zones) == 1}


def _numbers(value: DeviceAttribute) -> frozenset[int]:
    """Numbers of zones; firmware says -1 for "not known"."""
    given = (value.int_,) if value.int_ is not None else value.ints or ()
    return frozenset(number for number in given if 0 <= number < 1024)


def device_zones(layout: NodeLayout) -> tuple[frozenset[int] | None, ...]:
    """By position of a node's devices: the numbers of the zones that each is near to."""
    found = layout.cache.get(_ZONES)
    if found is None:
        attributes = [kind.shape.attributes for kind in layout.kinds]
        roots = root_zones(attributes)
        found = layout.cache[_ZONES] = tuple(zone_numbers(each, roots) for each in attributes)
    return cast("tuple[frozenset[int] | None, ...]", found)


class ZoneLimit(NamedTuple):
    """The devices near to one of these zones, and those of which nothing is known (``dray.devices.demand.Limit``)."""

    numbers: frozenset[int]

    def on(self, layout: NodeLayout) -> int:
        known = device_zones(layout)
        return sum(1 << position for position, zones in enumerate(known) if zones is None or zones & self.numbers)


def candidate_masks(state: State, needs: Needs | None) -> Iterator[int]:
    """Sets of zones with room for a pod's CPUs, memory and plugin devices, in the order in which they should be tried for its
    DRA devices: few zones before many, near before far, low before high. At most ``MASKS_MAX`` sets are looked at."""
    layout = state.layout
    wanted = [(state.free[row], value) for row, value in needs.every] if needs is not None else []
    looked = 0
    for number in range(1, len(layout.zones) + 1):
        masks = [sum(1 << p for p in places) for places in islice(combinations(layout.places, number), MASKS_MAX - looked)]
        looked += len(masks)
        for mask in sorted(masks, key=lambda mask: (_far(layout, mask), mask)):
            if holds(bits(mask), wanted):
                yield mask
    if looked >= MASKS_MAX and holds(layout.places, wanted):
        yield layout.all_zones


def _far(layout: Layout, mask: int) -> int:
    return 0 if layout.distances is None else apart(mask, layout.distances)
