"""Since when objects of a running simulation are as they are: who decides by what it saw a while ago is no worse for it.

Always true: only what placements depend on counts as a change, of nodes not what their kubelets say.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

import msgspec

from dray.api.kinds import CORE_POD_GROUPS, DEVICE_CLASSES, DEVICE_TAINT_RULES, NODES, POD_GROUPS, QUEUES, RESOURCE_SLICES
from dray.runtime.faults import NONE, Faults

Plain = dict[str, Any]
Pool = tuple[str, str]

# How long what was seen before may be decided by: where nothing goes wrong, where things go wrong, and where devices are waited
# for or nobody answers.
SOON: Final = 5.0
SLOWLY: Final = 40.0
LATE: Final = 100.0
_FOLLOWED: Final = {
    kind.resource: kind
    for kind in (CORE_POD_GROUPS, DEVICE_CLASSES, DEVICE_TAINT_RULES, NODES, POD_GROUPS, QUEUES, RESOURCE_SLICES)
}


class Run(Protocol):
    """A simulation, as far as what it writes down is followed."""

    @property
    def elapsed(self) -> float: ...

    def follow(self, listener: Callable[[str, str, bytes | None], None]) -> None: ...


class Settled:
    def __init__(self, simulation: Run, faults: Faults) -> None:
        self._simulation = simulation
        self._harmful_until = faults.until + LATE if faults != NONE else 0.0
        self._harm = LATE if faults.away or faults.late_write else SLOWLY
        self._known: dict[tuple[str, str], Plain] = {}
        self._changed: dict[tuple[str, str], float] = {}
        self._pools: dict[Pool, float] = {}
        self._gone: set[tuple[str, str]] = set()
        simulation.follow(self._written)

    def _written(self, table: str, key: str, raw: bytes | None) -> None:
        if table not in _FOLLOWED:
            return
        if raw is None:
            self._gone.add((table, key))
        found = _relevant(msgspec.json.decode(raw)) if raw is not None else {}
        before = self._known.get((table, key), {})
        if found == before:
            return
        self._known[table, key] = found
        self._changed[table, key] = now = self._simulation.elapsed
        if table == RESOURCE_SLICES.resource:
            self._pools |= {(each["spec"]["driver"], each["spec"]["pool"]["name"]): now for each in (before, found) if each}

    def object(self, resource: str, key: str, *, soon: bool = True) -> bool:
        """Whether the object has been as it is, or gone, for long enough, or from the start. ``soon``: nobody waits between
        what is decided and what is written."""
        return self._long_ago(self._changed.get((resource, key), 0.0), soon)

    def from_the_start(self, resource: str, key: str) -> bool:
        """Whether the object was there from the start, and never changed."""
        return self._changed.get((resource, key)) == 0.0

    def every(self, resource: str) -> bool:
        """Whether all objects of a kind have been as they are, or gone, for long enough."""
        return all(self._long_ago(at, True) for (table, _), at in self._changed.items() if table == resource)

    @property
    def harmful(self) -> bool:
        """Whether something may still go wrong between the parts of the cluster, or just did."""
        return self._simulation.elapsed < self._harmful_until

    def was_never_gone(self, resource: str, key: str) -> bool:
        """Whether the object is there, and always was since it came."""
        return (resource, key) in self._known and (resource, key) not in self._gone

    def pools(self, pools: set[Pool] | None = None) -> bool:
        """Whether everything that drivers publish in these pools has been so for long enough; None: in any."""
        return all(self._long_ago(at, True) for pool, at in self._pools.items() if pools is None or pool in pools)

    def _long_ago(self, at: float, soon: bool) -> bool:
        now = self._simulation.elapsed
        patience = LATE if not soon else self._harm if self.harmful else SOON
        return at == 0.0 or at + patience <= now


def _relevant(body: Plain) -> Plain:
    return {"spec": body.get("spec"), "labels": body["metadata"].get("labels"), "uid": body["metadata"]["uid"]}
