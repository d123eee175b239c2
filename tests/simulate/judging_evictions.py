"""What must be true of evictions and gangs once nothing happens any more: whoever others leave for gets its place, owners do not
evict each other in turn, and no gang runs in part for longer than its grace.

Always true: only what the API server took is judged, by the names that writes carry.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Protocol

from dray.api.core import Pod
from dray.api.kinds import CORE_POD_GROUPS, POD_GROUPS, PODS
from dray.cluster.world import World
from dray.runtime.virtual import Written

# An owner that drives out another this often, while that does the same to it, never comes to rest.
IN_TURN: Final = 4


class Run(Protocol):
    """A simulation, as far as its writes are followed."""

    @property
    def elapsed(self) -> float: ...

    def listen(self, listener: Callable[[Written], None]) -> None: ...


class Evictions:
    """Follows the writes of a run; ``quiet_from``: from when on nothing happens but what follows from what happened."""

    def __init__(self, simulation: Run, quiet_from: float) -> None:
        self._simulation, self._quiet = simulation, quiet_from
        simulation.listen(self._written)
        # Each with when, and who was to have the room.
        self._evicted: list[tuple[float, str, str]] = []
        self._bound: dict[str, float] = {}

    def _written(self, written: Written) -> None:
        write, now = written.write, self._simulation.elapsed
        if written.error is not None or write.kind != PODS or written.host != "scheduler":
            return
        if write.subresource == "binding":
            self._bound[write.key] = now
        elif (write.verb == "delete" or write.subresource == "eviction") and write.about not in ("", write.key):
            self._evicted.append((now, write.key, write.about))

    def in_vain(self, world: World) -> Iterator[tuple[str, str]]:
        """Pods for which others left when all was quiet, and that wait all the same."""
        for at, victim, taker in self._evicted:
            pod: Pod | None = world.get(PODS, taker)
            waits = pod is not None and not pod.spec.node_name and pod.metadata.deletion_timestamp is None
            if at > self._quiet and waits and self._bound.get(taker, 0.0) < at:
                yield f"pod/{taker}", f"{victim} left for it at {at:.0f} s, and it waits"

    def in_turn(self) -> Iterator[tuple[str, str]]:
        """Owners of pods that drive out each other again and again."""
        pairs = Counter((_owner(taker), _owner(victim)) for at, victim, taker in self._evicted if at > self._quiet)
        for (one, other), count in pairs.items():
            if one <= other and min(count, pairs[other, one]) >= IN_TURN:
                yield f"pods/{one} pods/{other}", f"drive out each other {count} times"


def _owner(key: str) -> str:
    """Of the pods of a Deployment or Job, what makes them; else the pod."""
    return key.partition("-")[0]


def partial_gangs(world: World) -> Iterator[tuple[str, str]]:
    """Gangs of which some run, and fewer than have to. Who is to leave and cannot, because its node does not answer, is nobody's
    decision any more."""
    groups = [(name, world.all(kind)) for name, kind in (("", POD_GROUPS), ("core", CORE_POD_GROUPS)) if kind in world.kinds]
    for sort, found in groups:
        for key, group in found.items():
            pods = [pod for pod in world.all(PODS).values() if _group_of(pod, sort) == key]
            placed = [pod for pod in pods if pod.spec.node_name and not pod.terminal]
            running = placed if any(pod.metadata.deletion_timestamp is None for pod in placed) else []
            ended = any(pod.terminal for pod in pods)
            if not running or ended:
                continue
            counts = {part: _count(running, part) for part in _parts(group)}
            enough = getattr(group.spec, "min_sub_group", None)
            for part, least in _parts(group).items():
                # Without a sub-group that it does not need, it runs.
                if counts[part] < least and (counts[part] or enough is None):
                    yield f"podgroup/{key}", f"runs with {counts[part]} of {least} pods {part}".rstrip()
            if counts and enough is not None and sum(counts[part] >= least for part, least in _parts(group).items()) < enough:
                yield f"podgroup/{key}", f"runs with fewer than {enough} of its sub-groups"


def _count(pods: Iterable[Pod], part: str) -> int:
    return sum(pod.metadata.labels.get("kai.scheduler/subgroup-name", "") == part or not part for pod in pods)


def _group_of(pod: Pod, sort: str) -> str:
    core = pod.spec.scheduling_group
    name = core.pod_group_name if sort and core is not None else "" if sort else pod.metadata.annotations.get("pod-group-name")
    return f"{pod.metadata.namespace}/{name}" if name else ""


def _parts(group: Any) -> dict[str, int]:
    if hasattr(group.spec, "scheduling_policy"):
        gang = group.spec.scheduling_policy.gang
        return {"": gang.min_count if gang is not None else 0}
    if (group.spec.staleness_grace_period or "").startswith("-"):
        return {}
    return {part.name: part.min_member or 0 for part in group.spec.sub_groups} or {"": group.spec.min_member}
