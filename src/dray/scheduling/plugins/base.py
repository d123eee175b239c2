"""What a plugin is: a demand and a profile's arguments in, a function of a node out.

A filter answers None where the node will do, else why not. A score answers a number; ``normalize`` says how the numbers of
all candidates become 0..100. A plugin that has nothing to say for a demand compiles to None and costs nothing per node.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final, Literal

from dray.api.reason import Reason
from dray.books.nodes import NodeInfo

Reasons = tuple[Reason, ...]
Check = Callable[[NodeInfo], Reasons | None]
Measure = Callable[[NodeInfo], int]
Normalize = Literal["none", "max", "reverse"]

MAX_SCORE: Final = 100


class Score:
    """One score of a profile, compiled for a demand."""

    __slots__ = ("measure", "name", "normalize", "weight")

    def __init__(self, name: str, weight: int, measure: Measure, normalize: Normalize = "none") -> None:
        self.name = name
        self.weight = weight
        self.measure = measure
        self.normalize = normalize


@lru_cache(maxsize=4096)
def because(code: str, **data: str | int) -> Reasons:
    """The shared refusal for a code and its details; the node is known from where it is found."""
    return (Reason(code, "", dict(data)),)


def normalized(raw: int, highest: int, how: Normalize) -> int:
    """A raw score as 0..100 among candidates whose highest raw score is ``highest``."""
    if how == "none":
        return raw
    if highest == 0:
        return MAX_SCORE if how == "reverse" else 0
    scaled = MAX_SCORE * raw // highest
    return MAX_SCORE - scaled if how == "reverse" else scaled
