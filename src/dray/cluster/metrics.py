"""Numbers about decisions, recorded as data; a shell exports them. Names are upstream's where upstream has them."""

from __future__ import annotations

from typing import Final, Protocol

Labels = tuple[str, ...]
# name -> (kind, label names, help)
Declared = dict[str, tuple[str, Labels, str]]


class Meter(Protocol):
    def seconds(self) -> float:
        """A clock that only measures how long deciding takes; no decision depends on it."""
        ...

    def count(self, name: str, labels: Labels = (), by: int = 1) -> None: ...

    def observe(self, name: str, value: float, labels: Labels = ()) -> None: ...

    def gauge(self, name: str, value: float, labels: Labels = ()) -> None: ...


METRICS: Final[Declared] = {
    "scheduler_schedule_attempts_total": ("counter", ("result", "profile"), "Attempts to schedule pods, by result"),
    "scheduler_scheduling_attempt_duration_seconds": (
        "histogram",
        ("result", "profile"),
        "How long deciding on a pod took, by result; writing the decision is not part of it",
    ),
    "scheduler_framework_extension_point_duration_seconds": (
        "histogram",
        ("extension_point", "status", "profile"),
        "How long finding a node took; filters and scores are one step here, called Filter",
    ),
    "scheduler_plugin_execution_duration_seconds": (
        "short",
        ("plugin", "extension_point", "status"),
        "How long the devices of a pod were looked for on one node: DynamicResources, Filter",
    ),
    "scheduler_pod_scheduling_attempts": ("attempts", (), "Attempts until a pod was bound"),
    "scheduler_pod_scheduling_sli_duration_seconds": ("histogram", ("attempts",), "From first seen to bound"),
    "scheduler_pending_pods": ("gauge", ("queue",), "Pods that are not placed, by queue"),
    "scheduler_preemption_attempts_total": ("counter", (), "Attempts to make room by evicting pods"),
    "scheduler_preemption_victims": ("victims", (), "Pods evicted at once to make room"),
    "scheduler_dra_bindingconditions_allocations_total": (
        "counter",
        ("profile", "driver", "status"),
        "Attempts that had to wait for binding conditions of a driver's devices, by how the wait ended",
    ),
    "scheduler_dra_bindingconditions_wait_duration_seconds": (
        "histogram",
        ("profile", "driver", "status"),
        "How long an attempt waited for binding conditions of a driver's devices",
    ),
    "scheduler_dra_bindingconditions_prebind_duration_seconds": (
        "histogram",
        ("status", "requires_bindingconditions"),
        "From the decision on a pod with devices until it can be bound: claims written and devices ready",
    ),
    "dynamic_resource_allocation_resourceclaim_creates_total": (
        "counter",
        ("status", "admin_access", "owner_api_group", "owner_api_kind"),
        "Claims created for pods, by how the create ended",
    ),
    "dray_missed_wakeups_total": ("counter", (), "Waiting pods that the sweep could place although no event had woken them"),
    "dray_numa_admission_refusals_total": (
        "counter",
        ("reason",),
        "Pods that a kubelet refused although their zones should have done, or whose zones nobody publishes",
    ),
    "dray_numa_reselected_nodes_total": ("counter", (), "Refused pods of a shape that the same node had refused before"),
    "dray_numa_pods_not_reported": ("gauge", (), "Pods that have run for a minute and that no exporter has reported"),
    "dray_numa_nodes_without_zone_data": (
        "gauge",
        (),
        "Nodes whose kubelet refuses what it cannot align and whose topology object lacks a resource that they offer",
    ),
    "dray_write_conflicts_total": ("counter", ("resource",), "Writes refused because the object had changed"),
}


class Recorder:
    """Keeps every number in memory; what tests and simulations read."""

    def __init__(self) -> None:
        self.counters: dict[tuple[str, Labels], int] = {}
        self.gauges: dict[tuple[str, Labels], float] = {}
        self.samples: dict[tuple[str, Labels], list[float]] = {}
        self._ticks = 0.0

    def seconds(self) -> float:
        """Every look at the clock is a second later, so that what is measured can be foretold."""
        self._ticks += 1.0
        return self._ticks

    def count(self, name: str, labels: Labels = (), by: int = 1) -> None:
        self.counters[name, labels] = self.counters.get((name, labels), 0) + by

    def observe(self, name: str, value: float, labels: Labels = ()) -> None:
        self.samples.setdefault((name, labels), []).append(value)

    def gauge(self, name: str, value: float, labels: Labels = ()) -> None:
        self.gauges[name, labels] = value


class Silent:
    """Records nothing: the default where no one asks."""

    def seconds(self) -> float:
        return 0.0

    def count(self, name: str, labels: Labels = (), by: int = 1) -> None:
        pass

    def observe(self, name: str, value: float, labels: Labels = ()) -> None:
        pass

    def gauge(self, name: str, value: float, labels: Labels = ()) -> None:
        pass
