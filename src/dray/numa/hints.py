"""The kubelet's merge of topology hints, for each policy: hints of all resources in, one hint and the verdict out.

A hint is a set of zones and whether it is preferred; no set (None) means that any zone will do. The result is the one that the
kubelet's walk over all combinations finds. It is not found by that walk: a combination can only be preferred if all its sets
are equal, and for the others the intersections are collected as a set, so equal ones are looked at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Final

import msgspec

from dray.api.topology import Policy
from dray.numa.masks import Distances, apart

# So many different intersections are looked at; hints that have more are nothing that a machine reports.
INTERSECTIONS_MAX: Final = 200_000


class Hint(msgspec.Struct, frozen=True, order=True):
    mask: int | None
    preferred: bool


class TooManyHints(ValueError):
    """The hints have more different intersections than are looked at."""


# What providers say: resource -> its hints. None for a provider: no hints at all; for a resource: any zone will do.
Provided = Mapping[str, Sequence[Hint] | None] | None

ANY: Final = Hint(None, True)
IMPOSSIBLE: Final = Hint(None, False)


def merge(policy: Policy, zones: int, provided: Iterable[Provided], distances: Distances | None = None) -> tuple[Hint, bool]:
    """The merged hint and whether the pod is admitted. ``zones`` is the mask of all zones; ``distances``, by position, are
    given where the kubelet prefers zones that are near each other. Raises TooManyHints."""
    if policy == "none":
        return IMPOSSIBLE, True
    lists = list(_lists(provided))
    if policy == "single-numa-node":
        lists = [[hint for hint in hints if hint.preferred and _single(hint.mask)] for hints in lists]
        best = _best(zones, lists, None)
        best = Hint(None, best.preferred) if best.mask == zones else best
    else:
        best = _best(zones, lists, distances)
    return best, policy == "best-effort" or best.preferred


def better(current: Hint | None, candidate: Hint, target: int, distances: Distances | None = None) -> bool:
    """Whether the candidate replaces the current best; ``target`` is the width that the others should come near to."""
    if not candidate.mask:
        return False
    if current is None:
        return True
    if current.preferred != candidate.preferred:
        return candidate.preferred
    return _rank(candidate, target, distances) < _rank(current, target, distances)


def _lists(provided: Iterable[Provided]) -> Iterable[Sequence[Hint]]:
    for hints in provided:
        if not hints:
            yield (ANY,)
            continue
        for of_resource in hints.values():
            yield (ANY,) if of_resource is None else of_resource or (IMPOSSIBLE,)


def _single(mask: int | None) -> bool:
    return mask is None or mask.bit_count() == 1


def _best(zones: int, lists: Sequence[Sequence[Hint]], distances: Distances | None) -> Hint:
    target = max((min((h.mask.bit_count() for h in hints if h.mask is not None), default=0) for hints in lists), default=0)
    preferred = [Hint(mask & zones, True) for mask in _common(zones, lists)]
    candidates = preferred or [Hint(mask, False) for mask in _intersections(zones, lists)]
    best: Hint | None = None
    for candidate in candidates:
        if better(best, candidate, target, distances):
            best = candidate
    return best or Hint(zones, False)


def _common(zones: int, lists: Sequence[Sequence[Hint]]) -> set[int]:
    """The sets that every list has as preferred, or leaves open."""
    named = [{hint.mask for hint in hints if hint.preferred} for hints in lists]
    masks = {mask for masks in named for mask in masks if mask is not None and mask & zones}
    found = {mask for mask in masks if all(mask in given or None in given for given in named)}
    return found | {zones} if all(None in given for given in named) else found


def _intersections(zones: int, lists: Sequence[Sequence[Hint]]) -> set[int]:
    def narrow(found: set[int], hints: Sequence[Hint]) -> set[int]:
        masks = {zones if hint.mask is None else hint.mask for hint in hints}
        if len(found) * len(masks) > INTERSECTIONS_MAX:
            raise TooManyHints(f"the hints have more than {INTERSECTIONS_MAX} combinations")
        return {one & other for one in found for other in masks}

    return reduce(narrow, lists, {zones})


def _rank(hint: Hint, target: int, distances: Distances | None) -> tuple[int, int, int, int]:
    """The lower the better. Not preferred: best of the target's width, then below it the wider, then above it the narrower."""
    mask = hint.mask or 0
    width = mask.bit_count()
    if hint.preferred:
        order = (0, width)
    elif width <= target:
        order = (0, target - width)
    else:
        order = (1, width)
    return (*order, apart(mask, distances) if distances is not None else 0, mask)
