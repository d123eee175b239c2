"""Arguments of plugins, as a ``KubeSchedulerConfiguration`` gives them."""

from __future__ import annotations

import msgspec


class ResourceWeight(msgspec.Struct, frozen=True):
    name: str
    weight: int = 1


class Shape(msgspec.Struct, frozen=True):
    """One point of a utilization shape: utilization 0..100 scores 0..10."""

    utilization: int
    score: int


class FitArgs(msgspec.Struct, frozen=True):
    """``NodeResourcesFitArgs``."""

    strategy: str = "LeastAllocated"
    resources: tuple[ResourceWeight, ...] = (ResourceWeight("cpu"), ResourceWeight("memory"))
    shape: tuple[Shape, ...] = ()
    ignored_resources: frozenset[str] = frozenset()
    ignored_groups: frozenset[str] = frozenset()
