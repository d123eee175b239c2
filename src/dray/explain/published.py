"""Devices as published, worked out from the objects alone: pools, generations, nodes, taints, counters.

A plain second reading of the API's rules that shares no code with the allocator or its ledger, so that what they decide can be
checked against it. Nothing here is fast on purpose; everything is computed from the whole input.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

import msgspec

from dray.api.core import Node
from dray.api.gates import Gates
from dray.api.kinds import DEVICE_TAINT_RULES, RESOURCE_CLAIMS, RESOURCE_SLICES
from dray.api.quantity import Quantity
from dray.api.resource import (
    Device,
    DeviceKey,
    DeviceRequestAllocationResult,
    DeviceTaint,
    DeviceTaintRule,
    ResourceClaim,
    ResourceSlice,
)
from dray.api.selectors import node_selector_matches
from dray.cluster.world import World

CounterSet = tuple[str, str, str]  # driver, pool, counter set


class PublishedDevice(msgspec.Struct, frozen=True):
    """One device of the newest generation of its pool. ``taints`` has those of rules too."""

    driver: str
    pool: str
    device: Device
    slice: ResourceSlice
    taints: tuple[DeviceTaint, ...]

    @property
    def identity(self) -> DeviceKey:
        return DeviceKey(self.driver, self.pool, self.device.name)

    @property
    def name(self) -> str:
        return str(self.identity)

    @property
    def where(self) -> str:
        """The node that it is on, or in words where it can be used from."""
        spec = self.slice.spec
        node = self.device.node_name if spec.per_device_node_selection else spec.node_name
        selector = self.device.node_selector if spec.per_device_node_selection else spec.node_selector
        return node or ("" if selector is not None else "*")

    def reachable_from(self, node: Node) -> bool:
        spec = self.slice.spec
        chosen: Any = self.device if spec.per_device_node_selection else spec
        if chosen.node_name:
            return bool(chosen.node_name == node.metadata.name)
        if chosen.node_selector is not None:
            return node_selector_matches(chosen.node_selector, node)
        return bool(chosen.all_nodes)


class PublishedPool(msgspec.Struct):
    """The newest generation of a pool. ``expected`` is how many slices it should have."""

    driver: str
    name: str
    generation: int
    slices: list[ResourceSlice]
    expected: int

    @property
    def complete(self) -> bool:
        return len(self.slices) == self.expected

    @property
    def counter_sets(self) -> list[str]:
        return [found.name for slice in self.slices for found in slice.spec.shared_counters]

    def counters(self) -> dict[str, dict[str, Quantity]]:
        """Counter sets of the pool with the value of each counter."""
        return {
            found.name: {name: Quantity.parse(counter.value) for name, counter in found.counters.items()}
            for slice in self.slices
            for found in slice.spec.shared_counters
        }


class Holder(msgspec.Struct, frozen=True):
    """A claim that holds a device or a share of it."""

    claim: ResourceClaim
    result: DeviceRequestAllocationResult

    @property
    def pods(self) -> list[str]:
        namespace = self.claim.metadata.namespace
        return [f"{namespace}/{user.name}" for user in self.claim.status.reserved_for if user.resource == "pods"]


class Published:
    """Every pool, every device, and who holds it; or, of the ``slices`` and ``claims`` that are given, those alone. Where taints
    or their rules are switched off by ``gates``, it is as if there were none."""

    def __init__(
        self,
        world: World,
        slices: Iterable[ResourceSlice] | None = None,
        claims: Iterable[ResourceClaim] | None = None,
        gates: Gates | None = None,
    ) -> None:
        self.world = world
        self.pools = pools(world.all(RESOURCE_SLICES).values() if slices is None else slices)
        tainted = gates is None or gates("DRADeviceTaints")
        ruled = tainted and (gates is None or gates("DRADeviceTaintRules"))
        rules = list(world.all(DEVICE_TAINT_RULES).values()) if ruled else []
        self.devices: dict[DeviceKey, PublishedDevice] = {}
        for pool in self.pools.values():
            for slice in pool.slices:
                for device in slice.spec.devices:
                    found = _device(pool, slice, device, device.taints if tainted else (), rules)
                    self.devices.setdefault(found.identity, found)
        self.holders: dict[DeviceKey, list[Holder]] = {}
        for holder in holders(world.all(RESOURCE_CLAIMS).values() if claims is None else claims):
            result = holder.result
            self.holders.setdefault(DeviceKey.of(result), []).append(holder)

    def owners(self, identity: DeviceKey) -> list[Holder]:
        """Those that count: administrative access takes nothing."""
        return [holder for holder in self.holders.get(identity, ()) if not holder.result.admin_access]

    @cached_property
    def groups(self) -> dict[CounterSet, list[tuple[DeviceKey, frozenset[str]]]]:
        """The devices in use on each counter set, and their groups there. What a claim recorded counts before the slice, also
        of a device that is no longer published."""
        found: dict[CounterSet, list[tuple[DeviceKey, frozenset[str]]]] = {}
        published = {(*key, name) for key, pool in self.pools.items() for name in pool.counter_sets}
        for identity in sorted(self.holders) if published else ():
            device = self.devices.get(identity)
            live = {entry.counter_set: entry.compatibility_groups for entry in device.device.consumes_counters} if device else {}
            for owner in self.owners(identity):
                for name, groups in (owner.result.recorded_groups or live).items():
                    if (counter_set := (*identity[:2], name)) in published:
                        found.setdefault(counter_set, []).append((identity, frozenset(groups)))
        return found


def holders(claims: Iterable[ResourceClaim]) -> Iterator[Holder]:
    for claim in claims:
        if claim.status.allocation is not None:
            yield from (Holder(claim, result) for result in claim.status.allocation.devices.results)


def pools(slices: Iterable[ResourceSlice]) -> dict[tuple[str, str], PublishedPool]:
    """The newest generation of every pool, by driver and name."""
    newest: dict[tuple[str, str], PublishedPool] = {}
    for slice in sorted(slices, key=lambda slice: slice.metadata.name):
        spec = slice.spec
        key = (spec.driver, spec.pool.name)
        found = newest.get(key)
        if found is None or spec.pool.generation > found.generation:
            newest[key] = PublishedPool(*key, spec.pool.generation, [slice], spec.pool.resource_slice_count)
        elif spec.pool.generation == found.generation:
            found.slices.append(slice)
    return dict(sorted(newest.items()))


def _device(
    pool: PublishedPool, slice: ResourceSlice, device: Device, own: tuple[DeviceTaint, ...], rules: Iterable[DeviceTaintRule]
) -> PublishedDevice:
    added = tuple(rule.spec.taint for rule in rules if _selects(rule, pool.driver, pool.name, device.name))
    return PublishedDevice(pool.driver, pool.name, device, slice, own + added)


def _selects(rule: DeviceTaintRule, driver: str, pool: str, device: str) -> bool:
    selector = rule.spec.device_selector
    if selector is None or not selector.by_names:
        return False
    wanted = ((selector.driver, driver), (selector.pool, pool), (selector.device, device))
    return all(want is None or want == have for want, have in wanted)
