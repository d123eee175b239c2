"""What is free in a node's zones, worked out from what never lags: what can be allocated, less what the pods there have.

NodeResourceTopology is published late, in both directions: a pod that was just bound is missing, one that just went is still
there. The scheduler sees both at once, so its own count is the better one as soon as it knows where each pod is. A pod whose
zones nobody recorded is left out and named: whoever decides can wait for it. Pods that are being deleted count until they
are gone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from dray.api.core import Pod
from dray.api.times import parse_time
from dray.numa.account import Sure
from dray.numa.demand import CPU, Demand, is_device, is_memory
from dray.numa.evaluate import plan
from dray.numa.layout import Layout, State
from dray.numa.placement import Groups, Placement, Record, known_groups, passing, predicted_placement, record
from dray.numa.tally import Tallies, Usage

# The exporter reports within seconds; a pod that runs this long without a report says that it does not work there.
LATE_SECONDS: Final = 60.0


class Occupant(msgspec.Struct, frozen=True):
    """A pod on a node, with what is known of its zones. ``aligned``: the kubelet gives it something by zone, so not to know
    where is a gap."""

    record: Record
    usage: Usage
    aligned: bool

    @property
    def missing(self) -> bool:
        """Nothing says where it is."""
        return self.aligned and self.record.source == "none"


def sureness(found: Occupant, *, started: bool, before: Sure | None = None) -> Sure:
    """How sure it is that the pod is where its record says. What was observed is certain. A prediction is not when nothing was
    predicted, or when it is spread over several zones: how a kubelet splits it is its own affair. A pod that its kubelet has
    admitted is where it was predicted, unless something else happened on the node meanwhile: then ``before`` says so."""
    if not found.aligned or found.record.source == "observed":
        return "observed"
    if found.missing or found.usage.mask.bit_count() > 1 or before == "doubtful":
        return "doubtful"
    return "admitted" if started else "starting"


def occupant(pod: Pod, demand: Demand, layout: Layout, aligned: bool | None = None) -> Occupant:
    """What a pod on a node with this layout takes from its zones, as far as records say. ``aligned``: as the caller knows it."""
    found = _with_stranded(record(pod, layout), pod, demand, layout)
    if aligned is None:
        aligned = bool(plan(layout, demand).needs)
    return Occupant(found, usage_of(found, passing(pod, layout), demand, layout), aligned)


def expected(placed: Placement, passing: Groups, demand: Demand, layout: Layout) -> Occupant:
    """The same for a pod that is going to be placed so: as its records will be read."""
    found = Record("predicted", placed)
    return Occupant(found, usage_of(found, passing, demand, layout), aligned=True)


def usage_of(found: Record, passing: Groups, demand: Demand, layout: Layout) -> Usage:
    """``passing``: memory that only the pod's init containers have, and have still."""
    units = sum(1 for unit in demand.units if any(is_memory(name) for name, _ in unit.needs))
    groups = known_groups(found, units, layout.scope == "pod")
    if not passing or found.source == "none":
        return Usage(found.placement, groups)
    merged = {place: dict(amounts) for place, amounts in found.placement}
    for mask, amounts in passing:
        if mask.bit_count() == 1:
            here = merged.setdefault(mask.bit_length() - 1, {})
            here.update({name: here.get(name, 0) + value for name, value in amounts})
    together = tuple((mask, amounts) for mask, amounts in passing if mask.bit_count() > 1)
    return Usage(_sorted(merged), groups + together)


def _sorted(merged: dict[int, dict[str, int]]) -> Placement:
    return tuple((place, tuple(sorted(merged[place].items()))) for place in sorted(merged))


def _with_stranded(found: Record, pod: Pod, demand: Demand, layout: Layout) -> Record:
    """CPUs and devices of init containers stay with the pod, and no kubelet reports them. What the pod has more than was observed
    is where it was predicted: what its containers need at one time, or more, where they could not use what these left."""
    if found.source != "observed" or not any(unit.role == "init" for unit in demand.units):
        return found
    expected = predicted_placement(pod, layout)
    merged = {place: dict(amounts) for place, amounts in found.placement}
    for name, total in demand.pod:
        foreseen = sum(dict(amounts).get(name, 0) for _, amounts in expected)
        missing = max(total, foreseen) - sum(amounts.get(name, 0) for amounts in merged.values())
        for place, amounts in expected if name == CPU or is_device(name) else ():
            more = min(missing, dict(amounts).get(name, 0) - merged.get(place, {}).get(name, 0))
            if more > 0:
                merged.setdefault(place, {})[name] = merged.get(place, {}).get(name, 0) + more
                missing -= more
    return msgspec.structs.replace(found, placement=_sorted(merged))


def reconstructed(layout: Layout, usages: Iterable[Usage]) -> State:
    """What is left in the zones when these are taken. More taken than there is counts as nothing left."""
    tally = Tallies().empty(layout)
    for usage in usages:
        tally = tally.plus(usage)
    return tally.state


def unreported(pods: Iterable[Pod], now: float) -> list[str]:
    """The health of the exporter: of pods that have something by zone which nobody has observed, those that run for long."""
    return [
        pod.key
        for pod in pods
        if pod.status.phase == "Running"
        and pod.status.start_time is not None
        and now - parse_time(pod.status.start_time) > LATE_SECONDS
    ]
