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


class ZoneArgs(msgspec.Struct, frozen=True):
    """``NUMAArgs``. ``ignored``: resources that are not aligned although nodes report them by zone. ``reconstruct``: what is free
    is counted from the pods that are known, not taken from what is published. ``wait``: for so many seconds a node is left alone
    on which a pod may be elsewhere than it is thought to be."""

    ignored: frozenset[str] = frozenset()
    reconstruct: bool = True
    wait: float = 10.0
    strategy: str = "LeastNUMANodes"
    weights: tuple[ResourceWeight, ...] = ()
    distances: bool = False
