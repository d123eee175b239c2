"""Nodes that pods may leave for others: how many have to leave each at least, and who would be missed least.

Always true: no fewer than so many have to leave a node, as far as sums of what it has and of whole devices of a class tell. What
is answered is as if every node were looked at when it is asked; what that costs, after the first time, grows with how many
nodes have pods of jobs that changed since, or pods that leave or come for others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple

from dray.api.resource import DeviceKey
from dray.books.changes import ChangeLog
from dray.books.nodes import NodeInfo, Placed
from dray.scheduling.actions.preemption import Preemption
from dray.scheduling.parts import Parts
from dray.scheduling.placing.state import Placement
from dray.scheduling.workloads.bounds import held, whole_devices
from dray.scheduling.workloads.jobs import Job, created

# Of so many needs it is remembered in a session.
_MOST_KNOWN: Final = 8


class ToFree(NamedTuple):
    """A node that pods may leave for others; ``least``: so many have to at least."""

    name: str
    least: int


class Needs(NamedTuple):
    """What a pod that needs room asks of its node, and how many devices of classes at least."""

    requests: tuple[tuple[str, int], ...]
    devices: tuple[tuple[str, int], ...]


class Leaving(NamedTuple):
    """On one node: who leaves it anyhow, and who comes in their places."""

    gone: list[Placed]
    coming: list[tuple[Placed, Placement]]


class _Found(NamedTuple):
    """``may``: how many may leave; ``last``: where the last of them to go stands, and its age."""

    node: ToFree
    may: int
    last: tuple[Any, ...]


class _Known:
    """What was found of one need; ``seen``: how far what is noted of jobs was read."""

    def __init__(self, seen: int) -> None:
        self.seen = seen
        self.allowed: frozenset[str] = frozenset()
        self.found: dict[str, _Found | None] = {}
        # The same where pods leave or come, and who that was.
        self.touched: dict[str, tuple[Leaving, _Found | None]] = {}
        # By job, the nodes where it had pods.
        self.homes: dict[str, set[str]] = {}


_NOBODY: Final = Leaving([], [])


class Freeing:
    """``job_of``: whom a pod belongs to, by its uid; ``job``: one by its key; ``key``: where a job stands in its queue."""

    def __init__(
        self,
        parts: Parts,
        preemption: Preemption,
        log: ChangeLog,
        job_of: Callable[[str], Job | None],
        job: Callable[[str], Job | None],
        key: Callable[[Job], tuple[Any, ...]],
    ) -> None:
        self._books, self._nodes, self._engine, self._classes = parts.books, parts.nodes, parts.engine, parts.classes
        self._preemption, self._log, self._job_of, self._job, self._key = preemption, log, job_of, job, key
        self._known: dict[Needs, _Known] = {}

    def nodes(
        self, allowed: frozenset[str], needs: Needs, leaving: Sequence[Placed], places: Mapping[str, Placement]
    ) -> list[ToFree]:
        """By how many pods have to go until there is as much as is needed, then by how many may; of those with as many, the one
        whose jobs are served last. ``allowed``: the jobs that may lose pods; ``leaving``: who goes anyhow, ``places``: who of
        them is to have which other place, by uid."""
        known = self._caught_up(allowed, needs)
        touched = _by_node(leaving, places)
        for name, on_it in touched.items():
            self._touch(known, name, needs, on_it)
        untouched = (each for name, each in known.found.items() if name not in touched)
        listed = [each for each in (*untouched, *(known.touched[name][1] for name in touched)) if each is not None]
        listed.sort(key=lambda each: each.last, reverse=True)
        return [each.node for each in sorted(listed, key=lambda each: (each.node.least, each.may))]

    # -------------------------------------------------------------------------------------------------- what is kept

    def _caught_up(self, allowed: frozenset[str], needs: Needs) -> _Known:
        if self._books.trying:
            return self._afresh(allowed, needs)
        known = self._known.pop(needs, None)
        changed = self._log.since(known.seen) if known is not None else None
        if known is None or changed is None:
            known = self._afresh(allowed, needs)
        else:
            moved = changed | (allowed ^ known.allowed)
            known.seen, known.allowed = self._log.position, allowed
            names = {name for key in moved for name in (*known.homes.pop(key, ()), *self._homes(key))}
            self._look_at(known, (info for name in names if (info := self._nodes.get(name)) is not None), needs)
        self._known[needs] = known
        if len(self._known) > _MOST_KNOWN:
            del self._known[next(iter(self._known))]
        return known

    def _touch(self, known: _Known, name: str, needs: Needs, on_it: Leaving) -> None:
        """Looked at only where somebody else leaves or comes than when it was last."""
        before = known.touched.get(name)
        if before is None or before[0] != on_it:
            info = self._nodes.get(name)
            known.touched[name] = on_it, self._look(info, known.allowed, needs, on_it) if info is not None else None

    def _afresh(self, allowed: frozenset[str], needs: Needs) -> _Known:
        known = _Known(self._log.position)
        known.allowed = allowed
        self._look_at(known, self._nodes, needs)
        return known

    def _homes(self, key: str) -> set[str]:
        job = self._job(key)
        return {name for uid in job.pods if (name := self._nodes.node_of(uid))} if job is not None else set()

    def _look_at(self, known: _Known, nodes: Iterable[NodeInfo], needs: Needs) -> None:
        for info in nodes:
            known.touched.pop(info.name, None)
            known.found[info.name] = self._look(info, known.allowed, needs, _NOBODY)
            for uid in info.pods:
                if (job := self._job_of(uid)) is not None:
                    known.homes.setdefault(job.key, set()).add(info.name)

    # -------------------------------------------------------------------------------------------------- looking at one

    def _look(self, info: NodeInfo, allowed: frozenset[str], needs: Needs, on_it: Leaving) -> _Found | None:
        gone = {placed.pod.uid for placed in on_it.gone}
        pods = [(job, placed) for uid, placed in info.pods.items() if (job := self._job_of(uid)) is not None]
        here = [(job, placed) for job, placed in pods if job.key in allowed and placed.pod.uid not in gone]
        if not here:
            return None
        least = self._least(info, needs, [placed for _, placed in here], on_it)
        return _Found(ToFree(info.name, least), len(here), min((self._key(job), created(placed.pod)) for job, placed in here))

    def _least(self, info: NodeInfo, needs: Needs, here: Sequence[Placed], on_it: Leaving) -> int:
        """Somebody has to leave."""
        least, devices = 1, dict(needs.devices)
        freed, taken = held(on_it.gone), held(placed for placed, _ in on_it.coming)
        for name, amount in needs.requests:
            if not info.allocatable.get(name) and (serving := self._classes.serving(name)) is not None:
                devices[serving.metadata.name] = devices.get(serving.metadata.name, 0) + amount
                continue
            lacks = amount - info.free(name) - freed.get(name, 0) + taken.get(name, 0)
            if lacks > 0:
                holds = (value for placed in here for key, value in placed.demand.requests if key == name)
                least = max(least, _fewest(holds, lacks, len(here)))
        for class_name, count in devices.items():
            least = max(least, self._least_with(info, class_name, count, here, on_it))
        return least

    def _least_with(self, info: NodeInfo, class_name: str, count: int, here: Sequence[Placed], on_it: Leaving) -> int:
        """Until so many devices of the class are free. Nothing is said of those that several share, or that other nodes use."""
        view = self._engine.inventory.view(info.name)
        mask = whole_devices(self._engine, view, class_name, view.layout.here) if view is not None and not view.fabric else None
        if view is None or mask is None:
            return 1
        keys = {key for at, key in enumerate(view.keys()) if mask >> at & 1}
        if on_it is _NOBODY:
            free = (mask & ~view.taken()).bit_count()
        else:
            released = {holder for placed in on_it.gone for holder, _ in self._preemption.claims(placed.pod.uid)}
            free = sum(released.issuperset(self._engine.owners(key)) for key in keys) - _coming(on_it, keys)
        if count <= free:
            return 1
        return _fewest((len(keys & self._devices(placed)) for placed in here), count - free, len(here))

    def _devices(self, placed: Placed) -> set[DeviceKey]:
        claims = self._preemption.claims(placed.pod.uid)
        return {charge.device for holder, _ in claims for charge in self._engine.charges(holder)}


def _by_node(leaving: Sequence[Placed], places: Mapping[str, Placement]) -> dict[str, Leaving]:
    found: dict[str, Leaving] = {}
    for placed in leaving:
        found.setdefault(placed.node, Leaving([], [])).gone.append(placed)
        if (place := places.get(placed.pod.uid)) is not None:
            found.setdefault(place.node, Leaving([], [])).coming.append((placed, place))
    return found


def _coming(on_it: Leaving, keys: set[DeviceKey]) -> int:
    """How many of these devices those get who come; who only looks at one takes none."""
    results = (each for _, place in on_it.coming for _, given in place.given for each in given.devices.results)
    return sum(not each.admin_access and DeviceKey.of(each) in keys for each in results)


def _fewest(amounts: Iterable[int], lacks: int, all_of_them: int) -> int:
    """How many of those that hold these amounts have to leave until there is no lack; all, where that is not enough."""
    largest = sorted(amounts, reverse=True)
    return next((number for number, total in enumerate(accumulate(largest), 1) if total >= lacks), all_of_them)
