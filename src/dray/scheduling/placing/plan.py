"""All plugins of a profile, compiled for one pod: the checks a node must pass and the scores that rank those that do.

Always true: an answer is shared by nodes in the same state exactly where nothing that was compiled reads more than the node, or
says in which state that is too, and only while nothing else that was read has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Final

from dray.books.nodes import NodeInfo
from dray.scheduling.plugins.base import (
    Check,
    Compare,
    Compiled,
    Judge,
    Judged,
    Notes,
    Plugin,
    PodShape,
    Posts,
    Reads,
    Reasons,
    Score,
    because,
    normalized,
)

UNJUDGED: Judged = (None, 0, 0)
Comparing = tuple[str, int, Compare]
Examined = tuple[Reasons | None, int, tuple[int, ...]]
"""Why not; else the final part of the score and the parts that are still to be normalized."""
_OF_ALL: Final = frozenset(("node", "cluster"))
# States whose answers are kept.
_MOST_SEEN: Final = 65536


class Plan:
    """``refuses`` says why a node will not do. ``devices``, where set, judges and scores the devices of each node as it is
    examined; else only the node that is about to be picked is asked for its devices."""

    __slots__ = (
        "_elsewhere",
        "_further",
        "_named",
        "_seen",
        "_stamp",
        "_stamps",
        "_state_of",
        "_weights",
        "_within",
        "checks",
        "comparing",
        "devices",
        "fixed_scores",
        "names",
        "notes",
        "posts",
        "profile",
        "raw_scores",
        "reads",
        "scores",
    )

    def __init__(
        self,
        shape: PodShape,
        plugins: Sequence[Plugin],
        state_of: Callable[[NodeInfo], int],
        own: Sequence[Compiled],
        within: frozenset[str] | None = None,
    ) -> None:
        """``own``: what this pod needs besides: of its claims that are allocated already; ``within``: the only nodes for it."""
        profile = self.profile = shape.profile
        weights = dict(profile.scores)
        made = [(plugin.name, found) for plugin in plugins if (found := plugin.compile(shape)) is not None]
        filtering = [(name, found) for name, found in made if name in profile.filters]
        everything = [*own, *(found for _, found in made)]
        self.reads: frozenset[Reads] = frozenset().union(*(found.reads for found in everything))
        self.checks: tuple[Check, ...] = tuple(f.check for f in (*own, *(f for _, f in filtering)) if f.check is not None)
        self._within = within
        self._set_names(filtering, own)
        self.posts: list[Posts] = [found.posts for found in everything if found.posts is not None]
        self.notes: list[Notes] = [found.notes for found in everything if found.notes is not None]
        self.devices: Judge | None = next((found.judge for _, found in made if found.judge is not None), None)
        self._set_scores(made, weights)
        self._state_of = state_of
        self._stamps = [found.stamp for found in everything if found.stamp is not None]
        self._stamp = self.stamp()
        shared = all(found.reads <= _OF_ALL or found.state is not None for found in everything)
        self._further = [found.state for found in everything if found.state is not None]
        self._seen: dict[Hashable, Examined] | None = {} if shared else None

    def _set_names(self, filtering: list[tuple[str, Compiled]], own: Sequence[Compiled]) -> None:
        self._named = self._elsewhere = None
        for _, found in filtering:
            self._named = _both(self._named, found.names)
        for found in own:
            self._elsewhere = _both(self._elsewhere, found.names)
        self.names = _both(_both(self._named, self._elsewhere), self._within)

    def _set_scores(self, made: list[tuple[str, Compiled]], weights: dict[str, int]) -> None:
        self.scores = tuple(
            Score(name, weights[name], found.measure, found.normalize)
            for name, found in made
            if found.measure is not None and name in weights
        )
        self.comparing: list[Comparing] = [
            (name, weights[name], found.compare) for name, found in made if found.compare is not None and name in weights
        ]
        self.fixed_scores = tuple((score.measure, score.weight) for score in self.scores if score.normalize == "none")
        raw = [score for score in self.scores if score.normalize != "none"]
        if self.devices is not None:
            raw.append(Score("DynamicResources", weights.get("DynamicResources", 0), _none, "max"))
        self.raw_scores = tuple(raw)

    # -------------------------------------------------------------------------------------------------------- one node

    def stamp(self) -> Hashable:
        """Changes when something that was read beyond the nodes changed."""
        return tuple([stamp() for stamp in self._stamps]) if self._stamps else ()

    def refresh(self) -> bool:
        """Whether what was read beyond the nodes is not what it was: then what was found out before does not hold."""
        stamp = self.stamp()
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        if self._seen is not None:
            self._seen.clear()
        return True

    def left_out(self, known: Callable[[str], bool], total: int) -> list[tuple[Reasons, int]]:
        """Why nodes are not looked at at all, and how many: the pod names others, its claims are allocated elsewhere, or it has
        to be near to others."""
        found: list[tuple[Reasons, int]] = []
        left: frozenset[str] | None = None
        for reasons, names in ((_OTHER_NAME, self._named), (_ELSEWHERE, self._elsewhere), (_OUTSIDE, self._within)):
            if names is not None:
                left = _both(left, names)
                count = sum(map(known, left or ()))
                found.append((reasons, total - count))
                total = count
        return found

    def examine(self, info: NodeInfo) -> Examined:
        """Why the node will not do; else its scores."""
        if self._seen is None:
            return self._examine(info)
        state: Hashable = info.state or self._state_of(info)
        if self._further:
            state = (state, *[further(info) for further in self._further])
        found = self._seen.get(state)
        if found is None:
            if len(self._seen) > _MOST_SEEN:
                self._seen.clear()
            found = self._seen[state] = self._examine(info)
        return found

    def _examine(self, info: NodeInfo) -> Examined:
        reasons = self.refuses(info)
        return (reasons, 0, ()) if reasons is not None else (None, self._fixed(info), self._raw(info))

    def refuses(self, info: NodeInfo) -> Reasons | None:
        for check in self.checks:
            reasons = check(info)
            if reasons is not None:
                return reasons
        return None

    def _fixed(self, info: NodeInfo) -> int:
        total = 0
        for measure, weight in self.fixed_scores:
            total += measure(info) * weight
        return total

    def _raw(self, info: NodeInfo) -> tuple[int, ...]:
        return tuple(score.measure(info) for score in self.scores if score.normalize != "none")

    def judged(self, info: NodeInfo) -> Judged:
        return self.devices(info) if self.devices is not None else UNJUDGED

    # --------------------------------------------------------------------------------------------------- the sum of scores

    def total(self, fixed: int, raw: Sequence[int], points: int, highest: Sequence[int]) -> int:
        """What a node is worth, in hundredths, among nodes whose highest raw scores these are."""
        total = fixed
        for score, value, most in zip(self.raw_scores, raw, highest):
            total += score.weight * normalized(value, most, score.normalize)
        return 100 * total + points

    def totals(self, found: Sequence[Found], comparing: Sequence[Comparing] | None = None) -> list[int]:
        """One total per node, in hundredths: what the nodes are worth by themselves, and compared with each other (as
        ``comparing`` does, for another pod with the same plan)."""
        raw = [_raw_of(each) for each in found]
        highest = [max(column) for column in zip(*raw)]
        totals = [self.total(each[1][1], values, each[2][2], highest) for each, values in zip(found, raw)]
        for _, weight, values in self.compared(found, comparing):
            totals = [total + 100 * weight * value for total, value in zip(totals, values)]
        return totals

    def compared(
        self, found: Sequence[Found], comparing: Sequence[Comparing] | None = None
    ) -> Iterator[tuple[str, int, list[int]]]:
        infos = [info for info, _, _ in found]
        for name, weight, compare in (self.comparing if comparing is None else comparing) if infos else ():
            yield name, weight, compare(infos)

    def parts(self, found: Sequence[Found]) -> list[dict[str, int]]:
        """By node: points by plugin, which add up to the total; but for the devices' own points."""
        parts: list[dict[str, int]] = [
            {score.name: score.weight * score.measure(info) for score in self.scores if score.normalize == "none"}
            for info, _, _ in found
        ]
        raw = [_raw_of(each) for each in found]
        for score, column in zip(self.raw_scores, zip(*raw)):
            for part, value in zip(parts, column):
                part[score.name] = score.weight * normalized(value, max(column), score.normalize)
        for name, weight, values in self.compared(found):
            for part, value in zip(parts, values):
                part[name] = weight * value
        return parts


Found = tuple[NodeInfo, Examined, Judged]


def _raw_of(found: Found) -> tuple[int, ...]:
    """The last of the raw scores is the rank of the devices, where there is one."""
    _, (_, _, raw), (_, rank, _) = found
    return (*raw, rank)


def _none(_: NodeInfo) -> int:
    return 0


_OTHER_NAME: Final = because("NodeSelectorMismatch")
_ELSEWHERE: Final = because("ClaimElsewhere")
_OUTSIDE: Final = because("OutsideDomain")


def _both(a: frozenset[str] | None, b: frozenset[str] | None) -> frozenset[str] | None:
    if a is None or b is None:
        return b if a is None else a
    return a & b
