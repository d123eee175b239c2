"""How long bindings take, as numbers: what is waited for, and everything before the bind."""

from __future__ import annotations

from dray.cluster.metrics import Meter
from dray.scheduling.binding import conditions
from dray.scheduling.binding.bindings import Binding
from dray.scheduling.binding.stages import Stimulus


class Measures:
    def __init__(self, meter: Meter) -> None:
        self._meter = meter

    def prebound(self, binding: Binding, stimulus: Stimulus, now: float) -> None:
        """Everything before the bind is over for a pod with devices: an attempt counts once, when it is clear how it ended; a
        member of a gang was ready when its own devices were."""
        late = binding.reason is not None and binding.reason.code == "BindingTimeout"
        status = "success" if stimulus == "ready" else "timeout" if late else "failure"
        end = now if stimulus == "failed" or binding.ready_since is None else binding.ready_since
        if binding.waited is not None:
            self._waited(binding, end - binding.waited, status)
        labels = (status, "true" if binding.held else "false")
        self._meter.observe("scheduler_dra_bindingconditions_prebind_duration_seconds", end - binding.since, labels)

    def _waited(self, binding: Binding, seconds: float, status: str) -> None:
        """Once for each driver whose devices were waited for."""
        for driver in sorted({driver for claim in binding.held.values() for driver in conditions.drivers(claim)}):
            labels = (binding.profile.scheduler_name, driver, status)
            self._meter.count("scheduler_dra_bindingconditions_allocations_total", labels)
            self._meter.observe("scheduler_dra_bindingconditions_wait_duration_seconds", seconds, labels)

    def created(self, result: str) -> None:
        """A claim for extended resources was made, or could not be."""
        self._meter.count("dynamic_resource_allocation_resourceclaim_creates_total", (result, "false", "", "Pod"))
