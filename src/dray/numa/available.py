"""What is free in a node's zones, worked out from what never lags: what can be allocated, less what the pods there have.

NodeResourceTopology is published late, in both directions: a pod that was just bound is missing, one that just went is still
there. The scheduler sees both at once, so its own count is the better one as soon as it knows where each pod is. A pod whose
zones nobody recorded is left out and named: whoever decides can wait for it. Pods that are being deleted count until they
are gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from dray.api.core import Pod
from dray.api.times import parse_time
from dray.numa.demand import Demand, is_device, is_memory
from dray.numa.evaluate import plan
from dray.numa.layout import Layout, State
from dray.numa.placement import Groups, Placement, Record, known_groups, predicted_placement, record

# The exporter reports within seconds; a pod that runs this long without a report says that it does not work there.
LATE_SECONDS: Final = 60.0


class Usage(msgspec.Struct, frozen=True):
    """What one pod takes. ``groups`` are sets of zones that its memory came from together."""

    placement: Placement = ()
    groups: Groups = ()


class Occupant(msgspec.Struct, frozen=True):
    """A pod on a node, with what is known of its zones. ``aligned``: the kubelet gives it something by zone, so not to know
    where is a gap."""

    key: str
    record: Record
    usage: Usage
    aligned: bool

    @property
    def missing(self) -> bool:
        return self.aligned and self.record.source == "none"


def occupant(pod: Pod, demand: Demand, layout: Layout) -> Occupant:
    """What a pod on a node with this layout takes from its zones, as far as records say."""
    found = _with_stranded(record(pod, layout), pod, demand, layout)
    aligned = bool(plan(layout, demand).needs)
    units = sum(1 for unit in demand.units if any(is_memory(name) for name, _ in unit.needs))
    groups = known_groups(found, units, layout.scope == "pod")
    return Occupant(pod.key, found, Usage(found.placement, groups), aligned)


def _with_stranded(found: Record, pod: Pod, demand: Demand, layout: Layout) -> Record:
    """Devices of init containers stay with the pod, and no kubelet reports them once these are done. What the pod must have
    more than was observed is where it was predicted."""
    if found.source != "observed" or not any(unit.role == "init" for unit in demand.units):
        return found
    expected = predicted_placement(pod, layout)
    merged = {place: dict(amounts) for place, amounts in found.placement}
    for name, total in demand.pod:
        missing = total - sum(amounts.get(name, 0) for amounts in merged.values())
        for place, amounts in expected if is_device(name) else ():
            more = min(missing, dict(amounts).get(name, 0) - merged.get(place, {}).get(name, 0))
            if more > 0:
                merged.setdefault(place, {})[name] = merged.get(place, {}).get(name, 0) + more
                missing -= more
    placed = tuple((place, tuple(sorted(merged[place].items()))) for place in sorted(merged))
    return msgspec.structs.replace(found, placement=placed)


def reconstructed(layout: Layout, usages: Iterable[Usage]) -> State:
    """What is left in the zones when these are taken. More taken than there is counts as nothing left."""
    free = [list(row) for row in layout.allocatable]
    index = {name: row for row, name in enumerate(layout.resources)}
    singles, groups = 0, set[int]()
    for usage in usages:
        joined = 0
        for mask, amounts in usage.groups:
            groups.add(mask)
            joined |= mask
            for name, value in amounts:
                if name in index:
                    _draw(free[index[name]], mask, value)
        for place, amounts in usage.placement:
            for name, value in amounts:
                if name not in index:
                    continue
                free[index[name]][place] -= value
                if is_memory(name) and value and not joined >> place & 1:
                    singles |= 1 << place
    return State(layout, tuple(tuple(max(v, 0) for v in row) for row in free), singles, tuple(sorted(groups)))


def _draw(row: list[int], mask: int, value: int) -> None:
    """Memory of a group, from its lowest zones on. Which zone has how much of it does not matter: the group is used whole."""
    places = [place for place in range(len(row)) if mask >> place & 1]
    for place in places[:-1]:
        given = min(max(row[place], 0), value)
        row[place] -= given
        value -= given
    row[places[-1]] -= value


def unreported(pods: Sequence[tuple[Pod, Occupant]], now: float, late: float = LATE_SECONDS) -> list[str]:
    """The health of the exporter: pods that have run for long with something by zone and that it has not reported."""
    return [
        pod.key
        for pod, occupant in pods
        if occupant.aligned
        and occupant.record.source != "observed"
        and pod.status.phase == "Running"
        and pod.status.start_time is not None
        and now - parse_time(pod.status.start_time) > late
    ]
