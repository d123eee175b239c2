"""What is taken: which claim holds which device, share, capacity and group, with one journal for undoing.

Holdings are kept by device name, whether or not the device is published now, so that a slice that comes back finds its
users. Each claim (by uid) is charged at most once; releasing takes back exactly what was charged. ``checkpoint`` starts
recording, ``rollback`` undoes everything since then in reverse order, ``commit`` forgets the record.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, NamedTuple

import msgspec

from dray.api.quantity import Quantity, QuantityError
from dray.api.resource import AllocationResult, DeviceRequestAllocationResult

PoolKey = tuple[str, str]
Mode = Literal["exclusive", "share", "rest"]


class DeviceKey(NamedTuple):
    """Who a device is: names, not objects, because claims outlive slices."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


class Charge(msgspec.Struct, frozen=True):
    """One device, or one share of it, held by one claim. ``groups`` is the snapshot in the claim's status, if any."""

    device: DeviceKey
    mode: Mode = "exclusive"
    consumed: tuple[tuple[str, int], ...] = ()
    groups: tuple[tuple[str, tuple[str, ...]], ...] | None = None


class Holding:
    """Everything that claims hold of one device. ``resting`` keeps a device from use without charging its counters."""

    __slots__ = ("consumed", "exclusive", "resting", "shares", "snapshots")

    def __init__(self) -> None:
        self.exclusive = 0
        self.shares = 0
        self.resting = 0
        self.consumed: dict[str, int] = {}
        self.snapshots: list[tuple[tuple[str, tuple[str, ...]], ...]] = []

    @property
    def allocated(self) -> bool:
        return bool(self.exclusive or self.shares)

    @property
    def empty(self) -> bool:
        return not (self.exclusive or self.shares or self.resting)

    def add(self, charge: Charge) -> None:
        self._count(charge.mode, 1)
        for name, amount in charge.consumed:
            self._consume(name, amount)
        if charge.groups is not None:
            self.snapshots.append(charge.groups)

    def remove(self, charge: Charge) -> None:
        self._count(charge.mode, -1)
        for name, amount in charge.consumed:
            self._consume(name, -amount)
        if charge.groups is not None:
            self.snapshots.remove(charge.groups)

    def _consume(self, name: str, amount: int) -> None:
        """Sums of zero are not kept, so that what was added and removed again leaves nothing."""
        total = self.consumed.get(name, 0) + amount
        if total:
            self.consumed[name] = total
        else:
            self.consumed.pop(name, None)

    def _count(self, mode: Mode, by: int) -> None:
        if mode == "exclusive":
            self.exclusive += by
        elif mode == "share":
            self.shares += by
        else:
            self.resting += by

    def state(self) -> tuple[object, ...]:
        """Comparable content, without the order in which charges came."""
        return (self.exclusive, self.shares, self.resting, tuple(sorted(self.consumed.items())), tuple(sorted(self.snapshots)))


_NOTHING: Final[dict[str, Holding]] = {}


