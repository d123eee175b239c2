"""What of a cluster is in use, what still fits, and how scattered the rest is: for comparing a cluster before and after a change.

Always true: numbers come from the scheduler's own books, so what is decided counts; nodes that take no pods fit nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Final

import msgspec

from dray.api.kinds import DEVICE_CLASSES, NODES, QUEUES, RESOURCE_CLAIMS, RESOURCE_SLICES
from dray.api.resource import (
    DeviceClaim,
    DeviceKey,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)
from dray.cluster.world import World
from dray.devices import Devices
from dray.explain.inventory import excluded
from dray.explain.published import Published, holders, pools
from dray.explain.queues import survey
from dray.scheduling.plugins.resources import readable
from dray.scheduling.scheduler import Scheduler

# No claim can have more devices.
_MOST: Final = 32


class Amount(msgspec.Struct):
    used: str
    total: str


class DriverUse(msgspec.Struct, rename="camel"):
    """Devices of one driver. ``free``: those that can still be had, so not the partitions of a card in use as a whole, nor a card
    of which partitions are in use. ``scattered``: free ones on nodes where others are in use; ``fragmentation`` is their share of
    all that are free on nodes, from 0 to 1."""

    total: int
    used: int
    free: int
    scattered: int
    fragmentation: float


class Fit(msgspec.Struct):
    """The largest request of one claim for devices of a class that a node can still serve, one such node, and how many nodes
    serve a request for 1, 2, 4 … devices."""

    largest: int
    node: str
    nodes: dict[str, int]


class QueueShare(msgspec.Struct, rename="camel"):
    """What a queue may count on, deserves now and holds, and how many of its pods wait."""

    quota: dict[str, str]
    fair_share: dict[str, str]
    allocated: dict[str, str]
    waiting_pods: int


class Standing(msgspec.Struct):
    nodes: int
    resources: dict[str, Amount]
    devices: dict[str, DriverUse]
    fits: dict[str, Fit]
    queues: dict[str, QueueShare]


def standing(scheduler: Scheduler, now: float) -> Standing:
    world = scheduler.world
    open_nodes = [info.name for info in scheduler.nodes if not info.node.spec.unschedulable]
    classes = sorted(world.all(DEVICE_CLASSES))
    return Standing(
        len(world.all(NODES)),
        _resources(scheduler),
        _devices(scheduler),
        {name: fit for name in classes if (fit := _fit(scheduler.engine, name, open_nodes)) is not None},
        _queues(scheduler, now),
    )


def _queues(scheduler: Scheduler, now: float) -> dict[str, QueueShare]:
    """Asked of another scheduler: a survey counts pods as waiting in the one that is asked."""
    world = scheduler.world
    if QUEUES not in world.kinds or not world.all(QUEUES):
        return {}
    rows = survey(world.copied(), now, scheduler.config, scheduler.gates).queues
    return {row.name: QueueShare(row.quota, row.fair_share, row.allocated, row.waiting_pods) for row in rows}


def _resources(scheduler: Scheduler) -> dict[str, Amount]:
    used: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for info in scheduler.nodes:
        total.update(info.allocatable)
        used.update({name: value for name, value in info.requested.items() if name in info.allocatable})
        used["pods"] += len(info.pods)
    return {name: Amount(readable(name, used[name]), readable(name, total[name])) for name in sorted(total) if total[name]}


def _devices(scheduler: Scheduler) -> dict[str, DriverUse]:
    world = scheduler.world
    taken = {
        DeviceKey.of(holder.result) for holder in holders(world.all(RESOURCE_CLAIMS).values()) if not holder.result.admin_access
    }
    total: Counter[str] = Counter()
    used: Counter[str] = Counter()
    gone = _ruled_out(world, taken)
    lost: Counter[str] = Counter(driver for driver, _, _ in gone)
    on_node: dict[tuple[str, str], list[int]] = {}  # driver and node -> devices that are in use or free, of these in use
    for (driver, pool), found in pools(world.all(RESOURCE_SLICES).values()).items():
        for slice in found.slices:
            names = [(driver, pool, device.name) for device in slice.spec.devices]
            busy = sum(name in taken for name in names)
            total[driver] += len(names)
            used[driver] += busy
            if slice.spec.node_name:
                here = on_node.setdefault((driver, slice.spec.node_name), [0, 0])
                here[0] += len(names) - sum(name in gone for name in names)
                here[1] += busy
    return {driver: _of_driver(driver, total[driver], used[driver], lost[driver], on_node) for driver in sorted(total)}


def _ruled_out(world: World, taken: Collection[DeviceKey]) -> set[DeviceKey]:
    """Free by name only: what is in use beside them takes the counters that they need. Pools without counters are not read."""
    slices = world.all(RESOURCE_SLICES).values()
    shared = {(slice.spec.driver, slice.spec.pool.name) for slice in slices if slice.spec.shared_counters}
    cut = shared & {(driver, pool) for driver, pool, _ in taken}
    return (
        excluded(Published(world, [each for each in slices if (each.spec.driver, each.spec.pool.name) in cut])) if cut else set()
    )


def _of_driver(driver: str, total: int, used: int, lost: int, on_node: dict[tuple[str, str], list[int]]) -> DriverUse:
    here = [(count, busy) for (of, _), (count, busy) in on_node.items() if of == driver]
    free = sum(count - busy for count, busy in here)
    scattered = sum(count - busy for count, busy in here if busy)
    return DriverUse(total, used, total - used - lost, scattered, round(scattered / free, 4) if free else 0.0)


def _fit(engine: Devices, name: str, nodes: list[str]) -> Fit | None:
    """None for a class of which no node has a device that can still be had."""
    counts: dict[str, int] = {}
    low, size = 0, 1
    while size <= _MOST and nodes:
        refused = [node for node, _ in engine.refusing(nodes, [_asking(name, size)])]
        serving = len(nodes) - len(refused)
        if not serving or "" in refused:  # no node is named where the class itself is broken
            break
        counts[str(size)] = serving
        low, size = size, size * 2
    if not low:
        return None
    high = min(size, _MOST + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if engine.first_fit(nodes, [_asking(name, middle)])[0] else (low, middle)
    return Fit(low, engine.first_fit(nodes, [_asking(name, low)])[0], counts)


def _asking(name: str, count: int) -> ResourceClaim:
    exactly = ExactDeviceRequest(device_class_name=name, allocation_mode="ExactCount", count=count)
    return ResourceClaim(spec=ResourceClaimSpec(devices=DeviceClaim(requests=(DeviceRequest("devices", exactly),))))
