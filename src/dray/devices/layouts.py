"""What devices, pools and nodes look like, each look once: whatever looks alike shares one kind or layout.

Serials are never given out twice, because caches go by them. What nobody shows any more stays until all is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b

import msgspec

from dray.api.gates import Gates
from dray.api.resource import Device, ResourceSliceSpec
from dray.devices.overlay import Overlay
from dray.devices.pools import PoolLayout, PublishedSlice
from dray.devices.shapes import Interner, Kind
from dray.devices.views import NodeLayout, Part

_encode = msgspec.json.Encoder().encode

Sets = tuple[tuple[str, tuple[tuple[str, int], ...]], ...]


class Layouts:
    """``numbers`` gives the serials."""

    def __init__(self, gates: Gates, overlay: Overlay, numbers: Iterator[int], *, by_pool: bool) -> None:
        self._partitions = gates("DRAPartitionableDevices")
        self._overlay, self._numbers, self._by_pool = overlay, numbers, by_pool
        self._interner = Interner(gates)
        self._slices: dict[tuple[object, ...], tuple[Kind, ...]] = {}
        self._pools: dict[tuple[object, ...], PoolLayout] = {}
        self._nodes: dict[tuple[object, ...], NodeLayout] = {}

    def __len__(self) -> int:
        return len(self._interner)

    def forget(self) -> None:
        self._interner.forget()
        for kept in (self._slices, self._pools, self._nodes):
            kept.clear()

    def kinds(self, slice: PublishedSlice) -> tuple[Kind, ...]:
        """The kinds of a slice's devices. Slices that differ only in names of pool and node are looked at once."""
        spec = slice.spec
        if not self._overlay.empty:
            return tuple(self._kind(spec, device) for device in spec.devices)
        key = (spec.driver, spec.skip_node_operations, blake2b(_encode(spec.devices), digest_size=16).digest())
        found = self._slices.get(key)
        if found is None:
            found = self._slices[key] = tuple(self._kind(spec, device) for device in spec.devices)
        return found

    def _kind(self, spec: ResourceSliceSpec, device: Device) -> Kind:
        taints = self._overlay.taints(spec.driver, spec.pool.name, device.name, device.taints)
        return self._interner.kind(spec.driver, device, taints, spec.skip_node_operations)

    def pool(self, kinds: tuple[Kind, ...], sets: Sets) -> PoolLayout:
        key = (tuple(kind.serial for kind in kinds), sets)
        found = self._pools.get(key)
        if found is None:
            found = self._pools[key] = PoolLayout(next(self._numbers), kinds, sets, partitions=self._partitions)
        return found

    def node(self, parts: tuple[Part, ...], operations: bool) -> NodeLayout:
        key = (operations, tuple((part.pool.serial, part.segments, part.here, part.off) for part in parts))
        found = self._nodes.get(key)
        if found is None:
            found = self._nodes[key] = NodeLayout(next(self._numbers), parts, operations, by_pool=self._by_pool)
        return found
