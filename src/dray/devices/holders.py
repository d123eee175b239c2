"""Who holds the devices that a node sees, for those who explain."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Protocol

from dray.api.gates import Gates
from dray.api.resource import DeviceKey, ResourceClaim
from dray.devices.inventory import Inventory
from dray.devices.ledger import Charge, PoolKey
from dray.devices.views import NodeView


class Engine(Protocol):
    """What explaining needs of the allocator: who holds a device, what is published, and trials that leave no trace."""

    gates: Gates
    inventory: Inventory

    def owners(self, device: DeviceKey) -> tuple[str, ...]: ...

    def owner_name(self, uid: str) -> str: ...

    def charges(self, uid: str) -> tuple[Charge, ...]: ...

    def fits(self, node_name: str, claims: Sequence[ResourceClaim], without: str) -> bool: ...


class Holders:
    """Who holds the devices that a node sees: numbered in the order in which they are met."""

    def __init__(self, engine: Engine, view: NodeView) -> None:
        self._engine, self._view = engine, view
        self.numbers: dict[str, int] = {}
        self.on: dict[DeviceKey, tuple[str, ...]] = {}
        self._met: list[int] = []
        for content in view.contents:
            driver, pool = content.key
            names = content.names() if content.holdings else []
            for bit in sorted(content.holdings):
                key = DeviceKey(driver, pool, names[bit])
                found = self.on[key] = engine.owners(key)
                self._met.append(~bit)
                for uid in found:
                    self._met.append(self.numbers.setdefault(uid, len(self.numbers) + 1))
            self._met.append(0)

    def names(self, key: DeviceKey) -> str:
        return ", ".join([self._engine.owner_name(uid) for uid in self.on.get(key, ()) if not rests(uid)])

    def rest(self, key: DeviceKey) -> bool:
        """Whether nobody holds the device, and it only rests."""
        found = self.on.get(key)
        return bool(found) and all(map(rests, found or ()))

    def division(self) -> Hashable:
        """How the devices are divided, without names: where it is equal, letting go of the same numbers leaves the same."""
        contents = self._view.contents
        resting = [number for uid, number in self.numbers.items() if rests(uid)]
        if all(content.whole for content in contents):
            return tuple(self._met), tuple(resting), None
        pools = {content.key: (number, content.bits) for number, content in enumerate(contents)}
        charges = [[_nameless(charge, pools) for charge in self._engine.charges(uid)] for uid in self.numbers]
        return tuple(self._met), tuple(resting), tuple(map(tuple, charges))


def rests(uid: str) -> bool:
    """Whether this is no claim but the rest that a device has after a failure."""
    return uid.startswith("rest/")


def _nameless(charge: Charge, pools: dict[PoolKey, tuple[int, dict[str, tuple[int, ...]]]]) -> Hashable:
    """What a holder has of a device that the node sees; nothing of any other."""
    found = pools.get((charge.device.driver, charge.device.pool))
    if found is None:
        return None
    number, bits = found
    return number, bits.get(charge.device.device, charge.device.device), charge.mode, charge.consumed, charge.groups
