"""Pods that come and go for ever: what a whole cluster, all parts in one process, remembers of them.

Always true: every name is new, and between two looks everything has gone, so that whatever grows is remembered of what went.
``entries`` is exact: it counts what can be reached from deciders and their worlds. ``resident`` is what the operating system
says of the process, which is what a user sees, with the API server's state and everything that ``entries`` does not know.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from dray.api.kinds import PODS
from dray.runtime.faults import NONE, Faults
from dray.testing import VirtualCluster, assert_sound, claim_template, device_class, node_with_devices, pod
from tests.simulate.held import held

NODES: Final = 4
WAVE: Final = 20
# What may grow, and how far. Caches count with everything that can be reached only through them.
BOUNDS: Final = {
    "World._gone": 5 * 20_000,  # each process has its own
    "Garbage._gone": 20_000,
    "ClaimsController._gone": 10_000,
    "ChangeLog._names": 2 * 65_536,  # of nodes, and of devices
    "Nodes._states": 65_536,
    "Plan._seen": 128 * 65_536,
    "Inventory._states": 1_000_000,
    "ClaimsController._counted": 1_000,  # one for each combination of a few labels
    "Recorder._series": 5 * 4096 * 16,  # each process has its own
    "Series._said": 10_000 * 4,
    "Series._named": 10_000,
    "Demand.answers": 100_000,
    "Demand.packed": 100_000,
    "Cycle._kept": 128 * NODES * 200,
}
SHAPES: Final[tuple[dict[str, Any], ...]] = (
    {"template": "one"},
    {"template": "two"},
    {"limits": {"example.com/gpu": "1"}},
    {},
    {"template": "two", "priorityClassName": "high"},
    {"limits": {"example.com/gpu": "2"}, "priorityClassName": "high"},
)


# Where there are no kubelets: pods without devices among them, so that more come and go in an hour.
LEAN_WAVE: Final = 80
LEAN_SHAPES: Final = tuple(shape for one in SHAPES for shape in (one, {}, {}, {}, {}))


class Churn:
    """Pods of a few shapes come in waves, run, end, are preempted or wait, and go. Every name is new.

    ``lean``: with the API server, the scheduler and who makes and removes claims, but without kubelets and all the rest.
    """

    def __init__(self, faults: Faults = NONE, *, lean: bool = False) -> None:
        self.cluster = cluster = VirtualCluster(faults=faults)
        self.wave, self.shapes, self.lean = (LEAN_WAVE, LEAN_SHAPES, True) if lean else (WAVE, SHAPES, False)
        if lean:
            cluster.start_scheduler()
            cluster.start_controllers("claims", "garbage")
        else:
            cluster.start_all()
        cluster.create(device_class("gpu", extendedResourceName="example.com/gpu"))
        cluster.create(claim_template("one"), claim_template("two", count=2))
        for number in range(NODES):
            cluster.create(*node_with_devices(f"n{number}", 4, cpu="16"))
        high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 100}
        cluster.create(high)
        self._waves = 0

    def pods(self, count: int) -> None:
        options = {"gracePeriodSeconds": 0} if self.lean else {}
        for _ in range(count // self.wave):
            self._waves += 1
            for number in range(self.wave):
                self._create(f"p{self._waves}-{number}", number)
            self.cluster.run(6)
            for found in self.cluster.all(PODS):
                self.cluster.delete(PODS, found["metadata"]["name"], **options)
            self.cluster.run(6)

    def _create(self, name: str, number: int) -> None:
        annotations = {"dray.dev/finishes-after": "3s"} if number % 3 else None
        self.cluster.create(pod(name, requests={"cpu": "1"}, annotations=annotations, **self.shapes[number % len(self.shapes)]))

    def at_rest(self) -> Counter[str]:
        """What all deciders and their worlds hold when everything has gone."""
        self.cluster.run(120)
        assert self.cluster.all(PODS) == []
        assert_sound(self.cluster, strict=True)
        hosts = self.cluster.shell.hosts.values()
        return held(*(part for host in hosts for part in (*host.deciders, host.world)), caches=BOUNDS)


def grown(before: Counter[str], after: Counter[str]) -> dict[str, int]:
    """What holds more than before by more than the jitter of a few timers, bounds aside."""
    return {name: after[name] - before[name] for name in after if name not in BOUNDS and after[name] - before[name] > 8}


def beyond(after: Counter[str]) -> dict[str, int]:
    """What has a bound and exceeds it."""
    return {name: after[name] for name, most in BOUNDS.items() if after[name] > most}


def told(count: int, every: int, *, lean: bool) -> int:
    """A line after every so many pods; 1 if anything grew that has no bound, or anything beyond its bound."""
    print("      pods   resident    objects    entries")
    first: Look | None = None
    wrong: dict[str, int] = {}
    for look in looks(count, every, lean=lean):
        print(f"{look.pods:10,} {look.resident / 1024:6.1f} MiB {look.objects:10,} {sum(look.entries.values()):10,}", flush=True)
        wrong = beyond(look.entries) | (grown(first.entries, look.entries) if first is not None else {})
        if wrong:
            print(f"grew: {wrong}")
            break
        first = first or look
    return 1 if wrong else 0


class Look(msgspec.Struct, frozen=True):
    """What is remembered after so many pods came and went."""

    pods: int
    resident: int  # KiB
    objects: int  # that Python's garbage collector follows
    entries: Counter[str]


def looks(count: int, every: int, *, lean: bool = False) -> Iterator[Look]:
    """One after every so many pods, until ``count`` came and went."""
    churn = Churn(lean=lean)
    for pods in range(every, count + 1, every):
        churn.pods(every)
        entries = churn.at_rest()
        gc.collect()
        yield Look(pods, _resident(), len(gc.get_objects()), entries)


def _resident() -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))
