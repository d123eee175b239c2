"""How the devices of one driver are, by its health reports: each names all devices, and what it says holds for a while only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dray.nodes import messages as m
from dray.nodes.drivers import Health, HealthStatus

TIMEOUT_SECONDS: Final = 30.0
DEVICES_MAX: Final = 16_384
_STATUS: Final[dict[int, HealthStatus]] = {m.HEALTHY: "Healthy", m.UNHEALTHY: "Unhealthy"}

Place = tuple[str, str]  # pool, device


class Reports:
    def __init__(self) -> None:
        self._known: dict[Place, tuple[Health, float]] = {}  # and until when that holds

    def of(self, pool: str, device: str, now: float) -> Health:
        health, until = self._known.get((pool, device), (Health(), 0.0))
        return health if now < until else Health()

    def take(self, devices: Sequence[m.DeviceHealth], now: float) -> bool:
        """Whether something is different after a report. A device that it leaves out stays as it was until its time is up."""
        changed = False
        for found in devices[:DEVICES_MAX]:
            place = (found.device.pool_name, found.device.device_name)
            health = Health(_STATUS.get(found.health, "Unknown"), found.message)
            changed |= self.of(*place, now) != health
            timeout = found.health_check_timeout_seconds
            self._known[place] = (health, now + (timeout if timeout > 0 else TIMEOUT_SECONDS))
        return changed

    def expire(self, now: float) -> bool:
        """Whether something became unknown."""
        old = [place for place, (_, until) in self._known.items() if until <= now]
        for place in old:
            del self._known[place]
        return bool(old)
