"""Taints of devices and tolerations of claims (KEP-5055): the one place that says what matches, what blocks and what evicts.

Always true: an effect that Dray does not know is ``None``: it neither blocks nor evicts. Taints are cumulative: each of them must
be tolerated, and a toleration of one effect says nothing about another. A toleration with an empty effect matches every effect,
for scheduling and for eviction alike. ``adminAccess`` changes nothing: whoever uses a tainted device is concerned.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Final, Protocol

from dray.api.resource import DeviceTaint, DeviceTaintSelector, DeviceToleration
from dray.api.times import format_time, parse_time

# Effects that keep a device from being allocated to a request that does not tolerate them.
BLOCKING: Final = frozenset({"NoSchedule", "NoExecute"})
EVICTING: Final = "NoExecute"
FOREVER: Final = inf
NEVER: Final = -inf


class Taint(Protocol):
    """A taint of a device or of a node."""

    key: str
    value: str
    effect: str


class Toleration(Protocol):
    key: str
    operator: str
    value: str
    effect: str


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether one toleration matches one taint. An empty key or effect matches every one; an unknown operator matches nothing."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator in ("", "Equal"):
        return toleration.value == taint.value
    return toleration.operator == "Exists"


def blocks(taint: Taint) -> bool:
    """Whether the device cannot be allocated, and an allocated claim not be reserved for more pods, without a toleration."""
    return taint.effect in BLOCKING


def evicts(taint: Taint) -> bool:
    """Whether pods that use the device must leave it, unless they tolerate the taint."""
    return taint.effect == EVICTING


def tolerated_seconds(taint: Taint, tolerations: Iterable[DeviceToleration]) -> float:
    """How long an evicting taint is tolerated, counted from when it was added: 0 when not at all, ``FOREVER`` without an end.

    Of several matching tolerations one without an end wins; otherwise the shortest counts. A number of seconds counts only for a
    toleration of exactly ``NoExecute``, as the API says; zero and negative numbers are 0.
    """
    matching = [toleration for toleration in tolerations if tolerates(toleration, taint)]
    if not matching:
        return 0.0
    limits = [each.toleration_seconds if each.effect == EVICTING else None for each in matching]
    if None in limits:
        return FOREVER
    return float(max(0, min(limit for limit in limits if limit is not None)))


def tolerated_until(taint: DeviceTaint, tolerations: Iterable[DeviceToleration]) -> float:
    """Until when a taint that blocks is tolerated: ``NEVER`` when no toleration matches, ``FOREVER`` without an end.

    A toleration whose seconds are over is none: what it let in would be evicted at once.
    """
    known = tuple(tolerations)
    if not any(tolerates(toleration, taint) for toleration in known):
        return NEVER
    if not evicts(taint) or not taint.time_added:
        return FOREVER
    try:
        return parse_time(taint.time_added) + tolerated_seconds(taint, known)
    except ValueError:  # a time that cannot be read began never
        return FOREVER


def refused_taint(
    taints: Iterable[DeviceTaint], tolerations: Iterable[DeviceToleration], now: float
) -> tuple[DeviceTaint, dict[str, str]] | None:
    """The first taint that blocks and is not tolerated now, and what a reason says of it; ``until``: a toleration ended then."""
    known = tuple(tolerations)
    for taint in taints:
        until = tolerated_until(taint, known) if blocks(taint) else FOREVER
        if until <= now:
            told = {"key": taint.key, "value": taint.value, "effect": taint.effect}
            return taint, told if until == NEVER else {**told, "until": format_time(until)}
    return None


def selects(selector: DeviceTaintSelector | None, driver: str, pool: str, device: str) -> bool:
    """Whether a DeviceTaintRule is about a device. Without a selector it is about none; the empty selector is about all. One
    that wants more than names is about none: taken for the names alone, it would taint far more than was meant."""
    if selector is None or not selector.by_names:
        return False
    return (
        (selector.driver is None or selector.driver == driver)
        and (selector.pool is None or selector.pool == pool)
        and (selector.device is None or selector.device == device)
    )
