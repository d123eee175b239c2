"""A node's view of the devices: which ones it sees, in which order, and which of them are in use.

Positions of a view number the devices that the node sees in upstream's order: pools by driver and name, slices by name,
devices as listed. A ``NodeLayout`` is a view without names, interned: nodes with equal hardware share it and everything
computed on it. A ``NodeView`` adds the contents behind it and with them what is in use.
"""

from __future__ import annotations

from typing import NamedTuple

from dray.api.core import Node
from dray.api.resource import DeviceKey
from dray.devices.ledger import PoolKey
from dray.devices.pools import Groups, PoolContent, PoolDevice, PoolLayout
from dray.devices.shapes import Kind


class Segment(NamedTuple):
    """``length`` devices from ``start`` of a content stand at ``offset`` of the view."""

    start: int
    length: int
    offset: int


class Part(NamedTuple):
    """One pool in a layout. ``here`` has the positions that the node may use; the others are only looked at: they are another
    node's, or ``off``, of a feature that is switched off."""

    pool: PoolLayout
    segments: tuple[Segment, ...]
    here: int
    off: int = 0


class NodeLayout:
    """What a node's devices look like, by position."""

    __slots__ = (
        "all_order",
        "binding",
        "cache",
        "conditioned",
        "consumption",
        "groups",
        "here",
        "kinds",
        "last",
        "off",
        "operations",
        "parts",
        "seen",
        "serial",
        "width",
    )

    def __init__(self, serial: int, parts: tuple[Part, ...], operations: bool, *, by_pool: bool) -> None:
        self.serial = serial
        self.parts = parts
        self.operations = operations
        self.kinds: list[Kind] = []
        # By position: the part, and what the device takes from the counters of that part's content.
        self.consumption: list[tuple[int, tuple[tuple[int, int], ...]]] = []
        self.groups: list[tuple[tuple[int, Groups], ...]] = []
        self.here = 0
        self.off = 0
        for number, part in enumerate(parts):
            self.here |= part.here
            self.off |= part.off
            for segment in part.segments:
                for bit in range(segment.start, segment.start + segment.length):
                    self.kinds.append(part.pool.kinds[bit])
                    self.consumption.append((number, part.pool.consumption[bit]))
                    self.groups.append(part.pool.groups[bit])
        self.width = len(self.kinds)
        self.seen = (1 << self.width) - 1
        self.binding = sum(1 << position for position, kind in enumerate(self.kinds) if kind.binding)
        self.all_order, self.conditioned = self._upstream_order()
        # Positions that are tried after all others: those with binding conditions, or whole pools that have any.
        self.last = self.conditioned if by_pool else self.binding
        # What selections, demands and searches have worked out for this layout.
        self.cache: dict[object, object] = {}

    def _upstream_order(self) -> tuple[tuple[int, ...], int]:
        """All positions, pools that have any device with binding conditions last; and the mask of those."""
        first: list[int] = []
        last: list[int] = []
        for part in self.parts:
            positions = [
                position for segment in part.segments for position in range(segment.offset, segment.offset + segment.length)
            ]
            conditioned = any(self.kinds[position].binding for position in positions)
            (last if conditioned else first).extend(positions)
        return (*first, *last), sum(1 << position for position in last)


class NodeView:
    """The devices of one node now. Valid until the inventory says otherwise."""

    __slots__ = ("contents", "fabric", "incomplete", "invalid", "layout", "name", "node", "state")

    def __init__(
        self,
        node: Node,
        layout: NodeLayout,
        contents: tuple[PoolContent, ...],
        incomplete: tuple[PoolKey, ...],
        invalid: tuple[tuple[PoolKey, str], ...],
    ) -> None:
        self.node = node
        self.name = node.metadata.name
        self.layout = layout
        self.contents = contents
        self.incomplete = incomplete
        self.invalid = invalid
        # Whether other nodes see some of the devices too.
        self.fabric = any(not content.local for content in contents)
        # Number of the state that the node is in; 0 when it has to be looked up again.
        self.state = 0

    def place(self, position: int) -> tuple[PoolContent, int]:
        """Where the device at this position stands in its content."""
        for part, content in zip(self.layout.parts, self.contents):
            for start, length, offset in part.segments:
                if offset <= position < offset + length:
                    return content, start + position - offset
        raise IndexError(position)

    def device(self, position: int) -> PoolDevice:
        content, bit = self.place(position)
        return content.device(bit)

    def key(self, position: int) -> DeviceKey:
        content, bit = self.place(position)
        return DeviceKey(*content.key, content.device(bit).name)

    def keys(self) -> list[DeviceKey]:
        """All devices, by position."""
        found: list[DeviceKey] = []
        for part, content in zip(self.layout.parts, self.contents):
            (driver, pool), names = content.key, content.names()
            for start, length, _ in part.segments:
                found += [DeviceKey(driver, pool, name) for name in names[start : start + length]]
        return found

    def taken(self) -> int:
        """Positions that are in use as a whole."""
        mask = 0
        for part, content in zip(self.layout.parts, self.contents):
            if content.taken:
                for start, length, offset in part.segments:
                    mask |= ((content.taken >> start) & ((1 << length) - 1)) << offset
        return mask

    def shared(self) -> int:
        """Positions of which at least one share is in use."""
        mask = 0
        for part, content in zip(self.layout.parts, self.contents):
            if content.shared:
                for start, length, offset in part.segments:
                    mask |= ((content.shared >> start) & ((1 << length) - 1)) << offset
        return mask

    def overcommitted(self) -> int:
        """Positions that draw from a counter set of which more is in use than there is."""
        mask = 0
        for part, content in zip(self.layout.parts, self.contents):
            sets = content.overcommitted() if content.available else None
            if not sets:
                continue
            for segment in part.segments:
                for bit in range(segment.start, segment.start + segment.length):
                    if any(number in sets for number, _ in part.pool.groups[bit]):
                        mask |= 1 << (segment.offset + bit - segment.start)
        return mask

    def consumed(self, position: int) -> dict[str, int]:
        """Capacity of the device that existing shares use, in nano units."""
        content, bit = self.place(position)
        holding = content.holdings.get(bit)
        return holding.consumed if holding is not None else {}

    def state_key(self) -> tuple[object, ...]:
        """What the answer for a demand depends on. Contents that several nodes see are told apart by serial too."""
        return (
            self.layout.serial,
            bool(self.invalid),
            bool(self.incomplete),
            *[content.state_key() if content.local else (-content.serial, content.state_key()) for content in self.contents],
        )
