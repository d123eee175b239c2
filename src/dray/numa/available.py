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
from dray.numa.placement import Record, known_groups, predicted_placement, record
from dray.numa.tally import Tally, Usage

# The exporter reports within seconds; a pod that runs this long without a report says that it does not work there.
LATE_SECONDS: Final = 60.0


class Occupant(msgspec.Struct, frozen=True):
    """A pod on a node, with what is known of its zones. ``aligned``: the kubelet gives it something by zone, so not to know
    where is a gap."""

    key: str
    record: Record
    usage: Usage
    aligned: bool

    @property
    def missing(self) -> bool:
        """Nothing says where it is."""
        return self.aligned and self.record.source == "none"


class Confidence:
    """Which pods of one node may be elsewhere than their records say, so that whoever wants no refusals can wait for them.

    What was observed is certain. A prediction is not when nothing was predicted, when it is spread over several zones (how a
    kubelet splits it is its own affair), or when something on the node was given back since: a kubelet that admits the pod
    after that may take the zones that became free.
    """

    def __init__(self) -> None:
        self._predicted: set[str] = set()
        self._doubtful: set[str] = set()

    def put(self, occupant: Occupant) -> None:
        """A pod is on the node, or its record changed."""
        self._predicted.discard(occupant.key)
        if not occupant.aligned or occupant.record.source == "observed":
            self._doubtful.discard(occupant.key)
        elif occupant.missing or len(occupant.record.placement) > 1:
            self._doubtful.add(occupant.key)
        elif occupant.key not in self._doubtful:
            self._predicted.add(occupant.key)

    def remove(self, key: str) -> None:
        """A pod has left the node, and what it had is free."""
        self._predicted.discard(key)
        self._doubtful.discard(key)
        self._doubtful |= self._predicted
        self._predicted.clear()

    @property
    def doubtful(self) -> frozenset[str]:
        """The pods to wait for, by key."""
        return frozenset(self._doubtful)


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
    tally = Tally(layout)
    for number, usage in enumerate(usages):
        tally.post(str(number), usage)
    return tally.state()


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
