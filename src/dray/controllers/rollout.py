"""The arithmetic of a rollout: how many replicas each ReplicaSet of a Deployment shall have next. Numbers in, numbers out."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from dray.api.digits import whole


class Sized(msgspec.Struct, frozen=True):
    """A ReplicaSet as the arithmetic sees it."""

    key: str
    replicas: int
    available: int


def bound(value: int | str | None, default: str, total: int, *, up: bool) -> int:
    """An absolute number or a percentage of ``total``, rounded up or down."""
    given = value if value is not None else default
    if isinstance(given, str) and given.endswith("%") and (percent := whole(given[:-1])) is not None:
        share = percent * total / 100
        return math.ceil(share) if up else math.floor(share)
    return int(given)


def limits(desired: int, surge: int | str | None, unavailable: int | str | None) -> tuple[int, int]:
    """maxSurge and maxUnavailable as numbers; both zero would never move, so then one may be unavailable."""
    most = bound(surge, "25%", desired, up=True)
    missing = bound(unavailable, "25%", desired, up=False)
    return most, min(missing if most or missing else 1, desired)


def next_sizes(desired: int, surge: int, unavailable: int, new: Sized, old: Sequence[Sized]) -> dict[str, int]:
    """One step of a rolling update: the new ReplicaSet grows within the surge, old ones shrink within what may be missing.
    ``old`` is oldest first."""
    sizes = {new.key: _grown(desired, surge, new, old)}
    total = sizes[new.key] + sum(each.replicas for each in old)
    # What the new one has not made available yet is counted as missing already.
    removable = total - (desired - unavailable) - max(0, sizes[new.key] - new.available)
    if removable > 0:
        sizes |= _shrunk(desired - unavailable, removable, new, old)
    return sizes


def _grown(desired: int, surge: int, new: Sized, old: Sequence[Sized]) -> int:
    if new.replicas >= desired:
        return desired
    room = desired + surge - new.replicas - sum(each.replicas for each in old)
    return new.replicas + max(0, min(room, desired - new.replicas))


def _shrunk(least: int, removable: int, new: Sized, old: Sequence[Sized]) -> dict[str, int]:
    """Old replicas that are not available go first, whatever their age; then available ones, oldest first."""
    sizes = {each.key: each.replicas for each in old}
    for each in old:
        broken = min(max(0, each.replicas - each.available), removable)
        sizes[each.key] -= broken
        removable -= broken
    spare = min(removable, new.available + sum(each.available for each in old) - least)
    for each in old:
        taken = max(0, min(spare, sizes[each.key]))
        sizes[each.key] -= taken
        spare -= taken
    return sizes
