"""Nodes that hold the pod's images already are better, the more so the fewer other nodes do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from dray.books.demand import Demand
from dray.books.nodes import NodeInfo, Nodes
from dray.scheduling.plugins.base import MAX_SCORE, Compiled, Measure, PodShape, codes_of

_MIB: Final = 1024 * 1024
_SMALLEST: Final = 23 * _MIB
_LARGEST_PER_CONTAINER: Final = 1000 * _MIB

SharedBy = Callable[[str], float]
"""The part of all nodes that hold an image, 0..1."""


def image_locality(demand: Demand, shared_by: SharedBy) -> Measure | None:
    names = tuple(full_name(image) for image in demand.images if image)
    if not names:
        return None
    largest = _LARGEST_PER_CONTAINER * demand.containers

    def measure(info: NodeInfo) -> int:
        images = info.images
        if not images:
            return 0
        held = sum(int(images[name] * shared_by(name)) for name in names if name in images)
        bounded = min(max(held, _SMALLEST), largest)
        return MAX_SCORE * (bounded - _SMALLEST) // (largest - _SMALLEST)

    return measure


class ImageNodes:
    """On how many nodes each image is."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._counts: dict[str, int] = {}

    def changed(self, old: Any, new: Any) -> None:
        """A node came, changed or went."""
        for node, by in ((old, -1), (new, 1)):
            for image in node.status.images if node is not None else ():
                for name in image.names:
                    count = self._counts.get(name, 0) + by
                    if count:
                        self._counts[name] = count
                    else:
                        del self._counts[name]

    def shared_by(self, image: str) -> float:
        return self._counts.get(image, 0) / max(len(self._nodes), 1)

    def stamp(self, images: tuple[str, ...]) -> tuple[int, ...]:
        """Changes when one of these images is worth something else: it came to other nodes, or there are more or fewer."""
        if not self._counts:
            return ()
        counts = tuple(self._counts.get(image, 0) for image in images)
        return (len(self._nodes), *counts) if any(counts) else ()


class ImageLocality:
    name = "ImageLocality"
    codes = codes_of(name)

    def __init__(self, images: ImageNodes) -> None:
        self._images = images

    def compile(self, shape: PodShape) -> Compiled | None:
        measure = image_locality(shape.demand, self._images.shared_by)
        if measure is None:
            return None
        names = tuple(full_name(image) for image in shape.demand.images if image)
        return Compiled(["node", "cluster"], measure=measure, stamp=lambda: self._images.stamp(names))


def full_name(image: str) -> str:
    """With the tag that is meant when none is given."""
    return image if ":" in image.rpartition("/")[2] else f"{image}:latest"
