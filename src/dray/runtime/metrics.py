"""What a shell counts, in Prometheus' terms. One ``Metrics`` per process; deciders may add their own to its registry."""

from __future__ import annotations

from typing import Final

from dray.cluster.numbers import Registry
from dray.cluster.port import ClusterError, Outcome, Refused, Unreachable

SECONDS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


class Metrics:
    def __init__(self) -> None:
        self.registry = registry = Registry()
        self.events = registry.counter("dray_watch_events_total", "Objects listed or changed, by kind.", ("kind",))
        self.relists = registry.counter("dray_lists_total", "Complete lists, the first one included.", ("kind",))
        self.forbidden = registry.gauge("dray_kinds_forbidden", "1 while a kind cannot be read and counts as empty.", ("kind",))
        self.writes = registry.counter(
            "dray_writes_total", "Writes by decider, verb, resource and result.", ("decider", "verb", "resource", "result")
        )
        self.write_seconds = registry.histogram(
            "dray_write_duration_seconds", "Time from decision to answer.", SECONDS, ("verb",)
        )
        self.in_flight = registry.gauge("dray_writes_in_flight", "Writes sent but not answered yet.").labels()
        self.waiting = registry.gauge("dray_writes_waiting", "Writes decided but not sent yet.").labels()
        self.act_seconds = registry.histogram("dray_act_duration_seconds", "One call of a decider.", SECONDS, ("decider",))
        self.leading = registry.gauge(
            "leader_election_master_status", "1 while this instance is the leader, by lease.", ("name",)
        )

    def wrote(self, decider: str, outcome: Outcome, seconds: float) -> None:
        write = outcome.write
        resource = f"{write.kind.resource}/{write.subresource}" if write.subresource else write.kind.resource
        self.writes.labels(decider, write.verb, resource, result(outcome.error)).inc()
        self.write_seconds.labels(write.verb).observe(seconds)

    def text(self) -> bytes:
        return self.registry.text()


def result(error: ClusterError | None) -> str:
    if error is None:
        return "ok"
    if isinstance(error, Refused):
        return str(error.code)
    return "unreachable" if isinstance(error, Unreachable) else "error"
