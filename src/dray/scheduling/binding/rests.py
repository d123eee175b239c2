"""Devices that failed to bind are left alone for a while."""

from __future__ import annotations

from dray.devices import DeviceKey, Devices
from dray.scheduling.binding.conditions import Device


class Rests:
    def __init__(self, engine: Devices, seconds: float) -> None:
        self._engine, self._seconds = engine, seconds
        self._until: dict[DeviceKey, float] = {}

    def rest(self, device: Device, now: float) -> None:
        key = DeviceKey(device.driver, device.pool, device.name)
        self._engine.rest(key)
        self._until[key] = now + self._seconds

    def end(self, now: float) -> None:
        """Those whose time is over can be had again."""
        for key in [key for key, until in self._until.items() if until <= now]:
            del self._until[key]
            self._engine.wake(key)

    def next_due(self) -> float | None:
        return min(self._until.values(), default=None)
