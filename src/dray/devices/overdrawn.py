"""Whether a claim has, together with others, more than there is: one device for two, or too much of a capacity or of counters,
or devices of groups that do not go together.

No allocator gives out too much, but two that do not see each other yet can: then their claims *crossed*. Always true: a claim
gives way to others that are as sure as it is, and nobody has to know who was first. So of two that crossed at least one gives
way, whichever scheduler looks, and a claim that the API shows never does for one that is only decided. As long as nothing is
overdrawn, asking costs as much as the claim has devices, however many others there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from dray.api.quantity import Quantity
from dray.api.resource import DeviceKey
from dray.devices.inventory import Inventory
from dray.devices.ledger import Charge, Entry, Holding
from dray.devices.pools import Groups, PoolContent
from dray.devices.shapes import Kind


class Overdraft(NamedTuple):
    """A device of the claim that is too much beside what another claim has, whose name is told. ``of`` says of what there is
    too little, as reasons do; nothing where it is the device itself."""

    device: DeviceKey
    other: str
    of: dict[str, str]


class Overdrafts:
    """Questions to the ledger of an inventory."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory, self._ledger = inventory, inventory.ledger

    def of(self, uid: str) -> Overdraft | None:
        """The first that concerns what this claim has, as far as it can be told from what is published."""
        for charge in self._ledger.charges(uid):
            driver, pool, device = charge.device
            content = self._inventory.content((driver, pool))
            bits = content.bits.get(device, ()) if content is not None else ()
            if _scarce(charge, self._ledger.holdings((driver, pool))[device], content, bits):
                found = self._judged(uid, charge, content, bits)
                if found is not None:
                    return found
        return None

    def _judged(self, uid: str, charge: Charge, content: PoolContent | None, bits: tuple[int, ...]) -> Overdraft | None:
        found = self._of_device(uid, charge, content.layout.kinds[bits[0]] if content is not None and bits else None)
        if found is None and content is not None:
            found = self._of_counters(uid, charge, content, bits) or self._of_groups(uid, charge, content, bits)
        return found

    def unclear(self, device: DeviceKey) -> bool:
        """Whether it cannot be told what is left of it: it is not published just now, or its pool cannot be read."""
        content = self._inventory.content((device.driver, device.pool))
        return content is None or device.device not in content.bits

    # --------------------------------------------------------------------------------------------------- whom it concerns

    def _beside(self, uid: str, device: DeviceKey) -> dict[str, Entry]:
        """Who else has the device and need not give way to this one, by name."""
        sure = self._ledger.standing(uid) == "shown"
        found: dict[str, Entry] = {}
        for other in self._ledger.owners(device):
            entry = self._ledger.entry(other)
            # Rests have no name; what is promised is another's still.
            if other == uid or entry is None or not entry.name or entry.standing == "promised":
                continue
            if not sure or entry.standing == "shown":
                found[entry.name] = entry
        return dict(sorted(found.items()))

    def _in_use(self, uid: str, content: PoolContent) -> Iterator[tuple[DeviceKey, dict[str, Entry], bool]]:
        """The devices of a pool that are in use, published or not: who has each beside the claim, and whether it has it, too."""
        for name in sorted(self._ledger.holdings(content.key)):
            device = DeviceKey(*content.key, name)
            beside, own = self._beside(uid, device), uid in self._ledger.owners(device)
            if beside or own:
                yield device, beside, own

    # --------------------------------------------------------------------------------------------------- what is overdrawn

    def _of_device(self, uid: str, charge: Charge, kind: Kind | None) -> Overdraft | None:
        device, beside = charge.device, self._beside(uid, charge.device)
        held = {name: [each for each in entry.charges if each.device == device] for name, entry in beside.items()}
        alone = charge.mode == "exclusive" or (kind is not None and not kind.multiple)
        for name, charges in held.items():
            if alone or any(each.mode == "exclusive" for each in charges):
                return Overdraft(device, name, {})
        own = [each for each in self._ledger.charges(uid) if each.device == device]
        for capacity, limit in _limits(charge, kind):
            used = {name: _consumed(charges, capacity) for name, charges in held.items()}
            needed = sum(used.values()) + _consumed(own, capacity)
            others = [name for name, amount in used.items() if amount]
            if needed > limit.nanos and others:
                amounts = {"needed": str(Quantity(needed, limit.format)), "total": str(limit)}
                return Overdraft(device, others[0], {"capacity": capacity, **amounts})
        return None

    def _of_counters(self, uid: str, charge: Charge, content: PoolContent, bits: tuple[int, ...]) -> Overdraft | None:
        layout = content.layout
        for counter, takes in (each for bit in bits for each in layout.consumption[bit]):
            if not takes or content.available[counter] >= 0:
                continue
            needed, others = 0, set[str]()
            for device, beside, own in self._in_use(uid, content):
                draws = (each for bit in content.bits.get(device.device, ()) for each in layout.consumption[bit])
                amount = sum(amount for number, amount in draws if number == counter)
                needed += amount
                # With whom it shares a device that takes too much by itself it did not cross.
                others |= beside.keys() if amount and not own else set()
            total = layout.totals[counter]
            if needed > total and others:
                counter_set, name = next(pair for pair, number in layout.counters.items() if number == counter)
                amounts = {"needed": str(Quantity(needed)), "total": str(Quantity(total))}
                return Overdraft(charge.device, min(others), {"counterSet": counter_set, "counter": name, **amounts})
        return None

    def _of_groups(self, uid: str, charge: Charge, content: PoolContent, bits: tuple[int, ...]) -> Overdraft | None:
        for number, own in _groups(charge, content, bits):
            state = content.groups.get(number)
            if state is None or not state.torn:
                continue
            others = self._groups_beside(uid, content, number)
            if others and (own or any(others.values())) and not own.intersection(*others.values()):
                # Whom it does not go with, rather than those with whom only all together do not.
                other = min(others, key=lambda name: (bool(own & others[name]), name))
                told = {"groups": _told(own), "used": _told(others[other])}
                return Overdraft(charge.device, other, {"counterSet": content.layout.sets[number], **told})
        return None

    def _groups_beside(self, uid: str, content: PoolContent, counter_set: int) -> dict[str, Groups]:
        """The groups that all devices of each other claim have on a counter set, by its name."""
        found: dict[str, Groups] = {}
        for device, beside, _ in self._in_use(uid, content):
            bits = content.bits.get(device.device, ())
            for name, entry in beside.items():
                charges = (each for each in entry.charges if each.device == device)
                for number, groups in (of_set for each in charges for of_set in _groups(each, content, bits)):
                    if number == counter_set:
                        found[name] = found.get(name, groups) & groups
        return found


