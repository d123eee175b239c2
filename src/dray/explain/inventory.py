"""What is there and what is free: every device with its state and users, every counter set, every node.

A device is ``allocated`` when nothing of it is left, ``partial`` when shares are given out and capacity is left, ``tainted``
when a taint keeps requests without a toleration away, ``incompatible`` when what is in use beside it on its counter set
excludes it now, ``incomplete`` when its pool is being published, else ``free``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

import msgspec

from dray.api.quantity import Quantity
from dray.api.resource import DeviceKey
from dray.explain.published import Holder, Published, PublishedDevice, PublishedPool
from dray.numa.devices import zone_numbers
from dray.scheduling.binding.conditions import reported

BLOCKING: Final = ("NoSchedule", "NoExecute")
STATES: Final = ("free", "partial", "allocated", "tainted", "incompatible", "incomplete")
# How the detail of a device begins that is being attached or otherwise made ready.
AWAITS: Final = "waits for "


class User(msgspec.Struct, omit_defaults=True):
    """A claim on a device and the pods that it is reserved for."""

    claim: str
    pods: list[str]
    request: str = ""
    share: str = ""
    consumed: dict[str, str] = {}
    admin: bool = False


class Row(msgspec.Struct, rename="camel"):
    """One device."""

    driver: str
    pool: str
    device: str
    node: str
    state: str
    users: list[User]
    taints: list[str]
    detail: str = ""
    # The NUMA zones that it is near to, as far as its driver says.
    zones: list[int] = []
    capacity: dict[str, dict[str, str]] = {}
    counters: dict[str, dict[str, str]] = {}


class SetRow(msgspec.Struct, rename="camel"):
    """One counter of a counter set."""

    driver: str
    pool: str
    counter_set: str
    counter: str
    used: str
    total: str


class NodeRow(msgspec.Struct, rename="camel"):
    """The devices that a node has, by state, and the most that one share can still take."""

    node: str
    devices: int
    states: dict[str, int]
    largest_share: dict[str, str]


class Inventory(msgspec.Struct, rename="camel"):
    devices: list[Row]
    counter_sets: list[SetRow]
    nodes: list[NodeRow]


def inventory(published: Published) -> Inventory:
    used = {key: _used(published, pool) for key, pool in published.pools.items()}
    rows = [_row(published, identity, used[identity[:2]]) for identity in sorted(published.devices)]
    sets = [row for pool in published.pools.values() for row in _sets(pool, used[pool.driver, pool.name])]
    return Inventory(rows, sets, _nodes(rows))


def excluded(published: Published) -> set[DeviceKey]:
    """Devices that nobody has and that nobody can have beside what is in use: of a card that is cut otherwise, or taken whole."""
    used = {key: _used(published, pool) for key, pool in published.pools.items()}
    return {
        identity
        for identity, device in published.devices.items()
        if device.device.consumes_counters and not published.owners(identity) and _excluded(device, used[identity[:2]])
    }


# ------------------------------------------------------------------------------------------------------------ devices


class _Used(msgspec.Struct):
    """What is in use of one pool's counters, and the groups of the devices in use on each set."""

    counters: dict[tuple[str, str], Quantity]
    totals: dict[str, dict[str, Quantity]]
    groups: dict[str, list[frozenset[str]]]


def _used(published: Published, pool: PublishedPool) -> _Used:
    used = _Used({}, pool.counters(), {})
    for counter_set in used.totals:
        used.groups[counter_set] = [groups for _, groups in published.groups.get((pool.driver, pool.name, counter_set), ())]
    for device in (device for slice in pool.slices for device in slice.spec.devices):
        if not published.owners(DeviceKey(pool.driver, pool.name, device.name)):
            continue
        for entry in device.consumes_counters:
            for name, counter in entry.counters.items():
                key = (entry.counter_set, name)
                used.counters[key] = used.counters.get(key, Quantity(0)) + Quantity.parse(counter.value)
    return used


def _row(published: Published, identity: DeviceKey, used: _Used) -> Row:
    device = published.devices[identity]
    owners = published.owners(identity)
    capacity = _capacity(device, owners)
    state, detail = _state(published, device, owners, capacity, used)
    return Row(
        *identity,
        node=device.where,
        state=state,
        users=[_user(holder) for holder in published.holders.get(identity, ())],
        taints=[f"{taint.key}{'=' + taint.value if taint.value else ''}:{taint.effect}" for taint in device.taints],
        detail=detail,
        zones=sorted(zone_numbers(device.device.attributes) or ()),
        capacity={name: {"used": str(taken), "total": str(total)} for name, (taken, total) in capacity.items()},
        counters={
            entry.counter_set: {name: str(Quantity.parse(counter.value)) for name, counter in entry.counters.items()}
            for entry in device.device.consumes_counters
        },
    )


