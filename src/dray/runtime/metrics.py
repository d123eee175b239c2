"""What a shell counts, in Prometheus' terms. One ``Metrics`` per process; deciders may add their own to its registry."""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from dray.cluster.port import ClusterError, Outcome, Refused, Unreachable

SECONDS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


class Metrics:
    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self.events = Counter("dray_watch_events_total", "Objects listed or changed, by kind.", ("kind",), registry=self.registry)
        self.relists = Counter("dray_lists_total", "Complete lists, the first one included.", ("kind",), registry=self.registry)
        self.forbidden = Gauge(
            "dray_kinds_forbidden", "1 while a kind may not be read, and counts as empty.", ("kind",), registry=self.registry
        )
        self.writes = Counter(
            "dray_writes_total", "Writes by decider, verb, resource and result.", ("decider", "verb", "resource", "result"),
            registry=self.registry,
        )  # fmt: skip
        self.write_seconds = Histogram(
            "dray_write_duration_seconds", "From decision to answer.", ("verb",), buckets=SECONDS, registry=self.registry
        )
        self.in_flight = Gauge("dray_writes_in_flight", "Writes sent and not answered.", registry=self.registry)
        self.waiting = Gauge("dray_writes_waiting", "Writes decided and not sent.", registry=self.registry)
        self.act_seconds = Histogram(
            "dray_act_duration_seconds", "One call of a decider.", ("decider",), buckets=SECONDS, registry=self.registry
        )
        self.leading = Gauge(
            "leader_election_master_status", "1 while this instance leads, by lease.", ("name",), registry=self.registry
        )

    def wrote(self, decider: str, outcome: Outcome, seconds: float) -> None:
        write = outcome.write
        resource = f"{write.kind.resource}/{write.subresource}" if write.subresource else write.kind.resource
        self.writes.labels(decider, write.verb, resource, result(outcome.error)).inc()
        self.write_seconds.labels(write.verb).observe(seconds)

    def text(self) -> bytes:
        return generate_latest(self.registry)


def result(error: ClusterError | None) -> str:
    if error is None:
        return "ok"
    if isinstance(error, Refused):
        return str(error.code)
    return "unreachable" if isinstance(error, Unreachable) else "error"
