"""The account of devices: which claim, promise or rest holds which device, share, capacity and group.

Holdings are kept by device name, whether or not the device is published now, so that a slice that comes back finds its
users. Each holder is charged at most once; releasing takes back exactly what was charged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, NamedTuple

import msgspec

from dray.api.quantity import Quantity, QuantityError
from dray.api.resource import AllocationResult, DeviceKey, DeviceRequestAllocationResult
from dray.books.journal import Books, Standing

PoolKey = tuple[str, str]
Mode = Literal["exclusive", "share", "rest"]


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


class Entry(NamedTuple):
    """What one holder has of devices: the posting of a claim, a promise or a rest."""

    charges: tuple[Charge, ...]
    standing: Standing = "shown"
    # ``namespace/name`` of the claim, for people.
    name: str = ""


class Ledger:
    """The account of devices. ``changed`` hears about every device whose holding changed, trials included."""

    def __init__(self, changed: Callable[[DeviceKey, Holding], None], books: Books) -> None:
        self._books = books
        self._changed = changed
        self._holdings: dict[PoolKey, dict[str, Holding]] = {}
        self._entries: dict[str, Entry] = {}
        # How many results of a claim hold the device: several, where it has several shares of it.
        self._owners: dict[DeviceKey, dict[str, int]] = {}
        # Holders whose charges the API does not show: an index of the entries.
        self._unshown: set[str] = set()

    def charge(self, holder: str, charges: tuple[Charge, ...], standing: Standing = "shown", name: str = "") -> None:
        """Charge these devices to the holder, instead of whatever it had before."""
        entry = Entry(charges, standing, name)
        if self._entries.get(holder) != entry:
            self._books.post(self, holder, entry)

    def restate(self, holder: str, standing: Standing) -> None:
        """The same devices with another standing: of that nobody hears, because nothing is free or taken that was not before."""
        known = self._entries[holder]
        entry = Entry(known.charges, standing, known.name)
        if self._books.trying:
            self._books.post(self, holder, entry)
        else:
            self.post(holder, entry)

    def hand_over(self, holder: str, to: str, name: str) -> bool:
        """All that the holder has is another's from now on, who had nothing. Of that nobody hears either. Whether it had
        anything."""
        known = self._entries.get(holder)
        if known is None:
            return False
        entry = Entry(known.charges, known.standing, name)
        if self._books.trying:
            self._books.post(self, to, entry)
            self._books.post(self, holder, None)
            return True
        del self._entries[holder]
        self._entries[to] = entry
        for device in {charge.device for charge in entry.charges}:
            owners = self._owners[device]
            owners[to] = owners.pop(holder)
        if holder in self._unshown:
            self._unshown.remove(holder)
            self._unshown.add(to)
        return True

    def release(self, holder: str) -> None:
        if holder in self._entries:
            self._books.post(self, holder, None)

    def post(self, holder: str, entry: Entry | None) -> Entry | None:
        before = self._entries.pop(holder, None)
        if before is not None and entry is not None and before.charges == entry.charges:
            self._entries[holder] = entry
        else:
            for charge in before.charges if before is not None else ():
                self._apply(holder, charge, held=False)
            if entry is not None:
                self._entries[holder] = entry
                for charge in entry.charges:
                    self._apply(holder, charge, held=True)
        if entry is not None and entry.standing in ("decided", "writing"):
            self._unshown.add(holder)
        else:
            self._unshown.discard(holder)
        return before

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
                if not devices:
                    del self._holdings[key.driver, key.pool]
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

    def entry(self, holder: str) -> Entry | None:
        return self._entries.get(holder)

    def charges(self, holder: str) -> tuple[Charge, ...]:
        entry = self._entries.get(holder)
        return entry.charges if entry is not None else ()

    def entries(self) -> list[tuple[str, Entry]]:
        return list(self._entries.items())

    def standing(self, holder: str) -> Standing | None:
        entry = self._entries.get(holder)
        return entry.standing if entry is not None else None

    def name_of(self, holder: str) -> str:
        entry = self._entries.get(holder)
        return entry.name if entry is not None else ""

    def on_the_way(self) -> frozenset[str]:
        """Every holder whose charges are decided, or being written, and not shown yet."""
        return frozenset(self._unshown)

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
    return tuple([charge for charge, _ in charged(allocation, shareable=shareable)])


def charged(allocation: AllocationResult, *, shareable: bool) -> list[tuple[Charge, DeviceRequestAllocationResult]]:
    """What an allocation takes, result by result."""
    return [(_charge(r, shareable=shareable), r) for r in allocation.devices.results if not r.admin_access]


def _charge(result: DeviceRequestAllocationResult, *, shareable: bool) -> Charge:
    key = DeviceKey(result.driver, result.pool, result.device)
    groups = None
    if result.compatibility_groups:
        groups = tuple(sorted((name, tuple(values)) for name, values in result.recorded_groups.items()))
    if result.share_id is None or not shareable:
        return Charge(key, "exclusive", (), groups)
    consumed = result.consumed_capacity or {}
    try:
        amounts = tuple((name, Quantity.parse(value).nanos) for name, value in sorted(consumed.items()))
    except QuantityError:
        # What cannot be read cannot be subtracted: nobody else gets the device.
        return Charge(key, "exclusive", (), groups)
    return Charge(key, "share", amounts, groups)