def _scarce(charge: Charge, holding: Holding, content: PoolContent | None, bits: tuple[int, ...]) -> bool:
    """Whether there can be too little of the device for all who have some of it, whoever they are."""
    several = holding.exclusive + holding.shares > 1
    if several and holding.exclusive:
        return True
    if content is None:
        return False
    if several and bits:
        kind = content.layout.kinds[bits[0]]
        if not kind.multiple or any(holding.consumed.get(name, 0) > limit.nanos for name, limit in _limits(charge, kind)):
            return True
    if not content.layout.sets:
        return False
    for bit in bits:
        for counter, _ in content.layout.consumption[bit]:
            if content.available[counter] < 0:
                return True
    return any(state.torn for state in content.groups.values())


def _limits(charge: Charge, kind: Kind | None) -> Iterator[tuple[str, Quantity]]:
    """How much there is of each capacity of which the claim has a part."""
    if kind is not None and charge.consumed:
        capacity = kind.shape.capacity
        for name, amount in charge.consumed:
            if amount and name in capacity:
                yield name, Quantity.parse(capacity[name].value)


def _consumed(charges: list[Charge], capacity: str) -> int:
    return sum(amount for charge in charges for name, amount in charge.consumed if name == capacity)


def _groups(charge: Charge, content: PoolContent, bits: tuple[int, ...]) -> Iterator[tuple[int, Groups]]:
    """The groups of a device in use by counter set: as the claim recorded them, else as they are published."""
    if charge.groups is not None:
        sets = content.layout.sets
        yield from ((sets.index(name), frozenset(groups)) for name, groups in charge.groups if name in sets)
    elif content.live_groups and bits:
        yield from content.layout.groups[bits[0]]


def _told(groups: Groups) -> str:
    return ", ".join(sorted(groups)) or "no group"
