"""How long bindings take, as numbers: what is waited for, and everything before the bind."""

from __future__ import annotations

from collections.abc import Iterable

from dray.api.resource import ResourceClaim
from dray.cluster.metrics import Meter
from dray.scheduling.binding import conditions


class Measures:
    def __init__(self, meter: Meter) -> None:
        self._meter = meter

    def waited(self, claims: Iterable[ResourceClaim], seconds: float, profile: str, status: str) -> None:
        """Once for each driver whose devices were waited for."""
        for driver in sorted({driver for claim in claims for driver in conditions.drivers(claim)}):
            labels = (profile, driver, status)
            self._meter.count("scheduler_dra_bindingconditions_allocations_total", labels)
            self._meter.observe("scheduler_dra_bindingconditions_wait_duration_seconds", seconds, labels)

    def prebound(self, seconds: float, status: str, *, waited: bool) -> None:
        """Everything before the bind is over for a pod with devices."""
        labels = (status, "true" if waited else "false")
        self._meter.observe("scheduler_dra_bindingconditions_prebind_duration_seconds", seconds, labels)

    def created(self, result: str) -> None:
        """A claim for extended resources was made, or could not be."""
        self._meter.count("dynamic_resource_allocation_resourceclaim_creates_total", (result, "false", "", "Pod"))
