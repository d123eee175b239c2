"""Gangs: which pods must start together, which come one by one, which go first, and when a broken gang goes as a whole.

A gang is a tree: leaves are sets of pods with a minimum, groups say how many of their children must be satisfied. Below its
minimum a gang gets exactly what is missing, all or nothing; above it, one pod or one more part at a time. It loses in the
opposite order: surplus pods one by one, what is left of a broken part that it does without, surplus parts as a whole, then
everything. A part that lost pods which it needs goes as a whole after its own grace, and all others with it that can do nothing
without it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Final, Literal

import msgspec

from dray.queues.order import Fill, part_key, pod_key

GRACE_SECONDS: Final = 60.0
PREEMPTIBLE_BELOW: Final = 100

# active: holds resources, or is promised them; leaving: still holds them and goes; gone: failed.
State = Literal["pending", "gated", "active", "leaving", "succeeded", "gone"]


class Member(msgspec.Struct, frozen=True):
    """A pod of a gang. ``leaf`` names the set that it belongs to."""

    name: str
    state: State = "pending"
    leaf: str = ""
    task_priority: int = 0
    created: float = 0.0
    uid: str = ""


class Near(msgspec.Struct, frozen=True):
    """Pods are to be in one domain of a level of a topology: of ``required``, and of ``preferred``, which is no wider, if
    there is room. A level is the node label that it is told by; without ``topology`` the label is all there is."""

    topology: str = ""
    required: str = ""
    preferred: str = ""


class Part(msgspec.Struct, frozen=True):
    """A leaf has a ``minimum`` of pods; a group has children, of which ``minimum`` must be satisfied (None: all)."""

    name: str = ""
    minimum: int | None = None
    parts: tuple[Part, ...] = ()
    near: Near | None = None

    @property
    def constrained(self) -> bool:
        """Whether it matters for some of its pods where the others are."""
        return self.near is not None or any(part.constrained for part in self.parts)

    @property
    def is_leaf(self) -> bool:
        return not self.parts

    @property
    def needed(self) -> int:
        """Pods of a leaf, children of a group."""
        return len(self.parts) if self.minimum is None and self.parts else self.minimum or 0

    @property
    def least(self) -> int:
        """The fewest pods with which it is satisfied."""
        return self.needed if self.is_leaf else sum(sorted(part.least for part in self.parts)[: self.needed])


class Gang:
    """A tree of parts with its pods. A pod that names no leaf belongs to the only one, or to none."""

    def __init__(self, root: Part, members: Iterable[Member]) -> None:
        self.root = root
        self.leaves = {leaf.name: leaf for leaf in _leaves(root)}
        self._members: dict[str, list[Member]] = {name: [] for name in self.leaves}
        for member in sorted(members, key=lambda pod: pod_key(pod.task_priority, pod.created, pod.uid or pod.name)):
            if member.leaf in self._members:
                self._members[member.leaf].append(member)

    def of(self, leaf: str, *states: State) -> list[Member]:
        """The pods of a leaf in these states, those that are served first before the others."""
        return [member for member in self._members[leaf] if member.state in states]

    def members(self, *states: State) -> list[Member]:
        return [member for leaf in self.leaves for member in self.of(leaf, *states)]

    def lacks(self, part: Part) -> int:
        """How many pods would have to come for it to be satisfied."""
        if part.is_leaf:
            return max(0, part.needed - len(self.of(part.name, "pending", "active")))
        return sum(sorted(map(self.lacks, part.parts))[: part.needed])


def members_of(gang: Gang, part: Part, *states: State) -> list[Member]:
    return [member for leaf in _leaves(part) for member in gang.of(leaf.name, *states)]


def is_preemptible(explicit: bool | None, priority: int) -> bool:
    return priority < PREEMPTIBLE_BELOW if explicit is None else explicit


# ------------------------------------------------------------------------------------------------------------ satisfaction


def is_running(part: Part, gang: Gang) -> bool:
    """Whether the part has its minimum."""
    if part.is_leaf:
        return len(gang.of(part.name, "active")) >= part.needed
    return sum(is_running(child, gang) for child in part.parts) >= part.needed


def fill(gang: Gang) -> Fill:
    """Where the gang stands in its queue's order."""
    counts = [(len(gang.of(name, "active")), leaf.needed) for name, leaf in gang.leaves.items()]
    if not is_running(gang.root, gang):
        return Fill.BELOW
    return Fill.ABOVE if any(active > needed for active, needed in counts) else Fill.AT


# ----------------------------------------------------------------------------------------------------------------- growing


def next_part(gang: Gang, leaf: str) -> Part:
    """The largest part with this leaf that is to start as a whole, with its minimum; the leaf, where all have theirs."""
    part = gang.root
    while is_running(part, gang) and not part.is_leaf:
        part = next(child for child in part.parts if any(each.name == leaf for each in _leaves(child)))
    return part


