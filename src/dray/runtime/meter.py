"""Numbers that deciders record as data, exported in Prometheus' terms. The table says what each number is."""

from __future__ import annotations

import time
from typing import Final

from dray.cluster.metrics import Declared, Labels
from dray.cluster.numbers import Counter, Family, Gauge, Histogram, Registry

# A tenth of a second to a quarter of an hour: upstream's buckets for waits, and fine enough for scheduling.
BUCKETS: Final = (0.001, 0.01, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 102.4, 204.8, 409.6, 819.2)
ATTEMPTS: Final = (1, 2, 4, 8, 16)
VICTIMS: Final = (1, 2, 4, 8, 16, 32, 64)
# Ten millionths of a second to a quarter of a second: what one look at one node takes.
SHORT: Final = (0.00001, 0.00003, 0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.25)
# From when a pod had to leave until it was told to: upstream's buckets.
EVICTIONS: Final = (0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 30.0, 60.0, 120.0, 180.0, 240.0)
# A tenth of a second to 40, in 15 equal steps of their logarithm: upstream's buckets for calls that end after 45 seconds.
CALLS: Final = tuple(round(0.1 * 400 ** (step / 14), 4) for step in range(15))
_BUCKETS: Final = {
    "histogram": BUCKETS, "attempts": ATTEMPTS, "victims": VICTIMS, "short": SHORT, "evictions": EVICTIONS, "calls": CALLS
}  # fmt: skip


class Meter:
    """Implements the meter of any decider whose numbers are declared as ``name -> (kind, labels, help)``."""

    def __init__(self, registry: Registry, table: Declared) -> None:
        self._counters: dict[str, Family[Counter]] = {}
        self._gauges: dict[str, Family[Gauge]] = {}
        self._histograms: dict[str, Family[Histogram]] = {}
        for name, (kind, labels, text) in table.items():
            match kind:
                case "counter":
                    self._counters[name] = registry.counter(name, text, labels)
                case "gauge":
                    self._gauges[name] = registry.gauge(name, text, labels)
                case _ if kind in _BUCKETS:
                    self._histograms[name] = registry.histogram(name, text, _BUCKETS[kind], labels)
                case _:
                    raise ValueError(f"metric {name}: {kind!r} is not a kind of metric")

    def seconds(self) -> float:
        return time.perf_counter()

    def count(self, name: str, labels: Labels = (), by: int = 1) -> None:
        self._counters[name].labels(*labels).inc(by)

    def observe(self, name: str, value: float, labels: Labels = ()) -> None:
        self._histograms[name].labels(*labels).observe(value)

    def gauge(self, name: str, value: float, labels: Labels = ()) -> None:
        self._gauges[name].labels(*labels).set(value)
