"""Where a gang may be whose pods have to be near to each other: domains of a topology, and in which order they are tried.

Always true: a domain is all nodes with equal labels on a level and on every level around it; a node that lacks one is in none.
Pods of a part that requires a level are in one domain of it: the one where pods of the part are already, if there are any. What
is preferred is tried first, then wider and wider. Of domains that may have room the fullest comes first, so that the others stay
whole; where room has to be made, the one in which least is missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from dray.api.kinds import TOPOLOGIES
from dray.api.queues import Topology
from dray.books.nodes import NodeInfo, Placed
from dray.queues.gangs import Near, Part
from dray.scheduling.parts import Parts
from dray.scheduling.placing.refusal import Refusal
from dray.scheduling.waiting.queue import QueuedPod
from dray.scheduling.workloads.bounds import by_node
from dray.scheduling.workloads.grouping import leaf_of
from dray.scheduling.workloads.jobs import Job
from dray.scheduling.workloads.members import Members
from dray.scheduling.workloads.together import Blocked, Scope, Seat, Together

# Domains that are tried in vain, for one attempt to place a gang, and for one to make room for it.
MOST_TRIES: Final = 64
MOST_SCOPES: Final = 8

Path = tuple[str, ...]
"""The values of labels, or labels, the outermost first."""


class Constrained(NamedTuple):
    """A part with pods to place: ``own`` are those that no part below it says more about, ``below`` all of them; ``active``:
    nodes on which pods of it are to stay; ``never``: whether a node will not do for any of them, whoever leaves it."""

    near: Near
    own: list[QueuedPod]
    below: list[QueuedPod]
    active: frozenset[str]
    never: Callable[[NodeInfo], bool]

    @property
    def innermost(self) -> bool:
        return len(self.own) == len(self.below)


class Choice(NamedTuple):
    """``path``: what of the levels is decided by it."""

    path: Path
    scope: Scope


class Making(NamedTuple):
    """Room that is made. ``freed``: what others would leave, by node; ``taken``: where pods of the same gang will be, and how
    many; ``ranks``: nodes by how readily they are freed, if they have to be."""

    freed: Mapping[str, Mapping[str, int]] = {}
    taken: Sequence[tuple[frozenset[str], int]] = ()
    ranks: Mapping[str, int] | None = None


NOTHING_MADE: Final = Making()


class Nearness:
    def __init__(self, parts: Parts, together: Together, members: Members) -> None:
        self._world, self._nodes, self._books, self._offers = parts.world, parts.nodes, parts.books, parts.classes.offers
        self._together, self._members = together, members
        self._paths: dict[Path, dict[str, Path]] = {}
        self._domains: dict[Path, dict[Path, frozenset[str]]] = {}
        self._tries = 0
        self._closest: Blocked | None = None

    # ----------------------------------------------------------------------------------------------------------- topologies

    def wrong(self, job: Job) -> Refusal | None:
        """Why what the job asks for cannot be looked at."""
        for part, _ in _parts(job.root) if job.root.constrained else ():
            near = part.near
            if near is None:
                continue
            levels = self._levels(near)
            if not levels:
                return Refusal.of("TopologyMissing", job.group, topology=near.topology)
            for level in (near.required, near.preferred):
                if level and level not in levels:
                    return Refusal.of("TopologyMissing", job.group, topology=near.topology, level=level)
        return None

    def _levels(self, near: Near) -> Path:
        """Labels, the outermost first; empty if nothing is known of the topology."""
        if not near.topology:
            return (near.required,)
        found: Topology | None = self._world.get(TOPOLOGIES, near.topology) if TOPOLOGIES in self._world.kinds else None
        return tuple(level.node_label for level in found.spec.levels) if found is not None else ()

    def _path(self, levels: Path) -> dict[str, Path]:
        """By node the values of these labels, as far as it has them one after the other."""
        known = self._paths.get(levels)
        if known is None:
            known = self._paths[levels] = {info.name: _values(info.node.metadata.labels, levels) for info in self._nodes}
        return known

    def _at(self, levels: Path) -> dict[Path, frozenset[str]]:
        """The domains of the last of these levels."""
        known = self._domains.get(levels)
        if known is None:
            found: dict[Path, list[str]] = {}
            for name, path in self._path(levels).items():
                if len(path) == len(levels):
                    found.setdefault(path, []).append(name)
            known = self._domains[levels] = {path: frozenset(names) for path, names in found.items()}
        return known

    def domains(self, near: Near) -> list[frozenset[str]]:
        """The nodes of each domain of the level that is required."""
        return list(self._at(self._required(near)).values())

    def around(self, job: Job, where: Mapping[str, str]) -> Scope:
        """By pod the nodes that it may be on as long as the others are where they are: by uid, on these nodes."""
        found: dict[str, frozenset[str]] = {}
        for part, leaves in _parts(job.root) if job.root.constrained else ():
            if part.near is None or not part.near.required:
                continue
            levels = self._required(part.near)
            paths, domains = self._path(levels), self._at(levels)
            for uid, node in where.items():
                if leaf_of(job.pods[uid], job.subgroups) in leaves:
                    nodes = domains.get(paths.get(node, ()), frozenset({node}))
                    found[uid] = found.get(uid, nodes) & nodes
        return found

    def _required(self, near: Near) -> Path:
        levels = self._levels(near)
        return levels[: levels.index(near.required) + 1] if near.required in levels else ()

    # -------------------------------------------------------------------------------------------------------------- placing

    def find(self, job: Job, members: Sequence[QueuedPod]) -> list[Seat] | Blocked:
        """As ``Together.find``, near to each other as the job says."""
        if not job.root.constrained:
            return self._together.find(members)
        parts, rest = self._constrained(job, members)
        self._tries, self._closest = MOST_TRIES, None
        found = self._seat(parts, rest, {}, (), ("", ""))
        if found is not None:
            return found
        blocked = self._closest if self._closest is not None else self._together.find(members)
        return blocked._replace(tried=MOST_TRIES) if isinstance(blocked, Blocked) and self._tries <= 0 else blocked

    def _seat(
        self,
        parts: Sequence[Constrained],
        rest: Sequence[QueuedPod],
        scope: Scope,
        beside: Sequence[Seat],
        told: tuple[str, str],
    ) -> list[Seat] | None:
        """Places for all, those that have theirs included: each part in the first domain that leaves room for those after it.
        ``told``: the level and domain that are required."""
        if not parts:
            return self._sit(rest, scope, beside, ("", ""))
        part = parts[0]
        # Those who have a place can have another.
        held = by_node(placed for seat in beside if (placed := self._nodes.placed(seat.pending.uid)) is not None)
        for choice in self._choices(part, scope, Making(held), or_closest=True):
            if self._tries <= 0:
                return None
            narrower = {**scope, **choice.scope}
            with self._books.trial() as trial:
                said = self._told(part.near, choice.path) if part.near.required else told
                found = self._sit(part.own, narrower, beside, said)
                if found is None:
                    continue
                everybody = self._seat(parts[1:], rest, narrower, found, said)
                if everybody is not None:
                    trial.keep()
                    return everybody
        return None

    def _sit(
        self, members: Sequence[QueuedPod], scope: Scope, beside: Sequence[Seat], told: tuple[str, str]
    ) -> list[Seat] | None:
        """Places for these too: beside the others, or for all anew, each in its domain."""
        if not members:
            return list(beside)
        self._tries -= 1
        found = self._together.find(members, scope, beside)
        if isinstance(found, list):
            return [*beside, *found]
        if beside and (all_anew := self._anew([*(seat.pending for seat in beside), *members], scope, beside)) is not None:
            return all_anew
        blocked = found._replace(placed=found.placed + len(beside), level=told[0], domain=told[1])
        if self._closest is None or blocked.placed > self._closest.placed:
            self._closest = blocked
        return None

    def _anew(self, members: Sequence[QueuedPod], scope: Scope, seats: Sequence[Seat]) -> list[Seat] | None:
        with self._books.trial() as trial:
            self._together.rise(seats)
            found = self._together.find(members, scope)
            if isinstance(found, list):
                trial.keep()
                return found
        return None

    def _told(self, near: Near, path: Path) -> tuple[str, str]:
        return near.required, "/".join(path[: len(self._required(near))])

    # ---------------------------------------------------------------------------------------------------------- making room

    def scopes(
        self, job: Job, members: Sequence[QueuedPod], gone: Iterable[Placed], nodes: Sequence[str] = ()
    ) -> Iterator[Scope]:
        """Where to make room for the members, if these pods may go: the domains in which least is missing first, of equal ones
        the one whose node comes first of ``nodes``."""
        if not job.root.constrained:
            yield {}
            return
        parts, _ = self._constrained(job, members)
        making = Making(by_node(gone), ranks={name: rank for rank, name in enumerate(nodes)})
        for _, scope in zip(range(MOST_SCOPES), self._combined(parts, {}, making)):
            yield scope

    def _combined(self, parts: Sequence[Constrained], scope: Scope, making: Making) -> Iterator[Scope]:
        if not parts:
            yield scope
            return
        part = parts[0]
        for choice in self._choices(part, scope, making):
            taken = [(nodes, 1) for each in part.own if (nodes := choice.scope.get(each.uid)) is not None]
            yield from self._combined(parts[1:], {**scope, **choice.scope}, making._replace(taken=[*making.taken, *taken]))

    # -------------------------------------------------------------------------------------------------------------- choices

    def _constrained(self, job: Job, members: Sequence[QueuedPod]) -> tuple[list[Constrained], list[QueuedPod]]:
        """The parts of which something has to be placed, outer ones first; and who is in none of them."""
        leaf = {each.uid: leaf_of(each.pod, job.subgroups) for each in members}
        found: list[tuple[Near, list[QueuedPod], frozenset[str]]] = []
        innermost: dict[str, int] = {}
        for part, leaves in _parts(job.root):
            below = [each for each in members if leaf[each.uid] in leaves] if part.near is not None else []
            if part.near is not None and below:
                innermost |= {each.uid: len(found) for each in below}
                found.append((part.near, below, self._active(job, leaves)))
        parts = [
            Constrained(
                near, [each for each in below if innermost[each.uid] == index], below, active, self._together.never(below)
            )
            for index, (near, below, active) in enumerate(found)
        ]
        return parts, [each for each in members if each.uid not in innermost]

    def _active(self, job: Job, leaves: frozenset[str]) -> frozenset[str]:
        """Nodes on which pods of a part are to stay."""
        pods = (uid for uid, pod in job.pods.items() if leaf_of(pod, job.subgroups) in leaves)
        return frozenset(self._nodes.node_of(uid) for uid in pods if self._members.state_of(job, uid) == "active")

    def _choices(self, part: Constrained, scope: Scope, making: Making, *, or_closest: bool = False) -> Iterator[Choice]:
        """Domains that may have room: those of the level that is preferred, then wider ones, in which what does not fit into one
        of the preferred level is in few. ``or_closest``: if there is none, the one with most room."""
        levels, near, base = self._levels(part.near), part.near, scope.get(part.below[0].uid)
        outer = levels.index(near.required) if near.required else -1
        inner = max(levels.index(near.preferred) if near.preferred else outer, outer)
        counts, seen = self._counts(part, base, making), set[frozenset[str]]()
        for depth in range(inner, max(outer, 0) - 1, -1):
            for path, nodes in self._ordered(part, levels[: depth + 1], base, counts, making, len(self._required(near))):
                if nodes in seen:
                    continue
                seen.add(nodes)
                if depth < inner and part.innermost:
                    yield from self._split(part, levels[: inner + 1], nodes, path, counts)
                yield Choice(path, dict.fromkeys((each.uid for each in part.below), nodes))
        if outer < 0:
            if part.innermost:
                yield from self._split(part, levels[: inner + 1], base, (), counts)
            if base not in seen:
                yield Choice((), {})
        elif not seen and or_closest:
            yield self._most_room(part, levels[: outer + 1], base, counts)

    def _ordered(
        self,
        part: Constrained,
        levels: Path,
        base: frozenset[str] | None,
        counts: Mapping[str, int],
        making: Making,
        required: int,
    ) -> list[tuple[Path, frozenset[str]]]:
        """The domains of the last of these levels that may have room."""
        paths, needed = self._path(levels), len(part.below)
        sums: Counter[Path] = Counter()
        for path, count in self._by_path(levels, counts).items():
            for depth in range(1, len(path) + 1):
                sums[path[:depth]] += count
        bound = {paths[node][:required] for node in part.active if required and node in paths}
        found: list[tuple[tuple[object, ...], Path, frozenset[str]]] = []
        for path, nodes in self._at(levels).items():
            nodes = nodes if base is None or nodes <= base else nodes & base
            left = sums[path] - sum(count for where, count in making.taken if where <= nodes)
            if (
                not nodes
                or left < needed
                or not self._enough(part, nodes, making)
                or (part.active and required and path[:required] not in bound)
            ):
                continue
            free = min(sum(self._counts(part, nodes, NOTHING_MADE).values()), needed) if making.freed else needed
            if making.ranks is not None:
                rank = min((making.ranks[name] for name in nodes if name in making.ranks), default=len(making.ranks))
                key: tuple[object, ...] = (-free, rank)
            else:
                key = (free < needed, *(sums[path[:depth]] for depth in range(1, len(path) + 1)), self._idle(part, nodes))
            found.append(((part.active.isdisjoint(nodes), key, path), path, nodes))
        return [(path, nodes) for _, path, nodes in sorted(found, key=lambda each: each[0])]

    def _split(
        self, part: Constrained, levels: Path, base: frozenset[str] | None, around: Path, counts: Mapping[str, int]
    ) -> Iterator[Choice]:
        """The pods over few domains of the last of these levels, those with most room filled first."""
        there = counts if base is None else {name: count for name, count in counts.items() if name in base}
        sums = {path: count for path, count in self._by_path(levels, there).items() if len(path) == len(levels)}
        left, scope = list(part.below), dict[str, frozenset[str]]()
        for path, count in sorted(sums.items(), key=lambda each: (each[1], each[0]), reverse=True):
            nodes = self._at(levels)[path]
            scope |= dict.fromkeys((each.uid for each in left[:count]), nodes if base is None else nodes & base)
            left = left[count:]
            if not left:
                yield Choice(around, scope)
                return

    def _most_room(self, part: Constrained, levels: Path, base: frozenset[str] | None, counts: Mapping[str, int]) -> Choice:
        def count(nodes: frozenset[str]) -> int:
            return sum(counts.get(name, 0) for name in nodes)

        domains = sorted(self._at(levels).items())
        if part.active:
            domains = [each for each in domains if not part.active.isdisjoint(each[1])] or domains
        path, nodes = max(domains, key=lambda each: count(each[1]), default=((), frozenset[str]()))
        nodes = nodes if base is None else nodes & base
        return Choice(path, dict.fromkeys((each.uid for each in part.below), nodes))

    def _idle(self, part: Constrained, names: frozenset[str]) -> int:
        """How little goes on there, as far as devices may be taken, which sums do not tell: minus the number of pods."""
        if not any(each.pod.spec.resource_claims for each in part.below):
            return 0
        return -sum(len(info.pods) for name in names if (info := self._nodes.get(name)) is not None)

    def _by_path(self, levels: Path, counts: Mapping[str, int]) -> dict[Path, int]:
        paths, found = self._path(levels), dict[Path, int]()
        for name, count in counts.items():
            path = paths[name]
            found[path] = found.get(path, 0) + count
        return found

    def _enough(self, part: Constrained, names: frozenset[str], making: Making) -> bool:
        """Whether the nodes have in all what the pods ask for in all; of pods that are alike their number tells more."""
        if all(each.demand is part.below[0].demand for each in part.below):
            return True
        asked: dict[str, int] = {}
        for each in part.below:
            for name, value in each.demand.requests:
                asked[name] = asked.get(name, 0) + value
        infos = [info for name in names if (info := self._nodes.get(name)) is not None]
        freed = making.freed
        return all(
            sum(max(0, info.free(name) + freed.get(info.name, {}).get(name, 0)) for info in infos) >= value
            for name, value in asked.items()
            if value and not self._offers(name)
        )

    def _counts(self, part: Constrained, names: frozenset[str] | None, making: Making) -> dict[str, int]:
        """By node how many pods fit there at most: as many as if all asked for no more than the one that asks for least. Of what
        devices serve nothing is known here."""
        requests = [dict(each.demand.requests) for each in part.below]
        least = {name: min(each.get(name, 0) for each in requests) for name in requests[0]}
        wanted = {name: value for name, value in least.items() if value and not self._offers(name)}
        found: dict[str, int] = {}
        by_state: dict[int, int] = {}
        for info in self._nodes if names is None else filter(None, map(self._nodes.get, names)):
            more = making.freed.get(info.name)
            state = self._nodes.state_of(info)
            if more or (fits := by_state.get(state)) is None:
                free = ((info.free(name) + (more.get(name, 0) if more else 0)) // value for name, value in wanted.items())
                fits = min(free, default=len(part.below))
                if not more:
                    by_state[state] = fits
            if fits > 0 and not part.never(info):
                found[info.name] = fits
        return found


def _values(labels: Mapping[str, str], levels: Path) -> Path:
    found: list[str] = []
    for level in levels:
        if level not in labels:
            break
        found.append(labels[level])
    return tuple(found)


def _parts(root: Part) -> Iterator[tuple[Part, frozenset[str]]]:
    """Every part, outer ones first, with the names of the leaves in it."""
    yield root, frozenset(_leaves(root))
    for part in root.parts:
        yield from _parts(part)


def _leaves(part: Part) -> Iterator[str]:
    if part.is_leaf:
        yield part.name
    for child in part.parts:
        yield from _leaves(child)
