"""Devices that failed to bind are the last choice for a while: what nobody else can have is better than nothing.

Always true: a device that rests is held in the ledger, so that it is found only where its rest is lifted; one that is taken all
the same does not rest any more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from dray.api.resource import AllocationResult, DeviceKey
from dray.books.changes import EVERYTHING
from dray.devices import Devices

# Rests that can be lifted one by one, so that as few such devices as possible are taken; beyond, all together.
_ONE_BY_ONE: Final = 16


class Rests:
    def __init__(self, engine: Devices, seconds: float) -> None:
        self._engine, self._seconds = engine, seconds
        self._until: dict[DeviceKey, float] = {}

    def __len__(self) -> int:
        return len(self._until)

    def rest(self, device: DeviceKey, now: float) -> None:
        self._engine.rest(device)
        self._until.pop(device, None)
        self._until[device] = now + self._seconds

    @property
    def steps(self) -> int:
        """In how many steps everything is lifted."""
        return min(len(self._until), _ONE_BY_ONE + 1)

    def lift(self, steps: int) -> set[str] | None:
        """Lift so many rests, those that began first at first, until the end of the trial in which this is done; answers the
        nodes that can use what was lifted (None: perhaps all)."""
        lifted = list(self._until)[: steps if steps <= _ONE_BY_ONE else None]
        for key in lifted:
            self._engine.wake(key)
        return self._reach(lifted)

    def opened_by(self, nodes: Collection[str]) -> bool:
        """Whether something that became free on these nodes may be a device that rests."""
        if not self._until:
            return False
        found = self._reach(self._until)
        return found is None or EVERYTHING in nodes or not found.isdisjoint(nodes)

    def _reach(self, keys: Iterable[DeviceKey]) -> set[str] | None:
        found: set[str] = set()
        for driver, pool in {(key.driver, key.pool) for key in keys}:
            nodes = self._engine.inventory.reach((driver, pool))
            if nodes is None:
                return None
            found |= nodes
        return found

    def holds(self, results: Iterable[AllocationResult]) -> list[DeviceKey]:
        """The devices of these that rest, each once, however many shares of it there are."""
        if not self._until:
            return []
        keys = (DeviceKey.of(d) for result in results for d in result.devices.results)
        return list(dict.fromkeys(key for key in keys if key in self._until))

    def taken(self, devices: Iterable[DeviceKey]) -> None:
        for key in devices:
            del self._until[key]
            self._engine.wake(key)

    def end(self, now: float) -> None:
        """Those whose time is over are a choice like any other again."""
        self.taken([key for key, until in self._until.items() if until <= now])

    def next_due(self) -> float | None:
        return min(self._until.values(), default=None)