def is_whole(gang: Gang, leaf: str) -> bool:
    """Whether all that has to start together with a pod of this leaf has its minimum."""
    return leaf in gang.leaves and is_running(next_part(gang, leaf), gang)


def next_attempt(gang: Gang) -> list[Member]:
    """The pods to place together next: what is missing to the minimum, or one more; empty if nothing can be tried."""
    missing = _missing(gang, gang.root)
    if missing is None or missing:
        return missing or []
    return _more(gang, gang.root)


def _missing(gang: Gang, part: Part) -> list[Member] | None:
    """What brings the part to its minimum; None if its pods do not suffice."""
    if part.is_leaf:
        lacking = max(0, part.needed - len(gang.of(part.name, "active")))
        waiting = gang.of(part.name, "pending")[:lacking]
        return waiting if len(waiting) == lacking else None
    lacking = part.needed - sum(is_running(child, gang) for child in part.parts)
    found: list[Member] = []
    for child in _in_order(gang, part):
        if lacking <= 0:
            break
        pods = _missing(gang, child)
        if pods:
            found += pods
            lacking -= 1
    return found if lacking <= 0 else None


def _more(gang: Gang, part: Part) -> list[Member]:
    """One more pod, or one more part with its minimum."""
    if part.is_leaf:
        return gang.of(part.name, "pending")[:1]
    for child in _in_order(gang, part):
        pods = _more(gang, child) if is_running(child, gang) else _missing(gang, child)
        if pods:
            return pods
    return []


def _in_order(gang: Gang, part: Part) -> list[Part]:
    running = {child.name: is_running(child, gang) for child in part.parts}

    def key(child: Part) -> tuple[object, ...]:
        active = len(gang.of(child.name, "active")) if child.is_leaf else sum(is_running(each, gang) for each in child.parts)
        return part_key(child.name, active, child.needed, running[child.name])

    return sorted(part.parts, key=key)


# ---------------------------------------------------------------------------------------------------------------- shrinking


def next_victims(gang: Gang) -> list[Member]:
    """What the gang loses in one step: a surplus pod, else what is left of a part that it does without, else a surplus part, else
    all that it has."""
    for leaf in reversed(_leaves_in_order(gang, gang.root)):
        active = gang.of(leaf.name, "active")
        if len(active) > leaf.needed:
            return active[-1:]
    for part in reversed(broken(gang)):
        if left := members_of(gang, part, "active"):
            return left
    surplus = _surplus_part(gang, gang.root)
    return members_of(gang, surplus if surplus is not None else gang.root, "active")


def surplus(gang: Gang, among: Container[str] = ()) -> list[Member]:
    """Pods above the minimum of their leaf, in the order in which they go: what a protected gang may lose. ``among``: names of
    those that go rather than others."""
    found: list[Member] = []
    for leaf in reversed(_leaves_in_order(gang, gang.root)):
        active = sorted(gang.of(leaf.name, "active"), key=lambda member: member.name in among)
        found += reversed(active[leaf.needed :])
    return found


def _surplus_part(gang: Gang, part: Part) -> Part | None:
    """The part that goes first of those that their group can do without."""
    if part.is_leaf:
        return None
    running = [child for child in _in_order(gang, part) if is_running(child, gang)]
    if len(running) > part.needed:
        return running[-1]
    return next((found for child in reversed(running) if (found := _surplus_part(gang, child)) is not None), None)


def parts_of(part: Part) -> Iterator[Part]:
    """This one, and all that it is made of."""
    yield part
    for child in part.parts:
        yield from parts_of(child)


def _leaves(part: Part) -> Iterator[Part]:
    return (each for each in parts_of(part) if each.is_leaf)


def _leaves_in_order(gang: Gang, part: Part) -> Sequence[Part]:
    if part.is_leaf:
        return [part]
    return [leaf for child in _in_order(gang, part) for leaf in _leaves_in_order(gang, child)]


# ------------------------------------------------------------------------------------------------------------- stale gangs


def is_stale(gang: Gang) -> bool:
    """It runs, at least in part, and something of it lacks pods that it needs to."""
    return bool(broken(gang))


def broken(gang: Gang) -> list[Part]:
    """The parts that hold something and lack their minimum: the whole gang, else those of what it could do without. Where
    something succeeded, the others are about to end, too."""
    return [] if gang.members("succeeded") else list(_broken(gang, gang.root))


def _broken(gang: Gang, part: Part) -> Iterator[Part]:
    if not members_of(gang, part, "active", "leaving"):
        return
    if not is_running(part, gang):
        yield part
        return
    for child in part.parts:
        yield from _broken(gang, child)


def stale_until(since: float, grace: float | None = None) -> float | None:
    """When what is broken since then is evicted, whether it can be preempted or not; None: never."""
    seconds = GRACE_SECONDS if grace is None else grace
    return None if seconds < 0 else since + seconds
