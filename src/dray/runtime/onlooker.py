"""What the parts of a process see, for somebody in it who only looks.

An onlooker is a decider that never decides. Always true: it holds nothing of its own, so a cluster that nobody looks at pays
next to nothing for it, and one who looks need not read the cluster a second time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dray.api.kinds import Kind
from dray.cluster.port import Change, Event, Write
from dray.cluster.world import World


class Onlooker:
    """``world`` is the one that the deciders have. Those in ``told`` hear of every change after the world shows it."""

    name = "onlooker"

    def __init__(self, world: World) -> None:
        self.world = world
        self.kinds: Sequence[Kind] = world.kinds
        self.told: list[Callable[[Change], None]] = []

    def observe(self, event: Event, now: float) -> None:
        if isinstance(event, Change):
            for tell in self.told:
                tell(event)

    def act(self, now: float) -> list[Write]:
        return []

    def wake(self) -> float | None:
        return None