class Ledger:
    """Charges by claim uid. ``changed`` hears about every device whose holding changed."""

    def __init__(self, changed: Callable[[DeviceKey, Holding], None]) -> None:
        self._changed = changed
        self._holdings: dict[PoolKey, dict[str, Holding]] = {}
        self._entries: dict[str, tuple[Charge, ...]] = {}
        # How many results of a claim hold the device: several, where it has several shares of it.
        self._owners: dict[DeviceKey, dict[str, int]] = {}
        # Claims whose charges are decided but not written yet.
        self._held: set[str] = set()
        self._journal: list[tuple[str, tuple[Charge, ...] | None, bool]] = []
        self._marks = 0

    def charge(self, uid: str, charges: tuple[Charge, ...], *, held: bool = False) -> None:
        """Charge these devices to the claim, instead of whatever it had before."""
        before = self._entries.get(uid)
        if before == charges and held == (uid in self._held):
            return
        self._record(uid, before)
        self._set(uid, charges, held)

    def release(self, uid: str) -> None:
        before = self._entries.get(uid)
        if before is not None:
            self._record(uid, before)
            self._set(uid, None, False)

    def held(self, uid: str) -> bool:
        """Whether the claim's charges are decided but not written yet."""
        return uid in self._held

    def on_the_way(self) -> frozenset[str]:
        """Every claim whose charges are decided but not written yet."""
        return frozenset(self._held)

    def checkpoint(self) -> int:
        self._marks += 1
        return len(self._journal)

    def rollback(self, mark: int) -> None:
        """Undo everything since ``mark``, exactly."""
        while len(self._journal) > mark:
            self._set(*self._journal.pop())
        self._closed()

    def commit(self, mark: int) -> None:
        """Keep everything since ``mark``; an outer checkpoint can still undo it."""
        del mark
        self._closed()

    def _closed(self) -> None:
        if self._marks <= 0:
            raise ValueError("rollback or commit without a checkpoint")
        self._marks -= 1
        if not self._marks:
            self._journal.clear()

    def _record(self, uid: str, before: tuple[Charge, ...] | None) -> None:
        if self._marks:
            self._journal.append((uid, before, uid in self._held))

    def _set(self, uid: str, charges: tuple[Charge, ...] | None, held: bool) -> None:
        (self._held.add if held else self._held.discard)(uid)
        for charge in self._entries.pop(uid, ()):
            self._apply(uid, charge, held=False)
        if charges is not None:
            self._entries[uid] = charges
            for charge in charges:
                self._apply(uid, charge, held=True)

    def _apply(self, uid: str, charge: Charge, *, held: bool) -> None:
        key = charge.device
        devices = self._holdings.setdefault((key.driver, key.pool), {})
        holding = devices.get(key.device)
        if holding is None:
            holding = devices[key.device] = Holding()
        if held:
            holding.add(charge)
            owners = self._owners.setdefault(key, {})
            owners[uid] = owners.get(uid, 0) + 1
        else:
            holding.remove(charge)
            self._forget_owner(key, uid)
            if holding.empty:
                del devices[key.device]
        self._changed(key, holding)

    def _forget_owner(self, key: DeviceKey, uid: str) -> None:
        owners = self._owners[key]
        owners[uid] -= 1
        if not owners[uid]:
            del owners[uid]
        if not owners:
            del self._owners[key]

    # ------------------------------------------------------------------------------------------------------- reading

    def holdings(self, pool: PoolKey) -> dict[str, Holding]:
        return self._holdings.get(pool, _NOTHING)

    def entry(self, uid: str) -> tuple[Charge, ...] | None:
        return self._entries.get(uid)

    def owners(self, device: DeviceKey) -> tuple[str, ...]:
        """The uids of the claims that hold this device."""
        return tuple(self._owners.get(device, ()))

    def snapshot(self) -> dict[DeviceKey, tuple[object, ...]]:
        """Everything held, comparable: two ledgers with equal snapshots are equal."""
        return {
            DeviceKey(driver, pool, name): holding.state()
            for (driver, pool), devices in self._holdings.items()
            for name, holding in devices.items()
        }


def charges_of(allocation: AllocationResult, *, shareable: bool) -> tuple[Charge, ...]:
    """What an allocation takes. adminAccess takes nothing; with consumable capacity off a share is the whole device."""
    return tuple(_charge(result, shareable=shareable) for result in allocation.devices.results if not result.admin_access)


def _charge(result: DeviceRequestAllocationResult, *, shareable: bool) -> Charge:
    key = DeviceKey(result.driver, result.pool, result.device)
    groups = None
    if result.compatibility_groups is not None:
        groups = tuple(sorted((name, tuple(values)) for name, values in result.compatibility_groups.items()))
    if result.share_id is None or not shareable:
        return Charge(key, "exclusive", (), groups)
    consumed = result.consumed_capacity or {}
    try:
        amounts = tuple((name, Quantity.parse(value).nanos) for name, value in sorted(consumed.items()))
    except QuantityError:
        # What cannot be read cannot be subtracted: nobody else gets the device.
        return Charge(key, "exclusive", (), groups)
    return Charge(key, "share", amounts, groups)