def _user(holder: Holder) -> User:
    result = holder.result
    return User(
        claim=holder.claim.key,
        pods=holder.pods,
        request=result.request,
        share=result.share_id or "",
        consumed={name: str(Quantity.parse(value)) for name, value in (result.consumed_capacity or {}).items()},
        admin=bool(result.admin_access),
    )


def _capacity(device: PublishedDevice, owners: list[Holder]) -> dict[str, tuple[Quantity, Quantity]]:
    """By name: taken by shares, and total. A device that is owned as a whole has nothing left."""
    whole = any(owner.result.share_id is None for owner in owners)
    taken = {}
    for name, capacity in sorted(device.device.capacity.items()):
        total = Quantity.parse(capacity.value)
        consumed = [(owner.result.consumed_capacity or {}).get(name, 0) for owner in owners]
        taken[name] = (total if whole else sum((Quantity.parse(value) for value in consumed), Quantity(0)), total)
    return taken


def _state(
    published: Published,
    device: PublishedDevice,
    owners: list[Holder],
    capacity: dict[str, tuple[Quantity, Quantity]],
    used: _Used,
) -> tuple[str, str]:
    pool = published.pools[device.driver, device.pool]
    if owners:
        left = any(taken < total for taken, total in capacity.values())
        shared = all(owner.result.share_id is not None for owner in owners)
        return ("partial" if shared and left else "allocated"), _awaits(owners)
    if not pool.complete:
        return "incomplete", f"{len(pool.slices)} of {pool.expected} slices of generation {pool.generation} are published"
    blocking = [taint for taint in device.taints if taint.effect in BLOCKING]
    if blocking:
        return "tainted", ""
    why = _excluded(device, used)
    return ("incompatible", why) if why else ("free", "")


def _awaits(owners: list[Holder]) -> str:
    """The binding conditions that keep the owners of a device waiting, or nothing."""
    missing = {
        condition
        for owner in owners
        for condition in owner.result.binding_conditions
        if (found := reported(owner.claim, owner.result).get(condition)) is None or found.status != "True"
    }
    return f"{AWAITS}{', '.join(sorted(missing))}" if missing else ""


def _excluded(device: PublishedDevice, used: _Used) -> str:
    """Why the device cannot be used beside what is in use now, or nothing."""
    for entry in device.device.consumes_counters:
        for name, counter in entry.counters.items():
            total = used.totals.get(entry.counter_set, {}).get(name, Quantity(0))
            left = total - used.counters.get((entry.counter_set, name), Quantity(0))
            needed = Quantity.parse(counter.value)
            if needed > left:
                return f"counter set {entry.counter_set}: {name} needs {needed}, {left} left"
        beside = used.groups.get(entry.counter_set, [])
        mine = frozenset(entry.compatibility_groups)
        common = frozenset.intersection(*beside) if beside else frozenset()
        if beside and (any(beside) or mine) and not common & mine:
            told = ", ".join(sorted(common)) or ("devices that share no group" if any(beside) else "devices without groups")
            return f"counter set {entry.counter_set}: in use {told}, offers {', '.join(sorted(mine)) or 'no group'}"
    return ""


def narrowed(found: Inventory, wanted: Callable[[Row], bool]) -> Inventory:
    """Only these devices, with the counter sets of their pools and the nodes that they are on."""
    rows = [row for row in found.devices if wanted(row)]
    pools = {(row.driver, row.pool) for row in rows}
    sets = [row for row in found.counter_sets if (row.driver, row.pool) in pools]
    return Inventory(rows, sets, _nodes(rows))


# ------------------------------------------------------------------------------------------------- counters and nodes


def _sets(pool: PublishedPool, used: _Used) -> list[SetRow]:
    return [
        SetRow(pool.driver, pool.name, name, counter, str(used.counters.get((name, counter), Quantity(0))), str(total))
        for name, counters in sorted(used.totals.items())
        for counter, total in sorted(counters.items())
    ]


def _nodes(rows: list[Row]) -> list[NodeRow]:
    by_node: dict[str, list[Row]] = {}
    for row in rows:
        by_node.setdefault(row.node, []).append(row)
    return [_node(name, found) for name, found in sorted(by_node.items())]


def _node(name: str, rows: list[Row]) -> NodeRow:
    states = Counter(row.state for row in rows)
    largest: dict[str, Quantity] = {}
    for row in rows:
        if row.state in ("free", "partial"):
            for capacity, numbers in row.capacity.items():
                left = Quantity.parse(numbers["total"]) - Quantity.parse(numbers["used"])
                largest[capacity] = max(largest.get(capacity, Quantity(0)), left)
    return NodeRow(name, len(rows), {s: states[s] for s in STATES if states[s]}, {k: str(v) for k, v in sorted(largest.items())})
