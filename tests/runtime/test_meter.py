"""What deciders record becomes Prometheus' metrics."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from dray.cluster.metrics import METRICS, Declared
from dray.cluster.numbers import Registry
from dray.controllers.sets import METRICS as CONTROLLERS
from dray.nodes.exporter import METRICS as EXPORTER
from dray.nodes.numbers import METRICS as NODES
from dray.runtime.meter import Meter

SOURCE = Path(__file__).parents[2] / "src" / "dray"
COUNTED = re.compile(r'meter\.(?:count|observe|gauge)\(\s*"(\w+)"')


def test_attempts_and_their_durations_are_exported_by_upstreams_names() -> None:
    registry = Registry()
    meter = Meter(registry, METRICS)
    meter.observe("scheduler_scheduling_attempt_duration_seconds", 0.005, ("scheduled", "dray"))
    meter.observe("scheduler_pod_scheduling_attempts", 3)
    text = registry.text().decode()
    assert 'scheduler_scheduling_attempt_duration_seconds_bucket{le="0.01",profile="dray",result="scheduled"} 1.0' in text
    assert 'scheduler_pod_scheduling_attempts_bucket{le="2.0"} 0.0' in text
    assert 'scheduler_pod_scheduling_attempts_bucket{le="4.0"} 1.0' in text


def test_the_meters_clock_moves_forward() -> None:
    meter = Meter(Registry(), {})
    assert meter.seconds() <= meter.seconds()


def test_an_unknown_kind_of_metric_is_named() -> None:
    with pytest.raises(ValueError, match="metric x: 'dial'"):
        Meter(Registry(), {"x": ("dial", (), "")})


@pytest.mark.parametrize(
    ("room", "declared"), [("scheduling", METRICS), ("controllers", CONTROLLERS), ("nodes", {**NODES, **EXPORTER})]
)
def test_whatever_a_decider_counts_is_declared(room: str, declared: Declared) -> None:
    counted = {name for path in (SOURCE / room).rglob("*.py") for name in COUNTED.findall(path.read_text())}
    assert counted
    assert counted <= set(declared)


class TestThePageIsReadByPrometheusOwnParser:
    def test_numbers_of_every_kind(self) -> None:
        registry = Registry()
        registry.counter("c_total", "Grows.", ("who",)).labels("a").inc(2.5)
        registry.gauge("g", "Moves.").labels().set(-1)
        registry.gauge("asked", "Is read when asked.").labels().set_function(lambda: 7.0)
        spread = registry.histogram("h", "Spreads.", (0.1, 1.0)).labels()
        for value in (0.05, 0.1, 0.5, 3.0):
            spread.observe(value)
        assert read(registry) == {
            ("c_total", (("who", "a"),)): 2.5,
            ("g", ()): -1.0,
            ("asked", ()): 7.0,
            ("h_bucket", (("le", "0.1"),)): 2.0,  # a bound counts what is equal to it
            ("h_bucket", (("le", "1.0"),)): 3.0,
            ("h_bucket", (("le", "+Inf"),)): 4.0,
            ("h_count", ()): 4.0,
            ("h_sum", ()): 3.65,
        }

    def test_whatever_is_in_a_label_or_in_a_text(self) -> None:
        registry = Registry()
        awkward = 'a "b"\\c\nd'
        registry.counter("c_total", awkward, ("who",)).labels(awkward).inc()
        (family,) = text_string_to_metric_families(registry.text().decode())
        assert family.documentation == awkward
        assert read(registry) == {("c_total", (("who", awkward),)): 1.0}

    def test_what_has_no_labels_is_there_before_it_is_counted(self) -> None:
        registry = Registry()
        registry.counter("c_total", "")
        registry.counter("by_who_total", "", ("who",))
        assert read(registry) == {("c_total", ()): 0.0}


def test_a_metric_cannot_be_declared_twice_nor_counted_without_its_labels() -> None:
    registry = Registry()
    counter = registry.counter("c_total", "", ("who",))
    with pytest.raises(ValueError, match="metric c_total is declared twice"):
        registry.gauge("c_total", "")
    with pytest.raises(ValueError, match="metric c_total has the labels who, got"):
        counter.labels("a", "b")


def read(registry: Registry) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    families = text_string_to_metric_families(registry.text().decode())
    return {(sample.name, tuple(sorted(sample.labels.items()))): sample.value for family in families for sample in family.samples}
