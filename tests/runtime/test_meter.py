"""What deciders record becomes Prometheus' metrics."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from dray.cluster.metrics import METRICS
from dray.runtime.meter import Meter


def test_attempts_and_their_durations_are_exported_by_upstreams_names() -> None:
    registry = CollectorRegistry()
    meter = Meter(registry, METRICS)
    meter.observe("scheduler_scheduling_attempt_duration_seconds", 0.005, ("scheduled", "dray"))
    meter.observe("scheduler_pod_scheduling_attempts", 3)
    text = generate_latest(registry).decode()
    assert 'scheduler_scheduling_attempt_duration_seconds_bucket{le="0.01",profile="dray",result="scheduled"} 1.0' in text
    assert 'scheduler_pod_scheduling_attempts_bucket{le="2.0"} 0.0' in text
    assert 'scheduler_pod_scheduling_attempts_bucket{le="4.0"} 1.0' in text


def test_the_meters_clock_moves_forward() -> None:
    meter = Meter(CollectorRegistry(), {})
    assert meter.seconds() <= meter.seconds()


def test_an_unknown_kind_of_metric_is_named() -> None:
    with pytest.raises(ValueError, match="metric x: 'dial'"):
        Meter(CollectorRegistry(), {"x": ("dial", (), "")})
